"""An engine's tensors against goldens: which one differs first, by how much, and perhaps why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from converters.arrays import Arrays, open_arrays
from converters.blocks import Block, blocks
from converters.compare import Difference
from converters.gates import Gates, judge, judge_codes
from converters.goldens import ARCHITECTURE
from converters.hints import Trial, hints
from converters.matching import Pairing, keyed, margin_of, pair
from graphtools.errors import UsageError

__all__ = ["Comparison", "Row", "Source", "compare"]

# A baseline, or any GGUF, .npz, .npy, .bin or folder of arrays; or arrays by name.
Source = Path | Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One golden and what the engine has for it.

    Attributes:
        ours: the engine's name for it; "" where it has none.
        stage: the stage of the recovered network that it is; "" where that is not known.
        difference: None where the shapes do not fit.
        bound: the largest max|d| that is right; None where there is none.
        problem: why it is wrong; "" where it is right.
        note: what is worth knowing of one that is right.
    """

    name: str
    ours: str
    shape: tuple[int, ...]
    difference: Difference | None
    bound: float | None
    problem: str
    note: str = ""
    stage: str = ""

    @property
    def excess(self) -> float | None:
        """max|d| over its bound; None of what has no bound."""
        if self.difference is None or self.bound is None:
            return None
        largest = self.difference.max_abs
        if self.bound:
            return largest / self.bound
        return float("inf") if largest else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data; without the numbers where the shapes do not fit."""
        return {
            "name": self.name,
            "ours": self.ours,
            "stage": self.stage,
            "shape": list(self.shape),
            "bound": self.bound,
            "problem": self.problem,
            "note": self.note,
            **({} if self.difference is None else asdict(self.difference)),
        }


@dataclass(frozen=True)
class Comparison:
    """The result; truthy when everything is there and right.

    Attributes:
        rows: in execution order, where the baseline says it, else in the golden file's.
        pairing: the arrays that were compared; they are read when asked for.
        weights: weight tensors by golden, of a baseline.
        hints: what would make the first wrong tensor right.
    """

    rows: tuple[Row, ...]
    pairing: Pairing = field(repr=False)
    weights: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hints: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.extra and not self.failures

    @property
    def extra(self) -> tuple[str, ...]:
        """The engine's tensors that no golden has."""
        return self.pairing.extra

    @cached_property
    def failures(self) -> tuple[Row, ...]:
        """What is wrong or missing."""
        return tuple(row for row in self.rows if row.problem)

    @cached_property
    def missing(self) -> tuple[Row, ...]:
        """Goldens that the engine has no tensor for."""
        return tuple(row for row in self.rows if not row.ours)

    @cached_property
    def first(self) -> Row | None:
        """The first wrong tensor in execution order; a missing one only where no other is wrong."""
        wrong = (row for row in self.failures if row.ours)
        return next(wrong, next(iter(self.failures), None))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The rows by block of the network, in execution order."""
        return blocks(self.rows, self.first)

    @property
    def order(self) -> str:
        """What the rows are in the order of; only a baseline says what was computed when."""
        return "execution order" if _is_baseline(self.pairing.golden) else "the goldens' order"

    def place(self, row: Row) -> tuple[int, Block]:
        """Where a row stands in execution order, from 0, and the block that it is in."""
        at = next(i for i, other in enumerate(self.rows) if other is row)
        return at, next(b for b in self.blocks if any(other is row for other in b.rows))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "equal": bool(self),
            "compared": len(self.rows) - len(self.missing),
            "failed": len(self.failures),
            "first": None if self.first is None else self.first.name,
            "weights": [] if self.first is None else [*self.weights.get(self.first.name, ())],
            "hints": list(self.hints),
            "missing": [row.name for row in self.missing],
            "extra": list(self.extra),
            "blocks": [block.to_json() for block in self.blocks],
            "rows": [row.to_json() for row in self.rows],
        }

    def __repr__(self) -> str:
        right = len(self.rows) - len(self.failures)
        first = "" if self.first is None else f"; first wrong: {self.first.name}"
        return f"<Comparison: {right} of {len(self.rows)} tensors are right{first}>"

    def _repr_html_(self) -> str:
        from converters.comparison_html import fragment

        return fragment(self)


def compare(
    golden: Source,
    ours: Source,
    *,
    names: Mapping[str, str] | None = None,
    gates: Gates | None = None,
) -> Comparison:
    """Compare every golden with what the engine wrote; one pair is in memory at a time.

    Args:
        golden: a baseline, or any GGUF, ``.npz``, ``.npy``, ``.bin`` or folder of arrays; or
            arrays by name.
        ours: the engine's, in any of these forms.
        names: golden name to the engine's name, where they differ.
        gates: when a tensor is right.

    Raises:
        UsageError: the map names what is not there, nothing can be matched, or only ``ours`` is
            a baseline.
        NotAModelError: a file is damaged.
        UnsupportedError: a file is none of these, or holds something else than numbers.
    """
    gates = gates or Gates()
    a, b = open_arrays(golden), open_arrays(ours)
    if not _is_baseline(a) and _is_baseline(b):
        raise UsageError(
            "the second of the two is a baseline, and the first is none",
            file=b.path,
            todo="name the goldens first, then what the engine wrote",
        )
    pairing = pair(a, b, names)
    noise = _by_name(pairing, dict(_of_stages(pairing, "baseline.noise", "[f32]")))
    weights = _by_name(pairing, dict(_of_stages(pairing, "baseline.stage_weights", "[string]")))
    taps = keyed(pairing.golden, "baseline.tensors", "[string]")
    weights |= zip(taps, keyed(pairing.golden, "baseline.tap_weights", "[string]"), strict=False)
    rows = tuple(_row(pairing, name, gates, noise.get(name, 0.0)) for name in pairing.pairs)
    listed = {name: tuple(filter(None, line.split("\n"))) for name, line in weights.items()}
    result = Comparison(rows, pairing, listed)
    first = result.first
    if first is None or not first.ours:
        return result
    found = _hints(result, first, gates, noise.get(first.name, 0.0))
    return Comparison(rows, pairing, result.weights, found)


def _is_baseline(arrays: Arrays) -> bool:
    return arrays.manifest is not None and arrays.manifest.architecture == ARCHITECTURE


def _of_stages(pairing: Pairing, key: str, type: str) -> list[tuple[str, Any]]:
    stages = keyed(pairing.golden, "baseline.stages", "[string]")
    return list(zip(stages, keyed(pairing.golden, key, type), strict=False))


def _by_name(pairing: Pairing, of_stages: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of stages, of the goldens that they are."""
    named = {name: of_stages.get(stage) for name, stage in pairing.stages.items()}
    return {name: value for name, value in named.items() if value is not None}


def _row(pairing: Pairing, name: str, gates: Gates, noise: float) -> Row:
    stage, other = pairing.stages.get(name, ""), pairing.pairs[name]
    if not other:
        shape = pairing.golden.read(name).shape
        return Row(name, "", shape, None, None, "ours has no such tensor", stage=stage)
    golden, ours = pairing.read(name)
    if golden.shape != ours.shape:
        problem = f"shape {list(ours.shape)} where {list(golden.shape)} should be"
        bound = gates.bound(golden, noise)
        return Row(name, other, golden.shape, None, bound, problem, stage=stage)
    margin = margin_of(pairing.golden, name)
    if margin is None:
        found = judge(golden, ours, gates, noise)
    else:
        found = judge_codes(golden, ours, margin)
    verdict = (found.difference, found.bound, found.problem, found.note)
    return Row(name, other, golden.shape, *verdict, stage)


def _hints(found: Comparison, row: Row, gates: Gates, noise: float) -> tuple[str, ...]:
    """What makes the first wrong tensor right; of other goldens, the nearest ones that could be
    it come first."""
    golden, ours = found.pairing.read(row.name)
    exact = row.bound is None or (golden.dtype.kind in "iub" and gates.absolute is None)
    gates = replace(gates, absolute=0.0) if exact else gates
    at, _ = found.place(row)
    alike = [i for i, r in enumerate(found.rows) if i != at and math.prod(r.shape) == ours.size]
    others = {
        (found.rows[i].name, i - at): partial(found.pairing.golden.read, found.rows[i].name)
        for i in sorted(alike, key=lambda i: abs(i - at))
    }
    return hints(Trial(golden, ours, gates, noise), others)
