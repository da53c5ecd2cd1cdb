"""Matchers of the steps that hold weights: convolution, linear layer, batch norm, offset."""

from __future__ import annotations

from graphtools.graph import Graph, constant
from graphtools.islands import Constant, Mismatch
from graphtools.match import Layer, Match, Role, missing, node_at
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

__all__ = ["match_bn", "match_conv", "match_linear", "match_subtract"]


def match_conv(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """Conv, or Conv and the BatchNormalization after it; a 1x1 one may be Gemm or MatMul."""
    node = node_at(graph, tensor)
    expected = _conv_text(step.kernel, step.stride, step.dilation, step.pad, step.groups)
    norm: BatchNorm | None = None
    nodes: tuple[int, ...] = ()
    if node is not None and node.op == "BatchNormalization":
        norm = _norm_of(graph, node)
        if norm is None:
            return missing(graph, tensor, expected, "a BatchNormalization with computed tensors")
        nodes = (node.index,)
        node = node_at(graph, node.inputs[0])
    if node is None or node.op not in ("Conv", "Gemm", "MatMul", "Add"):
        return missing(graph, tensor, expected, node.op if node else "")
    if node.op != "Conv":
        if set(step.kernel) != {1} or set(step.stride) != {1} or step.groups != 1:
            return missing(graph, tensor, expected, node.op)
        dense = _dense(graph, node)
        if dense is None:
            return missing(graph, tensor, expected, f"{node.op} without constant weights")
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
    if (len(stride), len(spread), len(pads)) != (axes, axes, 2 * axes):
        found = f"strides {stride}, dilations {spread}, pads {pads} for {axes} axes"
        return Mismatch(str(node), expected, found)
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
        return node.inputs[0], weight, _vector(bias), node.index
    if node.op == "MatMul":
        weight = constant(graph, node.inputs[1])
        if weight is None or len(weight.shape) != 2:
            return None
        return node.inputs[0], _transposed(weight), None, node.index
    for left, right in (node.inputs, tuple(reversed(node.inputs))):
        bias, product = constant(graph, right), node_at(graph, left)
        if bias is not None and product is not None and product.op == "MatMul":
            inner = _dense(graph, product)
            if inner is not None and bias.size in bias.shape:
                return inner[0], inner[1], _vector(bias), product.index
    return None


def _vector(bias: LazyTensor | None) -> LazyTensor | None:
    """A bias as ``[out]``: some exporters store the row ``[1, out]`` that they add."""
    if bias is None or len(bias.shape) == 1 or bias.size not in bias.shape:
        return bias
    return LazyTensor(bias.name, (bias.size,), bias.dtype, Reshape(bias))


def _transposed(weight: LazyTensor) -> LazyTensor:
    recipe = weight.recipe
    if isinstance(recipe, Transpose) and recipe.axes == (1, 0):
        return recipe.source.named(weight.name)
    shape = (weight.shape[1], weight.shape[0])
    return LazyTensor(weight.name, shape, weight.dtype, Transpose(weight, (1, 0)))


def match_linear(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """Gemm, MatMul + Add, MatMul, or a convolution over a single position."""
    node = node_at(graph, tensor)
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
        return missing(graph, tensor, expected)
    operand, weight, bias, index = dense
    tensors: dict[Role, LazyTensor] = {"weight": weight}
    if bias is not None:
        tensors["bias"] = bias
    return [Match((operand,), Layer(step.slot, step.kind, index, tensors), nodes=(node.index,))]


def match_bn(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    node = node_at(graph, tensor)
    norm = _norm_of(graph, node) if node and node.op == "BatchNormalization" else None
    if node is None or norm is None:
        return missing(graph, tensor, "BatchNormalization with constant tensors")
    scale, bias, mean, var = norm.tensors()
    layer = Layer(
        step.slot,
        step.kind,
        node.index,
        {"scale": scale, "bias": bias, "mean": mean, "var": var},
    )
    eps = Constant("bn.eps", norm.eps, f"{node}, epsilon")
    return [Match((node.inputs[0],), layer, (eps,), nodes=(node.index,))]


def match_subtract(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    node = node_at(graph, tensor)
    offset = constant(graph, node.inputs[1]) if node and node.op == "Sub" else None
    if node is None or offset is None or len(offset.shape) > 2:
        return missing(graph, tensor, "Sub of a constant vector")
    layer = Layer(step.slot, step.kind, node.index, {"offset": offset})
    return [Match((node.inputs[0],), layer, nodes=(node.index,))]
