"""The shape of every tensor: as the file says, as onnx infers, as onnxruntime measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphtools.errors import UnsupportedError
from graphtools.graph import SHAPE_ONLY, Graph, canonical_order
from graphtools.model import Value
from graphtools.onnx_edit import own_tensors
from graphtools.onnx_shapes import inferred_shapes
from graphtools.runtime import Runner
from graphtools.subgraphs import opened
from graphtools.tensors import Array, DType

__all__ = ["shapes"]

# Lengths of a named axis in two runs: batch axes small, others long enough for any pooling, and
# whole multiples of the strides that are told. Three, so that a half of it is no fixed length.
_BATCH, _LONG = (1, 3), (208, 528)
_PARTS = (1, 2, 4, 8, 16)
_MEASURED_BYTES = 500_000_000

# Ops whose outputs are as long as their input's values say, and the first operand of others that
# is a length, a place or a choice.
_BY_VALUES = frozenset(("Compress", "NonMaxSuppression", "NonZero", "StringSplit", "Unique"))
_LENGTHS = {"ConstantOfShape": 0, "If": 0, "Loop": 0, "Range": 0} | dict.fromkeys(
    ("DFT", "Expand", "OneHot", "Pad", "Reshape", "Resize", "STFT", "Slice", "Split", "Tile"), 1
)
_LENGTHS |= {"CenterCropPad": 1, "SplitToSequence": 1, "TopK": 1, "Upsample": 1}


def shapes(graph: Graph, *, measure: bool = True) -> dict[str, Value]:
    """Tensor name to its element type and shape, of inputs, outputs and all between.

    Inference has no name for an axis that is computed, and gives up on the rank where a shape is
    computed from data. There the model is run twice, on zeros of two lengths: an axis that is the
    same in both runs is fixed; one that is as long as a named axis of the input has that name,
    and one that is a half, a quarter, an eighth or a sixteenth is ``T/2`` and so on (how an odd
    length is rounded is not said); any other is ``?``. A shape that the input's values decide is
    not measured: zeros say nothing of it.

    Args:
        measure: run the model where inference does not know; what onnxruntime refuses, and a
            model of more than 500 MB of weights, stays unknown.
    """
    names = graph.consumers
    graph = opened(graph)  # what an operation gives, its graphs decide
    model = graph.model
    measure = measure and sum(4 * t.size for t in model.constants.values()) <= _MEASURED_BYTES
    found = inferred_shapes(model) | {v.name: v for v in (*model.inputs, *model.outputs)}
    unknown = {
        name
        for node in model.nodes
        if node.op != "Constant"
        for name in node.outputs
        if name and _is_open(found.get(name, _NOTHING).shape)
    }
    unknown &= own_tensors(model)  # no output can be added inside a subgraph or a fused node
    if measure and unknown:
        unknown -= _shaped_by_values(graph)
    if measure and unknown:
        for name, shape in _measured(graph, sorted(unknown)).items():
            known = found.get(name, Value(name, DType.OTHER, None))
            found[name] = replace(known, shape=shape)
    return {name: value for name, value in found.items() if name in names}


def _is_open(shape: tuple[int | str, ...] | None) -> bool:
    return shape is None or "?" in shape


_NOTHING = Value("", DType.OTHER, None)


def _shaped_by_values(graph: Graph) -> set[str]:
    """The tensors whose shape depends on the values of an input, not on its shape alone."""
    valued = {value.name for value in graph.inputs}
    shaped: set[str] = set()
    for index in canonical_order(graph):
        node = graph.model.nodes[index]
        lengths = node.inputs[_LENGTHS[node.op] :] if node.op in _LENGTHS else ()
        by_values = node.op in _BY_VALUES or not valued.isdisjoint(lengths)
        if by_values or not shaped.isdisjoint(node.reads()):
            shaped.update(node.outputs)
        if node.op in SHAPE_ONLY:
            if not shaped.isdisjoint(node.inputs):
                valued.update(node.outputs)
        elif not valued.isdisjoint(node.reads()):
            valued.update(node.outputs)
    return shaped - {""}


def _measured(graph: Graph, tensors: list[str]) -> dict[str, tuple[int | str, ...]]:
    first, second = _feeds(graph, 0), _feeds(graph, 1)
    if first is None or second is None:
        return {}
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
        shape: list[int] = []
        rank, rest = len(value.shape), value.shape[1:]
        for place, axis in enumerate(value.shape):
            if isinstance(axis, str):
                batch = place == 0 and (rank > 2 or any(isinstance(a, str) for a in rest))
                fresh = _BATCH[run] if batch else _LONG[run] + 16 * len(lengths)
                axis = lengths.setdefault(axis, fresh) if axis != "?" else fresh
            shape.append(axis)
        # Half precision is widened in the copy that is run.
        half = value.dtype in (DType.F16, DType.BF16)
        feeds[value.name] = np.zeros(shape, np.float32 if half else value.dtype.numpy)
    return feeds
