"""A model as a graph, and the questions that recovery asks of it.

``Graph.net`` is the same as a networkx MultiDiGraph: a node is a node's index in the file (data:
``node``), an edge goes from producer to consumer and is keyed by ``(tensor name, input slot)``.
All functions here take linear time and none depends on the order of nodes in the file.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from graphtools.dominators import immediate_dominators
from graphtools.model import Model, Node, Value, subgraphs
from graphtools.navigate import Navigation
from graphtools.tensors import DType, LazyTensor, Reshape, Transpose, Widen

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "ENTRY",
    "SEE_THROUGH",
    "SHAPE_ONLY",
    "Graph",
    "Region",
    "build",
    "canonical_order",
    "constant",
    "ends",
    "is_weight",
    "regions_above",
    "scalar",
    "see",
    "upstream",
]

# The virtual node before all graph inputs.
ENTRY = -1

# Ops that move data without changing values. Recovery looks through them: whether the layout
# they make is the right one is decided by the proof, which compares numbers.
SEE_THROUGH = frozenset(
    ("Identity", "Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Dropout")
)

# What these give depends on the shape of their input alone, so data does not flow through.
SHAPE_ONLY = frozenset(("Shape", "Size"))


@dataclass(frozen=True, eq=False)
class Graph(Navigation):
    """A model with its producers and consumers.

    Attributes:
        producers: tensor name to the node that makes it.
        consumers: tensor name to (node, input slot) pairs in file order; slot -1 is a read
            from inside a subgraph attribute.
    """

    model: Model
    producers: Mapping[str, Node]
    consumers: Mapping[str, tuple[tuple[Node, int], ...]]

    def __repr__(self) -> str:
        return f"<Graph {self.model.path.name}: {len(self.model.nodes)} nodes>"

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.model.inputs

    def input(self, name: str) -> Value:
        """The graph's input of that name."""
        return next(value for value in self.model.inputs if value.name == name)

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.model.outputs

    @cached_property
    def net(self) -> nx.MultiDiGraph[int]:
        """The nodes by index, with an edge for every read.

        For questions that are not asked here: no command waits for networkx to be imported.
        """
        import networkx as nx

        net: nx.MultiDiGraph[int] = nx.MultiDiGraph()
        net.add_nodes_from((node.index, {"node": node}) for node in self.model.nodes)
        net.add_edges_from(
            (self.producers[name].index, node.index, (name, slot))
            for name, reads in self.consumers.items()
            if name in self.producers
            for node, slot in reads
        )
        return net

    @cached_property
    def dominators(self) -> Mapping[int, int]:
        """Immediate dominator of every node that input *data* reaches, from `ENTRY`.

        Edges out of Shape and Size are left out: other exporters compute every shape from the
        graph's input, which would make the input the dominator of everything.
        """
        after: dict[int, list[int]] = {ENTRY: []}
        for value in self.model.inputs:
            after[ENTRY] += [node.index for node, _ in self.consumers[value.name]]
        for node in self.model.nodes:
            outputs = () if node.op in SHAPE_ONLY else filter(None, node.outputs)
            after[node.index] = [r.index for name in outputs for r, _ in self.consumers[name]]
        return immediate_dominators(after, ENTRY)


@dataclass(frozen=True)
class Region:
    """A single-entry region of the data graph.

    Attributes:
        entry: the tensor through which all data comes in.
        exit: the tensor it gives.
        nodes: indices of the nodes between, the producer of ``exit`` included.
    """

    entry: str
    exit: str
    nodes: frozenset[int]


def build(model: Model) -> Graph:
    """The graph of a checked model (see `graphtools.onnx_file.load`)."""
    producers = {o: node for node in model.nodes for o in node.outputs if o}
    readers: dict[str, list[tuple[Node, int]]] = {
        name: [] for name in (*producers, *model.constants, *(v.name for v in model.inputs))
    }
    for node in model.nodes:
        reads = [(name, slot) for slot, name in enumerate(node.inputs) if name]
        for _, inner in subgraphs(node):
            reads += [(name, -1) for name in inner.reads if name in readers]
        for name, slot in reads:
            readers[name].append((node, slot))
    return Graph(model, producers, {name: tuple(r) for name, r in readers.items()})


def see(graph: Graph, tensor: str) -> str:
    """The tensor that holds the same values before any layout op."""
    seen = {tensor}
    while (node := graph.producers.get(tensor)) is not None and node.op in SEE_THROUGH:
        tensor = node.inputs[0]
        if tensor in seen:  # a cycle: no order of this graph can run
            break
        seen.add(tensor)
    return tensor


def constant(graph: Graph, tensor: str) -> LazyTensor | None:
    """The constant behind a tensor, through Identity, Cast and layout ops; else None.

    It is named after the last Identity on the way, or after the initializer: an exporter that
    merged byte-equal parameters keeps the names of the others as Identity outputs.
    """
    return _constant(graph, tensor, set())


def scalar(graph: Graph, tensor: str) -> float | None:
    """The value of a constant of one element; None when it is anything else."""
    found = constant(graph, tensor)
    if found is None or found.size != 1 or found.dtype in (DType.STRING, DType.OTHER):
        return None
    return float(found.read().reshape(-1)[0])


def ends(graph: Graph, output: str) -> Iterator[str]:
    """The tensors that hold the values of ``output``: itself, then what a vector of zeros is
    subtracted from to give it (WeSpeaker exports one unless it is told a mean)."""
    yield output
    node = graph.producers.get(see(graph, output))
    if node is not None and node.op == "Sub":
        offset = constant(graph, node.inputs[1])
        if offset is not None and offset.dtype.is_float and not offset.read().any():
            yield node.inputs[0]


def regions_above(graph: Graph, exit: str) -> Iterator[Region]:
    """Single-entry regions that end at ``exit``, smallest first, while they hold no weights.

    A region may hold scalar constants, shapes and masks, no other constant of more than one
    element and no subgraph: a layer hidden in a pooling would have one.
    """
    last = graph.producers.get(exit)
    if last is None or last.index not in graph.dominators:
        return
    nodes: set[int] = set()
    frontier = [last]
    above = graph.dominators[last.index]
    while above != ENTRY:
        top = graph.model.nodes[above]
        while frontier:
            node = frontier.pop()
            if node.index == above or node.index in nodes:
                continue
            nodes.add(node.index)
            if any(subgraphs(node)):
                return  # a layer could hide in there
            for name in filter(None, node.inputs):
                if is_weight(graph, name):
                    return
                if name in graph.producers:
                    producer = graph.producers[name]
                    if producer.op not in SHAPE_ONLY:
                        frontier.append(producer)
        entries = {
            name
            for name in top.outputs
            for node, _ in graph.consumers.get(name, ())
            if node.index in nodes
        }
        if top.op not in SEE_THROUGH and len(entries) == 1:
            yield Region(entries.pop(), exit, frozenset(nodes))
        frontier = [top]
        above = graph.dominators[above]


def canonical_order(graph: Graph) -> tuple[int, ...]:
    """Node indices in an execution order that is the same for every order of the file.

    Depth first from the graph's outputs, inputs in slot order, producers before consumers;
    nodes that no output needs come last, as the file has them.
    """
    order: dict[int, None] = {}
    roots = [graph.producers.get(v.name) for v in graph.outputs]
    for root in (*filter(None, roots), *graph.model.nodes):
        stack: list[tuple[Node, Iterator[str]]] = [(root, root.reads())]
        entered = {root.index}
        while stack:
            node, reads = stack[-1]
            if node.index in order:
                stack.pop()
                continue
            for name in reads:
                producer = graph.producers.get(name)
                if producer and producer.index not in order and producer.index not in entered:
                    entered.add(producer.index)
                    stack.append((producer, producer.reads()))
                    break
            else:
                order[node.index] = None
                stack.pop()
    return tuple(order)


def upstream(graph: Graph, entries: Collection[str], exits: Iterable[str]) -> frozenset[int]:
    """Indices of the nodes that ``exits`` need where the values of ``entries`` are given."""
    needed: set[int] = set()
    pending = [name for name in exits if name not in entries]
    while pending:
        node = graph.producers.get(pending.pop())
        if node is not None and node.index not in needed:
            needed.add(node.index)
            pending += [name for name in node.reads() if name not in entries]
    return frozenset(needed)


def is_weight(graph: Graph, tensor: str) -> bool:
    """A constant that a layer could be made of: more than one element, and no shape or mask."""
    found = constant(graph, tensor)
    if found is None:
        return False
    return found.size > 1 and found.dtype not in (DType.I64, DType.I32, DType.BOOL)


def _constant(graph: Graph, tensor: str, entered: set[int]) -> LazyTensor | None:
    """`constant`; ``entered`` holds the nodes on the way here, so that a cycle ends."""
    chain: list[Node] = []
    while tensor not in graph.model.constants:
        node = graph.producers.get(tensor)
        if node is None or node.op not in SEE_THROUGH or node.index in entered:
            return None
        entered.add(node.index)
        chain.append(node)
        tensor = node.inputs[0]
    found: LazyTensor | None = graph.model.constants[tensor]
    for node in reversed(chain):
        found = _applied(graph, node, found, entered) if found is not None else None
    entered.difference_update(node.index for node in chain)  # another way may lead here too
    return found


def _applied(graph: Graph, node: Node, source: LazyTensor, entered: set[int]) -> LazyTensor | None:
    """A constant after one see-through node; None where no runtime would run that."""
    if node.op == "Identity":
        return source.named(node.outputs[0])
    if node.op == "Dropout":
        return source
    if node.op == "Cast":
        widens = node.integer("to", 0) == 1 and source.dtype.is_float  # 1: TensorProto.FLOAT
        if widens and source.dtype is not DType.F32:
            return LazyTensor(source.name, source.shape, DType.F32, Widen(source))
        return source if widens else None
    rank = len(source.shape)
    if node.op == "Transpose":
        axes = node.integers("perm", tuple(reversed(range(rank))))
        if sorted(axes) != list(range(rank)):
            return None
        shape = tuple(source.shape[a] for a in axes)
        return LazyTensor(source.name, shape, source.dtype, Transpose(source, axes))
    shape_now = _reshaped(graph, node, source, entered)
    if shape_now is None or math.prod(shape_now) != source.size or any(d < 0 for d in shape_now):
        return None
    return LazyTensor(source.name, shape_now, source.dtype, Reshape(source))


def _reshaped(
    graph: Graph, node: Node, source: LazyTensor, entered: set[int]
) -> tuple[int, ...] | None:
    shape = source.shape
    if node.op == "Flatten":
        axis = node.integer("axis", 1)
        return (math.prod(shape[:axis]), math.prod(shape[axis:]))
    listed = node.integers("axes", ())
    if len(node.inputs) > 1 and node.inputs[1]:
        operand = _constant(graph, node.inputs[1], entered)
        if operand is None or operand.dtype not in (DType.I64, DType.I32):
            return None
        listed = tuple(int(v) for v in operand.read().reshape(-1))
    if node.op == "Reshape":
        wanted = [shape[i] if v == 0 and i < len(shape) else v for i, v in enumerate(listed)]
        if wanted.count(-1) == 1:
            rest = -math.prod(wanted)
            wanted[wanted.index(-1)] = source.size // rest if rest else 0
        return tuple(wanted)
    rank = len(shape) + (len(listed) if node.op == "Unsqueeze" else 0)
    axes = [a + rank if a < 0 else a for a in listed]
    if len(set(axes)) != len(axes) or any(not 0 <= a < rank for a in axes):
        return None
    if node.op == "Squeeze":
        drop = set(axes) if listed else {i for i, d in enumerate(shape) if d == 1}
        if any(shape[a] != 1 for a in drop):
            return None
        return tuple(d for i, d in enumerate(shape) if i not in drop)
    rest_dims = iter(shape)
    return tuple(1 if i in axes else next(rest_dims) for i in range(rank))
