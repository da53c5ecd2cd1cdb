"""From a checkpoint to a manifest GGUF, and how far the result is proven.

Three levels, each with all that the one before it says:

    data  every stored tensor equals its source, every source key is accounted for
    ci    the forward was proven in this project's tests against the library, on a space of
          configurations that this one lies in (outside it, the model is refused)
    full  the library is installed here: compared now, stage by stage
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from converters import gguf_file
from converters.archs import ARCHS, Arch
from converters.archs.checkpoint import CheckpointBuilder, Options
from converters.codec import codec_of
from converters.compare import Difference, difference
from converters.manifest import Manifest
from converters.probes import probes, speech_samples
from converters.reference import Reference, explained, reference_for
from converters.replay import Replay
from converters.sources.source import Source
from converters.stream import same
from graphtools.errors import Error, MissingDependencyError, UnprovenError, UnsupportedError
from graphtools.tensors import Array, WeightNorm

__all__ = ["MIN_COSINE", "CheckpointProof", "Described", "Level", "describe_checkpoint", "prove"]

# A stage equals the library's when its cosine is at least this and max|d| at most 1e-3 of the
# larger of 1 and the golden's largest value: float32 against float64 over a whole network.
MIN_COSINE = 0.9999
_MAX_ABS = 1e-3

Level = Literal["data", "ci", "full"]


@dataclass(frozen=True, eq=False)
class Described:
    """A checkpoint as a manifest, with what became of each of its keys."""

    arch: Arch
    source: Source
    options: Options
    manifest: Manifest
    stored: dict[str, str]
    left_out: dict[str, str]


@dataclass
class CheckpointProof:
    """The result; truthy when the file is proven at its level.

    Attributes:
        library: what the forward was compared with: now (full) or in the tests (ci).
        tensors: how many equal their source; ``sampled``: in blocks, not in every byte.
        stages: worst difference of each stage over the probes (full).
    """

    level: Level
    library: str
    space: str
    tensors: int = 0
    sampled: bool = False
    stages: dict[str, Difference] = field(default_factory=dict)
    failures: list[Error] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.failures

    def require(self) -> None:
        """Raise the first failure."""
        if self.failures:
            raise self.failures[0]

    def summary(self) -> list[str]:
        """The result in lines for people."""
        lines = [f"proof level: {self.level}"]
        how = " (first, middle and last block of each)" if self.sampled else ""
        lines.append(f"  {self.tensors} tensors equal their sources{how}")
        if self.level == "full":
            worst = max(self.stages, key=lambda name: self.stages[name].max_abs)
            lines.append(
                f"  {len(self.stages)} stages equal {self.library} here and now; largest max|d| "
                f"{self.stages[worst].max_abs:.2g} at {worst}, "
                f"cosine {self.stages[worst].cosine:.8f}"
            )
        else:
            lines.append(f"  this forward is proven in our tests against {self.library} on:")
            lines.append(f"  {self.space}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Plain data, the same for the same input."""
        return {
            "proven": bool(self),
            "level": self.level,
            "library": self.library,
            "config_space": self.space,
            "tensors_equal_to_source": self.tensors,
            "sampled": self.sampled,
            "stages": {
                name: {"cosine": d.cosine, "max_abs": d.max_abs} for name, d in self.stages.items()
            },
            "failures": [e.fields() for e in self.failures],
            "notes": self.notes,
        }


def describe_checkpoint(
    source: Source, name: str, *, arch: str | None = None, options: Options | None = None
) -> Described:
    """The manifest of a checkpoint; nothing but headers is read.

    Args:
        source: the opened checkpoint.
        name: stored as ``general.name``.
        arch: the architecture that it is asserted to be.
        options: what the user says where the checkpoint is silent.

    Raises:
        UnsupportedError: it is none of the known architectures, or lies outside the space of
            configurations that the forward was proven on.
    """
    options = options or Options()
    if options.strip_prefix:
        source = source.without_prefix(options.strip_prefix)
    found = [a for a in ARCHS if a.claims is not None and a.claims(source.shapes)]
    known = ", ".join(a.name for a in ARCHS if a.claims is not None)
    if len(found) != 1 or (arch is not None and arch != found[0].name):
        raise UnsupportedError(
            f"the checkpoint is not {arch}" if arch else "the checkpoint is of no known model",
            file=source.path,
            expected=arch or known,
            found=", ".join(a.name for a in found)
            or f"{len(source.tensors)} tensors, first {next(iter(source.tensors), 'none')!r}",
            todo="see `graphtools inspect` for what it holds",
        )
    (chosen,) = found
    assert chosen.describe_checkpoint is not None  # those that claim can describe
    builder = CheckpointBuilder(source, chosen.all_rows, options)
    with Error.about(source.path):
        chosen.describe_checkpoint(builder)
    order = {row.key: i for i, row in enumerate(chosen.all_rows)}
    notes = [*builder.notes, *([chosen.licence] if chosen.licence else [])]
    manifest = Manifest(
        architecture=chosen.architecture,
        name=name,
        entries=tuple(sorted(builder.entries, key=lambda e: order[e.key])),
        tensors=tuple(builder.tensors.values()),
        left_out=tuple(f"{k} ({why})" for k, why in builder.left_out.items()),
        notes=tuple(notes),
    )
    with Error.about(source.path):
        chosen.restore(manifest)
    if options.strict and builder.unplaced:
        raise UnsupportedError(
            f"{len(builder.unplaced)} entries of the state dict have no destination (--strict)",
            file=source.path,
            expected="tensors, and entries that the architecture is known to leave out",
            found=", ".join(builder.unplaced[:5]),
            todo="leave --strict out if the model does not need them",
        )
    return Described(chosen, source, options, manifest, builder.stored, builder.left_out)


def prove(path: Path, described: Described, *, sample: bool = False) -> CheckpointProof:
    """Prove the GGUF at ``path`` against the checkpoint it was made from, as far as can be.

    Args:
        path: the written file.
        described: the checkpoint.
        sample: the file is too large to be read as a whole: of every tensor that stands in the
            source as it is stored the first, a middle and the last block are compared, and a
            codec is not run.
    """
    arch = described.arch
    proof = CheckpointProof("ci", arch.tested, arch.space)
    try:
        written = gguf_file.read(path)
        replay = Replay.of(written)
        _check_keys(replay, described)
        proof.tensors = _check_data(written, described, sample)
        proof.sampled = sample
        # A codec's shapes are all known from its config, and were compared with that.
        if not sample or arch.inverse is None:
            _run_once(replay)  # shapes that do not fit show on any input
        reference = _importable(arch, proof)
        if reference is None:
            return proof
        proof.library = reference.library()
        proof.level = "full"
        run = explained(reference.stages(described.source, arch.name, replay.normalize))
        for values in _inputs(replay):
            _check_stages(replay, values, run(values), proof)
    except UnprovenError as error:
        proof.failures.append(error)
    except UnsupportedError as error:
        proof.failures.append(
            UnprovenError(
                error.cause, where=error.where, expected=error.expected, found=error.found
            )
        )
    return proof


def _importable(arch: Arch, proof: CheckpointProof) -> Reference | None:
    """The family's library, if it is installed here; a note says so if not."""
    reference = reference_for(arch.family)
    line = "no published package has the model's code"
    try:
        if reference is not None:
            reference.library()
            return reference
    except MissingDependencyError as error:
        line = f"{error.todo} would compare with the library"
    proof.notes.append(f"proven in the project's tests against {arch.tested}, not here: {line}")
    return None


def _run_once(replay: Replay) -> None:
    if replay.arch.inverse is None:
        last = replay.run([*_inputs(replay)][-1])
        if not np.isfinite(last).all():
            raise UnprovenError("the network gives values that are not finite on speech")
        return
    codec = codec_of(replay.manifest)
    frames = 2 * codec.downsample
    codec.decode(codec.encode(np.zeros((codec.channels, frames))).output)


def _inputs(replay: Replay) -> Iterator[Array]:
    """Two clips of different length, of what the network takes."""
    if replay.takes_samples:
        samples = speech_samples()
        yield samples[:24000]
        yield samples[24000:35600]
    else:
        yield from (probe.features for probe in probes()[:2])


def _check_keys(replay: Replay, described: Described) -> None:
    """Every key is what the source says when it is described anew."""
    wanted = {e.key: (e.type, e.value) for e in described.manifest.entries}
    found = {e.key: (e.type, e.value) for e in replay.manifest.entries}
    for key in sorted({*wanted, *found}):
        if wanted.get(key) != found.get(key):
            raise UnprovenError(
                f"the value of {key!r} is not the source's",
                expected=repr(wanted.get(key)),
                found=repr(found.get(key)),
            )


def _check_data(written: Manifest, described: Described, sample: bool) -> int:
    """Every source tensor is in the file with its values, or left out on purpose."""
    for name, tensor in described.source.tensors.items():
        if name in described.left_out:
            continue
        stored = written.by_name.get(described.stored[name])
        # A weight-norm pair is one tensor in the file, and compared as that.
        meant = described.manifest.by_name[described.stored[name]]
        source = meant if isinstance(meant.recipe, WeightNorm) else tensor
        if stored is None or not same(stored, source, sample=sample):
            raise UnprovenError(
                f"the tensor {name!r} is not in the file as it is in the source",
                expected=f"{described.stored[name]!r} with the same values",
                found="no such tensor" if stored is None else "other values",
            )
    extra = set(written.by_name) - set(described.stored.values())
    if extra:
        raise UnprovenError(f"the tensor {min(extra)!r} is in the file and not in the source")
    return len(described.stored)


def _check_stages(
    replay: Replay, values: Array, goldens: dict[str, Array], proof: CheckpointProof
) -> None:
    def check(stage: str, ours: Array) -> Array:
        golden = goldens[stage]
        if golden.size != ours.size:
            raise UnprovenError(
                f"the stage {stage} has another shape than the library's",
                expected=str(list(golden.shape)),
                found=str(list(ours.shape)),
            )
        apart = difference(golden.reshape(ours.shape), ours)
        known = proof.stages.get(stage)
        if known is None or apart.max_abs > known.max_abs:
            proof.stages[stage] = apart
        bound = _MAX_ABS * max(1.0, float(np.abs(golden).max()))
        if apart.cosine < MIN_COSINE or not apart.max_abs <= bound:
            raise UnprovenError(
                f"the stage {stage} is not what the library computes",
                expected=f"cosine >= {MIN_COSINE}, max|d| <= {bound:.3g}",
                found=f"cosine {apart.cosine:.6f}, max|d| {apart.max_abs:.3g}",
            )
        return ours

    replay.run(values, check)
