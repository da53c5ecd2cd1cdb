"""``graphtools replay``."""

from __future__ import annotations

from pathlib import Path

import click

from converters.cli.output import json_option, print_json

__all__ = ["command"]


@click.command()
@click.argument("gguf", type=click.Path(path_type=Path))
@click.option(
    "--audio", metavar="WAV", help="Clip: 16 kHz, mono; for a codec at its own rate and channels."
)
@click.option(
    "--input",
    "features",
    metavar="NPY",
    help="Mean-subtracted features [frames, n_mels], samples [n], or a codec's codes.",
)
@json_option
def command(gguf: Path, audio: str | None, features: str | None, as_json: bool) -> None:
    """Compute the outputs from GGUF alone, in float64, as an engine would.

    \b
    Example:
      graphtools replay model.gguf --audio clip.wav
    """
    from converters.replay import audio_input, read_array, replay
    from graphtools.errors import UsageError

    if (audio is None) == (features is None):
        raise UsageError("name one input", expected="--audio WAV or --input NPY")
    values = read_array(features) if features is not None else audio_input(gguf, str(audio))
    done = replay(gguf, values)
    if as_json:
        print_json(done.to_json())
        return
    for name, value in done.outputs.items():
        click.echo(f"{name} {list(value.shape)}:")
        form = "{}" if value.dtype.kind in "iu" else "{:.6f}"
        for row in value.reshape(-1, value.shape[-1]):
            click.echo(" ".join(form.format(v) for v in row))
