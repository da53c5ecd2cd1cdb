"""The recording reading of a forward: its template, slots and stages, in trace order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from graphtools.ops import Ops, PadMode, per_axis

__all__ = ["Step", "Template", "Traced", "trace"]


@dataclass(frozen=True)
class Traced:
    """A value during tracing: the step that makes it, and its rank with a batch axis."""

    step: int
    rank: int


@dataclass(frozen=True)
class Step:
    """One operation of a template.

    Attributes:
        kind: the name of the `Ops` method.
        operands: steps it reads; all come before it.
        slot: the weights' place; "" for ops without.
        kernel, stride, dilation, pad: one int per axis (conv).
        channels: output channels, where the family fixes them (conv).
        name: the stage's name, the island's kind or the constant's name.
        value: the scalar argument of ops that have one.
        part, parts: which part of a split.
        rank: of the result, batch axis included.
    """

    kind: str
    operands: tuple[int, ...]
    rank: int
    slot: str = ""
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    pad: tuple[int, ...] = ()
    groups: int = 1
    channels: int | None = None
    name: str = ""
    value: float = 0.0
    part: int = 0
    parts: int = 0

    def label(self) -> str:
        """What a person would call this step."""
        return f"{self.slot or self.name or self.kind} ({self.kind})"


@dataclass(frozen=True)
class Template:
    """A forward with a configuration, recorded. Step 0 is the input, the last the output."""

    steps: tuple[Step, ...]

    def slots(self, *kinds: str) -> tuple[Step, ...]:
        """The steps that have weights, in pull order; only of ``kinds`` if any are named."""
        first = {s.slot: s for s in reversed(self.steps) if s.slot}
        return tuple(
            s for s in self.steps if first.get(s.slot) is s and (not kinds or s.kind in kinds)
        )

    def stages(self) -> tuple[str, ...]:
        """The stage names in execution order."""
        return tuple(s.name for s in self.steps if s.kind == "stage")

    def stage_slots(self) -> dict[str, tuple[str, ...]]:
        """For every stage the slots that were pulled since the stage before it."""
        found: dict[str, tuple[str, ...]] = {}
        pending: list[str] = []
        for step in self.steps:
            if step.slot:
                pending.append(step.slot)
            if step.kind == "stage":
                found[step.name] = tuple(pending)
                pending = []
        return found


def trace(forward: Callable[[Ops[Traced], Traced], Traced], rank: int = 3) -> Template:
    """Record ``forward(ops, x)``; ``rank`` is x's with a batch axis (3: features, 2: samples).

    Raises:
        ValueError: the forward uses a slot or a stage name twice (a bug in the family).
    """
    recorder = _Recorder()
    out = forward(recorder, recorder.push("input", (), rank))
    if out.step != len(recorder.steps) - 1:
        raise ValueError("the last step of a forward must be its output")
    template = Template(tuple(recorder.steps))
    # A codebook is searched and then read; every other slot stands in one place.
    names = [s.slot for s in recorder.steps if s.slot and s.kind != "lookup"]
    for group in (names, list(template.stages())):
        if len(set(group)) != len(group):
            raise ValueError(f"used twice: {sorted({n for n in group if group.count(n) > 1})}")
    return template


@dataclass
class _Recorder(Ops[Traced]):
    steps: list[Step] = field(default_factory=list)

    def push(
        self,
        kind: str,
        operands: Sequence[Traced],
        rank: int | None = None,
        *,
        slot: str = "",
        name: str = "",
        value: float = 0.0,
    ) -> Traced:
        rank = operands[0].rank if rank is None else rank
        inputs = tuple(o.step for o in operands)
        self.steps.append(Step(kind, inputs, rank, slot=slot, name=name, value=value))
        return Traced(len(self.steps) - 1, rank)

    def channel(self, x: Traced) -> Traced:
        return self.push("channel", (x,), x.rank + 1)

    def merge_frequency(self, x: Traced) -> Traced:
        return self.push("merge_frequency", (x,), 3)

    def conv(
        self,
        x: Traced,
        slot: str,
        *,
        kernel: tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        dilation: int | tuple[int, ...] = 1,
        pad: int | tuple[int, ...] | None = None,
        groups: int = 1,
        channels: int | None = None,
        pad_mode: PadMode = "zeros",
    ) -> Traced:
        axes = len(kernel)
        spread = per_axis(dilation, axes)
        same = tuple(d * (k - 1) // 2 for d, k in zip(spread, kernel, strict=True))
        self.steps.append(
            Step(
                "conv",
                (x.step,),
                axes + 2,
                slot=slot,
                kernel=kernel,
                stride=per_axis(stride, axes),
                dilation=spread,
                pad=same if pad is None else per_axis(pad, axes),
                groups=groups,
                channels=channels,
            )
        )
        return Traced(len(self.steps) - 1, axes + 2)

    def bn(self, x: Traced, slot: str) -> Traced:
        return self.push("bn", (x,), slot=slot)

    def linear(self, x: Traced, slot: str) -> Traced:
        return self.push("linear", (x,), slot=slot)

    def subtract(self, x: Traced, slot: str) -> Traced:
        return self.push("subtract", (x,), slot=slot)

    def layer_norm(self, x: Traced, slot: str, eps: float) -> Traced:
        return self.push("layer_norm", (x,), slot=slot, value=eps)

    def instance_norm(self, x: Traced, slot: str, eps: float) -> Traced:
        return self.push("instance_norm", (x,), slot=slot, value=eps)

    def weighted_sum(self, xs: Sequence[Traced], slot: str) -> Traced:
        return self.push("weighted_sum", xs, slot=slot)

    def relu(self, x: Traced) -> Traced:
        return self.push("relu", (x,))

    def gelu(self, x: Traced) -> Traced:
        return self.push("gelu", (x,))

    def mean(self, x: Traced) -> Traced:
        return self.push("mean", (x,), 2)

    def spread(self, x: Traced, like: Traced) -> Traced:
        return self.push("spread", (x, like), like.rank)

    def statistics(self, x: Traced, weights: Traced | None, *, floor: float) -> Traced:
        return self.push("statistics", (x,) if weights is None else (x, weights), 2, value=floor)

    def softmax(self, x: Traced) -> Traced:
        return self.push("softmax", (x,))

    def attention(
        self, q: Traced, k: Traced, v: Traced, heads: int, window: int | None = None
    ) -> Traced:
        return self.push("attention", (q, k, v), value=heads)

    def rotary(self, x: Traced, heads: int, period: float) -> Traced:
        return self.push("rotary", (x,), value=period)

    def scale(self, x: Traced, slot: str) -> Traced:
        return self.push("scale", (x,), slot=slot)

    def patch(self, x: Traced, size: int) -> Traced:
        return self.push("patch", (x,), value=size)

    def unpatch(self, x: Traced, size: int) -> Traced:
        return self.push("unpatch", (x,), value=size)

    def mask_padding(self, x: Traced) -> Traced:
        return self.push("mask_padding", (x,))

    def nearest(self, x: Traced, slot: str) -> Traced:
        return self.push("nearest", (x,), slot=slot)

    def lookup(self, codes: Traced, slot: str) -> Traced:
        return self.push("lookup", (codes,), slot=slot)

    def subtract_value(self, a: Traced, b: Traced) -> Traced:
        return self.push("subtract_value", (a, b))

    def stack(self, xs: Sequence[Traced]) -> Traced:
        return self.push("stack", xs)

    def unstack(self, x: Traced, count: int) -> list[Traced]:
        return [self.push("unstack", (x,), value=i) for i in range(count)]

    def drop_last(self, x: Traced, count: int) -> Traced:
        return self.push("drop_last", (x,), value=count)

    def standardize(self, x: Traced, eps: float) -> Traced:
        return self.push("standardize", (x,), value=eps)

    def clip(self, x: Traced, bound: str) -> Traced:
        return self.push("clip", (x,), name=bound)

    def silu(self, x: Traced) -> Traced:
        return self.push("silu", (x,))

    def tanh(self, x: Traced) -> Traced:
        return self.push("tanh", (x,))

    def sigmoid(self, x: Traced) -> Traced:
        return self.push("sigmoid", (x,))

    def add(self, a: Traced, b: Traced) -> Traced:
        return self.push("add", (a, b))

    def mul(self, a: Traced, b: Traced) -> Traced:
        return self.push("mul", (a, b))

    def add_scalar(self, x: Traced, value: float) -> Traced:
        return self.push("add_scalar", (x,), value=value)

    def subtract_from(self, value: float, x: Traced) -> Traced:
        return self.push("subtract_from", (x,), value=value)

    def concat(self, xs: Sequence[Traced]) -> Traced:
        return self.push("concat", xs)

    def split(self, x: Traced, parts: int) -> list[Traced]:
        out = []
        for part in range(parts):
            self.steps.append(Step("split", (x.step,), x.rank, part=part, parts=parts))
            out.append(Traced(len(self.steps) - 1, x.rank))
        return out

    def island(self, x: Traced, kind: str) -> Traced:
        return self.push("island", (x,), name=kind)

    def stage(self, x: Traced, name: str) -> Traced:
        return self.push("stage", (x,), name=name)
