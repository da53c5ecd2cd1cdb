"""``graphtools compare``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from converters.cli.output import json_option, print_json

__all__ = ["command"]


@click.command()
@click.argument("golden", type=click.Path(path_type=Path))
@click.argument("ours", type=click.Path(path_type=Path))
@click.option(
    "--map",
    "mapped",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Lines `golden ours`, where the names differ.",
)
@click.option(
    "--cos",
    type=click.FloatRange(-1.0, 1.0),
    default=0.9999,
    show_default=True,
    help="The least cosine.",
)
@click.option(
    "--tol",
    type=click.FloatRange(0.0),
    default=1e-3,
    show_default=True,
    help="The largest max|d|, times the larger of 1 and max|golden|; or ten times the baseline's "
    "own noise, where that is more.",
)
@click.option("--atol", type=click.FloatRange(0.0), help="The largest max|d|, in place of --tol.")
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also write a page with all of it: tables, errors by stage, heat maps of |d|.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    golden: Path,
    ours: Path,
    mapped: Path | None,
    cos: float,
    tol: float,
    atol: float | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Compare an engine's tensors with goldens: a GGUF, an .npz, an .npy, raw f32 .bin files, or
    a folder of those. Exit 1 when one differs; the first is named, and what would make it right.

    \b
    Example:
      graphtools compare baseline.gguf engine_dump/
      graphtools compare baseline.gguf engine_dump/ --html report.html
    """
    from converters.comparison import compare
    from converters.comparison_text import summary
    from converters.gates import Gates
    from converters.matching import read_map
    from graphtools.files import require_other

    if html is not None:
        require_other(html, golden, ours)

    found = compare(
        golden,
        ours,
        names=read_map(mapped) if mapped is not None else None,
        gates=Gates(cosine=cos, relative=tol, absolute=atol),
    )
    if html is not None:
        from converters.comparison_html import write_html

        write_html(found, html)
    if as_json:
        print_json(found.to_json())
    else:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
        click.echo(summary(found, columns))
        if html is not None:
            click.echo(f"wrote {html}")
    ctx.exit(0 if found else 1)
