"""Which family a graph is: exactly one must bind, else the nearest miss is explained."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from graphtools.blocks import BlockView, blocks_of, stages_of
from graphtools.errors import MissError
from graphtools.explain import explain
from graphtools.families import FAMILIES, Family
from graphtools.graph import Graph, ends
from graphtools.unify import Binding, Miss, unify

__all__ = ["NearMiss", "Recovered", "network_of", "recover"]


@dataclass(frozen=True, eq=False)
class Recovered:
    """A graph whose family is known.

    Attributes:
        family: the family that bound.
        config: its configuration.
        binding: where every slot, constant and stage stands in the graph.
    """

    graph: Graph
    family: Family
    config: Any
    binding: Binding

    def __repr__(self) -> str:
        slots, config = len(self.binding.layers), str(self.config)
        shown = config if len(config) <= 80 else f"{config[:77]}..."
        return f"<Recovered {self.family.title}: {slots} slots, {shown}>"

    def _repr_html_(self) -> str:
        """For notebooks: the explorer, with the slots of the family."""
        from graphtools.explorer import Overlays, inline
        from graphtools.hierarchy import hierarchy
        from graphtools.subgraphs import opened

        graph = opened(self.graph)
        labels = {layer.node: slot for slot, layer in self.binding.layers.items()}
        overlays = Overlays(title=self.family.title, labels=labels)
        return inline(graph, hierarchy(graph, self), overlays, graph.values)

    @cached_property
    def stages(self) -> tuple[BlockView, ...]:
        """The stages that have weights, in execution order."""
        return stages_of(self.binding.template.stage_slots(), self.binding.layers)

    @cached_property
    def blocks(self) -> tuple[BlockView, ...]:
        """The stages that repeat: ``net.blocks[7].conv2.weight`` is a lazy tensor."""
        return blocks_of(self.stages)


@dataclass(frozen=True)
class NearMiss:
    """The family that came nearest, and the first difference."""

    family: Family
    config: Any
    miss: Miss

    def __repr__(self) -> str:
        miss = self.miss
        reason = (
            f"at {miss.reason.where}: {miss.reason.expected} expected, {miss.reason.found} found"
        )
        return f"<NearMiss {self.family.title}: {reason}>"

    def error(self, graph: Graph) -> MissError:
        """The same as an error, for callers that need a family."""
        return explain(graph, self.family.title, self.miss)


def recover(graph: Graph) -> Recovered | NearMiss:
    """Try every family with every configuration it guesses, on every output.

    A reading that has a place for the subtraction of zeros at an output goes before those that
    look past it.

    Raises:
        MissError: more than one reading binds, so that the file's meaning is ambiguous.
    """
    found: list[Recovered] = []
    misses: list[NearMiss] = []
    ends_of = [tuple(ends(graph, value.name)) for value in graph.outputs]
    for family in FAMILIES.values():
        for config in dict.fromkeys(family.guess(graph) if family.guess else ()):
            template = family.template(config)
            for tensor in (end for group in ends_of for end in group):
                result = unify(template, graph, tensor)
                if isinstance(result, Binding):
                    found.append(Recovered(graph, family, config, result))
                else:
                    misses.append(NearMiss(family, config, result))
    bound = {r.binding.output for r in found}
    past = {end for group in ends_of if group[0] in bound for end in group[1:]}
    found = [r for r in found if r.binding.output not in past]
    if len(found) > 1:
        raise MissError(
            "the network can be read in more than one way",
            file=graph.model.path,
            found=", ".join(f"{r.family.title} at output {r.binding.output!r}" for r in found),
            todo="export it with the embedding as its only output",
        )
    if found:
        return found[0]
    # Of equally near networks the smallest: as many steps are the largest part of it.
    return max(misses, key=lambda near: (near.miss.agreed, -near.miss.total))


def network_of(graph: Graph) -> Recovered | None:
    """What the graph is recovered as; None where it is no family's, or several readings bind."""
    try:
        found = recover(graph)
    except MissError:
        return None
    return found if isinstance(found, Recovered) else None
