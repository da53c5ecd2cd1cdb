"""A GGUF file as a `Manifest`: keys with their types, tensors that are read when asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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
        with path.open("rb") as stream:
            return stream.read(4) == b"GGUF"
    except OSError:
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
        raise NotAModelError("the file is not a GGUF file", file=path, expected='the magic "GGUF"')
    try:
        reader = GGUFReader(path)
    except OSError as error:
        raise StorageError(f"cannot read: {error.strerror or error}", file=path) from error
    except (ValueError, KeyError, IndexError, OverflowError, UnicodeDecodeError) as error:
        raise NotAModelError(
            "the GGUF file is damaged or cut off",
            file=path,
            found=str(error)[:200],
            todo="fetch or convert it again",
        ) from error
    return _manifest(path, reader)


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
