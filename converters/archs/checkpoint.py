"""Builds a manifest from a checkpoint: keys, and every tensor kept, renamed or left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from converters.manifest import Entry, require_value
from converters.schema import Row
from converters.sources.source import Source
from graphtools.errors import UnsupportedError
from graphtools.tensors import DType, LazyTensor, Reshape, WeightNorm, widened

__all__ = ["BY_USER", "CheckpointBuilder", "Options"]

# Origin of a value that only the user can say.
BY_USER = "the user"


# Both spellings of a weight-norm pair, magnitude first.
_PAIRS = {
    ".parametrizations.weight.original0": (
        ".parametrizations.weight.original0",
        ".parametrizations.weight.original1",
    ),
    ".parametrizations.weight.original1": (
        ".parametrizations.weight.original0",
        ".parametrizations.weight.original1",
    ),
    ".weight_g": (".weight_g", ".weight_v"),
    ".weight_v": (".weight_g", ".weight_v"),
}
_PAIR_ENDINGS = tuple(_PAIRS)


@dataclass(frozen=True)
class Options:
    """What a user may say where a checkpoint is silent.

    Attributes:
        do_normalize: whether the waveform is standardised; None asks the checkpoint.
        strip_prefix: taken off every name of the checkpoint.
        strict: a state dict entry that is neither stored nor left out on purpose is an error.
    """

    do_normalize: bool | None = None
    strip_prefix: str = ""
    strict: bool = False


class CheckpointBuilder:
    """Collects the entries and tensors of one manifest, tensors in the source's order.

    Attributes:
        stored: source name to the name in the file.
        left_out: source name to why it is not in the file.
        unplaced: those of them that the architecture does not know.
    """

    def __init__(self, source: Source, rows: Iterable[Row], options: Options) -> None:
        self.source = source
        self.options = options
        self.rows: Mapping[str, Row] = {row.key: row for row in rows}
        self.entries: list[Entry] = []
        self.tensors: dict[str, LazyTensor] = {}
        self.stored: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.unplaced: list[str] = []
        self.notes: list[str] = []

    def set(self, key: str, value: object, origin: str) -> None:
        """Add a key; its type is the row's."""
        type = self.rows[key].type
        self.entries.append(Entry(key, type, require_value(key, type, value), origin))

    def fixed(self, key: str, origin: str) -> None:
        """Add a key with the value that the schema fixes."""
        self.set(key, self.rows[key].fixed, origin)

    def require_config(
        self, config: Mapping[str, Any], name: str, kind: type | tuple[type, ...]
    ) -> Any:
        """A value of the checkpoint's config.json, of a type.

        Raises:
            UnsupportedError: it is not there or of another type; nothing is guessed.
        """
        value = config.get(name)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise UnsupportedError(
                f"config.json does not say {name!r} as it should",
                file=self.source.path,
                expected=" or ".join(k.__name__ for k in kinds),
                found=repr(value)[:200] if name in config else "no such key",
                todo="use the config.json that was published with these weights",
            )
        return value

    def require_number(self, config: Mapping[str, Any], name: str) -> float:
        """A number of the checkpoint's config.json, which may be spelled as an integer.

        Raises:
            UnsupportedError: it is not there, or nothing that a float can hold.
        """
        value = self.require_config(config, name, (float, int))
        try:
            return float(value)
        except OverflowError:
            return math.inf  # which no key takes

    def fuse_weight_norms(self) -> None:
        """Store every float tensor, weight-norm pairs as the one weight that they mean.

        Both spellings are taken; kernel axes of size 1 are dropped, so that the projection is a
        plain ``[out, in]`` matrix.

        Raises:
            UnsupportedError: half a pair, or a pair over another axis than the first.
        """
        tensors = dict(self.source.tensors)
        for name in [n for n in tensors if n.endswith(_PAIR_ENDINGS)]:
            stem, ending = next(
                (name.removesuffix(e), e) for e in _PAIR_ENDINGS if name.endswith(e)
            )
            halves = [stem + e for e in _PAIRS[ending]]
            if not all(half in tensors for half in halves):
                missing = next((h for h in halves if h not in tensors), None)
                if missing is None:
                    continue
                raise UnsupportedError(
                    f"the weight norm of {stem!r} is not whole",
                    file=self.source.path,
                    expected=" and ".join(halves),
                    found=name,
                )
            if name != halves[0]:
                continue
            self._fuse(f"{stem}.weight", tensors[halves[0]], tensors[halves[1]])
        pairs = set(self.stored)
        self.keep_all(skip=pairs)

    def _fuse(self, name: str, g: LazyTensor, v: LazyTensor) -> None:
        if not v.shape or g.size != v.shape[0] or g.shape[:1] != v.shape[:1]:
            raise UnsupportedError(
                f"the weight norm of {name!r} is not over its first axis",
                file=self.source.path,
                expected=f"{g.name} with one value for each row of {v.name}",
                found=f"shapes {list(g.shape)} and {list(v.shape)}",
            )
        shape = (*v.shape[:2], *(d for d in v.shape[2:] if d != 1))
        self.tensors[name] = LazyTensor(name, shape, DType.F32, WeightNorm(g, v))
        self.stored[g.name] = self.stored[v.name] = name

    def leave_out(self, name: str, why: str) -> None:
        """Take a tensor that was stored out again; the architecture has no place for it."""
        del self.tensors[name]
        for source in [s for s, stored in self.stored.items() if stored == name]:
            del self.stored[source]
            self.left_out[source] = why
            self.unplaced.append(source)

    def keep_all(
        self,
        rename: Callable[[str], str] = lambda name: name,
        skip: Collection[str] = (),
        expected: Collection[str] = (),
    ) -> None:
        """Store every float tensor under its (renamed) name; integer buffers are left out.

        Args:
            rename: source name to the name in the file.
            skip: tensors that are stored already.
            expected: entries that are no tensors, and that are known to have no place.

        Raises:
            UnsupportedError: a type that cannot be read, or two tensors with one name.
        """
        narrowed = []
        for name, tensor in self.source.tensors.items():
            if name in skip:
                continue
            if not tensor.dtype.is_float and tensor.dtype is not DType.OTHER:
                self.left_out[name] = f"{tensor.dtype.label} buffer, not a weight"
                continue
            new = rename(name)
            if new in self.tensors:
                other = next(k for k, v in self.stored.items() if v == new)
                raise UnsupportedError(
                    f"two tensors would be stored as {new!r}", found=f"{other!r} and {name!r}"
                )
            if tensor.dtype is DType.F64:
                narrowed.append(name)
            tensor = widened(tensor)
            if not tensor.shape:  # GGUF has no scalars
                tensor = LazyTensor(new, (1,), tensor.dtype, Reshape(tensor))
            self.tensors[new] = tensor.named(new)
            self.stored[name] = new
        if narrowed:
            self.notes.append(f"{len(narrowed)} f64 tensors are rounded to f32: {narrowed[0]} ..")
        for name, what in self.source.skipped.items():
            self.left_out[name] = f"{what}, not a tensor"
        self.unplaced += [name for name in self.source.skipped if name not in expected]
