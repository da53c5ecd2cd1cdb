"""Which model a command is about: ``--model`` and what goes with it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

__all__ = ["ChosenModel", "model_options"]

_ALIASES = {"analyze": "wav2vec2_emotion", "age_gender": "wav2vec2_age_gender"}


@dataclass(frozen=True)
class ChosenModel:
    """What the options mean.

    Attributes:
        model: the argument, or the default model of the architecture.
        path: where it is on this machine.
        arch: the architecture that is asserted, if any.
        do_normalize: what the user says about the waveform, if anything.
    """

    model: str
    path: Path
    arch: str | None
    do_normalize: bool | None


def model_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets one argument ``chosen``."""

    @functools.wraps(function)
    def command(
        model: str | None,
        file: str | None,
        arch: str | None,
        analyze: bool,
        age_gender: bool,
        do_normalize: bool | None,
        **rest: Any,
    ) -> None:
        flags = {"analyze": analyze, "age_gender": age_gender}
        named = [_ALIASES[flag] for flag, given in flags.items() if given]
        function(chosen=_choose(model, file, arch, named, do_normalize), **rest)

    for option in reversed(
        (
            click.option("--model", metavar="MODEL", help="File, folder or Hugging Face id."),
            click.option("--file", metavar="NAME", help="Which file of a folder or repository."),
            click.option(
                "--arch", metavar="NAME", help="Assert the architecture; a wrong one is refused."
            ),
            click.option("--analyze", is_flag=True, help="The same as --arch wav2vec2_emotion."),
            click.option(
                "--age-gender", is_flag=True, help="The same as --arch wav2vec2_age_gender."
            ),
            click.option(
                "--do-normalize/--no-do-normalize",
                default=None,
                help="wav2vec 2.0: standardise the waveform, where no preprocessor_config.json "
                "says so.",
            ),
        )
    ):
        command = option(command)
    return command


def _choose(
    model: str | None,
    file: str | None,
    arch: str | None,
    named: list[str],
    do_normalize: bool | None,
) -> ChosenModel:
    from converters.archs import arch_named
    from converters.sources.locate import locate
    from graphtools.errors import UsageError

    asserted = list(dict.fromkeys([*named, *([arch] if arch else [])]))
    if len(asserted) > 1:
        raise UsageError("more than one architecture is asserted", found=", ".join(asserted))
    wanted = arch_named(asserted[0]) if asserted else None
    if model is None and (wanted is None or not wanted.model):
        raise UsageError("no model is named", todo="add --model FILE, FOLDER or a Hugging Face id")
    chosen = model if model is not None else wanted.model if wanted else ""
    return ChosenModel(
        chosen, locate(chosen, file), asserted[0] if asserted else None, do_normalize
    )
