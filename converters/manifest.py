"""Typed metadata and named lazy tensors: the contract between an architecture and the emitter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphtools.errors import UnsupportedError
from graphtools.html_table import html_table
from graphtools.tensors import LazyTensor

__all__ = ["Entry", "Manifest", "Value", "is_utf8", "require_value"]

Value = str | int | float | bool | tuple[str, ...] | tuple[int, ...] | tuple[float, ...]

# GGUF types as this project writes them: scalar names, and [name] for arrays.
_F32_MAX = np.finfo(np.float32).max

_RANGES = {
    "u8": (0, 2**8 - 1),
    "u32": (0, 2**32 - 1),
    "u64": (0, 2**64 - 1),
    "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1),
}


@dataclass(frozen=True)
class Entry:
    """One metadata key.

    Attributes:
        type: ``string``, ``bool``, ``u32``, ``f32`` ..., or ``[string]``, ``[i32]``, ``[f32]``.
        value: a plain Python value; f32 values are exactly representable.
        origin: where the value comes from (node, config key, shape, seed default, user).
    """

    key: str
    type: str
    value: Value
    origin: str


@dataclass(frozen=True)
class Manifest:
    """What one GGUF file says.

    Attributes:
        architecture, name: ``general.architecture`` and ``general.name``.
        entries: the keys, in the order they are written.
        tensors: in the order they are written; names are unique.
        left_out: source tensors that are not in the file, on purpose.
        notes: what the user should know about this file.
    """

    architecture: str
    name: str
    entries: tuple[Entry, ...]
    tensors: tuple[LazyTensor, ...]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Manifest {self.name}: {len(self.entries)} keys, {len(self.tensors)} tensors>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        rows = [(e.key, e.type, _clipped(e.value), e.origin) for e in self.entries]
        title = f"{self.name}: {self.architecture}, {len(self.tensors)} tensors"
        return html_table(title, ("key", "type", "value", "origin"), rows)

    def __getitem__(self, key: str) -> Value:
        """The value of a key that must be there.

        Raises:
            UnsupportedError: it is absent.
        """
        if key not in self.by_key:
            raise _not_as_the_schema_says(key, "a value", "no such key")
        return self.by_key[key].value

    @property
    def size(self) -> int:
        """Bytes of all tensors as they are written: four for each element."""
        return sum(4 * tensor.size for tensor in self.tensors)

    @cached_property
    def by_key(self) -> Mapping[str, Entry]:
        return {e.key: e for e in self.entries}

    @cached_property
    def by_name(self) -> Mapping[str, LazyTensor]:
        return {t.name: t for t in self.tensors}

    def get(self, key: str, type: str) -> Any:
        """The value of a key that must be there with exactly this type.

        Raises:
            UnsupportedError: the key is absent or has another type.
        """
        entry = self.by_key.get(key)
        if entry is None or entry.type != type:
            raise _not_as_the_schema_says(key, type, "no such key" if entry is None else entry.type)
        return entry.value


def require_value(key: str, type: str, value: object) -> Value:
    """``value`` as the plain value that ``type`` stores, f32 rounded once.

    Raises:
        UnsupportedError: the value does not fit the type; an array is empty (GGUF writers drop
            those, and a reader would take the key for absent).
    """
    if type.startswith("["):
        items = list(value) if isinstance(value, tuple | list) else None
        if not items or any(isinstance(item, tuple | list) for item in items):
            raise _misfit(key, type, value)
        return tuple(require_value(key, type[1:-1], item) for item in items)  # type: ignore[return-value]
    if type == "string" and isinstance(value, str) and is_utf8(value):
        return str(value)
    if type == "bool" and isinstance(value, bool):
        return value
    if type == "f32" and isinstance(value, float) and abs(value) <= float(_F32_MAX):
        return float(np.float32(value))
    if type in _RANGES and isinstance(value, int) and not isinstance(value, bool):
        low, high = _RANGES[type]
        if low <= value <= high:
            return value
    raise _misfit(key, type, value)


def _clipped(value: Value) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def is_utf8(text: str) -> bool:
    """Whether UTF-8 can spell it: a path that is not UTF-8 reaches Python with lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_as_the_schema_says(key: str, expected: str, found: str) -> UnsupportedError:
    return UnsupportedError(
        f"the manifest's key {key!r} is not as the schema says",
        expected=expected,
        found=found,
        todo="convert the model again",
    )


def _misfit(key: str, type: str, value: object) -> UnsupportedError:
    return UnsupportedError(
        f"a value does not fit the type of the key {key!r}", expected=type, found=repr(value)[:200]
    )
