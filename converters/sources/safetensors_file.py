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
        header = json.loads(raw)
        entries = {k: v for k, v in header.items() if k != "__metadata__"}
        return {name: _entry(entry) for name, entry in entries.items()}
    except (ValueError, TypeError, KeyError, AttributeError, UnicodeDecodeError) as error:
        raise NotAModelError(
            "the safetensors header is damaged",
            file=path,
            found=str(error)[:200],
            todo="fetch the file again",
        ) from error


def _entry(entry: dict[str, Any]) -> tuple[DType, tuple[int, ...], int, int]:
    dtype = _DTYPES.get(entry["dtype"], DType.OTHER)
    shape = tuple(int(d) for d in entry["shape"])
    begin, end = (int(o) for o in entry["data_offsets"])
    need = None if dtype.itemsize is None else math.prod(shape) * dtype.itemsize
    if not 0 <= begin <= end or (need is not None and end - begin != need):
        raise ValueError(f"offsets {begin} to {end} do not hold {list(shape)} {entry['dtype']}")
    return dtype, shape, begin, end
