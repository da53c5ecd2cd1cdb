"""What the manifest says of a network's weights and values, for its page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from converters.archs import arch_of_family
from converters.archs.building import BN_PARTS
from converters.convert import describe
from converters.manifest import Manifest
from converters.schema import all_rows
from graphtools.errors import UnsupportedError
from graphtools.explorer import Carried, Fact
from graphtools.graph import Graph
from graphtools.recover import Recovered
from graphtools.tensors import LazyTensor

__all__ = ["carried", "facts", "manifest_of", "slots"]


def manifest_of(net: Recovered, notes: list[str]) -> Manifest | None:
    """The manifest that ``convert`` would write, or a note that says why there is none."""
    arch = arch_of_family(net.family.name)
    if arch is None:
        notes.append("No engine schema stores this family, so that weights have no keys.")
        return None
    try:
        manifest = describe(net, arch, str(net.graph.model.path))
    except UnsupportedError as error:
        notes.append(
            f"This file cannot be converted: {error.cause} ({error.where or 'the graph'})."
        )
        return None
    notes.extend(manifest.notes)
    return manifest


def facts(manifest: Manifest | None, net: Recovered | None) -> Iterator[Fact]:
    """The manifest's keys; where there is no manifest, the scalars that the family reads."""
    if manifest is None:
        for constant in net.binding.constants.values() if net is not None else ():
            yield Fact(constant.name, f"{constant.value:g}", constant.origin)
        return
    rows = {row.key: row for row in all_rows()[str(manifest["voicedetect.arch"])]}
    for entry in manifest.entries:
        row = rows.get(entry.key)
        meaning = "" if row is None else f"{row.meaning}{f' [{row.unit}]' if row.unit else ''}"
        yield Fact(entry.key, _short(entry.value), entry.origin, meaning)


def _short(value: object) -> str:
    if isinstance(value, tuple):
        head = ", ".join(_short(v) for v in value[:4])
        return f"[{head}{f', .. {len(value)} in all' if len(value) > 4 else ''}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def slots(net: Recovered) -> dict[int, str]:
    """What every node with weights is called in the family, nodes of one layer alike."""
    found: dict[int, str] = {}
    for at, step in enumerate(net.binding.template.steps):
        if step.slot:
            found |= dict.fromkeys(net.binding.nodes[at], step.slot)
    return found


def carried(graph: Graph, manifest: Manifest) -> dict[str, tuple[Carried, ...]]:
    """For every constant of the graph the tensors of the file it became a part of, and the keys
    that name these."""
    places = _places(manifest)
    found: dict[str, list[Carried]] = {}
    for tensor in manifest.tensors:
        key, index = places.get(tensor.name) or places.get(_prefix(tensor.name)) or ("", None)
        for name in dict.fromkeys(_sources(tensor)):
            if name in graph.model.constants:
                place = Carried(key, index, tensor.name, tensor.origin())
                found.setdefault(name, []).append(place)
    return {name: tuple(listed) for name, listed in found.items()}


def _places(manifest: Manifest) -> Mapping[str, tuple[str, int | None]]:
    """Names of tensors, and the prefixes of batch norms, to the key and index that has them."""
    found: dict[str, tuple[str, int | None]] = {}
    for entry in manifest.entries:
        if entry.type == "string":
            found.setdefault(str(entry.value), (entry.key, None))
        elif entry.type == "[string]" and isinstance(entry.value, tuple):
            for index, value in enumerate(entry.value):
                found.setdefault(str(value), (entry.key, index))
    found.pop("", None)
    return found


def _prefix(name: str) -> str:
    stem, _, part = name.rpartition(".")
    return stem if part in BN_PARTS.values() else ""


def _sources(tensor: LazyTensor) -> Iterator[str]:
    """The constants of the graph that a tensor is made of."""
    sources = list(tensor.recipe.sources())
    if not sources:
        yield tensor.origin()
    for source in sources:
        yield from _sources(source)
