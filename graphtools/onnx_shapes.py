"""What the file and onnx's shape inference say of tensors, those in subgraphs among them.

One of the four modules that import ``onnx``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from graphtools.model import Inside, Model, Node, Value, subgraphs
from graphtools.onnx_file import inputs_of, value_of

__all__ = ["inferred_shapes", "inner_graph", "node_proto"]


def inferred_shapes(model: Model) -> dict[str, Value]:
    """What onnx's shape inference says of the tensors between input and output: the element type
    and, where it is certain of the rank, the shape. Axes that the file has no name for are ``?``.

    Args:
        model: what is inside subgraphs is found where its nodes are among the model's
            (`graphtools.subgraphs.opened`).
    """
    light = ModelProto(ir_version=model.proto.ir_version)
    light.opset_import.extend(model.proto.opset_import)
    light.functions.extend(model.proto.functions)
    graph, whole = light.graph, model.proto.graph
    graph.name = whole.name
    graph.node.extend(whole.node)
    graph.input.extend(whole.input)
    graph.output.extend(whole.output)
    made = {name for node in whole.node for name in node.output}
    graph.value_info.extend(value for value in whole.value_info if value.name in made)
    for tensor in whole.initializer:
        if tensor.data_type == TensorProto.INT64:  # may be the operand of a Reshape
            graph.initializer.append(tensor)
        else:
            graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    places = _renamed(model, graph)
    # It may contradict itself, or be too large for one message.
    with contextlib.suppress(onnx.shape_inference.InferenceError, ValueError):
        graph = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    found = _declared(graph.value_info)
    for inside, outputs in places:
        inner = inner_graph(graph, model.nodes, inside)
        declared = _declared((*inner.value_info, *inner.input, *inner.output))
        found |= {name: declared[name] for name in outputs if name in declared}
    return found


def _renamed(model: Model, graph: GraphProto) -> list[tuple[Inside, list[str]]]:
    """Give the tensors of subgraphs the names that they have in the model: inference takes one
    for the tensor of that name in the graph around it.

    Returns a node of each subgraph, and the tensors that are made in it.
    """
    found: dict[tuple[int, str], tuple[Inside, dict[str, str], list[str]]] = {}
    for node in model.nodes:
        inside = node.inside
        if inside is None:
            continue
        _, names, made = found.setdefault((inside.owner, inside.attribute), (inside, {}, []))
        made += filter(None, node.outputs)
        if inside.place is None:
            inner = inner_graph(graph, model.nodes, inside)
            names.update(zip(inputs_of(inner), node.outputs, strict=True))
        else:
            proto = node_proto(graph, model.nodes, node)
            names.update(zip(proto.input, node.inputs, strict=True))
            names.update(zip(proto.output, node.outputs, strict=True))
            proto.input[:], proto.output[:] = node.inputs, node.outputs
    for inside, names, _ in found.values():
        inner = inner_graph(graph, model.nodes, inside)
        gives = dict(subgraphs(model.nodes[inside.owner]))[inside.attribute].outputs
        for output, name in zip(inner.output, gives, strict=True):
            output.name = name
        for tensor in inner.initializer:
            tensor.name = names.get(tensor.name, tensor.name)
        for value in (*inner.input, *inner.value_info):
            value.name = names.get(value.name, value.name)
    return [(inside, made) for inside, _, made in found.values()]


def _declared(values: Iterable[ValueInfoProto]) -> dict[str, Value]:
    found = {value.name: value_of(value) for value in values}
    return {name: replace(v, shape=v.shape and _known(v.shape)) for name, v in found.items()}


def _known(shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Without the names that inference makes up."""
    return tuple("?" if str(axis).startswith("unk__") else axis for axis in shape)


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
