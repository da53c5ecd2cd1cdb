"""|d| of two arrays over two axes, small enough for a page.

A cell holds the largest |d| of what it stands for, never a mean: a lone wrong element stays as
bright as it is.
"""

from __future__ import annotations

import base64
import math
import zlib
from dataclasses import dataclass

import numpy as np

from converters.compare import distance
from graphtools.tensors import Array

__all__ = ["HeatMap", "heat_map"]

_ROWS, _COLUMNS, _CHANNELS = 256, 512, 2048


@dataclass(frozen=True)
class HeatMap:
    """|d| over the first axis (channels) and the last one (time), folded over those between.

    Attributes:
        size: elements along the two axes; an array of one axis has one row.
        axes: which axes of the golden they are; -1 where there is no row axis.
        folded: the axes that each cell is the largest over.
        cells: largest |d| of each cell, float32 ``[rows, columns]``, at most 256 by 512.
        channels: largest and mean |d| of each channel (or group of neighbours, beyond 2048 of
            them), float32 ``[2, channels]``.
    """

    size: tuple[int, int]
    axes: tuple[int, int]
    folded: tuple[int, ...]
    cells: Array
    channels: Array

    def packed(self) -> str:
        """``cells``, then ``channels``, deflated, base64.

        16 bits each: of float32, which have no sign here, the exponent and 8 bits of the mantissa;
        all low bytes stand before all high ones.
        """
        values = np.concatenate([self.cells.ravel(), self.channels.ravel()]).view(np.uint32)
        halves = ((values + 0x4000) >> 15).astype("<u2")  # rounded; an infinity stays one
        planes = halves.view(np.uint8).reshape(-1, 2).T
        return base64.b64encode(zlib.compress(np.ascontiguousarray(planes).tobytes(), 9)).decode()


def heat_map(golden: Array, ours: Array, cells: int = _ROWS * _COLUMNS) -> HeatMap:
    """The map of two arrays of one shape, of at most ``cells`` cells (or one row of them)."""
    apart = distance(golden, ours)
    kept = [axis for axis, d in enumerate(golden.shape) if d != 1]
    apart = apart.reshape([golden.shape[axis] for axis in kept])
    folded: tuple[int, ...] = ()
    if apart.ndim < 2:
        apart = apart.reshape(1, -1)
        axes = -1, kept[0] if kept else max(golden.ndim - 1, 0)
        channels = apart.reshape(-1, 1)
    else:
        apart = apart.reshape(len(apart), -1, apart.shape[-1])
        axes, folded = (kept[0], kept[-1]), tuple(kept[1:-1])
        channels = apart.reshape(len(apart), -1)
        apart = apart.max(axis=1)
    groups = min(len(channels), _CHANNELS)
    worst = _largest(channels.max(axis=1), groups, 0)
    edges = _edges(len(channels), groups)
    counts = np.diff([*edges, len(channels)])
    mean = np.add.reduceat(channels.mean(axis=1), edges) / counts
    rows, columns = _fitting(apart.shape[0], apart.shape[1], cells)
    return HeatMap(
        size=(apart.shape[0], apart.shape[1]),
        axes=axes,
        folded=folded,
        cells=_stored(_largest(_largest(apart, rows, 0), columns, 1)),
        channels=_stored(np.stack([worst, mean])),
    )


def _fitting(rows: int, columns: int, cells: int) -> tuple[int, int]:
    """As many rows and columns as there is room for; the longer side gives way first."""
    rows, columns = min(rows, _ROWS), min(columns, _COLUMNS)
    if rows * columns <= cells:
        return rows, columns
    short = min(rows, columns, max(1, math.isqrt(cells)))
    long = min(max(rows, columns), max(1, cells // short))
    return (short, long) if rows <= columns else (long, short)


def _edges(size: int, cells: int) -> Array:
    """Where each cell begins: cell i stands for size * i // cells up to the next."""
    return np.arange(cells) * size // cells


def _largest(values: Array, cells: int, axis: int) -> Array:
    if values.shape[axis] == cells:
        return values
    edges = _edges(values.shape[axis], cells)
    found: Array = np.maximum.reduceat(values, edges, axis=axis)
    return found


def _stored(values: Array) -> Array:
    with np.errstate(over="ignore"):  # beyond float32 is infinite
        return values.astype(np.float32)
