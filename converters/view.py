"""An ONNX file as a page to look at: its boxes, and what the manifest and goldens say of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.archs import arch_of_family
from converters.archs.building import BN_PARTS
from converters.convert import describe
from converters.gguf_file import is_gguf
from converters.manifest import Manifest
from converters.schema import all_rows
from converters.sources.locate import is_checkpoint
from converters.view_goldens import Goldens, read_goldens
from graphtools.errors import MissError, UnsupportedError, UsageError
from graphtools.explorer import Carried, Fact, Mark, Overlays, page
from graphtools.files import replacing, require_other
from graphtools.graph import Graph, build
from graphtools.hierarchy import hierarchy
from graphtools.onnx_file import load
from graphtools.recover import NearMiss, Recovered, recover
from graphtools.shapes import shapes
from graphtools.tensors import LazyTensor

__all__ = ["View", "view"]


# A family is near where this share of its steps agrees; any two networks agree in a few.
_NEAR = 0.2


@dataclass(frozen=True)
class View:
    """The page that was written.

    Attributes:
        family: title of the recovered family; None where there is none.
        boxes: names of those that are seen first.
        first_wrong: the first stage in which an engine differs; "" for none.
        size: of the file, in bytes.
    """

    output: Path
    family: str | None
    nodes: int
    boxes: tuple[str, ...]
    first_wrong: str
    size: int
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**self.__dict__, "output": str(self.output)}


def view(
    model: Path, output: Path, *, baseline: Path | None = None, ours: Path | None = None
) -> View:
    """Write one HTML file that shows a model; it needs nothing else and asks for nothing.

    Args:
        model: an ONNX file.
        output: the page; an earlier one is replaced when the new one is whole.
        baseline: goldens of the model, whose figures are shown by stage.
        ours: an engine's tensors in any form that `converters.comparison.compare` reads; they
            are compared with the baseline.

    Raises:
        UsageError: a file does not exist; ``ours`` without a baseline.
        UnsupportedError: the model is no ONNX file; the baseline is of another network.
    """
    if ours is not None and baseline is None:
        raise UsageError(
            "an engine's tensors are compared with goldens, and none are given",
            todo="add --baseline FILE; `graphtools baseline` writes one",
        )
    if is_checkpoint(model) or is_gguf(model):
        raise UnsupportedError(
            "only an ONNX file has a graph to draw",
            file=model,
            todo=f"give the ONNX file; `graphtools inspect {model}` shows what this one holds",
        )
    require_other(output, model, *(path for path in (baseline, ours) if path is not None))
    graph = build(load(model))
    net, mark, notes = _recovered(graph)
    manifest = _manifest(net, notes) if net is not None else None
    goldens = read_goldens(baseline, ours, net, notes) if baseline is not None else Goldens()
    overlays = Overlays(
        title=net.family.title if net is not None else "",
        facts=tuple(_facts(manifest, net)),
        labels=_slots(net) if net is not None else {},
        carried=_carried(graph, manifest) if manifest is not None else {},
        goldens=goldens.figures,
        errors=goldens.errors,
        first_wrong=goldens.first_wrong,
        mark=mark,
        notes=tuple(notes),
    )
    tree = hierarchy(graph, net)
    text = page(graph, tree, overlays, shapes(graph)).encode("utf-8", "replace")
    with replacing(output, len(text)) as temp:
        temp.write_bytes(text)
    return View(
        output=output,
        family=net.family.title if net is not None else None,
        nodes=len(graph.model.nodes),
        boxes=tuple(
            graph.model.nodes[child].op if isinstance(child, int) else child.name
            for child in tree.children
        ),
        first_wrong=goldens.first_wrong,
        size=len(text),
        notes=tuple(notes),
    )


def _recovered(graph: Graph) -> tuple[Recovered | None, Mark | None, list[str]]:
    """What was recovered, else the node at which the nearest family and the graph part."""
    try:
        found = recover(graph)
    except MissError as error:
        return None, None, [f"{error.cause}: {error.found}"]
    if isinstance(found, Recovered):
        return found, None, []
    return None, *_parted(graph, found)


def _parted(graph: Graph, found: NearMiss) -> tuple[Mark | None, list[str]]:
    miss = found.miss
    if miss.agreed < _NEAR * miss.total:
        return None, ["The network is none of the known families, and near to none of them."]
    error = found.error(graph)
    where = error.where or ""
    note = (
        f"{error.cause[:1].upper()}{error.cause[1:]}: they agree for {miss.from_output} of "
        f"{miss.total} steps from the output and {miss.from_input} from the input."
    )
    at = next((node for node in graph.model.nodes if where.startswith(str(node))), None)
    if at is None:
        return None, [note]
    return Mark(at.index, f"expected {error.expected}, found {error.found}"), [note]


def _manifest(net: Recovered, notes: list[str]) -> Manifest | None:
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


def _facts(manifest: Manifest | None, net: Recovered | None) -> Iterator[Fact]:
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


def _slots(net: Recovered) -> dict[int, str]:
    """What every node with weights is called in the family, nodes of one layer alike."""
    found: dict[int, str] = {}
    for at, step in enumerate(net.binding.template.steps):
        if step.slot:
            found |= dict.fromkeys(net.binding.nodes[at], step.slot)
    return found


def _carried(graph: Graph, manifest: Manifest) -> dict[str, tuple[Carried, ...]]:
    """For every constant of the graph the tensors of the file it became a part of, and the keys
    that name these."""
    places = _places(manifest)
    found: dict[str, list[Carried]] = {}
    for tensor in manifest.tensors:
        key, index = places.get(tensor.name) or places.get(_prefix(tensor.name)) or ("", None)
        for name in dict.fromkeys(_sources(tensor)):
            if name in graph.model.constants:
                carried = Carried(key, index, tensor.name, tensor.origin())
                found.setdefault(name, []).append(carried)
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
