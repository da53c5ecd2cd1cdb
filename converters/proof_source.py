"""Running the source that a file is proven against: what it is fed, and what it may answer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from converters.compare import Difference
from converters.probes import Probe, probes
from graphtools.errors import Error, UnprovenError, UnsupportedError
from graphtools.graph import see
from graphtools.layout import axes_at, layout_ops
from graphtools.recover import Recovered
from graphtools.runtime import Runner
from graphtools.tensors import Array, DType

__all__ = [
    "SourceError",
    "as_shape",
    "feeds",
    "frames_of",
    "probes_of",
    "require_layout",
    "run",
    "told",
]

# Ten minutes: the longest clip that a model of one length is tried on.
_MAX_FRAMES = 60000


class SourceError(Exception):
    """Wraps what the source did wrong, so that it is not taken for the file's fault."""

    def __init__(self, cause: Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


def frames_of(net: Recovered) -> int | None:
    """The one length that the model takes; None when it takes any."""
    value = net.graph.input(net.binding.input)
    batch, frames, n_mels = value.shape if value.shape and len(value.shape) == 3 else ("", "", "")
    others = [v.name for v in net.graph.inputs if v.name != value.name]
    fits = (
        (value.shape is None or len(value.shape) == 3)
        and value.dtype in (DType.F32, DType.F16, DType.BF16)
        and (isinstance(batch, str) or batch == 1)
        and (isinstance(frames, str) or 1 <= frames <= _MAX_FRAMES)
        and (isinstance(n_mels, str) or n_mels == probes()[0].features.shape[1])
    )
    if not fits or others:
        raise SourceError(
            UnsupportedError(
                "the model's input is not the features that the front end makes",
                file=net.graph.model.path,
                expected=f"one input, f32 [1, T, {probes()[0].features.shape[1]}], T dynamic or "
                f"up to {_MAX_FRAMES}",
                found="; ".join(map(str, net.graph.inputs)),
                todo="export the model with features as its only input and a dynamic time axis",
            )
        )
    return frames if isinstance(frames, int) else None


def require_layout(net: Recovered) -> None:
    """Features come in as [B, T, n_mels], and the first layer sees time as its last axis.

    Raises:
        SourceError: they come in transposed. The numbers would show it too, but not the cause.
    """
    graph = net.graph
    layer = next(iter(net.binding.layers.values()))
    node = graph.model.nodes[layer.node]
    axes = axes_at(graph, node.inputs[0], ("batch", "time", "features"))
    others = see(graph, node.inputs[0]) != net.binding.input
    if axes is None or others or axes.index("features") < axes.index("time"):
        return
    ops = ", ".join(op.op for op in layout_ops(graph, node.inputs[0]))
    raise SourceError(
        UnsupportedError(
            "the model takes its features transposed",
            file=graph.model.path,
            where=f'input "{net.binding.input}" to {node}',
            expected=f"[B, T, {probes()[0].features.shape[1]}], and a Transpose of the last two "
            "axes before the first layer",
            found=f"{graph.input(net.binding.input)}, and {ops or 'nothing'} in between",
            todo="export the model so that it transposes the features itself",
        )
    )


def probes_of(net: Recovered) -> tuple[Probe, ...]:
    """The inputs that this source is run on, speech first."""
    pools = any(node.op == "AveragePool" for node in net.graph.model.nodes)
    return probes(frames_of(net), segments=pools)


def feeds(net: Recovered, probe: Probe) -> dict[str, Array]:
    return {net.binding.input: probe.features[None]}


def run(runner: Runner, feeds: Mapping[str, Array]) -> dict[str, Array]:
    try:
        return runner.run(feeds)
    except Error as error:
        raise SourceError(error) from error


def as_shape(theirs: Array, shape: tuple[int, ...], stage: str) -> Array:
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
        raise SourceError(
            UnsupportedError(
                "the source computes values that are not finite, so nothing can be proven",
                where=f"stage {stage}",
                todo="check the model's weights",
            )
        )
    return theirs.astype(np.float64).reshape(shape)


def told(apart: Difference) -> str:
    return f"max|d| {apart.max_abs:.3g} at {list(apart.at)}, cosine {apart.cosine:.6f}"
