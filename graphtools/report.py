"""What people look at: a model's facts, and the network that was recovered, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graphtools.graph import Graph, build, canonical_order
from graphtools.onnx_file import load
from graphtools.recover import NearMiss, Recovered, recover
from graphtools.subgraphs import node_count, opened

__all__ = ["Block", "Layer", "OnnxReport", "Ordered", "report"]

# Nodes that hold weights; what `--order` lists.
_WEIGHTED = ("Conv", "BatchNormalization", "Gemm", "MatMul")


@dataclass(frozen=True)
class Layer:
    """A layer of a block: its slot within the block, its main weight, and its stride."""

    slot: str
    kind: str
    weight: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class Block:
    """A stage with the layers that lead to it; ``shortcut`` where one has a conv of its own."""

    name: str
    layers: tuple[Layer, ...]
    shortcut: bool


@dataclass(frozen=True)
class Ordered:
    """A weighted node in pull order, and the slot that it fills ("" for none)."""

    node: int
    op: str
    output: str
    slot: str
    weight: str


@dataclass(frozen=True)
class OnnxReport:
    """Everything ``inspect`` shows of an ONNX file.

    Attributes:
        inputs, outputs: as text, dynamic axes by name.
        nodes, histogram, parameters: of the graphs inside If, Loop and Scan too.
        family: title of the recovered family; None where there is none.
        constants: the scalars that the family reads, name to (value, origin).
        miss: where the nearest family differs, by label; empty when one was recovered.
        order: weighted nodes of the model's own graph in pull order, in canonical order where no
            family fits.
    """

    path: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: dict[str, int]
    ir_version: int
    producer: str
    metadata: dict[str, str]
    nodes: int
    histogram: dict[str, int]
    parameters: int
    family: str | None
    config: dict[str, Any]
    constants: dict[str, tuple[float, str]]
    blocks: tuple[Block, ...]
    miss: dict[str, str]
    order: tuple[Ordered, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def report(path: Path | str) -> OnnxReport:
    """Load a model and say what it is.

    Raises:
        NotAModelError: it is not a usable ONNX file.
    """
    graph = build(load(path))
    model, found, whole = graph.model, recover(graph), opened(graph)
    net = found if isinstance(found, Recovered) else None
    counts = Counter(node.op for node in whole.model.nodes if not node.stands_for_inputs)
    return OnnxReport(
        path=str(path),
        inputs=tuple(map(str, model.inputs)),
        outputs=tuple(map(str, model.outputs)),
        opset=dict(sorted(model.opset.items())),
        ir_version=model.ir_version,
        producer=model.producer,
        metadata=dict(sorted(model.metadata.items())),
        nodes=node_count(whole),
        histogram=dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        parameters=sum(t.size for t in whole.model.constants.values() if t.dtype.is_float),
        family=net.family.title if net else None,
        config=asdict(net.config) if net else {},
        constants=(
            {c.name: (c.value, c.origin) for c in net.binding.constants.values()} if net else {}
        ),
        blocks=tuple(_blocks(net)) if net else (),
        miss=found.error(graph).fields() if isinstance(found, NearMiss) else {},
        order=tuple(_pull_order(net) if net else _plain_order(graph)),
    )


def _blocks(net: Recovered) -> Iterator[Block]:
    steps = {step.slot: step for step in net.binding.template.slots()}
    for stage, slots in net.binding.template.stage_slots().items():
        layers = []
        for slot in slots:
            tensors = net.binding.layers[slot].tensors
            main = next(iter(tensors.values()))
            short = slot.removeprefix(f"{stage}.")
            layers.append(Layer(short, steps[slot].kind, main.name, main.shape, steps[slot].stride))
        yield Block(stage, tuple(layers), any(layer.slot == "shortcut" for layer in layers))


def _pull_order(net: Recovered) -> Iterator[Ordered]:
    nodes = net.graph.model.nodes
    for at, step in enumerate(net.binding.template.steps):
        if not step.slot:
            continue
        # A layer may be a Conv and the BatchNormalization after it: producers come first.
        for index in reversed(net.binding.nodes[at]):
            node = nodes[index]
            weight = node.inputs[1] if len(node.inputs) > 1 else ""
            yield Ordered(index, node.op, node.outputs[0], step.slot, weight)


def _plain_order(graph: Graph) -> Iterator[Ordered]:
    for index in canonical_order(graph):
        node = graph.model.nodes[index]
        if node.op in _WEIGHTED:
            yield Ordered(index, node.op, node.outputs[0], "", node.inputs[1])
