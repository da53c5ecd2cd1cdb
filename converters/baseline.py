"""Golden intermediates: the reference's own tensors at the forward's stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converters.archs import arch_of_family
from converters.archs.checkpoint import Options
from converters.archs.speaker import FBANK_ROWS
from converters.audio import read_audio
from converters.checkpoint import Described, describe_checkpoint
from converters.convert import describe, require_arch, require_recovered
from converters.frontend import log_mel, mean_subtracted
from converters.golden_files import golden_file, require_form
from converters.goldens import SCHEMA, file_sha256
from converters.manifest import Entry
from converters.reference import explained, reference_for
from converters.replay import Replay
from converters.sources.locate import is_checkpoint
from converters.sources.source import open_source
from graphtools.errors import UnsupportedError, UsageError
from graphtools.files import require_other
from graphtools.graph import build
from graphtools.onnx_edit import SegmentRule, has_partial_windows
from graphtools.onnx_file import load
from graphtools.runtime import Runner, runtime_version
from graphtools.tensors import Array

__all__ = ["Baseline", "baseline"]

_P = "baseline"


@dataclass(frozen=True)
class Baseline:
    """What was written.

    Attributes:
        reference: what computed the goldens, with its version.
        length: of the input, in ``unit``: feature frames, or samples of a channel.
        stages: stage name to (shape, noise), in execution order; None where nothing measured it.
        outputs: the network's results by name; a speaker encoder's with ``embedding``, float32
            at unit length ``[D]``.
    """

    arch: str
    output: Path
    reference: str
    length: int
    stages: dict[str, tuple[tuple[int, ...], float | None]]
    outputs: dict[str, Array]
    seg_pool: SegmentRule | None
    unit: str = "frames"

    @property
    def embedding(self) -> Array:
        """A speaker encoder's embedding at unit length ``[D]``."""
        return self.outputs["embedding"]

    @property
    def encoder_out(self) -> Array:
        """A speaker encoder's raw embedding ``[D]``."""
        return self.outputs["encoder_out"]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "arch": self.arch,
            "output": str(self.output),
            "reference": self.reference,
            "length": self.length,
            "unit": self.unit,
            "seg_pool": self.seg_pool,
            "stages": {n: {"shape": list(s), "noise": v} for n, (s, v) in self.stages.items()},
            **{name: value.tolist() for name, value in self.outputs.items()},
        }


def baseline(
    model: Path,
    audio: Path,
    output: Path,
    *,
    name: str | None = None,
    arch: str | None = None,
    seg_pool: SegmentRule = "kernel",
    options: Options | None = None,
    exports: Sequence[Path] = (),
) -> Baseline:
    """Write the goldens of one clip: by onnxruntime, or by the library a checkpoint comes from.

    Args:
        model: an ONNX file, or a checkpoint's folder or file.
        audio: 16 kHz, mono; for a codec at its own rate and channels.
        output: a ``.gguf``, an ``.npz``, or a folder for ``.npy`` files; of a codec a GGUF.
        name: stored as ``general.name``; the model's path by default.
        arch: the architecture that the model is asserted to be.
        seg_pool: the rule for the last partial segment (CAM++); ``kernel`` divides by 100.
        options: what the user says where a checkpoint is silent.
        exports: ONNX exports of a codec's checkpoint, to be run instead of the replay.

    Raises:
        UsageError: exports of what is no codec's checkpoint.
        UnsupportedError: the model or the clip does not fit.
        MissingDependencyError: a checkpoint, and its library is not installed.
    """
    require_other(output, model, audio, *exports)
    require_form(output)
    title = name or str(model)
    run: _Run
    if is_checkpoint(model):
        described = describe_checkpoint(open_source(model), title, arch=arch, options=options)
        if described.arch.inverse is not None:
            from converters.codec_baseline import codec_baseline

            if output.suffix != ".gguf":
                raise UsageError(
                    "a codec's goldens are a GGUF", expected="a name in .gguf", found=str(output)
                )
            return codec_baseline(described.manifest, described.source, audio, output, exports)
        run = _library_run(described)
    else:
        run = _onnx_run(model, title, arch, seg_pool, audio)
    if exports:
        raise UsageError("only a codec's checkpoint has exports beside it", found=str(exports[0]))
    samples = read_audio(audio)
    replay = run.replay
    if replay.takes_samples:
        values, goldens = samples, {}
    else:
        raw = log_mel(samples)
        values = mean_subtracted(raw)
        goldens = {"fbank_raw": raw.T, "fbank": values.T}
    found = run.stages(values)
    noise: dict[str, float] = {}

    def keep(stage: str, ours: Array) -> Array:
        goldens[stage] = found[stage].reshape(ours.shape)
        if not np.isfinite(goldens[stage]).all():
            raise UnsupportedError(
                f"{run.reference} computes values that are not finite at the stage {stage}",
                file=audio,
                found=f"a clip of {len(values)} {'samples' if replay.takes_samples else 'frames'}",
                todo="take a longer clip, or check the model's weights",
            )
        noise[stage] = float(np.abs(goldens[stage] - ours).max())
        return ours

    replay.run(values, keep, run.rule)
    outputs = {stage: goldens[stage] for stage in replay.arch.outputs}
    if "encoder_out" in outputs:
        norm = float(np.linalg.norm(outputs["encoder_out"].astype(np.float64)))
        outputs["embedding"] = (outputs["encoder_out"] / norm).astype(np.float32)
        goldens["embedding"] = outputs["embedding"]
    weights = replay.network.stage_weights()
    keys: dict[str, object] = {
        "arch": replay.arch.name,
        "model_sha256": ",".join(file_sha256(file) for file in run.files),
        "audio_name": audio.name,
        "audio_sha256": file_sha256(audio),
        "reference": run.reference,
        **({"seg_pool": run.rule} if run.rule else {}),
        "stages": tuple(noise),
        "stage_weights": tuple("\n".join(weights[stage]) for stage in noise),
        "noise": tuple(float(np.float32(v)) for v in noise.values()),
        **_fbank_or_head(replay, outputs),
    }
    types = {row.key: row.type for row in SCHEMA.all_rows}
    entries = tuple(
        Entry(f"{_P}.{key}", types[f"{_P}.{key}"], _stored(value), "baseline run")
        for key, value in keys.items()
    )
    with golden_file(output, sum(value.nbytes for value in goldens.values())) as file:
        for stage, value in goldens.items():
            file.add(stage, np.asarray(value, np.float32))
        file.finish(title, entries)
    return Baseline(
        arch=replay.arch.name,
        output=output,
        reference=run.reference,
        length=len(values),
        stages={s: (goldens[s].shape, noise[s]) for s in noise},
        outputs=outputs,
        seg_pool=run.rule,
        unit="samples" if replay.takes_samples else "frames",
    )


@dataclass(frozen=True)
class _Run:
    """Who computes the stages, and the replay that says how accurate that is."""

    replay: Replay
    reference: str
    files: tuple[Path, ...]
    stages: Callable[[Array], Mapping[str, Array]]
    rule: SegmentRule | None = None


def _onnx_run(
    model: Path, title: str, arch: str | None, seg_pool: SegmentRule, audio: Path
) -> _Run:
    net = require_recovered(build(load(model)))
    found = arch_of_family(net.family.name)
    require_arch(arch, net.family.name if found is None else found.name, net)
    graph, tensors = net.graph, net.binding.stages
    rule = seg_pool if has_partial_windows(graph.model) else None
    runner = Runner.of(graph.model, [*tensors.values()], rule)

    def stages(features: Array) -> dict[str, Array]:
        _require_length(graph.input(net.binding.input).shape, len(features), audio)
        computed = runner.run({net.binding.input: features[None]})
        return {stage: computed[tensor] for stage, tensor in tensors.items()}

    # Where no engine has a schema, the weights are those that the network was recovered with.
    replay = Replay.bound(net) if found is None else Replay.of(describe(net, found, title))
    return _Run(replay, f"onnxruntime {runtime_version()}", (model,), stages, rule)


def _library_run(described: Described) -> _Run:
    source, arch = described.source, described.arch
    replay = Replay.of(described.manifest)
    reference = reference_for(arch.family)
    if reference is None:
        raise UnsupportedError(f"no library computes the goldens of {arch.name}")
    library = reference.library()
    stages = explained(reference.stages(source, arch.name, replay.normalize))
    return _Run(replay, library, source.files, stages)


def _fbank_or_head(replay: Replay, outputs: Mapping[str, Array]) -> dict[str, object]:
    """The front end that features were made with, or what the head's outputs mean."""
    if not replay.takes_samples:
        return {f"fbank.{r.key.rsplit('.', 1)[1]}": r.fixed for r in FBANK_ROWS}
    values: dict[str, object] = {}
    for label in ("emotion", "gender"):
        if f"{label}_probs" in outputs:
            names = replay.manifest.get(f"voicedetect.analyze.{label}_labels", "[string]")
            values[f"{label}_labels"] = names
            values[f"dominant_{label}"] = names[int(outputs[f"{label}_probs"].argmax())]
    if "age_raw" in outputs:
        values["age_years"] = float(outputs["age_raw"][0]) * 100.0
    return values


def _require_length(shape: tuple[int | str, ...] | None, frames: int, audio: Path) -> None:
    if shape is not None and shape[1:2] not in ((), (frames,)) and isinstance(shape[1], int):
        raise UnsupportedError(
            "the model takes one length only, and the clip has another",
            file=audio,
            expected=f"{shape[1]} frames",
            found=f"{frames} frames",
            todo="cut the clip to that length, or export the model with a dynamic time axis",
        )


def _stored(value: object) -> Any:
    return float(np.float32(value)) if isinstance(value, float) else value
