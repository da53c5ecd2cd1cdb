"""Hints of order: the right values in the wrong places."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from converters.hints.trial import Others, Trial, axis_name
from graphtools.tensors import Array

__all__ = ["concatenated", "flipped", "padded", "shifted", "transposed"]

# Frames that two clips may be apart, and that one may have more.
_SHIFTS, _PADDING = 8, 1000
# Axes that are tried in every order, blocks of a concatenation, elements of each of its slices.
_AXES, _PARTS, _SLICE = 6, 4, 64
# Pairs of slices that are looked at: where many are alike, no order of them says much.
_PAIRS = 1 << 24


def transposed(trial: Trial, others: Others) -> str | None:
    """The axes in another order, or written in it under this shape."""
    a, b = trial.a, trial.b
    if a.ndim > _AXES or a.size != b.size:
        return None
    for order in permutations(range(a.ndim)):
        turned = a.transpose(order)
        if not trial.equal(turned, b.reshape(turned.shape)):
            continue
        if order == tuple(range(a.ndim)):
            return "ours holds the golden's values in their order, under another shape"
        return f"ours is the golden with its axes in the order {list(order)}"
    return None


def flipped(trial: Trial, others: Others) -> str | None:
    """One axis backwards."""
    for axis in range(trial.a.ndim) if trial.a.shape == trial.b.shape else ():
        if trial.equal(trial.a, np.flip(trial.b, axis)):
            return f"ours is the golden with {axis_name(trial, axis)} reversed"
    return None


def shifted(trial: Trial, others: Others) -> str | None:
    """The same, some frames later or earlier; what hangs over is cut."""
    if padded(trial, others):
        return None  # and nothing is cut
    for axis, a, b in _by_axis(trial):
        k = _shift(trial, a, b)
        # Of other axes than time the same slices in another order are the better explanation.
        if k and (axis == trial.a.ndim - 1 or not _blocks(trial, a, b)):
            by = f"{_frames(abs(k))} {'later' if k < 0 else 'earlier'}"
            return f"ours is the golden {by}, along {axis_name(trial, axis)}"
    return None


def _shift(trial: Trial, a: Array, b: Array) -> int:
    """By how much ``a`` has to move to the left to be ``b``; 0 where no shift does it."""
    for k in (k for n in range(1, _SHIFTS + 1) for k in (n, -n)):
        one, other = (a[k:], b) if k > 0 else (a, b[-k:])
        length = min(len(one), len(other))
        if length > abs(k) and trial.equal(one[:length], other[:length]):
            # Where the cut alone makes the two equal, what was moved is not known.
            inner = slice(abs(k), length)
            return 0 if trial.equal(a[inner], b[inner]) else k
    return 0


def padded(trial: Trial, others: Others) -> str | None:
    """More or fewer frames at the ends of one axis, and the same in between."""
    for axis, a, b in _by_axis(trial):
        longer, shorter = (b, a) if len(b) > len(a) else (a, b)
        extra = len(longer) - len(shorter)
        if not 0 < extra <= _PADDING or not len(shorter):
            continue
        for before in range(extra + 1):
            inner = longer[before : before + len(shorter)]
            if trial.equal(*((a, inner) if longer is b else (inner, b))):
                what = "has {} more" if longer is b else "lacks {}"
                said = what.format(f"{_frames(before)} at the start and {extra - before}")
                return f"ours {said} at the end, along {axis_name(trial, axis)}"
    return None


def concatenated(trial: Trial, others: Others) -> str | None:
    """The same slices along an axis, in up to four blocks that stand in another order."""
    for axis, a, b in _by_axis(trial):
        blocks = _blocks(trial, a, b)
        if not blocks:
            continue
        if axis == trial.a.ndim - 1 and _shift(trial, a, b):
            return None
        order = ", ".join(f"{i}:{j}" for i, j in blocks)
        where = axis_name(trial, axis)
        return f"ours is concatenated in another order: the golden's {order} of {where}"
    return None


def _blocks(trial: Trial, a: Array, b: Array) -> list[tuple[int, int]]:
    """Ranges of ``a`` that stand one after the other in ``b`` and are all of it; none where they
    are too many, or do not make the two equal."""
    if a.shape != b.shape:
        return []
    at = np.unique(np.random.default_rng(0).integers(0, a[0].size, _SLICE))
    one, other = (x.reshape(len(x), -1)[:, at] for x in (a, b))
    free = np.ones(len(one), bool)
    found: list[tuple[int, int]] = []
    done = 0
    while done < len(other):
        starts = np.flatnonzero((np.abs(one - other[done]) <= trial.bound).all(1) & free)
        if not len(starts) or len(starts) * len(one) > _PAIRS or len(found) == _PARTS:
            return []
        runs = [(_run(one[i:], other[done:], free[i:], trial.bound), -i) for i in starts]
        length, start = max(runs)
        found.append((int(-start), int(-start) + length))
        free[-start : -start + length] = False
        done += length
    if len(found) < 2 or not trial.equal(np.concatenate([a[i:j] for i, j in found]), b):
        return []
    return found


def _run(one: Array, other: Array, free: Array, bound: float) -> int:
    """How many slices agree from here on."""
    length = min(len(one), len(other))
    fits = (np.abs(one[:length] - other[:length]) <= bound).all(1) & free[:length]
    return length if fits.all() else int(fits.argmin())


def _by_axis(trial: Trial) -> Iterator[tuple[int, Array, Array]]:
    """The two with each axis in turn as the first, the last one (time) first; where they differ
    in no other axis."""
    a, b = trial.a, trial.b
    for axis in reversed(range(a.ndim)) if a.ndim == b.ndim else ():
        one, other = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
        if one.shape[1:] == other.shape[1:]:
            yield axis, one, other


def _frames(count: int) -> str:
    return "1 frame" if count == 1 else f"{count} frames"
