"""A GGUF file as a `Manifest`: keys with their types, tensors that are read when asked."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from converters.manifest import Entry, Manifest
from graphtools.errors import NotAModelError, StorageError, UsageError
from graphtools.tensors import DType, FileSpan, LazyTensor, Load

if TYPE_CHECKING:
    from gguf import GGUFReader

__all__ = ["is_gguf", "read"]

_SCALARS = {
    "UINT8": "u8",
    "INT8": "i8",
    "UINT16": "u16",
    "INT16": "i16",
    "UINT32": "u32",
    "INT32": "i32",
    "UINT64": "u64",
    "INT64": "i64",
    "FLOAT32": "f32",
    "FLOAT64": "f64",
    "BOOL": "bool",
    "STRING": "string",
}
_TENSORS: Mapping[str, DType] = {
    "F32": DType.F32,
    "F16": DType.F16,
    "BF16": DType.BF16,
    "F64": DType.F64,
    "I8": DType.I8,
    "I16": DType.I16,
    "I32": DType.I32,
    "I64": DType.I64,
}


def is_gguf(path: Path) -> bool:
    """Whether the file begins as a GGUF does; False when it cannot be read."""
    try:
        if not path.is_file():  # a pipe would wait for a writer
            return False
        with path.open("rb") as stream:
            return stream.read(4) == b"GGUF"
    except (OSError, ValueError):
        return False


def read(path: Path | str) -> Manifest:
    """Read keys and tensor places; no tensor is loaded.

    Raises:
        UsageError: there is no such file.
        NotAModelError: it is not a complete GGUF file.
        StorageError: it cannot be read.
    """
    from gguf import GGUFReader

    path = Path(path)
    if not path.is_file():
        raise UsageError("no such file", file=path, todo="check the path")
    if not is_gguf(path):
        raise NotAModelError(
            "the file is not a GGUF file",
            file=path,
            expected='the magic "GGUF"',
            todo="convert the model first: graphtools convert --model MODEL --output GGUF",
        )
    try:
        _require_bounded(path)
        reader = GGUFReader(path)
        return _manifest(path, reader)
    except OSError as error:
        raise StorageError(f"cannot read: {error.strerror or error}", file=path) from error
    except (
        ValueError,
        KeyError,
        IndexError,
        OverflowError,
        struct.error,
        RecursionError,
        MemoryError,
    ) as error:
        raise NotAModelError(
            "the GGUF file is damaged or cut off",
            file=path,
            found=str(error)[:200],
            todo="fetch or convert it again",
        ) from error


# Bytes of the fixed-size value types, by number.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9


def _require_bounded(path: Path) -> None:
    """Walk the header once and check that everything it declares is there.

    The gguf package believes declared lengths; on a damaged file it would loop or allocate for
    as long as those numbers say.

    Raises:
        ValueError, struct.error: the header does not fit the file.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        _, version, tensors, keys = _unpack(stream, "<IIQQ")
        if version not in (2, 3):
            raise ValueError(f"GGUF version {version}")
        for _ in range(keys):
            _skip(stream, _number(stream, "<Q"), size)
            _skip_value(stream, _number(stream, "<I"), size)
        for _ in range(tensors):
            _skip(stream, _number(stream, "<Q"), size)
            axes = _number(stream, "<I")
            if axes > _MAX_AXES:
                raise ValueError(f"a tensor of {axes} axes")
            dims = _unpack(stream, f"<{axes}Q")
            _, offset = _unpack(stream, "<IQ")
            if offset > size or math.prod(dims) > 8 * size:  # no type has less than a bit each
                raise ValueError("a tensor lies outside the file")


_MAX_AXES = 8


def _unpack(stream: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, stream.read(struct.calcsize(form)))


def _number(stream: BinaryIO, form: str) -> int:
    return _unpack(stream, form)[0]


def _skip(stream: BinaryIO, count: int, size: int) -> None:
    if count > size - stream.tell():
        raise ValueError(f"{count} bytes declared, {size - stream.tell()} left")
    stream.seek(count, 1)


def _skip_value(stream: BinaryIO, kind: int, size: int) -> None:
    if kind == _STRING:
        _skip(stream, _number(stream, "<Q"), size)
    elif kind in _SIZES:
        _skip(stream, _SIZES[kind], size)
    elif kind == _ARRAY:
        inner, count = _unpack(stream, "<IQ")
        if inner == _STRING:
            if 8 * count > size:
                raise ValueError(f"an array of {count} texts")
            for _ in range(count):
                _skip(stream, _number(stream, "<Q"), size)
        elif inner in _SIZES:
            if count > _MAX_ITEMS:
                raise ValueError(f"an array of {count} numbers")
            _skip(stream, count * _SIZES[inner], size)
        else:
            raise ValueError(f"an array of type {inner}")
    else:
        raise ValueError(f"a value of type {kind}")


# Longer arrays stand in no file of ours; the gguf package takes microseconds for each item.
_MAX_ITEMS = 1_000_000


def _manifest(path: Path, reader: GGUFReader) -> Manifest:
    entries = []
    general = {"general.architecture": "", "general.name": ""}
    for key, field in reader.fields.items():
        if key.startswith("GGUF."):
            continue
        types = [_SCALARS.get(t.name, t.name) for t in field.types]
        value = field.contents()
        if types[0] == "ARRAY":
            value = tuple(value)
        if key in general:
            general[key] = str(value)
        else:
            kind = f"[{types[-1]}]" if types[0] == "ARRAY" else types[0]
            entries.append(Entry(key, kind, value, f"{path.name}"))
    size = path.stat().st_size
    tensors = []
    for tensor in reader.tensors:
        name, kind = tensor.name, tensor.tensor_type.name
        shape = tuple(int(d) for d in reversed(tensor.shape.tolist()))
        dtype = _TENSORS.get(kind, DType.OTHER)
        if tensor.data_offset + tensor.n_bytes > size:
            raise NotAModelError(
                f"the tensor {name!r} runs past the end of the file",
                file=path,
                expected=f"{tensor.data_offset + tensor.n_bytes} bytes",
                found=f"{size} bytes",
                todo="the file is cut off: fetch or convert it again",
            )
        span = FileSpan(path, tensor.data_offset, tensor.n_bytes)
        tensors.append(LazyTensor(name, shape, dtype, Load(name, dtype, span)))
    return Manifest(
        general["general.architecture"], general["general.name"], tuple(entries), tuple(tensors)
    )
