"""Where the input's axes are after layout ops."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphtools.graph import Graph
from graphtools.layout import axes_at, layout_ops

Parse = Callable[..., Graph]

AXES = ("batch", "time", "features")


def chain(lines: str, declared: str = "") -> str:
    kept = f"<{declared}>" if declared else ""
    return f"g (float[1, T, 80] x) => (y) {kept} {{ {lines} }}"


@pytest.mark.parametrize(
    ("lines", "declared", "opset", "axes"),
    [
        ("y = Identity (x)", "", 17, ["batch", "time", "features"]),
        ("y = Cast <to = 1> (x)", "", 17, ["batch", "time", "features"]),
        ("y = Transpose <perm = [0, 2, 1]> (x)", "", 17, ["batch", "features", "time"]),
        ("y = Transpose (x)", "", 17, ["features", "time", "batch"]),
        ("y = Unsqueeze <axes = [1]> (x)", "", 11, ["batch", "1", "time", "features"]),
        ("y = Unsqueeze <axes = [-1]> (x)", "", 11, ["batch", "time", "features", "1"]),
        (
            "h = Transpose <perm = [0, 2, 1]> (x) y = Unsqueeze (h, a)",
            "int64[1] a = {1}",
            17,
            ["batch", "1", "features", "time"],
        ),
        (
            "y = Unsqueeze (x, a)",
            "int64[2] a = {0, 2}",
            17,
            ["1", "batch", "1", "time", "features"],
        ),
        # Behind an operation the axes are those of the operation's result.
        ("h = Relu (x) y = Identity (h)", "", 17, ["batch", "time", "features"]),
        # What these do depends on sizes.
        ("y = Reshape (x, a)", "int64[3] a = {0, 0, -1}", 17, None),
        ("y = Flatten (x)", "", 17, None),
        ("y = Squeeze (x)", "", 17, None),
        ("y = Transpose <perm = [0, 1]> (x)", "", 17, None),
    ],
)
def test_axes_are_followed_through_layout_ops(
    parse: Parse, lines: str, declared: str, opset: int, axes: list[str] | None
) -> None:
    assert axes_at(parse(chain(lines, declared), opset=opset), "y", AXES) == axes


def test_the_layout_ops_stand_in_order_and_end_at_an_operation(parse: Parse) -> None:
    graph = parse(chain("a = Relu (x) b = Identity (a) c = Transpose (b) y = Flatten (c)"))
    assert [node.op for node in layout_ops(graph, "y")] == ["Identity", "Transpose", "Flatten"]
    assert layout_ops(graph, "x") == []


def test_a_cycle_ends(parse: Parse) -> None:
    graph = parse(chain("a = Identity (b) b = Identity (a) y = Relu (x)"))
    assert len(layout_ops(graph, "a")) == 2
