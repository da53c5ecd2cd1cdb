"""Every matcher without weights: the spellings it reads, and what it says about the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from graphtools.families import FAMILIES
from graphtools.graph import Graph
from graphtools.islands import Mismatch
from graphtools.match import Match
from graphtools.matchers import MATCHERS
from graphtools.ops import LAYOUT, Ops
from graphtools.trace import Traced, trace

Parse = Callable[..., Graph]
Forward = Callable[[Ops[Traced], Traced], Traced]
Read = Callable[..., list[Match] | Mismatch]
Hit = Callable[..., Match]
Miss = Callable[..., Mismatch]


@pytest.mark.parametrize("name", [n for n, family in FAMILIES.items() if family.guess])
def test_every_step_of_a_family_that_is_recovered_has_a_matcher(
    export: Callable[[str], Graph], name: str
) -> None:
    family = FAMILIES[name]
    assert family.guess is not None
    for config in family.guess(export("resnet34_tiny")):
        kinds = {step.kind for step in family.template(config).steps}
        assert kinds - LAYOUT - {"input"} <= set(MATCHERS)


# --- activations ----------------------------------------------------------------------------


def clip_text(spelling: str) -> str:
    """A Clip whose bounds are attributes (opset 6) or inputs (since 11)."""
    return f"""
    g (float[2] x) => (float[2] y)
    <float zero = {{0}}, float one = {{1}}, float twenty = {{20}}, float[1] single = {{20}},
     float big = {{3.4028234663852886e38}}, float[2] pair = {{20, 20}}>
    {{ any = Abs (twenty) y = {spelling} }}
    """


class TestRelu:
    relu: Forward = staticmethod(lambda o, x: o.relu(x))

    @pytest.mark.parametrize(
        ("spelling", "opset"),
        [
            ("Relu (x)", 17),
            ("Clip (x, zero)", 17),
            ("Clip (x, zero, )", 17),
            ("Clip (x, zero, big)", 17),
            ("Clip <min = 0.0> (x)", 6),
            ("Clip <min = 0.0, max = 3.4028234663852886e38> (x)", 6),
        ],
    )
    def test_is_a_clamp_from_zero_without_end(
        self, parse: Parse, hit: Hit, spelling: str, opset: int
    ) -> None:
        match = hit(parse(clip_text(spelling), opset=opset), self.relu)
        assert (match.operands, match.nodes, match.constants) == (("x",), (1,), ())

    @pytest.mark.parametrize(
        ("spelling", "opset", "found"),
        [
            ("Clip (x, zero, twenty)", 17, "Clip to [0.0, 20.0]"),
            ("Clip (x, one)", 17, "Clip to [1.0, inf]"),
            ("Clip (x)", 17, "Clip to [-inf, inf]"),
            ("Clip (x, any)", 17, "Clip to [None, inf]"),
            ("Clip (x, zero, any)", 17, "Clip to [0.0, None]"),
            ("Clip <max = 20.0> (x)", 6, "Clip to [-inf, 20.0]"),
            ("LeakyRelu (x)", 17, "LeakyRelu"),
        ],
    )
    def test_anything_else_is_told(
        self, parse: Parse, miss: Miss, spelling: str, opset: int, found: str
    ) -> None:
        reason = miss(parse(clip_text(spelling), opset=opset), self.relu)
        op = spelling.split(" ")[0]
        assert reason == Mismatch(f'node 1 ({op}) -> "y"', "Relu", found)


class TestClip:
    clip: Forward = staticmethod(lambda o, x: o.clip(x, "bound"))

    @pytest.mark.parametrize(
        ("spelling", "opset"),
        [
            ("Clip (x, zero, twenty)", 17),
            ("Clip (x, zero, single)", 17),
            ("Clip <min = 0.0, max = 20.0> (x)", 6),
        ],
    )
    def test_binds_its_upper_bound(self, parse: Parse, hit: Hit, spelling: str, opset: int) -> None:
        match = hit(parse(clip_text(spelling), opset=opset), self.clip)
        (bound_,) = match.constants
        assert (match.operands, bound_.name, bound_.value) == (("x",), "bound", 20.0)
        assert bound_.origin == 'node 1 (Clip) -> "y", upper bound'

    @pytest.mark.parametrize(
        ("spelling", "opset", "found"),
        [
            ("Clip (x, one, twenty)", 17, "Clip to [1.0, 20.0]"),
            ("Clip (x, , twenty)", 17, "Clip to [-inf, 20.0]"),
            ("Clip (x, zero)", 17, "Clip to [0.0, inf]"),
            ("Clip (x, zero, big)", 17, f"Clip to [0.0, {float(np.finfo(np.float32).max)}]"),
            ("Clip (x, zero, any)", 17, "Clip to [0.0, None]"),
            ("Clip (x, zero, pair)", 17, "Clip to [0.0, None]"),
            ("Clip <max = 20.0> (x)", 6, "Clip to [-inf, 20.0]"),
            ("Clip <min = -1.0, max = 20.0> (x)", 6, "Clip to [-1.0, 20.0]"),
            ("Relu (x)", 17, "Relu"),
        ],
    )
    def test_anything_else_is_told(
        self, parse: Parse, miss: Miss, spelling: str, opset: int, found: str
    ) -> None:
        reason = miss(parse(clip_text(spelling), opset=opset), self.clip)
        op = spelling.split(" ")[0]
        assert reason == Mismatch(f'node 1 ({op}) -> "y"', "Clip to [0, a constant]", found)


class TestSilu:
    silu: Forward = staticmethod(lambda o, x: o.silu(x))

    def graph(self, parse: Parse, lines: str) -> Graph:
        return parse(f"g (float[2] x) => (float[2] y) {{ {lines} }}")

    @pytest.mark.parametrize(
        ("lines", "nodes"),
        [
            ("s = Sigmoid (x) y = Mul (x, s)", (1, 0)),
            ("s = Sigmoid (x) y = Mul (s, x)", (1, 0)),
            ("i = Identity (x) s = Sigmoid (i) y = Mul (s, x)", (2, 1)),
            ("y = com.microsoft.QuickGelu <alpha = 1.0> (x)", (0,)),
            ("y = Swish (x)", (0,)),
            ("y = Swish <alpha = 1.0> (x)", (0,)),
        ],
    )
    def test_is_x_times_its_sigmoid(
        self, parse: Parse, hit: Hit, lines: str, nodes: tuple[int, ...]
    ) -> None:
        match = hit(self.graph(parse, lines), self.silu)
        assert (match.operands, match.nodes) == (("x",), nodes)

    @pytest.mark.parametrize(
        ("lines", "found"),
        [
            ("t = Tanh (x) s = Sigmoid (t) y = Mul (x, s)", "Mul"),
            ("s = Tanh (x) y = Mul (x, s)", "Mul"),
            ("y = Mul (x, x)", "Mul"),
            ("s = Sigmoid (x) y = Mul (s, s)", "Mul"),
            ("y = com.microsoft.QuickGelu (x)", "com.microsoft.QuickGelu"),  # alpha is 1.702
            ("y = Swish <alpha = 2.0> (x)", "Swish"),
            ("y = Sigmoid (x)", "Sigmoid"),
        ],
    )
    def test_anything_else_is_told(self, parse: Parse, miss: Miss, lines: str, found: str) -> None:
        reason = miss(self.graph(parse, lines), self.silu)
        assert (reason.expected, reason.found) == ("SiLU (x * Sigmoid(x))", found)

    def test_a_constant_is_no_activation(self, parse: Parse, miss: Miss) -> None:
        assert miss(self.graph(parse, "y = Relu (x)"), self.silu, "x").found == 'the input "x"'


@pytest.mark.parametrize(("kind", "op"), [("tanh", "Tanh"), ("sigmoid", "Sigmoid")])
def test_plain_activations(parse: Parse, hit: Hit, miss: Miss, kind: str, op: str) -> None:
    forward: Forward = lambda o, x: getattr(o, kind)(x)  # noqa: E731
    right = parse(f"g (float[2] x) => (float[2] y) {{ y = {op} (x) }}")
    wrong = parse("g (float[2] x) => (float[2] y) { y = Erf (x) }")
    assert hit(right, forward).operands == ("x",)
    assert miss(wrong, forward) == Mismatch('node 0 (Erf) -> "y"', op, "Erf")


# --- elementwise ----------------------------------------------------------------------------


def test_a_product_with_itself_is_read_in_one_way_and_counts_twice(
    parse: Parse, read: Read
) -> None:
    graph = parse("g (float[2] x) => (float[2] y) { y = Mul (x, x) }")
    (match,) = read(graph, lambda o, x: o.mul(x, x))
    assert match.operands == ("x", "x")
    assert [slot for _, slot in graph.consumers["x"]] == [0, 1]
    assert list(graph.net.edges()) == []


@pytest.mark.parametrize(("kind", "op"), [("add", "Add"), ("mul", "Mul")])
def test_commutative_ops_are_read_both_ways(
    parse: Parse, miss: Miss, read: Read, kind: str, op: str
) -> None:
    text = f"g (float[2] x, float[2] z) => (float[2] y) {{ y = {op} (x, z) }}"
    forward: Forward = lambda o, x: getattr(o, kind)(x, x)  # noqa: E731
    found = read(parse(text), forward)
    assert not isinstance(found, Mismatch)
    assert [match.operands for match in found] == [("x", "z"), ("z", "x")]
    wrong = parse("g (float[2] x, float[2] z) => (float[2] y) { y = Sub (x, z) }")
    assert miss(wrong, forward) == Mismatch('node 0 (Sub) -> "y"', op, "Sub")


class TestScalars:
    def graph(self, parse: Parse, line: str) -> Graph:
        return parse(
            f"""
            g (float[2] x) => (float[2] y)
            <float one = {{1}}, float[1] two = {{2}}, float[2] twos = {{2, 2}}> {{ y = {line} }}
            """
        )

    @pytest.mark.parametrize("line", ["Add (x, two)", "Add (two, x)"])
    def test_an_added_one_stands_on_either_side(self, parse: Parse, hit: Hit, line: str) -> None:
        graph = self.graph(parse, line)
        assert hit(graph, lambda o, x: o.add_scalar(x, 2.0)).operands == ("x",)

    @pytest.mark.parametrize(
        ("line", "found"),
        [("Add (x, one)", "Add"), ("Add (x, twos)", "Add"), ("Sub (x, two)", "Sub")],
    )
    def test_another_addition_is_told(
        self, parse: Parse, miss: Miss, line: str, found: str
    ) -> None:
        reason = miss(self.graph(parse, line), lambda o, x: o.add_scalar(x, 2.0))
        assert reason == Mismatch(f'node 0 ({found}) -> "y"', "Add of 2", found)

    def test_one_to_subtract_from_stands_on_the_left(self, parse: Parse, hit: Hit) -> None:
        graph = self.graph(parse, "Sub (two, x)")
        assert hit(graph, lambda o, x: o.subtract_from(2.0, x)).operands == ("x",)

    @pytest.mark.parametrize("line", ["Sub (x, two)", "Sub (one, x)", "Sub (twos, x)"])
    def test_another_subtraction_is_told(self, parse: Parse, miss: Miss, line: str) -> None:
        reason = miss(self.graph(parse, line), lambda o, x: o.subtract_from(2.0, x))
        assert reason == Mismatch('node 0 (Sub) -> "y"', "Sub from 2", "Sub")


# --- concat and split -----------------------------------------------------------------------


class TestConcat:
    def graph(self, parse: Parse, lines: str) -> Graph:
        return parse(
            f"""
            g (float[1, 2, T] x) => (float[1, C, T] y)
            {{ a = Relu (x) b = Tanh (x) c = Exp (x) {lines} }}
            """
        )

    @staticmethod
    def of(parts: int) -> Forward:
        return lambda o, x: o.concat([x] * parts)

    @pytest.mark.parametrize("axis", [1, -2])
    def test_joins_channels(self, parse: Parse, hit: Hit, axis: int) -> None:
        graph = self.graph(parse, f"y = Concat <axis = {axis}> (a, b)")
        match = hit(graph, self.of(2))
        assert (match.operands, match.nodes) == (("a", "b"), (3,))

    @pytest.mark.parametrize(("axis", "fits"), [(1, True), (-3, True), (-2, False), (3, False)])
    def test_the_channel_axis_of_a_map_is_counted_from_either_end(
        self, parse: Parse, read: Read, axis: int, fits: bool
    ) -> None:
        graph = self.graph(parse, f"y = Concat <axis = {axis}> (a, b)")
        forward: Forward = lambda o, x: o.concat([o.channel(x)] * 2)  # noqa: E731
        assert isinstance(read(graph, forward), Mismatch) != fits

    @pytest.mark.parametrize(
        "lines",
        [
            "y = Concat <axis = 1> (a, b, c)",
            "h = Concat <axis = 1> (a, b) y = Concat <axis = 1> (h, c)",
        ],
    )
    def test_parts_may_be_nested_in_the_first(self, parse: Parse, hit: Hit, lines: str) -> None:
        assert hit(self.graph(parse, lines), self.of(3)).operands == ("a", "b", "c")

    def test_the_nearest_concat_of_enough_parts_is_taken(self, parse: Parse, hit: Hit) -> None:
        graph = self.graph(parse, "h = Concat <axis = 1> (a, b) y = Concat <axis = 1> (h, c)")
        assert hit(graph, self.of(2)).operands == ("h", "c")

    @pytest.mark.parametrize(
        ("lines", "parts", "found"),
        [
            ("y = Concat <axis = 2> (a, b)", 2, "Concat on axis 2"),
            ("y = Concat <axis = 0> (a, b)", 2, "Concat on axis 0"),
            ("y = Concat <axis = 1> (a, b, c)", 2, "Concat of 3"),
            ("y = Concat <axis = 1> (a, b)", 3, "Concat of 2"),
            ("h = Concat <axis = 2> (a, b) y = Concat <axis = 1> (h, c)", 3, "Concat on axis 2"),
            ("h = Concat <axis = 1> (a, b) y = Concat <axis = 1> (c, h)", 3, "Concat of 2"),
            ("h = Concat <axis = 1> (a, b, c) y = Concat <axis = 1> (h, c)", 3, "Concat of 4"),
            ("y = Add (a, b)", 2, "Add"),
        ],
    )
    def test_anything_else_is_told(
        self, parse: Parse, miss: Miss, lines: str, parts: int, found: str
    ) -> None:
        reason = miss(self.graph(parse, lines), self.of(parts))
        assert (reason.expected, reason.found) == (f"Concat of {parts} on the channel axis", found)


class TestSplit:
    def read(self, graph: Graph, tensor: str, parts: int, part: int) -> list[Match] | Mismatch:
        steps = trace(lambda o, x: o.concat(o.split(x, parts))).steps
        step = next(s for s in steps if s.kind == "split" and s.part == part)
        return MATCHERS["split"](graph, step, tensor)

    def graph(self, parse: Parse, lines: str, opset: int = 13) -> Graph:
        return parse(
            f"""
            g (float[1, 6, T] x) => (float[1, D, U] y)
            <int64[2] halves = {{3, 3}}, int64[2] uneven = {{2, 4}}, int64[3] thirds = {{2, 2, 2}},
             int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[1] three = {{3}},
             int64[1] four = {{4}}, int64[1] six = {{6}}, int64[1] end = {{9223372036854775807}},
             int64[1] axis = {{1}}, int64[1] last = {{-2}}, int64[1] time = {{2}},
             int64[1] step = {{1}}, int64[1] skip = {{2}}>
            {{ {lines} y = Neg (x) }}
            """,
            opset=opset,
        )

    @pytest.mark.parametrize(
        ("line", "opset"),
        [
            ("a, b = Split <axis = 1> (x, halves)", 13),
            ("a, b = Split <axis = -2> (x, halves)", 13),
            ("a, b = Split <axis = 1> (x)", 13),
            ("a, b = Split <axis = 1, split = [3, 3]> (x)", 11),
            ("a, b = Split <axis = 1, num_outputs = 2> (x)", 18),
        ],
    )
    def test_every_spelling_of_an_even_split(self, parse: Parse, line: str, opset: int) -> None:
        graph = self.graph(parse, line, opset)
        for part, tensor in enumerate("ab"):
            found = self.read(graph, tensor, 2, part)
            assert not isinstance(found, Mismatch), found
            assert [(m.operands, m.nodes) for m in found] == [(("x",), (0,))]

    def test_three_parts(self, parse: Parse) -> None:
        graph = self.graph(parse, "a, b, c = Split <axis = 1> (x, thirds)")
        for part, tensor in enumerate("abc"):
            assert not isinstance(self.read(graph, tensor, 3, part), Mismatch)

    @pytest.mark.parametrize(
        ("line", "part", "found"),
        [
            ("a, b = Split <axis = 1> (x, halves)", 1, "output 0 of Split [3, 3] on axis 1"),
            ("a, b = Split <axis = 1> (x, uneven)", 0, "output 0 of Split [2, 4] on axis 1"),
            ("a, b = Split <axis = 2> (x, halves)", 0, "output 0 of Split [3, 3] on axis 2"),
            ("a, b = Split (x, halves)", 0, "output 0 of Split [3, 3] on axis 0"),
            ("a, b, c = Split <axis = 1> (x, thirds)", 0, "output 0 of Split [2, 2, 2] on axis 1"),
            ("a = Relu (x)", 0, "Relu"),
        ],
    )
    def test_another_split_is_told(self, parse: Parse, line: str, part: int, found: str) -> None:
        reason = self.read(self.graph(parse, line), "a", 2, part)
        assert isinstance(reason, Mismatch)
        assert reason.found == found
        assert reason.expected == f"part {part} of an even split into 2 on the channel axis"
        assert reason.where.endswith('-> "a"')

    @pytest.mark.parametrize(
        ("line", "parts", "part", "opset"),
        [
            ("a = Slice (x, zero, three, axis)", 2, 0, 13),
            ("a = Slice (x, zero, three, axis, step)", 2, 0, 13),
            ("a = Slice (x, zero, three, last)", 2, 0, 13),
            ("a = Slice (x, three, six, axis, step)", 2, 1, 13),
            ("a = Slice (x, three, end, axis, step)", 2, 1, 13),
            ("a = Slice (x, two, four, axis, step)", 3, 1, 13),
            ("a = Slice (x, four, end, axis, step)", 3, 2, 13),
            ("a = Slice <starts = [3], ends = [6], axes = [1]> (x)", 2, 1, 9),
            ("a = Slice <starts = [0], ends = [3], axes = [-2]> (x)", 2, 0, 9),
        ],
    )
    def test_a_slice_takes_one_part(
        self, parse: Parse, line: str, parts: int, part: int, opset: int
    ) -> None:
        found = self.read(self.graph(parse, line, opset), "a", parts, part)
        assert not isinstance(found, Mismatch), found
        assert [match.operands for match in found] == [("x",)]

    @pytest.mark.parametrize(
        ("line", "parts", "part", "found"),
        [
            ("a = Slice (x, three, six, time)", 2, 1, "Slice (3,) to (6,) on axes (2,)"),
            ("a = Slice (x, zero, six, axis, skip)", 2, 0, "Slice (0,) to (6,) on axes (1,)"),
            ("a = Slice (x, zero, three, axis)", 2, 1, "Slice (0,) to (3,) on axes (1,)"),
            ("a = Slice (x, three, six, axis)", 2, 0, "Slice (3,) to (6,) on axes (1,)"),
            ("a = Slice (x, two, six, axis)", 3, 1, "Slice (2,) to (6,) on axes (1,)"),
            ("a = Slice (x, three, six, axis)", 3, 2, "Slice (3,) to (6,) on axes (1,)"),
            ("a = Slice (x, three, two, axis)", 2, 1, "Slice (3,) to (2,) on axes (1,)"),
            (
                "a = Slice (x, halves, halves, uneven)",
                2,
                0,
                "Slice (3, 3) to (3, 3) on axes (2, 4)",
            ),
            ("a = Slice (x, zero, three)", 2, 0, "Slice (0,) to (3,) on axes ()"),
            ("n = Shape (x) a = Slice (x, zero, n, axis)", 2, 0, "Slice (0,) to () on axes (1,)"),
        ],
    )
    def test_another_slice_is_told(
        self, parse: Parse, line: str, parts: int, part: int, found: str
    ) -> None:
        reason = self.read(self.graph(parse, line), "a", parts, part)
        assert isinstance(reason, Mismatch)
        assert reason.found == found


# --- islands --------------------------------------------------------------------------------

POOLING = """
g (float[1, 2, T] x) => (float[1, 4] y) <float eps = {{1e-7}}, float[2, 2, 1] w{declared}>
{{
    top = Relu (x)
    {between}
    mean = ReduceMean <axes = [-1], keepdims = 1> (h)
    centred = Sub (h, mean)
    squares = Mul (centred, centred)
    var = ReduceMean <axes = [-1], keepdims = 0> (squares)
    shifted = Add (var, eps)
    std = Sqrt (shifted)
    flat = Squeeze <axes = [2]> (mean)
    y = Concat <axis = 1> (flat, std)
}}
"""


class TestIsland:
    pool: Forward = staticmethod(lambda o, x: o.island(o.relu(x), "stats"))

    def test_binds_a_region_with_its_constants(self, parse: Parse, hit: Hit) -> None:
        graph = parse(POOLING.format(between="h = Identity (top)", declared=""), opset=11)
        match = hit(graph, self.pool)
        assert match.operands == ("top",)
        assert match.region is not None
        assert (match.region.entry, match.region.exit) == ("top", "y")
        (eps,) = match.constants
        assert (eps.name, eps.value) == ("stats.eps", float(np.float32(1e-7)))
        assert "Add" in eps.origin

    def test_offers_every_weight_free_extent(self, parse: Parse, read: Read) -> None:
        graph = parse(POOLING.format(between="h = Tanh (top)", declared=""), opset=11)
        found = read(graph, self.pool)
        assert not isinstance(found, Mismatch)
        assert [match.operands for match in found] == [("h",), ("top",)]

    def test_a_layer_within_is_outside_of_every_extent(self, parse: Parse, hit: Hit) -> None:
        graph = parse(POOLING.format(between="h = Conv (top, w)", declared=""), opset=11)
        assert hit(graph, self.pool).operands == ("h",)

    def test_a_node_with_weights_is_told(self, parse: Parse, miss: Miss) -> None:
        graph = parse(
            "g (float[1, 2] x) => (float[1, 2] y) <float[2] w> { top = Relu (x) y = Mul (top, w) }"
        )
        reason = miss(graph, self.pool)
        assert reason.expected == "a weight-free region: mean and std over time of every channel"
        assert reason.found == 'node 1 (Mul) -> "y" with weights'

    def test_a_region_without_its_constant_is_told(self, parse: Parse, miss: Miss) -> None:
        graph = parse("g (float[1, 2] x) => (float[1, 2] y) { top = Relu (x) y = Tanh (top) }")
        reason = miss(graph, self.pool)
        assert reason.where == 'the region from "top" to "y"'
        assert reason.expected == "one square root, of a variance plus a constant"
        assert reason.found == "0 square roots, constants []"
