"""``graphtools replay``."""

from __future__ import annotations

from pathlib import Path

import click

from converters.cli.output import json_option, print_json

__all__ = ["command"]


@click.command()
@click.argument("gguf", type=click.Path(path_type=Path))
@click.option("--audio", metavar="WAV", help="Clip: 16 kHz, mono.")
@click.option(
    "--input", "features", metavar="NPY", help="Mean-subtracted features [frames, n_mels]."
)
@json_option
def command(gguf: Path, audio: str | None, features: str | None, as_json: bool) -> None:
    """Compute the embedding from GGUF alone, in float64, as an engine would.

    \b
    Example:
      graphtools replay model.gguf --audio clip.wav
    """
    from converters.replay import read_features, replay
    from graphtools.errors import UsageError

    if (audio is None) == (features is None):
        raise UsageError("name one input", expected="--audio WAV or --input NPY")
    if audio is not None:
        from converters.audio import read_audio
        from converters.frontend import log_mel, mean_subtracted

        values = mean_subtracted(log_mel(read_audio(audio)))
    else:
        assert features is not None
        values = read_features(features)
    done = replay(gguf, values)
    if as_json:
        print_json(done.to_json())
        return
    click.echo(f"{done.frames} frames, embedding of {len(done.embedding)} at unit length:")
    click.echo(" ".join(f"{v:.6f}" for v in done.embedding))
