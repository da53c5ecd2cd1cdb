"""The abstract operations that a family's forward is written in.

A forward is a function of `Ops` and never touches values itself. What it means depends on who
reads it: `graphtools.trace` records a template, `graphtools.unify` finds that template in a
graph, `graphtools.numpy_ops` computes it, `graphtools.shapes` follows shapes through it. Arrays
carry no batch axis: a feature map is ``[C, F, T]``, a sequence ``[C, T]``, a vector ``[C]``.

A *slot* names the place of a layer's weights ("layer1.0.conv1"); it is the module path that the
forward gives it, and says nothing about the names in a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar

__all__ = ["LAYOUT", "Ops", "PadMode", "X", "per_axis"]

# Steps that change no value: recovery looks through them.
LAYOUT = frozenset(("channel", "merge_frequency", "stage"))

X = TypeVar("X")

PadMode = Literal["zeros", "reflect"]


class Ops(Protocol[X]):
    """What a forward may use. Every method returns a new value; slots are unique."""

    def channel(self, x: X) -> X:
        """[F, T] to [1, F, T], [n] to [1, n]: a channel axis in front, a layout step."""

    def merge_frequency(self, x: X) -> X:
        """[C, F, T] to [C*F, T], channel outermost: a layout step."""

    def conv(
        self,
        x: X,
        slot: str,
        *,
        kernel: tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        dilation: int | tuple[int, ...] = 1,
        pad: int | tuple[int, ...] | None = None,
        groups: int = 1,
        channels: int | None = None,
        pad_mode: PadMode = "zeros",
    ) -> X:
        """Convolution over the last ``len(kernel)`` axes, weight ``[OC, IC/groups, *kernel]``.

        ``pad`` is zeros on both sides; None is ``dilation * (kernel - 1) // 2``. A vector is
        taken as a sequence of one step. ``channels`` is OC, where the family fixes it.
        Weights stored as a weight-norm pair (g, v) are fused.
        """

    def bn(self, x: X, slot: str) -> X:
        """Inference batch norm over the channel axis, kept as its own tensors."""

    def linear(self, x: X, slot: str) -> X:
        """``W x + b``, W ``[out, in]``, x ``[in]`` or ``[in, T]``."""

    def subtract(self, x: X, slot: str) -> X:
        """``x - c``, c a stored vector."""

    def layer_norm(self, x: X, slot: str, eps: float) -> X:
        """Over channels, per frame, with scale and bias: x ``[C, T]``."""

    def instance_norm(self, x: X, slot: str, eps: float) -> X:
        """Over time, per channel, with scale and bias (a group norm with C groups)."""

    def weighted_sum(self, xs: Sequence[X], slot: str) -> X:
        """Sum of values of one shape, weighted by the softmax of a stored vector."""

    def relu(self, x: X) -> X: ...

    def gelu(self, x: X) -> X:
        """``x * (1 + erf(x / sqrt(2))) / 2``, the exact form."""

    def clip(self, x: X, bound: str) -> X:
        """Clamp to [0, bound]; ``bound`` names a constant of the network."""

    def silu(self, x: X) -> X: ...

    def tanh(self, x: X) -> X: ...

    def sigmoid(self, x: X) -> X: ...

    def add(self, a: X, b: X) -> X: ...

    def mul(self, a: X, b: X) -> X:
        """Elementwise product; a size-1 axis is broadcast."""

    def add_scalar(self, x: X, value: float) -> X:
        """``x + value``."""

    def subtract_from(self, value: float, x: X) -> X:
        """``value - x``."""

    def concat(self, xs: Sequence[X]) -> X:
        """Along the channel axis."""

    def split(self, x: X, parts: int) -> list[X]:
        """Equal parts of the channel axis."""

    def mean(self, x: X) -> X:
        """[C, T] to [C]: the mean over time."""

    def spread(self, x: X, like: X) -> X:
        """[C] to [C, T]: the same at every frame of ``like``."""

    def statistics(self, x: X, weights: X | None, *, floor: float) -> X:
        """[C, T] to [2C]: mean and ``sqrt(max(variance, floor))`` over time.

        ``weights`` ``[C, T]`` sum to one over time; None weighs every frame alike.
        """

    def softmax(self, x: X) -> X:
        """Over the last axis: time of a sequence, classes of a vector."""

    def attention(self, q: X, k: X, v: X, heads: int, window: int | None = None) -> X:
        """Multi-head attention of ``[C, T]`` each; heads are equal parts of the channels.

        With a ``window`` it is causal: position i sees those from ``i - window + 1`` to i.
        """

    def rotary(self, x: X, heads: int, period: float) -> X:
        """Rotary positions from 0 on: channels 2i and 2i + 1 of every head of width D are turned
        by ``t * period**(-2i / D)``."""

    def scale(self, x: X, slot: str) -> X:
        """[C, T] times a stored vector [C]."""

    def patch(self, x: X, size: int) -> X:
        """[C, T] to [C * size, T / size]: channel ``c * size + j`` is sample j of a patch."""

    def unpatch(self, x: X, size: int) -> X:
        """The inverse of `patch`."""

    def mask_padding(self, x: X) -> X:
        """Zero in the frames that hold nothing but padding of the input."""

    def nearest(self, x: X, slot: str) -> X:
        """[D, T] to [T]: the row of a codebook [size, D] with the least squared distance, both
        at unit length."""

    def lookup(self, codes: X, slot: str) -> X:
        """[T] to [D, T]: the codebook's rows as they are stored."""

    def subtract_value(self, a: X, b: X) -> X:
        """``a - b``."""

    def stack(self, xs: Sequence[X]) -> X:
        """Values of one shape along a new first axis."""

    def unstack(self, x: X, count: int) -> list[X]:
        """The ``count`` values along the first axis."""

    def drop_last(self, x: X, count: int) -> X:
        """Without the last ``count`` frames."""

    def standardize(self, x: X, eps: float) -> X:
        """``(x - mean) / sqrt(variance + eps)`` over all elements."""

    def island(self, x: X, kind: str) -> X:
        """A weight-free region that every exporter spells differently (`graphtools.islands`)."""

    def stage(self, x: X, name: str) -> X:
        """A tap: ``x`` itself, which goldens and reports know by ``name``."""


def per_axis(value: int | tuple[int, ...], axes: int) -> tuple[int, ...]:
    """One int for every axis, or the tuple as it is."""
    return (value,) * axes if isinstance(value, int) else value
