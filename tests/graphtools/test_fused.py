"""onnxruntime's fused nodes are shown as what they stand for, and compute the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from graphtools.fused import unfused
from graphtools.graph import Graph
from graphtools.model import Model, Node

Parse = Callable[..., Graph]
Save = Callable[..., Path]

CONV = """
g (float[1, 2, 9] x, float[1, 3, 9] z) => (float[1, 3, 9] y) <float[3, 2, 3] w, float[3] b>
{{ y = com.microsoft.FusedConv <pads = [1, 1]{attributes}> ({inputs}) }}
"""
CLIP = ', activation = "Clip", activation_params = [0.0, 0.5]'
RELU = ', activation = "Relu"'


def spelled(model: Model) -> list[str]:
    """The nodes in an order that could run: the added ones stand before the file's."""
    added = model.nodes[len(model.proto.graph.node) :]
    return [node.op for node in (*added, *model.nodes[: len(model.proto.graph.node)])]


@pytest.mark.parametrize(
    ("attributes", "inputs", "ops"),
    [
        ("", "x, w, b", ["Conv"]),
        (RELU, "x, w, b", ["Conv", "Relu"]),
        (RELU, "x, w", ["Conv", "Relu"]),
        (', activation = "Tanh"', "x, w, b", ["Conv", "Tanh"]),
        (', activation = "Sigmoid"', "x, w, b", ["Conv", "Sigmoid"]),
        (CLIP, "x, w, b", ["Conv", "Clip"]),
        ("", "x, w, b, z", ["Conv", "Add"]),
        (RELU, "x, w, b, z", ["Conv", "Add", "Relu"]),
        (RELU, "x, w, , z", ["Conv", "Add", "Relu"]),
    ],
)
def test_a_fused_convolution_computes_what_it_is_shown_as(
    parse: Parse, attributes: str, inputs: str, ops: list[str]
) -> None:
    model = parse(CONV.format(attributes=attributes, inputs=inputs)).model
    assert spelled(model) == ops
    conv = next(node for node in model.nodes if node.op == "Conv")
    assert conv.attributes == {"pads": (1, 1)}

    rebuilt = onnx.ModelProto()
    rebuilt.CopyFrom(model.proto)
    del rebuilt.graph.node[:]
    done: set[str] = {"", *model.constants, *(v.name for v in model.inputs)}
    waiting = list(model.nodes)
    while waiting:
        node = next(n for n in waiting if set(n.inputs) <= done)
        waiting.remove(node)
        done |= set(node.outputs)
        rebuilt.graph.node.append(
            onnx.helper.make_node(node.op, node.inputs, node.outputs, **node.attributes)
        )
    for name in set(model.constants) - {t.name for t in rebuilt.graph.initializer}:
        values = model.constants[name].read()
        rebuilt.graph.initializer.append(numpy_helper.from_array(values, name))
    draw = np.random.default_rng(0)
    feeds = {
        "x": draw.normal(size=(1, 2, 9)).astype(np.float32),
        "z": draw.normal(size=(1, 3, 9)).astype(np.float32),
    }
    expected, found = (
        onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            ["y"], feeds
        )[0]
        for m in (model.proto, rebuilt)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_a_fused_product_keeps_its_own_attributes(parse: Parse) -> None:
    graph = parse(
        """
        g (float[2, 4] x) => (float[2, 3] y) <float[3, 4] w, float[3] b> {
            y = com.microsoft.FusedGemm
                <transB = 1, alpha = 1.0, activation = "Relu", activation_alpha = 0.1> (x, w, b)
        }
        """
    )
    gemm, relu = graph.model.nodes[1], graph.model.nodes[0]
    assert (gemm.op, gemm.inputs) == ("Gemm", ("x", "w", "b"))
    assert gemm.attributes == {"transB": 1, "alpha": 1.0}
    assert (relu.op, relu.inputs, relu.outputs) == ("Relu", gemm.outputs, ("y",))


@pytest.mark.parametrize(
    "attributes",
    [
        ', activation = "LeakyRelu", activation_params = [0.1]',
        ', activation = "HardSigmoid", activation_params = [0.2, 0.5]',
        ', activation = "Clip"',
        ', activation = "Clip", activation_params = [0.0]',
    ],
)
def test_another_activation_leaves_the_node_as_it_is(parse: Parse, attributes: str) -> None:
    model = parse(CONV.format(attributes=attributes, inputs="x, w, b")).model
    (node,) = model.nodes
    assert node.op == "com.microsoft.FusedConv"
    assert set(model.constants) == {"w", "b"}


def test_the_files_nodes_keep_their_indices_and_outputs(parse: Parse) -> None:
    text = """
    g (float[1, 2, 9] x) => (float[1, 2, 9] y) <float[2, 2, 1] w, float[2, 2, 1] v> {
        a = com.microsoft.FusedConv <activation = "Relu"> (x, w)
        b = Tanh (a)
        y = com.microsoft.FusedConv <activation = "Sigmoid"> (b, v)
    }
    """
    nodes = parse(text).model.nodes
    assert [(n.index, n.op) for n in nodes] == [
        *((0, "Relu"), (1, "Tanh"), (2, "Sigmoid")),
        *((3, "Conv"), (4, "Conv")),
    ]
    assert [n.outputs[0] for n in nodes[:3]] == ["a", "b", "y"]
    assert nodes[0].inputs == nodes[3].outputs
    assert nodes[2].inputs == nodes[4].outputs
    assert len({out for n in nodes for out in n.outputs}) == 5


def test_nodes_that_are_not_fused_are_the_same_objects() -> None:
    nodes = [Node(0, "Conv", "", ("x", "w"), ("y",), {}), Node(1, "Relu", "", ("y",), ("z",), {})]
    shown, constants = unfused(nodes)
    assert shown[0] is nodes[0]
    assert shown[1] is nodes[1]
    assert constants == {}
