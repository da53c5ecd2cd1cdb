"""What one array would have to undergo to be another: guesses at why an engine differs.

Each hint is a function of (golden, ours, equal, others) that returns a line, or nothing. A line is
returned only when what it says makes the arrays equal within the gate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import permutations

import numpy as np

from graphtools.tensors import Array

__all__ = ["HINTS", "Equal", "Hint"]

# Whether two arrays of one shape are equal within the gate.
Equal = Callable[[Array, Array], bool]
Hint = Callable[[Array, Array, Equal, Mapping[str, Callable[[], Array]]], str | None]

# Frames that two clips may be apart, and ends that may be padded.
_SHIFTS = 8
_CONSTANTS = {
    "32768 (samples as integers)": 32768.0,
    "ln 10 (log10 in place of ln)": math.log(10.0),
    "ln 2 (log2 in place of ln)": math.log(2.0),
}


def _plain(x: Array) -> Array:
    return x.reshape([d for d in x.shape if d != 1]).astype(np.float64)


def _transposed(golden: Array, ours: Array, equal: Equal, others: object) -> str | None:
    """The axes in another order, or written in it under this shape."""
    a, b = _plain(golden), _plain(ours)
    if a.ndim > 4 or a.size != b.size:
        return None
    for order in permutations(range(a.ndim)):
        if order == tuple(range(a.ndim)):
            continue
        turned = a.transpose(order)
        if turned.size == b.size and equal(turned, b.reshape(turned.shape)):
            return f"ours is the golden with its axes in the order {list(order)}"
    return None


def _reversed(golden: Array, ours: Array, equal: Equal, others: object) -> str | None:
    a, b = _plain(golden), _plain(ours)
    if a.shape != b.shape:
        return None
    for axis in range(a.ndim):
        if equal(a, np.flip(b, axis)):
            what = "time" if axis == a.ndim - 1 and a.ndim > 1 else f"axis {axis}"
            return f"ours is the golden with {what} reversed"
    return None


def _shifted(golden: Array, ours: Array, equal: Equal, others: object) -> str | None:
    """The same, some frames later or earlier; what hangs over is cut."""
    a, b = _plain(golden), _plain(ours)
    if not a.ndim or a.shape[:-1] != b.shape[:-1]:
        return None
    for k in (k for n in range(1, _SHIFTS + 1) for k in (n, -n)):
        one, other = (a[..., k:], b) if k > 0 else (a, b[..., -k:])
        length = min(one.shape[-1], other.shape[-1])
        if length > abs(k) and equal(one[..., :length], other[..., :length]):
            return f"ours is the golden {abs(k)} frames {'later' if k < 0 else 'earlier'}"
    return None


def _padded(golden: Array, ours: Array, equal: Equal, others: object) -> str | None:
    a, b = _plain(golden), _plain(ours)
    if not a.ndim or a.shape[:-1] != b.shape[:-1] or a.shape[-1] == b.shape[-1]:
        return None
    longer, shorter, whose = (b, a, "ours") if b.shape[-1] > a.shape[-1] else (a, b, "the golden")
    extra = longer.shape[-1] - shorter.shape[-1]
    for before in range(extra + 1):
        inner = longer[..., before : before + shorter.shape[-1]]
        if equal(*((shorter, inner) if whose == "ours" else (inner, shorter))):
            return f"{whose} has {before} frames more before and {extra - before} after"
    return None


def _scaled(golden: Array, ours: Array, equal: Equal, others: object) -> str | None:
    a, b = _plain(golden), _plain(ours)
    if a.shape != b.shape or not np.isfinite(a).all() or not np.isfinite(b).all() or not b.any():
        return None
    factor = float((a * b).sum() / np.square(b).sum())
    if not factor or not equal(a, factor * b):
        return None
    known = dict(_CONSTANTS)
    known |= {f"the root of {d}": math.sqrt(d) for d in (64, 80, *a.shape) if d >= 16}
    for name, constant in known.items():
        for sign, value in (("too large", 1.0 / constant), ("too small", constant)):
            if math.isclose(factor, value, rel_tol=1e-3):
                return f"ours is {sign} by {name}"
    return f"ours times {factor:.6g} is the golden"


def _mean(golden: Array, ours: Array, equal: Equal, others: object) -> str | None:
    a, b = _plain(golden), _plain(ours)
    if a.shape != b.shape or not a.ndim:
        return None
    if equal(a, b - b.mean(axis=-1, keepdims=True)):
        return "the mean over time is not subtracted from ours"
    if equal(a - a.mean(axis=-1, keepdims=True), b):
        return "the mean over time is subtracted from ours and not from the golden"
    return None


def _activation(golden: Array, ours: Array, equal: Equal, others: object) -> str | None:
    a, b = _plain(golden), _plain(ours)
    if a.shape != b.shape:
        return None
    if b.min(initial=0.0) < 0.0 and equal(a, np.maximum(b, 0.0)):
        return "ours is the value before the ReLU"
    return None


def _elsewhere(
    golden: Array, ours: Array, equal: Equal, others: Mapping[str, Callable[[], Array]]
) -> str | None:
    """Another golden: the value before or after an operation, or the stage next door."""
    b = _plain(ours)
    for name, read in others.items():
        other = _plain(read())
        if other.shape == b.shape and equal(other, b):
            return f"ours is the golden {name!r}"
    return None


def _concatenated(golden: Array, ours: Array, equal: Equal, others: object) -> str | None:
    """Two to four equal parts along the first axis, in another order."""
    a, b = _plain(golden), _plain(ours)
    if a.shape != b.shape or not a.ndim:
        return None
    for parts in (2, 3, 4):
        if len(a) % parts:
            continue
        pieces = np.split(b, parts)
        for order in permutations(range(parts)):
            if list(order) != sorted(order) and equal(
                a, np.concatenate([pieces[i] for i in order])
            ):
                return f"{parts} parts of ours are concatenated in another order: {list(order)}"
    return None


HINTS: tuple[Hint, ...] = (
    _elsewhere,
    _transposed,
    _reversed,
    _shifted,
    _padded,
    _scaled,
    _mean,
    _activation,
    _concatenated,
)
