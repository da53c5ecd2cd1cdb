"""A level comes apart at what all data passes; else into branches."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphtools.graph import Graph
from graphtools.levels import Level

Parse = Callable[..., Graph]

RESIDUAL = """
residual (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w0, float[4, 4] w1, float[4, 4] w2>
{
    stem = MatMul(x, w0)
    start = Relu(stem)
    left = MatMul(start, w1)
    sum = Add(left, start)
    next = Relu(sum)
    y = MatMul(next, w2)
}
"""

TWO = """
two (float[N, 4] a, float[N, 4] b) => (float[N, 4] y, float[N, 4] z)
{
    p = Relu(a)
    q = Tanh(b)
    y = Sigmoid(p)
    z = Sigmoid(q)
}
"""

SHAPED = """
shaped (float[N, 4] x) => (float[?, ?] y) <float[4, 4] w0, float[4, 4] w1, float[4, 4] w2>
{
    a = MatMul(x, w0)
    shape = Shape(a)
    b = MatMul(a, w1)
    c = MatMul(b, w2)
    y = Reshape(c, shape)
}
"""


def level(graph: Graph) -> Level:
    return Level(graph, [node.index for node in graph.model.nodes])


def test_stretches_end_where_all_data_passes(parse: Parse) -> None:
    # The matrix product and what follows it without weights, the block, the last product.
    assert level(parse(RESIDUAL)).stretches() == [[0, 1], [2, 3, 4], [5]]


@pytest.mark.parametrize("of", ["x", "a"])
def test_a_shape_does_not_hide_the_stretches(of: str, parse: Parse) -> None:
    # It stands with the Reshape that reads it.
    graph = parse(SHAPED.replace("Shape(a)", f"Shape({of})"))
    assert level(graph).stretches() == [[0], [2], [1, 3, 4]]


def test_what_hangs_together_is_a_branch(parse: Parse) -> None:
    graph = parse(TWO)
    assert level(graph).branches() == [[0, 2], [1, 3]]
    assert len(level(graph).stretches()) == 1


def test_tensors_that_cross_a_place_are_counted(parse: Parse) -> None:
    # After the Relu its result and nothing else is alive until the Add has read it twice.
    assert level(parse(RESIDUAL)).crossings() == [1, 1, 2, 1, 1, 0, 0]
