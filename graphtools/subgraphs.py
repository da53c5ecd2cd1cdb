"""The graphs inside If, Loop and Scan as part of the graph around them, to be looked at.

Recovery and the proof take an operation with a graph of its own as one node. A picture shows what
is in it: the nodes move out of the attribute, and the operation is left to read their results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphtools.graph import Graph, build
from graphtools.model import Attribute, Inside, Node, Subgraph, subgraphs
from graphtools.tensors import LazyTensor

__all__ = ["INPUTS", "node_count", "opened"]

# The operator of the nodes that stand for what a subgraph is given. None is in the file.
INPUTS = "Inputs"

# Operations whose operands are, one by one, what their graph is given. Of others
# (com.microsoft.BeamSearch) it is not known where that comes from.
_PASS_OPERANDS = frozenset(("Loop", "Scan", "SequenceMap"))


def opened(graph: Graph) -> Graph:
    """The graph with all nodes of all subgraphs among its own; the same one where there are none.

    Nodes of the model keep their indices, those of subgraphs come after them and say in
    `Node.inside` where they are from. What is left in the attribute is a graph without nodes,
    whose outputs, the results of those that were in it, it reads from around it. A subgraph that
    is given inputs (the body of a Loop) begins with a node `INPUTS`, which gives them: of a Loop,
    Scan or SequenceMap it reads what the operation reads, each operand at the place of the input
    that is made of it.

    Subgraphs may use the same name for tensors of their own; one that is taken gets the subgraph
    after it: ``x of then_branch of node 3``.
    """
    model = graph.model
    if not any(any(subgraphs(node)) for node in model.nodes):
        return graph
    opening = _Opening(graph)
    for node in model.nodes:
        opening.open(node, {})
    return build(replace(model, nodes=tuple(opening.nodes), constants=opening.constants))


def node_count(graph: Graph) -> int:
    """How many nodes there are, without those that stand for a subgraph's inputs."""
    return sum(not node.stands_for_inputs for node in graph.model.nodes)


class _Opening:
    """The nodes and constants so far."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = list(graph.model.nodes)
        self.constants = dict(graph.model.constants)
        self._opset = graph.model.opset.get("", 1)
        self._taken = {*graph.consumers, *(value.name for value in graph.outputs)}

    def open(self, node: Node, names: Mapping[str, str]) -> None:
        """Put a node into its place and what is inside it after all others.

        Args:
            names: what tensors are called here, by their names where the node is.
        """
        attributes: dict[str, Attribute] = dict(node.attributes)
        for attribute, inner in subgraphs(node):
            attributes[attribute] = self._moved(node, attribute, inner, names)
        self.nodes[node.index] = replace(
            node,
            inputs=tuple(names.get(name, name) for name in node.inputs),
            outputs=tuple(names.get(name, name) for name in node.outputs),
            attributes=attributes,
        )

    def _moved(
        self, owner: Node, attribute: str, inner: Subgraph, around: Mapping[str, str]
    ) -> Subgraph:
        path = f"{attribute} of {owner.place}"
        made = (name for node in inner.nodes for name in node.outputs if name)
        own = dict.fromkeys((*inner.inputs, *inner.constants, *made))
        names = {**around, **{name: self._free(name, path) for name in own}}
        for name, tensor in inner.constants.items():
            self.constants[names[name]] = self._renamed(tensor, names[name])
        if inner.inputs:
            given = Inside(owner.index, attribute, None, path)
            operands = self._passed(owner)[: len(inner.inputs)]
            reads = tuple(around.get(name, name) for name in operands)
            gives = tuple(names[name] for name in inner.inputs)
            self.nodes.append(Node(len(self.nodes), INPUTS, "", reads, gives, {}, inside=given))
        begin = len(self.nodes)
        self.nodes += inner.nodes
        for place, node in enumerate(inner.nodes):
            inside = Inside(owner.index, attribute, place, path)
            self.open(replace(node, index=begin + place, inside=inside), names)
        return Subgraph((), (), {}, tuple(names.get(name, name) for name in inner.outputs))

    def _passed(self, owner: Node) -> tuple[str, ...]:
        """The operands of an operation that its graph is given."""
        if owner.op not in _PASS_OPERANDS:
            return ()
        lengths_first = owner.op == "Scan" and self._opset < 9  # of every sequence of the batch
        return owner.inputs[1:] if lengths_first else owner.inputs

    def _free(self, name: str, path: str) -> str:
        found = name
        while found in self._taken:
            found += f" of {path}"
        self._taken.add(found)
        return found

    @staticmethod
    def _renamed(tensor: LazyTensor, name: str) -> LazyTensor:
        return tensor if tensor.name == name else tensor.named(name)
