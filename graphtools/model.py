"""An ONNX model as plain frozen data: what the rest of the project sees of the format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from graphtools.tensors import DType, LazyTensor

__all__ = ["Attribute", "Inside", "Model", "Node", "Subgraph", "Value", "subgraphs"]


@dataclass(frozen=True)
class Value:
    """A graph input or output.

    Attributes:
        shape: an int per fixed axis, a name per dynamic one; None when the file says nothing.
    """

    name: str
    dtype: DType
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name}: {self.dtype.label}, shape unknown"
        return f"{self.name}: {self.dtype.label} [{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, eq=False)
class Subgraph:
    """A graph in an attribute (If, Loop, Scan).

    Attributes:
        inputs: what the operation gives it: of a Loop the iteration, the condition and the values
            that are carried.
        nodes: indices are places in this graph.
        constants: its own initializers and the outputs of its Constant nodes, by name.
        outputs: what it gives the operation.
    """

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, LazyTensor]
    outputs: tuple[str, ...]

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Names that it takes from the graph around it, in first-use order."""
        own = {*self.inputs, *self.constants, *(n for node in self.nodes for n in node.outputs)}
        used = [name for node in self.nodes for name in node.reads()]
        return tuple(dict.fromkeys(n for n in (*used, *self.outputs) if n not in own))


Attribute = (
    int
    | float
    | str
    | tuple[int, ...]
    | tuple[float, ...]
    | tuple[str, ...]
    | LazyTensor
    | Subgraph
    | None
)


@dataclass(frozen=True)
class Inside:
    """Where a node is that came out of a subgraph (`graphtools.subgraphs`).

    Attributes:
        owner: index of the node whose attribute holds the graph.
        attribute: its name: ``then_branch``, ``body``.
        place: among the graph's nodes; None for the one that stands for the graph's inputs.
        path: the graph in words: ``then_branch of node 3``.
    """

    owner: int
    attribute: str
    place: int | None
    path: str


@dataclass(frozen=True)
class Node:
    """One operation.

    Attributes:
        index: its place in the file; only an identity, never a statement about order.
        op: ``Conv``, or ``com.microsoft.FusedConv`` outside the standard domain.
        inputs, outputs: tensor names; "" is an absent optional one.
        scope: the modules that the exporter says it came from, outermost first.
        inside: the subgraph that it came out of, if it did.
    """

    index: int
    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    scope: tuple[str, ...] = ()
    inside: Inside | None = None

    @property
    def stands_for_inputs(self) -> bool:
        """Whether it is no node of the file, but what gives a subgraph its inputs."""
        return self.inside is not None and self.inside.place is None

    @property
    def place(self) -> str:
        """Where it is in the file: ``node 12``, ``node 7 of then_branch of node 3``."""
        if self.inside is None:
            return f"node {self.index}"
        if self.inside.place is None:
            return f"inputs of {self.inside.path}"
        return f"node {self.inside.place} of {self.inside.path}"

    def reads(self) -> Iterator[str]:
        """The tensors that it takes: operands in slot order, then what its subgraphs take."""
        yield from filter(None, self.inputs)
        for _, inner in subgraphs(self):
            yield from inner.reads

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """An attribute of integers; ``default`` when the file leaves it out."""
        value = self.attributes.get(name)
        return tuple(int(v) for v in value) if isinstance(value, tuple) else default

    def integer(self, name: str, default: int) -> int:
        value = self.attributes.get(name)
        return value if isinstance(value, int) else default

    def number(self, name: str, default: float) -> float:
        value = self.attributes.get(name)
        return float(value) if isinstance(value, int | float) else default

    def text(self, name: str, default: str) -> str:
        value = self.attributes.get(name)
        return value if isinstance(value, str) else default

    def __str__(self) -> str:
        out = next((o for o in self.outputs if o), "")
        return f'{self.place} ({self.op}) -> "{out}"'


def subgraphs(node: Node) -> Iterator[tuple[str, Subgraph]]:
    """The graphs in a node's attributes, each with the attribute's name."""
    for name, value in node.attributes.items():
        if isinstance(value, Subgraph):
            yield name, value


@dataclass(frozen=True, eq=False)
class Model:
    """A loaded ONNX file.

    Attributes:
        nodes: by index; the file's first, then what fused nodes are made of
            (`graphtools.fused`).
        constants: initializers and the outputs of Constant nodes, by name.
        inputs: graph inputs that are not initializers.
        opset: version by domain ("" is the standard one).
        metadata: the file's metadata_props.
        proto: the parsed protobuf, for `graphtools.onnx_file` alone.
    """

    path: Path
    nodes: tuple[Node, ...]
    constants: Mapping[str, LazyTensor]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    opset: Mapping[str, int]
    ir_version: int
    producer: str
    metadata: Mapping[str, str]
    proto: Any

    def files(self) -> tuple[Path, ...]:
        """The file, and those that its constants are in."""
        spans = (tensor.span() for tensor in _constants(self))
        return tuple(dict.fromkeys((self.path, *(span.path for span in spans if span))))


def _constants(graph: Model | Subgraph) -> Iterator[LazyTensor]:
    yield from graph.constants.values()
    for node in graph.nodes:
        for _, inner in subgraphs(node):
            yield from _constants(inner)
