"""Attentive pooling as exporters spell it, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphtools.graph import Graph
from graphtools.islands import Mismatch
from graphtools.match import Match
from graphtools.ops import Ops
from graphtools.trace import Traced

Parse = Callable[..., Graph]
Hit = Callable[..., Match]
Miss = Callable[..., Mismatch]

FLOOR = 1e-5
CONSTANTS = "<float two = {2}, float floor = {1e-5}, int64[1] time = {2}>"
SQUARE, VARIANCE = "s = Pow (x, two)", "q = Pow (m, two)"


def pooling(o: Ops[Traced], x: Traced) -> Traced:
    return o.statistics(x, o.softmax(x), floor=FLOOR)


def text(
    square: str = SQUARE,
    of_mean: str = VARIANCE,
    weigh: str = "a = Mul (x, w) b = Mul (s, w)",
    floored: str = "f = Clip (d, floor)",
    softmax: str = "w = Softmax <axis = 2> (x)",
) -> str:
    return f"""
    g (float[B, 4, T] x) => (float[B, 8] y) {CONSTANTS} {{
        {softmax} {square} {weigh}
        m = ReduceSum <keepdims = 0> (a, time)
        e = ReduceSum <keepdims = 0> (b, time)
        {of_mean}
        d = Sub (e, q) {floored} r = Sqrt (f)
        y = Concat <axis = 1> (m, r)
    }}
    """


@pytest.mark.parametrize(
    "spelling",
    [
        {},
        {"square": "s = Mul (x, x)", "of_mean": "q = Mul (m, m)"},
        {"weigh": "a = Mul (w, x) b = Mul (w, s)"},
        {"floored": "f = Max (d, floor)"},
    ],
)
def test_binds_what_is_pooled_and_its_weights(
    parse: Parse, hit: Hit, spelling: dict[str, str]
) -> None:
    assert hit(parse(text(**spelling)), pooling, "y").operands == ("x", "w")


@pytest.mark.parametrize(
    ("spelling", "found"),
    [
        ({"square": "s = Pow (w, two)"}, "products of other tensors"),
        ({"of_mean": "q = Pow (e, two)"}, "other sums"),
        ({"weigh": "a = Mul (x, w) b = Mul (s, x)"}, "products of other tensors"),
        ({"floored": "f = Clip (d, two)"}, "a variance of at least 2"),
        ({"floored": "f = Relu (d)"}, "no root of a clipped difference"),
    ],
)
def test_anything_else_is_no_pooling(
    parse: Parse, miss: Miss, spelling: dict[str, str], found: str
) -> None:
    assert found in miss(parse(text(**spelling)), pooling, "y").found


@pytest.mark.parametrize("axis", [-1, 2])
def test_a_softmax_is_over_time(parse: Parse, hit: Hit, axis: int) -> None:
    graph = parse(
        f"g (float[B, 4, T] x) => (float[B, 4, T] y) {{ y = Softmax <axis = {axis}> (x) }}"
    )
    assert hit(graph, lambda o, x: o.softmax(x), "y").operands == ("x",)


def test_a_softmax_over_channels_is_none(parse: Parse, miss: Miss) -> None:
    graph = parse("g (float[B, 4, T] x) => (float[B, 4, T] y) { y = Softmax <axis = 1> (x) }")
    assert miss(graph, lambda o, x: o.softmax(x), "y").found == "Softmax over axis 1"
