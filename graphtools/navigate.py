"""Walking a graph by hand: thin views of nodes and tensors, and questions that a person asks.

``g["/layer1/conv1/Conv"]`` is a node, ``g["embs"]`` a tensor, and each leads to the next. The
views hold a graph and a name; everything they say is read off the graph when it is asked.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, SupportsIndex

from graphtools.errors import UsageError
from graphtools.tensors import Array, LazyTensor

if TYPE_CHECKING:
    from graphtools.graph import Graph
    from graphtools.model import Attribute, Node, Value
    from graphtools.parts import Part

__all__ = ["Navigation", "NodeView", "TensorView"]

# Names of attributes that people shorten.
_SHORT = {"kernel": "kernel_shape", "stride": "strides", "dilation": "dilations", "groups": "group"}
_ANY = (None, ...)


@dataclass(frozen=True)
class NodeView:
    """A node of a graph."""

    graph: Graph
    node: Node

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<node {self.index} {self.op}{name} -> {', '.join(map(str, self.outputs))}>"

    @property
    def index(self) -> int:
        return self.node.index

    @property
    def op(self) -> str:
        return self.node.op

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def attributes(self) -> Mapping[str, Attribute]:
        return self.node.attributes

    @property
    def inputs(self) -> tuple[TensorView, ...]:
        """Its operands in slot order; absent optional ones are left out."""
        return tuple(TensorView(self.graph, name) for name in self.node.inputs if name)

    @property
    def outputs(self) -> tuple[TensorView, ...]:
        return tuple(TensorView(self.graph, name) for name in self.node.outputs if name)

    @property
    def weights(self) -> tuple[LazyTensor, ...]:
        """The constants among its operands."""
        return tuple(t.constant for t in self.inputs if t.constant is not None)

    @property
    def producers(self) -> tuple[NodeView, ...]:
        """The nodes that make its operands, each once."""
        made = (t.producer for t in self.inputs)
        return tuple(dict.fromkeys(view for view in made if view is not None))

    @property
    def consumers(self) -> tuple[NodeView, ...]:
        """The nodes that read what it gives, each once."""
        return tuple(dict.fromkeys(view for t in self.outputs for view in t.consumers))

    def path_to(self, other: Any) -> tuple[NodeView, ...]:
        """The shortest way along the data to a node or tensor, both ends included; empty where
        there is none.

        Args:
            other: a view, or what ``g[...]`` takes.
        """
        import networkx as nx

        target = _end(self.graph, other)
        try:
            path = nx.shortest_path(self.graph.net, self.index, target.index)
        except nx.NetworkXNoPath:
            return ()
        return tuple(NodeView(self.graph, self.graph.model.nodes[i]) for i in path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeView) and (self.graph, self.index) == (
            other.graph,
            other.index,
        )

    def __hash__(self) -> int:
        return hash((id(self.graph), self.index))


@dataclass(frozen=True)
class TensorView:
    """A tensor of a graph."""

    graph: Graph
    name: str

    def __repr__(self) -> str:
        return f"<tensor {self}>"

    def __str__(self) -> str:
        value = self.graph.values.get(self.name)
        found = self.constant
        if found is not None:
            return f"{self.name}: {found.dtype.label} {list(found.shape)}, constant"
        return self.name if value is None else str(value)

    @property
    def producer(self) -> NodeView | None:
        """The node that makes it; None for inputs and initializers."""
        node = self.graph.producers.get(self.name)
        return None if node is None else NodeView(self.graph, node)

    @property
    def consumers(self) -> tuple[NodeView, ...]:
        """The nodes that read it, each once."""
        reads = self.graph.consumers.get(self.name, ())
        return tuple(dict.fromkeys(NodeView(self.graph, node) for node, _ in reads))

    @property
    def constant(self) -> LazyTensor | None:
        """Its values, unread, where it is an initializer or a constant."""
        return self.graph.model.constants.get(self.name)

    @property
    def shape(self) -> tuple[int | str, ...] | None:
        """An int per fixed axis, a name per dynamic one; None where nothing is known."""
        found = self.constant
        if found is not None:
            return found.shape
        value = self.graph.values.get(self.name)
        return None if value is None else value.shape

    def path_to(self, other: Any) -> tuple[NodeView, ...]:
        """The shortest way from its first readers, as `NodeView.path_to`."""
        ways = [view.path_to(other) for view in self.consumers]
        return min(filter(None, ways), key=len, default=())


class Navigation:
    """What a `graphtools.graph.Graph` offers to a person, beside its data."""

    @cached_property
    def values(self: Graph) -> Mapping[str, Value]:  # type: ignore[misc]
        """Element type and shape of every tensor whose shape is known."""
        from graphtools.shapes import shapes

        return shapes(self)

    def _repr_html_(self: Graph) -> str:  # type: ignore[misc]
        """For notebooks: the explorer, folded."""
        from graphtools.explorer import inline
        from graphtools.hierarchy import hierarchy
        from graphtools.recover import network_of
        from graphtools.subgraphs import opened

        graph = opened(self)
        return inline(graph, hierarchy(graph, network_of(self)), shapes=graph.values)

    def __getitem__(  # type: ignore[misc]
        self: Graph, key: SupportsIndex | str
    ) -> NodeView | TensorView:
        """A node by its index or name, a tensor by its name or, in a recovered network, its stage.

        Raises:
            UsageError: there is none; the closest names are listed.
        """
        from graphtools.recover import network_of

        nodes = self.model.nodes
        if not isinstance(key, str):
            place = operator.index(key)
            if 0 <= place < len(nodes):
                return NodeView(self, nodes[place])
            raise UsageError(f"the graph has no node {place}", found=f"{len(nodes)} nodes")
        named = next((node for node in nodes if node.name == key), None)
        if named is not None and key:
            return NodeView(self, named)
        if key in self.consumers:
            return TensorView(self, key)
        net = network_of(self)
        stages = dict(net.binding.stages) if net is not None else {}
        if key in stages:
            return TensorView(self, stages[key])
        names = [*(node.name for node in nodes if node.name), *self.consumers, *stages]
        close = difflib.get_close_matches(key, names, n=5, cutoff=0.4)
        raise UsageError(
            f"the graph has no node or tensor {key!r}",
            found=f"closest: {', '.join(close)}" if close else f"{len(nodes)} nodes",
        )

    def __iter__(self: Graph) -> Iterator[NodeView]:  # type: ignore[misc]
        """The nodes in execution order."""
        from graphtools.graph import canonical_order

        return (NodeView(self, self.model.nodes[i]) for i in canonical_order(self))

    def find(  # type: ignore[misc]
        self: Graph,
        op: str | None = None,
        *,
        name: str | None = None,
        shape: Sequence[int | str | None] | None = None,
        weight: Sequence[int | None] | None = None,
        **attributes: object,
    ) -> list[NodeView]:
        """The nodes that fit everything that is given, in execution order.

        Args:
            op: exactly, e.g. ``Conv``.
            name: part of the node's name or of an output's.
            shape: of an output; None or ``...`` in a place fits any length.
            weight: shape of a constant among the operands.
            attributes: by name, also ``kernel``, ``stride``, ``dilation``, ``groups``.

        Raises:
            UsageError: the graph has no such op, or none of its nodes such an attribute.
        """
        wanted = {_SHORT.get(key, key): _plain(value) for key, value in attributes.items()}
        _require_one_of("op", {node.op for node in self.model.nodes}, [op] if op else [])
        named = {key for node in self.model.nodes for key in node.attributes}
        _require_one_of("attribute", named, wanted)
        tests: list[Callable[[NodeView], bool]] = [
            lambda view: op is None or view.op == op,
            lambda view: all(
                _plain(view.attributes.get(key)) == value for key, value in wanted.items()
            ),
        ]
        if name is not None:
            tests.append(lambda view: any(name in n for n in (view.name, *view.node.outputs)))
        if weight is not None:
            tests.append(lambda view: any(_fits(w.shape, weight) for w in view.weights))
        if shape is not None:
            tests.append(lambda view: any(_fits(t.shape, shape) for t in view.outputs))
        return [view for view in self if all(test(view) for test in tests)]

    def between(self: Graph, a: Any, b: Any) -> list[NodeView]:  # type: ignore[misc]
        """The nodes on any way from ``a`` to ``b``, both ends included, in execution order.

        Args:
            a, b: views, or what ``g[...]`` takes; a tensor begins at its readers and ends at
                its producer.
        """
        import networkx as nx

        starts, end = _starts(self, a), _end(self, b).index
        after = set(starts).union(*(nx.descendants(self.net, i) for i in starts))
        inside = after & {end, *nx.ancestors(self.net, end)}
        return [view for view in self if view.index in inside]

    def subgraph(self: Graph, a: Any, b: Any) -> Part:  # type: ignore[misc]
        """The part of the network from ``a`` to ``b``: nodes, and a file of their own.

        Args:
            a, b: views, or what ``g[...]`` takes, or lists of them. A node as ``a`` begins where
                data comes into it, constants and shapes apart; as ``b`` it ends at its outputs.

        Raises:
            UsageError: nothing leads from ``a`` to ``b``, one of ``a`` is not needed, or data
                comes in from elsewhere; the message names the tensors.
        """
        from graphtools.parts import part

        return part(self, _views(self, a), _views(self, b))

    def run(  # type: ignore[misc]
        self: Graph, x: Array | Mapping[str, Array], taps: str | Sequence[str] = ()
    ) -> dict[str, Array]:
        """What onnxruntime computes: the outputs, or the tensors that are named.

        Args:
            x: the input's values, or a mapping for models with several; cast to the declared
                types.
            taps: patterns, as `graphtools.taps.choose`.

        Returns:
            Name to values, batch axis included; a tensor that was named as a stage goes by the
            stage's name.

        Raises:
            UsageError, UnsupportedError: as `graphtools.feeds.feeds` and `graphtools.taps`.
        """
        import numpy as np

        from graphtools.feeds import feeds
        from graphtools.recover import network_of
        from graphtools.taps import choose, plan, run_taps

        given = x if isinstance(x, Mapping) else {self.inputs[0].name: np.asarray(x)}
        net = network_of(self)
        stages = dict(net.binding.stages) if net is not None else {}
        patterns = [taps] if isinstance(taps, str) else [*taps]
        chosen = choose(self, patterns or [v.name for v in self.outputs], stages)
        fed = feeds(self, given)
        listed, omitted = plan(self, chosen, fed, None)
        if omitted and not listed:
            name, why = next(iter(omitted.items()))
            raise UsageError(f"the tensor {name!r} cannot be had", found=why)
        called = {t: s for s, t in stages.items() if t not in patterns} if patterns else {}
        size = sum(2 * tap.size for tap in listed)
        values = run_taps(self, listed, fed, None, budget=size)
        return {called.get(tap.name, tap.name): value for tap, value in values}


def _require_one_of(what: str, there: Collection[str], wanted: Iterable[str]) -> None:
    for name in wanted:
        if name not in there:
            lower = {other.lower(): other for other in there}
            close = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.4)
            raise UsageError(
                f"no node has the {what} {name!r}",
                found=f"closest: {', '.join(lower[c] for c in close)}" if close else "others",
            )


def _starts(graph: Graph, key: Any) -> list[int]:
    view = _view(graph, key)
    if isinstance(view, NodeView):
        return [view.index]
    return [reader.index for reader in view.consumers]


def _end(graph: Graph, key: Any) -> NodeView:
    view = _view(graph, key)
    if isinstance(view, NodeView):
        return view
    if view.producer is None:
        raise UsageError(f"no node makes {view.name!r}", found="an input or an initializer")
    return view.producer


def _view(graph: Graph, key: Any) -> NodeView | TensorView:
    return key if isinstance(key, NodeView | TensorView) else graph[key]


def _views(graph: Graph, keys: Any) -> list[NodeView | TensorView]:
    return [_view(graph, key) for key in (keys if isinstance(keys, list | tuple) else [keys])]


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list | tuple) else value


def _fits(shape: Sequence[int | str] | None, wanted: Sequence[object]) -> bool:
    return (
        shape is not None
        and len(shape) == len(wanted)
        and all(w in _ANY or w == d for d, w in zip(shape, wanted, strict=True))
    )
