"""``graphtools view``."""

from __future__ import annotations

from pathlib import Path

import click

from converters.cli.output import json_option, output_option, print_json

__all__ = ["command"]


@click.command()
@click.argument("model")
@click.option("--file", "file", metavar="NAME", help="Which .onnx of a folder or hub repository.")
@output_option(
    "FILE", "The page; by default the model's name with .html, in this folder.", required=False
)
@click.option(
    "--baseline",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Goldens of this model: their figures by stage.",
)
@click.option(
    "--compare",
    "ours",
    metavar="OURS",
    type=click.Path(path_type=Path),
    help="An engine's tensors, compared with the baseline: boxes are coloured by error.",
)
@click.option("--no-open", is_flag=True, help="Do not open the page in the browser.")
@json_option
def command(
    model: str,
    file: str | None,
    output: Path | None,
    baseline: Path | None,
    ours: Path | None,
    no_open: bool,
    as_json: bool,
) -> None:
    """Write a page that shows MODEL, an ONNX file, as boxes to unfold, and open it. The page is
    one file; it needs no server and no network.

    \b
    Example:
      graphtools view model.onnx
      graphtools view model.onnx --baseline baseline.gguf --compare engine_dump/ --no-open
    """
    from converters.sources.locate import locate
    from converters.view import view

    path = locate(model, file)
    found = view(path, output or Path(f"{path.stem}.html"), baseline=baseline, ours=ours)
    if as_json:
        print_json(found.to_json())
        return
    click.echo(f"{found.output}: {found.family or 'no known family'}, {found.nodes} nodes")
    click.echo(f"  first seen: {', '.join(found.boxes)}")
    if found.first_wrong:
        click.echo(f"  first stage that differs: {found.first_wrong}")
    for note in found.notes:
        click.echo(f"  note: {note}")
    if not no_open:
        import webbrowser

        if not webbrowser.open(found.output.resolve().as_uri()):
            click.echo("  no browser was found: open that file in one")
