"""Which tensors a pattern means, and their values, in as many runs as the memory asks for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest

from fixtures import catalog
from graphtools.errors import UnsupportedError, UsageError
from graphtools.graph import Graph, build
from graphtools.onnx_file import load
from graphtools.recover import Recovered, recover
from graphtools.taps import Tap, choose, plan, run_taps, weights_before
from graphtools.tensors import Array, DType

Parse = Callable[..., Graph]

# Two branches, a constant that a node makes, an If, a sequence, and a size that data decides.
MIXED = """
mixed (float[2, N] x, bool flag) => (float[2, N] y)
<float[2, 2] w>
{
    one = Constant <value = float {1.0}> ()
    [first] a = MatMul (w, x)
    b = Relu (a)
    c = Add (b, one)
    d = If (flag) <
        then_branch = yes () => (float[2, N] inner) { inner = Relu (c) },
        else_branch = no () => (float[2, N] other) { other = Identity (c) }
    >
    list = SequenceConstruct (a, b)
    back = ConcatFromSequence <axis = 0> (list)
    places = NonZero (b)
    y = Add (d, c)
}
"""


def values(
    graph: Graph, taps: tuple[Tap, ...], feeds: dict[str, Array], budget: int
) -> list[Array]:
    return [value for _, value in run_taps(graph, taps, feeds, None, budget=budget)]


@pytest.fixture
def mixed(parse: Parse) -> Graph:
    return parse(MIXED)


@pytest.fixture
def feeds() -> dict[str, Array]:
    x = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    return {"x": x, "flag": np.array(True)}


class TestChoosing:
    @pytest.mark.parametrize(
        ("pattern", "tensors"),
        [
            ("a", ["a"]),
            ("first", ["a"]),
            ("op:Relu", ["b"]),
            ("op:*Sequence", ["back"]),
            ("[ab]", ["a", "b"]),
            ("one", ["one"]),
            ("x", []),
            ("all", ["a", "b", "c", "d", "y", "list", "back", "places"]),
        ],
    )
    def test_one_pattern(self, mixed: Graph, pattern: str, tensors: list[str]) -> None:
        assert list(choose(mixed, [pattern], {}).tensors) == tensors

    def test_constants_are_chosen_by_name_or_type_alone(self, mixed: Graph) -> None:
        assert "one" not in choose(mixed, ["all", "*"], {}).tensors
        assert choose(mixed, ["op:Constant"], {}).tensors == ("one",)

    def test_initializers_are_listed(self, mixed: Graph) -> None:
        chosen = choose(mixed, ["w", "a"], {})
        assert chosen.tensors == ("a",)
        assert chosen.omitted == {"w": "a constant of the file, which no node computes"}

    def test_tensors_inside_a_subgraph_are_listed(self, mixed: Graph) -> None:
        chosen = choose(mixed, ["inner", "op:Identity", "a"], {})
        assert chosen.tensors == ("a",)
        assert {*chosen.omitted} == {"inner", "other"}
        assert "subgraph" in chosen.omitted["inner"]

    @pytest.mark.parametrize(
        ("pattern", "close"), [("frist", "first"), ("op:Rleu", "op:Relu"), ("place", "places")]
    )
    def test_an_unknown_name_is_an_error_with_the_closest(
        self, mixed: Graph, pattern: str, close: str
    ) -> None:
        with pytest.raises(UsageError) as caught:
            choose(mixed, ["a", pattern], {})
        assert close in (caught.value.found or "")

    def test_stages_and_blocks_of_a_recovered_network(self) -> None:
        graph = build(load(catalog.path("resnet34_tiny")))
        net = recover(graph)
        assert isinstance(net, Recovered)
        stages = net.binding.stages
        block = choose(graph, ["layer2"], stages).tensors
        assert len(block) == 4
        assert {*block} == {stages[f"layer2.{i}"] for i in range(4)}
        with pytest.raises(UsageError) as caught:
            choose(graph, ["layr2"], stages)
        assert (caught.value.found or "").startswith("closest: layer2, ")
        assert choose(graph, ["layer2.1"], stages).tensors == (stages["layer2.1"],)
        assert choose(graph, ["layer[23].0"], stages).tensors == (
            stages["layer2.0"],
            stages["layer3.0"],
        )

    def test_the_order_is_the_same_for_every_order_of_the_file(self, parse: Parse) -> None:
        text = "g (float[2] x) => (float[2] y) { a = Relu (x) b = Neg (a) y = Add (a, b) }"
        mixed_up = "g (float[2] x) => (float[2] y) { y = Add (a, b) b = Neg (a) a = Relu (x) }"
        for graph in (parse(text), parse(mixed_up)):
            assert choose(graph, ["all"], {}).tensors == ("a", "b", "y")


class TestPlanning:
    def test_shapes_and_types_are_known_before_the_values(
        self, mixed: Graph, feeds: dict[str, Array]
    ) -> None:
        taps, _ = plan(mixed, choose(mixed, ["all"], {}), feeds, None)
        found = values(mixed, taps, feeds, 1 << 20)
        assert [tap.shape for tap in taps] == [value.shape for value in found]
        assert {tap.name: tap.dtype for tap in taps}["places"] is DType.I64
        assert sum(tap.size for tap in taps) == sum(value.nbytes for value in found)

    def test_a_sequence_is_listed_with_its_type(
        self, mixed: Graph, feeds: dict[str, Array]
    ) -> None:
        taps, omitted = plan(mixed, choose(mixed, ["all"], {}), feeds, None)
        assert "list" not in [tap.name for tap in taps]
        assert "seq(tensor(float))" in omitted["list"]
        assert "subgraph" in omitted["inner"]

    def test_nothing_that_can_be_had_is_no_error(
        self, mixed: Graph, feeds: dict[str, Array]
    ) -> None:
        assert plan(mixed, choose(mixed, ["list"], {}), feeds, None)[0] == ()
        assert plan(mixed, choose(mixed, ["inner"], {}), feeds, None)[0] == ()


class TestWeights:
    def test_are_those_since_the_tensors_before(self, parse: Parse) -> None:
        graph = parse("""
        chain (float[2] x) => (float[2] y)
        <float[2] v, float[2] w, float[2] u, float[1] s>
        {
            a = Mul (x, v)
            b = Add (a, w)
            c = Mul (b, s)
            y = Add (c, u)
        }
        """)
        assert weights_before(graph, ["a", "y"]) == {"a": ("v",), "y": ("w", "u")}
        assert weights_before(graph, ["y"]) == {"y": ("v", "w", "u")}


class TestRunning:
    def test_any_slicing_gives_what_onnxruntime_gives(self) -> None:
        graph = build(load(catalog.path("eres2net_tiny")))
        x = np.random.default_rng(1).standard_normal((1, 40, 80)).astype(np.float32)
        taps, _ = plan(graph, choose(graph, ["all"], {}), {"feats": x}, None)
        largest = max(tap.size for tap in taps)
        counts: list[int] = []
        found = [
            [
                v
                for _, v in run_taps(
                    graph, taps, {"feats": x}, None, budget=b, started=counts.append
                )
            ]
            for b in (2 * largest, 1 << 30)
        ]
        assert counts[0] > 5
        assert counts[1] == 1
        for one, other in zip(*found, strict=True):
            np.testing.assert_array_equal(one, other)
        session = onnxruntime.InferenceSession(str(graph.model.path))
        (embedding,) = session.run(None, {"feats": x})
        last = next(i for i, tap in enumerate(taps) if tap.name == graph.outputs[0].name)
        np.testing.assert_allclose(found[0][last], embedding, rtol=1e-3, atol=1e-5)

    def test_a_tensor_above_the_budget_is_refused(
        self, mixed: Graph, feeds: dict[str, Array]
    ) -> None:
        taps, _ = plan(mixed, choose(mixed, ["a"], {}), feeds, None)
        with pytest.raises(UnsupportedError, match="'a' does not fit"):
            values(mixed, taps, feeds, 79)  # 2 x 5 floats, twice
        (value,) = values(mixed, taps, feeds, 80)
        np.testing.assert_allclose(value, mixed.model.constants["w"].read() @ feeds["x"], rtol=1e-6)

    def test_random_nodes_give_the_same_in_every_run(self, parse: Parse) -> None:
        graph = parse("g (float[9] x) => (float[9] y) { a = RandomNormalLike (x) y = Add (x, a) }")
        x = np.ones(9, np.float32)
        taps, _ = plan(graph, choose(graph, ["all"], {}), {"x": x}, None)
        found = []
        for seed in (1, 2):  # as two processes have it
            onnxruntime.set_seed(seed)
            found.append(values(graph, taps, {"x": x}, 2 * x.nbytes))
        drawn, added = found[0]
        np.testing.assert_array_equal(added, x + drawn)
        np.testing.assert_array_equal(found[0], found[1])
        assert drawn.std() > 0.1

    @pytest.mark.parametrize("half", ["float16", "bfloat16"])
    def test_half_precision_of_inputs_and_casts_alone_is_widened(
        self, parse: Parse, half: str
    ) -> None:
        to = onnx.TensorProto.DataType.Value(half.upper())
        graph = parse(
            f"g ({half}[2] x, float[2] z) => (float[2] y)"
            f"{{ a = Cast <to = {to}> (z) b = Add (a, x) y = Cast <to = 1> (b) }}"
        )
        feeds = {"x": np.array([1.0, 2.0], np.float32), "z": np.array([3.0, 4.0], np.float32)}
        taps, omitted = plan(graph, choose(graph, ["all"], {}), feeds, None)
        assert not omitted
        assert [tap.dtype for tap in taps] == [DType.F32] * 3
        np.testing.assert_array_equal(values(graph, taps, feeds, 1 << 20)[-1], [4.0, 6.0])

    def test_half_precision_is_widened(self, parse: Parse) -> None:
        graph = parse("g (float16[2] x) => (float16[2] y) <float16[2] w> { y = Mul (x, w) }")
        x = np.array([1.0, 2.0], np.float32)
        taps, _ = plan(graph, choose(graph, ["y"], {}), {"x": x}, None)
        assert [tap.dtype for tap in taps] == [DType.F32]
        (value,) = values(graph, taps, {"x": x}, 1 << 20)
        np.testing.assert_array_equal(value, x * graph.model.constants["w"].read().astype("f4"))
