"""Features that a proof is run on: chosen so that every manifest value changes something."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt

from converters.frontend import Features, log_mel, mean_subtracted

__all__ = ["Probe", "probes", "speech_samples"]


@dataclass(frozen=True)
class Probe:
    """Mean-subtracted features ``[frames, n_mels]`` with a name for reports."""

    name: str
    features: Features


# A third of the clip: the end of a pause of digital silence, a second of speech, another pause.
_THIRD = slice(150, 251)


def probes(frames: int | None = None, *, segments: bool = True) -> tuple[Probe, ...]:
    """The proof's inputs.

    Speech (298 frames) exercises everything a real clip does; four times speech saturates
    clamps; a loud part that is constant in time shows the pooling's epsilon and the padding;
    a short one shows whatever depends on length. After a stride of 2 none has a multiple of
    100 frames, which would hide how a partial segment is averaged.

    Args:
        frames: the one length that the model takes; None when it takes any.
        segments: the model averages over segments of 100 frames after a stride of 2, which takes
            the whole clip to show; a third of it (101 frames) shows everything else.
    """
    speech = _speech()
    rng = np.random.default_rng(20260629)
    level = rng.normal(0.0, 4.0, speech.shape[1])
    if frames is not None:
        clip = np.resize(speech, (frames, speech.shape[1]))
        return (
            Probe("speech", clip),
            Probe("4 x speech", 4.0 * clip),
            Probe("constant", np.tile(level, (frames, 1)).astype(np.float32)),
        )
    return (
        Probe("speech", speech if segments else speech[_THIRD]),
        Probe("4 x speech", 4.0 * speech[60:133]),
        Probe("constant", np.tile(level, (38, 1)).astype(np.float32)),
        Probe("short", rng.normal(0.0, 4.0, (27, speech.shape[1])).astype(np.float32)),
    )


@cache
def speech_samples() -> npt.NDArray[np.float32]:
    """The clip that ships with the package: 3 s of synthesised speech at 16 kHz."""
    from converters.audio import read_audio

    with resources.as_file(resources.files("converters") / "data" / "speech.wav") as path:
        return read_audio(path)


@cache
def _speech() -> Features:
    return mean_subtracted(log_mel(speech_samples()))
