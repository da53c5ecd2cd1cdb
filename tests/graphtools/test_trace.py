"""A forward, recorded: its steps, slots and stages."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from graphtools.ops import Ops, X
from graphtools.trace import Step, Template, Traced, trace


def small(o: Ops[X], x: X) -> X:
    """Two branches of one stem, joined, pooled and projected."""
    x = o.stage(o.relu(o.conv(o.channel(x), "stem", kernel=(3, 3))), "stem")
    left, right = o.split(x, 2)
    left = o.conv(left, "left", kernel=(1, 1), stride=(2, 1), channels=4)
    right = o.conv(right, "right", kernel=(5, 3), dilation=(1, 2), pad=0, groups=2)
    x = o.stage(o.concat([left, o.clip(right, "bound")]), "joined")
    x = o.bn(o.merge_frequency(x), "norm")
    x = o.stage(o.linear(o.island(x, "stats"), "seg"), "out")
    return o.stage(o.subtract(x, "mean"), "encoder_out")


TEMPLATE = trace(small)


def step(kind: str, at: int = 0) -> Step:
    return [s for s in TEMPLATE.steps if s.kind == kind][at]


def test_steps_stand_in_the_order_of_the_calls() -> None:
    assert " ".join(s.kind for s in TEMPLATE.steps) == (
        "input channel conv relu stage split split conv conv clip concat stage merge_frequency bn "
        "island linear stage subtract stage"
    )


def test_operands_are_the_steps_that_are_read() -> None:
    assert [s.operands for s in TEMPLATE.steps] == [
        (), (0,), (1,), (2,), (3,), (4,), (4,), (5,), (6,), (8,), (7, 9), (10,), (11,), (12,),
        (13,), (14,), (15,), (16,), (17,),
    ]  # fmt: skip


def test_ranks_count_the_batch_axis() -> None:
    ranks = {s.slot or s.name or s.kind: s.rank for s in TEMPLATE.steps}
    assert (ranks["input"], ranks["channel"], ranks["stem"]) == (3, 4, 4)
    assert ranks["left"] == ranks["joined"] == step("split").rank == 4
    assert ranks["merge_frequency"] == ranks["norm"] == 3


def test_a_convolution_has_one_number_per_axis() -> None:
    stem, left, right = (step("conv", at) for at in range(3))
    assert (stem.kernel, stem.stride, stem.dilation) == ((3, 3), (1, 1), (1, 1))
    assert (stem.pad, stem.groups, stem.channels) == ((1, 1), 1, None)
    assert (left.kernel, left.stride, left.pad, left.channels) == ((1, 1), (2, 1), (0, 0), 4)
    assert (right.kernel, right.dilation, right.pad, right.groups) == ((5, 3), (1, 2), (0, 0), 2)


@pytest.mark.parametrize(
    ("kernel", "dilation", "pad", "expected"),
    [
        ((3,), 1, None, (1,)),
        ((5,), 1, None, (2,)),
        ((3,), 2, None, (2,)),
        ((3,), 3, None, (3,)),
        ((1,), 1, None, (0,)),
        ((3, 5), (2, 1), None, (2, 2)),
        ((3, 5), 1, (0, 2), (0, 2)),
        ((3, 5), 1, 4, (4, 4)),
    ],
)
def test_no_pad_means_that_the_length_stays(
    kernel: tuple[int, ...],
    dilation: int | tuple[int, ...],
    pad: int | tuple[int, ...] | None,
    expected: tuple[int, ...],
) -> None:
    def forward(o: Ops[X], x: X) -> X:
        return o.conv(x, "c", kernel=kernel, dilation=dilation, pad=pad)

    assert trace(forward).steps[-1].pad == expected


def test_parts_of_a_split_are_steps_of_their_own() -> None:
    assert [(s.part, s.parts) for s in TEMPLATE.steps if s.kind == "split"] == [(0, 2), (1, 2)]


def test_names_and_scalars_are_kept() -> None:
    def forward(o: Ops[X], x: X) -> X:
        return o.subtract_from(2.0, o.add_scalar(x, 1.0))

    assert [s.value for s in trace(forward).steps[1:]] == [1.0, 2.0]
    assert step("clip").name == "bound"
    assert step("island").name == "stats"


def test_slots_are_the_pull_order_and_can_be_asked_for_by_kind() -> None:
    def names(steps: tuple[Step, ...]) -> list[str]:
        return [s.slot for s in steps]

    assert names(TEMPLATE.slots()) == ["stem", "left", "right", "norm", "seg", "mean"]
    assert names(TEMPLATE.slots("conv")) == ["stem", "left", "right"]
    assert names(TEMPLATE.slots("bn", "linear")) == ["norm", "seg"]


def test_stages_and_the_slots_that_lead_to_each() -> None:
    assert TEMPLATE.stages() == ("stem", "joined", "out", "encoder_out")
    assert TEMPLATE.stage_slots() == {
        "stem": ("stem",),
        "joined": ("left", "right"),
        "out": ("norm", "seg"),
        "encoder_out": ("mean",),
    }
    assert list(TEMPLATE.stage_slots()) == list(TEMPLATE.stages())


def test_a_step_is_labelled_by_its_slot_else_its_name_else_its_kind() -> None:
    assert [step(kind).label() for kind in ("conv", "stage", "relu")] == [
        "stem (conv)",
        "stem (stage)",
        "relu (relu)",
    ]


def test_the_same_forward_gives_the_same_template() -> None:
    assert trace(small) == TEMPLATE
    assert isinstance(TEMPLATE, Template)
    assert hash(TEMPLATE) == hash(trace(small))


def test_a_codebook_is_one_slot_that_may_be_searched_and_read() -> None:
    def forward(o: Ops[X], x: X) -> X:
        return o.lookup(o.nearest(x, "book"), "book")

    template = trace(forward)
    assert [s.kind for s in template.slots()] == ["nearest"]
    assert template.slots("lookup") == ()


# Every operation, with what its step keeps of its arguments.
CALLS: dict[str, tuple[Callable[[Ops[Traced], Traced], object], dict[str, object]]] = {
    "channel": (lambda o, x: o.channel(x), {"rank": 4}),
    "merge_frequency": (lambda o, x: o.merge_frequency(x), {"rank": 3}),
    "conv": (lambda o, x: o.conv(x, "s", kernel=(1,)), {"slot": "s", "rank": 3}),
    "bn": (lambda o, x: o.bn(x, "s"), {"slot": "s"}),
    "linear": (lambda o, x: o.linear(x, "s"), {"slot": "s"}),
    "subtract": (lambda o, x: o.subtract(x, "s"), {"slot": "s"}),
    "layer_norm": (lambda o, x: o.layer_norm(x, "s", 0.5), {"slot": "s", "value": 0.5}),
    "instance_norm": (lambda o, x: o.instance_norm(x, "s", 0.5), {"slot": "s", "value": 0.5}),
    "weighted_sum": (lambda o, x: o.weighted_sum([x, x], "s"), {"slot": "s", "operands": (0, 0)}),
    "relu": (lambda o, x: o.relu(x), {}),
    "gelu": (lambda o, x: o.gelu(x), {}),
    "clip": (lambda o, x: o.clip(x, "b"), {"name": "b"}),
    "silu": (lambda o, x: o.silu(x), {}),
    "tanh": (lambda o, x: o.tanh(x), {}),
    "sigmoid": (lambda o, x: o.sigmoid(x), {}),
    "add": (lambda o, x: o.add(x, x), {"operands": (0, 0)}),
    "mul": (lambda o, x: o.mul(x, x), {"operands": (0, 0)}),
    "add_scalar": (lambda o, x: o.add_scalar(x, 0.5), {"value": 0.5}),
    "subtract_from": (lambda o, x: o.subtract_from(0.5, x), {"value": 0.5}),
    "concat": (lambda o, x: o.concat([x, x, x]), {"operands": (0, 0, 0)}),
    "split": (lambda o, x: o.split(x, 1), {"parts": 1}),
    "mean": (lambda o, x: o.mean(x), {"rank": 2}),
    "spread": (lambda o, x: o.spread(x, x), {"operands": (0, 0)}),
    "statistics": (
        lambda o, x: o.statistics(x, x, floor=0.5),
        {"operands": (0, 0), "value": 0.5, "rank": 2},
    ),
    "softmax": (lambda o, x: o.softmax(x), {}),
    "attention": (lambda o, x: o.attention(x, x, x, 2, 7), {"operands": (0, 0, 0), "value": 2}),
    "rotary": (lambda o, x: o.rotary(x, 2, 0.5), {"value": 0.5}),
    "scale": (lambda o, x: o.scale(x, "s"), {"slot": "s"}),
    "patch": (lambda o, x: o.patch(x, 3), {"value": 3}),
    "unpatch": (lambda o, x: o.unpatch(x, 3), {"value": 3}),
    "mask_padding": (lambda o, x: o.mask_padding(x), {}),
    "nearest": (lambda o, x: o.nearest(x, "s"), {"slot": "s"}),
    "lookup": (lambda o, x: o.lookup(x, "s"), {"slot": "s"}),
    "subtract_value": (lambda o, x: o.subtract_value(x, x), {"operands": (0, 0)}),
    "stack": (lambda o, x: o.stack([x, x]), {"operands": (0, 0)}),
    "unstack": (lambda o, x: o.unstack(x, 1), {"value": 0}),
    "drop_last": (lambda o, x: o.drop_last(x, 3), {"value": 3}),
    "standardize": (lambda o, x: o.standardize(x, 0.5), {"value": 0.5}),
    "island": (lambda o, x: o.island(x, "stats"), {"name": "stats"}),
    "stage": (lambda o, x: o.stage(x, "n"), {"name": "n"}),
}


METHODS = [n for n, f in vars(Ops).items() if inspect.isfunction(f) and not n.startswith("_")]


@pytest.mark.parametrize("kind", METHODS)
def test_a_step_is_named_after_its_operation_and_keeps_its_arguments(kind: str) -> None:
    def forward(o: Ops[Traced], x: Traced) -> Traced:
        out = call(o, x)
        last = out[-1] if isinstance(out, list) else out
        assert isinstance(last, Traced)
        return last

    call, kept = CALLS[kind]
    found = trace(forward).steps[-1]
    plain = {"operands": (0,), "rank": 3, "slot": "", "name": "", "value": 0.0, "parts": 0}
    assert found.kind == kind
    assert {name: getattr(found, name) for name in plain} == plain | kept


class TestMistakes:
    def test_a_slot_used_twice(self) -> None:
        def forward(o: Ops[X], x: X) -> X:
            return o.conv(o.conv(x, "a", kernel=(1,)), "a", kernel=(1,))

        with pytest.raises(ValueError, match=r"used twice: \['a'\]"):
            trace(forward)

    def test_a_stage_used_twice(self) -> None:
        with pytest.raises(ValueError, match=r"used twice: \['s'\]"):
            trace(lambda o, x: o.stage(o.stage(x, "s"), "s"))

    def test_a_last_step_that_is_not_the_output(self) -> None:
        def forward(o: Ops[X], x: X) -> X:
            o.relu(x)
            return x

        with pytest.raises(ValueError, match="must be its output"):
            trace(forward)
