"""The shape reading of a forward: what fits where, from the shapes of the weights alone.

No value is read. An axis whose length the input decides (time) is None and fits anything. What
does not fit is noted, and what it would have decided is None from there on, so that one wrong
tensor is one `Misfit` or two, and not one for every layer behind it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphtools.islands import ISLANDS
from graphtools.match import Role
from graphtools.ops import Ops, PadMode, per_axis

__all__ = ["Misfit", "Shape", "ShapeOps"]

# numpy axis order, without a batch axis; None: any length.
Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Misfit:
    """A place where shapes do not fit.

    Attributes:
        slot: the layer, or the last one before an op without weights.
        role: of the tensor that does not fit; None where it is two values that do not.
    """

    slot: str
    role: Role | None
    expected: str
    found: str


@dataclass
class ShapeOps(Ops[Shape]):
    """Follows shapes through a forward.

    Attributes:
        shapes: of the weights, by slot and role.
        strides: of convolutions, where a manifest lists them.
        misfits: what did not fit, in execution order.
        stages: the shape at every stage.
    """

    shapes: Mapping[tuple[str, Role], tuple[int, ...]]
    strides: Mapping[str, int] = field(default_factory=dict)
    misfits: list[Misfit] = field(default_factory=list)
    stages: dict[str, Shape] = field(default_factory=dict)
    _last: str = "the input"

    def channel(self, x: Shape) -> Shape:
        return (1, *x)

    def merge_frequency(self, x: Shape) -> Shape:
        return (_product(x[:-1]), x[-1])

    def conv(
        self,
        x: Shape,
        slot: str,
        *,
        kernel: tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        dilation: int | tuple[int, ...] = 1,
        pad: int | tuple[int, ...] | None = None,
        groups: int = 1,
        channels: int | None = None,
        pad_mode: PadMode = "zeros",
    ) -> Shape:
        axes = len(kernel)
        step = per_axis(self.strides.get(slot, stride), axes)
        spread = per_axis(dilation, axes)
        reach = tuple(d * (k - 1) for d, k in zip(spread, kernel, strict=True))
        edge = tuple(r // 2 for r in reach) if pad is None else per_axis(pad, axes)
        whole = x[0] is None or x[0] % groups == 0
        inputs = x[0] // groups if x[0] is not None and whole else None
        pair = (slot, "weight_g") in self.shapes
        main: Role = "weight_v" if pair else "weight"
        weight = self._weight(slot, main, (channels, inputs, *kernel))
        if pair:
            gain = self.shapes[slot, "weight_g"]
            fits = len(gain) == len(weight) and all(
                a == 1 or b in (a, None) for a, b in zip(gain, weight, strict=True)
            )
            self._note(fits, "weight_g", f"each axis 1 or as {_told(weight)}", _told(gain))
        out = weight[0]
        self._note(whole, None, f"channels in {groups} groups", f"{x[0]}")
        self._note(out is None or out % groups == 0, main, f"{groups} groups", f"{out} rows")
        self._bias(slot, out)
        if len(x) == 1:
            return (out,)
        sizes = [
            None if n is None else (n + 2 * p - r - 1) // s + 1
            for n, p, r, s in zip(x[1:], edge, reach, step, strict=True)
        ]
        self._note(all(n is None or n > 0 for n in sizes), None, "an axis left", _told(x))
        return (out, *sizes)

    def bn(self, x: Shape, slot: str) -> Shape:
        affine: tuple[Role, ...] = ("scale", "bias")
        kept = [role for role in affine if (slot, role) in self.shapes]  # the last norm has none
        for role in (*kept, *_RUNNING):
            self._weight(slot, role, x[:1])
        return x

    def linear(self, x: Shape, slot: str) -> Shape:
        out = self._weight(slot, "weight", (None, x[0]))[0]
        self._bias(slot, out)
        return (out, *x[1:])

    def subtract(self, x: Shape, slot: str) -> Shape:
        self._last = slot
        size = math.prod(self.shapes.get((slot, "offset"), ()))
        self._note(x[0] is None or size in (1, x[0]), "offset", f"{x[0]} values", f"{size} values")
        return x

    def layer_norm(self, x: Shape, slot: str, eps: float) -> Shape:
        self._weight(slot, "weight", x[:1])
        self._weight(slot, "bias", x[:1])
        return x

    def instance_norm(self, x: Shape, slot: str, eps: float) -> Shape:
        return self.layer_norm(x, slot, eps)

    def weighted_sum(self, xs: Sequence[Shape], slot: str) -> Shape:
        self._weight(slot, "value", (len(xs),))
        return self._alike(xs)

    def scale(self, x: Shape, slot: str) -> Shape:
        self._weight(slot, "value", x[:1])
        return x

    def nearest(self, x: Shape, slot: str) -> Shape:
        self._weight(slot, "value", (None, x[0]))
        return x[1:]

    def lookup(self, codes: Shape, slot: str) -> Shape:
        return (self._weight(slot, "value", (None, None))[1], *codes)

    def relu(self, x: Shape) -> Shape:
        return x

    def gelu(self, x: Shape) -> Shape:
        return x

    def clip(self, x: Shape, bound: str) -> Shape:
        return x

    def silu(self, x: Shape) -> Shape:
        return x

    def tanh(self, x: Shape) -> Shape:
        return x

    def sigmoid(self, x: Shape) -> Shape:
        return x

    def softmax(self, x: Shape) -> Shape:
        return x

    def standardize(self, x: Shape, eps: float) -> Shape:
        return x

    def mask_padding(self, x: Shape) -> Shape:
        return x

    def add_scalar(self, x: Shape, value: float) -> Shape:
        return x

    def subtract_from(self, value: float, x: Shape) -> Shape:
        return x

    def drop_last(self, x: Shape, count: int) -> Shape:
        return x

    def add(self, a: Shape, b: Shape) -> Shape:
        return self._alike((a, b))

    def subtract_value(self, a: Shape, b: Shape) -> Shape:
        return self._alike((a, b))

    def mul(self, a: Shape, b: Shape) -> Shape:
        fits = len(a) == len(b) and all(
            m == n or None in (m, n) or 1 in (m, n) for m, n in zip(a, b, strict=True)
        )
        self._note(fits, None, f"a factor of {_told(a)}", _told(b))
        return a

    def concat(self, xs: Sequence[Shape]) -> Shape:
        rest = self._alike([x[1:] for x in xs])
        sizes = [x[0] for x in xs if x[0] is not None]
        return (sum(sizes) if len(sizes) == len(xs) else None, *rest)

    def split(self, x: Shape, parts: int) -> list[Shape]:
        return [(self._parted(x[0], parts), *x[1:])] * parts

    def mean(self, x: Shape) -> Shape:
        return x[:-1]

    def spread(self, x: Shape, like: Shape) -> Shape:
        return (*x, like[-1])

    def statistics(self, x: Shape, weights: Shape | None, *, floor: float) -> Shape:
        self._alike((x, weights if weights is not None else x))
        return (_product((2, x[0])),)

    def attention(
        self, q: Shape, k: Shape, v: Shape, heads: int, window: int | None = None
    ) -> Shape:
        self._parted(q[0], heads)
        return self._alike((q, k, v))

    def rotary(self, x: Shape, heads: int, period: float) -> Shape:
        self._parted(x[0], 2 * heads)
        return x

    def patch(self, x: Shape, size: int) -> Shape:
        return (_product((x[0], size)), *x[1:])

    def unpatch(self, x: Shape, size: int) -> Shape:
        return (self._parted(x[0], size), *x[1:])

    def stack(self, xs: Sequence[Shape]) -> Shape:
        return (len(xs), *self._alike(xs))

    def unstack(self, x: Shape, count: int) -> list[Shape]:
        self._note(x[0] in (None, count), None, f"{count} parts", _told(x))
        return [x[1:]] * count

    def island(self, x: Shape, kind: str) -> Shape:
        return (_product((2, *x[:-1])),) if ISLANDS[kind].pools else x

    def stage(self, x: Shape, name: str) -> Shape:
        self.stages[name] = x
        return x

    def _weight(self, slot: str, role: Role, wanted: Shape) -> Shape:
        """The shape to go on with: the one that is there, where it fits."""
        self._last = slot
        found = self.shapes.get((slot, role))
        fits = found is not None and _fits(found, wanted)
        self._note(fits, role, _told(wanted), "no tensor" if found is None else _told(found))
        return found if fits and found is not None else wanted

    def _bias(self, slot: str, size: int | None) -> None:
        if (slot, "bias") in self.shapes:
            self._weight(slot, "bias", (size,))

    def _alike(self, xs: Sequence[Shape]) -> Shape:
        """Values that have to be of one shape, as far as any of them says it."""
        shape = xs[0]
        for x in xs[1:]:
            self._note(_fits(x, shape), None, f"values of {_told(shape)}", _told(x))
            if len(x) == len(shape):
                shape = tuple(_either(a, b) for a, b in zip(shape, x, strict=True))
        return shape

    def _parted(self, size: int | None, parts: int) -> int | None:
        if size is None:
            return None
        self._note(size % parts == 0, None, f"channels in {parts} equal parts", str(size))
        return size // parts if size % parts == 0 else None

    def _note(self, fits: bool, role: Role | None, expected: str, found: str) -> None:
        if not fits:
            self.misfits.append(Misfit(self._last, role, expected, found))


_RUNNING: tuple[Role, ...] = ("mean", "var")


def _fits(found: Shape, wanted: Shape) -> bool:
    return len(found) == len(wanted) and all(
        a == b or None in (a, b) for a, b in zip(found, wanted, strict=True)
    )


def _product(sizes: Sequence[int | None]) -> int | None:
    known = [n for n in sizes if n is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def _either(a: int | None, b: int | None) -> int | None:
    """The one that is known; None of two that contradict each other."""
    if a is None or b is None:
        return b if a is None else a
    return a if a == b else None


def _told(shape: Shape) -> str:
    """``[128, ?]``: ``?`` is any length."""
    return "[" + ", ".join("?" if n is None else str(n) for n in shape) + "]"
