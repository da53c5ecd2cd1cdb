"""What a user is told about a graph that is none of the families."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import helper

from fixtures import catalog
from graphtools.errors import MissError
from graphtools.families import FAMILIES
from graphtools.graph import Graph, build
from graphtools.onnx_file import load
from graphtools.recover import NearMiss, Recovered, recover

Save = Callable[..., Path]
Known = Callable[[str], Recovered]

TINY = catalog.names(committed=True)
STEPS = {"resnet34_tiny": 109, "eres2net_tiny": 354, "campplus_tiny": 727}


def told(graph: Graph) -> MissError:
    found = recover(graph)
    assert isinstance(found, NearMiss)
    return found.error(graph)


@pytest.fixture
def edited(save: Save) -> Callable[..., Graph]:
    """A tiny export with one node replaced by the nodes that ``change`` makes of it."""

    def make(
        name: str, index: int, change: Callable[[onnx.NodeProto], list[onnx.NodeProto]]
    ) -> Graph:
        proto = onnx.load(catalog.path(name))
        nodes = list(proto.graph.node)
        nodes[index : index + 1] = change(nodes[index])
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)
        known = {o.domain for o in proto.opset_import}
        for domain in {node.domain for node in nodes} - known:
            proto.opset_import.add(domain=domain, version=1)
        return build(load(save(proto)))

    return make  # fmt: skip


def last(name: str, op: str) -> int:
    nodes = onnx.load(catalog.path(name)).graph.node
    return max(i for i, node in enumerate(nodes) if node.op_type == op)


class TestOtherForms:
    """Files that no structure can be read from are called what they are."""

    @pytest.mark.parametrize(
        "op",
        [
            "QuantizeLinear",
            "DequantizeLinear",
            "DynamicQuantizeLinear",
            "QLinearConv",
            "QLinearMatMul",
            "ConvInteger",
            "MatMulInteger",
            "com.microsoft.QLinearAdd",
            "com.microsoft.QGemm",
            "com.microsoft.QAttention",
            "com.microsoft.DynamicQuantizeMatMul",
            "com.microsoft.MatMulIntegerToFloat",
            "com.microsoft.MatMulNBits",
        ],
    )
    def test_a_quantised_export(self, edited: Callable[..., Graph], op: str) -> None:
        domain, _, kind = op.rpartition(".")

        def change(node: onnx.NodeProto) -> list[onnx.NodeProto]:
            inputs = [*node.input, *node.input, *node.input][:8]
            counts = {"QuantizeLinear": 2, "DequantizeLinear": 2, "DynamicQuantizeLinear": 1,
                      "ConvInteger": 2, "MatMulInteger": 2}  # fmt: skip
            inputs = inputs[: counts.get(kind, 8)]
            return [helper.make_node(kind, inputs, [node.output[0]], domain=domain)]

        graph = edited("resnet34_tiny", last("resnet34_tiny", "Conv"), change)
        error = told(graph)
        assert "quantised export" in error.cause
        assert f"({op})" in (error.where or "")
        assert error.found == f"{op}: 1 of {len(graph.model.nodes)} nodes"
        assert error.todo == "use the float one"

    def test_blocks_for_one_processor(self, edited: Callable[..., Graph]) -> None:
        def change(node: onnx.NodeProto) -> list[onnx.NodeProto]:
            node.domain = "com.microsoft.nchwc"
            return [node]

        error = told(edited("resnet34_tiny", last("resnet34_tiny", "Conv"), change))
        assert "optimised for one CPU" in error.cause
        assert error.todo == "use the original export"

    def test_an_operator_of_an_unknown_domain_is_named(self, edited: Callable[..., Graph]) -> None:
        at = last("eres2net_tiny", "Tanh")

        def change(node: onnx.NodeProto) -> list[onnx.NodeProto]:
            return [helper.make_node("Fancy", node.input, node.output, domain="com.acme")]

        error = told(edited("eres2net_tiny", at, change))
        assert "nearest is ERes2Net (3D-Speaker)" in error.cause
        assert (error.where or "").startswith(f"node {at} (com.acme.Fancy) -> ")
        assert (error.expected, error.found) == ("Tanh", "com.acme.Fancy")


class TestMoreAfterTheEmbedding:
    @pytest.mark.parametrize("name", TINY)
    @pytest.mark.parametrize("op", ["Softmax", "Neg", "LpNormalization"])
    def test_the_first_extra_node_is_named(
        self, save: Save, recovered: Known, name: str, op: str
    ) -> None:
        proto = onnx.load(catalog.path(name))
        embedding = proto.graph.output[0].name
        proto.graph.node.append(helper.make_node("Identity", [embedding], ["copy"]))
        proto.graph.node.append(helper.make_node(op, ["copy"], ["more"]))
        proto.graph.node.append(helper.make_node("Abs", ["more"], ["most"]))
        proto.graph.output[0].name = "most"
        error = told(build(load(save(proto))))
        title = FAMILIES[str(catalog.EXPORTS[name].family)].title
        assert error.cause == f"the network is {title}, but its embedding is not the output"
        assert error.where == f'node {len(proto.graph.node) - 2} ({op}) -> "more"'
        assert error.expected == f'the embedding "{embedding}" as the output "most"'
        assert error.found == f"{op}, Abs between them"
        assert f"all of {STEPS[name]} steps" in (error.todo or "")

    @pytest.mark.parametrize("name", TINY)
    def test_agreement_from_the_input_reaches_the_first_difference(
        self, edited: Callable[..., Graph], name: str
    ) -> None:
        """The greedy reading stopped where two layers of the same kind start at one tensor."""
        op = "Gemm" if name != "campplus_tiny" else "BatchNormalization"

        def change(node: onnx.NodeProto) -> list[onnx.NodeProto]:
            return [helper.make_node("Erf", node.input[:1], node.output)]

        graph = edited(name, last(name, op), change)
        found = recover(graph)
        assert isinstance(found, NearMiss)
        assert found.miss.result is None
        assert found.miss.from_input >= STEPS[name] - 3
        assert "nearest is" in found.error(graph).cause


class TestControlFlow:
    @pytest.mark.parametrize("name", TINY)
    @pytest.mark.parametrize("op", ["If", "Loop"])
    def test_a_layer_of_a_network_inside_a_body(
        self, edited: Callable[..., Graph], name: str, op: str
    ) -> None:
        """Outer weights that a body reads are used: the reads are counted and named."""
        at = last(name, "Conv")
        weights: list[str] = []

        def change(node: onnx.NodeProto) -> list[onnx.NodeProto]:
            weights.append(node.input[1])
            out = node.output[0]
            node.output[0] = "inside"
            result = onnx.ValueInfoProto(name="inside")
            if op == "If":
                body = helper.make_graph([node], "body", [], [result])
                yes = helper.make_tensor("yes", onnx.TensorProto.BOOL, [], [True])
                return [
                    helper.make_node("Constant", [], ["yes"], value=yes),
                    helper.make_node(op, ["yes"], [out], then_branch=body, else_branch=body),
                ]
            again = helper.make_node("Identity", ["go"], ["on"])
            body = helper.make_graph(
                [again, node],
                "body",
                [onnx.ValueInfoProto(name="i"), onnx.ValueInfoProto(name="go")],
                [onnx.ValueInfoProto(name="on"), result],
            )
            one = helper.make_tensor("one", onnx.TensorProto.INT64, [], [1])
            return [
                helper.make_node("Constant", [], ["one"], value=one),
                helper.make_node(op, ["one", ""], [out], body=body),
            ]

        graph = edited(name, at, change)
        (weight,) = weights
        assert [(node.op, slot) for node, slot in graph.consumers[weight]] == [(op, -1)] * (
            2 if op == "If" else 1
        )
        error = told(graph)
        assert "has control flow; nearest is " in error.cause
        assert "layers inside a body are not looked for" in (error.todo or "")
        assert FAMILIES[str(catalog.EXPORTS[name].family)].title in error.cause
        assert (error.where or "").startswith(f"node {at + 1} ({op}) -> ")
        assert weight in (error.found or "")
