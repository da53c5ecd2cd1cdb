"""Any intermediate tensors of a model: which ones a user means, how large they are, their values.

Everything runs in onnxruntime on one thread with optimisations off, and many tensors in several
runs, so that those that are held at one time fit a budget.
"""

from __future__ import annotations

import difflib
import fnmatch
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphtools.errors import UnsupportedError, UsageError
from graphtools.graph import Graph, canonical_order, is_weight, upstream
from graphtools.onnx_edit import SegmentRule, inner_tensors, own_tensors
from graphtools.runtime import Runner, dtype_of
from graphtools.tensors import Array, DType

__all__ = ["Chosen", "Tap", "choose", "plan", "run_taps", "weights_before"]

_STORED = "a constant of the file, which no node computes"
_INSIDE = "inside a subgraph, which no output of the model can reach"
# onnxruntime hands a run's results over as copies, so that each is held twice for a moment; one
# of 8 bytes is held twice more while it is stored as float32 and compared with that.
_COPIES = 2


@dataclass(frozen=True)
class Chosen:
    """What patterns mean in one graph.

    Attributes:
        tensors: in an execution order that is the same for every order of the file.
        omitted: tensors that fit a pattern and cannot be had, with the reason.
    """

    tensors: tuple[str, ...]
    omitted: Mapping[str, str]


@dataclass(frozen=True)
class Tap:
    """A tensor that will be had, of a size that is known before it is.

    Attributes:
        shape: numpy axis order, for the inputs that were planned with.
        dtype: as onnxruntime gives it (half precision is widened to f32).
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * (self.dtype.itemsize or 0)


def choose(graph: Graph, patterns: Iterable[str], stages: Mapping[str, str]) -> Chosen:
    """The tensors that patterns mean.

    A pattern is, tried in this order: a tensor's name; a stage of the recovered network; a block
    of it (``layer2`` is every stage ``layer2.*``); a node's name, for its outputs; ``op:TYPE``;
    ``all``; a glob over the names of tensors and stages. Constants are chosen by their name or
    type alone. The name of an input is no error and adds nothing: its values are known.

    Args:
        stages: stage name to tensor name, of a recovered network; empty without one.

    Raises:
        UsageError: a pattern fits nothing; the closest names are listed.
    """
    inner, own = inner_tensors(graph.model), own_tensors(graph.model)
    nodes = [graph.model.nodes[i] for i in canonical_order(graph)]
    made = {o: node for node in nodes for o in node.outputs if o in own}
    flows = [name for name in made if name not in graph.model.constants]
    by_node: dict[str, list[str]] = {}
    by_op: dict[str, list[str]] = {}
    for name, node in made.items():
        by_op.setdefault(node.op, []).append(name)
        if node.name:
            by_node.setdefault(node.name, []).append(name)
    for name, op in inner.items():
        by_op.setdefault(op, []).append(name)
    inputs = [value.name for value in graph.inputs]
    stored = [name for name in graph.model.constants if name not in made]
    computed = [name for name, op in inner.items() if op != "Constant"]

    def meant(pattern: str) -> list[str]:
        if pattern in made or pattern in inner or pattern in inputs or pattern in stored:
            return [pattern]
        if pattern in stages:
            return [stages[pattern]]
        if block := [t for s, t in stages.items() if s.startswith(f"{pattern}.")]:
            return block
        if pattern in by_node:
            return by_node[pattern]
        if pattern.startswith("op:"):
            return [n for op in fnmatch.filter(by_op, pattern[3:]) for n in by_op[op]]
        if pattern == "all":
            return [*flows, *computed]
        found = [t for s, t in stages.items() if fnmatch.fnmatchcase(s, pattern)]
        return found + [n for n in (*flows, *computed) if fnmatch.fnmatchcase(n, pattern)]

    wanted: set[str] = set()
    for pattern in patterns:
        found = meant(pattern)
        if not found:
            blocks = dict.fromkeys(stage.rpartition(".")[0] for stage in stages)
            ops = (f"op:{op}" for op in by_op)
            raise _unknown(graph, pattern, (*filter(None, blocks), *flows, *stages, *by_node, *ops))
        wanted.update(found)
    # A name may stand both inside and outside: then the one outside is meant.
    omitted = {name: _INSIDE for name in inner if name in wanted and name not in made}
    omitted |= {name: _STORED for name in stored if name in wanted}
    return Chosen(tuple(name for name in made if name in wanted), omitted)


def plan(
    graph: Graph, chosen: Chosen, feeds: Mapping[str, Array], rule: SegmentRule | None
) -> tuple[tuple[Tap, ...], Mapping[str, str]]:
    """Shape and type of every tensor, and those that cannot be had with the reason.

    Shapes are those of a run that returns shapes alone, so that data-dependent ones are right.

    Raises:
        UnsupportedError: onnxruntime refuses the model or the inputs.
    """
    if not chosen.tensors:
        return (), dict(chosen.omitted)
    omitted = dict(chosen.omitted)
    types = Runner.frugal(graph.model, chosen.tensors, rule).types
    kinds: dict[str, DType] = {}
    for name, type in zip(chosen.tensors, types, strict=True):
        dtype = dtype_of(type)
        if dtype.numpy is None:
            omitted[name] = f"a {type}, which is no array of numbers"
        else:
            kinds[name] = dtype
    shapes = Runner.shapes(graph.model, [*kinds], rule).run(feeds) if kinds else {}
    taps = [
        Tap(name, tuple(int(d) for d in shape), kinds[name])
        for name, shape in zip(kinds, shapes.values(), strict=True)
    ]
    return tuple(taps), omitted


def run_taps(
    graph: Graph,
    taps: Sequence[Tap],
    feeds: Mapping[str, Array],
    rule: SegmentRule | None,
    *,
    budget: int,
    started: Callable[[int], None] | None = None,
) -> Iterator[tuple[Tap, Array]]:
    """The values of every tap, in order, batch axis included.

    Args:
        budget: bytes that values may take at one time.
        started: called with the number of runs before the first one.

    Raises:
        UnsupportedError: one tensor alone is larger than the budget; onnxruntime fails.
    """
    slices = _slices(graph, taps, budget)
    if started is not None:
        started(len(slices))
    for part in slices:
        found = Runner.frugal(graph.model, [tap.name for tap in part], rule).run(feeds)
        for tap in part:
            yield tap, found.pop(tap.name)


def weights_before(graph: Graph, tensors: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """For every tensor the constants that it is computed with from the other ones, in an
    execution order; shapes, masks and scalars are left out.
    """
    place = {index: at for at, index in enumerate(canonical_order(graph))}
    known = set(tensors)
    found: dict[str, tuple[str, ...]] = {}
    for tensor in tensors:
        known.remove(tensor)
        inside = sorted(upstream(graph, known, [tensor]), key=place.__getitem__)
        known.add(tensor)
        reads = (name for index in inside for name in graph.model.nodes[index].reads())
        found[tensor] = tuple(dict.fromkeys(n for n in reads if _is_own_weight(graph, n)))
    return found


def _is_own_weight(graph: Graph, name: str) -> bool:
    """A weight under the name that the file has for it, before any layout op."""
    return name in graph.model.constants and is_weight(graph, name)


def _slices(graph: Graph, taps: Sequence[Tap], budget: int) -> list[list[Tap]]:
    """Consecutive taps that fit the budget together."""
    slices: list[list[Tap]] = []
    room = 0
    for tap in taps:
        need = _COPIES * tap.size * (2 if tap.dtype.itemsize == 8 else 1)
        if need > budget:
            raise UnsupportedError(
                f"the tensor {tap.name!r} does not fit the memory that may be used",
                file=graph.model.path,
                expected=f"{need / 1e6:.0f} MB for it beside what the model takes",
                found=f"{max(budget, 0) / 1e6:.0f} MB",
                todo="allow more with --max-memory, or leave the tensor out",
            )
        if not slices or need > room:
            slices.append([])
            room = budget
        slices[-1].append(tap)
        room -= need
    return slices


def _unknown(graph: Graph, pattern: str, names: Sequence[str]) -> UsageError:
    close = difflib.get_close_matches(pattern, names, n=5, cutoff=0.4)
    return UsageError(
        f"no tensor, stage, block or node is called {pattern!r}",
        file=graph.model.path,
        found=f"closest: {', '.join(close)}" if close else f"{len(names)} other names",
        todo="name a tensor, a stage, op:TYPE, a glob, or all",
    )
