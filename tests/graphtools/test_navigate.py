"""Walking a graph by hand reads as it is meant, and says what is there when a name is wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest

from fixtures import catalog
from graphtools.blocks import BlockView
from graphtools.errors import UsageError
from graphtools.graph import Graph, build
from graphtools.navigate import NodeView, TensorView
from graphtools.onnx_file import load
from graphtools.recover import Recovered, network_of
from graphtools.tensors import LazyTensor

Parse = Callable[..., Graph]

DIAMOND = """
diamond (float[1, 3, T] x) => (float[1, 4, T] y)
<float[4, 3, 3] w, float[4, 4, 1] v>
{
    [first] a = Conv <kernel_shape = [3], pads = [1, 1]> (x, w)
    b = Relu (a)
    [second] c = Conv <kernel_shape = [1]> (b, v)
    y = Add (c, a)
    unused = Neg (x)
}
"""


@pytest.fixture
def g(parse: Parse) -> Graph:
    return parse(DIAMOND)


@pytest.fixture(scope="module")
def net() -> Recovered:
    found = network_of(build(load(catalog.path("resnet34_tiny"))))
    assert found is not None
    return found


def node(view: NodeView | TensorView) -> NodeView:
    assert isinstance(view, NodeView)
    return view


def tensor(view: NodeView | TensorView) -> TensorView:
    assert isinstance(view, TensorView)
    return view


class TestNodesAndTensors:
    def test_by_index_by_name_and_by_tensor(self, g: Graph) -> None:
        assert node(g[0]) == node(g["first"])
        assert node(g[0]) != node(g[1])
        assert node(g[np.int64(1)]) == node(g[1])
        assert tensor(g["b"]).producer == g[1]
        assert tensor(g["x"]).producer is None

    def test_a_graph_is_its_nodes_in_execution_order(self, g: Graph) -> None:
        assert [view.op for view in g] == ["Conv", "Relu", "Conv", "Add", "Neg"]
        assert g[0] in g

    def test_each_leads_to_the_next(self, g: Graph) -> None:
        first = node(g["first"])
        assert [t.name for t in first.inputs] == ["x", "w"]
        assert [v.op for v in first.consumers] == ["Relu", "Add"]
        assert node(g["second"]).producers == (g[1],)
        assert first.outputs[0].consumers[0].op == "Relu"
        assert first.attributes["pads"] == (1, 1)

    def test_weights_are_lazy(self, g: Graph) -> None:
        (weight,) = node(g["first"]).weights
        assert isinstance(weight, LazyTensor)
        assert np.asarray(weight).shape == (4, 3, 3)
        np.testing.assert_array_equal(np.asarray(weight, np.float64), weight.read())

    def test_shapes_are_those_of_the_file_and_of_inference(self, g: Graph) -> None:
        assert tensor(g["b"]).shape == (1, 4, "T")
        assert tensor(g["w"]).shape == (4, 3, 3)

    def test_reprs_are_one_line(self, g: Graph) -> None:
        assert repr(g["first"]) == "<node 0 Conv 'first' -> a: f32 [1, 4, T]>"
        assert repr(g["w"]) == "<tensor w: f32 [4, 3, 3], constant>"
        assert repr(node(g[0]).weights[0]) == "<w f32 [4, 3, 3], unread, from w>"

    @pytest.mark.parametrize("key", ["frist", "", 99, -1])
    def test_what_is_not_there_is_an_error_with_the_closest(self, g: Graph, key: int | str) -> None:
        with pytest.raises(UsageError, match="has no node") as caught:
            g[key]
        assert ("first" in (caught.value.found or "")) == (key == "frist")


class TestPaths:
    def test_the_shortest_way(self, g: Graph) -> None:
        assert [v.op for v in node(g["first"]).path_to("y")] == ["Conv", "Add"]
        assert [v.op for v in tensor(g["x"]).path_to("c")] == ["Conv", "Relu", "Conv"]
        assert node(g["first"]).path_to(g["first"]) == (g["first"],)

    def test_there_may_be_none(self, g: Graph) -> None:
        assert node(g["second"]).path_to("first") == ()
        assert tensor(g["y"]).path_to("first") == ()

    def test_an_input_has_no_producer_to_end_at(self, g: Graph) -> None:
        with pytest.raises(UsageError, match="no node makes 'x'"):
            node(g["first"]).path_to("x")

    def test_between_is_every_way(self, g: Graph) -> None:
        assert [v.op for v in g.between("first", "y")] == ["Conv", "Relu", "Conv", "Add"]
        assert [v.op for v in g.between("x", "second")] == ["Conv", "Relu", "Conv"]
        assert g.between("second", "first") == []


class TestFinding:
    def test_by_op_attribute_shape_weight_and_name(self, g: Graph) -> None:
        first, second = node(g["first"]), node(g["second"])
        assert g.find("Conv") == [first, second]
        assert g.find("Conv", kernel=(3,)) == [first]
        assert g.find(kernel=[1]) == [second]
        assert g.find(weight=(4, None, 1)) == [second]
        assert g.find(name="eco") == [second]
        assert [v.op for v in g.find(shape=(1, ..., "T"), op="Relu")] == ["Relu"]
        assert g.find(shape=(1, 4)) == []
        assert g.find("Conv", kernel=(5,)) == []

    def test_an_op_or_attribute_that_no_node_has_is_an_error(self, g: Graph) -> None:
        with pytest.raises(UsageError, match="no node has the op 'conv'") as caught:
            g.find(op="conv")
        assert caught.value.found == "closest: Conv"
        with pytest.raises(UsageError, match="no node has the attribute 'bogus'"):
            g.find(bogus=3)


class TestRunning:
    def test_gives_what_onnxruntime_gives(self, g: Graph) -> None:
        x = np.random.default_rng(0).standard_normal((1, 3, 9)).astype(np.float32)
        session = onnxruntime.InferenceSession(str(g.model.path))
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(g.run(x)["y"], y, rtol=1e-5, atol=1e-6)
        found = g.run({"x": x.astype(np.float64)}, taps="op:Conv")
        assert {*found} == {"a", "c"}
        np.testing.assert_allclose(found["a"] + found["c"], y, rtol=1e-5, atol=1e-6)

    def test_a_stage_goes_by_its_name(self, net: Recovered) -> None:
        x = np.zeros((1, 60, 80), np.float32)
        stage = net.binding.stages["layer2.1"]
        assert {*net.graph.run(x, taps=["layer2.1", stage])} == {stage}
        assert {*net.graph.run(x, taps=["layer2.1"])} == {"layer2.1"}


class TestBlocks:
    def test_a_block_is_a_stage_that_repeats(self, net: Recovered) -> None:
        assert [b.name for b in net.blocks[:4]] == ["layer1.0", "layer1.1", "layer1.2", "layer2.0"]
        assert net.stages[0].name == "stem"

    def test_weights_go_by_their_slots(self, net: Recovered) -> None:
        block = net.blocks[7]
        weight = block.conv2.weight  # type: ignore[union-attr]
        assert weight is net.binding.layers["layer3.0.conv2"].tensors["weight"]
        assert block["conv2"]["weight"] is weight  # type: ignore[index]
        assert net.stages[0].weight is net.binding.layers["stem"].tensors["weight"]
        assert {"conv1", "conv2", "shortcut"} == {*dir(block)}
        assert [*block][2] is weight

    def test_parts_of_parts(self) -> None:
        net = network_of(build(load(catalog.path("campplus_tiny"))))
        assert net is not None
        fcm = net.stages[0]
        part = fcm["layer1"]
        assert isinstance(part, BlockView)
        inner = part[0]
        assert isinstance(inner, BlockView)
        assert inner.name == "fcm.layer1.0"
        assert inner.conv1.weight.shape == (4, 4, 3, 3)  # type: ignore[union-attr]

    def test_a_stage_is_a_tensor(self, net: Recovered) -> None:
        assert tensor(net.graph["layer1.0"]).name == net.binding.stages["layer1.0"]

    def test_what_is_not_there_is_said(self, net: Recovered) -> None:
        with pytest.raises(AttributeError, match=r"layer3\.0 has no 'conv3'; it has conv1, conv2"):
            _ = net.blocks[7].conv3
        with pytest.raises(UsageError, match="has no 'conv3'"):
            net.blocks[7]["conv3"]

    def test_reprs_fit_a_line(self, net: Recovered) -> None:
        assert repr(net.blocks[7].shortcut) == (  # type: ignore[union-attr]
            "<block layer3.0.shortcut: weight [16, 8, 1, 1], bias [16]>"
        )
        assert len(repr(net)) < 180
