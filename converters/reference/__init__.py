"""The libraries that trained the torch families, run for goldens and for the proof.

Each module computes one family's stages with the real classes. They need the ``reference`` extra
(and speechbrain, which pip cannot be told to install without its dependencies in an extra).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from converters.sources.source import Source
from graphtools.errors import UnsupportedError
from graphtools.tensors import Array

__all__ = ["Reference", "explained", "reference_for"]

_MODULES: Mapping[str, str] = {"ecapa": "ecapa", "wav2vec2": "wav2vec2"}


class Reference(Protocol):
    """A module of this package."""

    library: Callable[[], str]
    """Name and version of the library.

    Raises:
        MissingDependencyError: it is not installed.
    """

    stages: Callable[[Source, str, bool], Callable[[Array], dict[str, Array]]]
    """(checkpoint, architecture, standardise the waveform) to a function from an input to every
    stage by name, float32 without a batch axis."""


def explained(run: Callable[[Array], dict[str, Array]]) -> Callable[[Array], dict[str, Array]]:
    """``run``, with torch's own refusals of an input as an error of ours."""

    def guarded(values: Array) -> dict[str, Array]:
        try:
            return run(values)
        except (RuntimeError, ValueError) as error:
            raise UnsupportedError(
                "the library cannot run the model on this input",
                found=str(error).strip().splitlines()[0][:200],
                expected="a longer clip, usually",
            ) from error

    return guarded


def reference_for(family: str) -> Reference | None:
    """The reference of a torch family, nothing heavy imported yet; None where no published
    package has the model's code."""
    if family not in _MODULES:
        return None
    return cast(Reference, importlib.import_module(f"{__name__}.{_MODULES[family]}"))
