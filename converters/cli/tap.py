"""``graphtools tap``."""

from __future__ import annotations

from pathlib import Path

import click

from converters.cli.output import json_option, output_option, print_json, table

__all__ = ["command"]


@click.command()
@click.option(
    "--module",
    "spec",
    required=True,
    metavar="PACKAGE.MODULE:FACTORY",
    help="Imported and called without arguments; it returns the torch module. Runs that code.",
)
@click.option("--weights", metavar="PATH", type=click.Path(path_type=Path), help="A checkpoint.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="NPY",
    help="An argument of its forward (repeatable); NAME=NPY for a keyword.",
)
@click.option(
    "--tap",
    "taps",
    multiple=True,
    default=("*",),
    show_default=True,
    metavar="NAME",
    help="A submodule's name, or a glob over names (repeatable).",
)
@output_option("GGUF", "The baseline to write.")
@json_option
def command(
    spec: str,
    weights: Path | None,
    inputs: tuple[str, ...],
    taps: tuple[str, ...],
    output: Path,
    as_json: bool,
) -> None:
    """Write a baseline of what the submodules of any torch module gave.

    \b
    Example:
      graphtools tap --module my_models:encoder --weights encoder.safetensors \\
          --input features.npy --tap 'layers.*' --output baseline.gguf
    """
    from converters.replay import read_array
    from converters.tap import load_module, tap_module, write_taps
    from graphtools.errors import UsageError

    named = {k: v for k, _, v in (i.partition("=") for i in inputs if "=" in i)}
    plain = [i for i in inputs if "=" not in i]
    if named and plain:
        raise UsageError("name either all inputs or none", found=", ".join(inputs))
    module = load_module(spec, weights)
    values = {k: read_array(v) for k, v in named.items()} or [read_array(v) for v in plain]
    found = tap_module(module, taps, values)
    write_taps(found, output, name=spec)
    if as_json:
        shapes = {name: list(value.shape) for name, value in found.items()}
        print_json({"output": str(output), "taps": shapes})
        return
    rows = [(name, list(value.shape)) for name, value in found.items()]
    table(f"{spec}: {len(found)} taps", ("submodule", "shape"), rows)
    click.echo(f"wrote {output}")
