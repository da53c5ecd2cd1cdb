"""What a baseline and an engine's tensors say of the stages of a network, for its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from converters.archs import arch_of_family
from converters.arrays import Arrays, open_arrays
from converters.comparison import Row, compare
from converters.goldens import file_sha256
from graphtools.errors import UnsupportedError
from graphtools.explorer import Error, Golden
from graphtools.explorer.statistics import statistics
from graphtools.recover import Recovered

__all__ = ["Goldens", "read_goldens"]


@dataclass(frozen=True)
class Goldens:
    """By name of the golden; ``first_wrong`` is "" where nothing is wrong."""

    figures: Mapping[str, Golden] = field(default_factory=dict)
    errors: Mapping[str, Error] = field(default_factory=dict)
    first_wrong: str = ""


def read_goldens(
    baseline: Path, ours: Path | None, net: Recovered | None, notes: list[str]
) -> Goldens:
    """Read a baseline, and compare an engine's tensors with it.

    Args:
        baseline: what ``graphtools baseline`` wrote.
        ours: the engine's tensors, if there are any.
        net: the network that is shown.
        notes: gets a sentence about what does not fit together.

    Raises:
        UnsupportedError: the baseline is of another network.
    """
    arrays = open_arrays(baseline)
    _require_same_network(arrays, net, notes)
    noise = _noise(arrays)
    figures: dict[str, Golden] = {}
    for name in arrays.readers:
        values = arrays.read(name)
        found = statistics(values, columns=0)
        if found is not None:
            figures[name] = Golden(
                values.shape, found.minimum, found.maximum, found.mean, found.std, noise.get(name)
            )
    if ours is None:
        return Goldens(figures)
    compared = compare(baseline, ours)
    errors = {row.name: _error(row) for row in compared.rows}
    stages = net.binding.stages if net is not None else {}
    wrong = [row.name for row in compared.failures]
    first = next((name for name in wrong if name in stages), "")
    if compared.first is not None and compared.first.name != first:
        notes.append(f"The first tensor that differs is {compared.first.name}, before any stage.")
    notes.extend(f"{hint[:1].upper()}{hint[1:]}" for hint in compared.hints)
    if compared.extra:
        notes.append(f"{len(compared.extra)} tensors of the engine have no golden.")
    return Goldens(figures, errors, first)


def _error(row: Row) -> Error:
    apart = row.difference
    if apart is None:
        return Error(None, row.bound, None, row.problem, row.note)
    return Error(apart.max_abs, row.bound, apart.cosine, row.problem, row.note)


def _noise(arrays: Arrays) -> dict[str, float]:
    manifest = arrays.manifest
    if manifest is None or "baseline.noise" not in manifest.by_key:
        return {}
    stages = manifest.get("baseline.stages", "[string]")
    return dict(zip(stages, manifest.get("baseline.noise", "[f32]"), strict=False))


def _require_same_network(arrays: Arrays, net: Recovered | None, notes: list[str]) -> None:
    keys = {} if arrays.manifest is None else arrays.manifest.by_key
    if net is None:
        notes.append("The network is none of the known families: goldens have no boxes to be in.")
        return
    stored = keys.get("baseline.arch")
    arch = arch_of_family(net.family.name)
    names = (net.family.name, *([arch.name] if arch is not None else []))
    if stored is not None and stored.value not in names:
        raise UnsupportedError(
            "the baseline is of another network",
            file=arrays.path,
            expected=" or ".join(names),
            found=str(stored.value),
            todo="make one of this model: `graphtools baseline`",
        )
    digest = keys.get("baseline.model_sha256")
    if digest is not None and digest.value != file_sha256(net.graph.model.path):
        notes.append("The baseline was made of another file of this network.")
