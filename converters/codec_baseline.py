"""Goldens of an audio codec: both directions, by the float64 replay or by its ONNX exports.

No published package has the model's code, so that the replay itself is the reference, unless there
are exports of the codec; the metadata says which. Codes are stored as I32, with the margin by
which each one was nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from converters.audio import read_audio
from converters.baseline import Baseline
from converters.codec import codec_of
from converters.codec_onnx import Exports
from converters.emit import emit_goldens
from converters.goldens import ARCHITECTURE, file_sha256, golden_tensor
from converters.manifest import Entry, Manifest
from converters.sources.source import Source
from graphtools.errors import UnsupportedError
from graphtools.runtime import runtime_version
from graphtools.tensors import Array, DType, Held, LazyTensor

__all__ = ["REFERENCE", "codec_baseline"]

REFERENCE = "replay-f64"


def codec_baseline(
    manifest: Manifest, source: Source, audio: Path, output: Path, exports: Sequence[Path] = ()
) -> Baseline:
    """Encode a clip, decode its codes, and write every stage of both.

    Args:
        manifest: the checkpoint, described.
        source: the checkpoint, for its files' digests.
        audio: at the codec's own rate and channels.
        output: the GGUF to write.
        exports: ONNX exports of the codec: then codes and samples are onnxruntime's, and no
            stage between them is known.

    Raises:
        UnsupportedError: the clip has another rate or other channels, or an export is none of
            this codec.
    """
    codec = codec_of(manifest)
    wave = np.atleast_2d(read_audio(audio, codec.sample_rate, codec.channels))
    coded = codec.encode(wave)
    assert coded.margins is not None  # encoding always gives them
    goldens: dict[str, Array] = {"wav": wave, "codes_margin": coded.margins}
    noise: dict[str, float | None] = {}
    if exports:
        reference = f"onnxruntime {runtime_version()}"
        run = Exports(exports, codec)
        codes = run.encode(wave)
        if codes is not None:
            _require_shape(exports, "codes", codes, coded.output)
            goldens["codes"] = codes
            noise["codes"] = float(np.abs(codes - coded.output).max())
        else:
            codes = coded.output
        decoded = run.decode(codes)
        if decoded is not None:
            goldens["decoded"] = decoded
            noise["decoded"] = float(np.abs(decoded - codec.decode(codes).output).max())
    else:
        reference = REFERENCE
        back = codec.decode(coded.output)
        stages = {**coded.stages, "codes": coded.output, **back.stages}
        goldens |= stages
        noise = dict.fromkeys(stages)  # the reference itself has none
    values = {
        "arch": manifest.architecture,
        "model_sha256": ",".join(file_sha256(file) for file in (*source.files, *exports)),
        "audio_name": audio.name,
        "audio_sha256": file_sha256(audio),
        "reference": reference,
    }
    entries = [Entry(f"baseline.{key}", "string", v, "baseline run") for key, v in values.items()]
    entries.append(Entry("baseline.stages", "[string]", tuple(noise), "baseline run"))
    measured = [float(np.float32(v)) for v in noise.values() if v is not None]
    if measured:
        entries.append(Entry("baseline.noise", "[f32]", tuple(measured), "baseline run"))
    tensors = [
        _codes(name, value) if name == "codes" else golden_tensor(name, value)
        for name, value in goldens.items()
    ]
    emit_goldens(Manifest(ARCHITECTURE, manifest.name, tuple(entries), tuple(tensors)), output)
    return Baseline(
        arch=manifest.architecture,
        output=output,
        reference=reference,
        length=wave.shape[-1],
        stages={name: (goldens[name].shape, value) for name, value in noise.items()},
        outputs={name: goldens[name] for name in ("codes", "decoded") if name in goldens},
        seg_pool=None,
        unit="samples",
    )


def _require_shape(exports: Sequence[Path], what: str, found: Array, ours: Array) -> None:
    if found.shape != ours.shape:
        raise UnsupportedError(
            f"the export gives {what} of another shape than the checkpoint",
            file=exports[0],
            expected=str(list(ours.shape)),
            found=str(list(found.shape)),
            todo="name the export of this very checkpoint",
        )


def _codes(name: str, values: Array) -> LazyTensor:
    array = np.ascontiguousarray(values, dtype=np.int32)
    return LazyTensor(name, array.shape, DType.I32, Held(name, array))
