"""The shape of every tensor: as the file says, as onnx infers, as onnxruntime measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphtools.errors import UnsupportedError
from graphtools.graph import Graph
from graphtools.model import Value
from graphtools.onnx_edit import inferred_shapes, own_tensors
from graphtools.runtime import Runner
from graphtools.tensors import Array, DType

__all__ = ["shapes"]

# Lengths of a named axis in two runs: batch axes small, others long enough for any pooling, and
# whole multiples of the strides that are told.
_BATCH, _LONG = (1, 2), (208, 528)
_PARTS = (1, 2, 4, 8, 16)
_MEASURED_BYTES = 500_000_000


def shapes(graph: Graph, *, measure: bool = True) -> dict[str, Value]:
    """Tensor name to its element type and shape, of inputs, outputs and all between.

    Inference has no name for an axis that is computed, and gives up on the rank where a shape is
    computed from data. There the model is run twice, on zeros of two lengths: an axis that is the
    same in both runs is fixed; one that is as long as a named axis of the input has that name,
    and one that is a half, a quarter, an eighth or a sixteenth is ``T/2`` and so on (how an odd
    length is rounded is not said); any other is ``?``.

    Args:
        measure: run the model where inference does not know; what onnxruntime refuses, and a
            model of more than 500 MB of weights, stays unknown.
    """
    model = graph.model
    measure = measure and sum(4 * t.size for t in model.constants.values()) <= _MEASURED_BYTES
    found = inferred_shapes(model) | {v.name: v for v in (*model.inputs, *model.outputs)}
    unknown = [
        name
        for node in model.nodes
        if node.op != "Constant"
        for name in node.outputs
        if name and _is_open(found.get(name, _NOTHING).shape)
    ]
    if measure and unknown:
        for name, shape in _measured(graph, unknown).items():
            known = found.get(name, Value(name, DType.OTHER, None))
            found[name] = replace(known, shape=shape)
    return found


def _is_open(shape: tuple[int | str, ...] | None) -> bool:
    return shape is None or "?" in shape


_NOTHING = Value("", DType.OTHER, None)


def _measured(graph: Graph, tensors: list[str]) -> dict[str, tuple[int | str, ...]]:
    first, second = _feeds(graph, 0), _feeds(graph, 1)
    if first is None or second is None:
        return {}
    in_file = own_tensors(graph.model)
    tensors = [name for name in tensors if name in in_file]
    runner = Runner.shapes(graph.model, tensors, None)
    try:
        runs = [runner.run(feeds) for feeds in (first, second)]
    except UnsupportedError:
        return {}
    named = _names(graph, first, second)
    found: dict[str, tuple[int | str, ...]] = {}
    for tensor, output in zip(tensors, runner.outputs, strict=True):
        one, other = (tuple(int(d) for d in run[output]) for run in runs)
        if len(one) == len(other):
            pairs = zip(one, other, strict=True)
            found[tensor] = tuple(a if a == b else named.get((a, b), "?") for a, b in pairs)
    return found


def _names(
    graph: Graph, first: Mapping[str, Array], second: Mapping[str, Array]
) -> dict[tuple[int, int], str]:
    """What an axis is called that has these two lengths."""
    named: dict[tuple[int, int], str] = {}
    for value in graph.inputs:
        lengths = zip(first[value.name].shape, second[value.name].shape, strict=True)
        for axis, (one, other) in zip(value.shape or (), lengths, strict=True):
            if not isinstance(axis, str) or axis == "?":
                continue
            for part in _PARTS:
                if one >= part and not one % part and not other % part:
                    name = axis if part == 1 else f"{axis}/{part}"
                    named.setdefault((one // part, other // part), name)
    return named


def _feeds(graph: Graph, run: int) -> Mapping[str, Array] | None:
    """Zeros for every input; None where a rank or an element type is not known."""
    feeds: dict[str, Array] = {}
    lengths: dict[str, int] = {}
    for value in graph.inputs:
        if value.shape is None or (value.dtype.numpy is None and value.dtype is not DType.BF16):
            return None
        shape = []
        for place, axis in enumerate(value.shape):
            if isinstance(axis, str):
                fresh = _LONG[run] + 16 * len(lengths) if place else _BATCH[run]
                axis = lengths.setdefault(axis, fresh) if axis != "?" else fresh
            shape.append(axis)
        # Half precision is widened in the copy that is run.
        half = value.dtype in (DType.F16, DType.BF16)
        feeds[value.name] = np.zeros(shape, np.float32 if half else value.dtype.numpy)
    return feeds
