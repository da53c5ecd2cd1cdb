"""Safetensors headers: names, types, shapes and where the bytes stand.

The header is parsed here and not by the safetensors package because that one does not tell the
byte offsets (they make a copy inside the kernel possible) and cannot hand bfloat16 to numpy.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

from graphtools.errors import NotAModelError, StorageError
from graphtools.tensors import DType, FileSpan, LazyTensor, Load

__all__ = ["parse_header", "read"]

_DTYPES = {d.label.upper(): d for d in DType if d not in (DType.STRING, DType.OTHER)}
# The format's own limit.
_MAX_HEADER = 100_000_000
_LFS = b"version https://git-lfs"


def read(path: Path) -> dict[str, LazyTensor]:
    """The tensors of a file, in the header's order; no tensor is loaded.

    Raises:
        NotAModelError: it is not a complete safetensors file.
        StorageError: it cannot be read.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            head = stream.read(8)
            if head.startswith(_LFS[:8]):
                raise NotAModelError(
                    "the file is not a safetensors file",
                    file=path,
                    found="a Git LFS pointer: the text that stands in for the weights",
                    todo="run `git lfs pull` in that repository, or download the file itself",
                )
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 2 <= length <= min(_MAX_HEADER, size - 8):
                raise NotAModelError(
                    "the file is not a complete safetensors file",
                    file=path,
                    expected="a JSON header after its length",
                    found=f"{size} bytes, header length {length}",
                    todo="fetch it again",
                )
            raw = stream.read(length)
    except OSError as error:
        raise StorageError(f"cannot read: {error.strerror or error}", file=path) from error
    tensors = parse_header(raw, path)
    start = 8 + length
    found = {}
    for name, (dtype, shape, begin, end) in tensors.items():
        if start + end > size:
            raise NotAModelError(
                f"the tensor {name!r} runs past the end of the file",
                file=path,
                expected=f"{start + end} bytes",
                found=f"{size} bytes",
                todo="the file is cut off: fetch it again",
            )
        span = FileSpan(path, start + begin, end - begin)
        found[name] = LazyTensor(name, shape, dtype, Load(name, dtype, span))
    return found


def parse_header(raw: bytes, path: Path) -> dict[str, tuple[DType, tuple[int, ...], int, int]]:
    """Name to (type, shape, begin, end), offsets counted from the end of the header.

    Raises:
        NotAModelError: the header is not what the format says.
    """
    try:
        header = json.loads(raw.decode(), object_pairs_hook=_without_repeats)
        entries = {k: _entry(v) for k, v in header.items() if k != "__metadata__"}
        _require_apart(entries)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NotAModelError(
            "the safetensors header is damaged",
            file=path,
            found=str(error)[:200],
            todo="fetch the file again",
        ) from error
    return entries


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        key.encode()  # JSON can spell half a surrogate pair, which no file or screen takes
        if key in found:
            raise ValueError(f"{key!r} is there twice")
        found[key] = value
    return found


def _entry(entry: dict[str, Any]) -> tuple[DType, tuple[int, ...], int, int]:
    label, shape = entry["dtype"], tuple(entry["shape"])
    begin, end = entry["data_offsets"]
    if not isinstance(label, str) or not all(type(n) is int and n >= 0 for n in (*shape, begin)):
        raise ValueError(f"{label!r} of {list(shape)} at {begin!r} is no place of a tensor")
    dtype = _DTYPES.get(label, DType.OTHER)
    need = None if dtype.itemsize is None else math.prod(shape) * dtype.itemsize
    if type(end) is not int or end < begin or need not in (None, end - begin):
        raise ValueError(f"offsets {begin} to {end} do not hold {list(shape)} {label}")
    return dtype, shape, begin, end


def _require_apart(entries: dict[str, tuple[DType, tuple[int, ...], int, int]]) -> None:
    """Every byte belongs to one tensor; the entries may be listed in any order."""
    last, taken = "", 0
    for name, (_, _, begin, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if begin < taken:
            raise ValueError(f"the tensors {last!r} and {name!r} share bytes")
        last, taken = name, end
