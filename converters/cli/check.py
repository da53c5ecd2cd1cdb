"""``graphtools check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from converters.cli.lint import print_lint
from converters.cli.model_option import ChosenModel, model_options
from converters.cli.output import json_option, print_json

if TYPE_CHECKING:
    from converters.check import Check

__all__ = ["command"]

# As automake and CTest know it: the test was not made.
_SKIPPED = 77


@click.command()
@model_options
@json_option
@click.pass_context
def command(ctx: click.Context, chosen: ChosenModel, as_json: bool) -> None:
    """Convert a model to a temporary file, prove it and lint it. Without --model the default model
    of the architecture is fetched: speechbrain/spkrec-ecapa-voxceleb, or that of --analyze or
    --age-gender.

    \b
    Exit codes: 0 pass, 1 fail, 77 skipped: a package is missing or the checkpoint
    cannot be reached; 2 wrong call, 70 our bug.

    \b
    Example:
      graphtools check --model model.onnx
      graphtools check --analyze
    """
    from converters.archs.checkpoint import Options
    from converters.check import check

    done = check(
        chosen.named,
        file=chosen.file,
        arch=chosen.arch,
        options=Options(do_normalize=chosen.do_normalize),
    )
    if as_json:
        print_json(done.to_json())
    else:
        _print(done)
    ctx.exit({"pass": 0, "fail": 1, "skip": _SKIPPED}[done.status])


def _print(done: Check) -> None:
    if done.reason is not None:
        click.echo(f"error: {done.reason}", err=True)
    if done.conversion is not None:
        for note in done.conversion.notes:
            click.echo(f"note: {note}")
        if done.conversion.proof is not None:
            for line in done.conversion.proof.summary():
                click.echo(line)
    if done.lint is not None:
        print_lint(done.lint)
    click.echo(f"{done.status}: {done.model}")
