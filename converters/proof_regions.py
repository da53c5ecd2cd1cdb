"""The regions without weights of a source, each run alone: point 3 of the proof.

What a pooling computes is read off its numbers, on noise, on an all-zero map (which shows the
epsilon) and over a length beyond any probe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from converters.compare import difference, local_error
from converters.proof_result import EPS_GATE, GATE, Proof
from converters.proof_source import SourceError, as_shape, feeds, frames_of, probes_of, run, told
from converters.replay import Replay
from graphtools.errors import UnprovenError, UnsupportedError
from graphtools.graph import Region, constant
from graphtools.islands import ISLANDS
from graphtools.model import Node
from graphtools.onnx_edit import SegmentRule, island_model
from graphtools.recover import Recovered
from graphtools.runtime import Runner
from graphtools.tensors import Array, DType

__all__ = ["check_regions"]

# Positions that a region is run over besides a clip's own: one that is cut off or switches at
# some length would show nothing on short clips. No multiple of 100 (the segment rule).
_LONG = 1499
# Any length: what exporters write for "to the end" of an axis.
_TO_THE_END = 2**31 - 1


def check_regions(
    replay: Replay,
    net: Recovered,
    rule: SegmentRule | None,
    shapes: Mapping[str, tuple[int, ...]],
    proof: Proof,
) -> None:
    """Point 3: each weight-free region alone, on noise and on an all-zero map.

    Args:
        replay: of the file that is proven.
        net: its source.
        rule: how the source's partial segments are averaged, if it has any.
        shapes: of the regions' entries on the first probe.
        proof: takes the result.
    """
    regions = [region for _, region in net.binding.regions]
    for region in regions:
        _require_reached(net, region)
    entries = [region.entry for region in regions]
    data, needed = island_model(net.graph, entries, [r.exit for r in regions], rule)
    runner = Runner(net.graph.model, data, [r.exit for r in regions])
    own = {n: v for n, v in feeds(net, probes_of(net)[0]).items() if n in needed}
    # (input of the graph, shapes of the entries, mean and spread of what they are fed)
    inputs = [(own, shapes, 1.0, 2.0), (own, shapes, 0.0, 0.0)]
    if frames_of(net) is None:
        # Once as loud as a bound on values might be, that no clip of a probe reaches.
        longer = _long_input(net, entries, shapes, own, rule)
        inputs += [(*longer, 0.0, 1.0), (*longer, 0.0, 1e3)]
    constants = {**replay.network.constants, "cam.valid": float(rule == "valid")}
    for context, shaped, mean, spread in inputs:
        values = _noise(shaped, mean, spread)
        found = run(runner, {**context, **values})
        for kind, region in net.binding.regions:
            mine = {n[len(kind) + 1 :]: v for n, v in constants.items() if n.startswith(f"{kind}.")}
            ours = ISLANDS[kind].compute(values[region.entry][0], mine)
            theirs = as_shape(found[region.exit], ours.shape, kind)
            if not spread and "eps" in mine:
                _check_eps(f"{kind}.eps", mine["eps"], theirs, replay, proof)
                continue
            error = local_error(theirs, ours)
            proof.islands[kind] = max(error, proof.islands.get(kind, 0.0))
            if error > GATE:
                raise UnprovenError(
                    f"the region {kind} does not compute {ISLANDS[kind].meaning}",
                    where=f'from "{region.entry}" to "{region.exit}"',
                    expected=f"|d| <= {GATE:g} x (|ref| + rms) for every element",
                    found=f"{error:.3g}, {told(difference(theirs, ours))}",
                )


def _noise(shapes: Mapping[str, tuple[int, ...]], mean: float, spread: float) -> dict[str, Array]:
    """Seeded normal values by name; entries of one shape share an array."""
    made: dict[tuple[int, ...], Array] = {}
    for shape in shapes.values():
        if shape not in made:
            rng = np.random.default_rng(7)
            made[shape] = rng.standard_normal(shape, dtype=np.float32)
            made[shape] *= np.float32(spread)
            made[shape] += np.float32(mean)
    return {name: made[shape] for name, shape in shapes.items()}


def _require_reached(net: Recovered, region: Region) -> None:
    """No number in a region may lie where no probe gets to: it could bound a length or a value.

    What a shape is made of is exempt: one that does not fit stops the runtime.
    """
    graph = net.graph
    for index in sorted(region.nodes):
        node = graph.model.nodes[index]
        if node.op in ("Reshape", "Expand", "ConstantOfShape"):
            continue
        for label, values in _numbers(net, node):
            beyond = [v for v in values if _LONG < abs(v) < _TO_THE_END]
            if beyond:
                raise SourceError(
                    UnsupportedError(
                        "a region without weights holds a number that no probe reaches",
                        file=graph.model.path,
                        where=f"{node}, {label}",
                        expected=f"at most {_LONG}, or no bound at all",
                        found=f"{beyond[0]:g}",
                        todo="export the model without a limit on the clip's length",
                    )
                )


def _numbers(net: Recovered, node: Node) -> Iterator[tuple[str, Sequence[float]]]:
    """The constants that a node reads and its attributes (where older opsets have bounds)."""
    for name in filter(None, node.inputs):
        found = constant(net.graph, name)
        if found is not None and found.dtype not in (DType.BOOL, DType.STRING, DType.OTHER):
            yield f'constant "{name}"', found.read().reshape(-1).tolist()
    for name, value in node.attributes.items():
        listed = value if isinstance(value, tuple) else (value,)
        yield f"attribute {name}", [v for v in listed if isinstance(v, int | float)]


def _long_input(
    net: Recovered,
    entries: list[str],
    shapes: Mapping[str, tuple[int, ...]],
    own: Mapping[str, Array],
    rule: SegmentRule | None,
) -> tuple[dict[str, Array], Mapping[str, tuple[int, ...]]]:
    """What the regions are fed at a length beyond any probe: the graph's own input, where they
    compute a shape from it, and the shapes that their entries have then."""
    if not own:
        return {}, {n: (*shapes[n][:-1], _LONG) for n in entries}
    (name,) = own
    rng = np.random.default_rng(11)
    features = rng.normal(0.0, 4.0, (1, _LONG, own[name].shape[2])).astype(np.float32)
    found = run(Runner.of(net.graph.model, entries, rule), {name: features})
    return {name: features}, {n: found[n].shape for n in entries}


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
