"""An engine's tensors against goldens: which one differs first, by how much, and perhaps why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from converters.arrays import Arrays, open_arrays
from converters.compare import Difference, difference
from converters.hints import HINTS
from graphtools.errors import UsageError
from graphtools.tensors import Array

__all__ = ["Comparison", "Gates", "Row", "compare", "read_map"]

# Squared distances of unit vectors that two float32 engines may see exchanged: latents differ by
# up to 1e-4 of their length, and the distance by twice that.
_NEAR_TIE = 1e-3
# A tensor that is right up to noise has the golden's length; cosine and an absolute bound alone
# would let a scaled tensor of small values pass.
_LENGTH = 0.01


@dataclass(frozen=True)
class Gates:
    """When a tensor is right.

    Attributes:
        cosine: at least this.
        relative: max|d| at most this times the larger of 1 and max|golden| ...
        noise: ... or this times the golden's own noise, where the baseline carries it.
        absolute: max|d| at most this, in place of both.
    """

    cosine: float = 0.9999
    relative: float = 1e-3
    noise: float = 10.0
    absolute: float | None = None

    def bound(self, golden: Array, noise: float) -> float:
        """The largest max|d| that is right."""
        if self.absolute is not None:
            return self.absolute
        finite = np.abs(golden[np.isfinite(golden)])
        return max(self.relative * max(1.0, float(finite.max(initial=0.0))), self.noise * noise)


@dataclass(frozen=True)
class Row:
    """One golden and what the engine has for it.

    Attributes:
        ours: the engine's name for it; "" where it has none.
        difference: None where the shapes do not fit.
        problem: why it is wrong; "" where it is right.
        note: what is worth knowing of one that is right.
    """

    name: str
    ours: str
    shape: tuple[int, ...]
    difference: Difference | None
    bound: float
    problem: str
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """The result; truthy when everything is there and right.

    Attributes:
        rows: in execution order, where the baseline says it, else in the golden file's.
        extra: the engine's tensors that no golden has.
        weights: weight tensors by stage, of a baseline.
        hints: what would make the first wrong tensor right.
    """

    rows: tuple[Row, ...]
    extra: tuple[str, ...] = ()
    weights: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hints: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.extra and not self.failures

    @property
    def failures(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.problem)

    @property
    def first(self) -> Row | None:
        """The first wrong tensor in execution order."""
        return next(iter(self.failures), None)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "equal": bool(self),
            "compared": len(self.rows),
            "failed": len(self.failures),
            "first": None if self.first is None else self.first.name,
            "hints": list(self.hints),
            "extra": list(self.extra),
            "rows": [
                {
                    "name": row.name,
                    "ours": row.ours,
                    "shape": list(row.shape),
                    "bound": row.bound,
                    "problem": row.problem,
                    "note": row.note,
                    **({} if row.difference is None else row.difference.__dict__),
                }
                for row in self.rows
            ],
        }


def compare(
    golden: Path, ours: Path, *, names: Mapping[str, str] | None = None, gates: Gates | None = None
) -> Comparison:
    """Compare every golden with what the engine wrote.

    Args:
        golden: a baseline, or any GGUF, ``.npz``, ``.npy``, ``.bin`` or folder of arrays.
        ours: the engine's, in any of these forms.
        names: golden name to the engine's name, where they differ.
        gates: when a tensor is right.

    Raises:
        UsageError: the map names what is not there, or nothing can be matched.
        NotAModelError: a file is damaged.
    """
    gates, names = gates or Gates(), names or {}
    a, b = open_arrays(golden), open_arrays(ours)
    for name, other in names.items():
        if name not in a or other not in b:
            raise UsageError(
                "the map names a tensor that is not there",
                file=golden if name not in a else ours,
                found=name if name not in a else other,
            )
    pairs = {name: names.get(name, name) for name in _order(a)}
    if not any(other in b for other in pairs.values()):
        raise UsageError(
            "no tensor of the two files has the same name",
            expected=", ".join([*a.readers][:3]),
            found=", ".join([*b.readers][:3]),
            todo="add --map FILE, with a line `golden ours` for each pair",
        )
    noise = _noise(a)
    rows = [_row(a, b, name, other, gates, noise.get(name, 0.0)) for name, other in pairs.items()]
    mapped = set(pairs.values())
    extra = tuple(name for name in b.readers if name not in mapped)
    result = Comparison(tuple(rows), extra, _weights(a))
    first = result.first
    if first is None or first.ours == "":
        return result
    return Comparison(result.rows, extra, result.weights, _hints(a, b, first, gates, noise))


def read_map(path: Path) -> dict[str, str]:
    """Golden name to engine name, from lines ``golden ours``; ``#`` begins a comment.

    Raises:
        UsageError: there is no such file, or a line is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("the map cannot be read", file=path, found=str(error)) from error
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#")[0].split()
        if len(words) not in (0, 2) or (words and words[0] in found):
            raise UsageError(
                "a line of the map is not one golden name and one of ours",
                file=path,
                where=f"line {number}",
                found=line.strip(),
            )
        if words:
            found[words[0]] = words[1]
    return found


def _listed(a: Arrays, key: str, type: str) -> Sequence[Any]:
    if a.manifest is None or key not in a.manifest.by_key:
        return ()
    listed: Sequence[Any] = a.manifest.get(key, type)
    return listed


def _order(a: Arrays) -> list[str]:
    """Inputs of the network first, then its stages, then what is made of them."""
    stages = [name for name in _listed(a, "baseline.stages", "[string]") if name in a]
    names = [name for name in a.readers if not name.endswith("_margin")]
    if not stages:
        return names
    before = [n for n in names if n in ("wav", "fbank_raw", "fbank")]
    after = [n for n in names if n not in stages and n not in before]
    return [*before, *stages, *after]


def _noise(a: Arrays) -> dict[str, float]:
    stages = _listed(a, "baseline.stages", "[string]")
    values = _listed(a, "baseline.noise", "[f32]")
    return dict(zip(stages, values, strict=False))


def _weights(a: Arrays) -> dict[str, tuple[str, ...]]:
    stages = _listed(a, "baseline.stages", "[string]")
    lines = _listed(a, "baseline.stage_weights", "[string]")
    return {s: tuple(filter(None, w.split("\n"))) for s, w in zip(stages, lines, strict=False)}


def _row(a: Arrays, b: Arrays, name: str, other: str, gates: Gates, noise: float) -> Row:
    golden = a.read(name)
    if other not in b:
        return Row(name, "", golden.shape, None, 0.0, "ours has no such tensor")
    ours = b.read(other)
    if other in b.raw and ours.size == golden.size:
        ours = ours.reshape(golden.shape)
    bound = gates.bound(golden, noise)
    if [d for d in golden.shape if d != 1] != [d for d in ours.shape if d != 1]:
        problem = f"shape {list(ours.shape)} where {list(golden.shape)} should be"
        return Row(name, other, golden.shape, None, bound, problem)
    ours = ours.reshape(golden.shape)
    margin = f"{name}_margin"
    if golden.dtype.kind in "iu" and margin in a:
        problem, note = _codes(golden, ours, a.read(margin))
        return Row(name, other, golden.shape, difference(golden, ours), 0.0, problem, note)
    apart = difference(golden, ours)
    return Row(name, other, golden.shape, apart, bound, _problem(golden, ours, gates, noise))


def _problem(golden: Array, ours: Array, gates: Gates, noise: float) -> str:
    """Why ours is not the golden; "" where it is."""
    apart, bound = difference(golden, ours), gates.bound(golden, noise)
    strange = int((~np.isfinite(ours) & np.isfinite(golden)).sum())
    if strange:
        return f"{strange} values that are not numbers"
    if not apart.max_abs <= bound:
        return f"max|d| {apart.max_abs:.3g} above {bound:.3g}"
    if apart.cosine < gates.cosine:
        return f"cosine {apart.cosine:.6f} below {gates.cosine:g}"
    if apart.max_abs <= gates.noise * noise:  # the golden's own length is no better known
        return ""
    lengths = [float(np.linalg.norm(v.astype(np.float64))) for v in (golden, ours)]
    if lengths[0] and abs(lengths[1] / lengths[0] - 1.0) > _LENGTH:
        return f"{lengths[1] / lengths[0]:.4g} times as long as the golden"
    return ""


def _codes(golden: Array, ours: Array, margin: Array) -> tuple[str, str]:
    """Codes ``[quantizers, frames]``: each is judged where those before it are the same, since a
    quantizer codes what the ones before it left."""
    wrong = golden != ours
    judged = np.cumsum(wrong, axis=0) - wrong == 0
    first = wrong & judged
    ties = first & (margin.reshape(golden.shape) <= _NEAR_TIE)
    real = first & ~ties
    note = f"{int(ties.sum())} near ties" if ties.any() else ""
    if not real.any():
        return "", note
    quantizer, frame = (int(i) for i in np.argwhere(real)[0])
    problem = f"{int(real.sum())} codes differ, first of quantizer {quantizer} in frame {frame}"
    return problem, note


def _hints(
    a: Arrays, b: Arrays, row: Row, gates: Gates, noise: Mapping[str, float]
) -> tuple[str, ...]:
    golden, ours = a.read(row.name), b.read(row.ours)
    if not np.isfinite(golden).all() or not np.isfinite(ours).all():
        return ()

    def equal(one: Array, other: Array) -> bool:
        return one.shape == other.shape and not _problem(
            one, other, gates, noise.get(row.name, 0.0)
        )

    others: dict[str, Callable[[], Array]] = {
        name: partial(a.read, name) for name in a.readers if name != row.name
    }
    found = (hint(golden, ours, equal, others) for hint in HINTS)
    return tuple(line for line in found if line)
