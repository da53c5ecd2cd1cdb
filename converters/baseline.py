"""Golden intermediates of a speaker encoder: onnxruntime's tensors at the forward's stages."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converters.archs import arch_of_family
from converters.archs.speaker import FBANK_ROWS
from converters.audio import read_audio
from converters.convert import describe, require_recovered
from converters.emit import emit
from converters.frontend import log_mel, mean_subtracted
from converters.manifest import Entry, Manifest
from converters.replay import Replay
from converters.schema import Row
from graphtools.errors import UnsupportedError
from graphtools.graph import build
from graphtools.onnx_edit import SegmentRule, has_partial_windows
from graphtools.onnx_file import load
from graphtools.runtime import Runner, runtime_version
from graphtools.tensors import Array, DType, Held, LazyTensor

__all__ = ["ARCHITECTURE", "ROWS", "Baseline", "baseline"]

ARCHITECTURE = "voicedetect-baseline"

_P = "baseline"
ROWS = (
    Row(f"{_P}.arch", "string", "which encoder the goldens are of", "source"),
    Row(f"{_P}.model_sha256", "string", "sha256 of the model file", "source"),
    Row(f"{_P}.audio_name", "string", "file name of the clip", "source"),
    Row(f"{_P}.audio_sha256", "string", "sha256 of the clip's file", "source"),
    Row(f"{_P}.onnxruntime", "string", "version that computed the goldens", "source"),
    Row(
        f"{_P}.seg_pool",
        "string",
        "last partial segment is divided by: kernel (100, the engine) or valid (as PyTorch)",
        "source",
    ),
    Row(f"{_P}.stages", "[string]", "stage tensors in execution order", "source"),
    Row(
        f"{_P}.stage_weights",
        "[string]",
        "for each stage, its weight tensors in pull order, joined by a line feed",
        "source",
    ),
    Row(
        f"{_P}.noise",
        "[f32]",
        "for each stage, max |onnxruntime - float64 replay|, both end to end",
        "source",
    ),
    *(
        Row(r.key.replace("voicedetect", _P), r.type, r.meaning, r.proof, r.unit)
        for r in FBANK_ROWS
    ),
)


@dataclass(frozen=True)
class Baseline:
    """What was written.

    Attributes:
        stages: stage name to (shape, noise), in execution order.
        embedding: at unit length, float32 ``[D]``.
    """

    arch: str
    output: Path
    frames: int
    stages: dict[str, tuple[tuple[int, ...], float]]
    embedding: Array
    encoder_out: Array
    seg_pool: SegmentRule | None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "arch": self.arch,
            "output": str(self.output),
            "frames": self.frames,
            "seg_pool": self.seg_pool,
            "stages": {n: {"shape": list(s), "noise": v} for n, (s, v) in self.stages.items()},
            "encoder_out": self.encoder_out.tolist(),
            "embedding": self.embedding.tolist(),
        }


def baseline(
    model: Path,
    audio: Path,
    output: Path,
    *,
    name: str | None = None,
    seg_pool: SegmentRule = "kernel",
) -> Baseline:
    """Write the goldens of one clip.

    Args:
        name: stored as ``general.name``; the model's path by default.
        seg_pool: the rule for the last partial segment (CAM++); ``kernel`` divides by 100.

    Raises:
        UnsupportedError: the model or the clip does not fit.
    """
    net = require_recovered(build(load(model)))
    graph, stages = net.graph, net.binding.stages
    raw = log_mel(read_audio(audio))
    features = mean_subtracted(raw)
    _require_length(graph.model.inputs[0].shape, len(features), audio)
    rule = seg_pool if has_partial_windows(graph.model) else None
    runner = Runner.of(graph.model, [*stages.values()], rule)
    found = runner.run({net.binding.input: features[None]})
    arch = arch_of_family(net.family.name)
    manifest = describe(net, arch, name or str(model))
    replay = Replay.of(manifest)
    goldens: dict[str, Array] = {"fbank_raw": raw.T, "fbank": features.T}
    noise: dict[str, float] = {}

    def keep(stage: str, ours: Array) -> Array:
        goldens[stage] = found[stages[stage]].reshape(ours.shape)
        noise[stage] = float(np.abs(goldens[stage] - ours).max())
        return ours

    replay.run(features, keep, rule)
    encoder_out = goldens["encoder_out"]
    norm = float(np.linalg.norm(encoder_out.astype(np.float64)))
    goldens["embedding"] = (encoder_out / norm).astype(np.float32)
    weights = replay.network.stage_weights()
    values: dict[str, object] = {
        "arch": arch.name,
        "model_sha256": _sha256(model),
        "audio_name": audio.name,
        "audio_sha256": _sha256(audio),
        "onnxruntime": runtime_version(),
        **({"seg_pool": rule} if rule else {}),
        "stages": tuple(stages),
        "stage_weights": tuple("\n".join(weights[stage]) for stage in stages),
        "noise": tuple(float(np.float32(noise[stage])) for stage in stages),
        **{f"fbank.{r.key.rsplit('.', 1)[1]}": r.fixed for r in FBANK_ROWS},
    }
    types = {row.key: row.type for row in ROWS}
    entries = tuple(
        Entry(f"{_P}.{key}", types[f"{_P}.{key}"], _stored(value), "baseline run")
        for key, value in values.items()
    )
    tensors = tuple(_held(stage, value) for stage, value in goldens.items())
    with emit(Manifest(ARCHITECTURE, name or str(model), entries, tensors), output):
        pass
    return Baseline(
        arch=arch.name,
        output=output,
        frames=len(features),
        stages={s: (goldens[s].shape, noise[s]) for s in stages},
        embedding=goldens["embedding"],
        encoder_out=encoder_out,
        seg_pool=rule,
    )


def _require_length(shape: tuple[int | str, ...] | None, frames: int, audio: Path) -> None:
    if shape and isinstance(shape[1], int) and shape[1] != frames:
        raise UnsupportedError(
            "the model takes one length only, and the clip has another",
            file=audio,
            expected=f"{shape[1]} frames",
            found=f"{frames} frames",
            todo="cut the clip to that length, or export the model with a dynamic time axis",
        )


def _stored(value: object) -> Any:
    return float(np.float32(value)) if isinstance(value, float) else value


def _held(name: str, values: Array) -> LazyTensor:
    array = np.ascontiguousarray(values, dtype=np.float32)
    return LazyTensor(name, array.shape, DType.F32, Held(name, array))


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
