"""Nodes answer with their attribute, or with the default where the file leaves it out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphtools.model import Attribute, Node, Value
from graphtools.tensors import DType


def node(**attributes: Attribute) -> Node:
    return Node(7, "Conv", "", ("x", "w"), ("", "y"), attributes)


@pytest.mark.parametrize(
    ("read", "value", "default"),
    [
        (lambda n: n.integers("a", (9,)), (1, 2), (9,)),
        (lambda n: n.integer("a", 9), 1, 9),
        (lambda n: n.number("a", 9.0), 0.5, 9.0),
        (lambda n: n.text("a", "NOTSET"), "SAME_UPPER", "NOTSET"),
    ],
)
def test_an_attribute_or_its_default(
    read: Callable[[Node], object], value: Attribute, default: object
) -> None:
    assert read(node(a=value)) == value
    assert read(node()) == default


def test_an_integer_attribute_serves_as_a_number() -> None:
    found = node(alpha=1).number("alpha", 2.0)
    assert found == 1.0
    assert isinstance(found, float)


def test_a_node_is_named_by_its_place_its_op_and_its_first_output() -> None:
    assert str(node()) == 'node 7 (Conv) -> "y"'


def test_a_value_shows_fixed_and_dynamic_axes() -> None:
    assert str(Value("feats", DType.F32, ("B", "T", 80))) == "feats: f32 [B, T, 80]"
    assert str(Value("feats", DType.F16, None)) == "feats: f16, shape unknown"
