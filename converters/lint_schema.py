"""Keys against the rows that an architecture declares, and against its tensors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from converters.gguf_header import Header
from converters.lint_codes import Code, Finding
from converters.manifest import Manifest, require_value
from converters.schema import Row, Schema
from graphtools.errors import UnsupportedError

__all__ = ["KEY_RULES", "Subject", "counts", "names", "told"]

_GENERAL = "general."
_NAME = Row("general.name", "string", "what was converted", "source")


@dataclass(frozen=True)
class Subject:
    """A file and the schema that it has to follow."""

    header: Header
    manifest: Manifest
    schema: Schema

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows that hold for this file: an optional set counts when one of it is there."""
        sets = self.schema.optional
        there = [rows for rows in sets if any(row.key in self.header.by_key for row in rows)]
        return (_NAME, *self.schema.rows, *chain.from_iterable(there))


def _missing(subject: Subject) -> Iterator[Finding]:
    for row in subject.rows:
        if row.key not in subject.header.by_key:
            yield Finding(
                Code.MISSING_KEY, row.key, f"expected {row.type} ({row.meaning}), found no such key"
            )


def _unknown(subject: Subject) -> Iterator[Finding]:
    """Everything but the format's own ``general.*`` has to be a row."""
    known = {row.key for row in subject.schema.all_rows}
    for key in subject.header.by_key.values():
        if key.name in known or key.name.startswith(_GENERAL):
            continue
        if key.name.startswith(subject.schema.forbidden):
            found = f"not for {subject.schema.name}, found {_short(key.value)}"
            yield Finding(Code.FORBIDDEN_KEY, key.name, found)
        else:
            found = f"not in the schema of {subject.schema.name}, found {key.type}"
            yield Finding(Code.UNKNOWN_KEY, key.name, found)


def _mistyped(subject: Subject) -> Iterator[Finding]:
    for row in subject.rows:
        key = subject.header.by_key.get(row.key)
        if key is not None and key.type != row.type:
            yield Finding(Code.MISTYPED_KEY, row.key, f"expected {row.type}, found {key.type}")


def _fixed(subject: Subject) -> Iterator[Finding]:
    for row, value in _values(subject):
        if row.fixed is not None and value != require_value(row.key, row.type, row.fixed):
            found = f"expected {row.fixed!r}, found {_short(value)}"
            yield Finding(Code.NOT_THE_SCHEMAS, row.key, found)


def _empty(subject: Subject) -> Iterator[Finding]:
    for row, value in _values(subject):
        if value == ():
            yield Finding(Code.EMPTY_ARRAY, row.key, "expected at least one entry")


def _not_finite(subject: Subject) -> Iterator[Finding]:
    for row, value in _values(subject):
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(n, float) and not math.isfinite(n) for n in numbers):
            yield Finding(Code.NOT_A_NUMBER, row.key, f"found {_short(value)}")


def _not_parallel(subject: Subject) -> Iterator[Finding]:
    """Of every group the arrays that are not as long as most of them."""
    groups: dict[str, dict[str, int]] = {}
    for row, value in _values(subject):
        if row.group and isinstance(value, tuple):
            groups.setdefault(row.group, {})[row.key] = len(value)
    for lengths in groups.values():
        (usual, _), *_ = Counter(lengths.values()).most_common(1)
        other = next(key for key, length in lengths.items() if length == usual)
        for key, length in lengths.items():
            if length not in (usual, 0):  # an empty one is a fault of its own
                yield Finding(Code.NOT_PARALLEL, key, f"{length} entries, {other} has {usual}")


KEY_RULES: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    _missing,
    _unknown,
    _mistyped,
    _fixed,
    _empty,
    _not_finite,
    _not_parallel,
)


def names(subject: Subject) -> Iterator[Finding]:
    """Every name in a key points at a tensor. Types have to be right."""
    tensors = subject.header.by_name
    for row, value in _values(subject):
        listed = value if isinstance(value, tuple) else (value,)
        for i, name in enumerate(listed):
            place = f"{row.key}[{i}]" if isinstance(value, tuple) else row.key
            if row.optional and not name:
                continue
            for ending in row.names:
                if f"{name}{ending}" not in tensors:
                    yield Finding(Code.NO_TENSOR, place, f"{f'{name}{ending}'!r} is no tensor")


def counts(subject: Subject) -> Iterator[Finding]:
    """Numbers among the keys equal what the tensors have. Names have to be right.

    Raises:
        UnsupportedError: the tensors are no network's.
    """
    for key, wanted in subject.schema.counts(subject.manifest).items():
        entry = subject.manifest.by_key.get(key)
        if entry is None or wanted is None:
            continue
        found: object = entry.value
        if isinstance(found, tuple) and isinstance(wanted, int):
            found, wanted = f"{len(found)} entries", f"{wanted} entries"
        if found != wanted:
            yield Finding(
                Code.MISCOUNTED, key, f"found {_short(found)}, the tensors have {_short(wanted)}"
            )


def told(error: UnsupportedError) -> str:
    """A refusal in one line."""
    fields = error.fields()
    more = ", ".join(f"{k} {fields[k]}" for k in ("expected", "found") if k in fields)
    return fields["error"] + (f": {more}" if more else "")


def _values(subject: Subject) -> Iterator[tuple[Row, object]]:
    """The rows whose keys are there with the right type, and their values."""
    for row in subject.rows:
        key = subject.header.by_key.get(row.key)
        if key is not None and key.type == row.type:
            yield row, key.value


def _short(value: object) -> str:
    text = str(list(value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 120 else f"{text[:80]} .. {text[-30:]}"
