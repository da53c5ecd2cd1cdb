"""Numeric kernels of the replay that are more than a line of numpy; float64, no batch axis."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from graphtools.tensors import Array

__all__ = [
    "attention",
    "convolve",
    "erf",
    "fuse_weight_norm",
    "nearest",
    "rotary",
    "softmax",
]


def convolve(
    x: Array,
    weight: Array,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    pad: tuple[int, ...],
    groups: int,
) -> Array:
    """[C, *spatial] with ``weight [OC, C / groups, *kernel]``, one or two spatial axes, padded
    with zeros on both sides."""
    if x.ndim == 2:  # a sequence is a map of height 1
        tall = convolve(
            x[:, None], weight[:, :, None], (1, *stride), (1, *dilation), (0, *pad), groups
        )
        return tall[:, 0]
    if groups > 1:
        parts = zip(np.split(x, groups), np.split(weight, groups), strict=True)
        return np.concatenate([convolve(a, w, stride, dilation, pad, 1) for a, w in parts])
    channels, (kh, kw) = weight.shape[0], weight.shape[2:]
    if kh == kw == 1 and not any(pad):
        view = x[:, :: stride[0], :: stride[1]]
        flat = weight.reshape(channels, -1) @ view.reshape(view.shape[0], -1)
        return np.asarray(flat.reshape(channels, *view.shape[1:]))
    # Unfold the width alone, and add up one matrix product per kernel row: a third of the
    # copying of full patches for a 3x3 kernel, and rows at stride 1 are plain views.
    padded = np.zeros((x.shape[0], x.shape[1] + 2 * pad[0], x.shape[2] + 2 * pad[1]), x.dtype)
    padded[:, pad[0] : pad[0] + x.shape[1], pad[1] : pad[1] + x.shape[2]] = x
    windows = sliding_window_view(padded, dilation[1] * (kw - 1) + 1, axis=2)
    windows = windows[:, :, :: stride[1], :: dilation[1]]
    rows = np.ascontiguousarray(windows.transpose(0, 3, 1, 2))  # [C, kw, padded H, W]
    depth, width = rows.shape[0] * kw, rows.shape[3]
    rows = rows.reshape(depth, -1, width)
    height = (padded.shape[1] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    out = np.zeros((channels, height * width))
    for i in range(kh):
        top = i * dilation[0]
        part = rows[:, top : top + stride[0] * (height - 1) + 1 : stride[0]]
        out += weight[:, :, i].reshape(channels, depth) @ part.reshape(depth, -1)
    return out.reshape(channels, height, width)


# Queries that a windowed attention computes at a time; bounds the score matrix.
_QUERY_BLOCK = 512


def attention(q: Array, k: Array, v: Array, heads: int, window: int | None = None) -> Array:
    """Scaled dot-product attention of ``[C, T]`` each.

    Without a window every position sees every other. With one it is causal: i sees
    ``i - window + 1 .. i``, and no more than a block of queries' windows is held at a time.
    """
    channels, frames = q.shape
    width = channels // heads
    out = np.empty_like(v)
    block = frames if window is None else _QUERY_BLOCK
    for head in range(heads):
        rows = slice(head * width, (head + 1) * width)
        for start in range(0, frames, block):
            stop = min(start + block, frames)
            first, last = (0, frames) if window is None else (max(0, start - window + 1), stop)
            scores = (q[rows, start:stop].T / math.sqrt(width)) @ k[rows, first:last]
            if window is not None:
                age = np.arange(start, stop)[:, None] - np.arange(first, last)
                scores = np.where((age >= 0) & (age < window), scores, -np.inf)
            out[rows, start:stop] = v[rows, first:last] @ softmax(scores).T
    return out


def rotary(x: Array, heads: int, period: float) -> Array:
    """Turn channels 2i and 2i + 1 of every head (width D) by ``t * period**(-2i / D)``."""
    channels, frames = x.shape
    width = channels // heads
    rate = period ** (-np.arange(0, width, 2) / width)
    angle = rate[:, None] * np.arange(frames)
    even, odd = x.reshape(heads, width // 2, 2, frames).transpose(2, 0, 1, 3)
    cos, sin = np.cos(angle), np.sin(angle)
    turned = np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=2)
    return turned.reshape(channels, frames)


def nearest(x: Array, book: Array) -> tuple[Array, Array]:
    """For each column of ``x [D, T]`` the nearest row of ``book [size, D]``, both at unit length,
    and how much larger the second least squared distance is; both ``[T]``."""
    rows = book / np.maximum(np.linalg.norm(book, axis=1, keepdims=True), 1e-12)
    columns = x / np.maximum(np.linalg.norm(x, axis=0), 1e-12)
    squares = np.square(rows).sum(axis=1)[:, None] + np.square(columns).sum(axis=0)
    distances = squares - 2.0 * rows @ columns
    codes = distances.argmin(axis=0)
    two = np.partition(distances, 1, axis=0)[:2] if len(book) > 1 else np.repeat(distances, 2, 0)
    return codes, two[1] - two[0]


def softmax(x: Array) -> Array:
    """Over the last axis."""
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def erf(x: Array) -> Array:
    """The error function, element by element: numpy has none, the C library's is exact."""
    flat = np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size)
    return flat.reshape(x.shape)


def fuse_weight_norm(g: Array, v: Array) -> Array:
    """``g * v / ||v||`` in float64; the norm is over every axis along which g has size 1.

    That is how torch stores a weight norm over one axis (``dim``): g keeps that axis alone.
    """
    v = v.astype(np.float64)
    axes = tuple(a for a, size in enumerate(g.shape) if size == 1)
    norm = np.sqrt(np.square(v).sum(axis=axes, keepdims=True))
    return np.asarray(g.astype(np.float64) * v / norm)
