"""A network as nested boxes: the tree that people unfold and exports are grouped by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["Box", "Kind", "Unit", "first_node", "nodes_of", "unique_names"]

# network  the root
# stage    a stage of a recovered family, or several that share the first part of their name
# island   a weight-free region of a recovered family
# scope    what the exporter called a module
# part     found in the structure: a stretch of the network, a branch
# repeat   a run of parts that are alike
# flow     an operation that holds graphs (If, Loop, Scan), with them
# subgraph one of these graphs
Kind = Literal["network", "stage", "island", "scope", "part", "repeat", "flow", "subgraph"]


@dataclass(frozen=True)
class Box:
    """A named group.

    Attributes:
        name: unique among the boxes beside it.
        children: boxes, and nodes by index, in execution order. Every node of the model but its
            Constant nodes is in exactly one box; constants go with what reads them.
        stage: the golden's name, where the box is exactly one stage.
    """

    name: str
    kind: Kind
    children: tuple[Box | int, ...]
    stage: str = ""

    def __repr__(self) -> str:
        return f"<Box {self.name} ({self.kind}): {len(self.children)} children>"

    def nodes(self) -> Iterator[int]:
        """Indices of all nodes inside, in the order of the tree."""
        return nodes_of(self.children)

    def boxes(self) -> Iterator[Box]:
        """The box and all boxes inside, each before its own."""
        pending = [self]
        while pending:
            box = pending.pop()
            yield box
            pending += [child for child in reversed(box.children) if isinstance(child, Box)]


Unit = Box | int


def nodes_of(units: Iterable[Unit]) -> Iterator[int]:
    """Indices of the nodes in some units, in order."""
    for unit in units:
        if isinstance(unit, Box):
            yield from nodes_of(unit.children)
        else:
            yield unit


def first_node(unit: Unit) -> int:
    """The first node of a unit, in the order of the tree."""
    return next(nodes_of([unit]))


def unique_names(units: Iterable[Unit]) -> tuple[Unit, ...]:
    """The units, boxes of one name told apart by a number."""
    units = tuple(units)
    counts: dict[str, int] = {}
    for unit in units:
        if isinstance(unit, Box):
            counts[unit.name] = counts.get(unit.name, 0) + 1
    taken = {name for name, count in counts.items() if count == 1}
    number: dict[str, int] = {}
    renamed: list[Unit] = []
    for unit in units:
        if isinstance(unit, Box) and counts[unit.name] > 1:
            name = unit.name
            while name in taken or name == unit.name:
                number[unit.name] = number.get(unit.name, 0) + 1
                name = f"{unit.name} #{number[unit.name]}"
            taken.add(name)
            unit = Box(name, unit.kind, unit.children, unit.stage)
        renamed.append(unit)
    return tuple(renamed)
