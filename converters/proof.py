"""Does a written GGUF compute what its source computes? Stage by stage, value by value.

The file is read back and replayed from its keys and tensors alone. Every stage is fed
onnxruntime's own inputs to it, so that the first stage that differs is the one that is wrong;
weight-free islands are also run alone; every metadata value has to have taken part, or to equal
its source. The structure of the source decides nothing here: numbers do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from converters import gguf_file
from converters.compare import difference, local_error
from converters.probes import Probe
from converters.proof_regions import check_regions
from converters.proof_result import GATE, MIN_COSINE, Proof, WorstError
from converters.proof_source import (
    SourceError,
    as_shape,
    feeds,
    frames_of,
    probes_of,
    require_layout,
    run,
    told,
)
from converters.replay import Replay
from graphtools.errors import UnprovenError, UnsupportedError
from graphtools.onnx_edit import SegmentRule, has_partial_windows
from graphtools.recover import Recovered
from graphtools.runtime import Runner, runtime_version
from graphtools.tensors import Array, DType

__all__ = ["prove"]


def prove(path: Path, net: Recovered, *, allow_unproven: Collection[str] = ()) -> Proof:
    """Replay the GGUF at ``path`` against the model it was made from.

    Returns a `Proof` that is falsy when the file is wrong or a value is unproven.

    Raises:
        UnsupportedError: onnxruntime cannot run the source.
    """
    proof = Proof(runtime_version(), allowed=tuple(sorted(allow_unproven)))
    try:
        replay = Replay.of(gguf_file.read(path))
        require_layout(net)
        frames = frames_of(net)
        if frames is not None:
            proof.notes.append(f"the export takes {frames} frames only, it is proven on those")
        if any(t.dtype in (DType.F16, DType.BF16) for t in net.graph.model.constants.values()):
            proof.notes.append(
                "half-precision weights are widened exactly; the proof ran on a copy of the "
                "source widened to f32"
            )
        _check_values(replay, net, proof)
        _take_constants(replay, net)
        for rule in _rules(net):
            shapes = _check_stages(replay, net, rule, proof)
            if proof.failures:
                return proof
            check_regions(replay, net, rule, shapes, proof)
        _compare_rules(net, proof)
        _check_exercised(replay, proof)
    except SourceError as error:
        raise error.cause from error
    except UnsupportedError as error:
        # The manifest cannot be computed at all: that is an answer about the file.
        proof.failures.append(
            UnprovenError(
                error.cause, where=error.where, expected=error.expected, found=error.found
            )
        )
    return proof


def _take_constants(replay: Replay, net: Recovered) -> None:
    """Constants that no key carries are the source's own while it is proven.

    The architecture has accepted the little that the engine has otherwise; compared as it is,
    a silent channel would show nothing but that.
    """
    network = replay.network
    stored = {
        name: found.value
        for name, found in net.binding.constants.items()
        if name in network.constants and name not in network.keys
    }
    replay.network = replace(network, constants={**network.constants, **stored})


def _rules(net: Recovered) -> tuple[SegmentRule | None, ...]:
    return ("kernel", "valid") if has_partial_windows(net.graph.model) else (None,)


def _check_stages(
    replay: Replay, net: Recovered, rule: SegmentRule | None, proof: Proof
) -> dict[str, tuple[int, ...]]:
    """Points 1 and 2: every stage locally on every probe, the embedding end to end on speech.

    Returns the shapes that the regions' entries have on speech.
    """
    tensors = net.binding.stages
    entries = [region.entry for _, region in net.binding.regions]
    runner = Runner.of(net.graph.model, [*tensors.values(), *entries], rule)
    inputs = probes_of(net)
    shapes: dict[str, tuple[int, ...]] = {}
    for probe in inputs:
        reference = run(runner, feeds(net, probe))

        def check(
            stage: str, ours: Array, probe: Probe = probe, reference: dict[str, Array] = reference
        ) -> Array:
            theirs = as_shape(reference[tensors[stage]], ours.shape, stage)
            error = local_error(theirs, ours)
            known = proof.stages.get(stage)
            if known is None or error > known.error:
                proof.stages[stage] = WorstError(stage, error, probe.name, rule)
            if error > GATE:
                raise UnprovenError(
                    f"the stage {stage} does not compute what the source computes",
                    where=f"probe {probe.name!r}, fed onnxruntime's own input to the stage",
                    expected=f"|d| <= {GATE:g} x (|ref| + rms) for every element",
                    found=f"{error:.3g}, {told(difference(theirs, ours))}",
                )
            return theirs

        replay.run(probe.features, check, rule)
        if probe is inputs[0]:
            shapes = {entry: reference[entry].shape for entry in entries}
            name = [*tensors][-1]
            ours = replay.run(probe.features, rule=rule)
            apart = difference(as_shape(reference[tensors[name]], ours.shape, name), ours)
            proof.end_to_end[rule or "plain"] = apart
            _check_length(replay, len(ours), proof)
            if apart.cosine < MIN_COSINE:
                raise UnprovenError(
                    "the embedding of the whole replay is not the source's",
                    where=f"probe {probe.name!r}",
                    expected=f"cosine >= {MIN_COSINE}",
                    found=told(apart),
                )
    return shapes


def _check_length(replay: Replay, length: int, proof: Proof) -> None:
    """The embedding's length is a key, and what the source computes has to have it."""
    if replay.embedding_dim != length:
        raise UnprovenError(
            "the value of 'voicedetect.embedding_dim' is not the embedding's length",
            expected=str(length),
            found=str(replay.embedding_dim),
        )
    proof.values["voicedetect.embedding_dim"] = f"length of the source's embedding: {length}"


def _compare_rules(net: Recovered, proof: Proof) -> None:
    """Point 6: how far the two segment rules are apart, and which one this runtime follows."""
    rules = [rule for rule in _rules(net) if rule is not None]
    if not rules:
        return
    model, output, speech = net.graph.model, net.binding.output, probes_of(net)[0]
    pinned = {r: run(Runner.of(model, [output], r), feeds(net, speech))[output] for r in rules}
    untouched = run(Runner.of(model, [output]), feeds(net, speech))[output]
    proof.rule_distance = 1.0 - difference(pinned["kernel"], pinned["valid"]).cosine
    if local_error(pinned["kernel"], pinned["valid"]) <= GATE:
        frames = speech.features.shape[0]
        proof.notes.append(f"{frames} frames do not exercise the segment rule (no partial segment)")
        return
    follows = [r for r in rules if local_error(untouched, pinned[r]) <= GATE]
    proof.runtime_rule = follows[0] if follows else None
    if not follows:
        proof.notes.append("the installed onnxruntime follows neither segment rule on this model")


def _check_values(replay: Replay, net: Recovered, proof: Proof) -> None:
    """Point 4, what needs no run: types, fixed values, and equality with the source."""
    manifest, rows = replay.manifest, {row.key: row for row in replay.arch.rows}
    if net.family.name != replay.arch.family:
        raise UnprovenError(
            "the file is of another architecture than its source",
            expected=net.family.title,
            found=replay.arch.name,
        )
    for entry in manifest.entries:
        if entry.key not in rows:
            raise UnprovenError(f"the key {entry.key!r} is not in the schema")
    constants = {key: name for name, key in replay.network.keys.items()}
    for key, row in rows.items():
        value = manifest.get(key, row.type)
        wanted: object = row.fixed
        if row.proof == "source":
            wanted = net.binding.constants[constants[key]].value
        elif row.proof != "schema":
            continue
        if value != (float(np.float32(wanted)) if isinstance(wanted, float) else wanted):
            source = "the schema" if row.proof == "schema" else "the source"
            raise UnprovenError(
                f"the value of {key!r} is not {source}'s",
                expected=repr(wanted),
                found=repr(value),
            )
        proof.values[key] = "equals the schema" if row.proof == "schema" else "equals the source"


def _check_exercised(replay: Replay, proof: Proof) -> None:
    """Point 4, what the runs have to have used: every tensor and every constant."""
    unread = [t.name for t in replay.manifest.tensors if t.name not in replay.pulled]
    if unread:
        raise UnprovenError(
            f"{len(unread)} tensors are in the file that no key names", found=unread[0]
        )
    constants = {key: name for name, key in replay.network.keys.items()}
    for row in replay.arch.rows:
        if row.key in proof.values:
            continue
        if row.proof == "replay" and row.key in constants:
            if constants[row.key] in replay.used:
                proof.values[row.key] = "changed values in the replay"
            else:
                proof.unproven[row.key] = "no probe reached it"
        elif row.proof == "replay":
            proof.values[row.key] = "pulled by the replay"
