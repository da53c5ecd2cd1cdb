"""``graphtools convert``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from converters.cli.output import json_option, model_option, print_json

if TYPE_CHECKING:
    from converters.convert import Conversion, Verify

__all__ = ["command"]


@click.command()
@model_option
@click.option(
    "--output", "--out", "output", required=True, metavar="GGUF", type=click.Path(path_type=Path)
)
@click.option("--arch", metavar="NAME", help="Assert the architecture; a wrong one is refused.")
@click.option(
    "--verify",
    type=click.Choice(["full", "none"]),
    default="full",
    show_default=True,
    help="Prove the written file against onnxruntime, or do not.",
)
@click.option(
    "--allow-unproven",
    multiple=True,
    metavar="KEY",
    help="Accept this key although nothing shows that its value is right (repeatable).",
)
@json_option
def command(
    model: str,
    file: str | None,
    output: Path,
    arch: str | None,
    verify: Verify,
    allow_unproven: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the manifest GGUF of a model and prove it against onnxruntime.

    The file gets its name only when it is proven; the proof is written beside it as
    GGUF.proof.json.

    \b
    Example:
      graphtools convert --model model.onnx --output model.gguf
    """
    from converters.convert import convert
    from converters.sources.locate import locate_onnx

    path = locate_onnx(model, file)
    done = convert(
        path, output, name=model, arch=arch, verify=verify, allow_unproven=allow_unproven
    )
    if as_json:
        print_json(done.to_json())
    else:
        _print(done)


def _print(done: Conversion) -> None:
    manifest, proof = done.manifest, done.proof
    click.echo(f"{done.arch}: {len(manifest.entries)} keys, {len(manifest.tensors)} tensors")
    if manifest.left_out:
        click.echo(f"left out (not weights): {', '.join(manifest.left_out)}")
    for note in done.notes:
        click.echo(f"note: {note}")
    if proof is None:
        click.echo("NOT PROVEN: --verify none was given")
    else:
        worst = proof.worst
        click.echo(f"proven against onnxruntime {proof.onnxruntime}:")
        if worst is not None:
            click.echo(
                f"  {len(proof.stages)} stages, worst local error {worst.error:.2g} at "
                f"{worst.stage} ({worst.probe}), gate 1e-4"
            )
        for rule, apart in proof.end_to_end.items():
            label = "" if rule == "plain" else f" (segment rule {rule})"
            click.echo(
                f"  embedding on speech{label}: cosine {apart.cosine:.8f}, "
                f"max|d| {apart.max_abs:.2g} (float32 noise of the source included)"
            )
        if proof.rule_distance is not None:
            follows = proof.runtime_rule or "neither"
            click.echo(
                f"  the two segment rules are 1 - cosine = {proof.rule_distance:.3g} apart; "
                f"this onnxruntime follows: {follows}"
            )
        for key in proof.unproven:
            click.echo(f"  unproven, allowed by you: {key}")
    for written in done.files:
        click.echo(f"wrote {written}")
