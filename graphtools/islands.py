"""Weight-free regions: what they compute, and how their constants are read from a graph.

Every exporter spells a pooling differently, so recovery takes any weight-free single-entry
region in an island's place. Only its constants are looked for here; that the region computes
what the numpy function does is proven by running it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from graphtools.graph import Graph, Region, scalar, see
from graphtools.model import Node
from graphtools.tensors import Array

__all__ = ["ISLANDS", "Constant", "Island", "Mismatch"]


@dataclass(frozen=True)
class Constant:
    """A scalar that stands in the graph.

    Attributes:
        name: what the family calls it, e.g. ``relu_clamp`` or ``tstp.eps``.
        origin: the node and tensor it was read from.
    """

    name: str
    value: float
    origin: str


@dataclass(frozen=True)
class Mismatch:
    """Why a step of a forward does not fit a place of a graph."""

    where: str
    expected: str
    found: str


@dataclass(frozen=True)
class Island:
    """One kind of region.

    Attributes:
        meaning: one line for people.
        compute: (input, constants by short name) to output in float64, whatever the input's type.
        read: its constants, or why the region cannot be of this kind.
        pools: it gives two numbers for each channel and bin; else what goes in keeps its shape.
    """

    meaning: str
    compute: Callable[[Array, Mapping[str, float]], Array]
    read: Callable[[Graph, Region], Mapping[str, Constant] | Mismatch]
    pools: bool = False


# Elements that are held in float64 at a time: a long map of many channels is large enough once.
_CHUNK = 1 << 20


def _statistics(x: Array, constants: Mapping[str, float]) -> Array:
    """[..., T] to [2 * prod(...)]: means, then ``sqrt(unbiased variance + eps)`` over time.

    One frame has no unbiased variance: the result is NaN there, as it is in torch.
    """
    flat = x.reshape(-1, x.shape[-1])
    frames = flat.shape[1]
    means, squares = [], []
    rows = max(1, _CHUNK // frames)
    for start in range(0, len(flat), rows):
        part = flat[start : start + rows].astype(np.float64)
        means.append(part.mean(axis=1))
        part -= means[-1][:, None]
        squares.append(np.einsum("ct,ct->c", part, part))
    mean, total = np.concatenate(means), np.concatenate(squares)
    var = total / (frames - 1) if frames > 1 else np.full_like(mean, np.nan)
    return np.concatenate([mean, np.sqrt(var + constants["eps"])])


def _segment_context(x: Array, constants: Mapping[str, float]) -> Array:
    """[C, T] to [C, T]: the mean over time plus the mean of each frame's 100-frame segment.

    ``valid`` decides the divisor of the last, partial segment: 0 divides by the segment's
    length, 1 by the frames that are there (what PyTorch computes).
    """
    length = int(constants["segment"])
    frames = x.shape[-1]
    segments = -(-frames // length)
    x = x.astype(np.float64, copy=False)
    padded = np.pad(x, ((0, 0), (0, segments * length - frames)))
    sums = padded.reshape(x.shape[0], segments, length).sum(axis=2)
    counts = np.full(segments, float(length))
    if constants["valid"]:
        counts[-1] = frames - length * (segments - 1)
    spread = np.repeat(sums / counts, length, axis=1)[:, :frames]
    return np.asarray(x.mean(axis=1, keepdims=True) + spread)


def _simam(x: Array, constants: Mapping[str, float]) -> Array:
    """[C, ...] to the same: each element times the sigmoid of its inverse energy.

    Yang et al., "SimAM: A Simple, Parameter-Free Attention Module" (2021), equation 5:
    ``(x - mean)^2 / (4 (variance + lambda)) + 1/2``, mean and variance over a channel's map.
    """
    flat = x.reshape(len(x), -1).astype(np.float64)
    apart = np.square(flat - flat.mean(axis=1, keepdims=True))
    variance = apart.sum(axis=1, keepdims=True) / (flat.shape[1] - 1)
    energy = apart / (4.0 * (variance + constants["lambda"])) + 0.5
    return np.asarray((flat * 0.5 * (1.0 + np.tanh(0.5 * energy))).reshape(x.shape))


def _read_eps(graph: Graph, region: Region) -> Mapping[str, Constant] | Mismatch:
    """The scalar added right before the square root; 0 where nothing is added."""
    roots = list(_nodes(graph, region, "Sqrt", "Pow"))
    found: dict[float, str] = {}
    for root in roots:
        if root.op == "Pow" and scalar(graph, root.inputs[1]) != 0.5:
            continue
        below = graph.producers.get(see(graph, root.inputs[0]))
        value, origin = 0.0, f"nothing added before {root}"
        if below is not None and below.op == "Add":
            for name in below.inputs:
                added = scalar(graph, name)
                if added is not None:
                    value, origin = added, f'{below}, constant "{name}"'
        found.setdefault(value, origin)
    if len(found) != 1:
        return Mismatch(
            _where(region),
            "one square root, of a variance plus a constant",
            f"{len(roots)} square roots, constants {sorted(found)}",
        )
    (value, origin), *_ = found.items()
    return {"eps": Constant("eps", value, origin)}


def _read_segment(graph: Graph, region: Region) -> Mapping[str, Constant] | Mismatch:
    """The segment length, from the one average pooling of the region."""
    pools = list(_nodes(graph, region, "AveragePool"))
    expected = "one AveragePool, kernel 100, stride 100, no pads, ceil_mode 1, count_include_pad 1"
    if len(pools) != 1:
        return Mismatch(_where(region), expected, f"{len(pools)} AveragePool nodes")
    (pool,) = pools
    kernel = pool.integers("kernel_shape", ())
    stride = pool.integers("strides", (1,) * len(kernel))
    spread = pool.integers("dilations", (1,) * len(kernel))
    pads = pool.integers("pads", (0,) * 2 * len(kernel))
    ceil = pool.integer("ceil_mode", 0)
    # A 1-d pooling may be spelled with a dummy axis of size 1.
    long = [(k, s) for k, s in zip(kernel, stride, strict=False) if (k, s) != (1, 1)]
    padded = any(pads) or pool.text("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    counted = pool.integer("count_include_pad", 0)
    # The partial window may be spelled out: zeros appended, then full windows only.
    above = graph.producers.get(see(graph, pool.inputs[0]))
    spelled = not ceil and above is not None and above.op == "Pad"
    partial = (ceil, counted) == (1, 1) or spelled
    if long != [(100, 100)] or padded or not partial or any(d != 1 for d in spread):
        found = f"kernel {kernel}, stride {stride}, pads {pads}, ceil_mode {ceil}"
        found += f", count_include_pad {counted}, dilation {spread}"
        found += f", auto_pad {pool.text('auto_pad', 'NOTSET')}"
        return Mismatch(str(pool), expected, found)
    return {"segment": Constant("segment", 100.0, f"{pool}, kernel_shape")}


def _read_lambda(graph: Graph, region: Region) -> Mapping[str, Constant] | Mismatch:
    """What is added to the variance; the other scalar that is added is one half."""
    added = {
        value: f'{node}, constant "{name}"'
        for node in _nodes(graph, region, "Add")
        for name in node.inputs
        if (value := scalar(graph, name)) is not None
    }
    half = added.pop(0.5, None)
    gates = list(_nodes(graph, region, "Sigmoid"))
    if half is None or len(added) != 1 or len(gates) != 1:
        expected = "one Sigmoid, of a variance plus a constant and one half more"
        return Mismatch(_where(region), expected, f"{len(gates)} Sigmoid, {sorted(added)} added")
    (value, origin), *_ = added.items()
    return {"lambda": Constant("lambda", value, origin)}


def _nodes(graph: Graph, region: Region, *ops: str) -> Iterator[Node]:
    for index in sorted(region.nodes):
        if graph.model.nodes[index].op in ops:
            yield graph.model.nodes[index]


def _where(region: Region) -> str:
    return f'the region from "{region.entry}" to "{region.exit}"'


ISLANDS: Mapping[str, Island] = {
    "tstp": Island("mean and std over time of every channel and bin", _statistics, _read_eps, True),
    "stats": Island("mean and std over time of every channel", _statistics, _read_eps, True),
    "simam": Island("each element times the sigmoid of its energy", _simam, _read_lambda),
    "cam": Island("mean over time plus 100-frame segment means", _segment_context, _read_segment),
}
