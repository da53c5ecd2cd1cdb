"""The graph as the JSON that Google's Model Explorer opens.

Its format, read off ai-edge-model-explorer 0.1.34: the dataclasses of ``graph_builder.py``, and how
the page loads a ``.json`` file, which is stricter. There the outer object needs ``label`` and
``graphs``, every ``namespace`` is a string, ``/`` between layers and ``\\/`` within a name, and of
a namespace with ``;`` only what follows the last one is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graphtools.boxes import Box
from graphtools.explorer.data import attribute_text, shape_text
from graphtools.explorer.overlays import Carried, Overlays
from graphtools.graph import Graph, canonical_order
from graphtools.hierarchy import namespaces
from graphtools.model import Node, Value
from graphtools.shapes import shapes as shapes_of
from graphtools.tensors import DType

__all__ = ["graph_id", "to_model_explorer"]

# Model Explorer looks for nodes of these ids and labels.
_INPUTS, _OUTPUTS = "GraphInputs", "GraphOutputs"

# What its namespaces are written with; for two of these it has no escape, and full-width
# characters look the same.
_RESERVED = str.maketrans({"/": "\\/", "\\": "\uff3c", ";": "\uff1b"})


def to_model_explorer(
    graph: Graph,
    tree: Box,
    overlays: Overlays | None = None,
    shapes: Mapping[str, Value] | None = None,
) -> str:
    """The graph with a layer for every box; the same arguments give the same text.

    A node's id is its index. Constants are no nodes but attributes of what reads them.

    Args:
        graph: what is written; its weights are not read.
        tree: its boxes (`graphtools.hierarchy.hierarchy`).
        overlays: slots of nodes, what constants became, facts about the model.
        shapes: of its tensors; what the file and inference say by default.
    """
    overlays = overlays or Overlays()
    shapes = shapes_of(graph, measure=False) if shapes is None else shapes
    spaces = namespaces(graph, tree)
    order = (graph.model.nodes[index] for index in canonical_order(graph))
    nodes = [
        {
            "id": str(node.index),
            "label": node.op,
            "namespace": _namespace(spaces[node.index]),
            "attrs": _pairs(_attributes(graph, node, overlays)),
            "incomingEdges": _incoming(graph, _operands(node)),
            "outputsMetadata": _metadata(node.outputs, shapes),
        }
        for node in order
        if node.op != "Constant"
    ]
    ends = [
        {
            "id": _INPUTS,
            "label": _INPUTS,
            "namespace": "",
            "outputsMetadata": _metadata([v.name for v in graph.inputs], shapes),
        },
        {
            "id": _OUTPUTS,
            "label": _OUTPUTS,
            "namespace": "",
            "incomingEdges": _incoming(graph, [v.name for v in graph.outputs]),
        },
    ]
    whole = {
        "id": graph_id(graph),
        "nodes": [ends[0], *nodes, ends[1]],
        "groupNodeAttributes": _layers(tree, overlays),
    }
    return json.dumps({"label": graph.model.path.name, "graphs": [whole]}, indent=1) + "\n"


def graph_id(graph: Graph) -> str:
    """What the graph is called in the file, and in the node data that belongs to it."""
    return graph.model.path.name


def _namespace(path: Iterable[str]) -> str:
    return "/".join(name.translate(_RESERVED) for name in path)


def _pairs(pairs: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in pairs]


def _attributes(graph: Graph, node: Node, overlays: Overlays) -> Iterator[tuple[str, str]]:
    if node.name:
        yield "name", node.name
    if slot := overlays.labels.get(node.index):
        yield "slot", slot
    for place, name in enumerate(node.inputs):
        constant = graph.model.constants.get(name)
        if constant is not None:
            yield f"input {place}", f"{name}: {constant.dtype.label} {list(constant.shape)}"
            for carried in overlays.carried.get(name, ()):
                yield f"input {place} became", _became(carried)
    for key, value in sorted(node.attributes.items()):
        yield key, attribute_text(value)


def _became(carried: Carried) -> str:
    place = "" if carried.index is None else f"[{carried.index}]"
    return f"{carried.tensor} ({carried.key}{place})" if carried.key else carried.tensor


def _operands(node: Node) -> list[str]:
    """Its inputs, each at its place, and after them what its subgraphs take."""
    return [*node.inputs, *list(node.reads())[len([*filter(None, node.inputs)]) :]]


def _incoming(graph: Graph, reads: Iterable[str]) -> list[dict[str, str]]:
    """Edges from nodes that are drawn: not from constants."""
    inputs = {value.name: place for place, value in enumerate(graph.inputs)}
    edges = []
    for place, name in enumerate(reads):
        producer = graph.producers.get(name)
        if name in inputs:
            source, output = _INPUTS, inputs[name]
        elif producer is not None and producer.op != "Constant":
            source, output = str(producer.index), producer.outputs.index(name)
        else:
            continue
        edges.append(
            {
                "sourceNodeId": source,
                "sourceNodeOutputId": str(output),
                "targetNodeInputId": str(place),
            }
        )
    return edges


def _metadata(names: Iterable[str], shapes: Mapping[str, Value]) -> list[dict[str, Any]]:
    """Of every output its name, by which node data finds the node, its shape and element type."""
    found = []
    for place, name in enumerate(names):
        if not name:
            continue
        pairs = [("tensor_name", name)]
        known = shapes.get(name)
        if known is not None and known.shape is not None:
            pairs.append(("shape", shape_text(known.shape)))
        if known is not None and known.dtype is not DType.OTHER:
            pairs.append(("dtype", known.dtype.label))
        found.append({"id": str(place), "attrs": _pairs(pairs)})
    return found


def _layers(tree: Box, overlays: Overlays) -> dict[str, dict[str, str]]:
    """What is shown of the whole graph, and of every layer that is a stage."""
    about = {"family": overlays.title} if overlays.title else {}
    found = {"": about | {fact.name: fact.value for fact in overlays.facts}}
    pending: list[tuple[Box, tuple[str, ...]]] = [(tree, ())]
    while pending:
        box, path = pending.pop()
        if box.stage:
            found[_namespace(path)] = {"stage": box.stage}
        pending += [(c, (*path, c.name)) for c in reversed(box.children) if isinstance(c, Box)]
    return found
