"""The matching reading of a forward: its template against a graph, backwards from an output.

Every tensor has one producer, so going backwards there is nothing to choose except the order of
a commutative op's operands and how far an island reaches. Steps are visited in reverse trace
order: when a step's turn comes, every step that reads it has said which tensor it must be, and
all of them must mean the same one. A choice that fails is undone and the next one tried. Wrong
choices fail within a few steps, so the whole is linear in practice; a cap refuses the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from graphtools.graph import Graph, Region, see
from graphtools.islands import Constant, Mismatch
from graphtools.match import Layer, Match, describe
from graphtools.matchers import MATCHERS
from graphtools.ops import LAYOUT
from graphtools.trace import Step, Template

__all__ = ["Binding", "Miss", "unify"]

# Undone choices per step before the search is given up. Real exports need fewer than one.
_UNDO_PER_STEP = 20


@dataclass(frozen=True)
class Binding:
    """A template found in a graph.

    Attributes:
        template: what was found.
        layers: what fills each slot, in pull order.
        constants: the scalars the template names; all places that carry one agree.
        stages: stage name to the tensor that the next stage reads, in execution order.
        regions: the islands, in execution order, with their kinds.
        input, output: the graph's tensors at both ends.
        nodes: step number to the nodes that stand for it.
    """

    template: Template
    layers: Mapping[str, Layer]
    constants: Mapping[str, Constant]
    stages: Mapping[str, str]
    regions: tuple[tuple[str, Region], ...]
    input: str
    output: str
    nodes: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class Miss:
    """The deepest agreement of a template with a graph, and where it ended.

    Attributes:
        output: the tensor that was read as the result.
        step: the step that did not fit.
        reason: where, what was expected and what was found.
        from_output: steps that agreed, counted from the output.
    """

    template: Template
    graph: Graph
    output: str
    step: Step
    reason: Mismatch
    from_output: int

    @property
    def total(self) -> int:
        """Steps of the template."""
        return len(self.template.steps)

    @property
    def from_input(self) -> int:
        """Steps that agree, counted from the input: looked for when a miss is explained."""
        if self.from_output == self.total:  # every step fits, and two of them contradict
            return self.total
        return len(self._forward)

    @property
    def result(self) -> str | None:
        """The tensor that holds the template's result, where all of it fits going forward: the
        graph has more after it."""
        return self._forward[-1] if len(self._forward) == self.total else None

    @cached_property
    def _forward(self) -> list[str]:
        if self.from_output == self.total:  # every step fits, and two of them contradict
            return []
        return _agreement_from_input(self.template, self.graph)

    @property
    def agreed(self) -> int:
        """Steps that agree, from either side; for telling which miss is nearer."""
        return self.from_output + self.from_input


def unify(template: Template, graph: Graph, output: str) -> Binding | Miss:
    """Find ``template`` in ``graph`` with ``output`` as its result.

    Returns a `Miss` when it is not there; a miss is a value, not an error.
    """
    search = _Search(template, graph)
    failure = search.run(output)
    if failure is None:
        return search.binding(output)
    step, reason, depth = failure
    return Miss(template, graph, output, template.steps[step], reason, depth)


class _Search:
    def __init__(self, template: Template, graph: Graph) -> None:
        self.template = template
        self.graph = graph
        # Tensors that each step is asked to be, in the order they were asked.
        self.asked: list[list[str]] = [[] for _ in template.steps]
        self.taken: dict[int, Match] = {}
        self.trail: list[int] = []

    def run(self, output: str) -> tuple[int, Mismatch, int] | None:
        """None when everything fits, else (step, why, steps matched) of the deepest try."""
        steps = self.template.steps
        self.asked[-1].append(output)
        choices: list[tuple[int, list[Match], int]] = []
        deepest: tuple[int, Mismatch, int] | None = None
        budget = _UNDO_PER_STEP * len(steps)
        at = len(steps) - 1
        while at >= 0:
            found = self.candidates(at)
            if isinstance(found, Mismatch):
                matched = len(steps) - 1 - at
                tried = (at, found, matched)
                if deepest is None or _tells_more(tried, deepest):
                    deepest = tried
                if not choices or budget == 0:
                    return deepest
                budget -= 1
                at, found, mark = choices.pop()
                self.undo(mark)
            if len(found) > 1:
                choices.append((at, found[1:], len(self.trail)))
            self.take(at, found[0])
            at -= 1
        return None

    def candidates(self, at: int) -> list[Match] | Mismatch:
        step, asked = self.template.steps[at], self.asked[at]
        tensor = asked[0]
        source = see(self.graph, tensor)
        for other in asked[1:]:
            if see(self.graph, other) != source:
                first = describe(self.graph, tensor)
                second = describe(self.graph, other)
                expected = f"one tensor that all readers of {step.label()} share"
                return Mismatch(first, expected, f"{first} and {second}")
        if step.kind == "input":
            if source in {v.name for v in self.graph.inputs}:
                return [Match(())]
            return Mismatch(describe(self.graph, tensor), "the graph's input", "an operation")
        if step.kind in LAYOUT:
            return [Match((tensor,))]
        return MATCHERS[step.kind](self.graph, step, tensor)

    def take(self, at: int, match: Match) -> None:
        self.taken[at] = match
        for operand, tensor in zip(self.template.steps[at].operands, match.operands, strict=True):
            self.asked[operand].append(tensor)
            self.trail.append(operand)

    def undo(self, mark: int) -> None:
        while len(self.trail) > mark:
            self.asked[self.trail.pop()].pop()

    def binding(self, output: str) -> Binding | Miss:
        steps = self.template.steps
        layers = {}
        constants: dict[str, Constant] = {}
        for at, step in enumerate(steps):
            match = self.taken[at]
            if match.layer is not None:
                layers[step.slot] = match.layer
            for found in match.constants:
                known = constants.setdefault(found.name, found)
                if known.value != found.value:
                    reason = Mismatch(
                        found.origin,
                        f"the same {found.name} everywhere ({known.value:g} at {known.origin})",
                        f"{found.value:g}",
                    )
                    return Miss(self.template, self.graph, output, step, reason, len(steps))
        stages = {s.name: self.asked[i][0] for i, s in enumerate(steps) if s.kind == "stage"}
        regions = tuple(
            (step.name, region)
            for at, step in enumerate(steps)
            if (region := self.taken[at].region) is not None
        )
        return Binding(
            template=self.template,
            layers=layers,
            constants=constants,
            stages=stages,
            regions=regions,
            input=see(self.graph, self.asked[0][0]),
            output=output,
            nodes={at: match.nodes for at, match in self.taken.items()},
        )


def _tells_more(tried: tuple[int, Mismatch, int], best: tuple[int, Mismatch, int]) -> bool:
    """Whether a failed try explains more: it went deeper, or as deep and found nearly what it
    looked for (that the other operand of an addition is something else is no news)."""
    if tried[2] != best[2]:
        return tried[2] > best[2]
    differing = [
        len(set(miss.expected.split(", ")) ^ set(miss.found.split(", ")))
        for _, miss, _ in (tried, best)
    ]
    return differing[0] < differing[1]


def _agreement_from_input(template: Template, graph: Graph) -> list[str]:
    """The tensors of the steps that fit, going forward from the input; for explanations only.

    Where several tensors could be a step's result, the farthest is tried first; a choice that
    leads nowhere is undone, as in `_Search`.
    """
    if len(graph.inputs) != 1:
        return []
    steps = template.steps
    values = [graph.inputs[0].name]
    deepest: list[str] = []
    choices: list[tuple[int, list[str]]] = []
    budget = _UNDO_PER_STEP * len(steps)
    while len(values) < len(steps):
        step = steps[len(values)]
        options = _results(graph, step, [values[o] for o in step.operands])
        if not options:
            if len(values) > len(deepest):
                deepest = list(values)
            if not choices or budget == 0:
                return deepest
            budget -= 1
            mark, options = choices.pop()
            del values[mark:]
        if len(options) > 1:
            choices.append((len(values), options[1:]))
        values.append(options[0])
    return values


def _results(graph: Graph, step: Step, operands: list[str]) -> list[str]:
    """The tensors that can be a step's result, given what its operands are."""
    if step.kind in LAYOUT:
        return operands[:1]
    sources = [see(graph, tensor) for tensor in operands]
    found = []
    for tensor in _reachable(graph, operands[0]):
        matches = MATCHERS[step.kind](graph, step, tensor)
        if not isinstance(matches, Mismatch) and any(
            [see(graph, o) for o in match.operands] == sources for match in matches
        ):
            found.append(tensor)
    return found


def _reachable(graph: Graph, tensor: str, limit: int = 60) -> list[str]:
    """Outputs of the nodes after ``tensor``, the farthest first: a step may span several."""
    found: dict[str, None] = {}
    frontier = [see(graph, tensor)]
    while frontier and len(found) < limit:
        name = frontier.pop(0)
        for node, _ in graph.consumers.get(name, ()):
            new = [o for o in node.outputs if o and o not in found]
            found |= dict.fromkeys(new)
            frontier += new
    return list(reversed(found))
