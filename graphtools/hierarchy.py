"""A network's boxes: its family's stages, else its exporter's scopes, else its structure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import groupby

from graphtools.arrange import FIRST, INSIDE, Paths, arrange, common
from graphtools.boxes import Box, Kind, Unit, first_node, unique_names
from graphtools.graph import SHAPE_ONLY, Graph, canonical_order
from graphtools.model import Node, subgraphs
from graphtools.recover import Recovered

__all__ = ["hierarchy", "namespaces", "scope"]

# Fewer boxes than this are no first view; a box with this share of the nodes is the network.
_FEW, _MOST = 5, 0.7

# Names with one of these are an exporter's own: "/layer1/Constant_output_0", "onnx::Conv_12".
_NO_PATH = frozenset("/:")

# Boxes inside one another that names of modules make, through all graphs inside graphs; a file may
# hold any name.
_DEEPEST = 40

# Scopes are believed where at least this share of the nodes has one.
_SCOPED = 0.5


def hierarchy(graph: Graph, net: Recovered | None = None) -> Box:
    """The network as nested boxes, `graphtools.arrange.FIRST` at most at once.

    Args:
        graph: any graph; one that `graphtools.subgraphs.opened` gives has boxes for subgraphs.
        net: what was recovered from it, if anything was.
    """
    order = [i for i in canonical_order(graph) if graph.model.nodes[i].op != "Constant"]
    paths = _weight_paths(graph, order) if net is None else _slot_paths(net)
    held: dict[tuple[int, str], list[int]] = {}
    own: list[int] = []
    for index in order:
        at = graph.model.nodes[index].inside
        (own if at is None else held.setdefault((at.owner, at.attribute), [])).append(index)
    units = _stages(net, own) if net is not None else _scoped(graph, own)
    units = [_with_subgraphs(graph, unit, held) for unit in units]
    limits = [_limit(unit, units, len(order)) for unit in units]
    inside = [_arranged(graph, u, paths, most) for u, most in zip(units, limits, strict=True)]
    arranged = arrange(graph, inside, paths, FIRST)
    while len(arranged) == 1 and isinstance(arranged[0], Box) and not arranged[0].stage:
        arranged = arranged[0].children  # a box around everything says nothing
    return Box("network", "network", arranged)


def namespaces(graph: Graph, tree: Box) -> dict[int, tuple[str, ...]]:
    """Names of the boxes around every node, outermost first; the root has no name here.

    A Constant node, which is in no box, is where everything that reads it is.
    """
    found: dict[int, tuple[str, ...]] = {}
    pending: list[tuple[Box, tuple[str, ...]]] = [(tree, ())]
    while pending:
        box, path = pending.pop()
        for child in box.children:
            if isinstance(child, Box):
                pending.append((child, (*path, child.name)))
            else:
                found[child] = path
    for node in graph.model.nodes:
        if node.index not in found:
            readers = [r for name in filter(None, node.outputs) for r, _ in graph.consumers[name]]
            found[node.index] = common(found[reader.index] for reader in readers)
    return found


def scope(node: Node) -> tuple[str, ...]:
    """The modules that a node came from, outermost first, by what the exporter called it; no
    more than `_DEEPEST`."""
    named = node.scope or tuple(filter(None, node.name.split("/")[:-1]))
    return named[:_DEEPEST]


def _arranged(graph: Graph, unit: Unit, paths: Paths, limit: int = INSIDE) -> Unit:
    if not isinstance(unit, Box):
        return unit
    children = [_arranged(graph, child, paths) for child in unit.children]
    return Box(unit.name, unit.kind, arrange(graph, children, paths, limit), unit.stage)


def _limit(unit: Unit, beside: Sequence[Unit], nodes: int) -> int:
    """A box that is nearly all of a network is unfolded with the first view: what is inside
    should fit on the same screen."""
    if len(beside) < _FEW and isinstance(unit, Box) and len(list(unit.nodes())) > _MOST * nodes:
        return FIRST - len(beside)
    return INSIDE


# --- subgraphs ---------------------------------------------------------------------------------


def _with_subgraphs(
    graph: Graph, unit: Unit, held: Mapping[tuple[int, str], Sequence[int]], depth: int = 0
) -> Unit:
    """The unit with a box around every operation that holds graphs: they, and then itself.

    Args:
        held: nodes by the operation and the attribute that they came out of.
        depth: boxes around the unit.
    """
    if isinstance(unit, Box):
        inside = depth + 1
        children = tuple(_with_subgraphs(graph, child, held, inside) for child in unit.children)
        return Box(unit.name, unit.kind, children, unit.stage)
    node = graph.model.nodes[unit]
    boxes = []
    for attribute, _ in subgraphs(node):
        if (unit, attribute) in held:
            inside = depth + 2
            own = _scoped(graph, held[unit, attribute], max(0, _DEEPEST - inside))
            children = tuple(_with_subgraphs(graph, child, held, inside) for child in own)
            while len(children) == 1 and isinstance(children[0], Box):
                children = children[0].children  # a box around everything says nothing
            boxes.append(Box(attribute, "subgraph", children))
    if not boxes:
        return unit
    last = node.name.split("/")[-1]
    return Box(last if node.op in last else f"{node.op} {last}".strip(), "flow", (*boxes, unit))


# --- names of weights --------------------------------------------------------------------------


def _slot_paths(net: Recovered) -> Paths:
    return {layer.node: tuple(slot.split(".")) for slot, layer in net.binding.layers.items()}


def _weight_paths(graph: Graph, order: Iterable[int]) -> Paths:
    """What the names of weights say, where an exporter kept those of the module."""
    found: dict[int, tuple[str, ...]] = {}
    for index in order:
        for name in graph.model.nodes[index].inputs:
            parts = name.split(".")
            if name in graph.model.constants and len(parts) > 1 and not set(name) & _NO_PATH:
                found.setdefault(index, tuple(parts[:-1]))
    return found


# --- stages of a family ------------------------------------------------------------------------


def _stages(net: Recovered, order: Sequence[int]) -> list[Unit]:
    """A node is in the first stage whose tensor it leads to; a shared first name is a box."""
    graph = net.graph
    stage_of: dict[int, str] = {}
    for stage, tensor in net.binding.stages.items():
        pending = [tensor]
        while pending:
            node = graph.producers.get(pending.pop())
            if node is not None and node.index not in stage_of:
                stage_of[node.index] = stage
                pending += node.inputs
    members: dict[str, list[int]] = {stage: [] for stage in net.binding.stages}
    rest: list[Unit] = []
    for index in order:
        members[stage_of[index]].append(index) if index in stage_of else rest.append(index)
    stages = [
        Box(stage, "stage", tuple(_islands_boxed(net, nodes)), stage)
        for stage, nodes in members.items()
        if nodes
    ]
    units: list[Unit] = []
    for prefix, group in groupby(stages, lambda box: box.name.split(".")[0]):
        boxes = tuple(group)
        single = len(boxes) == 1 and "." not in boxes[0].name
        units.append(boxes[0] if single else Box(prefix, "stage", boxes))
    if rest:
        units.append(Box("after the last stage", "part", tuple(rest)))
    return list(unique_names(units))


def _islands_boxed(net: Recovered, nodes: Sequence[int]) -> list[Unit]:
    """The nodes of a stage, weight-free regions as boxes where the stage has more than them."""
    island_of = {
        index: number
        for number, (_, region) in enumerate(net.binding.regions)
        for index in region.nodes
    }
    readers = {
        index: {
            reader.index
            for name in net.graph.model.nodes[index].outputs
            for reader, _ in net.graph.consumers.get(name, ())
        }
        for index in nodes
    }
    for index in nodes:  # a region is of data: a shape that only it reads belongs to it
        owners = {island_of.get(reader) for reader in readers[index]}
        if net.graph.model.nodes[index].op in SHAPE_ONLY and len(owners) == 1:
            (owner,) = owners
            if owner is not None:
                island_of.setdefault(index, owner)
    inside = {index for index in nodes if index in island_of}
    if len(nodes) - len(inside) < 2:
        return list(nodes)
    units: dict[object, list[int]] = {}
    for index in nodes:
        units.setdefault(("island", island_of[index]) if index in inside else index, []).append(
            index
        )
    return [
        Box(net.binding.regions[key[1]][0], "island", tuple(members))
        if isinstance(key, tuple)
        else members[0]
        for key, members in units.items()
    ]


# --- scopes of an exporter ---------------------------------------------------------------------


def _scoped(graph: Graph, order: Sequence[int], deepest: int = _DEEPEST) -> list[Unit]:
    """The nodes of one graph in boxes for its scopes, no more than ``deepest`` inside one another;
    as they are where too few have one."""
    scopes = {index: path[:deepest] for index, path in _scopes(graph, order).items()}
    named = sum(map(bool, scopes.values()))
    if len(set(scopes.values())) < 2 or named < _SCOPED * len(order):
        return list(order)
    return _scope_boxes(scopes, order, 0)


def _scopes(graph: Graph, order: Sequence[int]) -> Mapping[int, tuple[str, ...]]:
    """Scope by node; one that was given no name is where all its readers are."""
    found: dict[int, tuple[str, ...]] = {}
    for index in reversed(order):
        node = graph.model.nodes[index]
        found[index] = scope(node)
        if not found[index]:
            readers = [
                found.get(_holder(graph, reader, found), ())
                for name in filter(None, node.outputs)
                for reader, _ in graph.consumers[name]
            ]
            found[index] = common(readers)
    return found


def _holder(graph: Graph, node: Node, level: Container[int]) -> int:
    """The node, or the operation of this level that holds it in a graph."""
    while node.index not in level and node.inside is not None:
        node = graph.model.nodes[node.inside.owner]
    return node.index


def _scope_boxes(
    scopes: Mapping[int, tuple[str, ...]], nodes: Sequence[int], depth: int
) -> list[Unit]:
    """The nodes of one scope: those of its own, and a box for every scope inside."""
    inside: dict[str, list[int]] = {}
    units: list[Unit] = []
    for index in nodes:
        path = scopes[index]
        if len(path) <= depth:
            units.append(index)
        else:
            inside.setdefault(path[depth], []).append(index)
    for name, members in inside.items():
        children = _scope_boxes(scopes, members, depth + 1)
        units.append(_scope_box(name, "scope", children))
    place = {index: at for at, index in enumerate(nodes)}
    return sorted(units, key=lambda unit: place[first_node(unit)])


def _scope_box(name: str, kind: Kind, children: list[Unit]) -> Unit:
    """A box; what holds one thing alone is that thing."""
    if len(children) > 1:
        return Box(name, kind, tuple(children))
    (child,) = children
    if isinstance(child, Box):
        shown = child.name if child.name.startswith(name) else f"{name}/{child.name}"
        return Box(shown, child.kind, child.children)
    return child
