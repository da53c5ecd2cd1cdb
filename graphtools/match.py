"""What matching is about: which nodes of a graph can stand for a step, read backwards.

A matcher (`graphtools.matchers`) is given a step and the tensor that should be its result. It
returns every way to read that tensor so (the tensors its operands must then be, and the weights it
binds), or a `Mismatch` that says what was there instead. Matchers look at structure and
attributes, never at names or at the order of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from graphtools.graph import Graph, Region, constant, see
from graphtools.islands import Constant, Mismatch
from graphtools.model import Node
from graphtools.tensors import LazyTensor
from graphtools.trace import Step

__all__ = ["Layer", "Match", "Matcher", "Role", "describe", "missing", "node_at"]

Role = Literal["weight", "bias", "scale", "mean", "var", "offset", "weight_g", "weight_v", "value"]


@dataclass(frozen=True)
class Layer:
    """What fills a slot.

    Attributes:
        node: index of the node that holds the weights.
        tensors: the weights by role, in the layout the engine reads.
    """

    slot: str
    kind: str
    node: int
    tensors: Mapping[Role, LazyTensor]


@dataclass(frozen=True)
class Match:
    """One way to read a step: what its operands are, and what it binds."""

    operands: tuple[str, ...]
    layer: Layer | None = None
    constants: tuple[Constant, ...] = ()
    region: Region | None = None
    nodes: tuple[int, ...] = field(default=())


Matcher = Callable[[Graph, Step, str], list[Match] | Mismatch]


def describe(graph: Graph, tensor: str) -> str:
    """Where a tensor comes from, for messages."""
    node = graph.producers.get(see(graph, tensor))
    if node is not None:
        return str(node)
    return f'the constant "{tensor}"' if constant(graph, tensor) else f'the input "{tensor}"'


def node_at(graph: Graph, tensor: str) -> Node | None:
    """The node that makes a tensor, before any layout op."""
    return graph.producers.get(see(graph, tensor))


def missing(graph: Graph, tensor: str, expected: str, found: str = "") -> Mismatch:
    """The mismatch at a tensor; ``found`` is the op there where nothing more is said."""
    node = node_at(graph, tensor)
    what = found or (node.op if node else describe(graph, tensor))
    return Mismatch(describe(graph, tensor), expected, what)
