"""What a baseline and an engine's tensors say of the stages of a network, for its page."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from converters.archs import arch_of_family
from converters.arrays import Arrays, open_arrays
from converters.comparison import Comparison, Row, compare
from converters.goldens import ARCHITECTURE, file_sha256
from converters.matching import keyed, stages_of
from graphtools.errors import UnsupportedError
from graphtools.explorer import Error, Golden
from graphtools.explorer.statistics import statistics
from graphtools.graph import Graph
from graphtools.recover import Recovered

__all__ = ["Goldens", "read_goldens"]


@dataclass(frozen=True)
class Goldens:
    """By stage, or by name of what is no stage; ``first_wrong`` is "" where nothing is wrong."""

    figures: Mapping[str, Golden] = field(default_factory=dict)
    errors: Mapping[str, Error] = field(default_factory=dict)
    first_wrong: str = ""


def read_goldens(
    baseline: Path, ours: Path | None, graph: Graph, net: Recovered | None, notes: list[str]
) -> Goldens:
    """Read a baseline, and compare an engine's tensors with it.

    Args:
        baseline: what ``graphtools baseline`` wrote.
        ours: the engine's tensors, if there are any.
        graph, net: what is shown.
        notes: gets a sentence about what does not fit together.

    Raises:
        UnsupportedError: the baseline is of another network.
    """
    arrays = open_arrays(baseline)
    _require_same_network(arrays, net, notes)
    stages, noise = stages_of(arrays), _noise(arrays)
    figures: dict[str, Golden] = {}
    for name in arrays.readers:
        values, stage = arrays.read(name), stages.get(name, name)
        found = statistics(values, columns=0)
        if found is not None:
            moments = (found.minimum, found.maximum, found.mean, found.std)
            figures[stage] = Golden(values.shape, *moments, noise.get(stage))
    shown = {*graph.producers, *(net.binding.stages if net is not None else ())}
    if not shown & set(figures):
        notes.append("None of the goldens is a stage or a tensor of this file.")
    if ours is None:
        return Goldens(figures)
    compared = compare(baseline, ours)
    notes.extend(_remarks(compared))
    return Goldens(
        figures,
        {row.stage or row.name: _error(row) for row in compared.rows},
        _first_wrong(compared, shown, notes),
    )


def _first_wrong(compared: Comparison, shown: Collection[str], notes: list[str]) -> str:
    """The first stage or tensor that differs and is on the page; one that the engine lacks only
    where no other is wrong."""
    wrong = sorted(compared.failures, key=lambda row: not row.ours)  # in execution order else
    names = {row.stage or row.name: row for row in wrong}
    first = next((name for name in names if name in shown), "")
    if compared.first is not None and names.get(first) is not compared.first:
        notes.append(f"The first tensor that differs is not on the page: {compared.first.name}.")
    return first


def _remarks(compared: Comparison) -> Iterator[str]:
    for hint in compared.hints:
        yield f"Hint: {hint}."
    if compared.extra:
        yield f"The engine has {len(compared.extra)} tensors that no golden has."


def _error(row: Row) -> Error:
    apart = row.difference
    size = None if apart is None else apart.max_abs
    cosine = None if apart is None else apart.cosine
    return Error(size, row.bound, cosine, row.problem, row.note, missing=not row.ours)


def _noise(arrays: Arrays) -> dict[str, float]:
    listed = keyed(arrays, "baseline.stages", "[string]")
    return dict(zip(listed, keyed(arrays, "baseline.noise", "[f32]"), strict=False))


def _called(net: Recovered | None) -> tuple[str, ...]:
    """What a baseline may call the network."""
    if net is None:
        return ()
    arch = arch_of_family(net.family.name)
    return tuple(dict.fromkeys([net.family.name, *([arch.name] if arch is not None else [])]))


def _require_same_network(arrays: Arrays, net: Recovered | None, notes: list[str]) -> None:
    keys = {} if arrays.manifest is None else arrays.manifest.by_key
    if arrays.manifest is not None and arrays.manifest.architecture != ARCHITECTURE:
        raise UnsupportedError(
            "the baseline holds no goldens",
            file=arrays.path,
            expected=ARCHITECTURE,
            found=arrays.manifest.architecture,
            todo="make one: `graphtools baseline`",
        )
    stored = keys.get("baseline.arch")
    names = _called(net)
    if stored is not None and stored.value not in names:
        raise UnsupportedError(
            "the baseline is of another network",
            file=arrays.path,
            expected=" or ".join(dict.fromkeys(names))
            or "goldens of any ONNX model, since this one is not known",
            found=str(stored.value),
            todo="make one of this model: `graphtools baseline`",
        )
    digest = keys.get("baseline.model_sha256")
    own = "" if net is None else file_sha256(net.graph.model.path)
    # Digests of files with weights follow the model's own.
    if net is not None and digest is not None and str(digest.value).split(",")[0] != own:
        notes.append("The baseline was made of another file of this network.")
