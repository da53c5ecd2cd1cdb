"""``graphtools baseline``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from converters.cli.model_option import ChosenModel, model_options
from converters.cli.output import json_option, output_option, print_json, table

if TYPE_CHECKING:
    from converters.golden_taps import GoldenTaps
    from graphtools.onnx_edit import SegmentRule

__all__ = ["command"]

# Rows that are shown; tensors with values that are not finite come first.
_ROWS = 30


@click.command()
@model_options
@click.option(
    "--audio",
    metavar="WAV",
    help="Clip: 16 kHz, mono; for a codec at its own rate and channels.",
)
@output_option("PATH", "A .gguf, an .npz, or a folder for .npy files; of a codec a .gguf.")
@click.option(
    "--tap",
    "taps",
    multiple=True,
    metavar="NAME",
    help="Any ONNX model: a tensor, a node, a stage or block of a recovered network, op:TYPE, a "
    "glob, or all (repeatable). By default the stages, or the outputs where there are none.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=NPY",
    help="Any ONNX model: an input's values (repeatable).",
)
@click.option(
    "--random",
    "seed",
    type=click.IntRange(0),
    metavar="SEED",
    help="Any ONNX model: random values for the inputs that are not given.",
)
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="AXIS=LENGTH",
    help="Any ONNX model: the length of a dynamic axis of random inputs (repeatable).",
)
@click.option(
    "--max-memory",
    metavar="SIZE",
    help="Any ONNX model: what the process may take, e.g. 2G or 500M; by default 1G more than "
    "the model takes.",
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
    audio: str | None,
    output: Path,
    seg_pool: SegmentRule,
    exports: tuple[Path, ...],
    as_json: bool,
    **tapping: Any,
) -> None:
    """Write golden intermediates: of one clip the front end, every stage and the embedding; of
    any ONNX model the tensors that are named.

    \b
    Example:
      graphtools baseline --model model.onnx --audio clip.wav --output baseline.gguf
      graphtools baseline --model model.onnx --random 0 --dim T=298 --tap op:Conv \\
          --output taps.gguf
    """
    clip = None if audio is None else Path(audio)
    if any(value not in ((), None) for value in tapping.values()):
        if exports or chosen.arch or chosen.do_normalize is not None:
            raise click.UsageError(
                "--onnx, --arch and --do-normalize are of known networks' clips; --tap, --input, "
                "--random, --dim and --max-memory of any ONNX model"
            )
        _taps(chosen, clip, output, seg_pool, as_json, **tapping)
    elif clip is None:
        raise click.UsageError(
            "give --audio WAV; of any ONNX model --input NAME=NPY or --random SEED"
        )
    else:
        _clip(chosen, clip, output, seg_pool, exports, as_json)


def _clip(
    chosen: ChosenModel,
    audio: Path,
    output: Path,
    seg_pool: SegmentRule,
    exports: tuple[Path, ...],
    as_json: bool,
) -> None:
    from converters.archs.checkpoint import Options
    from converters.baseline import baseline

    done = baseline(
        chosen.path,
        audio,
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


def _taps(
    chosen: ChosenModel,
    audio: Path | None,
    output: Path,
    seg_pool: SegmentRule,
    as_json: bool,
    *,
    taps: tuple[str, ...],
    inputs: tuple[str, ...],
    seed: int | None,
    dims: tuple[str, ...],
    max_memory: str | None,
) -> None:
    from converters.golden_taps import Plan, golden_taps

    def planned(plan: Plan) -> None:
        click.echo(
            f"{plan.tensors} tensors, {plan.size / 1e6:.1f} MB, in {plan.runs} "
            f"{'run' if plan.runs == 1 else 'runs'}",
            err=True,
        )

    done = golden_taps(
        chosen.path,
        output,
        inputs={name: Path(file) for name, file in _pairs(inputs, "--input", "NAME=NPY")},
        audio=audio,
        seed=seed,
        dims={name: _length(n) for name, n in _pairs(dims, "--dim", "AXIS=LENGTH")},
        taps=taps,
        seg_pool=seg_pool,
        max_memory=None if max_memory is None else _bytes(max_memory),
        name=chosen.model,
        planned=planned,
    )
    if as_json:
        print_json(done.to_json())
    else:
        _print_taps(done)


def _print_taps(done: GoldenTaps) -> None:
    strange = [t for t in done.tensors if t.nans or t.infs]
    shown = [*strange, *(t for t in done.tensors if not (t.nans or t.infs))][:_ROWS]
    table(
        f"{len(done.tensors)} tensors, by {done.reference}"
        + (f"; {done.network}" if done.network else ""),
        ("tensor", "shape", "type", "stage", "NaN", "infinite"),
        [(t.name, list(t.shape), t.dtype, t.stage, t.nans or "", t.infs or "") for t in shown],
    )
    if len(done.tensors) > len(shown):
        click.echo(f".. and {len(done.tensors) - len(shown)} more")
    for name, why in [*done.omitted.items()][:_ROWS]:
        click.echo(f"left out: {name}: {why}")
    if len(done.omitted) > _ROWS:
        click.echo(f".. and {len(done.omitted) - _ROWS} more")
    click.echo(f"wrote {done.output}")


def _pairs(values: tuple[str, ...], option: str, form: str) -> list[tuple[str, str]]:
    pairs = [value.partition("=")[::2] for value in values]
    names = [name for name, _ in pairs]
    for value, (name, _) in zip(values, pairs, strict=True):
        if not name or "=" not in value or names.count(name) > 1:
            raise click.UsageError(f"{option} takes {form}, each name once: {value!r}")
    return pairs


def _length(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise click.UsageError(f"--dim takes AXIS=LENGTH, a length of 1 or more: {text!r}")
    return int(text)


def _bytes(text: str) -> int:
    number, unit = text[:-1], text[-1:].upper()
    if text.isdecimal():
        number, unit = text, ""
    scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(unit)
    try:
        return int(float(number) * (scale or 0)) if scale else int("")
    except (ValueError, OverflowError):
        raise click.UsageError(f"--max-memory takes a size such as 2G or 500M: {text!r}") from None
