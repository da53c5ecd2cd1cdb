"""Numeric kernels of the replay that are more than a line of numpy; float64, no batch axis."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from graphtools.tensors import Array

__all__ = ["attention", "convolve", "erf", "fuse_weight_norm", "softmax"]


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
    padded = np.pad(x, ((0, 0), (pad[0], pad[0]), (pad[1], pad[1])))
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


def attention(q: Array, k: Array, v: Array, heads: int) -> Array:
    """Scaled dot-product attention, every position sees every other; all ``[C, T]``."""
    channels, frames = q.shape
    width = channels // heads
    out = np.empty_like(v)
    for head in range(heads):  # one at a time: [T, T] is the largest thing here
        rows = slice(head * width, (head + 1) * width)
        scores = (q[rows].T / math.sqrt(width)) @ k[rows]  # [query, key]
        out[rows] = v[rows] @ softmax(scores).T
    return out.reshape(channels, frames)


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
