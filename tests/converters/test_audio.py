"""Audio: 16 kHz mono is taken as it is, everything else is refused with the way to convert."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from converters.audio import SAMPLE_RATE, read_audio
from fixtures import catalog
from graphtools.errors import UnsupportedError, UsageError


def tone(seconds: float = 0.1, rate: int = SAMPLE_RATE) -> np.ndarray[tuple[int], np.dtype]:
    return 0.5 * np.sin(2 * np.pi * 440 * np.arange(int(seconds * rate)) / rate)


def test_the_shipped_clip() -> None:
    samples = read_audio(catalog.SPEECH)
    assert samples.shape == (48000,)
    assert samples.dtype == np.float32
    assert 0.5 < np.abs(samples).max() < 1.0
    assert not samples[20000:28000].any()


@pytest.mark.parametrize(
    ("subtype", "step"), [("PCM_16", 2**-15), ("PCM_24", 2**-23), ("FLOAT", 2**-24)]
)
def test_integers_are_scaled_to_one(tmp_path: Path, subtype: str, step: float) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, tone(), SAMPLE_RATE, subtype)
    samples = read_audio(path)
    assert samples.dtype == np.float32
    assert samples.flags.c_contiguous
    np.testing.assert_allclose(samples, tone(), rtol=0, atol=step)


def test_full_scale_pcm_is_minus_one(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.array([-32768, 0, 32767], np.int16), SAMPLE_RATE, "PCM_16")
    np.testing.assert_array_equal(read_audio(path), np.float32([-1.0, 0.0, 32767 / 32768]))


def test_flac_is_audio_too(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.flac", tone(), SAMPLE_RATE)
    np.testing.assert_allclose(read_audio(str(tmp_path / "a.flac")), tone(), atol=2**-15)


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_another_rate_is_refused_with_the_command(tmp_path: Path, rate: int) -> None:
    path = tmp_path / "clip.wav"
    soundfile.write(path, tone(rate=rate), rate)
    with pytest.raises(UnsupportedError, match="not 16 kHz mono") as caught:
        read_audio(path)
    assert caught.value.found == f"{rate} Hz, 1 channel"
    assert "sox clip.wav -r 16000 -c 1" in str(caught.value.todo)


def test_stereo_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "clip.wav"
    soundfile.write(path, np.stack([tone(), tone()], axis=1), SAMPLE_RATE)
    with pytest.raises(UnsupportedError, match="not 16 kHz mono") as caught:
        read_audio(path)
    assert caught.value.found == "16000 Hz, 2 channels"


@pytest.mark.parametrize("content", [b"", b"not audio at all\n" * 50, b"RIFF", bytes(1000)])
def test_what_is_not_audio_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "clip.wav"
    path.write_bytes(content)
    with pytest.raises(UnsupportedError, match="cannot be read as audio") as caught:
        read_audio(path)
    assert caught.value.found
    assert "sox" in str(caught.value.todo)


def test_a_cut_clip_is_refused_or_shorter(tmp_path: Path) -> None:
    path = tmp_path / "clip.wav"
    data = catalog.SPEECH.read_bytes()
    for length in (10, 30, 44, 46, 1000, len(data) // 2):
        path.write_bytes(data[:length])
        try:
            samples = read_audio(path)
        except UnsupportedError:
            continue
        assert len(samples) <= max(0, (length - 44) // 2)


def test_a_missing_clip_is_a_wrong_call(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_audio(tmp_path / "absent.wav")
    with pytest.raises(UsageError):
        read_audio(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_numbers_are_refused(tmp_path: Path, value: float) -> None:
    samples = tone()
    samples[7] = value
    soundfile.write(tmp_path / "a.wav", samples, SAMPLE_RATE, "FLOAT")
    with pytest.raises(UnsupportedError, match="not numbers") as caught:
        read_audio(tmp_path / "a.wav")
    assert caught.value.found == "sample 7"


def test_a_file_without_a_header_is_refused(tmp_path: Path) -> None:
    """soundfile would want to be told its rate."""
    (tmp_path / "a.raw").write_bytes(bytes(1000))
    with pytest.raises(UnsupportedError, match="cannot be read as audio"):
        read_audio(tmp_path / "a.raw")
