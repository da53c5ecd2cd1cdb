"""The computing reading of a forward: numpy in float64, over weights asked for by slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from graphtools.errors import UnsupportedError
from graphtools.islands import ISLANDS
from graphtools.match import Role
from graphtools.ops import Ops, per_axis
from graphtools.tensors import Array

__all__ = ["NumpyOps", "Weights"]


class Weights(Protocol):
    """Where a computation gets its weights."""

    def tensor(self, slot: str, role: Role) -> Array | None:
        """The slot's tensor in that role; None where it has none (a conv without bias)."""

    def stride(self, slot: str) -> int | None:
        """A stride that overrides the forward's own, for manifests that record one per conv."""


@dataclass
class NumpyOps(Ops[Array]):
    """Computes a forward; arrays have no batch axis.

    Attributes:
        weights: asked per slot, so that only one layer is in float64 at a time.
        constants: the network's scalars by name, e.g. ``relu_clamp``, ``tstp.eps``, ``bn.eps``.
        on_stage: called with (name, value) at every stage; what it returns goes on.
        used: slots and constants that took part, constants only where they changed a value.

    """

    weights: Weights
    constants: Mapping[str, float]
    on_stage: Callable[[str, Array], Array] = lambda name, x: x
    used: set[str] = field(default_factory=set)

    def image(self, x: Array) -> Array:
        return x[None]

    def merge_frequency(self, x: Array) -> Array:
        return x.reshape(-1, x.shape[-1])

    def conv(
        self,
        x: Array,
        slot: str,
        *,
        kernel: tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        dilation: int | tuple[int, ...] = 1,
        pad: int | tuple[int, ...] | None = None,
        groups: int = 1,
        channels: int | None = None,
    ) -> Array:
        axes = len(kernel)
        stated = self.weights.stride(slot)
        step = per_axis(stride if stated is None else stated, axes)
        spread = per_axis(dilation, axes)
        same = tuple(d * (k - 1) // 2 for d, k in zip(spread, kernel, strict=True))
        edge = same if pad is None else per_axis(pad, axes)
        weight = self._tensor(slot, "weight")
        vector = x.ndim == 1
        x = x[:, None] if vector else x
        shape = (channels or weight.shape[0], x.shape[0] // groups, *kernel)
        _require(weight.shape == shape, f"weight of {slot}", shape, weight.shape)
        out = _convolve(x, weight, step, spread, edge, groups)
        out = self._plus_bias(out, slot)
        return out[:, 0] if vector else out

    def bn(self, x: Array, slot: str) -> Array:
        column = (x.shape[0], *[1] * (x.ndim - 1))

        def part(role: Role) -> Array:
            found = self._tensor(slot, role)
            _require(found.shape == column[:1], f"{role} of {slot}", column[:1], found.shape)
            return found.reshape(column)

        self.used.add("bn.eps")
        out = (x - part("mean")) / np.sqrt(part("var") + self.constants["bn.eps"])
        if self.weights.tensor(slot, "scale") is not None:  # the last norm has no affine part
            out = out * part("scale") + part("bias")
        return np.asarray(out)

    def linear(self, x: Array, slot: str) -> Array:
        weight = self._tensor(slot, "weight")
        _require(weight.shape[1:] == x.shape, f"weight of {slot}", x.shape, weight.shape[1:])
        return self._plus_bias(weight @ x, slot)

    def subtract(self, x: Array, slot: str) -> Array:
        offset = self._tensor(slot, "offset")
        # One number for all channels is stored as one element.
        _require(offset.size in (1, x.size), f"offset of {slot}", x.shape, offset.shape)
        return x - offset.reshape(-1)

    def relu(self, x: Array) -> Array:
        return np.maximum(x, 0.0)

    def clip(self, x: Array, bound: str) -> Array:
        top = self.constants[bound]
        if x.max(initial=-np.inf) > top:
            self.used.add(bound)
        return np.clip(x, 0.0, top)

    def silu(self, x: Array) -> Array:
        return x * self.sigmoid(x)

    def tanh(self, x: Array) -> Array:
        return np.tanh(x)

    def sigmoid(self, x: Array) -> Array:
        # Through tanh: exp would overflow for large negative x.
        return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))

    def add(self, a: Array, b: Array) -> Array:
        _require(a.shape == b.shape, "the second operand of an addition", a.shape, b.shape)
        return a + b

    def mul(self, a: Array, b: Array) -> Array:
        fits = len(a.shape) == len(b.shape) and all(
            m == n or 1 in (m, n) for m, n in zip(a.shape, b.shape, strict=True)
        )
        _require(fits, "the second operand of a product", a.shape, b.shape)
        return a * b

    def add_scalar(self, x: Array, value: float) -> Array:
        return x + value

    def subtract_from(self, value: float, x: Array) -> Array:
        return value - x

    def concat(self, xs: Sequence[Array]) -> Array:
        first = xs[0].shape[1:]
        for x in xs[1:]:
            _require(x.shape[1:] == first, "a part of a concatenation", first, x.shape[1:])
        return np.concatenate(xs)

    def split(self, x: Array, parts: int) -> list[Array]:
        _require(x.shape[0] % parts == 0, f"channels to split in {parts}", (parts,), x.shape[:1])
        return np.split(x, parts)

    def island(self, x: Array, kind: str) -> Array:
        prefix = f"{kind}."
        mine = {
            name.removeprefix(prefix): value
            for name, value in self.constants.items()
            if name.startswith(prefix)
        }
        self.used.update(prefix + name for name in mine)
        return ISLANDS[kind].compute(x, mine)

    def stage(self, x: Array, name: str) -> Array:
        return self.on_stage(name, x)

    def _tensor(self, slot: str, role: Role) -> Array:
        found = self.weights.tensor(slot, role)
        if found is None:
            raise UnsupportedError(f"the layer {slot} has no {role}", expected="a tensor")
        self.used.add(slot)
        return found.astype(np.float64)

    def _plus_bias(self, x: Array, slot: str) -> Array:
        bias = self.weights.tensor(slot, "bias")
        if bias is not None:
            _require(bias.shape == x.shape[:1], f"bias of {slot}", x.shape[:1], bias.shape)
            x += bias.astype(np.float64).reshape(-1, *[1] * (x.ndim - 1))
        return x


def _require(holds: bool, what: str, expected: tuple[int, ...], found: tuple[int, ...]) -> None:
    """Shapes that do not fit are an answer (the engine would abort), not a crash."""
    if not holds:
        raise UnsupportedError(
            f"the {what} does not fit", expected=str(list(expected)), found=str(list(found))
        )


def _convolve(
    x: Array,
    weight: Array,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    pad: tuple[int, ...],
    groups: int,
) -> Array:
    """[C, *spatial] with ``weight [OC, C / groups, *kernel]``, one or two spatial axes."""
    if x.ndim == 2:  # a sequence is a map of height 1
        tall = _convolve(
            x[:, None],
            weight[:, :, None],
            (1, *stride),
            (1, *dilation),
            (0, *pad),
            groups,
        )
        return tall[:, 0]
    if groups > 1:
        parts = zip(np.split(x, groups), np.split(weight, groups), strict=True)
        return np.concatenate([_convolve(a, w, stride, dilation, pad, 1) for a, w in parts])
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
