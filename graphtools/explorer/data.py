"""What the page's scripts are given: boxes, nodes, tensors and overlays as plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphtools.boxes import Box
from graphtools.explorer.overlays import Error, Golden, Overlays
from graphtools.explorer.statistics import Statistics, statistics
from graphtools.graph import Graph
from graphtools.model import Attribute, Node, Subgraph, Value, subgraphs
from graphtools.shapes import shapes as shapes_of
from graphtools.subgraphs import node_count
from graphtools.tensors import DType, LazyTensor

__all__ = ["attribute_text", "figure", "page_data", "shape_text"]

# Constants of so few elements are shown as their values.
_SHOWN_VALUES = 8

# (weights at most, columns of the strip, whether there is a histogram): a page stays below 1 MB
# and 100 bytes for each node.
_DETAIL = ((2500, 64, True), (6000, 16, True))

_LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def page_data(
    graph: Graph, tree: Box, overlays: Overlays, shapes: Mapping[str, Value] | None
) -> dict[str, Any]:
    """The data; ``assets/model.js`` reads it.

    A tensor is a number, its place in ``tensors``; an absent one is -1. A child of a box is the
    place of a box, or ``~n`` for the node at place n.
    """
    collected = _Tensors(graph, shapes_of(graph, measure=False) if shapes is None else shapes)
    boxes = list(tree.boxes())
    place = {id(box): at for at, box in enumerate(boxes)}
    order = list(tree.nodes())
    position = {index: at for at, index in enumerate(order)}
    nodes = [_node(graph.model.nodes[index], collected, overlays) for index in order]
    model, mark = graph.model, overlays.mark
    return {
        "file": model.path.name,
        "title": overlays.title or model.path.name,
        "about": _about(graph),
        "notes": list(overlays.notes),
        "facts": [[f.name, f.value, f.origin, f.meaning] for f in overlays.facts],
        "boxes": [
            [
                box.name,
                box.kind,
                [place[id(c)] if isinstance(c, Box) else ~position[c] for c in box.children],
                box.stage,
            ]
            for box in boxes
        ],
        "nodes": nodes,
        "inputs": [collected.number(v.name) for v in model.inputs],
        "outputs": [collected.number(v.name) for v in model.outputs],
        "weights": _weights(collected, overlays),
        "tensors": collected.rows,
        "goldens": {name: _golden(golden) for name, golden in overlays.goldens.items()},
        "errors": {name: _error(error) for name, error in overlays.errors.items()},
        "first_wrong": overlays.first_wrong,
        "mark": [model.nodes[mark.node].place, mark.reason] if mark else None,
    }


class _Tensors:
    """Numbers the tensors that nodes name, in the order in which they are met."""

    def __init__(self, graph: Graph, shapes: Mapping[str, Value]) -> None:
        self.graph = graph
        self.shapes = shapes
        self.numbers: dict[str, int] = {}
        self.rows: list[tuple[str, str, str, int]] = []

    def number(self, name: str) -> int:
        if not name:
            return -1
        if name not in self.numbers:
            self.numbers[name] = len(self.rows)
            constant = self.graph.model.constants.get(name)
            if constant is not None:
                row = (name, constant.dtype.label, shape_text(constant.shape), constant.size)
            else:
                known = self.shapes.get(name, Value(name, DType.OTHER, None))
                label = "" if known.dtype is DType.OTHER else known.dtype.label
                row = (name, label, shape_text(known.shape), 0)
            self.rows.append(row)
        return self.numbers[name]


def shape_text(shape: tuple[int | str, ...] | None) -> str:
    """Axes with a multiplication sign between; ``scalar`` for none, "" where nothing is known."""
    if shape is None:
        return ""
    return "\u00d7".join(map(str, shape)) or "scalar"


def figure(value: float) -> str:
    """A number as the page prints it: six digits."""
    return f"{value:.6g}"


def _node(node: Node, tensors: _Tensors, overlays: Overlays) -> list[Any]:
    attributes: list[str] = []
    reads: dict[str, None] = {}
    for name, value in node.attributes.items():
        attributes += [name, attribute_text(value)]
    for _, inner in subgraphs(node):
        reads |= dict.fromkeys(n for n in inner.reads if n in tensors.graph.consumers)
    return [
        node.place,
        node.op,
        node.name,
        [tensors.number(name) for name in node.inputs],
        [tensors.number(name) for name in node.outputs],
        attributes,
        overlays.labels.get(node.index, ""),
        [tensors.number(name) for name in reads],
    ]


def attribute_text(value: Attribute) -> str:
    """An attribute for people: numbers of six digits, long lists and texts cut."""
    if isinstance(value, LazyTensor):
        return f"tensor {value.dtype.label} {shape_text(value.shape)}"
    if isinstance(value, Subgraph):
        return f"a graph that gives {', '.join(value.outputs) or 'nothing'}"
    if isinstance(value, float):
        return figure(value)
    if isinstance(value, tuple):
        shown = [figure(v) if isinstance(v, float) else _cut(str(v)) for v in value[:64]]
        return f"[{', '.join(shown)}{', ..' if len(value) > 64 else ''}]"
    return "not shown" if value is None else _cut(str(value))


def _cut(text: str) -> str:
    """The beginning of what is no name: a file may hold a whole vocabulary in one attribute."""
    return text if len(text) <= 200 else f"{text[:200]} .. {len(text)} characters in all"


def _weights(tensors: _Tensors, overlays: Overlays) -> list[list[Any]]:
    constants = tensors.graph.model.constants
    read = [(number, constants[n]) for n, number in tensors.numbers.items() if n in constants]
    large = sum(tensor.size > _SHOWN_VALUES for _, tensor in read)
    columns, histogram = next(((c, h) for most, c, h in _DETAIL if large <= most), (0, False))
    return [
        [
            number,
            {
                "carried": [
                    [c.key, c.index, c.tensor, c.origin]
                    for c in overlays.carried.get(tensor.name, ())
                ],
                **_described(tensor, columns, histogram),
            },
        ]
        for number, tensor in read
    ]


def _described(tensor: LazyTensor, columns: int, histogram: bool) -> dict[str, Any]:
    if tensor.dtype in (DType.STRING, DType.OTHER) or not tensor.size:
        return {}
    if tensor.size <= _SHOWN_VALUES:
        values = tensor.read()
        text = figure if tensor.dtype.is_float else str
        shown = ", ".join(text(v) for v in values.reshape(-1).tolist())
        return {"value": f"[{shown}]" if tensor.shape else shown}
    found = statistics(tensor, columns)
    if found is None:
        return {"strange": tensor.size}
    figures = [found.minimum, found.maximum, found.mean, found.std]
    described: dict[str, Any] = {"figures": [figure(v) for v in figures]}
    if found.strange:
        described["strange"] = found.strange
    if histogram:
        described["histogram"] = _histogram(found)
    if found.strip:
        described["strip"] = _strip(found)
    return described


def _histogram(found: Statistics) -> str:
    """A level for every bin; a bin that is not empty is seen."""
    most = max(found.histogram)
    return "".join(_LEVELS[math.ceil(63 * count / most)] for count in found.histogram)


def _strip(found: Statistics) -> str:
    """Two levels for every column: the ends of its range, 0 the minimum and 63 the maximum."""
    width = (found.maximum - found.minimum) or 1.0
    ends = np.nan_to_num((np.asarray(found.strip) - found.minimum) / width)
    return "".join(_LEVELS[round(63 * v)] for v in ends.clip(0.0, 1.0).reshape(-1).tolist())


def _golden(golden: Golden) -> dict[str, Any]:
    figures = (golden.minimum, golden.maximum, golden.mean, golden.std)
    return {
        "shape": shape_text(golden.shape),
        "figures": [figure(v) for v in figures],
        "noise": "" if golden.noise is None else figure(golden.noise),
    }


def _error(error: Error) -> dict[str, Any]:
    """``ratio`` is the error over what is right, for the colour."""
    size = 0.0 if error.max_abs is None else error.max_abs
    apart = bool(error.problem) if error.bound is None else size > 0.0
    ratio = size / error.bound if error.bound else (1e9 if apart else 0.0)
    return {
        "max_abs": None if error.max_abs is None else min(size, 1e300),
        "max_abs_text": "-" if error.max_abs is None else f"{size:.3g}",
        "bound": "-" if error.bound is None else f"{error.bound:.3g}",
        "ratio": min(ratio, 1e9),
        "cosine": "-" if error.cosine is None else f"{error.cosine:.6f}",
        "missing": error.missing,
        "problem": error.problem,
        "note": error.note,
    }


def _about(graph: Graph) -> list[list[str]]:
    model = graph.model
    opset = ", ".join(f"{domain or 'ai.onnx'} {v}" for domain, v in sorted(model.opset.items()))
    return [
        *(["input", str(value)] for value in model.inputs),
        *(["output", str(value)] for value in model.outputs),
        ["opset", f"{opset}, IR version {model.ir_version}"],
        ["producer", model.producer or "unknown"],
        ["nodes", _counted(graph)],
        *([key, value] for key, value in sorted(model.metadata.items())),
    ]


def _counted(graph: Graph) -> str:
    own = sum(node.inside is None for node in graph.model.nodes)
    held = node_count(graph) - own
    constants = sum(node.op == "Constant" for node in graph.model.nodes)
    return "".join(
        (
            str(own),
            f", and {held} in the graphs of control flow" if held else "",
            f"; {constants} of them Constants, which are not drawn" if constants else "",
        )
    )
