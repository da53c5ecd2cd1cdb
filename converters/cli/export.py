"""``graphtools export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from converters.cli.output import json_option, output_option, print_json

if TYPE_CHECKING:
    from converters.export import Format

__all__ = ["command"]

_FORMATS = ("json", "dot", "model-explorer", "onnx")


@click.command()
@click.argument("model")
@click.option("--file", "file", metavar="NAME", help="Which .onnx of a folder or hub repository.")
@click.option(
    "--format", "format", type=click.Choice(_FORMATS), required=True, help="What to write."
)
@output_option("FILE", "The file to write.")
@click.option(
    "--baseline",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Goldens of this model, as node data for Model Explorer.",
)
@click.option(
    "--compare",
    "ours",
    metavar="OURS",
    type=click.Path(path_type=Path),
    help="An engine's tensors, compared with the baseline: node data are errors.",
)
@json_option
def command(
    model: str,
    file: str | None,
    format: Format,
    output: Path,
    baseline: Path | None,
    ours: Path | None,
    as_json: bool,
) -> None:
    """Write the graph of MODEL, an ONNX file, in its recovered boxes, for other programs.

    \b
    json            plain JSON for scripts: nodes, tensors, boxes, slots
    dot             Graphviz, a cluster for every box
    model-explorer  Google's Model Explorer: the graph, and node data beside it
    onnx            the same model; every node says its box in metadata_props

    \b
    Example:
      graphtools export model.onnx --format onnx -o boxed.onnx
      graphtools export model.onnx --format dot -o model.dot
      graphtools export model.onnx --format model-explorer -o graph.json \\
          --baseline baseline.gguf --compare engine_dump/
    """
    from converters.export import export
    from converters.sources.locate import locate

    done = export(locate(model, file), output, format, baseline=baseline, ours=ours)
    if as_json:
        print_json(done.to_json())
        return
    for path in done.files:
        click.echo(f"{path}")
    click.echo(f"  {done.family or 'no known family'}, {done.nodes} nodes in {done.boxes} boxes")
    for note in done.notes:
        click.echo(f"  note: {note}")
