"""``graphtools lint``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from converters.cli.output import json_option, print_json

if TYPE_CHECKING:
    from converters.lint import Lint

__all__ = ["command", "print_lint"]


@click.command()
@click.argument("gguf", type=click.Path(path_type=Path))
@json_option
@click.pass_context
def command(ctx: click.Context, gguf: Path, as_json: bool) -> None:
    """Check GGUF: a file of ours against its schema (keys, names, counts, shapes in pull order,
    types), any file against ggml's limits, and the values of every tensor. One finding a line,
    with its code and what to do (docs/lint.md); exit 1 when there is one.

    \b
    Example:
      graphtools lint model.gguf
    """
    from converters.lint import lint

    found = lint(gguf)
    if as_json:
        print_json(found.to_json())
    else:
        print_lint(found)
    ctx.exit(0 if found else 1)


def print_lint(found: Lint) -> None:
    """Findings, what was not checked, and how many there are."""
    from graphtools.text import printable

    for finding in found.findings:
        click.echo(str(finding))
    for note in found.notes:
        click.echo(printable(f"note: {note}"))
    against = f"the schema of {found.schema}" if found.schema else "ggml's limits"
    counted = f"{found.keys} keys and {found.tensors} tensors, against {against}"
    number = len(found.findings)
    click.echo(f"{number or 'no'} finding{'' if number == 1 else 's'}: {counted}")
