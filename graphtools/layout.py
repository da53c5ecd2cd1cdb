"""Where the axes of a graph's input are after the layout ops that follow it.

Recovery looks through layout ops, and numbers decide whether they are right. This reading only
serves to name what is missing where the numbers must fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphtools.graph import SEE_THROUGH, Graph, constant
from graphtools.model import Node

__all__ = ["axes_at", "layout_ops"]


def layout_ops(graph: Graph, tensor: str) -> list[Node]:
    """The layout ops that lead to ``tensor``, in order."""
    chain: list[Node] = []
    while (node := graph.producers.get(tensor)) is not None and node.op in SEE_THROUGH:
        if node in chain:  # a cycle
            break
        chain.append(node)
        tensor = node.inputs[0]
    return chain[::-1]


def axes_at(graph: Graph, tensor: str, axes: Sequence[str]) -> list[str] | None:
    """What the axes of ``tensor`` are, given those of the tensor before its layout ops; new axes
    of size 1 are called "1". None where a Reshape, say, leaves it open.
    """
    found = list(axes)
    for node in layout_ops(graph, tensor):
        if node.op == "Transpose":
            order = node.integers("perm", tuple(reversed(range(len(found)))))
            if sorted(order) != list(range(len(found))):
                return None
            found = [found[i] for i in order]
        elif node.op == "Unsqueeze":
            places = _axes(graph, node)
            rank = len(found) + len(places)
            for place in sorted(p + rank if p < 0 else p for p in places):
                found.insert(place, "1")
        elif node.op not in ("Identity", "Cast", "Dropout"):
            return None
    return found


def _axes(graph: Graph, node: Node) -> tuple[int, ...]:
    """An operand since opset 13, an attribute before."""
    listed = constant(graph, node.inputs[1]) if len(node.inputs) > 1 else None
    if listed is None:
        return node.integers("axes", ())
    return tuple(int(v) for v in listed.read().reshape(-1))
