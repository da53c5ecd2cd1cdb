"""A part of a network: the nodes between two places, as a graph and as a file of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from graphtools.errors import UsageError
from graphtools.graph import SHAPE_ONLY, Graph, canonical_order, upstream
from graphtools.model import Node
from graphtools.navigate import NodeView, TensorView
from graphtools.onnx_edit import own_tensors

__all__ = ["Part", "part"]

# Names that a message lists.
_LISTED = 8


@dataclass(frozen=True)
class Part:
    """The nodes that ``exits`` need where the values of ``entries`` are given.

    Attributes:
        entries, exits: names of tensors.
        nodes: in execution order.
        shape_inputs: inputs of the whole graph that are needed for their shape alone.
    """

    graph: Graph
    entries: tuple[str, ...]
    exits: tuple[str, ...]
    nodes: tuple[NodeView, ...]
    shape_inputs: tuple[str, ...]

    def __repr__(self) -> str:
        name = self.graph.model.path.name
        ends = f"{', '.join(self.entries)} -> {', '.join(self.exits)}"
        return f"<Part of {name}: {len(self.nodes)} nodes, {ends}>"

    @property
    def inputs(self) -> tuple[TensorView, ...]:
        """What the file takes: `shape_inputs`, then the entries."""
        return tuple(TensorView(self.graph, n) for n in (*self.shape_inputs, *self.entries))

    @property
    def outputs(self) -> tuple[TensorView, ...]:
        return tuple(TensorView(self.graph, name) for name in self.exits)

    def save(self, path: Path | str) -> Path:
        """Write the part as an ONNX file, with the weights that it reads.

        Weights of a model that has them in other files, or that would pass 2 GB, go to
        ``<name>.data`` beside the file, and are copied from file to file.

        Raises:
            UsageError: a file of the model itself would be replaced.
            UnsupportedError: the element type of an entry is not known.
            StorageError: it cannot be written.
        """
        from graphtools.onnx_save import save_part

        return save_part(self.graph, self.entries, self.exits, Path(path))[0]


def part(
    graph: Graph, begin: Sequence[NodeView | TensorView], end: Sequence[NodeView | TensorView]
) -> Part:
    """The part from ``begin`` to ``end``, as `graphtools.navigate.Navigation.subgraph` says.

    Raises:
        UsageError: nothing leads from the beginnings to an end, a beginning is not needed, data
            comes in from elsewhere, or a tensor is none of the file's.
    """
    needs = _needs(graph)
    entries = tuple(dict.fromkeys(n for view in begin for n in _entries(view, needs)))
    exits = tuple(dict.fromkeys(n for view in end for n in _exits(view)))
    _require_in_file(graph, (*entries, *exits))
    members = upstream(graph, entries, exits)
    after = _after(graph, entries)
    for name in exits:
        producer = graph.producers.get(name)
        if name in entries or producer is None or producer.index not in after:
            raise UsageError(
                f"{name!r} cannot be reached from the beginning of the part",
                file=graph.model.path,
                found=f"it begins at {_listed(entries)}",
                todo="`between` and `path_to` show what lies between two places",
            )
    nodes = [graph.model.nodes[i] for i in canonical_order(graph) if i in members]
    _require_closed(graph, entries, [n for n in nodes if n.index in after], after, needs)
    reads = {name for node in nodes for name in node.reads()}
    if unused := [name for name in entries if name not in reads]:
        raise UsageError(
            "the part does not need all of its beginnings",
            file=graph.model.path,
            found=f"not needed: {_listed(unused)}",
            todo="leave them out, or name what they lead to as an end",
        )
    own = tuple(v.name for v in graph.inputs if v.name in reads and v.name not in entries)
    return Part(graph, entries, exits, tuple(NodeView(graph, node) for node in nodes), own)


class _Needs(IntEnum):
    """What has to be given for a tensor to be computed."""

    NOTHING = 0
    SHAPES = 1  # of the graph's inputs
    DATA = 2


def _needs(graph: Graph) -> Mapping[str, _Needs]:
    """For every tensor that is not a constant of the file."""
    inputs = {value.name for value in graph.inputs}
    found = dict.fromkeys(inputs, _Needs.DATA)
    for index in canonical_order(graph):
        node = graph.model.nodes[index]
        reads = list(node.reads())
        need = max((found.get(name, _Needs.NOTHING) for name in reads), default=_Needs.NOTHING)
        if node.op in SHAPE_ONLY and inputs.issuperset(reads):
            need = _Needs.SHAPES
        found |= dict.fromkeys(filter(None, node.outputs), need)
    return found


def _entries(view: NodeView | TensorView, needs: Mapping[str, _Needs]) -> list[str]:
    if isinstance(view, TensorView):
        return [view.name]
    found = [name for name in view.node.reads() if needs.get(name) is _Needs.DATA]
    if not found:
        raise UsageError(
            f"no data comes into {view.node}",
            found="it reads constants and shapes only",
            todo="begin at a node that data comes into, or at a tensor",
        )
    return found


def _exits(view: NodeView | TensorView) -> list[str]:
    return [view.name] if isinstance(view, TensorView) else [t.name for t in view.outputs]


def _require_in_file(graph: Graph, names: Iterable[str]) -> None:
    """A fused node's inner tensors are shown, but the file does not have them."""
    own = own_tensors(graph.model)
    for name in names:
        producer = graph.producers.get(name)
        if producer is not None and name not in own:
            raise UsageError(
                f"the tensor {name!r} is inside a fused node",
                file=graph.model.path,
                where=str(producer),
                todo="begin before that node and end after it",
            )


def _after(graph: Graph, entries: Iterable[str]) -> frozenset[int]:
    """Nodes that the entries lead to."""
    found: set[int] = set()
    pending = list(entries)
    while pending:
        for node, _ in graph.consumers.get(pending.pop(), ()):
            if node.index not in found:
                found.add(node.index)
                pending += filter(None, node.outputs)
    return frozenset(found)


def _require_closed(
    graph: Graph,
    entries: tuple[str, ...],
    nodes: Iterable[Node],
    after: frozenset[int],
    needs: Mapping[str, _Needs],
) -> None:
    """Check that all data comes in through the entries."""
    outside: dict[str, str] = {}
    for node in nodes:
        for name in node.reads():
            producer = graph.producers.get(name)
            inside = producer is not None and producer.index in after
            if name not in entries and not inside and needs.get(name) is _Needs.DATA:
                outside.setdefault(name, str(node))
    if outside:
        every = ", ".join(map(repr, (*entries, *outside)))
        raise UsageError(
            "the part takes data from outside",
            file=graph.model.path,
            where=", ".join(list(dict.fromkeys(outside.values()))[:_LISTED]),
            found=_listed(outside),
            todo=f"name these as beginnings too: subgraph([{every}], ...)",
        )


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(repr, names[:_LISTED])) + more
