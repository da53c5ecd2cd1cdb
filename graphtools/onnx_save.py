"""ONNX files: a part of a model, and a whole one with notes at its nodes.

One of the four modules that import ``onnx``. What is written keeps the names, the element types
and the bytes of the weights that the source has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from onnx import ModelProto, TensorProto, ValueInfoProto

from graphtools.errors import UsageError
from graphtools.files import replacing, require_other
from graphtools.graph import Graph
from graphtools.model import Model, Value
from graphtools.onnx_edit import external_tensors, extracted, is_outside, tensors_inside
from graphtools.onnx_file import declaration, tensor_of
from graphtools.onnx_shapes import node_proto
from graphtools.runtime import Runner, dtype_of
from graphtools.shapes import shapes
from graphtools.spans import copy_span, read_at, write_all
from graphtools.tensors import DType, FileSpan, LazyTensor

__all__ = ["LIMIT", "data_path", "save_annotated", "save_part"]

# Bytes of weights that a file may hold itself: protobuf's 2 GB, less room for the rest.
LIMIT = 2**31 - 2**26

# The first IR version whose nodes have metadata_props, and the first in which an initializer that
# is also listed as an input is a default that a caller may replace.
_NODE_METADATA, _DEFAULTS = 10, 4

# Tensors of fewer bytes stay in the file, shapes and axes among them: onnx's own threshold.
# Those in the data file begin at whole pages, as the ONNX specification asks for.
_SMALL, _PAGE = 1024, 4096


def save_part(
    graph: Graph,
    entries: Sequence[str],
    exits: Sequence[str],
    path: Path,
    *,
    limit: int = LIMIT,
) -> tuple[Path, ...]:
    """Write the nodes between ``entries`` and ``exits`` as a model.

    Args:
        graph: whose nodes they are; its weights are read from its files.
        entries: tensors that become inputs. Inputs of the graph that the nodes need beside these
            come before them.
        exits: tensors that become outputs.
        path: the file; where its weights go to another one, that is `data_path`.
        limit: bytes of weights that the file may hold itself.

    Returns:
        The files that were written: the model, and its weights if they are not in it.

    Raises:
        UsageError: a file of the model itself would be replaced.
        UnsupportedError: the element type of an entry is not known, not to onnxruntime either.
        StorageError: it cannot be written.
    """
    # To measure shapes is to run the model, for which onnxruntime holds all of its weights.
    known = shapes(graph, measure=False) if external_tensors(graph.model) else graph.values
    inputs = _declared(graph.model, entries, known)
    outputs = [
        declaration(known[name])
        if name in known and known[name].dtype is not DType.OTHER
        else ValueInfoProto(name=name)
        for name in exits
    ]
    proto, constants = extracted(graph, inputs, outputs)
    proto.graph.initializer.extend(constants)
    return _write(graph.model, proto, path, limit)


def save_annotated(
    model: Model, notes: Mapping[int, Mapping[str, str]], path: Path, *, limit: int = LIMIT
) -> tuple[Path, ...]:
    """Write the whole model with notes in its nodes' ``metadata_props``.

    Everything else stays. Notes need IR version 10; a file of an older one is written as that.
    Before IR version 4 initializers were also listed as inputs, though no caller could replace
    them: they are listed no more, since that now means a default.

    Args:
        notes: by a node's index in the model, key to text; a key that is there is replaced. Those
            of nodes that are not in the file are left out.
        path, limit: as `save_part`, and so is what is returned.

    Raises:
        UsageError: a file of the model itself would be replaced.
        StorageError: it cannot be written.
    """
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    if proto.ir_version < _DEFAULTS:
        kept = [value for value in proto.graph.input if value.name not in model.constants]
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
    proto.ir_version = max(proto.ir_version, _NODE_METADATA)
    for index, noted in notes.items():
        at = model.nodes[index]
        of_fused = at.inside is None and index >= len(proto.graph.node)
        if of_fused or at.stands_for_inputs:
            continue
        node = node_proto(proto.graph, model.nodes, at)
        others = [entry for entry in node.metadata_props if entry.key not in noted]
        del node.metadata_props[:]
        node.metadata_props.extend(others)
        for key, text in noted.items():
            node.metadata_props.add(key=key, value=text)
    return _write(model, proto, path, limit)


def data_path(path: Path) -> Path:
    """Where the weights of the model at ``path`` are, if they are not in it."""
    return path.with_name(f"{path.name}.data")


def _declared(
    model: Model, names: Iterable[str], known: Mapping[str, Value]
) -> list[ValueInfoProto]:
    """Declarations of new inputs; types that inference does not find are asked of onnxruntime."""
    values = {name: known.get(name, Value(name, DType.OTHER, None)) for name in names}
    unknown = [name for name, value in values.items() if value.dtype is DType.OTHER]
    halves = any(t.dtype in (DType.F16, DType.BF16) for t in model.constants.values())
    if unknown and not halves:  # a model of halves is run widened: its types would not be these
        types = Runner.of(model, unknown).types
        for name, type in zip(unknown, types, strict=True):
            values[name] = Value(name, dtype_of(type), values[name].shape)
    return [declaration(value) for value in values.values()]


# --- files --------------------------------------------------------------------------------------


def _write(model: Model, proto: ModelProto, path: Path, limit: int) -> tuple[Path, ...]:
    """Write a model that shares tensors with ``model``, in one file or in two.

    Args:
        proto: changed by this; tensors that it has in other files are those of ``model``.
    """
    data = data_path(path)
    tensors = [*proto.graph.initializer, *tensors_inside(proto)]
    sources = {model.path, *(span.path for span in _spans(model))}
    require_other(path, *sources)
    if not any(map(is_outside, tensors)) and sum(t.ByteSize() for t in tensors) <= limit:
        whole = proto.SerializeToString(deterministic=True)
        with replacing(path, len(whole)) as temp:
            temp.write_bytes(whole)
        return (path,)
    require_other(data, *sources)
    _require_utf8(data)
    weights = [*filter(is_outside, tensors)]
    weights += [t for t in proto.graph.initializer if not is_outside(t)]
    lazy = [tensor_of(model.path, tensor, tensor.name) for tensor in weights]
    room = sum(_length(tensor) + _PAGE for tensor in lazy)
    with replacing(path) as temp, replacing(data, room) as data_temp:
        with data_temp.open("r+b", buffering=0) as out, ExitStack() as stack:
            files = {span.path for tensor in lazy if (span := tensor.span()) is not None}
            opened = {file: stack.enter_context(file.open("rb", buffering=0)) for file in files}
            for tensor, values in zip(weights, lazy, strict=True):
                _move(tensor, values, opened, out, data.name)
        temp.write_bytes(proto.SerializeToString(deterministic=True))
        # The data file gets its name first, and an older model must not be seen with it.
        path.unlink(missing_ok=True)
    return path, data


def _move(
    tensor: TensorProto,
    values: LazyTensor,
    opened: Mapping[Path, BinaryIO],
    out: BinaryIO,
    location: str,
) -> None:
    """Append the bytes of a tensor to the data file and refer to them there; a small one is held
    by the model, and so is one whose bytes have no plain form."""
    span, length = values.span(), _length(values)
    if span is not None and length < _SMALL:
        tensor.raw_data = read_at(opened[span.path], span.offset, length)
        tensor.ClearField("data_location")
        del tensor.external_data[:]
    plain = values.dtype.numpy is not None or (tensor.raw_data and values.dtype is DType.BF16)
    if length < _SMALL or (span is None and not plain):
        return
    write_all(out, bytes(-out.tell() % _PAGE))
    offset = out.tell()
    if span is not None:
        copy_span(opened[span.path], out, span, values.name)
    else:
        write_all(out, tensor.raw_data or values.read().astype(values.dtype.numpy).tobytes())
    moved = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    moved.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", offset), ("length", length)):
        moved.external_data.add(key=key, value=str(text))
    tensor.CopyFrom(moved)


def _length(tensor: LazyTensor) -> int:
    span = tensor.span()
    return tensor.size * (tensor.dtype.itemsize or 1) if span is None else span.length


def _spans(model: Model) -> Iterator[FileSpan]:
    """Where the tensors are that are in other files than the model's."""
    tensors = (*model.proto.graph.initializer, *tensors_inside(model.proto))
    for tensor in filter(is_outside, tensors):
        span = tensor_of(model.path, tensor, tensor.name).span()
        if span is not None:
            yield span


def _require_utf8(path: Path) -> None:
    """Check that a model can name the file beside it."""
    try:
        path.name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            "the file's name is not UTF-8, so that the model cannot name its data file",
            file=ascii(str(path)),
            todo="name another output",
        ) from error
