"""The questions that recovery asks of a graph, none of which depends on the order of nodes."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtools.graph import (
    ENTRY,
    SEE_THROUGH,
    Graph,
    Region,
    build,
    canonical_order,
    constant,
    regions_above,
    scalar,
    see,
)
from graphtools.model import Model, Node, Value
from graphtools.tensors import Array, DType

Parse = Callable[..., Graph]
Deadline = Callable[[int], AbstractContextManager[None]]


def model(nodes: list[Node], outputs: list[str]) -> Model:
    """A model without constants; its input is ``x``."""
    values = [Value(name, DType.F32, None) for name in ("x", *outputs)]
    return Model(
        path=Path("made.onnx"),
        nodes=tuple(nodes),
        constants={},
        inputs=tuple(values[:1]),
        outputs=tuple(values[1:]),
        opset={"": 17},
        ir_version=8,
        producer="",
        metadata={},
        proto=None,
    )


@st.composite
def models(draw: st.DrawFn) -> Model:
    """A graph without cycles, one or two outputs; some nodes may be needed by none of them."""
    size = draw(st.integers(1, 12))
    names = ["x", *(f"t{i}" for i in range(size))]
    nodes = []
    for index in range(size):
        earlier = st.sampled_from(names[: index + 1])
        inputs = draw(st.lists(earlier, min_size=1, max_size=3))
        nodes.append(Node(index, "Op", "", tuple(inputs), (names[index + 1],), {}))
    outputs = draw(st.lists(st.sampled_from(names[1:]), min_size=1, max_size=2, unique=True))
    return model(nodes, outputs)


def shuffled(source: Model, seed: int) -> Model:
    """The same graph with its nodes in another order."""
    nodes = list(source.nodes)
    random.Random(seed).shuffle(nodes)
    return replace(source, nodes=tuple(replace(n, index=i) for i, n in enumerate(nodes)))


class TestBuild:
    TEXT = """
    g (float[1, 4] x) => (float[1, 4] y) <float[4] w> {
        a, b = Split <axis = 1, num_outputs = 2> (x)
        c = Concat <axis = 1> (b, a)
        d = Add (c, c)
        y = Mul (d, w)
    }
    """

    def test_edges_go_from_producer_to_consumer_by_tensor_and_slot(self, parse: Parse) -> None:
        graph = parse(self.TEXT, opset=18)
        assert sorted(graph.net.edges(keys=True)) == [
            (0, 1, ("a", 1)),
            (0, 1, ("b", 0)),
            (1, 2, ("c", 0)),
            (1, 2, ("c", 1)),
            (2, 3, ("d", 0)),
        ]
        assert [graph.net.nodes[i]["node"] for i in graph.net] == list(graph.model.nodes)

    def test_every_output_has_one_producer_and_every_tensor_its_consumers(
        self, parse: Parse
    ) -> None:
        graph = parse(self.TEXT, opset=18)
        assert {name: node.index for name, node in graph.producers.items()} == {
            "a": 0,
            "b": 0,
            "c": 1,
            "d": 2,
            "y": 3,
        }
        found = {n: [(c.index, slot) for c, slot in r] for n, r in graph.consumers.items()}
        assert found == {
            "x": [(0, 0)],
            "a": [(1, 1)],
            "b": [(1, 0)],
            "c": [(2, 0), (2, 1)],
            "d": [(3, 0)],
            "w": [(3, 1)],
            "y": [],
        }

    def test_what_a_subgraph_reads_from_outside_is_an_edge(self, parse: Parse) -> None:
        graph = parse(
            """
            g (float[2] x, bool c) => (float[2] y) {
                h = Relu (x)
                y = If (c) <
                    then_branch = a () => (float[2] p) { p = Tanh (h) },
                    else_branch = b () => (float[2] q) { q = Tanh (x) }
                >
            }
            """
        )
        assert list(graph.net.edges(keys=True)) == [(0, 1, ("h", -1))]
        assert [(node.index, slot) for node, slot in graph.consumers["x"]] == [(0, 0), (1, -1)]

    def test_inputs_outputs_and_a_short_text_for_people(self, parse: Parse) -> None:
        graph = parse(self.TEXT, opset=18)
        assert [v.name for v in (*graph.inputs, *graph.outputs)] == ["x", "y"]
        assert repr(graph) == f"<Graph {graph.model.path.name}: 4 nodes>"


class TestCanonicalOrder:
    @given(models(), st.integers(0, 2**32))
    def test_is_the_same_for_every_order_of_the_file(self, source: Model, seed: int) -> None:
        def needed(one: Model) -> list[str]:
            graph = build(one)
            live: set[int] = set()
            for value in one.outputs:
                index = graph.producers[value.name].index
                live |= {index, *nx.ancestors(graph.net, index)}
            order = [i for i in canonical_order(graph) if i in live]
            return [one.nodes[i].outputs[0] for i in order]

        assert needed(shuffled(source, seed)) == needed(source)

    @given(models(), st.integers(0, 2**32))
    def test_lists_every_node_once_after_what_it_reads(self, source: Model, seed: int) -> None:
        graph = build(shuffled(source, seed))
        order = canonical_order(graph)
        assert sorted(order) == list(range(len(source.nodes)))
        place = {index: at for at, index in enumerate(order)}
        assert all(place[u] < place[v] for u, v in graph.net.edges())

    def test_follows_inputs_in_slot_order(self, parse: Parse) -> None:
        text = "g (float[2] x) => (float[2] y) {{ {} y = Sub (b, a) }}"
        first, second = "a = Relu (x)", "b = Tanh (x)"
        for lines in (f"{first} {second}", f"{second} {first}"):
            graph = parse(text.format(lines))
            ops = [graph.model.nodes[i].op for i in canonical_order(graph)]
            assert ops == ["Tanh", "Relu", "Sub"]

    def test_what_no_output_needs_comes_last(self, parse: Parse) -> None:
        graph = parse("g (float[2] x) => (float[2] y) { a = Tanh (x) b = Exp (a) y = Relu (x) }")
        assert canonical_order(graph) == (2, 0, 1)

    def test_what_only_a_subgraph_reads_comes_before_it(self, parse: Parse) -> None:
        graph = parse(
            """
            g (float[2] x, bool c) => (float[2] y) {
                y = If (c) <
                    then_branch = a () => (float[2] p) { p = Tanh (h) },
                    else_branch = b () => (float[2] q) { q = Tanh (x) }
                >
                h = Relu (x)
            }
            """
        )
        assert canonical_order(graph) == (1, 0)

    def test_is_no_recursion(self) -> None:
        names = ["x", *(f"t{i}" for i in range(20_000))]
        nodes = [Node(i, "Op", "", (a,), (names[i + 1],), {}) for i, a in enumerate(names[:-1])]
        assert canonical_order(build(model(nodes, names[-1:]))) == tuple(range(20_000))


class TestDominators:
    @given(models())
    def test_are_the_nearest_nodes_without_which_there_is_no_way(self, source: Model) -> None:
        graph = build(source)
        data: nx.DiGraph[int] = nx.DiGraph(graph.net.edges())
        data.add_nodes_from((ENTRY, *graph.net))
        data.add_edges_from((ENTRY, node.index) for node, _ in graph.consumers["x"])

        def reached(without: int | None = None) -> set[int]:
            rest = data.subgraph(n for n in data if n != without)
            return set(nx.descendants(rest, ENTRY))

        above = {n: set[int]() for n in reached()}
        for removed in graph.net:
            for node in reached() - reached(removed) - {removed}:
                above[node].add(removed)
        # Of the nodes that dominate one node, the nearest is dominated by all the others.
        expected = {
            n: max(ds, key=lambda d: len(above[d]), default=ENTRY) for n, ds in above.items()
        }
        assert dict(graph.dominators) == expected

    def test_data_does_not_flow_through_a_shape(self, parse: Parse) -> None:
        graph = parse(
            """
            g (float[B, T, 80] x) => (float[B, U] y) <int64[1] rest = {-1}, int64[1] at = {0}> {
                h = Relu (x)
                shape = Shape (x)
                batch = Gather (shape, at)
                target = Concat <axis = 0> (batch, rest)
                y = Reshape (h, target)
            }
            """
        )
        relu, shape, gather, concat, reshape = range(5)
        assert graph.dominators == {relu: ENTRY, shape: ENTRY, reshape: relu}
        assert gather not in graph.dominators
        assert concat not in graph.dominators

    def test_of_a_diamond_the_top_dominates_the_bottom(self, parse: Parse) -> None:
        graph = parse(
            """
            g (float[2] x) => (float[2] y)
            { t = Tanh (x) a = Relu (t) b = Exp (t) y = Add (a, b) }
            """
        )
        assert graph.dominators == {0: ENTRY, 1: 0, 2: 0, 3: 0}

    def test_two_inputs_meet_before_the_graph(self, parse: Parse) -> None:
        graph = parse("g (float[2] x, float[2] z) => (float[2] y) { a = Relu (z) y = Add (x, a) }")
        assert graph.dominators == {0: ENTRY, 1: ENTRY}


def layout(chain: str, opset: int = 17, declared: str = "") -> str:
    """A graph in which ``w`` becomes ``z`` by a chain of nodes."""
    declared = f", {declared}" if declared else ""
    return (
        f"g (float[2] x) => (float[2] y) <float[2, 3, 4] w{declared}> {{ {chain} y = Mul (x, z) }}"
    )


# Spelling, opset, further constants, and what the chain does to the values.
LAYOUTS: list[tuple[str, int, str, Callable[[Array], Array]]] = [
    ("z = Identity (w)", 17, "", lambda w: w),
    ("a = Identity (w) z = Identity (a)", 17, "", lambda w: w),
    ("z = Dropout (w)", 17, "", lambda w: w),
    ("z = Cast <to = 1> (w)", 17, "", lambda w: w),
    ("z = Transpose <perm = [2, 0, 1]> (w)", 17, "", lambda w: w.transpose(2, 0, 1)),
    ("z = Transpose (w)", 17, "", lambda w: w.T),
    ("z = Reshape (w, s)", 17, "int64[2] s = {6, 4}", lambda w: w.reshape(6, 4)),
    ("z = Reshape (w, s)", 17, "int64[2] s = {6, -1}", lambda w: w.reshape(6, 4)),
    ("z = Reshape (w, s)", 17, "int64[3] s = {0, 0, -1}", lambda w: w),
    ("z = Reshape (w, s)", 17, "int64[2] s = {0, -1}", lambda w: w.reshape(2, 12)),
    ("z = Reshape (w, s)", 17, "int64[1] s = {-1}", lambda w: w.reshape(24)),
    ("z = Flatten (w)", 17, "", lambda w: w.reshape(2, 12)),
    ("z = Flatten <axis = 2> (w)", 17, "", lambda w: w.reshape(6, 4)),
    ("z = Flatten <axis = 0> (w)", 17, "", lambda w: w.reshape(1, 24)),
    ("z = Flatten <axis = -1> (w)", 17, "", lambda w: w.reshape(6, 4)),
    ("z = Unsqueeze <axes = [0, 4]> (w)", 11, "", lambda w: w[None, ..., None]),
    ("z = Unsqueeze (w, s)", 13, "int64[2] s = {0, 4}", lambda w: w[None, ..., None]),
    ("z = Unsqueeze (w, s)", 13, "int64[2] s = {-1, 0}", lambda w: w[None, ..., None]),
    ("z = Unsqueeze (w, s)", 13, "int64[1] s = {1}", lambda w: w[:, None]),
    ("a = Unsqueeze <axes = [0, 2]> (w) z = Squeeze <axes = [2]> (a)", 11, "", lambda w: w[None]),
    ("a = Unsqueeze (w, s) z = Squeeze (a, t)", 13, "int64[2] s = {0, 2}, int64[1] t = {-3}",
     lambda w: w[None]),
    ("a = Unsqueeze (w, s) z = Squeeze (a)", 13, "int64[2] s = {0, 2}", lambda w: w),
    ("i = Identity (s) a = Reshape (w, i) z = Reshape (a, i)", 17, "int64[2] s = {4, 6}",
     lambda w: w.reshape(4, 6)),
    ("a = Transpose <perm = [0, 2, 1]> (w) z = Reshape (a, s)", 17, "int64[2] s = {8, 3}",
     lambda w: w.transpose(0, 2, 1).reshape(8, 3)),
]  # fmt: skip


class TestConstant:
    @pytest.mark.parametrize(("chain", "opset", "declared", "apply"), LAYOUTS)
    def test_is_found_through_layout_ops_in_its_new_shape(
        self,
        parse: Parse,
        chain: str,
        opset: int,
        declared: str,
        apply: Callable[[Array], Array],
    ) -> None:
        graph = parse(layout(chain, opset, declared), opset=opset)
        expected = apply(graph.model.constants["w"].read())
        found = constant(graph, "z")
        assert found is not None
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found.read(), expected)

    @pytest.mark.parametrize(
        ("chain", "name"),
        [
            ("z = Transpose (w)", "w"),
            ("z = Identity (w)", "z"),
            ("a = Identity (w) b = Transpose (a) c = Identity (b) z = Flatten (c)", "c"),
        ],
    )
    def test_is_named_after_the_last_identity_or_the_initializer(
        self, parse: Parse, chain: str, name: str
    ) -> None:
        found = constant(parse(layout(chain)), "z")
        assert found is not None
        assert found.name == name
        assert "w" in found.origin()  # where the values stand is not forgotten

    @pytest.mark.parametrize("kind", ["float16", "bfloat16", "double"])
    def test_a_cast_to_f32_widens(self, parse: Parse, kind: str) -> None:
        graph = parse(
            f"""
            g (float[3] x) => (float[3] y) <{kind}[3] w>
            {{ z = Cast <to = 1> (w) y = Mul (x, z) }}
            """
        )
        found = constant(graph, "z")
        assert found is not None
        assert (found.dtype, found.read().dtype) == (DType.F32, np.float32)
        np.testing.assert_array_equal(
            found.read(), graph.model.constants["w"].read().astype(np.float32)
        )

    @pytest.mark.parametrize(
        "chain",
        [
            "z = Cast <to = 10> (w)",  # narrows: these are other values
            "a = Cast <to = 7> (w) z = Cast <to = 1> (a)",
            "z = Relu (w)",
            "s = Shape (x) z = Reshape (w, s)",  # a shape that is no constant
            "z = Transpose (x)",
            "z = Identity (x)",
        ],
    )
    def test_anything_else_is_none(self, parse: Parse, chain: str) -> None:
        assert constant(parse(layout(chain)), "z") is None

    @pytest.mark.parametrize(
        ("chain", "declared"),
        [
            ("z = Reshape (w, s)", "int64[2] s = {5, 5}"),
            ("z = Reshape (w, s)", "int64[2] s = {7, -1}"),
            ("z = Reshape (w, s)", "int64[3] s = {-1, -1, 24}"),
            ("z = Transpose <perm = [0, 1, 3]> (w)", ""),
            ("z = Transpose <perm = [0, 1]> (w)", ""),
            ("z = Transpose <perm = [0, 1, 1]> (w)", ""),
            ("z = Squeeze (w, s)", "int64[1] s = {0}"),
            ("z = Squeeze (c, s)", "float c = {1.0}, int64[1] s = {0}"),
            ("z = Reshape (w, s)", "float[2] s = {6.0, 4.0}"),
            ("z = Squeeze (w, s)", "int64[1] s = {9}"),
            ("z = Unsqueeze (w, s)", "int64[2] s = {0, 0}"),
            ("z = Unsqueeze (w, s)", "int64[1] s = {9}"),
        ],
    )
    def test_a_layout_op_that_no_runtime_would_run_is_none(
        self, parse: Parse, chain: str, declared: str
    ) -> None:
        assert constant(parse(layout(chain, declared=declared)), "z") is None


class TestScalar:
    @pytest.mark.parametrize(
        ("declared", "expected"),
        [
            ("float c = {0.5}", 0.5),
            ("float[1, 1] c = {0.5}", 0.5),
            ("int64[1] c = {3}", 3.0),
            ("bool c = {1}", 1.0),
            ("float[2] c = {1, 2}", None),
            ("float[0] c = {}", None),
        ],
    )
    def test_is_the_value_of_a_constant_of_one_element(
        self, parse: Parse, declared: str, expected: float | None
    ) -> None:
        text = f"g (float[2] x) => (float[2] y) <{declared}> {{ z = Identity (c) y = Mul (x, z) }}"
        assert scalar(parse(text), "z") == expected

    def test_text_and_computed_tensors_have_none(self, parse: Parse) -> None:
        graph = parse(
            """
            g (float[1] x) => (float[1] y) {
                c = Constant <value_string = "7"> ()
                y = Relu (x)
            }
            """
        )
        assert scalar(graph, "c") is None
        assert scalar(graph, "x") is None
        assert scalar(graph, "y") is None


class TestSee:
    CHAIN = """
    g (float[1, 4] x) => (float[4] y) <int64[2] s = {0, -1}, int64[1] t = {0}> {
        h = Relu (x)
        a = Identity (h)
        b = Cast <to = 1> (a)
        c = Reshape (b, s)
        d = Transpose (c)
        e = Unsqueeze (d, t)
        f = Squeeze (e, t)
        i = Flatten (f)
        j = Dropout (i)
        y = Identity (j)
    }
    """

    def test_looks_through_every_layout_op(self, parse: Parse) -> None:
        graph = parse(self.CHAIN)
        assert {node.op for node in graph.model.nodes[1:]} == SEE_THROUGH
        assert {see(graph, name) for name in "habcdefijy"} == {"h"}

    def test_ends_at_an_input_and_at_a_constant(self, parse: Parse) -> None:
        graph = parse(
            "g (float[2] x) => (float[2] y) <float[2] w> { z = Identity (w) y = Identity (x) }"
        )
        assert see(graph, "y") == "x"
        assert see(graph, "z") == "w"

    def test_follows_the_data_and_not_the_shape(self, parse: Parse) -> None:
        graph = parse(
            "g (float[2] x) => (float[2] y) { s = Shape (x) h = Relu (x) y = Reshape (h, s) }"
        )
        assert see(graph, "y") == "h"


# Mean and deviation over time, then something between entry and them.
POOLING = """
g (float[1, 4, T] x) => (float[1, 8] y)
<float eps = {{1e-7}}, float[4, 4, 1] w, int64[2] shape = {{1, 4}}{declared}>
{{
    top = Relu (x)
    {between}
    mean = ReduceMean <axes = [-1], keepdims = 1> (h)
    centred = Sub (h, mean)
    squares = Mul (centred, centred)
    var = ReduceMean <axes = [-1], keepdims = 0> (squares)
    shifted = Add (var, eps)
    std = Sqrt (shifted)
    flat = Reshape (mean, shape)
    y = Concat <axis = 1> (flat, std)
}}
"""


class TestRegionsAbove:
    def pooling(self, parse: Parse, between: str, declared: str = "") -> list[Region]:
        text = POOLING.format(between=between, declared=declared and f", {declared}")
        return list(regions_above(parse(text), "y"))

    def test_a_region_goes_from_its_one_entry_to_the_exit(self, parse: Parse) -> None:
        (region,) = self.pooling(parse, "h = Identity (top)")
        # All but the entry's own node; the Identity before the pooling is looked through.
        assert region == Region("top", "y", frozenset(range(1, 10)))

    def test_larger_regions_follow_smaller_ones(self, parse: Parse) -> None:
        regions = self.pooling(parse, "a = Tanh (top) h = Exp (a)")
        assert [region.entry for region in regions] == ["h", "a", "top"]
        for inner, outer in pairwise(regions):
            assert inner.nodes < outer.nodes

    @pytest.mark.parametrize(
        ("between", "declared"),
        [
            ("h = Conv (top, w)", ""),
            ("v = Identity (w) h = Conv (top, v)", ""),
            ("h = Mul (top, m)", "float[4, 1] m"),
            ("v = Cast <to = 10> (w) u = Cast <to = 1> (v) h = Conv (top, u)", ""),
            ("v = Abs (w) h = Conv (top, v)", ""),
            ("s = Shape (w) v = Reshape (w, s) h = Conv (top, v)", ""),
            ("h = MatMul (m, top)", "float16[4, 4] m"),
        ],
    )
    def test_a_layer_between_ends_them(self, parse: Parse, between: str, declared: str) -> None:
        """A two-layer head could hide in a pooling otherwise."""
        assert [r.entry for r in self.pooling(parse, between, declared)] == ["h"]

    def test_a_layer_beside_the_way_ends_them(self, parse: Parse) -> None:
        regions = self.pooling(parse, "a = Conv (top, w) h = Add (a, top)")
        assert [region.entry for region in regions] == ["h"]

    def test_a_quantised_layer_ends_them(self, parse: Parse) -> None:
        regions = self.pooling(
            parse, "v = DequantizeLinear (q, eps) h = Conv (top, v)", "int8[4, 4, 1] q"
        )
        assert [region.entry for region in regions] == ["h"]

    def test_a_layer_in_a_subgraph_ends_them(self, parse: Parse) -> None:
        branch = "{name} () => (float[1, 4, T] {name}o) <float[1] k = {{2}}, float[2] l = {{1, 2}}>"
        then = branch.format(name="a") + "{ ao = Mul (top, w) }"
        other = branch.format(name="b") + "{ bo = Identity (top) }"
        regions = self.pooling(
            parse,
            f"h = If (yes) < then_branch = {then}, else_branch = {other} >",
            "bool yes = {1}",
        )
        assert [region.entry for region in regions] == ["h"]

    def test_scalars_and_shapes_are_no_weights(self, parse: Parse) -> None:
        regions = self.pooling(
            parse,
            "a = Mul (top, k) s = Shape (a) h = Reshape (a, s)",
            "float[1, 1] k = {2.0}, int64[3] unused = {1, 2, 3}",
        )
        assert [region.entry for region in regions] == ["a", "top"]

    def test_two_tensors_of_one_node_are_no_single_entry(self, parse: Parse) -> None:
        graph = parse(
            """
            g (float[1, 4] x) => (float[1, 2] y) {
                a, b = Split <axis = 1, num_outputs = 2> (x)
                y = Add (a, b)
            }
            """,
            opset=18,
        )
        assert list(regions_above(graph, "y")) == []

    def test_an_exit_that_no_data_reaches_has_none(self, parse: Parse) -> None:
        graph = parse("g (float[2] x) => (float[2] y) <float[2] w> { y = Relu (x) z = Relu (w) }")
        assert list(regions_above(graph, "z")) == []
        assert list(regions_above(graph, "x")) == []
        assert list(regions_above(graph, "y")) == []

    def test_a_shape_computed_from_the_input_opens_no_second_way_in(self, parse: Parse) -> None:
        (region,) = self.pooling(parse, "s = Shape (x) h = Expand (top, s)")[-1:]
        assert region.entry == "top"


class TestCycles:
    """No runtime can order such a graph; nothing here may hang on it or recurse without end."""

    @staticmethod
    def ring(parse: Parse, size: int, op: str = "Identity") -> Graph:
        chain = " ".join(f"c{(i + 1) % size} = {op} (c{i})" for i in range(size))
        return parse(f"g (float[2] x) => (float[2] y) {{ {chain} y = Add (x, c0) }}")

    @pytest.mark.parametrize("size", [1, 2, 64, 65, 200])
    @pytest.mark.parametrize("ask", [see, constant, scalar], ids=lambda f: f.__name__)
    def test_of_layout_ops_ends(
        self, parse: Parse, deadline: Deadline, size: int, ask: Callable[[Graph, str], object]
    ) -> None:
        graph = self.ring(parse, size)
        with deadline(5):
            found = ask(graph, "c0")
        assert found in (None, *(f"c{i}" for i in range(size)))

    def test_of_shapes_ends(self, parse: Parse, deadline: Deadline) -> None:
        graph = parse(
            """
            g (float[2] x) => (float[2] y) <int64[1] s = {1}> {
                a = Reshape (s, b)
                b = Reshape (s, a)
                y = Reshape (x, a)
            }
            """
        )
        with deadline(5):
            assert constant(graph, "a") is None

    @pytest.mark.parametrize("op", ["Identity", "Relu"])
    def test_order_dominators_and_regions_end(
        self, parse: Parse, deadline: Deadline, op: str
    ) -> None:
        graph = self.ring(parse, 70, op)
        with deadline(5):
            assert sorted(canonical_order(graph)) == list(range(71))
            assert graph.dominators == {70: ENTRY}
            assert list(regions_above(graph, "y")) == []

    def test_that_data_enters_ends(self, parse: Parse, deadline: Deadline) -> None:
        graph = parse(
            """
            g (float[2] x) => (float[2] y) {
                h = Tanh (x)
                a = Add (h, b)
                b = Relu (a)
                y = Exp (b)
            }
            """
        )
        with deadline(5):
            assert dict(graph.dominators) == {0: ENTRY, 1: 0, 2: 1, 3: 2}
            assert [r.entry for r in regions_above(graph, "y")] == ["b", "a", "h"]


def test_a_tensor_that_is_not_there_has_no_answer() -> None:
    graph = build(model([Node(0, "Relu", "", ("x",), ("y",), {})], ["y"]))
    assert see(graph, "gone") == "gone"
    assert constant(graph, "gone") is None
    assert scalar(graph, "gone") is None
    assert list(regions_above(graph, "gone")) == []
