"""The computing reading of a forward: numpy in float64, over weights asked for by slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from graphtools.errors import UnsupportedError
from graphtools.islands import ISLANDS
from graphtools.kernels import (
    attention,
    convolve,
    erf,
    fuse_weight_norm,
    nearest,
    rotary,
    softmax,
)
from graphtools.match import Role
from graphtools.ops import Ops, PadMode, per_axis
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
        valid_frames: frames from here on hold padding (`Ops.mask_padding`); None: none do.
        margins: for every codebook searched, how much farther the second nearest row was.
    """

    weights: Weights
    constants: Mapping[str, float]
    on_stage: Callable[[str, Array], Array] = lambda name, x: x
    used: set[str] = field(default_factory=set)
    valid_frames: int | None = None
    margins: dict[str, Array] = field(default_factory=dict)

    def channel(self, x: Array) -> Array:
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
        pad_mode: PadMode = "zeros",
    ) -> Array:
        axes = len(kernel)
        stated = self.weights.stride(slot)
        step = per_axis(stride if stated is None else stated, axes)
        spread = per_axis(dilation, axes)
        same = tuple(d * (k - 1) // 2 for d, k in zip(spread, kernel, strict=True))
        edge = same if pad is None else per_axis(pad, axes)
        weight = self._conv_weight(slot)
        vector = x.ndim == 1
        x = x[:, None] if vector else x
        parts = (groups, groups)
        whole = (weight.shape[0] % groups, x.shape[0] % groups) == (0, 0)
        _require(whole, f"channels of {slot}, in {groups} groups", parts, weight.shape[:1])
        shape = (channels or weight.shape[0], x.shape[0] // groups, *kernel)
        _require(weight.shape == shape, f"weight of {slot}", shape, weight.shape)
        if pad_mode == "reflect" and any(edge):
            _require(
                all(p < n for p, n in zip(edge, x.shape[1:], strict=True)),
                "input, reflected at its edges,",
                edge,
                x.shape[1:],
            )
            x, edge = np.pad(x, ((0, 0), *((p, p) for p in edge)), mode="reflect"), (0,) * axes
        reach = tuple(d * (k - 1) + 1 - 2 * p for d, k, p in zip(spread, kernel, edge, strict=True))
        _require(
            all(n >= r for n, r in zip(x.shape[1:], reach, strict=True)),
            f"input of {slot}",
            reach,
            x.shape[1:],
        )
        out = convolve(x, weight, step, spread, edge, groups)
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
        _require(
            weight.shape[1:] == x.shape[:1], f"weight of {slot}", x.shape[:1], weight.shape[1:]
        )
        return self._plus_bias(weight @ x, slot)

    def subtract(self, x: Array, slot: str) -> Array:
        offset = self._tensor(slot, "offset")
        # One number for all channels is stored as one element.
        _require(offset.size in (1, x.size), f"offset of {slot}", x.shape, offset.shape)
        return x - offset.reshape(-1)

    def layer_norm(self, x: Array, slot: str, eps: float) -> Array:
        centred = x - x.mean(axis=0)
        return self._affine(centred / np.sqrt(np.square(centred).mean(axis=0) + eps), slot)

    def instance_norm(self, x: Array, slot: str, eps: float) -> Array:
        centred = x - x.mean(axis=1, keepdims=True)
        var = np.square(centred).mean(axis=1, keepdims=True)
        return self._affine(centred / np.sqrt(var + eps), slot)

    def weighted_sum(self, xs: Sequence[Array], slot: str) -> Array:
        weights = softmax(self._tensor(slot, "value"))
        _require(weights.shape == (len(xs),), slot, (len(xs),), weights.shape)
        for x in xs[1:]:
            _require(x.shape == xs[0].shape, f"a value summed by {slot}", xs[0].shape, x.shape)
        return np.asarray(sum(w * x for w, x in zip(weights, xs, strict=True)))

    def relu(self, x: Array) -> Array:
        return np.maximum(x, 0.0)

    def gelu(self, x: Array) -> Array:
        return x * (0.5 + 0.5 * erf(x / np.sqrt(2.0)))

    def mean(self, x: Array) -> Array:
        return np.asarray(x.mean(axis=-1))

    def spread(self, x: Array, like: Array) -> Array:
        return np.broadcast_to(x[:, None], (len(x), like.shape[-1]))

    def statistics(self, x: Array, weights: Array | None, *, floor: float) -> Array:
        shares = np.full_like(x, 1.0 / x.shape[1]) if weights is None else weights
        mean = (shares * x).sum(axis=1)
        var = (shares * np.square(x - mean[:, None])).sum(axis=1)
        return np.concatenate([mean, np.sqrt(np.maximum(var, floor))])

    def softmax(self, x: Array) -> Array:
        return softmax(x)

    def attention(
        self, q: Array, k: Array, v: Array, heads: int, window: int | None = None
    ) -> Array:
        _require(len(q) % heads == 0, f"channels of {heads} heads", (heads,), q.shape[:1])
        return attention(q, k, v, heads, window)

    def rotary(self, x: Array, heads: int, period: float) -> Array:
        _require(len(x) % (2 * heads) == 0, f"channels of {heads} heads", (heads,), x.shape[:1])
        return rotary(x, heads, period)

    def scale(self, x: Array, slot: str) -> Array:
        factor = self._tensor(slot, "value")
        _require(factor.shape == x.shape[:1], slot, x.shape[:1], factor.shape)
        return x * factor[:, None]

    def patch(self, x: Array, size: int) -> Array:
        channels, frames = x.shape
        _require(frames % size == 0, f"length to patch by {size}", (size,), (frames,))
        split = x.reshape(channels, frames // size, size).transpose(0, 2, 1)
        return split.reshape(channels * size, frames // size)

    def unpatch(self, x: Array, size: int) -> Array:
        channels, frames = x.shape
        _require(channels % size == 0, f"channels to unpatch by {size}", (size,), (channels,))
        split = x.reshape(channels // size, size, frames).transpose(0, 2, 1)
        return split.reshape(channels // size, frames * size)

    def mask_padding(self, x: Array) -> Array:
        if self.valid_frames is None or self.valid_frames >= x.shape[-1]:
            return x
        return np.where(np.arange(x.shape[-1]) < self.valid_frames, x, 0.0)

    def nearest(self, x: Array, slot: str) -> Array:
        book = self._tensor(slot, "value")
        _require(book.shape[1:] == x.shape[:1], slot, x.shape[:1], book.shape[1:])
        codes, self.margins[slot] = nearest(x, book)
        return codes

    def lookup(self, codes: Array, slot: str) -> Array:
        book = self._tensor(slot, "value")
        _require(
            codes.size == 0 or 0 <= codes.min() <= codes.max() < len(book),
            f"code of {slot}",
            (len(book),),
            (int(codes.max(initial=0)),),
        )
        return book[codes.astype(np.int64)].T

    def subtract_value(self, a: Array, b: Array) -> Array:
        _require(a.shape == b.shape, "the second operand of a subtraction", a.shape, b.shape)
        return a - b

    def stack(self, xs: Sequence[Array]) -> Array:
        return np.stack(xs)

    def unstack(self, x: Array, count: int) -> list[Array]:
        _require(len(x) == count, "number of parts", (count,), x.shape[:1])
        return list(x)

    def drop_last(self, x: Array, count: int) -> Array:
        return x[..., :-count]

    def standardize(self, x: Array, eps: float) -> Array:
        return np.asarray((x - x.mean()) / np.sqrt(x.var() + eps))

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

    def _conv_weight(self, slot: str) -> Array:
        g = self.weights.tensor(slot, "weight_g")
        if g is None:
            return self._tensor(slot, "weight")
        v = self._tensor(slot, "weight_v")
        fits = g.ndim == v.ndim and all(a in (1, b) for a, b in zip(g.shape, v.shape, strict=True))
        _require(fits, f"weight_g of {slot}", v.shape, g.shape)
        return fuse_weight_norm(g, v)

    def _affine(self, x: Array, slot: str) -> Array:
        for role in ("weight", "bias"):
            found = self.weights.tensor(slot, role)
            _require(
                found is not None and found.shape == x.shape[:1],
                f"{role} of {slot}",
                x.shape[:1],
                () if found is None else found.shape,
            )
        column = (len(x), *[1] * (x.ndim - 1))
        return np.asarray(
            x * self._tensor(slot, "weight").reshape(column)
            + self._tensor(slot, "bias").reshape(column)
        )

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
