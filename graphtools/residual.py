"""Residual blocks read off a graph, for families to guess a configuration from.

The *spine* of a network is what every path from its input to an output passes. An Add of two
computed tensors on it ends a block; the convolutions that hang between it and the spine node before
it are the block's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from graphtools.graph import ENTRY, Graph, constant, see

__all__ = ["residual_blocks"]


def residual_blocks(graph: Graph, output: str) -> list[tuple[tuple[int, int], ...]]:
    """For every block above ``output`` its convolutions as (kernel, stride), smallest first."""
    last = graph.producers.get(see(graph, output))
    if last is None:
        return []
    spine = _spine(graph, last.index)
    convs = _convs_by_spine(graph, spine)
    return [tuple(sorted(convs.get(above, ()))) for above in _block_starts(graph, spine)]


def _spine(graph: Graph, node: int) -> list[int]:
    """Dominators of a node, from the input side to the node itself."""
    spine = []
    while node != ENTRY and node in graph.dominators:
        spine.append(node)
        node = graph.dominators[node]
    return spine[::-1]


def _block_starts(graph: Graph, spine: list[int]) -> Iterator[int]:
    """The spine node before every Add of two computed tensors on the spine."""
    for above, below in pairwise(spine):
        node = graph.model.nodes[below]
        if node.op == "Add" and not any(constant(graph, name) for name in node.inputs):
            yield above


def _convs_by_spine(graph: Graph, spine: list[int]) -> dict[int, list[tuple[int, int]]]:
    """(kernel, stride) of the convolutions off the spine, by the spine node above them."""
    found: dict[int, list[tuple[int, int]]] = {}
    on_spine = frozenset(spine)
    nearest = {node: node for node in (*spine, ENTRY)}
    for node in graph.model.nodes:
        walk: list[int] = []
        at = node.index
        while at not in nearest and at in graph.dominators:
            walk.append(at)
            at = graph.dominators[at]
        top = nearest.get(at, ENTRY)
        nearest.update(dict.fromkeys(walk, top))
        if node.op == "Conv" and node.index not in on_spine:
            weight = constant(graph, node.inputs[1])
            kernel = weight.shape[-1] if weight is not None and weight.shape else 0
            found.setdefault(top, []).append(
                (kernel, max(node.integers("strides", (1,)), default=1))
            )
    return found
