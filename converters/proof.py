"""Does a written GGUF compute what its source computes? Stage by stage, value by value.

The file is read back and replayed from its keys and tensors alone. Every stage is fed
onnxruntime's own inputs to it, so that the first stage that differs is the one that is wrong;
weight-free islands are also run alone; every metadata value has to have taken part, or to equal
its source. The structure of the source decides nothing here: numbers do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from converters import gguf_file
from converters.compare import Difference, difference, local_error
from converters.probes import Probe, probes
from converters.proof_result import EPS_GATE, GATE, MIN_COSINE, Proof, StageError
from converters.replay import Replay
from graphtools.errors import Error, UnprovenError, UnsupportedError
from graphtools.islands import ISLANDS
from graphtools.onnx_edit import SegmentRule, has_partial_windows, island_model
from graphtools.recover import Recovered
from graphtools.runtime import Runner, runtime_version
from graphtools.tensors import Array

__all__ = ["prove"]


# Positions that a region is run over besides a clip's own: one that is cut off or switches at
# some length would show nothing on short clips. No multiple of 100 (the segment rule).
_LONG = 1499


def prove(path: Path, net: Recovered, *, allow_unproven: Collection[str] = ()) -> Proof:
    """Replay the GGUF at ``path`` against the model it was made from.

    Returns a `Proof` that is falsy when the file is wrong or a value is unproven.

    Raises:
        UnsupportedError: onnxruntime cannot run the source.
    """
    proof = Proof(runtime_version(), allowed=tuple(sorted(allow_unproven)))
    try:
        replay = Replay.of(gguf_file.read(path))
        _check_values(replay, net, proof)
        _take_constants(replay, net)
        for rule in _rules(net):
            _check_stages(replay, net, rule, proof)
            if proof.failures:
                return proof
            _check_islands(replay, net, rule, proof)
        _compare_rules(net, proof)
        _check_exercised(replay, proof)
    except _SourceError as error:
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


class _SourceError(Exception):
    """Wraps what the source did wrong, so that it is not taken for the file's fault."""

    def __init__(self, cause: Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _rules(net: Recovered) -> tuple[SegmentRule | None, ...]:
    return ("kernel", "valid") if has_partial_windows(net.graph.model) else (None,)


def _frames(net: Recovered) -> int | None:
    shape = net.graph.model.inputs[0].shape
    return shape[1] if shape and isinstance(shape[1], int) else None


def _feeds(net: Recovered, probe: Probe) -> dict[str, Array]:
    return {net.binding.input: probe.features[None]}


def _run(runner: Runner, feeds: Mapping[str, Array]) -> dict[str, Array]:
    try:
        return runner.run(feeds)
    except Error as error:
        raise _SourceError(error) from error


def _check_stages(replay: Replay, net: Recovered, rule: SegmentRule | None, proof: Proof) -> None:
    """Points 1 and 2: every stage locally on every probe, the embedding end to end on speech."""
    tensors = net.binding.stages
    runner = Runner.of(net.graph.model, [*tensors.values()], rule)
    inputs = probes(_frames(net))
    for probe in inputs:
        reference = _run(runner, _feeds(net, probe))

        def check(
            stage: str, ours: Array, probe: Probe = probe, reference: dict[str, Array] = reference
        ) -> Array:
            theirs = _as_shape(reference[tensors[stage]], ours.shape, stage)
            error = local_error(theirs, ours)
            known = proof.stages.get(stage)
            if known is None or error > known.error:
                proof.stages[stage] = StageError(stage, error, probe.name, rule)
            if error > GATE:
                raise UnprovenError(
                    f"the stage {stage} does not compute what the source computes",
                    where=f"probe {probe.name!r}, fed onnxruntime's own input to the stage",
                    expected=f"|d| <= {GATE:g} x (|ref| + rms) for every element",
                    found=f"{error:.3g}, {_told(difference(theirs, ours))}",
                )
            return theirs

        replay.run(probe.features, check, rule)
        if probe is inputs[0]:
            name = [*tensors][-1]
            ours = replay.run(probe.features, rule=rule)
            apart = difference(_as_shape(reference[tensors[name]], ours.shape, name), ours)
            proof.end_to_end[rule or "plain"] = apart
            _check_length(replay, len(ours), proof)
            if apart.cosine < MIN_COSINE:
                raise UnprovenError(
                    "the embedding of the whole replay is not the source's",
                    where=f"probe {probe.name!r}",
                    expected=f"cosine >= {MIN_COSINE}",
                    found=_told(apart),
                )


def _check_length(replay: Replay, length: int, proof: Proof) -> None:
    """The embedding's length is a key, and what the source computes has to have it."""
    if replay.embedding_dim != length:
        raise UnprovenError(
            "the value of 'voicedetect.embedding_dim' is not the embedding's length",
            expected=str(length),
            found=str(replay.embedding_dim),
        )
    proof.values["voicedetect.embedding_dim"] = f"length of the source's embedding: {length}"


def _told(apart: Difference) -> str:
    return f"max|d| {apart.max_abs:.3g} at {list(apart.at)}, cosine {apart.cosine:.6f}"


def _as_shape(theirs: Array, shape: tuple[int, ...], stage: str) -> Array:
    """Onnxruntime's tensor without its batch axis, in the replay's shape, float64.

    Raises:
        UnprovenError: the shapes differ in more than axes of size 1.
    """
    if [d for d in theirs.shape if d != 1] != [d for d in shape if d != 1]:
        raise UnprovenError(
            f"the stage {stage} has another shape than in the source",
            expected=f"{list(theirs.shape)} in the source",
            found=f"{list(shape)} in the replay",
        )
    if not np.isfinite(theirs).all():
        raise _SourceError(
            UnsupportedError(
                "the source computes values that are not finite, so nothing can be proven",
                where=f"stage {stage}",
                todo="check the model's weights",
            )
        )
    return theirs.astype(np.float64).reshape(shape)


def _check_islands(replay: Replay, net: Recovered, rule: SegmentRule | None, proof: Proof) -> None:
    """Point 3: each weight-free region alone, on noise and on an all-zero map."""
    regions = [region for _, region in net.binding.regions]
    entries = [region.entry for region in regions]
    data, needed = island_model(net.graph, entries, [r.exit for r in regions], rule)
    runner = Runner(net.graph.model, data, [r.exit for r in regions])
    probe = probes(_frames(net))[0]
    shapes = _run(Runner.of(net.graph.model, entries, rule), _feeds(net, probe))
    rng = np.random.default_rng(7)
    noise = {n: rng.normal(1.0, 2.0, shapes[n].shape).astype(np.float32) for n in entries}
    zeros = {n: np.zeros_like(shapes[n]) for n in entries}
    own = {n: v for n, v in _feeds(net, probe).items() if n in needed}
    inputs = [(own, noise), (own, zeros)]
    if _frames(net) is None:
        inputs.append(_long_input(net, entries, shapes, own, rule))
    constants = {**replay.network.constants, "cam.valid": float(rule == "valid")}
    for context, values in inputs:
        found = _run(runner, {**context, **values})
        for kind, region in net.binding.regions:
            mine = {n[len(kind) + 1 :]: v for n, v in constants.items() if n.startswith(f"{kind}.")}
            ours = ISLANDS[kind].compute(values[region.entry][0].astype(np.float64), mine)
            theirs = _as_shape(found[region.exit], ours.shape, kind)
            if values is zeros and "eps" in mine:
                _check_eps(f"{kind}.eps", mine["eps"], theirs, replay, proof)
                continue
            error = local_error(theirs, ours)
            proof.islands[kind] = max(error, proof.islands.get(kind, 0.0))
            if error > GATE:
                raise UnprovenError(
                    f"the region {kind} does not compute {ISLANDS[kind].meaning}",
                    where=f'from "{region.entry}" to "{region.exit}"',
                    expected=f"|d| <= {GATE:g} x (|ref| + rms) for every element",
                    found=f"{error:.3g}, {_told(difference(theirs, ours))}",
                )


def _long_input(
    net: Recovered,
    entries: list[str],
    shapes: Mapping[str, Array],
    own: Mapping[str, Array],
    rule: SegmentRule | None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """What the regions are fed at a length beyond any probe: the graph's own input, where they
    compute a shape from it, and noise of the shape that their entries have then."""
    rng = np.random.default_rng(11)
    context: dict[str, Array] = {}
    longer = {n: (*shapes[n].shape[:-1], _LONG) for n in entries}
    if own:
        (name,) = own
        features = rng.normal(0.0, 4.0, (1, _LONG, own[name].shape[2])).astype(np.float32)
        context = {name: features}
        found = _run(Runner.of(net.graph.model, entries, rule), context)
        longer = {n: found[n].shape for n in entries}
    return context, {n: rng.normal(size=s).astype(np.float32) for n, s in longer.items()}


def _check_eps(name: str, eps: float, theirs: Array, replay: Replay, proof: Proof) -> None:
    """On an all-zero map the std half of the pooling is sqrt(eps)."""
    measured = float(theirs[len(theirs) // 2 :].astype(np.float64).mean())
    key = replay.network.keys.get(name)
    if key is None and measured:
        proof.notes.append(
            f"the pooling adds {measured**2:.3g} to the variance, the engine nothing"
        )
    if abs(np.sqrt(eps) - measured) > EPS_GATE * measured:
        raise UnprovenError(
            f"the value of {key or name!r} is not what the pooling adds to the variance",
            where="an all-zero map through the pooling",
            expected=f"{measured**2:.6g} (measured)",
            found=f"{eps:.6g}",
        )
    if key is not None:
        proof.values[key] = f"measured on the source's pooling: {measured**2:.6g}"


def _compare_rules(net: Recovered, proof: Proof) -> None:
    """Point 6: how far the two segment rules are apart, and which one this runtime follows."""
    rules = [rule for rule in _rules(net) if rule is not None]
    if not rules:
        return
    model, output, speech = net.graph.model, net.binding.output, probes(_frames(net))[0]
    pinned = {r: _run(Runner.of(model, [output], r), _feeds(net, speech))[output] for r in rules}
    untouched = _run(Runner.of(model, [output]), _feeds(net, speech))[output]
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
