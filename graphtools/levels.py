"""Where one level of a network comes apart: stretches between cuts, branches, what crosses a place.

A level is some boxes and nodes side by side; edges among them are those of the nodes inside. What
a Shape gives is left out, as in `graphtools.graph.Graph.dominators`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from graphtools.boxes import Box, Unit, nodes_of
from graphtools.dominators import immediate_dominators
from graphtools.graph import SHAPE_ONLY, Graph, is_weight
from graphtools.model import Node

__all__ = ["Level"]

_ENTRY, _EXIT = -1, -2


class Level:
    """Units and the data edges between them."""

    def __init__(self, graph: Graph, units: Sequence[Unit]) -> None:
        self.units = units
        self.outputs = {value.name for value in graph.outputs}
        owner = {node: at for at, unit in enumerate(units) for node in nodes_of([unit])}
        self.after: list[dict[int, None]] = [{} for _ in units]
        self.readers: list[dict[int, None]] = [{} for _ in units]
        self.enters: dict[int, None] = {}
        self.leaves: dict[int, None] = {}
        self.light = [
            not isinstance(unit, Box)
            and not any(is_weight(graph, name) for name in graph.model.nodes[unit].inputs)
            for unit in units
        ]
        for index, at in owner.items():
            self._connect(graph, graph.model.nodes[index], at, owner)

    def _connect(self, graph: Graph, node: Node, at: int, owner: Mapping[int, int]) -> None:
        for name in filter(None, node.inputs):
            producer = graph.producers.get(name)
            outside = producer is None or producer.index not in owner
            data = name not in graph.model.constants and not _is_shape(producer)
            if outside and data and not _is_shape(node):
                self.enters[at] = None
        for name in filter(None, node.outputs):
            if name in self.outputs:
                self.leaves[at] = None
            for reader, _ in graph.consumers[name]:
                to = owner.get(reader.index)
                if to is None:
                    self.leaves[at] = None
                elif to != at:
                    self.readers[at][to] = None
                    if not _is_shape(node) and not _is_shape(reader):
                        self.after[at][to] = None

    def stretches(self) -> list[list[int]]:
        """Units between two that everything passes, with the second of them.

        What holds no weights goes with the stretch before it: an activation, a pooling.
        """
        after = {at: list(readers) for at, readers in enumerate(self.after)}
        for at in self.leaves:
            after[at].append(_EXIT)
        above = immediate_dominators(after | {_ENTRY: list(self.enters), _EXIT: []}, _ENTRY)
        spine = []
        node = above.get(_EXIT, _ENTRY)
        while node != _ENTRY:
            spine.append(node)
            node = above[node]
        spine.reverse()
        place = {node: number for number, node in enumerate(spine)}
        groups: list[list[int]] = [[] for _ in range(len(spine) + 1)]
        where = self._places(above, place, len(spine))
        for at in range(len(self.units)):
            groups[where[at]].append(at)
        return [sorted(group) for group in self._merged(groups) if group]

    def _places(self, above: dict[int, int], spine: dict[int, int], last: int) -> list[int]:
        """For every unit the number of the stretch that it is in."""
        where: dict[int, int] = dict(spine)
        where[_ENTRY] = -1
        found = [last] * len(self.units)
        for at in range(len(self.units)):
            walk: list[int] = []
            top = at
            while top not in where and top in above:
                walk.append(top)
                top = above[top]
            number = where.get(top)
            if number is None:  # no data reaches it
                continue
            for between in walk:  # it comes after that spine node: in the next one's stretch
                where[between] = number if top not in spine and top != _ENTRY else number + 1
        for at in reversed(range(len(self.units))):
            if at in where:
                found[at] = where[at]
            else:  # shape arithmetic: where it is needed first
                found[at] = min((found[to] for to in self.readers[at]), default=last)
        return found

    def _merged(self, groups: list[list[int]]) -> Iterator[list[int]]:
        pending: list[int] = []
        for group in groups:
            if pending and not all(self.light[at] for at in group):
                yield pending
                pending = []
            pending = [*pending, *group]
        yield pending

    def branches(self) -> list[list[int]]:
        """Units that are connected without the rest of the network."""
        lead = list(range(len(self.units)))

        def root(at: int) -> int:
            while lead[at] != at:
                lead[at] = lead[lead[at]]
                at = lead[at]
            return at

        for at, readers in enumerate(self.readers):
            for to in readers:
                one, other = sorted((root(at), root(to)))
                lead[other] = one
        groups: dict[int, list[int]] = {}
        for at in range(len(self.units)):
            groups.setdefault(root(at), []).append(at)
        return list(groups.values())

    def crossings(self) -> list[int]:
        """How many units are still read after each place."""
        change = [0] * (len(self.units) + 1)
        for at, readers in enumerate(self.readers):
            last = max(readers, default=at)
            if last > at:
                change[at] += 1
                change[last] -= 1
        return list(accumulate(change))


def _is_shape(node: Node | None) -> bool:
    return node is not None and node.op in SHAPE_ONLY
