"""An ONNX file as a page to look at: its boxes, and what the manifest and goldens say of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.gguf_file import is_gguf
from converters.sources.locate import is_checkpoint
from converters.view_goldens import Goldens, read_goldens
from converters.view_manifest import carried, facts, manifest_of, slots
from graphtools.boxes import Box
from graphtools.errors import MissError, UnsupportedError, UsageError
from graphtools.explorer import Mark, Overlays, page
from graphtools.files import replacing, require_other
from graphtools.graph import Graph, build
from graphtools.hierarchy import hierarchy
from graphtools.onnx_file import load
from graphtools.recover import NearMiss, Recovered, recover
from graphtools.shapes import shapes
from graphtools.subgraphs import node_count, opened

__all__ = ["Shown", "View", "shown", "view"]


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
        return {
            "output": str(self.output),
            "family": self.family,
            "nodes": self.nodes,
            "boxes": list(self.boxes),
            "first_wrong": self.first_wrong,
            "size": self.size,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Shown:
    """A model with what is known of it.

    Attributes:
        graph: with what is inside its subgraphs (`graphtools.subgraphs.opened`).
        net: what was recovered; None where the network is none of the known families.
        tree: its boxes.
    """

    graph: Graph
    net: Recovered | None
    tree: Box
    overlays: Overlays


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
    require_other(output, model, *(path for path in (baseline, ours) if path is not None))
    found = shown(model, baseline=baseline, ours=ours)
    graph, net, overlays = found.graph, found.net, found.overlays
    require_other(output, *graph.model.files())
    text = page(graph, found.tree, overlays, shapes(graph)).encode("utf-8", "replace")
    with replacing(output, len(text)) as temp:
        temp.write_bytes(text)
    return View(
        output=output,
        family=net.family.title if net is not None else None,
        nodes=node_count(graph),
        boxes=tuple(
            graph.model.nodes[child].op if isinstance(child, int) else child.name
            for child in found.tree.children
        ),
        first_wrong=overlays.first_wrong,
        size=len(text),
        notes=overlays.notes,
    )


def shown(model: Path, *, baseline: Path | None = None, ours: Path | None = None) -> Shown:
    """Read a model and everything that is shown of it; arguments and errors as for `view`."""
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
    graph = build(load(model))
    net, mark, notes = _recovered(graph)
    manifest = manifest_of(net, notes) if net is not None else None
    goldens = read_goldens(baseline, ours, graph, net, notes) if baseline is not None else Goldens()
    overlays = Overlays(
        title=net.family.title if net is not None else "",
        facts=tuple(facts(manifest, net)),
        labels=slots(net) if net is not None else {},
        carried=carried(graph, manifest) if manifest is not None else {},
        goldens=goldens.figures,
        errors=goldens.errors,
        first_wrong=goldens.first_wrong,
        mark=mark,
        notes=tuple(notes),
    )
    drawn = opened(graph)
    return Shown(drawn, net, hierarchy(drawn, net), overlays)


def _recovered(graph: Graph) -> tuple[Recovered | None, Mark | None, list[str]]:
    """What was recovered, else the node at which the nearest family and the graph part."""
    try:
        found = recover(graph)
    except MissError as error:
        return None, None, [f"{error.cause[:1].upper()}{error.cause[1:]}: {error.found}."]
    if isinstance(found, Recovered):
        return found, None, []
    return None, *_parted(graph, found)


def _parted(graph: Graph, found: NearMiss) -> tuple[Mark | None, list[str]]:
    miss, error = found.miss, found.error(graph)
    cause = f"{error.cause[:1].upper()}{error.cause[1:]}"
    if miss.agreed < _NEAR * miss.total:
        if found.family.title in error.cause:
            return None, ["The network is none of the known families, and near to none of them."]
        return None, [f"{cause}: {error.found}."]  # quantised, say
    note = (
        f"{cause}: they agree for {miss.from_output} of {miss.total} steps from the output and "
        f"{miss.from_input} from the input."
    )
    where = error.where or ""
    at = next((node for node in graph.model.nodes if where.startswith(str(node))), None)
    if at is None:
        return None, [note]
    return Mark(at.index, f"expected {error.expected}, found {error.found}"), [note]
