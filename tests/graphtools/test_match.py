"""Where a tensor comes from, in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphtools.graph import Graph
from graphtools.islands import Mismatch
from graphtools.match import describe, missing, node_at

Parse = Callable[..., Graph]

TEXT = """
g (float[2] x) => (float[2] y) <float[2] w>
{ h = Relu (x) a = Identity (h) y = Add (a, v) v = Identity (w) z = Transpose (x) }
"""


@pytest.mark.parametrize(
    ("tensor", "expected", "index"),
    [
        ("y", 'node 2 (Add) -> "y"', 2),
        ("a", 'node 0 (Relu) -> "h"', 0),  # layout ops are looked through
        ("h", 'node 0 (Relu) -> "h"', 0),
        ("v", 'the constant "v"', None),
        ("w", 'the constant "w"', None),
        ("x", 'the input "x"', None),
        ("z", 'the input "z"', None),
    ],
)
def test_a_tensor_is_described_by_its_node_or_as_an_end_of_the_graph(
    parse: Parse, tensor: str, expected: str, index: int | None
) -> None:
    graph = parse(TEXT)
    node = node_at(graph, tensor)
    assert describe(graph, tensor) == expected
    assert (None if node is None else node.index) == index


def test_a_mismatch_says_where_and_names_the_op_unless_more_is_known(parse: Parse) -> None:
    graph = parse(TEXT)
    where = 'node 0 (Relu) -> "h"'
    assert missing(graph, "a", "Tanh") == Mismatch(where, "Tanh", "Relu")
    assert missing(graph, "a", "Tanh", "a surprise") == Mismatch(where, "Tanh", "a surprise")
    assert missing(graph, "x", "Tanh").found == 'the input "x"'
