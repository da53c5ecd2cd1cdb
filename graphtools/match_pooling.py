"""Matchers of attentive pooling: a softmax over time, and statistics that it weighs."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from graphtools.graph import Graph, scalar, see
from graphtools.islands import Mismatch
from graphtools.match import Match, missing, node_at
from graphtools.model import Node
from graphtools.trace import Step

__all__ = ["match_softmax", "match_statistics"]


def match_softmax(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """Softmax over the last axis."""
    node = node_at(graph, tensor)
    axis = node.integer("axis", -1) if node is not None and node.op == "Softmax" else None
    if node is None or axis not in (-1, step.rank - 1):
        found = "" if axis is None else f"Softmax over axis {axis}"
        return missing(graph, tensor, "Softmax over the last axis", found)
    return [Match((node.inputs[0],), nodes=(node.index,))]


def match_statistics(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """``sum(x w)`` and ``sqrt(max(sum(x^2 w) - sum(x w)^2, floor))`` over time, concatenated."""
    expected = f"weighted mean and std over time, the variance at least {step.value:g}"
    whole = node_at(graph, tensor)
    if whole is None or whole.op != "Concat" or len(whole.inputs) != 2 or len(step.operands) != 2:
        return missing(graph, tensor, expected)
    mean, std = whole.inputs
    root = _node(graph, std, "Sqrt")
    floored = root and _node(graph, root.inputs[0], "Clip", "Max")
    variance = floored and _node(graph, floored.inputs[0], "Sub")
    if root is None or floored is None or variance is None:
        return missing(graph, std, expected, "no root of a clipped difference")
    floor = _floor(graph, floored)
    if floor is None or np.float32(floor) != np.float32(step.value):
        return missing(graph, std, expected, f"a variance of at least {floor}")
    first, squares = _summed(graph, mean), _summed(graph, variance.inputs[0])
    if first is None or squares is None or _squared(graph, variance.inputs[1]) != see(graph, mean):
        return missing(graph, variance.inputs[0], expected, "other sums")
    for x, weights in permutations(first.inputs):
        for square, again in permutations(squares.inputs):
            same = see(graph, again) == see(graph, weights)
            if same and _squared(graph, square) == see(graph, x):
                nodes = (whole, root, floored, variance, first, squares)
                return [Match((x, weights), nodes=tuple(n.index for n in nodes))]
    return missing(graph, mean, expected, "products of other tensors")


def _node(graph: Graph, tensor: str, *ops: str) -> Node | None:
    node = node_at(graph, tensor)
    return node if node is not None and node.op in ops else None


def _floor(graph: Graph, node: Node) -> float | None:
    """The lower bound of a Clip, or the constant of a Max."""
    if "min" in node.attributes:
        return node.number("min", 0.0)
    return scalar(graph, node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None


def _summed(graph: Graph, tensor: str) -> Node | None:
    """The product that is summed to ``tensor``; over which axis shows in the numbers."""
    total = _node(graph, tensor, "ReduceSum")
    return _node(graph, total.inputs[0], "Mul") if total is not None else None


def _squared(graph: Graph, tensor: str) -> str | None:
    """What ``tensor`` is the square of."""
    node = _node(graph, tensor, "Pow", "Mul")
    if node is None:
        return None
    base = see(graph, node.inputs[0])
    if node.op == "Pow":
        return base if scalar(graph, node.inputs[1]) == 2.0 else None
    return base if see(graph, node.inputs[1]) == base else None
