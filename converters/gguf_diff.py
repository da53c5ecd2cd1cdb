"""What differs between two GGUF files: keys, tensors, and values bit by bit or within a bound."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converters.compare import Difference, difference
from converters.gguf_file import open_header
from converters.gguf_header import Header, Key, TensorInfo
from converters.gguf_values import values
from graphtools.errors import UnsupportedError
from graphtools.tensors import Array, FileSpan
from graphtools.text import printable

__all__ = ["GgufDiff", "KeyDiff", "TensorDiff", "gguf_diff"]

# Bytes that are compared at a time.
_BLOCK = 1 << 20


@dataclass(frozen=True)
class KeyDiff:
    """A key whose type or value differs; None where a file does not have it."""

    name: str
    first: Key | None
    second: Key | None

    def told(self) -> tuple[str, str]:
        """Both sides for people, long arrays and texts cut where they begin to differ."""
        a, b = self.first, self.second
        return _key_told(a, b), _key_told(b, a)


@dataclass(frozen=True)
class TensorDiff:
    """A tensor whose type, shape or bytes differ; None where a file does not have it.

    Attributes:
        difference: of the values, where both have one shape and can be read.
    """

    name: str
    first: TensorInfo | None
    second: TensorInfo | None
    difference: Difference | None = None

    def told(self) -> tuple[str, str]:
        """Both sides for people."""
        one, other = (info.told() if info else "-" for info in (self.first, self.second))
        return one, other


@dataclass(frozen=True)
class GgufDiff:
    """The result; truthy when the files say the same.

    Attributes:
        keys, tensors: those that differ, in the first file's order, then the second's.
        near: tensors whose bytes differ and whose values are within ``atol``.
        compared: (keys, tensors) that both files have.
    """

    keys: tuple[KeyDiff, ...]
    tensors: tuple[TensorDiff, ...]
    near: tuple[TensorDiff, ...]
    atol: float | None
    compared: tuple[int, int]

    def __bool__(self) -> bool:
        return not self.keys and not self.tensors

    def to_json(self) -> dict[str, Any]:
        """Plain data, everything in full."""
        return {
            "same": bool(self),
            "how": "bit by bit" if self.atol is None else f"within {self.atol:g}",
            "compared": {"keys": self.compared[0], "tensors": self.compared[1]},
            "keys": [
                {"key": k.name, "first": _key_json(k.first), "second": _key_json(k.second)}
                for k in self.keys
            ],
            "tensors": [_tensor_json(t) for t in self.tensors],
            "near": [_tensor_json(t) for t in self.near],
        }


def gguf_diff(first: Path | str, second: Path | str, *, atol: float | None = None) -> GgufDiff:
    """Compare two files; tensors are found by name, and read one at a time.

    The order of keys and of tensors, alignment and padding say nothing: readers go by name.

    Args:
        first: one of them.
        second: the other.
        atol: values that differ by no more than this are the same; None asks for the same bits.

    Raises:
        UsageError: one of them does not exist.
        NotAModelError: one of them is no complete GGUF file.
    """
    a, b = open_header(first), open_header(second)
    keys = tuple(
        KeyDiff(name, a.by_key.get(name), b.by_key.get(name))
        for name in {**a.by_key, **b.by_key}
        if not _same_key(a.by_key.get(name), b.by_key.get(name))
    )
    apart = [
        found for name in {**a.by_name, **b.by_name} if (found := _tensor(a, b, name)) is not None
    ]
    return GgufDiff(
        keys=keys,
        tensors=tuple(t for t in apart if not _is_near(t, atol)),
        near=tuple(t for t in apart if _is_near(t, atol)),
        atol=atol,
        compared=(len({*a.by_key} & {*b.by_key}), len({*a.by_name} & {*b.by_name})),
    )


def _same_key(a: Key | None, b: Key | None) -> bool:
    # By their text: NaN equals itself there, and -0.0 is not 0.0.
    return a is not None and b is not None and (a.type, repr(a.value)) == (b.type, repr(b.value))


def _is_near(found: TensorDiff, atol: float | None) -> bool:
    apart, one, other = found.difference, found.first, found.second
    alike = one is not None and other is not None and one.type == other.type
    return atol is not None and alike and apart is not None and apart.max_abs <= atol


def _tensor(a: Header, b: Header, name: str) -> TensorDiff | None:
    one, other = a.by_name.get(name), b.by_name.get(name)
    if one is None or other is None or one.ne != other.ne:
        return TensorDiff(name, one, other)
    if one.type == other.type and _same_bytes(a.span(one), b.span(other)):
        return None
    try:
        apart = difference(_read(a, one), _read(b, other))
    except UnsupportedError:  # a quantised type that nothing here reads: bytes are all there is
        return TensorDiff(name, one, other)
    return TensorDiff(name, one, other, apart)


def _same_bytes(one: FileSpan, other: FileSpan) -> bool:
    if one.length != other.length:
        return False
    with one.path.open("rb") as a, other.path.open("rb") as b:
        a.seek(one.offset)
        b.seek(other.offset)
        steps = range(0, one.length, _BLOCK)
        sizes = (min(_BLOCK, one.length - at) for at in steps)
        return all(a.read(size) == b.read(size) for size in sizes)


def _read(header: Header, info: TensorInfo) -> Array:
    pieces = list(values(header, info))
    flat = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    return flat.reshape(info.shape)


# Entries of an array that are shown, and characters of a text.
_SHOWN = 6
_WIDTH = 60


def _key_told(key: Key | None, other: Key | None) -> str:
    if key is None:
        return "-"
    if not isinstance(key.value, tuple):
        there = "" if other is None else _item(other.type, other.value)
        return f"{key.type} {_cut(_item(key.type, key.value), there)}"
    at = 0
    if len(key.value) > _SHOWN and other is not None and isinstance(other.value, tuple):
        pairs = zip(key.value, other.value, strict=False)
        shorter = min(len(key.value), len(other.value))
        at = next((i for i, (x, y) in enumerate(pairs) if repr(x) != repr(y)), shorter)
    shown = key.value[at : at + _SHOWN]
    items = ", ".join(_cut(_item(key.type.strip("[]"), item), "") for item in shown)
    before = f"{at} alike, " if at else ""
    after = ", .." if at + _SHOWN < len(key.value) else ""
    return f"{key.type} of {len(key.value)}: {before}{items}{after}"


def _item(type: str, value: object) -> str:
    """An f32 by its shortest decimal: two that differ look different."""
    return str(np.float32(value)) if type == "f32" else repr(value)  # type: ignore[arg-type]


def _cut(text: str, other: str) -> str:
    """A long text from shortly before the first character that differs."""
    text = printable(text)
    if len(text) <= _WIDTH:
        return text
    pairs = zip(text, printable(other), strict=False)
    at = next((i for i, (x, y) in enumerate(pairs) if x != y), 0)
    begin = max(0, min(at - 10, len(text) - _WIDTH))
    end = begin + _WIDTH
    return ".." * (begin > 0) + text[begin:end] + ".." * (end < len(text))


def _key_json(key: Key | None) -> dict[str, Any] | None:
    return None if key is None else {"type": key.type, "value": key.value}


def _tensor_json(found: TensorDiff) -> dict[str, Any]:
    apart = found.difference
    sides = {"first": found.first, "second": found.second}
    return {
        "tensor": found.name,
        **{side: _info_json(info) for side, info in sides.items()},
        "max_abs": None if apart is None else apart.max_abs,
        "cosine": None if apart is None else apart.cosine,
    }


def _info_json(info: TensorInfo | None) -> dict[str, Any] | None:
    label = info.type.label if info is not None and info.type is not None else None
    return None if info is None else {"type": label, "shape": list(info.shape)}
