"""The graph for Graphviz: a cluster for every box."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from graphtools.boxes import Box
from graphtools.explorer.data import shape_text
from graphtools.explorer.overlays import Overlays
from graphtools.graph import Graph
from graphtools.model import Node, Value
from graphtools.shapes import shapes as shapes_of

__all__ = ["to_dot"]

_STYLE = """\
  graph [fontname="Helvetica", fontsize=11, style="rounded", color="#90a4ae", labeljust="l", nodesep=0.2, ranksep=0.3]
  node [fontname="Helvetica", fontsize=9, shape=box, style="rounded,filled", color="#90a4ae", fillcolor="#ffffff", height=0.25, margin="0.08,0.04"]
  edge [fontname="Helvetica", fontsize=7, color="#546e7a", arrowsize=0.5]
"""  # noqa: E501
_ENDS = 'shape=oval, fillcolor="#e3f2fd"'


def to_dot(
    graph: Graph,
    tree: Box,
    overlays: Overlays | None = None,
    shapes: Mapping[str, Value] | None = None,
) -> str:
    """The graph in the DOT language; the same arguments give the same text.

    Weights are not drawn as nodes: their shapes are in the labels of what reads them. The
    first edge of a tensor that leaves a box is labelled with its shape.

    Args:
        graph: what is written.
        tree: its boxes (`graphtools.hierarchy.hierarchy`).
        overlays: slots of nodes.
        shapes: of its tensors; what the file and inference say by default.
    """
    overlays = overlays or Overlays()
    shapes = shapes_of(graph, measure=False) if shapes is None else shapes
    lines = [f"digraph {_quoted(graph.model.path.name)} {{", _STYLE.rstrip()]
    lines += _ends(graph)
    lines += _box(graph, tree, overlays)
    lines += _edges(graph, tree, shapes)
    return "\n".join((*lines, "}")) + "\n"


def _ends(graph: Graph) -> Iterator[str]:
    for kind, values in (("in", graph.inputs), ("out", graph.outputs)):
        for number, value in enumerate(values):
            label = _quoted(f"{value.name}\n{value.dtype.label} {shape_text(value.shape)}")
            yield f"  {kind}{number} [label={label}, {_ENDS}]"


def _box(graph: Graph, tree: Box, overlays: Overlays) -> Iterator[str]:
    """The tree's nodes, each inside the clusters of its boxes."""
    number = 0
    pending: list[tuple[Box | int | None, int]] = [(c, 1) for c in reversed(tree.children)]
    while pending:
        unit, depth = pending.pop()
        indent = "  " * depth
        if isinstance(unit, Box):
            yield f"{indent}subgraph cluster_{number} {{"
            yield f"{indent}  label={_quoted(unit.name)}"
            number += 1
            pending.append((None, depth))
            pending += [(child, depth + 1) for child in reversed(unit.children)]
        elif unit is None:
            yield f"{indent}}}"
        else:
            node = graph.model.nodes[unit]
            label = _quoted("\n".join(_label(graph, node, overlays)))
            yield f"{indent}n{unit} [label={label}, tooltip={_quoted(node.name or str(node))}]"


def _label(graph: Graph, node: Node, overlays: Overlays) -> Iterator[str]:
    yield node.op
    if slot := overlays.labels.get(node.index):
        yield slot
    weights = (graph.model.constants.get(name) for name in node.inputs)
    shapes = [shape_text(w.shape) for w in weights if w is not None and w.size > 1]
    if shapes:
        yield ", ".join(shapes)


def _edges(graph: Graph, tree: Box, shapes: Mapping[str, Value]) -> Iterator[str]:
    where = {
        child: box for box in tree.boxes() for child in box.children if not isinstance(child, Box)
    }
    made = {value.name: (f"in{number}", None) for number, value in enumerate(graph.inputs)}
    places = {n: (f"n{index}", box) for index, box in where.items() for n in _outputs(graph, index)}
    outputs = {value.name: f"out{number}" for number, value in enumerate(graph.outputs)}
    for name, (source, box) in (made | places).items():
        readers = dict.fromkeys(node.index for node, _ in graph.consumers[name])
        shape = shape_text(shapes[name].shape) if name in shapes else ""
        for index in readers:
            label = ""
            if shape and where[index] is not box:
                label, shape = f"label={_quoted(shape)}, ", ""  # once for each tensor
            yield f"  {source} -> n{index} [{label}tooltip={_quoted(name)}]"
        if name in outputs:
            yield f"  {source} -> {outputs[name]} [tooltip={_quoted(name)}]"


def _outputs(graph: Graph, index: int) -> Iterator[str]:
    return filter(None, graph.model.nodes[index].outputs)


def _quoted(text: str) -> str:
    """A string that Graphviz shows as it is: quotes, its own escapes (``\\N``, ``\\l``) and HTML
    entities mean nothing; control characters, which SVG has no room for, are blanks."""
    text = re.sub(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", " ", text)
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return '"' + text.replace("\n", "\\n") + '"'
