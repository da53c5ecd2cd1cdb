"""Changed copies of a loaded model, as bytes for onnxruntime; the file is never touched.

One of the four modules that import ``onnx``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from graphtools.errors import UnsupportedError
from graphtools.graph import Graph, upstream
from graphtools.model import Model
from graphtools.onnx_file import tensor_of
from graphtools.spans import read_at
from graphtools.tensors import LazyTensor

__all__ = [
    "SegmentRule",
    "external_tensors",
    "extracted",
    "has_partial_windows",
    "inner_tensors",
    "is_outside",
    "island_model",
    "own_tensors",
    "tapped",
    "tensors_inside",
]

# Element types that are widened before anything is run: onnxruntime computes them otherwise, and
# refuses the files that the usual converter makes.
_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
# Bytes that a message may take in beside the rest, half precision widened: protobuf's 2 GB, less
# room for that.
_MOST_HELD = 2**31 - 2**27
# Attributes that name the element type of what a node gives.
_TYPE_ATTRIBUTES = ("to", "dtype")

# What the last, partial window of a ceil-mode average pooling is divided by: the kernel's
# length, or the number of elements that are there. onnxruntime's answer has changed between
# versions and opsets, so that every run whose numbers count pins the rule in the graph.
SegmentRule = Literal["kernel", "valid"]


def has_partial_windows(model: Model) -> bool:
    """Whether the model has an average pooling whose last window may be partial."""
    return any(n.op == "AveragePool" and n.integer("ceil_mode", 0) for n in model.nodes)


def tapped(
    model: Model,
    outputs: Iterable[str],
    rule: SegmentRule | None,
    shapes: Mapping[str, str] | None = None,
) -> bytes:
    """The whole model with ``outputs`` beside its own, ceil-mode pools pinned to ``rule`` (None
    leaves them as they are), half precision widened to float32. Of weights in other files it has
    those that `external_tensors` leaves out.

    Args:
        shapes: tensors whose shape is an output too, each with that output's name.
    """
    shapes = shapes or {}
    outputs = [name for name in outputs if name not in {v.name for v in model.outputs}]
    more = ModelProto()
    more.graph.node.extend(helper.make_node("Shape", [n], [shapes[n]]) for n in shapes)
    more.graph.output.extend(ValueInfoProto(name=name) for name in (*outputs, *shapes.values()))
    outside = any(map(is_outside, tensors_inside(model.proto)))
    if rule is None and not outside and not _has_halves(model.proto.graph):
        # Messages that follow one another are merged into one: nothing is copied to add outputs.
        whole: bytes = model.proto.SerializeToString() + more.SerializeToString()
        return whole
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    proto.MergeFrom(more)
    return _runnable(model, proto, rule)


def own_tensors(model: Model) -> frozenset[str]:
    """What the file's own nodes give: all but the tensors inside fused nodes and subgraphs."""
    return frozenset(o for node in model.proto.graph.node for o in node.output if o)


def inner_tensors(model: Model) -> dict[str, str]:
    """Tensors inside subgraphs (If, Loop, Scan), each with the op that gives it."""
    found: dict[str, str] = {}
    pending = [g for node in model.proto.graph.node for g in _subgraphs(node)]
    while pending:
        graph = pending.pop()
        for node in graph.node:
            found |= {name: node.op_type for name in node.output if name}
            pending += _subgraphs(node)
    return dict(sorted(found.items()))


def _subgraphs(node: NodeProto) -> list[GraphProto]:
    listed = [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]
    return listed + [g for a in node.attribute for g in a.graphs]


def extracted(
    graph: Graph, entries: Sequence[ValueInfoProto], exits: Sequence[ValueInfoProto]
) -> tuple[ModelProto, list[TensorProto]]:
    """The nodes between ``entries`` and ``exits`` as a model, whose inputs are the entries and,
    before them, what of the graph's own inputs the nodes need.

    Returns the model, and the initializers that it reads but does not hold yet.
    """
    model = graph.model
    own = model.proto.graph
    needed = upstream(graph, {v.name for v in entries}, [v.name for v in exits])
    reads = {name for index in needed for name in model.nodes[index].reads()}
    reads -= {v.name for v in entries}
    proto = ModelProto(ir_version=model.proto.ir_version)
    proto.opset_import.extend(model.proto.opset_import)
    proto.functions.extend(model.proto.functions)
    proto.graph.name = own.name
    # A fused node's parts come after the file's nodes; the node itself is among those.
    proto.graph.node.extend(own.node[i] for i in sorted(needed) if i < len(own.node))
    proto.graph.input.extend(
        v for v in own.input if v.name in reads and v.name not in model.constants
    )
    proto.graph.input.extend(entries)
    proto.graph.output.extend(exits)
    return proto, [tensor for tensor in own.initializer if tensor.name in reads]


def island_model(
    graph: Graph, entries: Sequence[str], exits: Sequence[str], rule: SegmentRule | None
) -> tuple[bytes, tuple[str, ...]]:
    """The regions from ``entries`` to ``exits`` alone, as one model whose inputs are the entries
    and, where a region computes a shape from it, the graph's own input.

    Returns the bytes and the names of the inputs that it needs.
    """
    model = graph.model
    proto, constants = extracted(
        graph,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in entries],
        [ValueInfoProto(name=name) for name in exits],
    )
    for tensor in constants:  # scalars and shapes: small enough to bring along
        values = model.constants[tensor.name].read() if tensor.external_data else None
        proto.graph.initializer.append(
            tensor if values is None else numpy_helper.from_array(values, tensor.name)
        )
    return _runnable(model, proto, rule), tuple(v.name for v in proto.graph.input)


def external_tensors(model: Model) -> list[LazyTensor]:
    """Initializers whose bytes are in other files: a model in memory has to be handed them.

    Those of half precision are not among them, nor what attributes and subgraphs have in other
    files: `tapped` holds these. onnxruntime would look for them where the process runs.
    """
    listed = model.proto.graph.initializer
    return [model.constants[t.name] for t in listed if is_outside(t) and t.data_type not in _HALVES]


def is_outside(tensor: TensorProto) -> bool:
    """Whether its bytes are in another file than the model's."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def tensors_inside(proto: ModelProto) -> Iterator[TensorProto]:
    """Every tensor that is no initializer of the model's own graph: those of attributes,
    subgraphs and functions.
    """
    graphs: list[GraphProto] = []
    nodes = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    while nodes:
        for attribute in (a for node in nodes for a in node.attribute):
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.GRAPH:
                graphs.append(attribute.g)
            yield from attribute.tensors
            graphs += attribute.graphs
        nodes = [node for graph in graphs for node in graph.node]
        for graph in graphs:
            yield from graph.initializer
        graphs.clear()


def _runnable(model: Model, proto: ModelProto, rule: SegmentRule | None) -> bytes:
    if rule is not None:
        _pin_pools(proto.graph, rule)
    halves = (t for t in proto.graph.initializer if t.data_type in _HALVES)
    _hold(model, [*filter(is_outside, (*halves, *tensors_inside(proto)))])
    _widen(proto.graph)
    data: bytes = proto.SerializeToString()
    return data


def _hold(model: Model, tensors: Sequence[TensorProto]) -> None:
    """Put the bytes of tensors that are in other files into the model that is run."""
    spans = [tensor_of(model.path, tensor, tensor.name).span() for tensor in tensors]
    widened = (2 if tensor.data_type in _HALVES else 1 for tensor in tensors)
    if sum(k * s.length for k, s in zip(widened, spans, strict=True) if s) > _MOST_HELD:
        raise UnsupportedError(
            "the model has too large weights in other files to be run from memory",
            file=model.path,
            where=tensors[0].name,
            expected=f"at most {_MOST_HELD} bytes inside subgraphs or, widened, of half precision",
            todo="export it with float32 weights outside of If, Loop and Scan",
        )
    for tensor, span in zip(tensors, spans, strict=True):
        if span is not None:
            with span.path.open("rb", buffering=0) as file:
                tensor.raw_data = read_at(file, span.offset, span.length)
            tensor.ClearField("data_location")
            del tensor.external_data[:]


def _has_halves(graph: GraphProto) -> bool:
    """Whether `_widen` would change anything."""
    types = {v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    types |= {tensor.data_type for tensor in graph.initializer}
    inner = []
    for attribute in (a for node in graph.node for a in node.attribute):
        types.add(attribute.t.data_type)
        if attribute.name in _TYPE_ATTRIBUTES:
            types.add(attribute.i)
        if attribute.type == AttributeProto.GRAPH:
            inner.append(attribute.g)
    return not types.isdisjoint(_HALVES) or any(map(_has_halves, inner))


def _widen(graph: GraphProto) -> None:
    """Everything of half precision as float32, casts included: exact, since weights only widen
    and the arithmetic in between is what the network means."""
    del graph.value_info[:]  # onnxruntime infers it again
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in _HALVES:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.type == AttributeProto.GRAPH:
                _widen(attribute.g)
            elif attribute.name in _TYPE_ATTRIBUTES and attribute.i in _HALVES:
                attribute.i = TensorProto.FLOAT


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _HALVES:
        values = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _pin_pools(graph: GraphProto, rule: SegmentRule) -> None:
    """Spell every ceil-mode AveragePool out: kernel - 1 zeros on the right, then the pool
    without ceil_mode, which sees full windows only.

    The window count stays ceil(T / stride) for stride == kernel. Under ``valid`` the result is
    divided by the same pooling of ones.
    """
    nodes: list[NodeProto] = []
    for node in graph.node:
        attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type != "AveragePool" or not attributes.get("ceil_mode"):
            nodes.append(node)
            continue
        nodes += _pinned(node, attributes, graph, rule)
    del graph.node[:]
    graph.node.extend(nodes)


def _pinned(
    node: NodeProto, attributes: dict[str, Any], graph: GraphProto, rule: SegmentRule
) -> list[NodeProto]:
    kernel = list(attributes["kernel_shape"])
    name = node.output[0]
    zeros = [0, 0] + [0] * len(kernel)
    ends = [0, 0] + [k - 1 for k in kernel]
    pads = numpy_helper.from_array(np.array(zeros + ends, np.int64), f"{name}/pads")
    one = numpy_helper.from_array(np.array([1.0], np.float32), f"{name}/one")
    graph.initializer.append(pads)
    made = [
        helper.make_node("Pad", [node.input[0], pads.name], [f"{name}/padded"]),
        _plain_pool(f"{name}/padded", f"{name}/by_kernel" if rule == "valid" else name, attributes),
    ]
    if rule == "valid":
        made += [
            helper.make_node("Shape", [node.input[0]], [f"{name}/shape"]),
            helper.make_node("ConstantOfShape", [f"{name}/shape"], [f"{name}/ones"], value=one),
            helper.make_node("Pad", [f"{name}/ones", pads.name], [f"{name}/ones_padded"]),
            _plain_pool(f"{name}/ones_padded", f"{name}/share", attributes),
            helper.make_node("Div", [f"{name}/by_kernel", f"{name}/share"], [name]),
        ]
    return made


def _plain_pool(source: str, out: str, attributes: dict[str, Any]) -> NodeProto:
    kept = {k: v for k, v in attributes.items() if k in ("kernel_shape", "strides", "dilations")}
    return helper.make_node("AveragePool", [source], [out], count_include_pad=1, **kept)
