"""Two networks to write: a real one in recovered boxes, and one whose names are a nuisance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest

from graphtools.boxes import Box
from graphtools.explorer import Carried, Overlays
from graphtools.graph import Graph
from graphtools.hierarchy import hierarchy
from graphtools.recover import Recovered

NAMES = {
    "a": "2",  # the index of another node
    "b": '"<b>";\\N\\l&gt;\n',
    "c": "GraphInputs",
    "d": "__proto__",
}
TEXT = """
g (float[1, 3, T] x) => (float[1, 4, U] y) <float[4, 3, 3] w, float[4, 4, 1] v, float one = {1}>
{
    a = Conv (x, w)
    b = Relu (a)
    c = Conv (b, v)
    five = Constant <value_float = inf> ()
    d = Min (c, five)
    e = Add (d, c)
    y = Mul (e, one)
}
"""
SCOPES = ('one;two "\\', 'one;two "\\', "back\\slash</script>", None, "back\\slash</script>")


@pytest.fixture
def nuisance(save: Callable[..., Any], parse: Callable[..., Graph]) -> Graph:
    """Names with everything that means something to one of the formats."""
    proto = onnx.load(save(TEXT))
    for node, scope in zip(proto.graph.node, SCOPES, strict=False):
        node.name = f"{scope}/{node.op_type}" if scope else ""
        for names in (node.input, node.output):
            names[:] = [NAMES.get(name, name) for name in names]
    for node in proto.graph.node[5:]:
        node.input[:] = [NAMES.get(name, name) for name in node.input]
    return parse(proto)


@pytest.fixture
def resnet(recovered: Callable[[str], Recovered]) -> tuple[Graph, Box, Overlays]:
    net = recovered("resnet34_tiny")
    labels = {layer.node: slot for slot, layer in net.binding.layers.items()}
    weight = net.binding.layers["layer2.0.conv1"].tensors["weight"].name
    carried = {weight: (Carried("voicedetect.list", 3, "blk.weight", ""),)}
    overlays = Overlays(title="ResNet", labels=labels, carried=carried)
    return net.graph, hierarchy(net.graph, net), overlays
