"""A forward, recorded: its steps, slots and stages."""

from __future__ import annotations

import pytest

from graphtools.ops import Ops, X
from graphtools.trace import Step, Template, trace


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
