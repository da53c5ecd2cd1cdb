"""What the file and onnx's shape inference say of tensors, those in subgraphs among them.

One of the four modules that import ``onnx``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from graphtools.model import Inside, Model, Node, Value
from graphtools.onnx_file import value_of

__all__ = ["inferred_shapes", "inner_graph", "node_proto"]


def inferred_shapes(model: Model) -> dict[str, Value]:
    """What onnx's shape inference says of the tensors between input and output: the element type
    and, where it is certain of the rank, the shape. Axes that the file has no name for are ``?``.
    """
    light = ModelProto(ir_version=model.proto.ir_version)
    light.opset_import.extend(model.proto.opset_import)
    light.functions.extend(model.proto.functions)
    graph, whole = light.graph, model.proto.graph
    graph.name = whole.name
    graph.node.extend(whole.node)
    graph.input.extend(whole.input)
    graph.output.extend(whole.output)
    graph.value_info.extend(whole.value_info)
    for tensor in whole.initializer:
        if tensor.data_type == TensorProto.INT64:  # may be the operand of a Reshape
            graph.initializer.append(tensor)
        else:
            graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    # It may contradict itself, or be too large for one message.
    with contextlib.suppress(onnx.shape_inference.InferenceError, ValueError):
        graph = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    return _declared(graph.value_info) | _declared_inside(model, graph)


def _declared(values: Iterable[ValueInfoProto]) -> dict[str, Value]:
    found = {value.name: value_of(value) for value in values}
    return {name: replace(v, shape=v.shape and _known(v.shape)) for name, v in found.items()}


def _known(shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Without the names that inference makes up."""
    return tuple("?" if str(axis).startswith("unk__") else axis for axis in shape)


def _declared_inside(model: Model, graph: GraphProto) -> dict[str, Value]:
    """The tensors of nodes that came out of subgraphs, by the names that they have there now."""
    graphs: dict[tuple[int, str], GraphProto] = {}
    declared: dict[tuple[int, str], dict[str, Value]] = {}
    found: dict[str, Value] = {}
    for node in model.nodes:
        inside = node.inside
        if inside is None:
            continue
        key = inside.owner, inside.attribute
        if key not in graphs:
            graphs[key] = inner_graph(graph, model.nodes, inside)
            held = graphs[key]
            declared[key] = _declared((*held.value_info, *held.input, *held.output))
        if inside.place is None:
            names = [v.name for v in graphs[key].input]
        else:
            names = [*graphs[key].node[inside.place].output]
        for name, now in zip(names, node.outputs, strict=False):
            if name in declared[key]:
                found[now] = replace(declared[key][name], name=now)
    return found


def node_proto(graph: GraphProto, nodes: Sequence[Node], node: Node) -> NodeProto:
    """A node as the file has it, wherever it is.

    Args:
        graph: the model's.
        nodes: the model's, those that came out of subgraphs among them.
        node: one that is in the file.
    """
    if node.inside is None:
        return graph.node[node.index]
    return inner_graph(graph, nodes, node.inside).node[node.inside.place or 0]


def inner_graph(graph: GraphProto, nodes: Sequence[Node], inside: Inside) -> GraphProto:
    """The subgraph that a node came out of; arguments as for `node_proto`."""
    owner = node_proto(graph, nodes, nodes[inside.owner])
    return next(a.g for a in owner.attribute if a.name == inside.attribute)
