"""``graphtools convert``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from converters.cli.model_option import ChosenModel, model_options
from converters.cli.output import json_option, output_option, print_json, progress_bar

if TYPE_CHECKING:
    from converters.convert import Conversion, Verify

__all__ = ["command"]


@click.command()
@model_options
@output_option("GGUF", "The manifest to write.")
@click.option(
    "--verify",
    type=click.Choice(["full", "sample", "none"]),
    help="full reads back every byte and proves the file (the default); sample reads back a part "
    "of every tensor (the default for a checkpoint above 1 GB); none does not prove the file.",
)
@click.option(
    "--allow-unproven",
    multiple=True,
    metavar="KEY",
    help="Accept this key although nothing shows that its value is right (repeatable).",
)
@click.option("--strict", is_flag=True, help="Fail on any entry of a checkpoint without a place.")
@click.option(
    "--strip-prefix", default="", metavar="PREFIX", help="Taken off every name of a checkpoint."
)
@json_option
def command(
    chosen: ChosenModel,
    output: Path,
    verify: Verify | None,
    allow_unproven: tuple[str, ...],
    strict: bool,
    strip_prefix: str,
    as_json: bool,
) -> None:
    """Write the manifest GGUF of a model and prove it: an ONNX export against onnxruntime, a
    checkpoint (ECAPA-TDNN, wav2vec 2.0 with a head, MOSS codecs) against its own tensors, and
    against the library it comes from where that is installed.

    The file gets its name only when it is proven; the proof is written beside it as
    GGUF.proof.json.

    \b
    Example:
      graphtools convert --model model.onnx --output model.gguf
      graphtools convert --analyze --output emotion.gguf
    """
    from converters.archs.checkpoint import Options
    from converters.convert import convert

    path = chosen.path  # a download has a bar of its own
    with progress_bar("writing") as progress:
        done = convert(
            path,
            output,
            name=chosen.model,
            arch=chosen.arch,
            verify=verify,
            allow_unproven=allow_unproven,
            options=Options(chosen.do_normalize, strip_prefix, strict),
            progress=progress,
        )
    if as_json:
        print_json(done.to_json())
    else:
        _print(done)


def _print(done: Conversion) -> None:
    manifest, proof = done.manifest, done.proof
    click.echo(f"{done.arch}: {len(manifest.entries)} keys, {len(manifest.tensors)} tensors")
    if manifest.left_out:
        shown = ", ".join(manifest.left_out[:5])
        more = len(manifest.left_out) - 5
        click.echo(f"left out: {shown}{f' and {more} more' if more > 0 else ''}")
    for note in done.notes:
        click.echo(f"note: {note}")
    if proof is None:
        click.echo("NOT PROVEN: --verify none was given")
    else:
        for line in proof.summary():
            click.echo(line)
    for written in done.files:
        click.echo(f"wrote {written}")
