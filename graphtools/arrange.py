"""One level of a network made small enough to be looked at.

Three steps, each only where the level is still too large. What lies between two nodes that all
data passes is one stretch (found through dominators); where nothing is passed by all, every
separate branch is one. A run of stretches that are alike becomes one box. What is left is cut into
pieces of equal length where the fewest tensors cross.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from graphtools.boxes import Box, Unit, nodes_of, unique_names
from graphtools.graph import Graph
from graphtools.levels import Level

__all__ = ["FIRST", "INSIDE", "Paths", "arrange", "common"]

# A dozen boxes under one another are what a laptop's screen shows at a size that can be read;
# a box that is unfolded may be scrolled, and a residual block has about twenty operations.
FIRST, INSIDE = 12, 24

# Longest pattern that is looked for, in stretches: a layer of a transformer has about ten.
_LONGEST_PATTERN = 48

# A run of boxes that are nearly all of a level is not boxed again: it is the level.
_MOST = 0.7

Paths = Mapping[int, tuple[str, ...]]


def arrange(
    graph: Graph, units: Sequence[Unit], paths: Paths, limit: int = INSIDE
) -> tuple[Unit, ...]:
    """The units in boxes, so that there are no more than ``limit`` here and `INSIDE` in each.

    Args:
        graph: whose nodes the units hold.
        units: in execution order; boxes among them are kept whole.
        paths: what is known of where a node's weights belong, outermost first: names for boxes.
        limit: at least 2.
    """
    if len(units) <= limit:
        return unique_names(units)
    level = Level(graph, units)
    groups = level.stretches()
    if len(groups) < 2:
        groups = level.branches()
    if 1 < len(groups) < len(units):
        units = list(_groups_boxed(graph, units, groups, paths))
    if len(units) > limit:
        units = _runs_boxed(graph, units, paths)
    if len(units) > limit:
        pieces = _pieces(Level(graph, units), units, limit)
        units = [_boxed(graph, piece, paths, ends=True) for piece in pieces]
    return unique_names(units)


def _groups_boxed(
    graph: Graph, units: Sequence[Unit], groups: Iterable[Sequence[int]], paths: Paths
) -> Iterator[Unit]:
    """A box for each group; one that holds most of the level is no part of it and stays open."""
    for group in groups:
        inside = [units[at] for at in group]
        if len(inside) > len(units) / 2:
            yield from inside
        else:
            yield _boxed(graph, inside, paths)


def _pieces(level: Level, units: Sequence[Unit], limit: int) -> Iterator[Sequence[Unit]]:
    """At most ``limit`` pieces of about equal length, cut where few tensors cross."""
    count = min(limit, max(2, round(len(units) ** 0.5)))
    length = len(units) / count
    crossing = level.crossings()
    begin = 0
    for number in range(1, count):
        wanted, play = round(number * length), int(length / 4)
        places = range(max(begin + 1, wanted - play), wanted + play + 1)
        end = min(places, key=lambda at: (crossing[at - 1], abs(at - wanted)))
        yield units[begin:end]
        begin = end
    yield units[begin:]


def _runs_boxed(graph: Graph, units: Sequence[Unit], paths: Paths) -> list[Unit]:
    """The units, runs of a repeated pattern as one box with a box for each repetition."""
    marks = [_signature(graph, unit) for unit in units]
    number = {mark: i for i, mark in enumerate(dict.fromkeys(marks))}
    runs = _longest_runs([number[mark] for mark in marks])
    boxed: list[Unit] = []
    at = 0
    while at < len(units):
        pattern, covered = runs[at]
        longer = max((runs[i][1] for i in range(at + 1, at + covered)), default=0)
        single = pattern == 1 and not isinstance(units[at], Box)
        whole = covered > (_MOST if pattern == 1 else 0.99) * len(units)
        if covered == 0 or covered < longer or single or whole:
            step = covered if whole else 1
            boxed += units[at : at + step]
            at += step
            continue
        run = units[at : at + covered]
        repeated = [
            run[i] if pattern == 1 else _boxed(graph, run[i : i + pattern], paths)
            for i in range(0, covered, pattern)
        ]
        name = _ends(repeated) or f"{_ops(graph, run[:pattern])} x {len(repeated)}"
        boxed.append(Box(name, "repeat", arrange(graph, unique_names(repeated), paths)))
        at += covered
    return boxed


def _longest_runs(marks: Sequence[int]) -> list[tuple[int, int]]:
    """For every place (length of the pattern, units covered) of the longest run that begins
    there; (0, 0) for none."""
    best = [(0, 0)] * len(marks)
    for pattern in range(1, min(_LONGEST_PATTERN, len(marks) // 2) + 1):
        alike = 0
        for at in range(len(marks) - pattern - 1, -1, -1):
            alike = alike + 1 if marks[at] == marks[at + pattern] else 0
            covered = pattern * (1 + alike // pattern)
            if alike >= pattern and covered > best[at][1]:
                best[at] = (pattern, covered)
    return best


def _signature(graph: Graph, unit: Unit) -> Hashable:
    """Equal for units of the same operations in the same order."""
    nodes = graph.model.nodes
    return tuple(nodes[index].op for index in nodes_of([unit]))


def _boxed(graph: Graph, units: Sequence[Unit], paths: Paths, *, ends: bool = False) -> Unit:
    """One box of several units; ``ends`` prefers the names of its first and last."""
    if len(units) == 1:
        return units[0]
    name = _ends(units) if ends else ""
    name = name or ".".join(_shared(units, paths)) or _ops(graph, units)
    return Box(name, "part", arrange(graph, units, paths))


def _ends(units: Sequence[Unit]) -> str:
    """From the first to the last, where somebody gave both a name."""
    ends = [unit for unit in (units[0], units[-1]) if isinstance(unit, Box)]
    if len(ends) == 2 and all(box.kind in ("stage", "scope") for box in ends):
        return f"{ends[0].name} to {ends[1].name}"
    return ""


def _shared(units: Sequence[Unit], paths: Paths) -> tuple[str, ...]:
    """Where all weights of some units belong."""
    return common(paths[index] for index in nodes_of(units) if index in paths)


def common(paths: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The beginning that all paths share."""
    paths = list(paths)
    if not paths:
        return ()
    low, high = min(paths), max(paths)
    pairs = zip(low, high, strict=False)
    return low[: next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(low), len(high)))]


def _ops(graph: Graph, units: Sequence[Unit]) -> str:
    """What a stretch is called: the operations that it has most of, in execution order."""
    ops = [graph.model.nodes[index].op for index in nodes_of(units)]
    counts = Counter(ops)
    telling = [op for op in counts if op in _TELLING] or list(counts)
    chosen = sorted(telling, key=lambda op: -counts[op])[:3]
    return " ".join(op for op in dict.fromkeys(ops) if op in chosen)


# Operations that say what a stretch computes.
_TELLING = frozenset(
    (
        *("Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN", "Attention", "Einsum"),
        *("BatchNormalization", "LayerNormalization", "InstanceNormalization", "Softmax"),
        *("GlobalAveragePool", "AveragePool", "MaxPool", "ReduceMean", "Gather", "Concat", "Add"),
        *("If", "Loop", "Scan", "Resize", "TopK"),
    )
)
