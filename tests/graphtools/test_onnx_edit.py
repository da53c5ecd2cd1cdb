"""Changed copies compute what they should on the installed onnxruntime; the file stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from graphtools.graph import Graph, build
from graphtools.model import Model
from graphtools.onnx_edit import (
    SegmentRule,
    external_tensors,
    has_partial_windows,
    island_model,
    tapped,
)
from graphtools.onnx_file import load
from graphtools.recover import Recovered
from graphtools.runtime import Runner
from graphtools.tensors import Array

Parse = Callable[..., Graph]
Save = Callable[..., Path]

OPSETS = [11, 13, 19, 21]
# Around every border, and a seeded sample of the rest.
EDGES = {1, 2, 49, 50, 99, 100, 101, 149, 150, 199, 200, 201, 298, 299, 300, 301, 349, 350}
LENGTHS = sorted(EDGES | set(np.random.default_rng(0).integers(1, 351, 24).tolist()))
RULES = get_args(SegmentRule)


def run(data: bytes, **feeds: Array) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
    found: list[Array] = session.run(None, feeds)
    return found


def pooling(attributes: str = "", axes: str = "3, T", kernel: str = "[100]") -> str:
    return f"""
    pooling (float[1, {axes}] x) => (float[1, {axes}] y)
    {{
        p = AveragePool <kernel_shape = {kernel}, strides = {kernel}{attributes}> (x)
        y = Identity (p)
    }}
    """


def expected(x: Array, rule: SegmentRule) -> Array:
    """[1, C, T] to [1, C, ceil(T / 100)]; torch divides the last window by its valid frames."""
    if rule == "valid":
        t = torch.from_numpy(x).double()
        return np.asarray(torch.nn.functional.avg_pool1d(t, 100, 100, ceil_mode=True))
    starts = range(0, x.shape[-1], 100)
    sums = [x[..., s : s + 100].astype(np.float64).sum(-1) for s in starts]
    return np.stack(sums, axis=-1) / 100


class TestPinnedPooling:
    @pytest.mark.parametrize("opset", OPSETS)
    @pytest.mark.parametrize("rule", RULES)
    def test_follows_its_rule_at_every_length(
        self, parse: Parse, opset: int, rule: SegmentRule
    ) -> None:
        graph = parse(pooling(", ceil_mode = 1"), opset=opset)
        data = tapped(graph.model, ["y"], rule)
        for frames in LENGTHS:
            x = np.random.default_rng(frames).normal(1, 1, (1, 3, frames)).astype(np.float32)
            (found,) = run(data, x=x)
            # A float32 mean of up to 100 values around 1: a few units in the last place.
            np.testing.assert_allclose(
                found, expected(x, rule), rtol=0, atol=1e-6, err_msg=str(frames)
            )

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("include", [0, 1])
    def test_whatever_count_include_pad_says(
        self, parse: Parse, rule: SegmentRule, include: int
    ) -> None:
        graph = parse(pooling(f", ceil_mode = 1, count_include_pad = {include}"))
        x = np.random.default_rng(0).normal(1, 1, (1, 3, 149)).astype(np.float32)
        (found,) = run(tapped(graph.model, ["y"], rule), x=x)
        np.testing.assert_allclose(found, expected(x, rule), rtol=0, atol=1e-6)

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize(
        ("axes", "kernel", "squeezed"),
        [("3, 1, T", "[1, 100]", 2), ("3, T, 1", "[100, 1]", 3)],
    )
    def test_with_a_dummy_axis(
        self, parse: Parse, rule: SegmentRule, axes: str, kernel: str, squeezed: int
    ) -> None:
        graph = parse(pooling(", ceil_mode = 1", axes, kernel))
        x = np.random.default_rng(0).normal(1, 1, (1, 3, 149)).astype(np.float32)
        (found,) = run(tapped(graph.model, ["y"], rule), x=np.expand_dims(x, squeezed))
        np.testing.assert_allclose(found.squeeze(squeezed), expected(x, rule), rtol=0, atol=1e-6)

    def test_the_two_rules_give_the_contracts_figures_on_ones(self, parse: Parse) -> None:
        graph = parse(pooling(", ceil_mode = 1"), opset=11)
        x = np.ones((1, 3, 149), np.float32)
        for rule, last in (("kernel", 0.49), ("valid", 1.0)):
            (found,) = run(tapped(graph.model, ["y"], rule), x=x)  # type: ignore[arg-type]
            np.testing.assert_allclose(found[0, 0], [1.0, last], rtol=1e-6)

    @pytest.mark.parametrize(
        ("attributes", "rule"),
        [("", "kernel"), (", ceil_mode = 0", "valid"), (", ceil_mode = 1", None)],
    )
    def test_other_poolings_and_no_rule_change_nothing(
        self, parse: Parse, attributes: str, rule: SegmentRule | None
    ) -> None:
        graph = parse(pooling(attributes))
        copy = onnx.ModelProto.FromString(tapped(graph.model, ["y"], rule))
        assert list(copy.graph.node) == list(graph.model.proto.graph.node)

    def test_two_poolings_are_both_pinned(self, parse: Parse) -> None:
        pool = "AveragePool <kernel_shape = [100], strides = [100], ceil_mode = 1>"
        graph = parse(
            f"""
            g (float[1, 1, T] x) => (float[1, 1, U] y, float[1, 1, U] z)
            {{ y = {pool} (x) n = Neg (x) z = {pool} (n) }}
            """
        )
        x = np.ones((1, 1, 149), np.float32)
        for rule, last in (("kernel", 0.49), ("valid", 1.0)):
            y, z = run(tapped(graph.model, ["y", "z"], rule), x=x)  # type: ignore[arg-type]
            np.testing.assert_allclose(y[0, 0], [1.0, last], rtol=1e-6)
            np.testing.assert_allclose(z, -y)

    @pytest.mark.parametrize(
        ("attributes", "partial"),
        [(", ceil_mode = 1", True), (", ceil_mode = 0", False), ("", False)],
    )
    def test_only_a_ceil_mode_pooling_may_have_partial_windows(
        self, parse: Parse, attributes: str, partial: bool
    ) -> None:
        assert has_partial_windows(parse(pooling(attributes)).model) == partial


class TestTapped:
    TEXT = """
    g (float[B, 4] x) => (float[B, 2] y) <float[4, 3] w, float[3, 2] v>
    { h = MatMul (x, w) a = Tanh (h) y = MatMul (a, v) }
    """

    def test_returns_any_tensor_in_the_order_asked(self, parse: Parse) -> None:
        graph = parse(self.TEXT)
        x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
        y, h = run(tapped(graph.model, ["y", "h"], None), x=x)
        w, v = (graph.model.constants[n].read() for n in "wv")
        # float32 sums of 4 terms.
        np.testing.assert_allclose(h, x @ w, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y, np.tanh(x @ w) @ v, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("rule", [None, "valid"])
    def test_an_output_that_is_asked_for_again_is_there_once(
        self, parse: Parse, rule: SegmentRule | None
    ) -> None:
        graph = parse(pooling(", ceil_mode = 1"))
        copy = onnx.ModelProto.FromString(tapped(graph.model, ["p", "y"], rule))
        assert [value.name for value in copy.graph.output] == ["y", "p"]

    def test_leaves_the_model_as_it_was(self, parse: Parse) -> None:
        graph = parse(pooling(", ceil_mode = 1"))
        before = graph.model.proto.SerializeToString()
        tapped(graph.model, ["p"], "valid")
        island_model(graph, ["x"], ["y"], "valid")
        assert graph.model.proto.SerializeToString() == before

    def test_the_same_call_gives_the_same_bytes(self, parse: Parse) -> None:
        graph = parse(pooling(", ceil_mode = 1"))
        first, second = (tapped(graph.model, ["p", "y"], "valid") for _ in range(2))
        assert first == second


ISLAND = """
g (float[B, T, 2] x) => (float[B, 4] y)
<float[2, 2, 3] w, float eps = {1e-7}, int64[1] last = {-1}, int64[1] at = {0}>
{
    t = Transpose <perm = [0, 2, 1]> (x)
    top = Conv <pads = [1, 1]> (t, w)
    mean = ReduceMean <axes = [-1], keepdims = 1> (top)
    centred = Sub (top, mean)
    squares = Mul (centred, centred)
    var = ReduceMean <axes = [-1], keepdims = 0> (squares)
    shifted = Add (var, eps)
    std = Sqrt (shifted)
    shape = Shape (x)
    batch = Gather (shape, at)
    target = Concat <axis = 0> (batch, last)
    flat = Reshape (mean, target)
    y = Concat <axis = 1> (flat, std)
}
"""


class TestIslandModel:
    def test_computes_the_region_alone(self, parse: Parse) -> None:
        graph = parse(ISLAND, opset=13)
        data, needed = island_model(graph, ["top"], ["y"], None)
        assert needed == ("x", "top")  # a shape inside is computed from the graph's own input
        x = np.random.default_rng(0).normal(size=(1, 9, 2)).astype(np.float32)
        whole, top = run(tapped(graph.model, ["top"], None), x=x)  # its own output comes first
        (alone,) = run(data, x=x, top=top)
        np.testing.assert_array_equal(alone, whole)
        # Another value at the entry gives another result: it is an input and not recomputed.
        (zeros,) = run(data, x=x, top=np.zeros_like(top))
        np.testing.assert_allclose(zeros, [[0, 0, 1e-7**0.5, 1e-7**0.5]], rtol=1e-5)

    def test_holds_no_weights_and_no_other_nodes(self, parse: Parse) -> None:
        graph = parse(ISLAND, opset=13)
        proto = onnx.ModelProto.FromString(island_model(graph, ["top"], ["y"], None)[0])
        assert sorted(t.name for t in proto.graph.initializer) == ["at", "eps", "last"]
        assert "Conv" not in {node.op_type for node in proto.graph.node}
        assert proto.ir_version == graph.model.ir_version

    def test_the_graphs_input_is_none_of_its_own_where_no_shape_needs_it(
        self, parse: Parse
    ) -> None:
        graph = parse(pooling(", ceil_mode = 1"))
        _, needed = island_model(graph, ["p"], ["y"], None)
        assert needed == ("p",)

    @pytest.mark.parametrize("rule", RULES)
    def test_has_its_poolings_pinned(self, parse: Parse, rule: SegmentRule) -> None:
        text = pooling(", ceil_mode = 1").replace("AveragePool", "top = Relu (x) p = AveragePool")
        graph = parse(
            text.replace("p = top = Relu (x) p =", "top = Relu (x) p =").replace("> (x)", "> (top)")
        )
        data, needed = island_model(graph, ["top"], ["y"], rule)
        assert needed == ("top",)
        x = np.random.default_rng(0).normal(1, 1, (1, 3, 149)).astype(np.float32)
        (found,) = run(data, top=x)
        np.testing.assert_allclose(found, expected(x, rule), rtol=0, atol=1e-6)

    @pytest.mark.parametrize("name", ["resnet34_tiny", "eres2net_tiny", "campplus_tiny"])
    def test_of_the_exports_gives_what_the_whole_gives(
        self, recovered: Callable[[str], Recovered], name: str
    ) -> None:
        net = recovered(name)
        regions = [region for _, region in net.binding.regions]
        entries, exits = [r.entry for r in regions], [r.exit for r in regions]
        data, needed = island_model(net.graph, entries, exits, "kernel")
        x = np.random.default_rng(0).normal(0, 4, (1, 130, 80)).astype(np.float32)
        feeds = {net.binding.input: x}
        whole = Runner.of(net.graph.model, [*entries, *exits], "kernel").run(feeds)
        given = {name: feeds[name] if name in feeds else whole[name] for name in needed}
        alone = Runner(net.graph.model, data, exits).run(given)
        for exit in exits:
            np.testing.assert_array_equal(alone[exit], whole[exit])

    def test_reaches_what_only_a_subgraph_reads(self, parse: Parse) -> None:
        branch = "(float[1, 2] {0}) {{ {0} = Mul (h, two) }}"
        graph = parse(
            f"""
            g (float[1, 2] x) => (float[1, 2] y) <float two = {{2}}, bool yes = {{1}}> {{
                top = Relu (x)
                h = Neg (top)
                y = If (yes) <
                    then_branch = a () => {branch.format("p")},
                    else_branch = b () => {branch.format("q")}
                >
            }}
            """
        )
        data, needed = island_model(graph, ["top"], ["y"], None)
        assert needed == ("top",)
        (found,) = run(data, top=np.ones((1, 2), np.float32))
        assert found.tolist() == [[-2.0, -2.0]]


class TestExternalData:
    @pytest.fixture(params=[0, 64], ids=["all outside", "weights outside"])
    def split(self, request: pytest.FixtureRequest, parse: Parse, tmp_path: Path) -> Model:
        """The island's model, its initializers of at least so many bytes in another file."""
        path = tmp_path / "split.onnx"
        onnx.save(
            parse(ISLAND, opset=13).model.proto,
            path,
            save_as_external_data=True,
            location="split.data",
            size_threshold=request.param,
        )
        return load(path)

    def test_names_exactly_the_tensors_in_other_files(self, split: Model) -> None:
        names = {t.name for t in split.proto.graph.initializer if t.external_data}
        assert "w" in names or not names
        assert {t.name for t in external_tensors(split)} == names

    def test_a_tapped_copy_runs_with_them(self, parse: Parse, split: Model) -> None:
        x = np.random.default_rng(0).normal(size=(1, 9, 2)).astype(np.float32)
        whole = Runner.of(parse(ISLAND, opset=13).model, ["top", "y"]).run({"x": x})
        found = Runner.of(split, ["top", "y"]).run({"x": x})
        for name in ("top", "y"):
            np.testing.assert_array_equal(found[name], whole[name])

    def test_an_island_runs_with_them(self, split: Model) -> None:
        data, needed = island_model(build(split), ["top"], ["y"], None)
        x, top = np.zeros((1, 9, 2), np.float32), np.zeros((1, 2, 9), np.float32)
        found = Runner(split, data, ["y"]).run({n: {"x": x, "top": top}[n] for n in needed})
        np.testing.assert_allclose(found["y"], [[0, 0, 1e-7**0.5, 1e-7**0.5]], rtol=1e-5)


def test_a_hand_made_file_is_not_touched(save: Save) -> None:
    path = save(pooling(", ceil_mode = 1"))
    before = path.read_bytes()
    run(tapped(load(path), ["y"], "valid"), x=np.ones((1, 3, 149), np.float32))
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16])
def test_weights_of_a_branch_may_be_in_another_file(save: Save, tmp_path: Path, kind: int) -> None:
    proto = onnx.load(
        save(f"""
        g (float[4] x, bool c) => (float[4] y) {{
            y = If (c) <
                then_branch = a () => (float[4] p) {{
                    n = Cast <to = {kind}> (x)
                    m = Mul (n, w)
                    p = Cast <to = 1> (m)
                }},
                else_branch = b () => (float[4] q) {{ q = Identity (x) }}
            >
        }}
        """)
    )
    branch = next(a.g for a in proto.graph.node[0].attribute if a.name == "then_branch")
    values = np.arange(4, dtype=onnx.helper.tensor_dtype_to_np_dtype(kind))
    weight = branch.initializer.add()
    weight.CopyFrom(onnx.numpy_helper.from_array(values, "w"))
    (tmp_path / "w.bin").write_bytes(weight.raw_data)
    onnx.external_data_helper.set_external_data(weight, "w.bin")
    weight.ClearField("raw_data")
    model = load(save(proto))
    found = Runner.of(model, ["y"]).run({"x": np.ones(4, np.float32), "c": np.array(True)})["y"]
    assert found.tolist() == [0, 1, 2, 3]


class TestHalfPrecision:
    """Whatever is run is run in float32: weights, constants, casts and both ends."""

    @pytest.mark.parametrize("external", [True, False])
    @pytest.mark.parametrize("half", [onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16])
    def test_is_widened(self, tmp_path: Path, half: int, external: bool) -> None:
        rng = np.random.default_rng(0)
        weight = onnx.helper.make_tensor("w", half, [4, 3], rng.normal(size=12).tolist())
        third = onnx.helper.make_tensor("c", half, [], [1 / 3])
        nodes = [
            onnx.helper.make_node("Cast", ["x"], ["narrow"], to=half),
            onnx.helper.make_node("MatMul", ["narrow", "w"], ["h"]),
            onnx.helper.make_node("Constant", [], ["third"], value=third),
            onnx.helper.make_node("Mul", ["h", "third"], ["y"]),
        ]
        graph = onnx.helper.make_graph(
            nodes,
            "half",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 4])],
            [onnx.helper.make_tensor_value_info("y", half, [2, 3])],
            [weight],
        )
        opset = [onnx.helper.make_opsetid("", 17)]
        proto = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
        onnx.save(
            proto,
            tmp_path / "half.onnx",
            save_as_external_data=external,
            size_threshold=0,
            convert_attribute=False,
        )
        model = load(tmp_path / "half.onnx")
        x = rng.normal(size=(2, 4)).astype(np.float32)
        found = Runner.of(model, ["y"]).run({"x": x})["y"]
        assert found.dtype == np.float32
        exact = model.constants["w"].read().astype(np.float64)
        scale = float(model.constants["third"].read().astype(np.float64))
        assert abs(scale - 1 / 3) > 1e-5  # it is the half-precision number
        np.testing.assert_allclose(found, (x @ exact) * scale, rtol=1e-6, atol=1e-6)
