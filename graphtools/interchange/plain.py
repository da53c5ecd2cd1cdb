"""The graph as plain JSON, for scripts in any language; docs/export.md describes it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from graphtools.boxes import Box
from graphtools.explorer.overlays import Overlays
from graphtools.graph import Graph, canonical_order
from graphtools.hierarchy import namespaces
from graphtools.model import Attribute, Node, Subgraph, Value
from graphtools.shapes import shapes as shapes_of
from graphtools.tensors import DType, LazyTensor

__all__ = ["VERSION", "to_json"]

# Of the structure: raised when a field changes its meaning or goes.
VERSION = 1

# Constants of so few elements are given with their values: axes, shapes, scales.
_SHOWN_VALUES = 8


def to_json(
    graph: Graph,
    tree: Box,
    overlays: Overlays | None = None,
    shapes: Mapping[str, Value] | None = None,
) -> str:
    """The graph with its boxes; the same arguments give the same text.

    Args:
        graph: what is written; of its weights only small ones are read.
        tree: its boxes (`graphtools.hierarchy.hierarchy`).
        overlays: slots of nodes and what constants became.
        shapes: of its tensors; what the file and inference say by default.
    """
    overlays = overlays or Overlays()
    shapes = shapes_of(graph, measure=False) if shapes is None else shapes
    model = graph.model
    spaces = namespaces(graph, tree)
    order = [model.nodes[index] for index in canonical_order(graph)]
    named = dict.fromkeys(
        name
        for group in (
            (v.name for v in model.inputs),
            *((*node.reads(), *node.outputs) for node in order),
            (v.name for v in model.outputs),
        )
        for name in group
        if name in graph.consumers
    )
    data = {
        "version": VERSION,
        "file": model.path.name,
        "family": overlays.title or None,
        "opset": dict(sorted(model.opset.items())),
        "inputs": [v.name for v in model.inputs],
        "outputs": [v.name for v in model.outputs],
        "nodes": [
            {
                "index": node.index,
                "inside": _inside(node),
                "op": node.op,
                "name": node.name,
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
                "attributes": {k: _attribute(v) for k, v in sorted(node.attributes.items())},
                "namespace": "/".join(spaces[node.index]),
                "slot": overlays.labels.get(node.index, ""),
            }
            for node in order
        ],
        "tensors": {name: _tensor(graph, name, overlays, shapes) for name in named},
    }
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _tensor(
    graph: Graph, name: str, overlays: Overlays, shapes: Mapping[str, Value]
) -> dict[str, Any]:
    constant = graph.model.constants.get(name)
    if constant is None:
        known = shapes.get(name, Value(name, DType.OTHER, None))
        return {**_kind(known.dtype, known.shape), "constant": False}
    found = {**_kind(constant.dtype, constant.shape), "constant": True}
    if constant.size <= _SHOWN_VALUES and constant.dtype not in (DType.STRING, DType.OTHER):
        found["values"] = _numbers(constant.read().reshape(-1).tolist())
    if carried := overlays.carried.get(name):
        found["became"] = [{"tensor": c.tensor, "key": c.key, "index": c.index} for c in carried]
    return found


def _kind(dtype: DType, shape: tuple[int | str, ...] | None) -> dict[str, Any]:
    return {
        "dtype": None if dtype is DType.OTHER else dtype.label,
        "shape": None if shape is None else list(shape),
    }


def _inside(node: Node) -> dict[str, Any] | None:
    at = node.inside
    return at if at is None else {"node": at.owner, "attribute": at.attribute, "place": at.place}


def _attribute(value: Attribute) -> Any:
    if isinstance(value, LazyTensor):
        return _kind(value.dtype, value.shape)
    if isinstance(value, Subgraph):
        return {"gives": list(value.outputs)}
    if isinstance(value, tuple):
        return _numbers(value)
    return _numbers([value])[0]


def _numbers(values: Iterable[Any]) -> list[Any]:
    """Numbers that JSON lacks as text: ``inf``, ``-inf``, ``nan``."""
    return [f"{v}" if isinstance(v, float) and not math.isfinite(v) else v for v in values]
