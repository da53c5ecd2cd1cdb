"""One matcher per kind of step: which nodes of a graph can stand for it, read backwards.

A matcher is given a step and the tensor that should be its result. It returns every way to
read that tensor so (the tensors its operands must then be, and the weights it binds), or a
`Mismatch` that says what was there instead. Matchers look at structure and attributes, never at
names or at the order of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from graphtools.graph import Graph, Region, constant, regions_above, scalar, see
from graphtools.islands import ISLANDS, Constant, Mismatch
from graphtools.model import Node
from graphtools.tensors import (
    BatchNorm,
    DType,
    FoldBias,
    FoldWeight,
    LazyTensor,
    Reshape,
    Transpose,
)
from graphtools.trace import Step

__all__ = ["MATCHERS", "Layer", "Match", "describe"]

Role = Literal["weight", "bias", "scale", "mean", "var", "offset", "weight_g", "weight_v", "value"]


@dataclass(frozen=True)
class Layer:
    """What fills a slot.

    Attributes:
        node: index of the node that holds the weights.
        tensors: the weights by role, in the layout the engine reads.
    """

    slot: str
    kind: str
    node: int
    tensors: Mapping[Role, LazyTensor]


@dataclass(frozen=True)
class Match:
    """One way to read a step: what its operands are, and what it binds."""

    operands: tuple[str, ...]
    layer: Layer | None = None
    constants: tuple[Constant, ...] = ()
    region: Region | None = None
    nodes: tuple[int, ...] = field(default=())


Matcher = Callable[[Graph, Step, str], list[Match] | Mismatch]


def describe(graph: Graph, tensor: str) -> str:
    """Where a tensor comes from, for messages."""
    node = graph.producers.get(see(graph, tensor))
    if node is not None:
        return str(node)
    return f'the constant "{tensor}"' if constant(graph, tensor) else f'the input "{tensor}"'


def _at(graph: Graph, tensor: str) -> Node | None:
    return graph.producers.get(see(graph, tensor))


def _miss(graph: Graph, tensor: str, expected: str, found: str = "") -> Mismatch:
    node = _at(graph, tensor)
    what = found or (node.op if node else describe(graph, tensor))
    return Mismatch(describe(graph, tensor), expected, what)


def _conv(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """Conv, or Conv and the BatchNormalization after it; a 1x1 one may be Gemm or MatMul."""
    node = _at(graph, tensor)
    expected = _conv_text(step.kernel, step.stride, step.dilation, step.pad, step.groups)
    norm: BatchNorm | None = None
    nodes: tuple[int, ...] = ()
    if node is not None and node.op == "BatchNormalization":
        norm = _norm_of(graph, node)
        if norm is None:
            return _miss(graph, tensor, expected, "a BatchNormalization with computed tensors")
        nodes = (node.index,)
        node = _at(graph, node.inputs[0])
    if node is None or node.op not in ("Conv", "Gemm", "MatMul", "Add"):
        return _miss(graph, tensor, expected, node.op if node else "")
    if node.op != "Conv":
        if set(step.kernel) != {1} or set(step.stride) != {1} or step.groups != 1:
            return _miss(graph, tensor, expected, node.op)
        dense = _dense(graph, node)
        if dense is None:
            return _miss(graph, tensor, expected, f"{node.op} without constant weights")
        operand, weight, bias, index = dense
        shape = (*weight.shape, *[1] * len(step.kernel))
        weight = LazyTensor(weight.name, shape, weight.dtype, Reshape(weight))
    else:
        read = _conv_weights(graph, step, node)
        if isinstance(read, Mismatch):
            return read
        operand, weight, bias, index = node.inputs[0], *read, node.index
    if norm is not None:
        weight, bias = _folded(weight, bias, norm)
    tensors: dict[Role, LazyTensor] = {"weight": weight}
    if bias is not None:
        tensors["bias"] = bias
    layer = Layer(step.slot, step.kind, index, tensors)
    return [Match((operand,), layer, nodes=(*nodes, node.index))]


def _conv_weights(
    graph: Graph, step: Step, node: Node
) -> tuple[LazyTensor, LazyTensor | None] | Mismatch:
    expected = _conv_text(step.kernel, step.stride, step.dilation, step.pad, step.groups)
    weight = constant(graph, node.inputs[1])
    if weight is None or len(weight.shape) < 3:
        return Mismatch(str(node), expected, "a convolution with computed weights")
    has_bias = len(node.inputs) > 2 and node.inputs[2] != ""
    bias = constant(graph, node.inputs[2]) if has_bias else None
    if has_bias and bias is None:
        return Mismatch(str(node), expected, "a convolution with a computed bias")
    axes = len(weight.shape) - 2
    kernel = weight.shape[2:]
    stride = node.integers("strides", (1,) * axes)
    spread = node.integers("dilations", (1,) * axes)
    pads = node.integers("pads", (0,) * 2 * axes)
    auto = node.text("auto_pad", "NOTSET")
    if auto == "VALID":
        pads = (0,) * 2 * axes
    elif auto in ("SAME_UPPER", "SAME_LOWER") and set(stride) == {1}:
        same = [d * (k - 1) for d, k in zip(spread, kernel, strict=True)]
        if not any(p % 2 for p in same):  # an even total is the same on both sides
            pads, auto = tuple(p // 2 for p in same) * 2, "NOTSET"
    groups = node.integer("group", 1)
    want = (step.kernel, step.stride, step.dilation, step.pad * 2, step.groups)
    extra = axes - len(step.kernel)
    if extra > 0:  # a 1-d convolution spelled with dummy axes of size 1
        plain = (kernel[:extra], stride[:extra], pads[:extra], pads[axes : axes + extra])
        if plain == ((1,) * extra, (1,) * extra, (0,) * extra, (0,) * extra):
            kernel, stride, spread = kernel[extra:], stride[extra:], spread[extra:]
            pads = pads[extra:axes] + pads[axes + extra :]
            shape = weight.shape[:2] + kernel
            weight = LazyTensor(weight.name, shape, weight.dtype, Reshape(weight))
    if (kernel, stride, spread, pads, groups) != want or auto not in ("NOTSET", "VALID", ""):
        half = len(pads) // 2
        found = _conv_text(kernel, stride, spread, pads[:half], groups)
        if pads[:half] != pads[half:] or auto not in ("NOTSET", "VALID", ""):
            found += f" (pads {list(pads)}, auto_pad {auto})"
        return Mismatch(str(node), expected, found)
    if step.channels not in (None, weight.shape[0]):
        found = f"{weight.shape[0]} output channels"
        return Mismatch(str(node), f"{expected}, {step.channels} output channels", found)
    return weight, bias


def _conv_text(
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    pad: tuple[int, ...],
    groups: int,
) -> str:
    text = f"conv {'x'.join(map(str, kernel))}, stride {'x'.join(map(str, stride))}"
    text += f", pad {'x'.join(map(str, pad))}"
    if set(dilation) != {1}:
        text += f", dilation {'x'.join(map(str, dilation))}"
    return text if groups == 1 else f"{text}, groups {groups}"


def _folded(
    weight: LazyTensor, bias: LazyTensor | None, norm: BatchNorm
) -> tuple[LazyTensor, LazyTensor]:
    name = weight.name.removesuffix(".weight") + ".bias"
    return (
        LazyTensor(weight.name, weight.shape, DType.F32, FoldWeight(weight, norm)),
        LazyTensor(name, (weight.shape[0],), DType.F32, FoldBias(bias, norm)),
    )


def _norm_of(graph: Graph, node: Node) -> BatchNorm | None:
    parts = [constant(graph, name) for name in node.inputs[1:5]]
    scale, bias, mean, var = (*parts, None, None, None, None)[:4]
    if node.integer("training_mode", 0) or not (scale and bias and mean and var):
        return None
    return BatchNorm(scale, bias, mean, var, node.number("epsilon", 1e-5))


def _dense(graph: Graph, node: Node) -> tuple[str, LazyTensor, LazyTensor | None, int] | None:
    """Gemm, MatMul or MatMul + Add as (operand, weight [out, in], bias, node with weights)."""
    if node.op == "Gemm":
        weight = constant(graph, node.inputs[1])
        has_bias = len(node.inputs) > 2 and node.inputs[2] != ""
        bias = constant(graph, node.inputs[2]) if has_bias else None
        plain = node.number("alpha", 1.0) == 1.0 and node.number("beta", 1.0) == 1.0
        if weight is None or (has_bias and bias is None) or not plain or node.integer("transA", 0):
            return None
        if not node.integer("transB", 0):
            weight = _transposed(weight)
        return node.inputs[0], weight, bias, node.index
    if node.op == "MatMul":
        weight = constant(graph, node.inputs[1])
        if weight is None or len(weight.shape) != 2:
            return None
        return node.inputs[0], _transposed(weight), None, node.index
    for left, right in (node.inputs, tuple(reversed(node.inputs))):
        bias, product = constant(graph, right), _at(graph, left)
        if bias is not None and product is not None and product.op == "MatMul":
            inner = _dense(graph, product)
            if inner is not None and len(bias.shape) == 1:
                return inner[0], inner[1], bias, product.index
    return None


def _transposed(weight: LazyTensor) -> LazyTensor:
    recipe = weight.recipe
    if isinstance(recipe, Transpose) and recipe.axes == (1, 0):
        return recipe.source.named(weight.name)
    shape = (weight.shape[1], weight.shape[0])
    return LazyTensor(weight.name, shape, weight.dtype, Transpose(weight, (1, 0)))


def _linear(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """Gemm, MatMul + Add, MatMul, or a convolution over a single position."""
    node = _at(graph, tensor)
    expected = "linear layer (Gemm, MatMul + Add or 1x1 Conv)"
    if node is not None and node.op == "Conv":
        weight = constant(graph, node.inputs[1])
        axes = 0 if weight is None else len(weight.shape) - 2
        one = (1,) * axes
        spec = Step("linear", (), 2, step.slot, one, one, one, (0,) * axes)
        read = _conv_weights(graph, spec, node)
        if isinstance(read, Mismatch):
            return Mismatch(read.where, expected, read.found)
        flat = LazyTensor(read[0].name, read[0].shape[:2], read[0].dtype, Reshape(read[0]))
        dense: tuple[str, LazyTensor, LazyTensor | None, int] | None
        dense = (node.inputs[0], flat, read[1], node.index)
    else:
        fits = node is not None and node.op in ("Gemm", "MatMul", "Add")
        dense = _dense(graph, node) if fits and node is not None else None
    if dense is None or node is None:
        return _miss(graph, tensor, expected)
    operand, weight, bias, index = dense
    tensors: dict[Role, LazyTensor] = {"weight": weight}
    if bias is not None:
        tensors["bias"] = bias
    return [Match((operand,), Layer(step.slot, step.kind, index, tensors), nodes=(node.index,))]


def _bn(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    node = _at(graph, tensor)
    norm = _norm_of(graph, node) if node and node.op == "BatchNormalization" else None
    if node is None or norm is None:
        return _miss(graph, tensor, "BatchNormalization with constant tensors")
    scale, bias, mean, var = norm.tensors()
    layer = Layer(
        step.slot,
        step.kind,
        node.index,
        {"scale": scale, "bias": bias, "mean": mean, "var": var},
    )
    eps = Constant("bn.eps", norm.eps, f"{node}, epsilon")
    return [Match((node.inputs[0],), layer, (eps,), nodes=(node.index,))]


def _subtract(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    node = _at(graph, tensor)
    offset = constant(graph, node.inputs[1]) if node and node.op == "Sub" else None
    if node is None or offset is None or len(offset.shape) > 2:
        return _miss(graph, tensor, "Sub of a constant vector")
    layer = Layer(step.slot, step.kind, node.index, {"offset": offset})
    return [Match((node.inputs[0],), layer, nodes=(node.index,))]


def _bounds(graph: Graph, node: Node) -> tuple[float | None, float | None]:
    """Clip's bounds; attributes before opset 11, inputs since."""
    if "min" in node.attributes or "max" in node.attributes:
        low = node.number("min", float("-inf"))
        return low, node.number("max", float("inf"))
    names = [*node.inputs[1:3], "", ""]
    lower = scalar(graph, names[0]) if names[0] else float("-inf")
    upper = scalar(graph, names[1]) if names[1] else float("inf")
    return lower, upper


_F32_MAX = 3.4e38


def _relu(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """Relu, or a Clip from 0 without an upper bound."""
    node = _at(graph, tensor)
    if node is not None and node.op == "Clip":
        low, high = _bounds(graph, node)
        if low == 0.0 and high is not None and high > _F32_MAX:
            return [Match((node.inputs[0],), nodes=(node.index,))]
        return _miss(graph, tensor, "Relu", f"Clip to [{low}, {high}]")
    if node is None or node.op != "Relu":
        return _miss(graph, tensor, "Relu")
    return [Match((node.inputs[0],), nodes=(node.index,))]


def _clip(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    node = _at(graph, tensor)
    expected = "Clip to [0, a constant]"
    if node is None or node.op != "Clip":
        return _miss(graph, tensor, expected)
    low, high = _bounds(graph, node)
    if low != 0.0 or high is None or high > _F32_MAX:
        return _miss(graph, tensor, expected, f"Clip to [{low}, {high}]")
    bound = Constant(step.name, high, f"{node}, upper bound")
    return [Match((node.inputs[0],), constants=(bound,), nodes=(node.index,))]


def _silu(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """X * Sigmoid(x), or one node that says so."""
    node = _at(graph, tensor)
    if node is None:
        return _miss(graph, tensor, "SiLU (x * Sigmoid(x))")
    if node.op in ("Swish", "com.microsoft.QuickGelu"):
        default = 1.0 if node.op == "Swish" else 1.702
        if node.number("alpha", default) == 1.0:
            return [Match((node.inputs[0],), nodes=(node.index,))]
    if node.op == "Mul":
        for plain, gated in (node.inputs, tuple(reversed(node.inputs))):
            gate = _at(graph, gated)
            is_gate = gate is not None and gate.op == "Sigmoid"
            if gate and is_gate and see(graph, gate.inputs[0]) == see(graph, plain):
                return [Match((plain,), nodes=(node.index, gate.index))]
    return _miss(graph, tensor, "SiLU (x * Sigmoid(x))")


def _simple(op: str) -> Matcher:
    def match(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
        node = _at(graph, tensor)
        if node is None or node.op != op:
            return _miss(graph, tensor, op)
        return [Match((node.inputs[0],), nodes=(node.index,))]

    return match


def _commutative(op: str) -> Matcher:
    def match(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
        node = _at(graph, tensor)
        if node is None or node.op != op:
            return _miss(graph, tensor, op)
        first, second = node.inputs
        nodes = (node.index,)
        return [Match((first, second), nodes=nodes), Match((second, first), nodes=nodes)]

    return match


def _add_scalar(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    node = _at(graph, tensor)
    if node is not None and node.op == "Add":
        for operand, added in (node.inputs, tuple(reversed(node.inputs))):
            if scalar(graph, added) == step.value:
                return [Match((operand,), nodes=(node.index,))]
    return _miss(graph, tensor, f"Add of {step.value:g}")


def _subtract_from(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    node = _at(graph, tensor)
    if node is None or node.op != "Sub" or scalar(graph, node.inputs[0]) != step.value:
        return _miss(graph, tensor, f"Sub from {step.value:g}")
    return [Match((node.inputs[1],), nodes=(node.index,))]


def _concat(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """Concat on the channel axis; a concat of more parts may be nested in its first part."""
    want = len(step.operands)
    expected = f"Concat of {want} on the channel axis"
    node = _at(graph, tensor)
    parts: list[str] = []
    nodes: list[int] = []
    head = tensor
    while node is not None and node.op == "Concat":
        axis = node.integer("axis", 0)
        if axis not in (1, 1 - step.rank):
            return _miss(graph, head, expected, f"Concat on axis {axis}")
        parts[:1] = node.inputs
        nodes.append(node.index)
        if len(parts) >= want:
            break
        head = parts[0]
        node = _at(graph, head)
    if len(parts) != want:
        return _miss(graph, tensor, expected, f"Concat of {len(parts)}" if parts else "")
    return [Match(tuple(parts), nodes=tuple(nodes))]


def _split(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """One output of an even Split, or the Slice that takes the same channels."""
    expected = f"part {step.part} of an even split into {step.parts} on the channel axis"
    source = see(graph, tensor)
    node = graph.producers.get(source)
    channel = (1, 1 - step.rank)
    if node is None or node.op not in ("Split", "Slice"):
        return _miss(graph, tensor, expected)
    if node.op == "Split":
        listed = node.integers("split", ()) or _integers(graph, [*node.inputs, ""][1]) or ()
        part = node.outputs.index(source)
        even = len(set(listed)) <= 1 and len(node.outputs) == step.parts
        if node.integer("axis", 0) in channel and even and part == step.part:
            return [Match((node.inputs[0],), nodes=(node.index,))]
        found = f"output {part} of Split {list(listed)} on axis {node.integer('axis', 0)}"
        return _miss(graph, tensor, expected, found)
    given = [_integers(graph, name) if name else () for name in [*node.inputs[1:], *[""] * 4][:4]]
    starts = node.integers("starts", given[0] or ())
    ends = node.integers("ends", given[1] or ())
    axes = node.integers("axes", given[2] or ())
    steps = given[3] or (1,)
    if len(starts) == len(ends) == len(axes) == 1 and axes[0] in channel and steps == (1,):
        start, end = starts[0], ends[0]
        last = step.part == step.parts - 1
        # Equal parts of width w begin at part * w; the last may end at "infinity".
        width = start // step.part if step.part else end
        closes = end == start + width or (last and end >= _INFINITY)
        if width > 0 and start == step.part * width and closes:
            return [Match((node.inputs[0],), nodes=(node.index,))]
    return _miss(graph, tensor, expected, f"Slice {starts} to {ends} on axes {axes}")


# Ends that exporters write for "to the end of the axis": the largest 32 or 64-bit integers.
_INFINITY = 2**31 - 1


def _integers(graph: Graph, tensor: str) -> tuple[int, ...] | None:
    found = constant(graph, tensor) if tensor else None
    if found is None or found.dtype not in (DType.I64, DType.I32):
        return None
    return tuple(int(v) for v in found.read().reshape(-1))


def _island(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """Any weight-free single-entry region whose constants can be read."""
    island = ISLANDS[step.name]
    first: Mismatch | None = None
    matches: list[Match] = []
    for region in regions_above(graph, tensor):
        read = island.read(graph, region)
        if isinstance(read, Mismatch):
            first = first or read
            continue
        constants = tuple(
            Constant(f"{step.name}.{name}", c.value, c.origin) for name, c in read.items()
        )
        nodes = tuple(sorted(region.nodes))
        matches.append(Match((region.entry,), constants=constants, region=region, nodes=nodes))
    if matches:
        return matches
    expected = f"a weight-free region: {island.meaning}"
    return first or _miss(graph, tensor, expected, f"{describe(graph, tensor)} with weights")


MATCHERS: Mapping[str, Matcher] = {
    "conv": _conv,
    "bn": _bn,
    "linear": _linear,
    "subtract": _subtract,
    "relu": _relu,
    "clip": _clip,
    "silu": _silu,
    "tanh": _simple("Tanh"),
    "sigmoid": _simple("Sigmoid"),
    "add": _commutative("Add"),
    "mul": _commutative("Mul"),
    "add_scalar": _add_scalar,
    "subtract_from": _subtract_from,
    "concat": _concat,
    "split": _split,
    "island": _island,
}
