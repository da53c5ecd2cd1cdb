"""Whether two ONNX files hold the same network, up to names and the order of nodes.

Two that are recovered as one family are compared slot by slot: how an exporter spells the network
does not matter. Any others are walked together from their outputs, node by node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.compare import Difference, difference
from graphtools.graph import Graph
from graphtools.model import Attribute, Node, Subgraph
from graphtools.recover import NearMiss, Recovered, recover
from graphtools.tensors import LazyTensor
from graphtools.trace import Step

__all__ = ["NetworkDiff", "TensorDiff", "network_diff"]


@dataclass(frozen=True)
class TensorDiff:
    """Weights that stand in the same place and differ.

    Attributes:
        place: the slot and role of a recovered network, else the node and input.
        first, second: their names in the files.
    """

    place: str
    first: str
    second: str
    difference: Difference


@dataclass(frozen=True)
class NetworkDiff:
    """The result; truthy when both files hold the same network.

    Attributes:
        how: what was compared.
        structure: the first structural difference; "" for none.
        tensors: the weights that differ, in pull order; all of them are compared where the
            structure is the same.
    """

    how: str
    structure: str
    tensors: tuple[TensorDiff, ...] = ()

    def __bool__(self) -> bool:
        return not self.structure and not self.tensors

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "same": bool(self),
            "how": self.how,
            "structure": self.structure,
            "tensors": [
                {
                    "place": t.place,
                    "first": t.first,
                    "second": t.second,
                    "max_abs": t.difference.max_abs,
                    "cosine": t.difference.cosine,
                }
                for t in self.tensors
            ],
        }


def network_diff(first: Graph, second: Graph, *, atol: float = 0.0) -> NetworkDiff:
    """Compare two graphs.

    Args:
        first: one of them.
        second: the other.
        atol: weights that differ by no more than this are the same.

    Raises:
        MissError: one of them can be read in more than one way.
    """
    a, b = recover(first), recover(second)
    if isinstance(a, Recovered) and isinstance(b, Recovered):
        return _recovered_diff(a, b, atol)
    if isinstance(a, NearMiss) and isinstance(b, NearMiss):
        walk = _Walk(first, second, atol)
        structure = walk.run()
        return NetworkDiff("node by node, from the outputs", structure, tuple(walk.tensors))
    known, other = (a, b) if isinstance(a, Recovered) else (b, a)
    assert isinstance(known, Recovered)
    assert isinstance(other, NearMiss)
    which = "first" if known is a else "second"
    reason = other.miss.reason
    structure = (
        f"only the {which} file is {known.family.title}; the other differs at {reason.where}: "
        f"expected {reason.expected}, found {reason.found}"
    )
    return NetworkDiff("as recovered", structure)


def _recovered_diff(a: Recovered, b: Recovered, atol: float) -> NetworkDiff:
    how = f"as {a.family.title}, slot by slot"
    if a.family is not b.family:
        return NetworkDiff("as recovered", f"{a.family.title} against {b.family.title}")
    steps = zip(a.binding.template.steps, b.binding.template.steps, strict=False)
    for one, other in steps:
        if one != other:
            return NetworkDiff(how, f"{_told(one)} against {_told(other)}")
    sizes = len(a.binding.template.steps), len(b.binding.template.steps)
    if sizes[0] != sizes[1]:
        return NetworkDiff(how, f"{sizes[0]} steps against {sizes[1]}")
    for name, constant in a.binding.constants.items():
        value = b.binding.constants[name].value
        if constant.value != value:
            return NetworkDiff(how, f"{name} is {constant.value:g} against {value:g}")
    tensors: list[TensorDiff] = []
    for slot, layer in a.binding.layers.items():
        others = b.binding.layers[slot].tensors
        if set(layer.tensors) != set(others):
            return NetworkDiff(how, f"{slot} has {sorted(layer.tensors)} against {sorted(others)}")
        for role, tensor in layer.tensors.items():
            if tensor.shape != others[role].shape:
                shapes = f"{list(tensor.shape)} against {list(others[role].shape)}"
                return NetworkDiff(how, f"{role} of {slot} is {shapes}")
            tensors += _apart(f"{slot}.{role}", tensor, others[role], atol)
    return NetworkDiff(how, "", tuple(tensors))


def _told(step: Step) -> str:
    text = step.label()
    if step.kernel:
        text += f" {'x'.join(map(str, step.kernel))}, stride {'x'.join(map(str, step.stride))}"
    return text


def _apart(place: str, a: LazyTensor, b: LazyTensor, atol: float) -> Iterator[TensorDiff]:
    one, other = a.read(), b.read()
    if np.array_equal(one, other):
        return
    if one.dtype.kind not in "fiub":  # strings have no distance
        one, other = (one != other).astype(np.float32), np.zeros(one.shape, np.float32)
    apart = difference(one, other)
    if not apart.max_abs <= atol:
        yield TensorDiff(place, a.name, b.name, apart)


class _Walk:
    """Both graphs at once, from their outputs to their inputs."""

    def __init__(self, first: Graph, second: Graph, atol: float) -> None:
        self.graphs = first, second
        self.atol = atol
        self.tensors: list[TensorDiff] = []
        self.pairs: dict[str, str] = {}
        self.taken: dict[str, str] = {}

    def run(self) -> str:
        """The first structural difference; "" where there is none."""
        first, second = self.graphs
        if len(first.outputs) != len(second.outputs):
            return f"{len(first.outputs)} outputs against {len(second.outputs)}"
        pairs = zip(first.outputs, second.outputs, strict=True)
        pending = [(a.name, b.name, "an output") for a, b in pairs][::-1]
        while pending:
            a, b, place = pending.pop()
            if a in self.pairs or b in self.taken:
                if self.pairs.get(a) != b:
                    return f"{place}: {self._source(0, a)} against {self._source(1, b)}"
                continue
            self.pairs[a], self.taken[b] = b, a
            told = self._compare(a, b, place)
            if isinstance(told, str):
                return told
            pending += reversed(told)
        return ""

    def _compare(self, a: str, b: str, place: str) -> str | list[tuple[str, str, str]]:
        first, second = self.graphs
        one, other = first.model.constants.get(a), second.model.constants.get(b)
        if one is not None and other is not None:
            if (one.shape, one.dtype) != (other.shape, other.dtype):
                shapes = f"{one.dtype.label} {list(one.shape)} against "
                return f"{place}: {shapes}{other.dtype.label} {list(other.shape)}"
            self.tensors += _apart(place, one, other, self.atol)
            return []
        node, twin = first.producers.get(a), second.producers.get(b)
        if node is None or twin is None or one is not None or other is not None:
            if node is None and twin is None and one is None and other is None:
                return []  # both are inputs
            return f"{place}: {self._source(0, a)} against {self._source(1, b)}"
        slots = node.outputs.index(a), twin.outputs.index(b)
        arity = (len(node.inputs), len(node.outputs)), (len(twin.inputs), len(twin.outputs))
        if node.op != twin.op or slots[0] != slots[1] or arity[0] != arity[1]:
            return f"{node} against {twin}"
        if told := _attributes(node, twin):
            return f"{node} against {twin}: {told}"
        inputs = zip(node.inputs, twin.inputs, strict=True)
        return [(x, y, f"input {slot} of {node}") for slot, (x, y) in enumerate(inputs) if x or y]

    def _source(self, which: int, tensor: str) -> str:
        graph = self.graphs[which]
        node = graph.producers.get(tensor)
        kind = "the constant" if tensor in graph.model.constants else "the input"
        return str(node) if node is not None else f'{kind} "{tensor}"'


def _attributes(node: Node, twin: Node) -> str:
    """The first attribute in which two nodes differ."""
    for name in sorted({*node.attributes, *twin.attributes}):
        one, other = node.attributes.get(name), twin.attributes.get(name)
        if isinstance(one, Subgraph) or isinstance(other, Subgraph):
            return f"{name} holds a graph of its own, which is not compared"
        if not _equal(one, other):
            return f"{name} {one} against {other}"
    return ""


def _equal(one: Attribute, other: Attribute) -> bool:
    if isinstance(one, LazyTensor) and isinstance(other, LazyTensor):
        return one.shape == other.shape and np.array_equal(one.read(), other.read())
    return one == other
