"""An ONNX model as plain frozen data: what the rest of the project sees of the format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphtools.tensors import DType, LazyTensor

__all__ = ["Attribute", "Model", "Node", "Subgraph", "Value"]


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


@dataclass(frozen=True)
class Subgraph:
    """A graph in an attribute (If, Loop, Scan), told from outside.

    Attributes:
        reads: names that it takes from the graph around it, in first-use order.
        nodes: how many it has, those of the graphs inside it included.
    """

    reads: tuple[str, ...]
    nodes: int


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
class Node:
    """One operation.

    Attributes:
        index: its place in the file; only an identity, never a statement about order.
        op: ``Conv``, or ``com.microsoft.FusedConv`` outside the standard domain.
        inputs, outputs: tensor names; "" is an absent optional one.
        scope: the modules that the exporter says it came from, outermost first.
    """

    index: int
    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    scope: tuple[str, ...] = ()

    def reads(self) -> Iterator[str]:
        """The tensors that it takes: operands in slot order, then what its subgraphs take."""
        yield from filter(None, self.inputs)
        for value in self.attributes.values():
            if isinstance(value, Subgraph):
                yield from value.reads

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
        return f'node {self.index} ({self.op}) -> "{out}"'


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
        spans = (tensor.span() for tensor in self.constants.values())
        return tuple(dict.fromkeys((self.path, *(span.path for span in spans if span))))
