"""The log-mel front end against Kaldi's recipe written out in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from converters.audio import read_audio
from converters.frontend import log_mel, mean_subtracted
from fixtures import catalog
from graphtools.errors import UnsupportedError

Array = npt.NDArray[Any]

WINDOW, HOP, FFT, BINS, RATE = 400, 160, 512, 80, 16000
EPS = float(np.finfo(np.float32).eps)


def kaldi_log_mel(samples: Array) -> Array:
    """[n] to [frames, 80], float64: Kaldi's fbank with a povey window and no dither.

    Each frame: its mean is removed, pre-emphasis 0.97 (the first sample against itself),
    povey = hann ** 0.85, power spectrum of 512 points, triangles equally spaced in mel from
    20 Hz to Nyquist, floored at the float32 epsilon, log.
    """
    count = 1 + (len(samples) - WINDOW) // HOP
    frames = np.stack([samples[HOP * i : HOP * i + WINDOW] for i in range(count)])
    frames = frames.astype(np.float64)
    frames -= frames.mean(axis=1, keepdims=True)
    frames -= 0.97 * np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    phase = 2 * np.pi * np.arange(WINDOW) / (WINDOW - 1)
    frames *= (0.5 - 0.5 * np.cos(phase)) ** 0.85
    power = np.abs(np.fft.rfft(frames, FFT)) ** 2
    return np.log(np.maximum(power @ mel_bank().T, EPS))


def mel(hertz: Any) -> Any:
    return 1127.0 * np.log(1.0 + np.asarray(hertz) / 700.0)


def mel_bank() -> Array:
    """[80, 257]: triangles in mel, the Nyquist bin unused, as in Kaldi."""
    edges = np.linspace(mel(20.0), mel(RATE / 2), BINS + 2)
    bins = mel(np.arange(FFT // 2) * RATE / FFT)
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (bins - left) / (centre - left), (right - bins) / (right - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return np.concatenate([triangles, np.zeros((BINS, 1))], axis=1)


def test_speech_equals_the_recipe() -> None:
    samples = read_audio(catalog.SPEECH)
    ours, wanted = log_mel(samples), kaldi_log_mel(samples)
    assert ours.shape == wanted.shape == (298, 80)
    assert ours.dtype == np.float32
    # float32 sums of squares of float32 spectra: relative noise of 1e-4 in weak bins at worst,
    # which the logarithm turns into an absolute one. A hamming window is 1 and more away.
    np.testing.assert_allclose(ours, wanted, rtol=0, atol=2e-3)
    assert np.abs(ours - wanted).mean() < 1e-5


@pytest.mark.parametrize("length", [400, 559, 560, 720, 16000])
def test_noise_of_any_length_equals_the_recipe(length: int) -> None:
    samples = np.random.default_rng(4).uniform(-0.5, 0.5, length).astype(np.float32)
    ours = log_mel(samples)
    assert ours.shape == (1 + (length - 400) // 160, 80)  # snip_edges
    np.testing.assert_allclose(ours, kaldi_log_mel(samples), rtol=0, atol=2e-3)


def test_samples_are_taken_in_one_to_one_scale() -> None:
    """Nothing multiplies by 32768: halving the samples lowers every bin by log 4."""
    samples = np.random.default_rng(5).uniform(-0.5, 0.5, 4000).astype(np.float32)
    np.testing.assert_allclose(
        log_mel(samples) - log_mel(samples / 2), np.log(4.0), rtol=0, atol=1e-3
    )
    assert log_mel(samples).max() < 10  # a scale of 32768 would add 20.8


def test_digital_silence_gives_the_floor() -> None:
    ours = log_mel(np.zeros(1600, np.float32))
    np.testing.assert_allclose(ours, np.log(EPS), rtol=1e-6)


def test_there_is_no_dither() -> None:
    samples = np.random.default_rng(6).normal(0, 1e-4, 3200).astype(np.float32)
    np.testing.assert_array_equal(log_mel(samples), log_mel(samples))


@pytest.mark.parametrize("length", [0, 1, 399])
def test_a_clip_shorter_than_a_window_is_refused(length: int) -> None:
    with pytest.raises(UnsupportedError, match="too short") as caught:
        log_mel(np.zeros(length, np.float32))
    assert caught.value.found == f"{length} samples"
    assert "400" in str(caught.value.expected)


class TestMeanSubtraction:
    def test_every_bin_has_no_mean_over_time(self) -> None:
        features = np.random.default_rng(7).normal(-8, 3, (298, 80)).astype(np.float32)
        ours = mean_subtracted(features)
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours.mean(axis=0, dtype=np.float64), 0, atol=1e-6)
        wanted = features - features.astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(ours, wanted, rtol=0, atol=1e-6)

    def test_sums_are_in_float64(self) -> None:
        """A mean summed in float32 over 200,000 frames is off by far more than one rounding."""
        features = np.full((200_000, 1), np.float32(0.1))
        assert np.abs(mean_subtracted(features)).max() <= 1e-8

    def test_one_frame_becomes_zero(self) -> None:
        assert not mean_subtracted(np.ones((1, 80), np.float32)).any()
