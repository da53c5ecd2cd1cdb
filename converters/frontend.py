"""The Kaldi log-mel front end that the schema fixes, through ``kaldi-native-fbank``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from converters.archs.speaker import FBANK_ROWS
from graphtools.errors import UnsupportedError

__all__ = ["Features", "log_mel", "mean_subtracted"]

Features = npt.NDArray[np.float32]

_VALUES = {row.key.rsplit(".", 1)[1]: row.fixed for row in FBANK_ROWS}


def log_mel(samples: npt.NDArray[np.float32]) -> Features:
    """[n] samples in [-1, 1] to ``[frames, n_mels]`` log-mel energies, before any subtraction.

    All settings are the schema's ``voicedetect.fbank.*`` values; dither is 0.

    Raises:
        UnsupportedError: the clip is shorter than one window.
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
    options.frame_opts.preemph_coeff = float(_VALUES["preemph"] or 0)
    options.frame_opts.window_type = str(_VALUES["window"])
    options.frame_opts.snip_edges = True
    options.mel_opts.num_bins = int(_VALUES["n_mels"] or 0)
    options.mel_opts.low_freq = float(_VALUES["low_freq"] or 0)
    options.mel_opts.high_freq = float(_VALUES["high_freq"] or 0)
    options.use_energy = bool(_VALUES["use_energy"])
    bank = kaldi_native_fbank.OnlineFbank(options)
    bank.accept_waveform(rate, samples.tolist())
    bank.input_finished()
    frames = [bank.get_frame(i) for i in range(bank.num_frames_ready)]
    features: Features = np.asarray(frames, dtype=np.float32)
    return features


def mean_subtracted(features: Features) -> Features:
    """Each bin's mean over time subtracted, ``[frames, n_mels]``; summed in float64."""
    mean = features.astype(np.float64).mean(axis=0)
    subtracted: Features = (features - mean).astype(np.float32)
    return subtracted
