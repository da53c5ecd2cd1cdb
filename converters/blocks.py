"""A comparison's rows by block of the network: a few lines that say where the fault begins.

A block is a prefix of hierarchical names: ``layer2`` of ``layer2.0``, ``/encoder/layers.0`` of
``/encoder/layers.0/MatMul_output_0``. Where names say nothing and the stages of the network are
known, a tensor belongs to the stage that is computed next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from converters.comparison import Row

__all__ = ["Block", "blocks"]

_MOST = 15


@dataclass(frozen=True)
class Block:
    """Rows that belong together, in execution order."""

    name: str
    rows: tuple[Row, ...]

    @property
    def wrong(self) -> int:
        """How many rows are wrong."""
        return sum(bool(row.problem and row.ours) for row in self.rows)

    @property
    def missing(self) -> int:
        """How many the engine has no tensor for."""
        return sum(not row.ours for row in self.rows)

    @property
    def excess(self) -> float | None:
        """The largest max|d| over its bound; None where nothing has one."""
        return max((row.excess for row in self.rows if row.excess is not None), default=None)

    @property
    def cosine(self) -> float | None:
        """The lowest cosine; None where nothing has one."""
        found = [r.difference.cosine for r in self.rows if r.difference and r.bound is not None]
        return min(found, default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "tensors": len(self.rows),
            "wrong": self.wrong,
            "missing": self.missing,
            "excess": self.excess,
            "cosine": self.cosine,
        }


def blocks(rows: Sequence[Row], first: Row | None = None, most: int = _MOST) -> tuple[Block, ...]:
    """At most ``most`` blocks, finest around the row ``first``."""
    tops = _split(_Group("", tuple(_labelled(rows)), 0))
    groups = _merged(tops, most)
    while True:
        for group in sorted(groups, key=lambda g: (not g.holds(first), -len(g.members))):
            parts = _split(group)
            room = most - len(groups) + 1
            if 1 < len(parts) < len(group.members) and room > 1:
                at = groups.index(group)
                groups[at : at + 1] = _merged(parts, room)
                break
        else:
            return tuple(Block(g.name, tuple(row for _, row in g.members)) for g in groups)


# A name's parts as they are joined again: "layer2.0" is ("layer2", ".0").
_Path = tuple[str, ...]


@dataclass(frozen=True)
class _Group:
    """Rows whose names agree in their first ``depth`` parts; -1 where that says nothing."""

    name: str
    members: tuple[tuple[_Path, Row], ...]
    depth: int

    def holds(self, row: Row | None) -> bool:
        return any(member is row for _, member in self.members)


def _labelled(rows: Sequence[Row]) -> list[tuple[_Path, Row]]:
    """Every row with the path of its name, or of the stage that is computed next."""
    by_stage = any(row.stage not in ("", row.name) for row in rows)
    labelled: list[tuple[_Path, Row]] = []
    stage = ""
    for row in reversed(rows):
        stage = row.stage or stage
        labelled.append((_path(stage if by_stage and stage else row.name), row))
    return labelled[::-1]


def _path(name: str) -> _Path:
    separator = "/" if "/" in name else "."
    head, *rest = name.split(separator)
    if not head and rest:  # "/encoder/..."
        head, *rest = [separator + rest[0], *rest[1:]]
    return (head, *(separator + part for part in rest))


def _split(group: _Group) -> list[_Group]:
    """By the first part in which the names of a group differ; one group where none does."""
    if group.depth < 0:
        return [group]
    depth = group.depth
    deepest = max((len(path) for path, _ in group.members), default=0)
    while True:
        depth += 1
        parts: dict[_Path, list[tuple[_Path, Row]]] = {}
        for path, row in group.members:
            parts.setdefault(path[:depth], []).append((path, row))
        if len(parts) > 1 or depth >= deepest:
            return [_grouped(key, value, depth) for key, value in parts.items()]


def _grouped(key: _Path, members: list[tuple[_Path, Row]], depth: int) -> _Group:
    """A group by what its names share; one of a single row by its whole name."""
    paths = {path for path, _ in members}
    return _Group("".join(paths.pop() if len(paths) == 1 else key), tuple(members), depth)


def _merged(groups: Iterable[_Group], most: int) -> list[_Group]:
    """Neighbours together, so that at most ``most`` are left."""
    groups = list(groups)
    size = -(-len(groups) // most) if groups else 1
    return [_joined(groups[i : i + size]) for i in range(0, len(groups), size)]


def _joined(groups: list[_Group]) -> _Group:
    if len(groups) == 1:
        return groups[0]
    members = tuple(member for group in groups for member in group.members)
    first, last = groups[0].name, groups[-1].name
    shared = 0  # "layers.0 .. 1": what both begin with is said once
    for i, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            break
        shared = i + 1 if a in "/." else shared
    return _Group(f"{first} .. {last[shared:]}", members, -1)
