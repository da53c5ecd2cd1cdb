"""Goldens of an audio codec: both directions, computed by the float64 replay.

No published package has the model's code, so that the replay itself is the reference; the
metadata says so. Codes are stored as I32, with the margin by which each one was nearest.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from converters.audio import read_audio
from converters.baseline import ARCHITECTURE, Baseline, file_sha256
from converters.codec import codec_of
from converters.emit import emit
from converters.goldens import golden_tensor
from converters.manifest import Entry, Manifest
from converters.sources.source import Source
from graphtools.tensors import Array, DType, Held, LazyTensor

__all__ = ["REFERENCE", "codec_baseline"]

REFERENCE = "replay-f64"


def codec_baseline(manifest: Manifest, source: Source, audio: Path, output: Path) -> Baseline:
    """Encode a clip, decode its codes, and write every stage of both.

    Args:
        manifest: the checkpoint, described.
        source: the checkpoint, for its files' digests.
        audio: at the codec's own rate and channels.
        output: the GGUF to write.

    Raises:
        UnsupportedError: the clip has another rate or other channels.
    """
    codec = codec_of(manifest)
    wave = read_audio(audio, codec.sample_rate, codec.channels)
    coded = codec.encode(wave)
    back = codec.decode(coded.output)
    assert coded.margins is not None  # encoding always gives them
    goldens: dict[str, Array] = {"wav": np.atleast_2d(wave), **coded.stages}
    goldens |= {"codes": coded.output, "codes_margin": coded.margins, **back.stages}
    stages = tuple(n for n in goldens if n not in ("wav", "codes_margin"))
    values = {
        "arch": manifest.architecture,
        "model_sha256": ",".join(file_sha256(file) for file in source.files),
        "audio_name": audio.name,
        "audio_sha256": file_sha256(audio),
        "reference": REFERENCE,
    }
    entries = [Entry(f"baseline.{key}", "string", v, "baseline run") for key, v in values.items()]
    entries.append(Entry("baseline.stages", "[string]", stages, "baseline run"))
    tensors = [
        _codes(name, value) if name == "codes" else golden_tensor(name, value)
        for name, value in goldens.items()
    ]
    with emit(Manifest(ARCHITECTURE, manifest.name, tuple(entries), tuple(tensors)), output):
        pass
    return Baseline(
        arch=manifest.architecture,
        output=output,
        reference=REFERENCE,
        length=wave.shape[-1],
        stages={name: (goldens[name].shape, 0.0) for name in stages},
        outputs={"codes": coded.output, "decoded": back.output},
        seg_pool=None,
    )


def _codes(name: str, values: Array) -> LazyTensor:
    array = np.ascontiguousarray(values, dtype=np.int32)
    return LazyTensor(name, array.shape, DType.I32, Held(name, array))
