"""ggml's limits, which hold for any GGUF, whoever wrote it.

They are those of ``gguf_init_from_file`` in ggml's gguf.cpp, and the two that it leaves to chance:
an axis of length 0, by which it divides, and the padding after the last tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from converters.emit import MAX_NAME_BYTES
from converters.gguf_header import ALIGNMENT, Header
from converters.lint_codes import Code, Finding

__all__ = ["FORMAT_RULES"]

_MAX_KEY_BYTES = 65535
_MAX_AXES = 4


def _repeated_keys(header: Header) -> Iterator[Finding]:
    for name, times in Counter(key.name for key in header.keys).items():
        if times > 1:
            yield Finding(Code.REPEATED_KEY, name, f"{times} times")


def _key_names(header: Header) -> Iterator[Finding]:
    for name in dict.fromkeys(key.name for key in header.keys):
        if not name or not name.isascii() or not name.isprintable():
            yield Finding(Code.KEY_NAME, ascii(name), "expected printable ASCII")
        elif len(name) > _MAX_KEY_BYTES:
            yield Finding(Code.KEY_NAME, f"{name[:60]} ..", f"{len(name)} bytes")
        elif name.startswith("GGUF."):
            yield Finding(Code.KEY_NAME, name, "a reserved name")


def _architecture(header: Header) -> Iterator[Finding]:
    key = header.by_key.get("general.architecture")
    if key is None or key.type != "string" or not key.value:
        found = "no such key" if key is None else f"{key.type} {key.value!r}"
        yield Finding(Code.NO_ARCHITECTURE, "general.architecture", found)


def _alignment(header: Header) -> Iterator[Finding]:
    key = header.by_key.get(ALIGNMENT)
    if key is not None and (key.type, key.value) != ("u32", header.alignment):
        yield Finding(
            Code.ALIGNMENT, ALIGNMENT, f"expected a power of two, u32, found {key.value} {key.type}"
        )


def _names(header: Header) -> Iterator[Finding]:
    for name, times in Counter(info.name for info in header.tensors).items():
        size = len(name.encode())
        if times > 1:
            yield Finding(Code.REPEATED_TENSOR, name, f"{times} times")
        if size > MAX_NAME_BYTES:
            found = f"{size} bytes, expected at most {MAX_NAME_BYTES}"
            yield Finding(Code.LONG_NAME, name, found)
        if not name or any(ord(c) < 32 or ord(c) == 127 for c in name):
            yield Finding(Code.TENSOR_NAME, ascii(name), "expected a printable name")


def _shapes(header: Header) -> Iterator[Finding]:
    for info in header.tensors:
        if not 1 <= len(info.ne) <= _MAX_AXES:
            yield Finding(Code.AXES, info.name, f"{len(info.ne)} axes: {list(info.shape)}")
        if 0 in info.ne:
            yield Finding(Code.EMPTY_AXIS, info.name, f"shape {list(info.shape)}")
        if info.type is not None and not info.is_countable:
            yield Finding(Code.TOO_LARGE, info.name, info.told())


def _types(header: Header) -> Iterator[Finding]:
    for info in header.tensors:
        if info.type is None:
            yield Finding(Code.UNKNOWN_TYPE, info.name, f"type {info.number}")
        elif info.row % info.type.block:
            found = f"rows of {info.row}, {info.type.label} has blocks of {info.type.block}"
            yield Finding(Code.PARTIAL_BLOCK, info.name, found)


def _places(header: Header) -> Iterator[Finding]:
    """Every tensor begins at the padded end of the one before it."""
    expected: int | None = 0
    for info in header.tensors:
        if info.offset % header.alignment:
            found = f"offset {info.offset}, alignment {header.alignment}"
            yield Finding(Code.MISALIGNED, info.name, found)
        elif expected is not None and info.offset != expected:
            yield Finding(
                Code.OUT_OF_PLACE, info.name, f"offset {info.offset}, expected {expected}"
            )
        # Behind a tensor whose size nobody knows, the next one's own word has to do.
        begin = info.offset if expected is None else expected
        known = info.is_countable
        expected = _padded(header, begin + (info.nbytes or 0)) if known else None


def _last_padding(header: Header) -> Iterator[Finding]:
    if not header.tensors or not all(info.is_countable for info in header.tensors):
        return
    last = max(header.tensors, key=lambda info: info.offset)
    end = header.data + _padded(header, last.offset + (last.nbytes or 0))
    if header.size < end:
        found = f"{header.size} bytes, expected {end}"
        yield Finding(Code.NO_PADDING, last.name, found)


def _padded(header: Header, size: int) -> int:
    return size + -size % header.alignment


FORMAT_RULES: tuple[Callable[[Header], Iterator[Finding]], ...] = (
    _repeated_keys,
    _key_names,
    _architecture,
    _alignment,
    _names,
    _shapes,
    _types,
    _places,
    _last_padding,
)
