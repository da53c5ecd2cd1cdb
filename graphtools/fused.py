"""onnxruntime's fused convolutions and products, shown as the operations that they stand for.

A model that onnxruntime saved after its extended optimisations has FusedConv (a Conv, an optional
addition and an activation in one) and FusedGemm. The node's index and output stay with the last
of these operations; the ones before it get indices after the file's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphtools.model import Attribute, Node
from graphtools.tensors import DType, Held, LazyTensor

__all__ = ["unfused"]

_FUSED = {"com.microsoft.FusedConv": "Conv", "com.microsoft.FusedGemm": "Gemm"}


def unfused(nodes: Sequence[Node]) -> tuple[tuple[Node, ...], dict[str, LazyTensor]]:
    """The nodes with every fused one spelled out, and the constants that this needs.

    An activation that has no operation of its own here leaves the node as it is: nothing will
    match it, and it is named in the miss.
    """
    shown: list[Node] = []
    added: list[Node] = []
    constants: dict[str, LazyTensor] = {}
    for node in nodes:
        parts = _parts(node, constants) if node.op in _FUSED else [node]
        for part in parts[:-1]:
            added.append(replace(part, index=len(nodes) + len(added)))
        shown.append(parts[-1])
    return (*shown, *added), constants


def _parts(node: Node, constants: dict[str, LazyTensor]) -> list[Node]:
    """The operations of a fused node, in order; the last one has its index and output."""
    activation = node.text("activation", "")
    parameters = node.attributes.get("activation_params")
    bounds = parameters if isinstance(parameters, tuple) else ()
    if activation not in ("", "Relu", "Tanh", "Sigmoid", "Clip") or (
        activation == "Clip" and len(bounds) != 2
    ):
        return [node]
    kept: dict[str, Attribute] = {
        k: v for k, v in node.attributes.items() if not k.startswith("activation")
    }
    name, out = node.name, node.outputs[0]
    before = f"{out} before"
    sides = [i for i in node.inputs[3:4] if i and node.op.endswith("Conv")]
    steps: list[tuple[str, tuple[str, ...], dict[str, Attribute]]] = [
        (_FUSED[node.op], node.inputs[:3], kept)
    ]
    if sides:
        steps.append(("Add", ("", sides[0]), {}))
    if activation == "Clip":
        for side, value in zip(("low", "high"), bounds, strict=True):
            held = Held(f"{out} {side}", np.array(value, np.float32))
            constants[held.name] = LazyTensor(held.name, (), DType.F32, held)
        steps.append(("Clip", ("", f"{out} low", f"{out} high"), {}))
    elif activation:
        steps.append((activation, ("",), {}))
    made = []
    for i, (op, inputs, attributes) in enumerate(steps):
        last = i == len(steps) - 1
        given = (f"{before} {i - 1}", *inputs[1:]) if i else inputs
        output = out if last else f"{before} {i}"
        made.append(Node(node.index, op, name, given, (output,), attributes))
    return made
