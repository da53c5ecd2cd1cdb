"""Builds a manifest from a checkpoint: keys, and every tensor kept, renamed or left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from converters.manifest import Entry, require_value
from converters.schema import Row
from converters.sources.source import Source
from graphtools.errors import UnsupportedError
from graphtools.tensors import DType, LazyTensor, Reshape, widened

__all__ = ["CheckpointBuilder", "Options"]


@dataclass(frozen=True)
class Options:
    """What a user may say where a checkpoint is silent.

    Attributes:
        do_normalize: whether the waveform is standardised; None asks the checkpoint.
        strict: a state dict entry that is neither stored nor left out on purpose is an error.
    """

    do_normalize: bool | None = None
    strict: bool = False


class CheckpointBuilder:
    """Collects the entries and tensors of one manifest, tensors in the source's order.

    Attributes:
        stored: source name to the name in the file.
        left_out: source name to why it is not in the file.
    """

    def __init__(self, source: Source, rows: Iterable[Row], options: Options) -> None:
        self.source = source
        self.options = options
        self.rows: Mapping[str, Row] = {row.key: row for row in rows}
        self.entries: list[Entry] = []
        self.tensors: dict[str, LazyTensor] = {}
        self.stored: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
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
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise UnsupportedError(
                f"config.json does not say {name!r} as it should",
                file=self.source.path,
                expected=getattr(kind, "__name__", "a value"),
                found=repr(value) if name in config else "no such key",
                todo="use the config.json that was published with these weights",
            )
        return value

    def keep_all(self, rename: Callable[[str], str] = lambda name: name) -> None:
        """Store every float tensor under its (renamed) name; integer buffers are left out.

        Raises:
            UnsupportedError: a type that cannot be read, or two tensors with one name.
        """
        narrowed = []
        for name, tensor in self.source.tensors.items():
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
