"""One matcher per kind of step (see `graphtools.match`); the table is what unification reads."""

from __future__ import annotations

from collections.abc import Mapping

from graphtools.graph import Graph, constant, regions_above, scalar, see
from graphtools.islands import ISLANDS, Constant, Mismatch
from graphtools.match import Match, Matcher, describe, missing, node_at
from graphtools.match_layers import match_bn, match_conv, match_linear, match_subtract
from graphtools.match_pooling import match_softmax, match_statistics
from graphtools.model import Node
from graphtools.tensors import DType
from graphtools.trace import Step

__all__ = ["MATCHERS"]


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
    node = node_at(graph, tensor)
    if node is not None and node.op == "Clip":
        low, high = _bounds(graph, node)
        if low == 0.0 and high is not None and high > _F32_MAX:
            return [Match((node.inputs[0],), nodes=(node.index,))]
        return missing(graph, tensor, "Relu", f"Clip to [{low}, {high}]")
    if node is None or node.op != "Relu":
        return missing(graph, tensor, "Relu")
    return [Match((node.inputs[0],), nodes=(node.index,))]


def _clip(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    node = node_at(graph, tensor)
    expected = "Clip to [0, a constant]"
    if node is None or node.op != "Clip":
        return missing(graph, tensor, expected)
    low, high = _bounds(graph, node)
    if low != 0.0 or high is None or high > _F32_MAX:
        return missing(graph, tensor, expected, f"Clip to [{low}, {high}]")
    bound = Constant(step.name, high, f"{node}, upper bound")
    return [Match((node.inputs[0],), constants=(bound,), nodes=(node.index,))]


def _silu(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """X * Sigmoid(x), or one node that says so."""
    node = node_at(graph, tensor)
    if node is None:
        return missing(graph, tensor, "SiLU (x * Sigmoid(x))")
    if node.op in ("Swish", "com.microsoft.QuickGelu"):
        default = 1.0 if node.op == "Swish" else 1.702
        if node.number("alpha", default) == 1.0:
            return [Match((node.inputs[0],), nodes=(node.index,))]
    if node.op == "Mul":
        for plain, gated in (node.inputs, tuple(reversed(node.inputs))):
            gate = node_at(graph, gated)
            is_gate = gate is not None and gate.op == "Sigmoid"
            if gate and is_gate and see(graph, gate.inputs[0]) == see(graph, plain):
                return [Match((plain,), nodes=(node.index, gate.index))]
    return missing(graph, tensor, "SiLU (x * Sigmoid(x))")


def _simple(op: str) -> Matcher:
    def match(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
        node = node_at(graph, tensor)
        if node is None or node.op != op:
            return missing(graph, tensor, op)
        return [Match((node.inputs[0],), nodes=(node.index,))]

    return match


def _commutative(op: str) -> Matcher:
    def match(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
        node = node_at(graph, tensor)
        if node is None or node.op != op:
            return missing(graph, tensor, op)
        first, second = node.inputs
        orders = dict.fromkeys([(first, second), (second, first)])  # one for Mul(x, x)
        return [Match(order, nodes=(node.index,)) for order in orders]

    return match


def _add_scalar(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    node = node_at(graph, tensor)
    if node is not None and node.op == "Add":
        for operand, added in (node.inputs, tuple(reversed(node.inputs))):
            if scalar(graph, added) == step.value:
                return [Match((operand,), nodes=(node.index,))]
    return missing(graph, tensor, f"Add of {step.value:g}")


def _subtract_from(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    node = node_at(graph, tensor)
    if node is None or node.op != "Sub" or scalar(graph, node.inputs[0]) != step.value:
        return missing(graph, tensor, f"Sub from {step.value:g}")
    return [Match((node.inputs[1],), nodes=(node.index,))]


def _concat(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """Concat on the channel axis; a concat of more parts may be nested in its first part."""
    want = len(step.operands)
    expected = f"Concat of {want} on the channel axis"
    node = node_at(graph, tensor)
    parts: list[str] = []
    nodes: list[int] = []
    head = tensor
    while node is not None and node.op == "Concat":
        axis = node.integer("axis", 0)
        if axis not in (1, 1 - step.rank):
            return missing(graph, head, expected, f"Concat on axis {axis}")
        parts[:1] = node.inputs
        nodes.append(node.index)
        if len(parts) >= want:
            break
        head = parts[0]
        node = node_at(graph, head)
    if len(parts) != want:
        return missing(graph, tensor, expected, f"Concat of {len(parts)}" if parts else "")
    return [Match(tuple(parts), nodes=tuple(nodes))]


def _split(graph: Graph, step: Step, tensor: str) -> list[Match] | Mismatch:
    """One output of an even Split, or the Slice that takes the same channels."""
    expected = f"part {step.part} of an even split into {step.parts} on the channel axis"
    source = see(graph, tensor)
    node = graph.producers.get(source)
    channel = (1, 1 - step.rank)
    if node is None or node.op not in ("Split", "Slice"):
        return missing(graph, tensor, expected)
    if node.op == "Split":
        listed = node.integers("split", ()) or _integers(graph, [*node.inputs, ""][1]) or ()
        part = node.outputs.index(source)
        even = len(set(listed)) <= 1 and len(node.outputs) == step.parts
        if node.integer("axis", 0) in channel and even and part == step.part:
            return [Match((node.inputs[0],), nodes=(node.index,))]
        found = f"output {part} of Split {list(listed)} on axis {node.integer('axis', 0)}"
        return missing(graph, tensor, expected, found)
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
    return missing(graph, tensor, expected, f"Slice {starts} to {ends} on axes {axes}")


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
    return first or missing(graph, tensor, expected, f"{describe(graph, tensor)} with weights")


MATCHERS: Mapping[str, Matcher] = {
    "conv": match_conv,
    "bn": match_bn,
    "linear": match_linear,
    "subtract": match_subtract,
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
    "softmax": match_softmax,
    "statistics": match_statistics,
    "island": _island,
}
