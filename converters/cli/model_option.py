"""Which model a command is about: ``--model`` and what goes with it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click

__all__ = ["ChosenModel", "model_options"]

_ALIASES = {"analyze": "wav2vec2_emotion", "age_gender": "wav2vec2_age_gender"}


@dataclass(frozen=True)
class ChosenModel:
    """What the options mean.

    Attributes:
        named: the argument, if one was given.
        file: which file of a folder or repository, if one was named.
        arch: the architecture that is asserted, if any.
        do_normalize: what the user says about the waveform, if anything.
    """

    named: str | None
    file: str | None
    arch: str | None
    do_normalize: bool | None

    @property
    def model(self) -> str:
        """The argument, or the default model of the asserted architecture."""
        from converters.archs import arch_named
        from graphtools.errors import UsageError

        default = arch_named(self.arch).model if self.arch is not None else ""
        if self.named is None and not default:
            raise UsageError(
                "no model is named", todo="add --model FILE, FOLDER or a Hugging Face id"
            )
        return default if self.named is None else self.named

    @cached_property
    def path(self) -> Path:
        """Where the model is on this machine; fetched if need be."""
        from converters.sources.locate import locate

        return locate(self.model, self.file)


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
        asserted = _asserted(arch, named)
        function(chosen=ChosenModel(model, file, asserted, do_normalize), **rest)

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


def _asserted(arch: str | None, named: list[str]) -> str | None:
    from converters.archs import ARCHS
    from graphtools.errors import UsageError

    names = [known.name for known in ARCHS]
    asserted = list(dict.fromkeys([*named, *([arch] if arch else [])]))
    if len(asserted) > 1:
        raise UsageError("more than one architecture is asserted", found=", ".join(asserted))
    if asserted and asserted[0] not in names:
        raise UsageError(
            f"unknown architecture {asserted[0]!r}",
            expected=", ".join(names),
            todo="leave --arch out to have the network recognised",
        )
    return asserted[0] if asserted else None
