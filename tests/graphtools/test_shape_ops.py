"""The shape reading: small forwards by hand. Every family's own is held against the numpy
reading in tests/converters/gguf_files."""

from __future__ import annotations

from typing import Any

import pytest

from graphtools.match import Role
from graphtools.shape_ops import Misfit, Shape, ShapeOps

Shapes = dict[tuple[str, Role], tuple[int, ...]]
CONV: Shapes = {("c", "weight"): (8, 3, 5), ("c", "bias"): (8,)}


def test_time_is_open_and_channels_are_not() -> None:
    ops = ShapeOps(CONV)
    assert ops.stage(ops.conv((3, None), "c", kernel=(5,)), "out") == (8, None)
    assert ops.stages == {"out": (8, None)}
    assert ops.misfits == []


def test_a_map_gets_smaller_by_strides_of_the_layer_or_of_the_list() -> None:
    shapes: Shapes = {("c", "weight"): (8, 1, 3, 3)}
    assert ShapeOps(shapes).conv((1, 80, None), "c", kernel=(3, 3), stride=2) == (8, 40, None)
    listed = ShapeOps(shapes, {"c": 4})
    assert listed.conv((1, 80, None), "c", kernel=(3, 3), stride=2) == (8, 20, None)
    ops = ShapeOps(shapes)
    assert ops.conv((1, 80, None), "c", kernel=(3, 3), stride=(2, 1), dilation=2) == (8, 40, None)
    assert ops.conv((1, 80, None), "c", kernel=(3, 3), pad=0) == (8, 78, None)
    assert ops.misfits == []


def test_a_vector_is_one_step_of_a_sequence() -> None:
    ops = ShapeOps({("c", "weight"): (4, 3, 1)})
    assert ops.conv((3,), "c", kernel=(1,)) == (4,)
    assert ops.misfits == []


@pytest.mark.parametrize(
    ("x", "changes", "role", "expected", "found"),
    [
        ((4, None), {}, "weight", "[?, 4, 5]", "[8, 3, 5]"),
        ((3, None), {("c", "weight"): (8, 3, 3)}, "weight", "[?, 3, 5]", "[8, 3, 3]"),
        ((3, None), {("c", "weight"): (8, 15)}, "weight", "[?, 3, 5]", "[8, 15]"),
        ((3, None), {("c", "bias"): (7,)}, "bias", "[8]", "[7]"),
    ],
)
def test_a_tensor_that_does_not_fit(
    x: Shape, changes: Any, role: Role, expected: str, found: str
) -> None:
    ops = ShapeOps({**CONV, **changes})
    ops.conv(x, "c", kernel=(5,))
    assert ops.misfits == [Misfit("c", role, expected, found)]


def test_a_layer_without_its_tensor() -> None:
    ops = ShapeOps({})
    ops.linear((3,), "l")
    assert ops.misfits == [Misfit("l", "weight", "[?, 3]", "no tensor")]


def test_what_a_wrong_tensor_would_have_decided_is_open() -> None:
    """So that the layers behind it are not blamed."""
    shapes: Shapes = {
        ("a", "weight"): (9, 5),
        ("a", "bias"): (8,),
        ("b", "weight"): (2, 8),
        ("b", "bias"): (2,),
    }
    ops = ShapeOps(shapes)
    assert ops.linear(ops.linear((3,), "a"), "b") == (2,)
    assert [(m.slot, m.role) for m in ops.misfits] == [("a", "weight")]


def test_a_family_may_fix_the_channels() -> None:
    ops = ShapeOps(CONV)
    assert ops.conv((3, None), "c", kernel=(5,), channels=16) == (16, None)
    assert [(m.role, m.expected) for m in ops.misfits] == [
        ("weight", "[16, 3, 5]"),
        ("bias", "[16]"),
    ]


def test_groups_divide_both_sides() -> None:
    shapes: Shapes = {("c", "weight"): (6, 2, 1)}
    assert ShapeOps(shapes).conv((4, None), "c", kernel=(1,), groups=2) == (6, None)
    for channels, groups in ((5, 2), (8, 4)):
        ops = ShapeOps(shapes)
        ops.conv((channels, None), "c", kernel=(1,), groups=groups)
        assert len(ops.misfits) == 1
        assert "groups" in ops.misfits[0].expected


def test_a_weight_norm_pair() -> None:
    pair: Shapes = {("c", "weight_g"): (1, 1, 5), ("c", "weight_v"): (8, 3, 5)}
    ops = ShapeOps(pair)
    assert ops.conv((3, None), "c", kernel=(5,)) == (8, None)
    assert ops.misfits == []
    ops = ShapeOps({**pair, ("c", "weight_g"): (1, 2, 5)})
    ops.conv((3, None), "c", kernel=(5,))
    assert [m.role for m in ops.misfits] == ["weight_g"]


def test_a_map_without_an_axis_left() -> None:
    ops = ShapeOps({("c", "weight"): (1, 1, 9, 1)})
    ops.conv((1, 3, None), "c", kernel=(9, 1), pad=0)
    assert [m.role for m in ops.misfits] == [None]


def test_norms_take_what_they_have() -> None:
    roles: tuple[Role, ...] = ("scale", "bias", "mean", "var")
    for kept in (roles, roles[2:]):  # the last norm of CAM++ has no affine part
        ops = ShapeOps({("n", role): (3,) for role in kept})
        assert ops.bn((3, None), "n") == (3, None)
        assert ops.misfits == []
    ops = ShapeOps({("n", role): (4,) for role in roles})
    ops.bn((3, None), "n")
    assert [m.role for m in ops.misfits] == list(roles)


def test_one_number_may_be_subtracted_from_all() -> None:
    for size, wrong in ((1, 0), (3, 0), (2, 1)):
        ops = ShapeOps({("m", "offset"): (size,)})
        assert ops.subtract((3,), "m") == (3,)
        assert len(ops.misfits) == wrong


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda o: o.add((3, None), (4, None)), "values of [3, ?]"),
        (lambda o: o.mul((3, 7, None), (4, 1, None)), "a factor of [3, 7, ?]"),
        (lambda o: o.concat([(3, 4, None), (3, 5, None)]), "values of [4, ?]"),
        (lambda o: o.split((7, None), 2), "channels in 2 equal parts"),
        (lambda o: o.attention((6, None), (6, None), (6, None), 4), "channels in 4 equal parts"),
        (lambda o: o.rotary((6, None), 2, 1.0), "channels in 4 equal parts"),
        (lambda o: o.unpatch((5, None), 2), "channels in 2 equal parts"),
        (lambda o: o.unstack((3, None), 2), "2 parts"),
    ],
)
def test_values_that_do_not_fit_each_other(run: Any, expected: str) -> None:
    ops = ShapeOps({("before", "weight"): (1, 1)})
    ops.linear((1,), "before")
    run(ops)
    assert [(m.slot, m.role, m.expected) for m in ops.misfits] == [("before", None, expected)]


def test_what_is_known_of_either_side_is_known_of_the_sum() -> None:
    ops = ShapeOps({})
    assert ops.add((None, None), (4, None)) == (4, None)
    assert ops.add((3, None), (4, None)) == (None, None)


def test_shapes_of_the_other_ops() -> None:
    ops = ShapeOps({("e", "value"): (16, 5), ("s", "value"): (3,), ("w", "value"): (2,)})
    assert ops.channel((80, None)) == (1, 80, None)
    assert ops.merge_frequency((8, 10, None)) == (80, None)
    assert ops.concat([(3, None), (4, None)]) == (7, None)
    assert ops.split((6, None), 3) == [(2, None)] * 3
    assert ops.mean((3, None)) == (3,)
    assert ops.spread((3,), (7, None)) == (3, None)
    assert ops.statistics((3, None), None, floor=0.0) == (6,)
    assert ops.island((3, 10, None), "tstp") == (60,)
    assert ops.island((3, None), "cam") == (3, None)
    assert ops.patch((2, None), 4) == (8, None)
    assert ops.unpatch((8, None), 4) == (2, None)
    assert ops.nearest((5, None), "e") == (None,)
    assert ops.lookup((None,), "e") == (5, None)
    assert ops.stack([(None,), (None,)]) == (2, None)
    assert ops.unstack((2, None), 2) == [(None,)] * 2
    assert ops.scale((3, None), "s") == (3, None)
    assert ops.weighted_sum([(3, None), (3, None)], "w") == (3, None)
    assert ops.misfits == []
