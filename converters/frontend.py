"""The Kaldi log-mel front end that the schema fixes, through ``kaldi-native-fbank``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from converters.archs.speaker import FBANK_ROWS
from graphtools.errors import UnsupportedError

__all__ = ["Features", "FilterBank", "log_mel", "mean_subtracted"]

Features = npt.NDArray[np.float32]

_VALUES = {row.key.rsplit(".", 1)[1]: row.fixed for row in FBANK_ROWS}


@dataclass(frozen=True)
class FilterBank:
    """What may vary in Kaldi's log-mel filter bank; the defaults are the schema's.

    Attributes:
        window: Kaldi's name: ``povey``, ``hamming``, ``hanning``.
        preemph: pre-emphasis coefficient; 0 is none.
        snip_edges: only frames that lie in the clip; else the clip is mirrored at its ends.
        low_freq, high_freq: edges of the mel bank in Hz; a high one of 0 is Nyquist.
    """

    window: str = str(_VALUES["window"])
    preemph: float = float(_VALUES["preemph"] or 0)
    snip_edges: bool = True
    low_freq: float = float(_VALUES["low_freq"] or 0)
    high_freq: float = float(_VALUES["high_freq"] or 0)
    n_mels: int = int(_VALUES["n_mels"] or 0)


_SCHEMA = FilterBank()


def log_mel(samples: npt.NDArray[np.float32], bank: FilterBank = _SCHEMA) -> Features:
    """[n] samples to ``[frames, n_mels]`` log-mel energies, before any subtraction.

    Rate, window length and hop are the schema's ``voicedetect.fbank.*`` values; dither is 0.

    Args:
        samples: 16 kHz, mono; the engine's are in [-1, 1].
        bank: the other settings, the schema's by default.

    Raises:
        UnsupportedError: the clip is shorter than one window, or the bank has too many bins.
    """
    import kaldi_native_fbank

    window, hop = int(_VALUES["win_length"] or 0), int(_VALUES["hop_length"] or 0)
    rate = float(_VALUES["sample_rate"] or 0)
    if len(samples) < window:
        raise UnsupportedError(
            "the clip is too short",
            expected=f"{window} samples, one window, or more",
            found=f"{len(samples)} samples",
        )
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = rate
    options.frame_opts.frame_length_ms = 1000.0 * window / rate
    options.frame_opts.frame_shift_ms = 1000.0 * hop / rate
    options.frame_opts.dither = 0.0
    options.frame_opts.preemph_coeff = bank.preemph
    options.frame_opts.window_type = bank.window
    options.frame_opts.snip_edges = bank.snip_edges
    options.mel_opts.num_bins = bank.n_mels
    options.mel_opts.low_freq = bank.low_freq
    options.mel_opts.high_freq = bank.high_freq
    options.use_energy = bool(_VALUES["use_energy"])
    try:
        online = kaldi_native_fbank.OnlineFbank(options)
    except ValueError as error:
        raise UnsupportedError(
            "Kaldi has no such filter bank", expected="3 to about 120 mel bins", found=str(error)
        ) from error
    online.accept_waveform(rate, samples.tolist())
    online.input_finished()
    frames = [online.get_frame(i) for i in range(online.num_frames_ready)]
    features: Features = np.asarray(frames, dtype=np.float32)
    return features


def mean_subtracted(features: Features) -> Features:
    """Each bin's mean over time subtracted, ``[frames, n_mels]``; summed in float64."""
    mean = features.astype(np.float64).mean(axis=0)
    subtracted: Features = (features - mean).astype(np.float32)
    return subtracted
