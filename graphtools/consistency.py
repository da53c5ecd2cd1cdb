"""What every runtime asks of a model, checked here: names, operands, lengths of vectors.

Our own checks, since ``onnx.checker`` refuses node orders that onnxruntime runs.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from graphtools.errors import NotAModelError
from graphtools.model import Model, Node, Subgraph, subgraphs
from graphtools.tensors import LazyTensor

__all__ = ["require_consistent"]


# (op, opset) to the places of the inputs that the op needs, and how many it takes at most.
_Operands = Callable[[str, int], tuple[tuple[int, ...], int]]


def require_consistent(model: Model, operands: _Operands) -> None:
    """Every tensor has one producer, every input one, and there is an output; the vectors of a
    layer are as long as its weight says. So in the model's graph, and in those inside.

    Args:
        model: what was read.
        operands: (op, opset) to the places of the inputs that the op needs, and how many it takes
            at most.

    Raises:
        NotAModelError: one of these does not hold; the nodes are named.
    """
    given = {v.name for v in model.inputs} | {t.name for t in model.proto.graph.initializer}
    check = _Check(model, operands)
    check.inputs([value.name for value in model.inputs], "")
    check.graph(model.nodes, model.constants, given, ChainMap(), "")
    known = {*given, *model.constants, *(n for node in model.nodes for n in node.outputs)}
    for value in model.outputs:
        if value.name not in known:
            raise NotAModelError(
                f"nothing produces the output {value.name!r}",
                file=model.path,
                todo="the export is broken or cut: make it again",
            )
    if not model.outputs:
        raise NotAModelError("the model has no outputs", file=model.path)


class _Check:
    """The checks of one graph and of those in its nodes."""

    def __init__(self, model: Model, operands: _Operands) -> None:
        self._path = model.path
        self._opset = model.opset.get("", 1)
        self._operands = operands

    def inputs(self, names: Sequence[str], place: str) -> None:
        """Check that the inputs of a graph have names of their own."""
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise NotAModelError(
                f"two inputs of a graph are called {twice[0]!r}",
                file=self._path,
                where=place.removeprefix(", in ") or None,
                todo="the export is broken: make it again",
            )

    def graph(
        self,
        nodes: Sequence[Node],
        constants: Mapping[str, LazyTensor],
        given: Set[str],
        around: ChainMap[str, None],
        place: str,
    ) -> None:
        """Check the nodes of a graph.

        Args:
            given: names of its inputs and initializers.
            around: names that it may take from the graphs around it.
            place: of the graph, for messages: ``, in body of node 3``; "" for the model's.
        """
        produced = self._producers(nodes, given, place)
        known = around.new_child(dict.fromkeys(("", *produced, *constants, *given)))
        for node in nodes:
            for name in node.inputs:
                if name not in known:
                    raise NotAModelError(
                        f"nothing produces the tensor {name!r}",
                        file=self._path,
                        where=f"{node}{place}",
                        todo="the export is broken or cut: make it again",
                    )
            self._require_lengths(node, constants, place)
            for attribute, inner in subgraphs(node):
                self._subgraph(inner, known, f", in {attribute} of node {node.index}{place}")

    def _subgraph(self, inner: Subgraph, around: ChainMap[str, None], place: str) -> None:
        made = {name for node in inner.nodes for name in node.outputs}
        constants = {n for node in inner.nodes if node.op == "Constant" for n in node.outputs}
        given = {*inner.inputs, *(name for name in inner.constants if name not in constants)}
        self.inputs(inner.inputs, place)
        self.graph(inner.nodes, inner.constants, given, around, place)
        for name in inner.outputs:
            if name not in made and name not in given and name not in around:
                raise NotAModelError(
                    f"nothing produces the output {name!r} of a graph inside another",
                    file=self._path,
                    where=place.removeprefix(", in "),
                    todo="the export is broken or cut: make it again",
                )

    def _producers(self, nodes: Sequence[Node], given: Set[str], place: str) -> dict[str, Node]:
        produced: dict[str, Node] = {}
        for node in nodes:
            for name in filter(None, node.outputs):
                if name in produced or name in given:
                    other = produced.get(name, "an input or initializer of that name")
                    raise NotAModelError(
                        f"the tensor {name!r} is produced twice",
                        file=self._path,
                        where=f"{other} and {node}{place}",
                        todo="the export is broken: make it again",
                    )
                produced[name] = node
            if node.op == "Split" and "" in node.outputs:  # onnxruntime would end the process
                raise NotAModelError(
                    "a part of a Split has no name",
                    file=self._path,
                    where=f"{node}{place}",
                    expected="a name for each of its parts: none is optional",
                    todo="name the part, or export the model again",
                )
            self._require_operands(node, place)
        return produced

    def _require_operands(self, node: Node, place: str) -> None:
        """A standard op has the inputs that it cannot do without, and an output."""
        needed, most = self._operands(node.op, self._opset)
        have = {slot for slot, name in enumerate(node.inputs) if name}
        if not have.issuperset(needed) or len(node.inputs) > most or not any(node.outputs):
            raise NotAModelError(
                f"a node has not the inputs and outputs of its kind: {node.op}",
                file=self._path,
                where=f"{node}{place}",
                expected=f"{max(needed, default=-1) + 1} to {most} inputs and an output",
                found=f"inputs {list(node.inputs)}, outputs {list(node.outputs)}",
                todo="the export is broken: make it again",
            )

    def _require_lengths(self, node: Node, constants: Mapping[str, LazyTensor], place: str) -> None:
        """The bias of a layer and the vectors of a batch norm fit, where they are constants."""
        for role, name, shape, wanted in _vectors(constants, node):
            if shape != (wanted,):
                raise NotAModelError(
                    f"the {role} {name!r} does not fit its layer",
                    file=self._path,
                    where=f"{node}{place}",
                    expected=f"[{wanted}]",
                    found=str(list(shape)),
                    todo="the export is broken: make it again",
                )


def _vectors(
    constants: Mapping[str, LazyTensor], node: Node
) -> Iterator[tuple[str, str, tuple[int, ...], int]]:
    """(role, tensor, its shape, the length that it has to have)."""
    names = (*node.inputs, *[""] * 5)
    shapes = {name: constants[name].shape for name in names if name in constants}
    main, bias = shapes.get(names[1]), shapes.get(names[2])
    if not main:
        return
    if node.op == "Conv" and bias is not None:
        yield "bias", names[2], bias, main[0]
    elif node.op == "Gemm" and len(main) == 2 and bias is not None and len(bias) == 1:
        wanted = main[0] if node.integer("transB", 0) else main[1]
        if bias != (1,):  # one for all is allowed
            yield "bias", names[2], bias, wanted
    elif node.op == "BatchNormalization":
        for role, name in zip(("scale", "bias", "mean", "variance"), names[1:5], strict=True):
            if name in shapes:
                yield role, name, shapes[name], main[0]
