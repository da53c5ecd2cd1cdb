"""``graphtools baseline``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from converters.cli.model_option import ChosenModel, model_options
from converters.cli.output import json_option, print_json, table

if TYPE_CHECKING:
    from graphtools.onnx_edit import SegmentRule

__all__ = ["command"]


@click.command()
@model_options
@click.option(
    "--audio",
    required=True,
    metavar="WAV",
    help="Clip: 16 kHz, mono; for a codec at its own rate and channels.",
)
@click.option(
    "--output", "--out", "output", required=True, metavar="GGUF", type=click.Path(path_type=Path)
)
@click.option(
    "--seg-pool",
    type=click.Choice(["kernel", "valid"]),
    default="kernel",
    show_default=True,
    help="CAM++: divide the last partial segment by the kernel, 100 (as the engine does), or by "
    "the frames that are there (as PyTorch does).",
)
@click.option(
    "--onnx",
    "exports",
    multiple=True,
    metavar="ONNX",
    type=click.Path(path_type=Path),
    help="Codec: an export of its encoder or decoder, run instead of the replay (repeatable).",
)
@json_option
def command(
    chosen: ChosenModel,
    audio: str,
    output: Path,
    seg_pool: SegmentRule,
    exports: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Write the golden intermediates of one clip: front end, every stage, the embedding.

    \b
    Example:
      graphtools baseline --model model.onnx --audio clip.wav --output baseline.gguf
    """
    from converters.archs.checkpoint import Options
    from converters.baseline import baseline

    done = baseline(
        chosen.path,
        Path(audio),
        output,
        name=chosen.model,
        arch=chosen.arch,
        seg_pool=seg_pool,
        options=Options(do_normalize=chosen.do_normalize),
        exports=exports,
    )
    if as_json:
        print_json(done.to_json())
        return
    table(
        f"{done.arch}: {done.length} {done.unit}, by {done.reference}"
        + (f", segment pooling divided by: {done.seg_pool}" if done.seg_pool else ""),
        ("stage", "shape", "float32 noise"),
        [
            (name, list(shape), "-" if noise is None else f"{noise:.2g}")
            for name, (shape, noise) in done.stages.items()
        ],
    )
    click.echo(f"wrote {done.output}")
