"""How far two tensors are apart: the measure that the proof, goldens and reports share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from graphtools.tensors import Array

__all__ = ["Difference", "cosine", "difference", "local_error"]


@dataclass(frozen=True)
class Difference:
    """Ours against a golden.

    Attributes:
        max_abs: largest absolute difference; infinite where only one side is finite.
        at: index of that element.
        mean_abs: mean absolute difference.
        cosine: of the two as vectors; 1 when both are zero, 0 when one is.
        snr_db: 10 log10 of golden power over difference power.
    """

    max_abs: float
    at: tuple[int, ...]
    mean_abs: float
    cosine: float
    snr_db: float


# What is not finite, or too large to be squared, is an answer here and no warning.
@np.errstate(over="ignore", invalid="ignore")
def difference(golden: Array, ours: Array) -> Difference:
    """Compare two arrays of one shape, in float64.

    Raises:
        ValueError: the shapes differ (callers decide what that means).
    """
    if golden.shape != ours.shape:
        raise ValueError(f"shapes differ: {golden.shape} and {ours.shape}")
    a, b = golden.astype(np.float64), ours.astype(np.float64)
    # The same infinity or NaN on both sides is no difference; on one side it is infinite.
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    apart = np.full(a.shape, np.inf)
    apart[same] = 0.0
    finite = np.isfinite(a) & np.isfinite(b)
    np.abs(np.subtract(a, b, out=apart, where=finite), out=apart)
    at = np.unravel_index(int(apart.argmax()), apart.shape) if apart.size else ()
    return Difference(
        max_abs=float(apart.max(initial=0.0)),
        at=tuple(int(i) for i in at),
        mean_abs=float(apart.mean()) if apart.size else 0.0,
        cosine=cosine(a, b),
        snr_db=_decibels(a, apart),
    )


def _decibels(golden: Array, apart: Array) -> float:
    noise = float(np.square(apart).sum())
    power = float(np.square(golden[np.isfinite(golden)]).sum())
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
