"""What every runtime asks of a model, checked here: names, operands, lengths of vectors.

Our own checks, since ``onnx.checker`` refuses node orders that onnxruntime runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graphtools.errors import NotAModelError
from graphtools.model import Model, Node

__all__ = ["require_consistent"]


def require_consistent(model: Model, input_counts: Callable[[str, int], tuple[int, int]]) -> None:
    """Every tensor has one producer, every input one, and there is an output; the vectors of a
    layer are as long as its weight says.

    Args:
        model: what was read.
        input_counts: (op, opset) to the fewest and most inputs that the op takes.

    Raises:
        NotAModelError: one of these does not hold; the nodes are named.
    """
    produced = _producers(model, input_counts)
    known = {"", *produced, *model.constants, *(v.name for v in model.inputs)}
    for node in model.nodes:
        for name in node.inputs:
            if name not in known:
                raise NotAModelError(
                    f"nothing produces the tensor {name!r}",
                    file=model.path,
                    where=str(node),
                    todo="the export is broken or cut: make it again",
                )
        _require_lengths(model, node)
    for value in model.outputs:
        if value.name not in known:
            raise NotAModelError(
                f"nothing produces the output {value.name!r}",
                file=model.path,
                todo="the export is broken or cut: make it again",
            )
    if not model.outputs:
        raise NotAModelError("the model has no outputs", file=model.path)


def _producers(
    model: Model, input_counts: Callable[[str, int], tuple[int, int]]
) -> dict[str, Node]:
    given = {v.name for v in model.inputs} | {t.name for t in model.proto.graph.initializer}
    produced: dict[str, Node] = {}
    for node in model.nodes:
        for name in filter(None, node.outputs):
            if name in produced or name in given:
                other = produced.get(name, "an input or initializer of that name")
                raise NotAModelError(
                    f"the tensor {name!r} is produced twice",
                    file=model.path,
                    where=f"{other} and {node}",
                    todo="the export is broken: make it again",
                )
            produced[name] = node
        if node.op == "Split" and "" in node.outputs:  # onnxruntime would end the process
            raise NotAModelError(
                "a part of a Split has no name",
                file=model.path,
                where=str(node),
                expected="a name for each of its parts: none is optional",
                todo="name the part, or export the model again",
            )
        _require_operands(model, node, *input_counts(node.op, model.opset.get("", 1)))
    return produced


def _require_operands(model: Model, node: Node, least: int, most: int) -> None:
    """A standard op has the inputs that it cannot do without, and an output."""
    have = len(node.inputs) if all(node.inputs[:least]) else 0
    if not least <= have <= most or not any(node.outputs):
        raise NotAModelError(
            f"a node has not the inputs and outputs of its kind: {node.op}",
            file=model.path,
            where=str(node),
            expected=f"{least} to {most} inputs and an output",
            found=f"inputs {list(node.inputs)}, outputs {list(node.outputs)}",
            todo="the export is broken: make it again",
        )


def _require_lengths(model: Model, node: Node) -> None:
    """The bias of a layer and the vectors of a batch norm fit, where they are constants."""
    for role, name, shape, wanted in _vectors(model, node):
        if shape != (wanted,):
            raise NotAModelError(
                f"the {role} {name!r} does not fit its layer",
                file=model.path,
                where=str(node),
                expected=f"[{wanted}]",
                found=str(list(shape)),
                todo="the export is broken: make it again",
            )


def _vectors(model: Model, node: Node) -> Iterator[tuple[str, str, tuple[int, ...], int]]:
    """(role, tensor, its shape, the length that it has to have)."""
    names = (*node.inputs, *[""] * 5)
    shapes = {name: model.constants[name].shape for name in names if name in model.constants}
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
