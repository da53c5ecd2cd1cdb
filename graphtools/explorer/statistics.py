"""What a tensor's values look like: extremes, moments, a histogram, the range of every channel."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from graphtools.tensors import Array, DType, LazyTensor

__all__ = ["BINS", "Statistics", "statistics"]

BINS = 32


@dataclass(frozen=True)
class Statistics:
    """Of the finite values, in float64.

    Attributes:
        minimum, maximum, mean, std: std is that of the population, as numpy's.
        strange: how many values are not finite.
        histogram: counts in `BINS` equal intervals from minimum to maximum; NumPy's edges.
        strip: (lowest, highest) of the channels along axis 0, neighbours merged where there are
            more channels than columns; empty for a tensor without axes.
    """

    minimum: float
    maximum: float
    mean: float
    std: float
    strange: int
    histogram: tuple[int, ...]
    strip: tuple[tuple[float, float], ...]


def statistics(tensor: LazyTensor | Array, columns: int) -> Statistics | None:
    """Read one tensor and describe it; None where it holds no finite number.

    Args:
        columns: of the strip, at most.
    """
    if isinstance(tensor, LazyTensor):
        if tensor.dtype in (DType.STRING, DType.OTHER) or not tensor.size:
            return None
        tensor = tensor.read()
    values = np.asarray(tensor, dtype=np.float64)
    finite = np.isfinite(values)
    strange = int(values.size - np.count_nonzero(finite))
    flat = values[finite] if strange else values.reshape(-1)
    if not flat.size:
        return None
    low, high = float(flat.min()), float(flat.max())
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = float(flat.mean()), float(flat.std())
    return Statistics(
        low, high, mean, std, strange, _histogram(flat, low, high), _strip(values, columns)
    )


def _histogram(values: Array, low: float, high: float) -> tuple[int, ...]:
    width = high - low
    if not 0.0 < width < np.inf:
        return (0,) * (BINS // 2) + (int(values.size),) + (0,) * (BINS - BINS // 2 - 1)
    # numpy.histogram in one pass: its search for the exact edge matters to no picture.
    place = np.minimum(((values - low) * (BINS / width)).astype(np.int64), BINS - 1)
    return tuple(int(n) for n in np.bincount(place, minlength=BINS))


def _strip(values: Array, columns: int) -> tuple[tuple[float, float], ...]:
    if not values.ndim or not columns:
        return ()
    finite = np.isfinite(values)
    rows = values if finite.all() else np.where(finite, values, np.nan)
    rows = rows.reshape(len(values), -1)
    lowest, highest = np.fmin.reduce(rows, axis=1), np.fmax.reduce(rows, axis=1)
    ends = np.linspace(0, len(rows), min(columns, len(rows)) + 1).astype(int)
    return tuple(
        (float(np.fmin.reduce(lowest[a:b])), float(np.fmax.reduce(highest[a:b])))
        for a, b in pairwise(ends)
    )
