"""Audio files as the front end takes them: 16 kHz, mono, float32 in [-1, 1]."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from converters.manifest import is_utf8
from graphtools.errors import UnsupportedError, UsageError

__all__ = ["SAMPLE_RATE", "read_audio"]

SAMPLE_RATE = 16000


def read_audio(
    path: Path | str, rate: int = SAMPLE_RATE, channels: int = 1
) -> npt.NDArray[np.float32]:
    """The samples of a file, ``[n]``, or ``[channels, n]`` of more than one channel; integer
    formats are scaled to [-1, 1].

    Args:
        path: the clip.
        rate, channels: what it has to have.

    Raises:
        UsageError: there is no such file.
        UnsupportedError: it is not audio, or has another rate or more channels. Nothing is
            resampled or mixed here: how that is done changes the numbers.
    """
    import soundfile

    path = Path(path)
    if not path.is_file():
        raise UsageError("no such file", file=path, todo="check the path of the clip")
    if not is_utf8(path.name):
        raise UsageError(
            "the clip's name is not UTF-8, and could not be recorded",
            file=ascii(str(path)),
            todo="rename the clip",
        )
    try:
        samples, found = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError, TypeError, MemoryError) as error:
        # A TypeError says that a headerless format needs a rate; a header may declare any length.
        raise UnsupportedError(
            "the file cannot be read as audio",
            file=path,
            found=(str(error) or type(error).__name__).splitlines()[0],
            todo="convert it to a 16 kHz mono WAV: sox IN -r 16000 -c 1 -b 16 OUT.wav",
        ) from error
    if not np.isfinite(samples).all():
        raise UnsupportedError(
            "the clip holds samples that are not numbers",
            file=path,
            found=f"sample {int(np.flatnonzero(~np.isfinite(samples).all(axis=1))[0])}",
            todo="make the clip again",
        )
    given = samples.shape[1]
    if found != rate or given != channels:
        raise UnsupportedError(
            f"the clip is not {rate // 1000 if rate % 1000 == 0 else rate / 1000:g} kHz "
            f"{'mono' if channels == 1 else f'with {channels} channels'}, and resampling must not "
            "be guessed",
            file=path,
            expected=f"{rate} Hz, {channels} channel{'s' if channels > 1 else ''}",
            found=f"{found} Hz, {given} channel{'s' if given > 1 else ''}",
            todo=f"convert it: sox {path.name} -r {rate} -c {channels} -b 16 OUT.wav",
        )
    return np.ascontiguousarray(samples[:, 0] if channels == 1 else samples.T)
