"""A graph for other programs: plain JSON, Graphviz, Model Explorer, an ONNX file with its boxes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from converters.view import Shown, shown
from graphtools.errors import UsageError
from graphtools.files import replacing, require_other
from graphtools.hierarchy import namespaces
from graphtools.interchange import to_dot, to_json, to_model_explorer, to_node_data
from graphtools.onnx_save import save_annotated
from graphtools.shapes import shapes
from graphtools.subgraphs import node_count

__all__ = ["NAMESPACE", "Exported", "Format", "export", "node_data_path"]

Format = Literal["json", "dot", "model-explorer", "onnx"]

# The key that torch's exporter uses, and that viewers group nodes by.
NAMESPACE = "namespace"


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        files: the output, then what goes with it: node data, or weights of an ONNX file.
        family: title of the recovered family; None where there is none.
        nodes: how many the model has.
        boxes: how many the nodes are in, nested ones included.
        size: of all files, in bytes.
    """

    format: Format
    files: tuple[Path, ...]
    family: str | None
    nodes: int
    boxes: int
    size: int
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**self.__dict__, "files": [str(path) for path in self.files]}


def export(
    model: Path,
    output: Path,
    format: Format,
    *,
    baseline: Path | None = None,
    ours: Path | None = None,
) -> Exported:
    """Write the graph of a model, in its recovered boxes, in another form.

    Args:
        model: an ONNX file.
        output: the file; an earlier one is replaced when the new one is whole.
        format: ``json`` (docs/export.md describes it), ``dot`` for Graphviz, ``model-explorer``
            for Google's Model Explorer, with node data in `node_data_path`; ``onnx`` is the same
            model with the boxes of every node in its ``metadata_props["namespace"]``.
        baseline: goldens of the model, for node data.
        ours: an engine's tensors, which are compared with the baseline for node data.

    Raises:
        UsageError: a file does not exist, would be replaced, or is of no use for this format.
        UnsupportedError: the model is no ONNX file; the baseline is of another network.
        StorageError: the output cannot be written.
    """
    if format not in get_args(Format):
        raise UsageError("no such format", found=str(format), expected=", ".join(get_args(Format)))
    if format != "model-explorer" and (baseline or ours):
        raise UsageError(
            f"a baseline has no place in the format {format!r}",
            expected="--format model-explorer, which has node data",
            todo="leave --baseline and --compare out, or use `graphtools view`",
        )
    inputs = [model, *(path for path in (baseline, ours) if path is not None)]
    found = shown(model, baseline=baseline, ours=ours)
    files: tuple[Path, ...]
    if format == "onnx":
        files = _annotated(found, output)
    else:
        texts = _texts(found, output, format)
        for path in texts:
            require_other(path, *inputs, *found.graph.model.files())
        _write(texts)
        files = tuple(texts)
    return Exported(
        format=format,
        files=files,
        family=found.net.family.title if found.net is not None else None,
        nodes=node_count(found.graph),
        boxes=sum(1 for _ in found.tree.boxes()) - 1,
        size=sum(path.stat().st_size for path in files),
        notes=found.overlays.notes,
    )


def node_data_path(output: Path) -> Path:
    """Where the node data is that goes with a graph for Model Explorer."""
    return output.with_name(f"{output.stem}.node_data.json")


def _annotated(found: Shown, output: Path) -> tuple[Path, ...]:
    """The model with its boxes; a fused node is where the last of its parts is."""
    spaces = namespaces(found.graph, found.tree)
    notes = {index: {NAMESPACE: "/".join(path)} for index, path in spaces.items()}
    return save_annotated(found.graph.model, notes, output)


def _texts(found: Shown, output: Path, format: Format) -> Mapping[Path, str]:
    graph, tree, overlays = found.graph, found.tree, found.overlays
    known = shapes(graph)
    if format == "json":
        return {output: to_json(graph, tree, overlays, known)}
    if format == "dot":
        return {output: to_dot(graph, tree, overlays, known)}
    stages = found.net.binding.stages if found.net is not None else {}
    return {
        output: to_model_explorer(graph, tree, overlays, known),
        node_data_path(output): to_node_data(graph, overlays, stages),
    }


def _write(texts: Mapping[Path, str]) -> None:
    """Write all files or none."""
    with ExitStack() as stack:
        for path, text in texts.items():
            data = text.encode("utf-8", "replace")
            stack.enter_context(replacing(path, len(data))).write_bytes(data)
