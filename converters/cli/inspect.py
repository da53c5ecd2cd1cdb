"""``graphtools inspect``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from converters.cli.output import console, json_option, print_json, table

if TYPE_CHECKING:
    from converters.archs.arch import StageRow
    from converters.manifest import Manifest
    from converters.sources.source import Source
    from graphtools.report import OnnxReport

__all__ = ["command"]


@click.command()
@click.argument("model")
@click.option("--file", "file", metavar="NAME", help="Which .onnx of a folder or hub repository.")
@click.option("--order", is_flag=True, help="List the weighted nodes in pull order, with slots.")
@json_option
def command(model: str, file: str | None, order: bool, as_json: bool) -> None:
    """Show what MODEL holds: an ONNX file, a checkpoint (only its headers are read), or a GGUF
    of ours.

    \b
    Example:
      graphtools inspect model.onnx
      graphtools inspect checkpoint_folder/
      graphtools inspect model.gguf
    """
    from converters.gguf_file import is_gguf, read
    from graphtools.errors import UsageError

    if is_gguf(Path(model)):
        manifest = read(model)
        if order or file:
            raise UsageError(
                "--order and --file are of ONNX files and folders",
                file=model,
                todo="leave them out: a GGUF lists its tensors in pull order",
            )
        if as_json:
            print_json(_manifest_json(manifest))
        else:
            _print_manifest(manifest)
        return
    from converters.sources.locate import is_checkpoint, locate_to_look
    from converters.sources.source import Source, open_source

    path = locate_to_look(model, file)
    if isinstance(path, Source) or is_checkpoint(path):
        source = path if isinstance(path, Source) else open_source(path)
        _show_checkpoint(source, model, as_json)
        return
    from graphtools.report import report

    found = report(path)
    if as_json:
        print_json(found.to_json())
    elif order:
        table(
            "Weighted nodes in pull order",
            ("#", "slot", "node", "op", "weight", "output"),
            [
                (i, o.slot or "-", o.node, o.op, o.weight, o.output)
                for i, o in enumerate(found.order)
            ],
        )
    else:
        _print_onnx(found)


def _show_checkpoint(source: Source, model: str, as_json: bool) -> None:
    from converters.inspect_checkpoint import inspect_checkpoint

    found = inspect_checkpoint(source, model)
    if as_json:
        print_json(found.to_json())
        return
    out = console()
    out.print(f"{found.model}: {found.arch or 'no known architecture'}")
    for label, text in found.facts.items():
        out.print(f"  {label}: {_clipped(text)}")
    out.print()
    _print_stages(found.stages)
    rows = [(t.module, t.name, list(t.shape), t.dtype, t.fate) for t in found.tensors]
    table("Tensors", ("module", "tensor", "shape", "dtype", "in the GGUF"), rows)


def _print_stages(stages: Sequence[StageRow]) -> None:
    if not stages:
        return
    columns = ("kind", "patch", "in", "d_model", "heads", "layers", "ff", "out", "rate", "window")
    rows = [
        (
            stage.name,
            *(_short(stage.values.get(column, "")).strip("'") for column in columns),
            f"{stage.parameters:,}",
            f"{4 * stage.parameters:,}",
        )
        for stage in stages
    ]
    table("Stages", ("stage", *columns, "parameters", "bytes"), rows)
    console().print()


def _print_onnx(found: OnnxReport) -> None:
    out = console()
    out.print(found.path)
    for label, values in (("input", found.inputs), ("output", found.outputs)):
        for value in values:
            out.print(f"  {label:9}{value}")
    opset = ", ".join(f"{domain or 'ai.onnx'} {v}" for domain, v in found.opset.items())
    out.print(f"  opset    {opset}, IR version {found.ir_version}")
    out.print(f"  producer {found.producer or 'unknown'}")
    out.print(f"  size     {found.nodes} nodes, {found.parameters:,} parameters")
    for key, value in found.metadata.items():
        out.print(f"  metadata {key} = {value}")
    ops = ", ".join(f"{op} {count}" for op, count in found.histogram.items())
    out.print(f"  ops      {ops}")
    out.print()
    if found.family is None:
        for label, text in found.miss.items():
            out.print(text if label == "error" else f"  {label}: {text}")
        return
    out.print(f"Recovered: {found.family}")
    for name, (constant, origin) in found.constants.items():
        out.print(f"  {name} = {constant:g}  ({origin})")
    out.print()
    rows = []
    for block in found.blocks:
        for i, layer in enumerate(block.layers):
            stride = "x".join(map(str, dict.fromkeys(layer.stride))) or "-"
            shortcut = ""
            if i == 0 and "." in block.name:
                shortcut = "conv" if block.shortcut else "identity"
            name = block.name if i == 0 else ""
            rows.append((name, layer.slot, layer.weight, list(layer.shape), stride, shortcut))
    table("Blocks", ("stage", "layer", "weight", "shape", "stride", "shortcut"), rows)


def _print_manifest(manifest: Manifest) -> None:
    meanings = _meanings(manifest)
    table(
        f"{manifest.name} ({manifest.architecture})",
        ("key", "type", "value", "meaning"),
        [(e.key, e.type, _short(e.value), meanings.get(e.key, "")) for e in manifest.entries],
    )
    console().print()
    from converters.archs import ARCHS

    for arch in ARCHS:
        if arch.stages is not None and arch.architecture == manifest.architecture:
            _print_stages(arch.stages(manifest))
    table(
        f"{len(manifest.tensors)} tensors",
        ("tensor", "shape", "dtype"),
        [(t.name, list(t.shape), t.dtype.label) for t in manifest.tensors],
    )


def _short(value: object) -> str:
    if isinstance(value, tuple) and len(value) > 6:
        head = ", ".join(repr(v) for v in value[:4])
        return f"[{head}, ... {len(value)} in all]"
    if isinstance(value, float):
        return f"{value:g}"
    return _clipped(str(list(value)) if isinstance(value, tuple) else repr(value))


def _clipped(text: str) -> str:
    """Long texts by their begin and end; ``--json`` has all of them."""
    return text if len(text) <= 160 else f"{text[:90]} ... {text[-50:]}"


def _meanings(manifest: Manifest) -> dict[str, str]:
    from converters.schema import all_rows

    arch = manifest.by_key.get("voicedetect.arch")
    schema = manifest.architecture if arch is None else str(arch.value)
    rows = all_rows().get(schema, ())
    return {row.key: f"{row.meaning} [{row.unit}]" if row.unit else row.meaning for row in rows}


def _manifest_json(manifest: Manifest) -> dict[str, object]:
    meanings = _meanings(manifest)
    return {
        "general.architecture": manifest.architecture,
        "general.name": manifest.name,
        "keys": [
            {"key": e.key, "type": e.type, "value": e.value, "meaning": meanings.get(e.key, "")}
            for e in manifest.entries
        ],
        "tensors": [
            {"name": t.name, "shape": list(t.shape), "dtype": t.dtype.label}
            for t in manifest.tensors
        ],
    }
