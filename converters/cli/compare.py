"""``graphtools compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from converters.cli.output import json_option, print_json, table

if TYPE_CHECKING:
    from converters.comparison import Comparison, Row

__all__ = ["command"]

# Rows that are shown; the first that failed is always among them.
_ROWS = 30


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
@click.option("--cos", default=0.9999, show_default=True, help="The least cosine.")
@click.option(
    "--tol",
    default=1e-3,
    show_default=True,
    help="The largest max|d|, times the larger of 1 and max|golden|; or ten times the baseline's "
    "own noise, where that is more.",
)
@click.option("--atol", type=float, help="The largest max|d|, in place of --tol.")
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
    as_json: bool,
) -> None:
    """Compare an engine's tensors with goldens: a GGUF, an .npz, an .npy, raw f32 .bin files, or
    a folder of those. Exit 1 when one differs; the first is named, and what would make it right.

    \b
    Example:
      graphtools compare baseline.gguf engine_dump/
    """
    from converters.comparison import Gates, compare, read_map

    found = compare(
        golden,
        ours,
        names=read_map(mapped) if mapped is not None else None,
        gates=Gates(cosine=cos, relative=tol, absolute=atol),
    )
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
    ctx.exit(0 if found else 1)


def _print(found: Comparison) -> None:
    shown = found.failures or found.rows
    rows = [_cells(row) for row in shown[:_ROWS]]
    right = len(found.rows) - len(found.failures)
    title = f"{right} of {len(found.rows)} tensors are right"
    if found.failures:
        title += "; in execution order, these are not:"
    table(title, ("tensor", "max|d|", "bound", "cosine", "SNR dB", ""), rows)
    if len(shown) > _ROWS:
        click.echo(f".. and {len(shown) - _ROWS} more")
    if found.extra:
        more = ", ".join(found.extra[:5])
        click.echo(f"{len(found.extra)} tensors of ours have no golden: {more}")
    first = found.first
    if first is None:
        return
    click.echo(f"first: {first.name}: {first.problem}")
    weights = found.weights.get(first.name, ())
    if weights:
        click.echo(f"  its weights: {', '.join(weights[:6])}{' ..' if len(weights) > 6 else ''}")
    for line in found.hints:
        click.echo(f"  hint: {line}")


def _cells(row: Row) -> tuple[str, ...]:
    apart = row.difference
    if apart is None:
        return row.name, "-", "-", "-", "-", row.problem or row.note
    numbers = (f"{apart.max_abs:.3g}", f"{row.bound:.3g}", f"{apart.cosine:.6f}")
    return row.name, *numbers, f"{apart.snr_db:.1f}", row.problem or row.note
