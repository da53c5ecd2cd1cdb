"""A GGUF file as a `Manifest`: keys with their types, tensors that are read when asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from converters.gguf_header import ALIGNMENT, Header
from converters.manifest import Entry, Manifest
from graphtools.errors import NotAModelError
from graphtools.tensors import DType, LazyTensor, Load

__all__ = ["dtype_of", "is_gguf", "manifest_of", "open_header", "read"]

_DTYPES: Mapping[str, DType] = {
    "F32": DType.F32,
    "F16": DType.F16,
    "BF16": DType.BF16,
    "F64": DType.F64,
    "I8": DType.I8,
    "I16": DType.I16,
    "I32": DType.I32,
    "I64": DType.I64,
}
_GENERAL = ("general.architecture", "general.name")


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
    return manifest_of(open_header(path))


def open_header(path: Path | str) -> Header:
    """The header of a file whose every key and tensor has one meaning, and all its bytes.

    Raises:
        UsageError, NotAModelError, StorageError: as `read`.
    """
    header = Header.read(path)
    fault = _fault(header)
    if fault:
        raise NotAModelError(
            "the GGUF file is damaged",
            file=header.path,
            found=fault,
            todo="fetch or convert it again; graphtools lint lists all that is wrong",
        )
    header.require_complete()
    return header


def _fault(header: Header) -> str:
    """The first thing that leaves a key or a tensor without one meaning; "" for none."""
    seen: set[str] = set()
    for key in header.keys:
        if key.name in seen:
            return f"the key {key.name!r} twice"
        if key.name.startswith("GGUF."):
            return f"the key {key.name!r}, a name that gguf's readers keep for themselves"
        seen.add(key.name)
    stated = header.by_key.get(ALIGNMENT)
    if stated is not None and (stated.type, stated.value) != ("u32", header.alignment):
        return f"{ALIGNMENT} {stated.value!r} ({stated.type})"
    seen = set()
    for info in header.tensors:
        if info.name in seen:
            return f"the tensor {info.name!r} twice"
        if info.type is None or not info.is_countable or info.row % info.type.block:
            return f"the tensor {info.name!r}: {info.told()}"
        seen.add(info.name)
    return ""


def manifest_of(header: Header) -> Manifest:
    """A header as a manifest; a tensor that ggml could not count is left out."""
    general = {name: header.by_key.get(name) for name in _GENERAL}
    values = ["" if key is None else str(key.value) for key in general.values()]
    entries = tuple(
        Entry(key.name, key.type, key.value, header.path.name)
        for key in header.by_key.values()
        if key.name not in general
    )
    tensors = []
    for info in header.tensors:
        dtype = dtype_of(info.type.label if info.type else "")
        if info.type is not None:
            load = Load(info.name, dtype, header.span(info))
            tensors.append(LazyTensor(info.name, info.shape, dtype, load))
    return Manifest(values[0], values[1], entries, tuple(tensors))


def dtype_of(label: str) -> DType:
    """The element type that ggml calls so; ``OTHER`` of a quantised or unknown one."""
    return _DTYPES.get(label, DType.OTHER)
