"""Why a graph is none of the known families, as an error that says what to do.

A miss alone says where two structures part. Three kinds of file deserve a better answer: one
that is no original export (quantised, or laid out for one processor), one with control flow where
a layer should be, and a known network with more after its embedding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphtools.errors import MissError
from graphtools.graph import SEE_THROUGH, Graph, canonical_order, see
from graphtools.model import Node, subgraphs
from graphtools.unify import Miss

__all__ = ["explain"]


@dataclass(frozen=True)
class _Form:
    """A form of file that no structure can be read from; ``ops`` are parts of operator names."""

    ops: tuple[str, ...]
    cause: str
    expected: str
    todo: str


_FORMS = (
    _Form(
        ("com.microsoft.nchwc.",),
        "the model is optimised for one CPU, its weights are blocked and padded",
        "operators of the ONNX standard",
        "use the original export",
    ),
    _Form(
        (
            "Quantize",
            "quantize",
            "QLinear",
            "Integer",
            ".QGemm",
            ".QAttention",
            "MatMulNBits",
            "MatMulBnb4",
        ),
        "the model is a quantised export, its weights are rounded to integers",
        "float weights",
        "use the float one",
    ),
)


def explain(graph: Graph, title: str, miss: Miss) -> MissError:
    """The error for a graph whose nearest family is ``title`` and differs by ``miss``."""
    return (
        _other_form(graph)
        or _control_flow(graph, title, miss)
        or _more_after(graph, title, miss)
        or MissError(
            f"the network is none of the known families; nearest is {title}",
            file=graph.model.path,
            where=f"{miss.reason.where}, where {miss.step.label()} should be",
            expected=miss.reason.expected,
            found=miss.reason.found,
            todo=(
                f"{_agreement(miss)}; look at it with `graphtools view`; `graphtools baseline "
                "--tap` makes goldens of any model"
            ),
        )
    )


def _agreement(miss: Miss) -> str:
    return (
        f"agrees for {miss.from_output} of {miss.total} steps from the output and "
        f"{miss.from_input} from the input"
    )


def _other_form(graph: Graph) -> MissError | None:
    nodes = list(_in_order(graph))
    for form in _FORMS:
        strange = [node for node in nodes if any(part in node.op for part in form.ops)]
        if strange:
            return MissError(
                form.cause,
                file=graph.model.path,
                where=str(strange[0]),
                expected=form.expected,
                found=f"{_ops(strange)}: {len(strange)} of {len(nodes)} nodes",
                todo=form.todo,
            )
    return None


def _control_flow(graph: Graph, title: str, miss: Miss) -> MissError | None:
    """A node with a body of its own where the first difference is."""
    for node in graph.model.nodes:
        bodies = [inner for _, inner in subgraphs(node)]
        if bodies and str(node) in f"{miss.reason.where} {miss.reason.found}":
            reads = ", ".join(dict.fromkeys(name for body in bodies for name in body.reads))
            return MissError(
                f"the network has control flow; nearest is {title}",
                file=graph.model.path,
                where=f"{node}, where {miss.step.label()} should be",
                expected=miss.reason.expected,
                found=f"{node.op}, whose bodies read {reads or 'nothing from outside'}",
                todo=(
                    "layers inside a body are not looked for: export the model with that "
                    f"condition or loop fixed; {_agreement(miss)}"
                ),
            )
    return None


def _more_after(graph: Graph, title: str, miss: Miss) -> MissError | None:
    """The whole family is there, and its embedding is not the output."""
    if miss.result is None:
        return None
    after = _after(graph, miss.result)
    wanted = _before(graph, miss.output)
    extra = [n for n in _in_order(graph) if n.index in after & wanted]
    more = [node for node in extra if node.op not in SEE_THROUGH]
    if not more:
        return None
    return MissError(
        f"the network is {title}, but its embedding is not the output",
        file=graph.model.path,
        where=str(more[0]),
        expected=f'the embedding "{see(graph, miss.result)}" as the output "{miss.output}"',
        found=f"{_ops(more)} between them",
        todo=(
            "export the model without what follows the embedding (it agrees for all of "
            f"{miss.total} steps from the input)"
        ),
    )


def _after(graph: Graph, tensor: str) -> set[int]:
    """Nodes that a tensor reaches."""
    found: set[int] = set()
    pending = [tensor]
    while pending:
        for node, _ in graph.consumers.get(pending.pop(), ()):
            if node.index not in found:
                found.add(node.index)
                pending += node.outputs
    return found


def _before(graph: Graph, tensor: str) -> set[int]:
    """Nodes that a tensor is made by."""
    found: set[int] = set()
    pending = [tensor]
    while pending:
        node = graph.producers.get(pending.pop())
        if node is not None and node.index not in found:
            found.add(node.index)
            pending += node.inputs
    return found


def _in_order(graph: Graph) -> Iterator[Node]:
    return (graph.model.nodes[index] for index in canonical_order(graph))


def _ops(nodes: list[Node]) -> str:
    return ", ".join(dict.fromkeys(node.op for node in nodes))
