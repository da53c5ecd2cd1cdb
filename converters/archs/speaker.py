"""Keys that every speaker encoder has: the embedding and the front end it expects."""

from __future__ import annotations

from converters.archs.building import Builder
from converters.archs.checkpoint import CheckpointBuilder
from converters.manifest import Manifest
from converters.schema import Row
from graphtools.shape_ops import Shape

__all__ = [
    "ARCHITECTURE",
    "FBANK_ROWS",
    "FORBIDDEN",
    "WESPEAKER_WINDOW",
    "describe",
    "features",
    "rows",
    "set_rows",
]

ARCHITECTURE = "voicedetect"

# A line for every model of that project: its recipes say so, its ONNX files do not.
WESPEAKER_WINDOW = (
    "WeSpeaker trains with a hamming window; the schema's front end is povey for all. "
    "`graphtools frontend` tells which one a known embedding was made with."
)

_P = "voicedetect"

# Kaldi log-mel filter bank; no ONNX graph says any of it.
FBANK_ROWS = (
    Row(f"{_P}.fbank.sample_rate", "u32", "sample rate of the audio", "schema", "Hz", 16000),
    Row(f"{_P}.fbank.n_mels", "u32", "mel bins, the model's feature axis", "schema", "", 80),
    Row(f"{_P}.fbank.n_fft", "u32", "FFT length", "schema", "samples", 512),
    Row(f"{_P}.fbank.win_length", "u32", "window length (25 ms)", "schema", "samples", 400),
    Row(f"{_P}.fbank.hop_length", "u32", "hop between frames (10 ms)", "schema", "samples", 160),
    Row(f"{_P}.fbank.preemph", "f32", "pre-emphasis coefficient", "schema", "", 0.97),
    Row(f"{_P}.fbank.low_freq", "f32", "lower edge of the mel bank", "schema", "Hz", 20.0),
    Row(f"{_P}.fbank.high_freq", "f32", "upper edge; 0 is Nyquist", "schema", "Hz", 0.0),
    Row(f"{_P}.fbank.use_energy", "bool", "an energy coefficient comes first", "schema", "", False),
    Row(f"{_P}.fbank.cmn", "bool", "subtract each bin's mean over time", "schema", "", True),
    Row(f"{_P}.fbank.window", "string", "window function", "schema", "", "povey"),
)


# Of the heads: a loader that finds them takes the file for one.
FORBIDDEN = (f"{_P}.analyze.",)


def features(m: Manifest) -> Shape:
    """What goes in: features [n_mels, T]."""
    return m.get(f"{_P}.fbank.n_mels", "u32"), None


def rows(arch: str) -> tuple[Row, ...]:
    """The common rows, for the architecture called ``arch``."""
    return (
        Row(f"{_P}.arch", "string", "which encoder this is", "schema", "", arch),
        Row(f"{_P}.embedding_dim", "u32", "length of the embedding", "replay"),
        Row(f"{_P}.l2_normalize", "bool", "embedding is used at unit length", "schema", "", True),
        *FBANK_ROWS,
    )


def describe(b: Builder, last_slot: str) -> None:
    """Set the common keys; ``last_slot`` is the layer whose outputs are the embedding."""
    weights = b.layer(last_slot).tensors
    set_rows(b, next(iter(weights.values())).shape[0], f"shape of {last_slot}")


def set_rows(b: Builder | CheckpointBuilder, dim: int, origin: str) -> None:
    """Set the common keys of an embedding of length ``dim``."""
    b.fixed(f"{_P}.arch", "structure")
    b.set(f"{_P}.embedding_dim", dim, origin)
    b.fixed(f"{_P}.l2_normalize", "the schema, for speaker encoders")
    for row in FBANK_ROWS:
        b.fixed(row.key, "the schema, assumed: no model file holds the front end")
