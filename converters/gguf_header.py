"""The header of a GGUF file as it stands: keys, and where tensors are; nothing is judged.

gguf's own reader stops at the first fault and believes what a damaged file declares. This one
holds every declared length against the file, and keeps what a reader would refuse (a repeated key,
an offset out of place), so that `converters.lint` can name all of it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import BinaryIO

from converters.manifest import Value
from graphtools.errors import NotAModelError, StorageError, UsageError
from graphtools.tensors import FileSpan

__all__ = ["ALIGNMENT", "DEFAULT_ALIGNMENT", "Header", "Key", "TensorInfo", "TensorType"]

ALIGNMENT = "general.alignment"
DEFAULT_ALIGNMENT = 32

# Value types by number: our name and struct's letter.
_SCALARS: Mapping[int, tuple[str, str]] = {
    0: ("u8", "B"),
    1: ("i8", "b"),
    2: ("u16", "H"),
    3: ("i16", "h"),
    4: ("u32", "I"),
    5: ("i32", "i"),
    6: ("f32", "f"),
    7: ("bool", "?"),
    10: ("u64", "Q"),
    11: ("i64", "q"),
    12: ("f64", "d"),
}
_STRING, _ARRAY = 8, 9
_VERSIONS = (2, 3)
# The least bytes of a key (no name, one byte of value) and of a tensor's place (no axes).
_KEY_BYTES, _TENSOR_BYTES = 13, 24
_MAX_AXES = 8
# Longer arrays stand in no file of ours, and Python needs tens of bytes for each number.
_MAX_ITEMS = 1_000_000


@dataclass(frozen=True)
class Key:
    """One key; its type is spelled as in `converters.manifest.Entry`."""

    name: str
    type: str
    value: Value


@dataclass(frozen=True)
class TensorType:
    """An element type of ggml: ``block`` elements of a row take ``size`` bytes."""

    label: str
    block: int
    size: int


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor is said to be.

    Attributes:
        ne: elements along each axis, ggml's order: the reverse of numpy's.
        number: of its element type; ``type`` is None where ggml has no such type.
        offset: from the begin of the data, in bytes.
    """

    name: str
    ne: tuple[int, ...]
    number: int
    type: TensorType | None
    offset: int

    @property
    def shape(self) -> tuple[int, ...]:
        """In numpy's order."""
        return self.ne[::-1]

    @property
    def size(self) -> int:
        """Elements; more than 63 bits hold when the file says so."""
        return math.prod(self.ne)

    @property
    def nbytes(self) -> int | None:
        """Bytes; None of an unknown type."""
        return None if self.type is None else self.size // self.type.block * self.type.size

    @property
    def row(self) -> int:
        """Elements along ggml's first axis, of which whole blocks are stored."""
        return self.ne[0] if self.ne else 1

    @property
    def is_countable(self) -> bool:
        """Whether its elements and bytes are numbers that ggml has: 63 bits."""
        return self.nbytes is not None and max(self.size, self.nbytes) < 2**63

    def told(self) -> str:
        """Type and shape for people."""
        return f"{self.type.label if self.type else f'type {self.number}'} {list(self.shape)}"


@dataclass(frozen=True)
class Header:
    """What stands before the data.

    Attributes:
        size: of the file, in bytes.
        end: where the header ends; the data begins at the next multiple of the alignment.
    """

    path: Path
    size: int
    keys: tuple[Key, ...]
    tensors: tuple[TensorInfo, ...]
    end: int

    @classmethod
    def read(cls, path: Path | str) -> Header:
        """Read the header of a file.

        Raises:
            UsageError: there is no such file.
            NotAModelError: it is no GGUF file, or is damaged or cut off inside its header.
            StorageError: it cannot be read.
        """
        path = Path(path)
        if not path.is_file():
            raise UsageError("no such file", file=path, todo="check the path")
        try:
            with path.open("rb") as stream:
                return _Parser(path, stream).header()
        except OSError as error:
            raise StorageError(f"cannot read: {error.strerror or error}", file=path) from error

    @cached_property
    def by_key(self) -> Mapping[str, Key]:
        """Keys by name, the first of a repeated one."""
        found: dict[str, Key] = {}
        for key in self.keys:
            found.setdefault(key.name, key)
        return found

    @cached_property
    def by_name(self) -> Mapping[str, TensorInfo]:
        """Tensors by name, the first of a repeated one."""
        found: dict[str, TensorInfo] = {}
        for info in self.tensors:
            found.setdefault(info.name, info)
        return found

    @property
    def alignment(self) -> int:
        """Of the data and of every tensor in it; the default where the key says nothing sound."""
        key = self.by_key.get(ALIGNMENT)
        value = key.value if key is not None and key.type == "u32" else 0
        sound = isinstance(value, int) and value > 0 and value & (value - 1) == 0
        return int(value) if sound else DEFAULT_ALIGNMENT  # type: ignore[arg-type]  # an int

    @property
    def data(self) -> int:
        """Where the data begins."""
        return self.end + -self.end % self.alignment

    def span(self, info: TensorInfo) -> FileSpan:
        """The bytes of a tensor of a known type."""
        assert info.nbytes is not None
        return FileSpan(self.path, self.data + info.offset, info.nbytes)

    def require_complete(self) -> None:
        """Check that the file is as long as its tensors need; those whose size ggml could not
        count say nothing.

        Raises:
            NotAModelError: it ends before; the bytes that are missing are counted.
        """
        needed, last = self.end, ""
        for info in self.tensors:
            if info.nbytes and info.is_countable:
                stop = self.data + info.offset + info.nbytes
                needed, last = max((needed, last), (stop, info.name))
        if self.size < needed:
            raise NotAModelError(
                f"the GGUF file is cut off: {needed - self.size} bytes are missing",
                file=self.path,
                expected=f"{needed} bytes, to the end of the tensor {last!r}",
                found=f"{self.size} bytes",
                todo="fetch or convert it again",
            )


@cache
def _types() -> Mapping[int, TensorType]:
    """The element types of ggml by number, as the gguf package lists them."""
    from gguf import GGML_QUANT_SIZES

    return {kind.value: TensorType(kind.name, *GGML_QUANT_SIZES[kind]) for kind in GGML_QUANT_SIZES}


class _Parser:
    """Reads forward; ``place`` and the counts say where the file ends when it ends too early."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path = path
        self.stream = stream
        self.size = path.stat().st_size
        self.at = 0
        self.place = "its first bytes"
        self.keys_left = self.tensors_left = 0

    def header(self) -> Header:
        if self.stream.read(4) != b"GGUF":
            raise NotAModelError(
                "the file is not a GGUF file",
                file=self.path,
                expected='the magic "GGUF"',
                todo="convert the model first: graphtools convert --model MODEL --output GGUF",
            )
        self.at = 4
        (version,) = self.unpack("<I")
        if version not in _VERSIONS:
            raise self.damaged(f"version {version}, not one of {_VERSIONS}")
        tensors, keys = self.unpack("<QQ")
        self.keys_left, self.tensors_left = keys, tensors
        read_keys = tuple(self.key(i) for i in range(keys))
        infos = tuple(self.tensor(i) for i in range(tensors))
        return Header(self.path, self.size, read_keys, infos, self.at)

    def key(self, index: int) -> Key:
        self.keys_left -= 1
        self.place = f"key {index + 1}"
        name = self.text()
        self.place = f"the key {name!r}"
        (kind,) = self.unpack("<I")
        if kind == _ARRAY:
            inner, count = self.unpack("<IQ")
            return Key(name, *self.array(inner, count))
        if kind == _STRING:
            return Key(name, "string", self.text())
        type, letter = self.scalar(kind)
        return Key(name, type, self.unpack(f"<{letter}")[0])

    def array(self, kind: int, count: int) -> tuple[str, Value]:
        if kind == _STRING:
            self.require(8 * count)
            return "[string]", tuple(self.text() for _ in range(count))
        type, letter = self.scalar(kind)
        self.require(count * struct.calcsize(letter))
        if count > _MAX_ITEMS:
            raise self.damaged(f"an array of {count} numbers")
        return f"[{type}]", tuple(self.unpack(f"<{count}{letter}"))

    def scalar(self, kind: int) -> tuple[str, str]:
        if kind not in _SCALARS:
            raise self.damaged(f"a value of type {kind}")
        return _SCALARS[kind]

    def tensor(self, index: int) -> TensorInfo:
        self.tensors_left -= 1
        self.place = f"the place of tensor {index + 1}"
        name = self.text()
        self.place = f"the place of the tensor {name!r}"
        (axes,) = self.unpack("<I")
        if axes > _MAX_AXES:
            raise self.damaged(f"{axes} axes")
        ne = self.unpack(f"<{axes}Q")
        number, offset = self.unpack("<IQ")
        return TensorInfo(name, ne, number, _types().get(number), offset)

    def text(self) -> str:
        (length,) = self.unpack("<Q")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise self.damaged("text that is not UTF-8") from error

    def unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def take(self, count: int) -> bytes:
        self.require(count)
        data = self.stream.read(count)
        self.at += count
        if len(data) != count:  # it became shorter while it was read
            raise self.damaged(f"{len(data)} of {count} bytes")
        return data

    def require(self, count: int) -> None:
        """Check that so many bytes follow; how many are missing, with what has to come after
        them, is the least that the rest of the file must have."""
        left = self.size - self.at
        if count > left:
            rest = _KEY_BYTES * self.keys_left + _TENSOR_BYTES * self.tensors_left
            found = f"{left} bytes are left: at least {count - left + rest} are missing"
            if rest:
                found += f", with {self.keys_left} keys and {self.tensors_left} tensors to come"
            raise self.damaged(found)

    def damaged(self, found: str) -> NotAModelError:
        return NotAModelError(
            "the GGUF file is damaged or cut off",
            file=self.path,
            where=self.place,
            found=found,
            todo="fetch or convert it again",
        )
