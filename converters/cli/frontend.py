"""``graphtools frontend``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from converters.cli.output import json_option, print_json, table

if TYPE_CHECKING:
    from converters.frontend_search import FrontendSearch, Scored

__all__ = ["command"]

_ROWS = 10


@click.command()
@click.argument("model", required=False, type=click.Path(path_type=Path))
@click.option(
    "--audio",
    metavar="WAV",
    required=True,
    type=click.Path(path_type=Path),
    help="The clip: 16 kHz, mono.",
)
@click.option(
    "--embedding",
    metavar="NPY",
    type=click.Path(path_type=Path),
    help="What the original pipeline makes of the clip, [D] or [1, D].",
)
@click.option(
    "--features",
    metavar="NPY",
    type=click.Path(path_type=Path),
    help="Or its features, [T, n_mels] or [n_mels, T]; they need no MODEL.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: Path | None,
    audio: Path,
    embedding: Path | None,
    features: Path | None,
    as_json: bool,
) -> None:
    """Find the front end that a known embedding (or features) of a clip was made with: window,
    scale, mean subtraction, pre-emphasis, snip_edges, band edges. MODEL is an ONNX file or a
    manifest GGUF. Exit 1 when the best two are less than 1e-4 apart, or none gives what is known.

    \b
    Example:
      graphtools frontend model.onnx --audio clip.wav --embedding known.npy
    """
    from converters.frontend_search import frontend_search

    found = frontend_search(audio, model=model, embedding=embedding, features=features)
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
    ctx.exit(0 if found else 1)


def _print(found: FrontendSearch) -> None:
    from converters.frontend_search import LEAST, MARGIN

    with_features = found.best.difference is not None
    columns = ["score", *_COLUMNS.values()]
    columns += ["max|d|", "cosine"] if with_features else []
    columns += ["seg pool"] if found.best.seg_pool else []
    rows = [_cells(scored) for scored in found.ranking[:_ROWS]]
    table(f"{len(found.ranking)} front ends by {found.measure}:", columns, rows)
    click.echo(f"margin: {found.margin:.2g}")
    if not found.reproduced:
        click.echo(f"undecided: none of these; the best scores {found.best.score:.6f} < {LEAST:g}")
        click.echo("  another model, another clip, dither, resampling, voice activity detection?")
    elif not found:
        click.echo(f"undecided: the best two are less than {MARGIN:g} apart, and differ in")
        for (name, values), tells in zip(found.open.items(), found.advice, strict=True):
            listed = ", ".join(_shown(value) for value in values)
            click.echo(f"  {_COLUMNS[name]}: {listed}. To settle it take {tells}")
        click.echo(
            f"  The {len(found.tied)} best agree in all else; the next is {found.gap:.2g} off."
        )
    elif not found.differs:
        click.echo("decided: it is the engine's front end")
    else:
        click.echo("decided: it is not the engine's front end:")
        for name, (ours, engine) in found.differs.items():
            click.echo(f"  {_COLUMNS[name]}: {_shown(ours)}, the engine's {_shown(engine)}")


_COLUMNS = {
    "window": "window",
    "scale": "scale",
    "cmn": "mean subtracted",
    "preemph": "pre-emphasis",
    "snip_edges": "snip_edges",
    "band": "band Hz",
}


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        low, high = value
        return f"{low:g}-{high or 8000:g}"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _cells(scored: Scored) -> tuple[str, ...]:
    settings = (_shown(getattr(scored.candidate, name)) for name in _COLUMNS)
    cells = [f"{scored.score:.6f}", *settings]
    if scored.difference is not None:
        cells += [f"{scored.difference.max_abs:.3g}", f"{scored.difference.cosine:.6f}"]
    return (*cells, *([scored.seg_pool] if scored.seg_pool else []))
