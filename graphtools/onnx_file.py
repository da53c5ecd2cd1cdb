"""Path to `Model`: one of the four modules that import ``onnx``.

Weights in external files are not read until a tensor is. The checks are our own, since
``onnx.checker`` refuses node orders that onnxruntime runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from graphtools.consistency import require_consistent
from graphtools.errors import NotAModelError, StorageError, UnsupportedError
from graphtools.fused import unfused
from graphtools.model import Attribute, Model, Node, Subgraph, Value
from graphtools.sniff import require_model_bytes
from graphtools.tensors import Array, DType, FileSpan, Held, LazyTensor, Load, bf16_to_f32

__all__ = ["declaration", "inputs_of", "load", "tensor_of", "value_of"]

_DTYPES: dict[int, DType] = {
    TensorProto.FLOAT: DType.F32,
    TensorProto.FLOAT16: DType.F16,
    TensorProto.BFLOAT16: DType.BF16,
    TensorProto.DOUBLE: DType.F64,
    TensorProto.INT8: DType.I8,
    TensorProto.INT16: DType.I16,
    TensorProto.INT32: DType.I32,
    TensorProto.INT64: DType.I64,
    TensorProto.UINT8: DType.U8,
    TensorProto.UINT16: DType.U16,
    TensorProto.UINT32: DType.U32,
    TensorProto.UINT64: DType.U64,
    TensorProto.BOOL: DType.BOOL,
    TensorProto.STRING: DType.STRING,
}


def load(path: Path | str) -> Model:
    """Read and check an ONNX file; external weights stay on disk.

    Raises:
        UsageError: there is no such file.
        NotAModelError: it is not a complete, consistent ONNX model.
        StorageError: it cannot be read.
    """
    path = Path(path)
    size = require_model_bytes(path)
    try:
        proto = onnx.load(path, format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise NotAModelError(
            "the file is not a complete ONNX protobuf",
            file=path,
            found=f"{size} bytes that do not parse to their end",
            todo="it may be cut off: fetch or export it again and compare the sizes",
        ) from error
    except OSError as error:
        raise StorageError(
            f"cannot read the model: {error.strerror or error}", file=path
        ) from error
    if not proto.HasField("graph") or not proto.graph.node or not proto.opset_import:
        raise NotAModelError(
            "the file holds no ONNX graph",
            file=path,
            expected="a ModelProto with an opset and nodes",
            found=f"{size} bytes, {len(proto.graph.node)} nodes",
            todo="check that this is the exported model",
        )
    model = _plain(path, proto)
    require_consistent(model, _operands)
    return model


def _plain(path: Path, proto: onnx.ModelProto) -> Model:
    graph = proto.graph
    nodes, constants = _contents(path, graph)
    shown, made = unfused(nodes)
    constants |= made
    return Model(
        path=path,
        nodes=shown,
        constants=constants,
        inputs=tuple(value_of(v) for v in graph.input if v.name not in constants),
        outputs=tuple(value_of(v) for v in graph.output),
        opset={o.domain if o.domain != "ai.onnx" else "": o.version for o in proto.opset_import},
        ir_version=proto.ir_version,
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
        metadata={p.key: p.value for p in proto.metadata_props},
        proto=proto,
    )


def _contents(
    path: Path, graph: onnx.GraphProto, place: str = ""
) -> tuple[list[Node], dict[str, LazyTensor]]:
    """The nodes of a graph, of the model or in an attribute, and its constants by name.

    Args:
        place: of a graph in an attribute, for messages: ``, in body of node 3``.
    """
    constants: dict[str, LazyTensor] = {}
    for tensor in graph.initializer:
        if tensor.name in constants:
            raise NotAModelError(
                f"two initializers are called {tensor.name!r}",
                file=path,
                where=_readers(graph, tensor.name, place),
                todo="the export is broken: make it again",
            )
        constants[tensor.name] = tensor_of(path, tensor, tensor.name)
    nodes: list[Node] = []
    for index, node in enumerate(graph.node):
        attributes = {
            a.name: _attribute(path, a, f", in {a.name} of node {index}{place}")
            for a in node.attribute
        }
        op = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        inputs, outputs = tuple(node.input), tuple(node.output)
        nodes.append(Node(index, op, node.name, inputs, outputs, attributes, _scope(node)))
        if op == "Constant" and len(node.output) == 1:
            constants[node.output[0]] = _constant(nodes[-1], path, place)
    if graph.sparse_initializer:
        raise UnsupportedError(
            "the model has sparse initializers",
            file=path,
            where=place.removeprefix(", in ") or None,
            found=graph.sparse_initializer[0].values.name,
            todo="export it with dense weights",
        )
    return nodes, constants


def _subgraph(path: Path, graph: onnx.GraphProto, place: str) -> Subgraph:
    nodes, constants = _contents(path, graph, place)
    outputs = tuple(value.name for value in graph.output)
    return Subgraph(inputs_of(graph), tuple(nodes), constants, outputs)


def inputs_of(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Names of what a subgraph is given: its inputs that are no initializers of it."""
    held = {tensor.name for tensor in graph.initializer}
    return tuple(value.name for value in graph.input if value.name not in held)


def _scope(node: onnx.NodeProto) -> tuple[str, ...]:
    """The modules around a node as torch's exporter lists them: ``['', 'layer1', 'layer1.0',
    'conv2d']``, the root without a name and the operation itself at the ends."""
    listed = next((p.value for p in node.metadata_props if p.key == _SCOPES), "")
    return tuple(filter(None, re.findall(r"'([^']*)'", listed)[:-1]))


_SCOPES = "pkg.torch.onnx.name_scopes"


@cache
def _operands(op: str, opset: int) -> tuple[tuple[int, ...], int]:
    """The places of the inputs that a standard op needs, and how many it takes at most; none and
    any number for ops that onnx does not know."""
    for version in (min(opset, onnx.defs.onnx_opset_version()), onnx.defs.onnx_opset_version()):
        try:
            schema = onnx.defs.get_schema(op, version, "")
        except onnx.defs.SchemaError:
            continue
        # Before opset 11 a Loop needs a third input, though it may do without the two before it.
        needed = (
            place
            for place, input in enumerate(schema.inputs)
            if input.option == _SINGLE or (input.option == _VARIADIC and input.min_arity > 0)
        )
        return tuple(needed), int(schema.max_input)
    return (), 2**31


_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single
_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic


def value_of(value: onnx.ValueInfoProto) -> Value:
    """A tensor's declaration; an axis without a length or a name is ``?``."""
    tensor = value.type.tensor_type
    dtype = _DTYPES.get(tensor.elem_type, DType.OTHER)
    if not tensor.HasField("shape"):
        return Value(value.name, dtype, None)
    # Some tools write -1 for an axis of any length, as onnxruntime reads it.
    dims = (
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or "?"
        for d in tensor.shape.dim
    )
    return Value(value.name, dtype, tuple(dims))


def declaration(value: Value) -> onnx.ValueInfoProto:
    """The declaration of a tensor, as `value_of` reads it back.

    Raises:
        UnsupportedError: its element type has no name here.
    """
    kind = next((number for number, dtype in _DTYPES.items() if dtype is value.dtype), None)
    if kind is None:
        raise UnsupportedError(
            f"the element type of the tensor {value.name!r} is not known",
            expected="a type that inference finds, or that onnxruntime tells",
            todo="begin or end at another tensor",
        )
    axes = value.shape and [None if axis == "?" else axis for axis in value.shape]
    return helper.make_tensor_value_info(value.name, kind, axes)


def _attribute(path: Path, attribute: AttributeProto, place: str) -> Attribute:
    kind = attribute.type
    if kind == AttributeProto.INT:
        return attribute.i
    if kind == AttributeProto.FLOAT:
        return attribute.f
    if kind == AttributeProto.STRING:
        return attribute.s.decode("utf-8", "replace")
    if kind == AttributeProto.INTS:
        return tuple(attribute.ints)
    if kind == AttributeProto.FLOATS:
        return tuple(attribute.floats)
    if kind == AttributeProto.STRINGS:
        return tuple(s.decode("utf-8", "replace") for s in attribute.strings)
    if kind == AttributeProto.TENSOR:
        return tensor_of(path, attribute.t, attribute.t.name)
    if kind == AttributeProto.GRAPH:
        return _subgraph(path, attribute.g, place)
    return None


def _readers(graph: onnx.GraphProto, tensor: str, place: str) -> str | None:
    """The nodes that read a tensor, for a message about a file that no `Model` can be made of."""
    found = (
        Node(index, node.op_type, node.name, (), tuple(node.output), {})
        for index, node in enumerate(graph.node)
        if tensor in node.input
    )
    return f"{', '.join(map(str, found))}{place}".removeprefix(", in ") or None


@dataclass(frozen=True, eq=False)
class _InProto:
    """Values inside the parsed protobuf: decoded when read, so that they are held once."""

    path: Path
    name: str
    proto: TensorProto

    def read(self) -> Array:
        try:
            return self._decoded()
        except ValueError as error:
            raise NotAModelError(
                f"initializer {self.name!r} does not have the bytes that its shape needs",
                file=self.path,
                expected=f"shape {list(self.proto.dims)}",
                found=str(error),
                todo="the file is damaged: fetch or export it again",
            ) from error

    def _decoded(self) -> Array:
        if self.proto.data_type == TensorProto.BFLOAT16:
            raw = self.proto.raw_data
            bits = np.frombuffer(raw, "<u2") if raw else np.array(self.proto.int32_data, "<u2")
            return bf16_to_f32(bits).reshape(tuple(self.proto.dims))
        return numpy_helper.to_array(self.proto)

    def span(self) -> None:
        return None

    def origin(self) -> str:
        return self.name

    def sources(self) -> Iterator[LazyTensor]:
        return iter(())


def tensor_of(path: Path, proto: TensorProto, name: str) -> LazyTensor:
    """A tensor of the file at ``path``, unread.

    Raises:
        NotAModelError: its shape is none, or its bytes in another file are not there.
    """
    dtype = _DTYPES.get(proto.data_type, DType.OTHER)
    shape = tuple(proto.dims)
    if any(d < 0 for d in shape):
        raise NotAModelError(
            f"the tensor {name!r} has a negative axis",
            file=path,
            found=f"shape {list(shape)}",
            todo="the file is damaged: fetch or export it again",
        )
    if proto.data_location == TensorProto.EXTERNAL:
        return LazyTensor(name, shape, dtype, Load(name, dtype, _external(path, proto, dtype)))
    return LazyTensor(name, shape, dtype, _InProto(path, name, proto))


def _external(path: Path, proto: TensorProto, dtype: DType) -> FileSpan:
    entries = {e.key: e.value for e in proto.external_data}
    location = entries.get("location", "")
    # Data is looked for beside the link the user named, then beside the file it leads to:
    # a Hugging Face cache has links in snapshots/ to hash-named files in blobs/.
    folders = dict.fromkeys((path.parent, path.resolve().parent))
    file = next((f / location for f in folders if (f / location).is_file()), None)
    if not location or Path(location).is_absolute() or ".." in Path(location).parts:
        raise NotAModelError(
            f"initializer {proto.name!r} names an external file outside the model's folder",
            file=path,
            found=location or "no location",
        )
    if file is None:
        raise NotAModelError(
            "the model's external weights are missing",
            file=path.parent / location,
            where=f"initializer {proto.name!r}",
            todo=f"put {location} beside the model",
        )
    need = math.prod(proto.dims) * (dtype.itemsize or 1)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", need))
    except ValueError:
        offset, length = -1, -1
    if length != need or offset < 0 or offset + length > file.stat().st_size:
        raise NotAModelError(
            f"the external bytes of initializer {proto.name!r} do not fit",
            file=file,
            expected=f"{need} bytes at {offset}",
            found=f"{length} declared, file of {file.stat().st_size}",
            todo="the data file is cut or belongs to another export: fetch both again",
        )
    return FileSpan(file, offset, length)


def _constant(node: Node, path: Path, place: str) -> LazyTensor:
    """The tensor a Constant node makes, whichever attribute holds it."""
    name = node.outputs[0]
    for key, value in node.attributes.items():
        if isinstance(value, LazyTensor):
            return value.named(name)
        if key.startswith("value_") and value is not None and not isinstance(value, Subgraph):
            kind = np.int64 if "int" in key else np.float32 if "float" in key else None
            array = np.asarray(value, kind)
            dtype = _numpy_dtype(array)
            return LazyTensor(name, array.shape, dtype, Held(name, array))
    raise UnsupportedError(
        "a Constant node without a dense value", file=path, where=f"{node}{place}"
    )


@cache
def _by_numpy() -> Mapping[str, DType]:
    return {np.dtype(d.numpy).str: d for d in DType if d.numpy is not None}


def _numpy_dtype(array: np.ndarray[Any, Any]) -> DType:
    return _by_numpy().get(array.dtype.str, DType.STRING)
