"""``graphtools diff``."""

from __future__ import annotations

import click

from converters.cli.output import json_option, print_json, table

__all__ = ["command"]


@click.command()
@click.argument("first", metavar="A.onnx")
@click.argument("second", metavar="B.onnx")
@click.option("--atol", default=0.0, help="Weights this near are the same.", show_default=True)
@json_option
@click.pass_context
def command(ctx: click.Context, first: str, second: str, atol: float, as_json: bool) -> None:
    """Say whether two ONNX files hold the same network, whatever the names and the order of
    their nodes; exit 1 when they do not.

    \b
    Example:
      graphtools diff model.onnx other_export.onnx
    """
    from converters.network_diff import network_diff
    from graphtools.graph import build
    from graphtools.onnx_file import load

    found = network_diff(build(load(first)), build(load(second)), atol=atol)
    if as_json:
        print_json(found.to_json())
    elif found:
        click.echo(f"the same network (compared {found.how})")
    elif found.structure:
        click.echo(f"different networks (compared {found.how}): {found.structure}")
    else:
        rows = [
            (
                t.place,
                t.first,
                t.second,
                f"{t.difference.max_abs:.3g}",
                f"{t.difference.cosine:.6f}",
            )
            for t in found.tensors
        ]
        differ = "1 weight differs" if len(rows) == 1 else f"{len(rows)} weights differ"
        title = f"the same structure (compared {found.how}), but {differ}"
        table(title, ("place", "first", "second", "max|d|", "cosine"), rows)
    ctx.exit(0 if found else 1)
