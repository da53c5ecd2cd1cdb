"""A template is found in a graph whole, with its weights, or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphtools.graph import Graph, build
from graphtools.islands import Mismatch
from graphtools.ops import Ops, X
from graphtools.trace import Traced, trace
from graphtools.unify import Binding, Miss, unify

Parse = Callable[..., Graph]
Deadline = Callable[[int], AbstractContextManager[None]]
Forward = Callable[[Ops[Traced], Traced], Traced]


def find(graph: Graph, forward: Forward, output: str = "y") -> Binding | Miss:
    return unify(trace(forward), graph, output)


def hit(graph: Graph, forward: Forward, output: str = "y") -> Binding:
    found = find(graph, forward, output)
    assert isinstance(found, Binding), found
    return found


def miss(graph: Graph, forward: Forward, output: str = "y") -> Miss:
    found = find(graph, forward, output)
    assert isinstance(found, Miss), found
    return found


# A block with a shortcut, then statistics over time and a projection.
NETWORK = """
network (float[1, 4, T] x) => (float[1, 6] y)
<float[4, 4, 3] w1, float[4] b1, float[4, 4, 3] w2, float[4, 4, 1] w3,
 float[6, 8] w4, float[6] b4, float eps = {1e-7}, float[6] offset>
{
    stem = Conv <pads = [1, 1]> (x, w1, b1)
    act = Relu (stem)
    long = Conv <pads = [1, 1]> (act, w2)
    short = Conv (act, w3)
    sum = Add (short, long)
    top = Relu (sum)
    mean = ReduceMean <axes = [-1], keepdims = 1> (top)
    centred = Sub (top, mean)
    squares = Mul (centred, centred)
    var = ReduceMean <axes = [-1], keepdims = 0> (squares)
    shifted = Add (var, eps)
    std = Sqrt (shifted)
    flat = Flatten (mean)
    pooled = Concat <axis = 1> (flat, std)
    seg = Gemm <transB = 1> (pooled, w4, b4)
    y = Sub (seg, offset)
}
"""


def network(o: Ops[X], x: X) -> X:
    x = o.stage(o.relu(o.conv(x, "stem", kernel=(3,))), "stem")
    h = o.conv(x, "block.long", kernel=(3,))
    x = o.stage(o.relu(o.add(h, o.conv(x, "block.short", kernel=(1,)))), "block")
    x = o.stage(o.island(x, "stats"), "pooled")
    return o.stage(o.subtract(o.linear(x, "seg"), "offset"), "out")


class TestBinding:
    @pytest.fixture
    def binding(self, parse: Parse) -> Binding:
        return hit(parse(NETWORK), network)

    def test_slots_stand_in_pull_order_with_their_weights(self, binding: Binding) -> None:
        assert {
            slot: {role: tensor.name for role, tensor in layer.tensors.items()}
            for slot, layer in binding.layers.items()
        } == {
            "stem": {"weight": "w1", "bias": "b1"},
            "block.long": {"weight": "w2"},
            "block.short": {"weight": "w3"},
            "seg": {"weight": "w4", "bias": "b4"},
            "offset": {"offset": "offset"},
        }
        assert list(binding.layers) == ["stem", "block.long", "block.short", "seg", "offset"]
        assert [layer.node for layer in binding.layers.values()] == [0, 2, 3, 14, 15]

    def test_stages_are_the_tensors_that_the_next_stage_reads(self, binding: Binding) -> None:
        assert list(binding.stages.items()) == [
            ("stem", "act"),
            ("block", "top"),
            ("pooled", "pooled"),
            ("out", "y"),
        ]

    def test_constants_have_a_value_and_an_origin(self, binding: Binding) -> None:
        (eps,) = binding.constants.values()
        assert binding.constants == {"stats.eps": eps}
        assert eps.value == float(np.float32(1e-7))
        assert eps.origin == 'node 10 (Add) -> "shifted", constant "eps"'

    def test_islands_are_regions(self, binding: Binding) -> None:
        ((kind, region),) = binding.regions
        assert (kind, region.entry, region.exit) == ("stats", "top", "pooled")
        assert region.nodes == set(range(6, 14))

    def test_both_ends_and_the_nodes_of_every_step(self, binding: Binding) -> None:
        assert (binding.input, binding.output) == ("x", "y")
        steps = binding.template.steps
        assert sorted(binding.nodes) == list(range(len(steps)))
        found = {steps[at].label(): nodes for at, nodes in binding.nodes.items() if nodes}
        assert found["stem (conv)"] == (0,)
        assert found["add (add)"] == (4,)
        assert found["stats (island)"] == tuple(range(6, 14))
        # Every node stands for exactly one step.
        assert sorted(n for nodes in binding.nodes.values() for n in nodes) == list(range(16))

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
    @given(st.integers(0, 2**32))
    def test_does_not_depend_on_the_order_of_nodes(self, parse: Parse, seed: int) -> None:
        model = parse(NETWORK).model
        nodes = list(model.nodes)
        random.Random(seed).shuffle(nodes)
        moved = build(replace(model, nodes=tuple(replace(n, index=i) for i, n in enumerate(nodes))))
        first, second = hit(build(model), network), hit(moved, network)
        assert second.stages == first.stages
        assert [
            (slot, layer.tensors, moved.model.nodes[layer.node].outputs)
            for slot, layer in second.layers.items()
        ] == [
            (slot, layer.tensors, model.nodes[layer.node].outputs)
            for slot, layer in first.layers.items()
        ]


class TestMiss:
    def test_names_the_first_difference_and_counts_the_agreement(self, parse: Parse) -> None:
        found = miss(parse(NETWORK.replace("act = Relu", "act = Tanh")), network)
        assert found.step.kind == "relu"
        assert found.reason == Mismatch('node 1 (Tanh) -> "act"', "Relu", "Tanh")
        # From the output: all but the input, the stem and its activation. Forward: the stem.
        assert found.total == len(trace(network).steps) == 14
        assert (found.from_output, found.from_input) == (11, 2)
        assert found.agreed == 13

    @pytest.mark.parametrize(
        ("old", "new", "label", "expected", "found"),
        [
            ("Sub (seg", "Add (seg", "offset (subtract)", "Sub of a constant vector", "Add"),
            ("Sqrt (shifted)", "Exp (shifted)", "stats (island)",
             "one square root, of a variance plus a constant", "0 square roots, constants []"),
            ("sum = Add", "sum = Mul", "add (add)", "Add", "Mul"),
            ("Conv <pads = [1, 1]> (x", "Conv (x", "stem (conv)",
             "conv 3, stride 1, pad 1", "conv 3, stride 1, pad 0"),
        ],
    )  # fmt: skip
    def test_every_damage_is_told_apart(
        self, parse: Parse, old: str, new: str, label: str, expected: str, found: str
    ) -> None:
        assert old in NETWORK
        result = miss(parse(NETWORK.replace(old, new)), network)
        assert result.step.label() == label
        assert (result.reason.expected, result.reason.found) == (expected, found)

    def test_of_two_equally_deep_tries_the_one_that_agrees_more_is_told(self, parse: Parse) -> None:
        """The shortcut is damaged; that the other operand is no shortcut either is no news."""
        result = miss(
            parse(NETWORK.replace("Conv (act, w3)", "Conv <group = 2> (act, w3)")), network
        )
        assert result.reason.where == 'node 3 (Conv) -> "short"'

    def test_an_input_that_is_none_of_the_graph(self, parse: Parse) -> None:
        text = "g (float[2] x) => (float[2] y) { h = Tanh (x) y = Relu (h) }"
        found = miss(parse(text), lambda o, x: o.relu(x))
        assert found.reason == Mismatch('node 0 (Tanh) -> "h"', "the graph's input", "an operation")
        assert (found.from_output, found.from_input, found.total) == (1, 1, 2)

    def test_going_forward_a_wrong_choice_is_undone(self, parse: Parse) -> None:
        """Both convolutions on x fit the first step; only one has the rest after it."""
        text = """
        g (float[1, 2, T] x) => (float[1, 2, T] y) <float[2, 2, 1] u, float[2, 2, 1] v> {
            s = Conv (x, v) h = Conv (x, u) a = Tanh (h) b = Sigmoid (a)
            c = Add (b, s) y = Exp (c)
        }
        """

        def forward(o: Ops[X], x: X) -> X:
            h = o.sigmoid(o.tanh(o.conv(x, "long", kernel=(1,))))
            return o.add(h, o.conv(x, "short", kernel=(1,)))

        found = miss(parse(text), forward)
        assert (found.from_output, found.from_input, found.total) == (0, 6, 6)
        assert (found.result, found.output) == ("c", "y")

    def test_has_no_result_where_the_two_part_before_the_end(self, parse: Parse) -> None:
        text = "g (float[2] x) => (float[2] y) { h = Tanh (x) y = Relu (h) }"
        found = miss(parse(text), lambda o, x: o.sigmoid(o.tanh(x)))
        assert (found.from_input, found.result) == (2, None)

    def test_a_longer_template_than_graph(self, parse: Parse) -> None:
        text = "g (float[2] x) => (float[2] y) { y = Relu (x) }"
        found = miss(parse(text), lambda o, x: o.relu(o.tanh(o.sigmoid(x))))
        assert found.reason == Mismatch('the input "x"', "Tanh", 'the input "x"')

    def test_is_a_value_with_two_inputs_too(self, parse: Parse) -> None:
        text = "g (float[2] x, float[2] z) => (float[2] y) { y = Add (x, z) }"
        found = miss(parse(text), lambda o, x: o.relu(x))
        assert found.from_input == 0

    def test_a_layer_hidden_in_a_pooling_is_found(self, parse: Parse) -> None:
        hidden = NETWORK.replace(
            "<axes = [-1], keepdims = 1> (top)", "<axes = [-1], keepdims = 1> (more)"
        )
        hidden = hidden.replace("Sub (top, mean)", "Sub (more, mean)")
        hidden = hidden.replace("top = Relu (sum)", "top = Relu (sum)\n    more = Conv (top, w3)")
        found = miss(parse(hidden), network)
        assert found.step.kind == "relu"
        assert found.reason == Mismatch('node 6 (Conv) -> "more"', "Relu", "Conv")


class TestChoices:
    """What going backwards leaves open: the order of operands, and how far an island reaches."""

    @pytest.mark.parametrize("op", ["Add", "Mul"])
    @pytest.mark.parametrize("operands", ["a, b", "b, a"])
    def test_operands_of_a_commutative_op_may_be_exchanged(
        self, parse: Parse, op: str, operands: str
    ) -> None:
        text = f"""
        g (float[1, 2, T] x) => (float[1, 2, T] y) <float[2, 2, 1] u, float[2, 2, 1] v> {{
            h = Conv (x, u) a = Tanh (h)
            i = Conv (x, v) b = Sigmoid (i)
            y = {op} ({operands})
        }}
        """

        def forward(o: Ops[X], x: X) -> X:
            a = o.tanh(o.conv(x, "a", kernel=(1,)))
            b = o.sigmoid(o.conv(x, "b", kernel=(1,)))
            return o.add(a, b) if op == "Add" else o.mul(a, b)

        layers = hit(parse(text), forward).layers
        assert {slot: layer.tensors["weight"].name for slot, layer in layers.items()} == {
            "a": "u",
            "b": "v",
        }

    def test_a_wrong_choice_is_undone_however_late_it_fails(self, parse: Parse) -> None:
        # Both operands begin alike; only at the end of the branches does one differ.
        depth = 12
        lines = ["l0 = Tanh (x)", "r0 = Sigmoid (x)"]
        lines += [f"{s}{i + 1} = Relu ({s}{i})" for i in range(depth) for s in "lr"]
        graph = parse(
            f"""
            g (float[2] x) => (float[2] y) {{ {" ".join(lines)} y = Add (l{depth}, r{depth}) }}
            """
        )

        def forward(o: Ops[X], x: X) -> X:
            r, left = o.sigmoid(x), o.tanh(x)
            for _ in range(depth):
                r, left = o.relu(r), o.relu(left)
            return o.add(r, left)

        binding = hit(graph, forward)
        steps = binding.template.steps
        kinds = {steps[at].kind: graph.model.nodes[n[0]].op for at, n in binding.nodes.items() if n}
        assert (kinds["tanh"], kinds["sigmoid"]) == ("Tanh", "Sigmoid")

    def test_nested_choices_are_all_tried(self, parse: Parse) -> None:
        text = """
        g (float[2] x) => (float[2] y) {
            a = Tanh (x) b = Sigmoid (x) c = Relu (x)
            h = Add (c, b)
            y = Add (a, h)
        }
        """

        def forward(o: Ops[X], x: X) -> X:
            a, b, c = o.tanh(x), o.sigmoid(x), o.relu(x)
            return o.add(o.add(b, c), a)

        hit(parse(text), forward)

    def test_an_island_reaches_as_far_as_the_template_needs(self, parse: Parse) -> None:
        # Two more steps without weights before the pooling: they belong to it, or to the template.
        text = NETWORK.replace("top = Relu (sum)", "mid = Relu (sum)\n    top = Tanh (mid)")
        inner = hit(parse(text), _tailed, "pooled")
        assert inner.regions[0][1].entry == "top"
        outer = hit(parse(text), _headed, "pooled")
        assert outer.regions[0][1].entry == "mid"

    def test_a_tensor_read_twice_must_be_one_tensor(self, parse: Parse) -> None:
        text = """
        g (float[2] x) => (float[2] y) {
            a = Tanh (x) b = Tanh (x)
            c = Relu (a) d = Sigmoid (b)
            y = Add (c, d)
        }
        """

        def forward(o: Ops[X], x: X) -> X:
            h = o.tanh(x)
            return o.add(o.relu(h), o.sigmoid(h))

        found = miss(parse(text), forward)
        assert found.reason == Mismatch(
            'node 1 (Tanh) -> "b"',
            "one tensor that all readers of tanh (tanh) share",
            'node 1 (Tanh) -> "b" and node 0 (Tanh) -> "a"',
        )
        assert isinstance(find(parse(text.replace("Sigmoid (b)", "Sigmoid (a)")), forward), Binding)

    def test_readers_may_reach_it_through_different_layout_ops(self, parse: Parse) -> None:
        text = """
        g (float[2] x) => (float[2] y) {
            a = Tanh (x) i = Identity (a) t = Transpose (a)
            c = Relu (i) d = Sigmoid (t)
            y = Add (c, d)
        }
        """

        def forward(o: Ops[X], x: X) -> X:
            h = o.tanh(x)
            return o.add(o.relu(h), o.sigmoid(h))

        hit(parse(text), forward)


def _tailed(o: Ops[X], x: X) -> X:
    x = o.relu(o.conv(x, "stem", kernel=(3,)))
    h = o.add(o.conv(x, "long", kernel=(3,)), o.conv(x, "short", kernel=(1,)))
    return o.island(o.tanh(o.relu(h)), "stats")


def _headed(o: Ops[X], x: X) -> X:
    x = o.relu(o.conv(x, "stem", kernel=(3,)))
    h = o.add(o.conv(x, "long", kernel=(3,)), o.conv(x, "short", kernel=(1,)))
    return o.island(o.relu(h), "stats")


class TestMergedParameters:
    def test_byte_equal_biases_merged_through_identity_reach_both_convolutions(
        self, parse: Parse
    ) -> None:
        graph = parse(
            """
            g (float[1, 2, T] x) => (float[1, 2, T] y)
            <float[2, 2, 3] w1, float[2, 2, 3] w2, float[2] b1>
            {
                b2 = Identity (b1)
                h = Conv <pads = [1, 1]> (x, w1, b1)
                a = Relu (h)
                y = Conv <pads = [1, 1]> (a, w2, b2)
            }
            """
        )

        def forward(o: Ops[X], x: X) -> X:
            return o.conv(o.relu(o.conv(x, "first", kernel=(3,))), "second", kernel=(3,))

        layers = hit(graph, forward).layers
        names = {s: {r: t.name for r, t in layer.tensors.items()} for s, layer in layers.items()}
        assert names == {
            "first": {"weight": "w1", "bias": "b1"},
            "second": {"weight": "w2", "bias": "b2"},
        }
        np.testing.assert_array_equal(
            layers["first"].tensors["bias"].read(), layers["second"].tensors["bias"].read()
        )
        assert layers["second"].tensors["bias"].origin() == "b1"


class TestConstants:
    TEXT = """
    g (float[2] x) => (float[2] y)
    <float zero = {{0}}, float low = {{{low}}}, float high = {{{high}}}>
    {{ h = Clip (x, zero, low) y = Clip (h, zero, high) }}
    """

    def test_that_agree_everywhere_are_bound_once(self, parse: Parse) -> None:
        graph = parse(self.TEXT.format(low=20, high=20))
        binding = hit(graph, lambda o, x: o.clip(o.clip(x, "bound"), "bound"))
        assert {n: c.value for n, c in binding.constants.items()} == {"bound": 20.0}

    def test_that_disagree_are_a_miss(self, parse: Parse) -> None:
        graph = parse(self.TEXT.format(low=20, high=6))
        found = miss(graph, lambda o, x: o.clip(o.clip(x, "bound"), "bound"))
        assert found.step.label() == "bound (clip)"
        assert found.reason == Mismatch(
            'node 1 (Clip) -> "y", upper bound',
            'the same bound everywhere (20 at node 0 (Clip) -> "h", upper bound)',
            "6",
        )

    def test_of_different_names_may_differ(self, parse: Parse) -> None:
        graph = parse(self.TEXT.format(low=20, high=6))
        binding = hit(graph, lambda o, x: o.clip(o.clip(x, "first"), "second"))
        assert {n: c.value for n, c in binding.constants.items()} == {"first": 20, "second": 6}


class TestBoundedTime:
    """Symmetric graphs offer a choice at every step, none of which helps."""

    @staticmethod
    def diamonds(depth: int, first: str) -> str:
        lines = "".join(
            f"l{i} = Sigmoid (a{i}) r{i} = Sigmoid (a{i}) a{i + 1} = Add (l{i}, r{i})\n"
            for i in range(depth)
        )
        return f"g (float[2] x) => (float[2] y) {{ a0 = {first} (x) {lines} y = Neg (a{depth}) }}"

    @staticmethod
    def forward(depth: int) -> Forward:
        def run(o: Ops[Traced], x: Traced) -> Traced:
            x = o.relu(x)
            for _ in range(depth):
                x = o.add(o.sigmoid(x), o.sigmoid(x))
            return x

        return run

    @pytest.mark.parametrize("depth", [1, 10, 60, 200])
    def test_a_chain_of_diamonds_that_cannot_match_ends(
        self, parse: Parse, deadline: Deadline, depth: int
    ) -> None:
        graph = parse(self.diamonds(depth, "Tanh"))
        with deadline(20):  # 2 ** 200 choices; the cap allows 20 a step, well under a second
            found = find(graph, self.forward(depth), f"a{depth}")
        assert isinstance(found, Miss)
        assert found.reason == Mismatch('node 0 (Tanh) -> "a0"', "Relu", "Tanh")
        assert found.from_output == 3 * depth

    def test_one_that_can_match_does(self, parse: Parse) -> None:
        graph = parse(self.diamonds(200, "Relu"))
        assert isinstance(find(graph, self.forward(200), "a200"), Binding)

    @pytest.mark.parametrize("depth", [10, 100])
    def test_a_chain_of_a_tensor_added_to_itself_ends(
        self, parse: Parse, deadline: Deadline, depth: int
    ) -> None:
        lines = " ".join(f"a{i + 1} = Add (a{i}, a{i})" for i in range(depth))
        graph = parse(f"g (float[2] x) => (float[2] y) {{ a0 = Tanh (x) {lines} y = Neg (x) }}")

        def forward(o: Ops[X], x: X) -> X:
            x = o.relu(x)
            for _ in range(depth):
                x = o.add(x, x)
            return x

        with deadline(20):
            assert miss(graph, forward, f"a{depth}").from_output == depth

    def test_a_cycle_ends(self, parse: Parse, deadline: Deadline) -> None:
        text = """
        g (float[2] x) => (float[2] y) {
            a = Relu (d) b = Sigmoid (a) c = Add (b, x) d = Identity (c) y = Relu (d)
        }
        """

        def forward(o: Ops[X], x: X) -> X:
            h = x
            for _ in range(30):
                h = o.relu(o.add(o.sigmoid(h), x))
            return h

        with deadline(20):
            assert isinstance(find(parse(text), forward), Miss)

    def test_a_long_chain_without_choices_is_linear(self, parse: Parse, deadline: Deadline) -> None:
        depth = 3000
        lines = " ".join(f"a{i + 1} = Relu (a{i})" for i in range(depth))
        graph = parse(f"g (float[2] x) => (float[2] y) {{ a0 = Tanh (x) {lines} y = Neg (x) }}")

        def forward(o: Ops[X], x: X) -> X:
            x = o.tanh(x)
            for _ in range(depth):
                x = o.relu(x)
            return x

        with deadline(20):  # 0.1 s
            hit(graph, forward, f"a{depth}")
