"""How far two tensors are apart: the measure that the proof, goldens and reports share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from graphtools.tensors import Array

__all__ = ["Difference", "cosine", "difference", "distance", "local_error"]


@dataclass(frozen=True)
class Difference:
    """Ours against a golden.

    Attributes:
        max_abs: largest absolute difference; infinite where only one side is finite.
        at: index of that element.
        mean_abs: mean absolute difference.
        relative: max_abs over max|golden|; infinite where the golden is zero and ours is not.
        cosine: of the two as vectors; 1 when both are zero, 0 when one is.
        snr_db: 10 log10 of golden power over difference power.
        length: of ours as a vector, over the golden's; infinite where only the golden's is zero.
    """

    max_abs: float
    at: tuple[int, ...]
    mean_abs: float
    relative: float
    cosine: float
    snr_db: float
    length: float


# What is not finite, or too large to be squared, is an answer here and no warning.
@np.errstate(over="ignore", invalid="ignore")
def difference(golden: Array, ours: Array) -> Difference:
    """Compare two arrays of one shape, in float64.

    Raises:
        ValueError: the shapes differ (callers decide what that means).
    """
    if golden.shape != ours.shape:
        raise ValueError(f"shapes differ: {golden.shape} and {ours.shape}")
    apart = distance(golden, ours).ravel()
    a, b = (np.asarray(v, np.float64).ravel() for v in (golden, ours))
    at = np.unravel_index(int(apart.argmax()), golden.shape) if apart.size else ()
    largest, mean = float(apart.max(initial=0.0)), float(apart.sum() / max(apart.size, 1))
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.all():  # directions and lengths are those of the numbers that both have
        a, b = a[finite], b[finite]
    peaks = [float(max(v.max(initial=0.0), -v.min(initial=0.0))) for v in (a, b)]
    noise = float("inf")
    if largest < np.inf:
        unit = _unit(*peaks)
        a, b, apart = (a, b, apart) if unit == 1.0 else (a / unit, b / unit, apart / unit)
        noise = _dot(apart, apart)
    powers = [_dot(a, a), _dot(b, b)]
    return Difference(
        max_abs=largest,
        at=tuple(int(i) for i in at),
        mean_abs=mean,
        relative=_ratio(largest, peaks[0]),
        cosine=_cosine(_dot(a, b), *powers) if largest < np.inf else 0.0,
        snr_db=_decibels(powers[0], noise),
        length=math.sqrt(_ratio(powers[1], powers[0])) if any(powers) else 1.0,
    )


def _dot(a: Array, b: Array) -> float:
    """Without BLAS, whose threads take longer to meet than a tensor does to multiply."""
    return float(np.einsum("i,i->", a, b))


def _unit(peak: float, other: float) -> float:
    """What to divide by so that squares neither overflow nor vanish: 1 for all usual values."""
    largest = max(peak, other)
    return 1.0 if not largest or 1e-100 < largest < 1e100 else largest


def _cosine(dot: float, power: float, other: float) -> float:
    if not power or not other:
        return 1.0 if power == other else 0.0
    return dot / (math.sqrt(power) * math.sqrt(other))


def distance(golden: Array, ours: Array) -> Array:
    """|golden - ours| element by element, float64, in their shape.

    The same infinity or NaN on both sides is no difference; on one side it is infinite.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.asarray(np.subtract(golden, ours, dtype=np.float64))
    np.abs(apart, out=apart)
    if golden.dtype.kind in "iu" and ours.dtype.kind in "iu":
        # Above 2^53 neighbours are one float64; integers that differ do so by 1 or more.
        np.maximum(apart, golden != ours, out=apart)
    strange = ~np.isfinite(apart)
    if strange.any():
        same = (golden == ours) | (np.isnan(golden) & np.isnan(ours))
        apart[strange] = np.inf
        apart[strange & same] = 0.0
    return apart


def _ratio(part: float, whole: float) -> float:
    if whole:
        return part / whole
    return float("inf") if part else 0.0


def _decibels(power: float, noise: float) -> float:
    if noise == 0.0:
        return float("inf")
    return 10.0 * math.log10(power / noise) if power > 0.0 and noise < np.inf else float("-inf")


def cosine(a: Array, b: Array) -> float:
    """Cosine of two arrays as vectors; 1 when both are zero, 0 when only one is."""
    x, y = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return 1.0 if np.array_equal(x, y, equal_nan=True) else 0.0
    # Scaled first, so that squares neither overflow nor vanish.
    x, y = (v / (np.abs(v).max(initial=0.0) or 1.0) for v in (x, y))
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    if norms == 0.0:
        return 1.0 if not x.any() and not y.any() else 0.0
    return float(x @ y) / norms


def local_error(reference: Array, ours: Array) -> float:
    """Max over elements of |d| / (|ref| + rms(ref)): relative, but not to a lone small value.

    0 is equal; infinite when one side has a value that is not finite and the other does not.
    """
    a, b = reference.astype(np.float64), ours.astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return 0.0 if np.array_equal(a, b, equal_nan=True) else float("inf")
    if not a.size:
        return 0.0
    apart = np.abs(a - b)
    scale = np.abs(a) + float(np.sqrt(np.square(a).mean()))
    ratio = np.full_like(apart, np.inf)
    ratio[apart == 0.0] = 0.0
    np.divide(apart, scale, out=ratio, where=(apart > 0.0) & (scale > 0.0))
    return float(ratio.max())
