"""Encode and decode with an audio codec's GGUF alone, in float64, one layer at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from converters import gguf_file
from converters.archs import arch_of_manifest
from converters.manifest import Manifest
from converters.replay import Replay
from graphtools.errors import UnsupportedError
from graphtools.tensors import Array

__all__ = ["Codec", "CodecResult", "codec_of"]

_P = "moss.at"


@dataclass(frozen=True)
class CodecResult:
    """What one direction gave.

    Attributes:
        stages: every stage's output by name, in execution order, float64.
        margins: codes only: how much farther the second nearest row was, ``[quantizers, frames]``.
    """

    output: Array
    stages: dict[str, Array] = field(default_factory=dict)
    margins: Array | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"shape": list(self.output.shape), "output": self.output.tolist()}


@dataclass(frozen=True)
class Codec:
    """A codec's manifest, ready to run both ways.

    Attributes:
        channels: interleaved into one sequence, sample by sample.
        downsample: samples of a channel per frame of codes.
    """

    manifest: Manifest
    sample_rate: int
    channels: int
    downsample: int
    quantizers: int

    def encode(self, wave: Array) -> CodecResult:
        """Codes ``[quantizers, frames]`` of samples ``[n]`` or ``[channels, n]``.

        Every channel is padded with zeros to whole frames. A last frame that holds padding is
        masked in the quantizer; its codes are given all the same.

        Raises:
            UnsupportedError: the samples have another number of channels.
        """
        samples = np.atleast_2d(wave).astype(np.float64)
        if len(samples) != self.channels or samples.ndim != 2 or not samples.shape[1]:
            raise UnsupportedError(
                "the samples do not fit the codec",
                expected=f"{self.channels} channels",
                found=f"shape {list(np.shape(wave))}",
            )
        length = samples.shape[1]
        padded = np.pad(samples, ((0, 0), (0, -length % self.downsample)))
        sequence = padded.T.reshape(1, -1)  # interleaved: channel by channel of every sample
        replay, stages = Replay.of(self.manifest), {}

        def keep(name: str, x: Array) -> Array:
            stages[name] = x
            return x

        codes = replay.run(sequence, keep, valid_frames=length // self.downsample)
        parts = {name: stages.pop(name) for name in list(stages) if name.startswith("codes.")}
        books = [f"quantizer.quantizers.{i}.codebook" for i in range(len(parts))]
        margins = np.stack([replay.margins[book] for book in books])
        return CodecResult(codes.astype(np.int32), stages, margins)

    def decode(self, codes: Array) -> CodecResult:
        """Samples ``[channels, n]`` of codes ``[quantizers, frames]``; nothing is trimmed.

        Raises:
            UnsupportedError: the codes have another shape, or are no rows of the codebooks.
        """
        if codes.ndim != 2 or len(codes) != self.quantizers or not codes.shape[1]:
            raise UnsupportedError(
                "the codes do not fit the codec",
                expected=f"[{self.quantizers}, frames]",
                found=str(list(codes.shape)),
            )
        replay, stages = Replay.of(self.manifest, inverse=True), {}

        def keep(name: str, x: Array) -> Array:
            stages[name] = x
            return x

        sequence = replay.run(codes, keep)
        return CodecResult(sequence.reshape(-1, self.channels).T, stages)


def codec_of(source: Manifest | Path | str) -> Codec:
    """The codec that a manifest, or a GGUF's path, holds.

    Raises:
        UnsupportedError: it holds none.
    """
    manifest = source if isinstance(source, Manifest) else gguf_file.read(source)
    if arch_of_manifest(manifest).inverse is None:
        raise UnsupportedError("the file is no audio codec", found=f"{manifest.architecture!r}")
    stereo = f"{_P}.channels" in manifest.by_key
    return Codec(
        manifest,
        manifest.get(f"{_P}.sample_rate", "u32"),
        manifest.get(f"{_P}.channels", "u32") if stereo else 1,
        manifest.get(f"{_P}.downsample", "u32"),
        manifest.get(f"{_P}.num_quantizers", "u32"),
    )
