"""A part of a network computes what the whole computes there, and says what else it would need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from graphtools.errors import UsageError
from graphtools.graph import Graph
from graphtools.navigate import NodeView
from graphtools.recover import Recovered
from graphtools.tensors import Array

Parse = Callable[..., Graph]

DIAMOND = """
diamond (float[1, 3, T] x) => (float[1, 4, T] y)
<float[4, 3, 3] w, float[4, 4, 1] v, float half = {0.5}>
{
    [first] a = Conv <kernel_shape = [3], pads = [1, 1]> (x, w)
    [relu] b = Relu (a)
    [second] c = Conv <kernel_shape = [1]> (b, v)
    [third] d = Mul (c, half)
    [last] y = Add (d, a)
}
"""

# The batch size is computed from the graph's input, as torch's exporter does.
FLATTENED = """
g (float[B, 2, T] x) => (float[B, 6] y)
<float[2, 2, 1] w, float[4, 6] v, int64[1] at = {0}, int64[1] rest = {-1}>
{
    h = Conv (x, w)
    [pool] p = AveragePool <kernel_shape = [2]> (h)
    shape = Shape (x)
    batch = Gather (shape, at)
    target = Concat <axis = 0> (batch, rest)
    [flatten] flat = Reshape (p, target)
    y = MatMul (flat, v)
}
"""


def names(views: list[NodeView] | tuple[NodeView, ...]) -> list[str]:
    return [view.name or view.op for view in views]


def run(path: Path, **feeds: Array) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    found: list[Array] = onnxruntime.InferenceSession(str(path), options).run(None, feeds)
    return found


class TestBorders:
    def test_a_tensor_begins_at_its_readers_and_ends_at_its_producer(self, parse: Parse) -> None:
        part = parse(DIAMOND).subgraph("a", "c")
        assert names(part.nodes) == ["relu", "second"]
        assert (part.entries, part.exits) == (("a",), ("c",))

    def test_a_node_begins_at_its_data_and_ends_at_its_outputs(self, parse: Parse) -> None:
        g = parse(DIAMOND)
        part = g.subgraph("second", g["third"])
        assert names(part.nodes) == ["second", "third"]
        assert (part.entries, part.exits) == (("b",), ("d",))
        assert g.subgraph("last", "last").entries == ("d", "a")

    def test_several_of_both(self, parse: Parse) -> None:
        part = parse(DIAMOND).subgraph(["a", "c"], ["b", "y"])
        assert names(part.nodes) == ["relu", "third", "last"]
        assert [t.name for t in part.inputs] == ["a", "c"]
        assert [t.name for t in part.outputs] == ["b", "y"]

    def test_its_repr_is_one_line(self, parse: Parse) -> None:
        assert (
            repr(parse(DIAMOND).subgraph("a", "c")) == "<Part of hand_made_0.onnx: 2 nodes, a -> c>"
        )

    def test_a_shape_of_the_graphs_input_is_computed_from_it(self, parse: Parse) -> None:
        part = parse(FLATTENED).subgraph("p", "y")
        assert part.shape_inputs == ("x",)
        assert [t.name for t in part.inputs] == ["x", "p"]
        assert [v.op for v in part.nodes] == ["Shape", "Gather", "Concat", "Reshape", "MatMul"]
        assert parse(FLATTENED).subgraph("flatten", "y").entries == ("p",)


class TestRefusals:
    def test_data_from_outside_is_named_and_how_to_bring_it(self, parse: Parse) -> None:
        g = parse(DIAMOND)
        with pytest.raises(UsageError, match="takes data from outside") as caught:
            g.subgraph("b", "y")
        assert caught.value.found == "'a'"
        assert caught.value.where == 'node 4 (Add) -> "y"'
        assert "subgraph(['b', 'a'], ...)" in (caught.value.todo or "")
        assert names(g.subgraph(["b", "a"], "y").nodes) == ["second", "third", "last"]

    @pytest.mark.parametrize(("a", "b"), [("c", "b"), ("y", "a"), ("a", "a"), ("a", "x")])
    def test_an_end_has_to_be_reached(self, parse: Parse, a: str, b: str) -> None:
        with pytest.raises(UsageError, match=f"'{b}' cannot be reached"):
            parse(DIAMOND).subgraph(a, b)

    def test_a_beginning_has_to_be_needed(self, parse: Parse) -> None:
        with pytest.raises(UsageError, match="does not need all") as caught:
            parse(DIAMOND).subgraph(["x", "a"], "b")
        assert caught.value.found == "not needed: 'x'"

    def test_data_has_to_come_into_a_first_node(self, parse: Parse) -> None:
        g = parse(FLATTENED)
        gather = next(view for view in g.find("Gather"))
        with pytest.raises(UsageError, match="no data comes into node"):
            g.subgraph(gather, "y")

    def test_a_shape_of_another_tensor_is_not_worth_a_network(self, parse: Parse) -> None:
        g = parse(FLATTENED.replace("Shape (x)", "Shape (h)"))
        with pytest.raises(UsageError, match="takes data from outside") as caught:
            g.subgraph("p", "y")
        assert caught.value.found == "'target'"
        assert names(g.subgraph(["p", "target"], "y").nodes) == ["flatten", "MatMul"]

    def test_inside_a_fused_node_the_file_has_no_tensors(self, parse: Parse) -> None:
        g = parse(
            """
            g (float[1, 3, T] x) => (float[1, 4, T] y) <float[4, 3, 1] w>
            { a = com.microsoft.FusedConv <activation = "Relu"> (x, w) y = Neg (a) }
            """
        )
        relu = g.find("Relu")[0]
        with pytest.raises(UsageError, match="inside a fused node"):
            g.subgraph(relu, "y")

    def test_names_that_are_not_there(self, parse: Parse) -> None:
        with pytest.raises(UsageError, match="no node or tensor 'z'"):
            parse(DIAMOND).subgraph("z", "y")


class TestSaved:
    @pytest.mark.parametrize(
        ("name", "a", "b"),
        [
            ("resnet34_tiny", "layer1.2", "layer3.0"),
            ("resnet34_tiny", "layer4.2", "encoder_out"),
            ("eres2net_tiny", "layer1.0", "layer2.1"),
            ("campplus_tiny", "fcm", "block1.3"),
        ],
    )
    def test_gives_the_golden_of_its_end_on_that_of_its_beginning(
        self, recovered: Callable[[str], Recovered], tmp_path: Path, name: str, a: str, b: str
    ) -> None:
        net = recovered(name)
        stages = net.binding.stages
        x = np.random.default_rng(0).normal(0, 4, (1, 130, 80)).astype(np.float32)
        golden = net.graph.run(x, [stages[a], stages[b]])
        part = net.graph.subgraph(stages[a], stages[b])
        path = part.save(tmp_path / "part.onnx")
        given = {stages[a]: golden[stages[a]], **dict.fromkeys(part.shape_inputs, x)}
        (found,) = run(path, **given)
        np.testing.assert_array_equal(found, golden[stages[b]])
        assert {p.name for p in tmp_path.iterdir()} == {"part.onnx"}
        whole = net.graph.model.path.stat().st_size
        assert path.stat().st_size < whole / 2  # the rest of the weights stayed behind
        onnx.checker.check_model(str(path), full_check=True)

    def test_shapes_come_from_the_graphs_input(self, parse: Parse, tmp_path: Path) -> None:
        g = parse(FLATTENED)
        x = np.random.default_rng(0).normal(size=(3, 2, 3)).astype(np.float32)
        golden = g.run(x, ["p", "y"])
        path = g.subgraph("p", "y").save(tmp_path / "part.onnx")
        (found,) = run(path, x=x, p=golden["p"])
        np.testing.assert_array_equal(found, golden["y"])
