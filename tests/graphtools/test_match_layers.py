"""Layers with weights: the spellings that are read, and what is said about the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from graphtools.graph import Graph
from graphtools.islands import Mismatch
from graphtools.match import Match
from graphtools.ops import Ops
from graphtools.tensors import Array
from graphtools.trace import Traced

Parse = Callable[..., Graph]
Forward = Callable[[Ops[Traced], Traced], Traced]
Read = Callable[..., list[Match] | Mismatch]
Hit = Callable[..., Match]
Miss = Callable[..., Mismatch]


def value(graph: Graph, name: str) -> Array:
    return graph.model.constants[name].read()


def bound(match: Match) -> dict[str, Array]:
    assert match.layer is not None
    return {role: tensor.read() for role, tensor in match.layer.tensors.items()}


# --- convolutions ---------------------------------------------------------------------------


def conv(**keywords: Any) -> Forward:
    return lambda o, x: o.conv(x, "c", **{"kernel": (3,), **keywords})


CONV_1D = """
g (float[1, 4, T] x) => (float[1, 6, U] y) <float[6, {depth}, 3] w, float[6] b>
{{ y = Conv {attributes} (x, w, b) }}
"""


def conv_text(attributes: str, depth: int = 4) -> str:
    return CONV_1D.format(attributes=attributes and f"<{attributes}>", depth=depth)


class TestConv:
    def graph(self, parse: Parse, attributes: str, depth: int = 4) -> Graph:
        return parse(conv_text(attributes, depth))

    def test_binds_weight_and_bias(self, parse: Parse, hit: Hit) -> None:
        graph = self.graph(parse, "pads = [1, 1]")
        match = hit(graph, conv())
        assert match.operands == ("x",)
        assert match.nodes == (0,)
        assert match.layer is not None
        assert (match.layer.slot, match.layer.kind, match.layer.node) == ("c", "conv", 0)
        assert {r: t.name for r, t in match.layer.tensors.items()} == {"weight": "w", "bias": "b"}

    @pytest.mark.parametrize("inputs", ["x, w", 'x, w, ""'])
    def test_may_have_no_bias(self, parse: Parse, hit: Hit, inputs: str) -> None:
        text = conv_text("pads = [1, 1]").replace("x, w, b)", f"{inputs})")
        assert set(bound(hit(parse(text.replace('""', "")), conv()))) == {"weight"}

    @pytest.mark.parametrize(
        ("attributes", "keywords"),
        [
            ("", {"pad": 0}),
            ("kernel_shape = [3], pads = [1, 1], strides = [2]", {"stride": 2}),
            ("pads = [2, 2], dilations = [2]", {"dilation": 2}),
            ('auto_pad = "NOTSET", pads = [1, 1]', {}),
            ('auto_pad = "VALID"', {"pad": 0}),
            ('auto_pad = "VALID", strides = [2]', {"pad": 0, "stride": 2}),
            ('auto_pad = "SAME_UPPER"', {}),
            ('auto_pad = "SAME_LOWER", dilations = [2]', {"dilation": 2}),
            ("pads = [1, 1], strides = [1], dilations = [1], group = 1", {"channels": 6}),
        ],
    )
    def test_attributes_mean_the_same_however_they_are_spelled(
        self, parse: Parse, hit: Hit, attributes: str, keywords: dict[str, Any]
    ) -> None:
        assert hit(self.graph(parse, attributes), conv(**keywords)).operands == ("x",)

    def test_groups(self, parse: Parse, hit: Hit) -> None:
        graph = self.graph(parse, "pads = [1, 1], group = 2", depth=2)
        assert bound(hit(graph, conv(groups=2)))["weight"].shape == (6, 2, 3)

    @pytest.mark.parametrize(
        ("attributes", "keywords", "expected", "found"),
        [
            (
                "pads = [1, 1], strides = [2]",
                {},
                "conv 3, stride 1, pad 1",
                "conv 3, stride 2, pad 1",
            ),
            (
                "pads = [1, 1]",
                {"stride": 2},
                "conv 3, stride 2, pad 1",
                "conv 3, stride 1, pad 1",
            ),
            ("", {}, "conv 3, stride 1, pad 1", "conv 3, stride 1, pad 0"),
            (
                "pads = [1, 0]",
                {},
                "conv 3, stride 1, pad 1",
                "conv 3, stride 1, pad 1 (pads [1, 0], auto_pad NOTSET)",
            ),
            (
                "pads = [0, 2]",
                {"pad": 0},
                "conv 3, stride 1, pad 0",
                "conv 3, stride 1, pad 0 (pads [0, 2], auto_pad NOTSET)",
            ),
            (
                "pads = [1, 1], dilations = [2]",
                {},
                "conv 3, stride 1, pad 1",
                "conv 3, stride 1, pad 1, dilation 2",
            ),
            (
                "pads = [1, 1]",
                {"dilation": 2, "pad": 1},
                "conv 3, stride 1, pad 1, dilation 2",
                "conv 3, stride 1, pad 1",
            ),
            (
                "pads = [1, 1], group = 2",
                {},
                "conv 3, stride 1, pad 1",
                "conv 3, stride 1, pad 1, groups 2",
            ),
            (
                "pads = [1, 1]",
                {"groups": 2},
                "conv 3, stride 1, pad 1, groups 2",
                "conv 3, stride 1, pad 1",
            ),
            (
                "pads = [2, 2]",
                {"kernel": (5,)},
                "conv 5, stride 1, pad 2",
                "conv 3, stride 1, pad 2",
            ),
            (
                'auto_pad = "SAME_UPPER", strides = [2]',
                {"stride": 2},
                "conv 3, stride 2, pad 1",
                "conv 3, stride 2, pad 0 (pads [0, 0], auto_pad SAME_UPPER)",
            ),
            (
                'auto_pad = "SAME_LOWER", strides = [2], pads = [1, 1]',
                {"stride": 2},
                "conv 3, stride 2, pad 1",
                "conv 3, stride 2, pad 1 (pads [1, 1], auto_pad SAME_LOWER)",
            ),
            (
                'auto_pad = "VALID", pads = [1, 1]',
                {},
                "conv 3, stride 1, pad 1",
                "conv 3, stride 1, pad 0",
            ),
            (
                "pads = [1, 1]",
                {"channels": 8},
                "conv 3, stride 1, pad 1, 8 output channels",
                "6 output channels",
            ),
        ],
    )
    def test_one_wrong_attribute_is_told(
        self,
        parse: Parse,
        miss: Miss,
        attributes: str,
        keywords: dict[str, Any],
        expected: str,
        found: str,
    ) -> None:
        depth = 2 if "group = 2" in attributes else 4
        reason = miss(self.graph(parse, attributes, depth), conv(**keywords))
        assert reason == Mismatch('node 0 (Conv) -> "y"', expected, found)

    def test_same_padding_of_an_even_kernel_is_not_the_same_on_both_sides(
        self, parse: Parse, miss: Miss
    ) -> None:
        graph = parse(
            """
            g (float[1, 4, T] x) => (float[1, 6, T] y) <float[6, 4, 2] w>
            { y = Conv <auto_pad = "SAME_UPPER"> (x, w) }
            """
        )
        assert "auto_pad SAME_UPPER" in miss(graph, conv(kernel=(2,), pad=0)).found

    @pytest.mark.parametrize(
        ("attributes", "pad", "fits"),
        [
            ("pads = [1, 1, 1, 1]", 1, True),
            ("pads = [0, 1, 0, 1]", (0, 1), True),
            ("pads = [0, 1, 0, 1]", (1, 0), False),
            ("pads = [0, 0, 1, 1]", (0, 1), False),
        ],
    )
    def test_pads_are_all_starts_then_all_ends(
        self, parse: Parse, read: Read, attributes: str, pad: int | tuple[int, ...], fits: bool
    ) -> None:
        graph = parse(
            f"""
            g (float[1, 1, F, T] x) => (float[1, 2, G, U] y) <float[2, 1, 3, 3] w>
            {{ y = Conv <{attributes}, strides = [2, 1]> (x, w) }}
            """
        )
        forward: Forward = lambda o, x: o.conv(  # noqa: E731
            o.channel(x), "c", kernel=(3, 3), stride=(2, 1), pad=pad
        )
        assert isinstance(read(graph, forward), Mismatch) != fits

    def test_weights_must_be_constant(self, parse: Parse, miss: Miss) -> None:
        text = conv_text("pads = [1, 1]")
        computed = text.replace("{ y =", "{ v = Relu (w) y =").replace("x, w, b", "x, v, b")
        assert miss(parse(computed), conv()).found == "a convolution with computed weights"
        computed = text.replace("{ y =", "{ v = Relu (b) y =").replace("x, w, b", "x, w, v")
        assert miss(parse(computed), conv()).found == "a convolution with a computed bias"

    @pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Softmax"])
    def test_another_op_is_named(self, parse: Parse, miss: Miss, op: str) -> None:
        graph = parse(f"g (float[1, 4, T] x) => (float[1, 4, T] y) {{ y = {op} (x) }}")
        assert miss(graph, conv()) == Mismatch(
            f'node 0 ({op}) -> "y"', "conv 3, stride 1, pad 1", op
        )

    @pytest.mark.parametrize("tensor", ["x", "c"])
    def test_the_end_of_the_graph_is_named(self, parse: Parse, miss: Miss, tensor: str) -> None:
        graph = parse("g (float[2] x) => (float[2] y) <float[2] c> { y = Add (x, c) }")
        kind = "input" if tensor == "x" else "constant"
        assert miss(graph, conv(), tensor).where == f'the {kind} "{tensor}"'

    def test_is_found_through_layout_ops(self, parse: Parse, hit: Hit) -> None:
        graph = parse(
            """
            g (float[1, 4, T] x) => (float[U, 1, 6] y) <float[3, 4, 6] w, float[6] b>
            {
                v = Transpose <perm = [2, 1, 0]> (w)
                h = Conv <pads = [1, 1]> (x, v, b)
                y = Transpose <perm = [2, 0, 1]> (h)
            }
            """
        )
        np.testing.assert_array_equal(
            bound(hit(graph, conv()))["weight"], value(graph, "w").transpose(2, 1, 0)
        )


class TestConvWithDummyAxes:
    """A 1-d convolution over [N, C, 1, T]."""

    TEXT = """
    g (float[1, 4, 1, T] x) => (float[1, 6, 1, U] y) <float[6, 4, {kernel}] w>
    {{ y = Conv <pads = {pads}, strides = {strides}, dilations = {dilations}> (x, w) }}
    """

    def graph(
        self,
        parse: Parse,
        kernel: str = "1, 3",
        pads: str = "[0, 2, 0, 2]",
        strides: str = "[1, 2]",
        dilations: str = "[1, 2]",
    ) -> Graph:
        return parse(
            self.TEXT.format(kernel=kernel, pads=pads, strides=strides, dilations=dilations)
        )

    @pytest.mark.parametrize("dilations", ["[1, 2]", "[2, 2]"])
    def test_binds_a_weight_of_three_axes(self, parse: Parse, hit: Hit, dilations: str) -> None:
        graph = self.graph(parse, dilations=dilations)  # a kernel of 1 has nothing to dilate
        weight = bound(hit(graph, conv(stride=2, dilation=2)))["weight"]
        np.testing.assert_array_equal(weight, value(graph, "w")[:, :, 0])

    @pytest.mark.parametrize(
        "damage",
        [
            {"kernel": "2, 3"},
            {"pads": "[1, 2, 0, 2]"},
            {"pads": "[0, 2, 1, 2]"},
            {"strides": "[2, 2]"},
            {"pads": "[0, 2, 0, 1]"},
            {"strides": "[1, 1]"},
            {"dilations": "[1, 1]"},
        ],
        ids=str,
    )
    def test_an_axis_that_is_no_dummy_is_refused(
        self, parse: Parse, miss: Miss, damage: dict[str, str]
    ) -> None:
        reason = miss(self.graph(parse, **damage), conv(stride=2, dilation=2))
        assert reason.where == 'node 0 (Conv) -> "y"'

    def test_a_convolution_of_fewer_axes_is_refused(self, parse: Parse, miss: Miss) -> None:
        graph = parse(conv_text("pads = [1, 1]"))
        forward: Forward = lambda o, x: o.conv(o.channel(x), "c", kernel=(3, 3))  # noqa: E731
        assert miss(graph, forward).found == "conv 3, stride 1, pad 1"


class TestDenseConv:
    """A convolution over single positions may reach us as a matrix product."""

    point = staticmethod(conv(kernel=(1,)))

    @pytest.mark.parametrize(
        ("shape", "line", "turned"),
        [
            ("6, 4", "y = Gemm <transB = 1> (x, w, b)", False),
            ("4, 6", "y = Gemm (x, w, b)", True),
            ("4, 6", "m = MatMul (x, w) y = Add (m, b)", True),
            ("4, 6", "m = MatMul (x, w) y = Add (b, m)", True),
            ("6, 4", "v = Transpose (w) m = MatMul (x, v) y = Add (m, b)", False),
        ],
    )
    def test_binds_a_weight_with_a_kernel_of_one(
        self, parse: Parse, hit: Hit, shape: str, line: str, turned: bool
    ) -> None:
        graph = parse(
            f"g (float[T, 4] x) => (float[T, 6] y) <float[{shape}] w, float[6] b> {{ {line} }}"
        )
        match = hit(graph, self.point)
        assert match.operands == ("x",)
        weight = value(graph, "w").T if turned else value(graph, "w")
        np.testing.assert_array_equal(bound(match)["weight"], weight[:, :, None])
        np.testing.assert_array_equal(bound(match)["bias"], value(graph, "b"))

    @pytest.mark.parametrize("keywords", [{"kernel": (3,)}, {"stride": 2}, {"groups": 2}])
    def test_stands_for_no_other_convolution(
        self, parse: Parse, miss: Miss, keywords: dict[str, Any]
    ) -> None:
        graph = parse(
            "g (float[T, 4] x) => (float[T, 6] y) <float[6, 4] w> { y = Gemm <transB = 1> (x, w) }"
        )
        assert miss(graph, conv(**{"kernel": (1,), **keywords})).found == "Gemm"

    def test_weights_must_be_constant(self, parse: Parse, miss: Miss) -> None:
        graph = parse("g (float[4, 4] x) => (float[4, 4] y) { y = MatMul (x, x) }")
        assert miss(graph, self.point).found == "MatMul without constant weights"


# --- batch norms ----------------------------------------------------------------------------

NORM = "float[6] scale, float[6] beta, float[6] mean, float[6] var"


class TestUnfoldedNorm:
    """A BatchNormalization that another exporter left after a convolution is folded in."""

    @pytest.mark.parametrize("bias", ["", ", b"])
    def test_is_folded_into_the_convolution(self, parse: Parse, hit: Hit, bias: str) -> None:
        graph = parse(
            f"""
            g (float[1, 4, 9] x) => (float[1, 6, 9] y) <float[6, 4, 3] w, float[6] b, {NORM}>
            {{
                h = Conv <pads = [1, 1]> (x, w{bias})
                y = BatchNormalization <epsilon = 0.01> (h, scale, beta, mean, var)
            }}
            """
        )
        match = hit(graph, conv())
        assert match.layer is not None
        assert (match.operands, match.nodes, match.layer.node) == (("x",), (1, 0), 0)

        x = np.random.default_rng(9).normal(size=(1, 4, 9))
        w, b, scale, beta, mean, var = (
            torch.tensor(value(graph, n), dtype=torch.float64)
            for n in ("w", "b", "scale", "beta", "mean", "var")
        )
        plain = torch.nn.functional.conv1d(torch.from_numpy(x), w, b if bias else None, padding=1)
        expected = torch.nn.functional.batch_norm(plain, mean, var, scale, beta, eps=0.01)
        weights = {role: torch.from_numpy(v).double() for role, v in bound(match).items()}
        found = torch.nn.functional.conv1d(
            torch.from_numpy(x), weights["weight"], weights["bias"], padding=1
        )
        # The folded weights are float32: 6e-8 relative, over sums of 13 terms.
        torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)

    def test_names_its_bias_after_the_weight(self, parse: Parse, hit: Hit) -> None:
        text = f"""
        g (float[1, 4, 9] x) => (float[1, 6, 9] y) <float[6, 4, 1] w, {NORM}>
        {{ h = Conv (x, w) y = BatchNormalization (h, scale, beta, mean, var) }}
        """
        layer = hit(parse(text), conv(kernel=(1,))).layer
        assert layer is not None
        assert layer.tensors["bias"].name == "w.bias"
        assert layer.tensors["bias"].origin() == "fold(0, scale, beta, mean, var, eps 1e-05)"

    def test_is_folded_into_a_matrix_product_too(self, parse: Parse, hit: Hit) -> None:
        graph = parse(
            f"""
            g (float[T, 4] x) => (float[T, 6] y) <float[4, 6] w, {NORM}>
            {{ h = MatMul (x, w) y = BatchNormalization (h, scale, beta, mean, var) }}
            """
        )
        weight = bound(hit(graph, conv(kernel=(1,))))["weight"]
        factor = value(graph, "scale") / np.sqrt(value(graph, "var").astype(np.float64) + 1e-5)
        np.testing.assert_allclose(weight[:, :, 0], (value(graph, "w") * factor).T, rtol=1e-6)

    def test_with_computed_tensors_is_refused(self, parse: Parse, miss: Miss) -> None:
        graph = parse(
            f"""
            g (float[1, 4, 9] x) => (float[1, 6, 9] y) <float[6, 4, 1] w, {NORM}>
            {{ h = Conv (x, w) s = Abs (scale) y = BatchNormalization (h, s, beta, mean, var) }}
            """
        )
        reason = miss(graph, conv(kernel=(1,)))
        assert reason.found == "a BatchNormalization with computed tensors"

    def test_without_a_convolution_before_it_is_refused(self, parse: Parse, miss: Miss) -> None:
        graph = parse(
            f"""
            g (float[1, 6, 9] x) => (float[1, 6, 9] y) <{NORM}>
            {{ h = Relu (x) y = BatchNormalization (h, scale, beta, mean, var) }}
            """
        )
        assert miss(graph, conv(kernel=(1,))).found == "Relu"


class TestNorm:
    TEXT = """
    g (float[1, 6, T] x) => (float[1, 6, T] y) <{norm}>
    {{ {before} y = BatchNormalization {attributes} ({inputs}) }}
    """

    def graph(self, parse: Parse, **parts: str) -> Graph:
        given = {
            "norm": NORM,
            "before": "",
            "attributes": "<epsilon = 0.001>",
            "inputs": "x, scale, beta, mean, var",
            **parts,
        }
        return parse(self.TEXT.format(**given))

    norm: Forward = staticmethod(lambda o, x: o.bn(x, "n"))

    def test_binds_four_tensors_and_its_epsilon(self, parse: Parse, hit: Hit) -> None:
        graph = self.graph(parse)
        match = hit(graph, self.norm)
        assert match.operands == ("x",)
        (eps,) = match.constants
        assert (eps.name, eps.value) == ("bn.eps", np.float32(0.001))
        assert eps.origin == 'node 0 (BatchNormalization) -> "y", epsilon'
        assert match.layer is not None
        assert {role: t.name for role, t in match.layer.tensors.items()} == {
            "scale": "scale",
            "bias": "beta",
            "mean": "mean",
            "var": "var",
        }

    def test_the_default_epsilon_is_the_operators(self, parse: Parse, hit: Hit) -> None:
        (eps,) = hit(self.graph(parse, attributes=""), self.norm).constants
        assert eps.value == 1e-5

    @pytest.mark.parametrize(
        "parts",
        [
            {"attributes": "<training_mode = 1>"},
            {"before": "s = Abs (scale)", "inputs": "x, s, beta, mean, var"},
            {"before": "s = Abs (var)", "inputs": "x, scale, beta, mean, s"},
        ],
    )
    def test_that_is_not_constant_is_refused(
        self, parse: Parse, miss: Miss, parts: dict[str, str]
    ) -> None:
        reason = miss(self.graph(parse, **parts), self.norm)
        assert reason.expected == "BatchNormalization with constant tensors"
        assert "(BatchNormalization)" in reason.where

    def test_another_op_is_named(self, parse: Parse, miss: Miss) -> None:
        graph = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
        assert miss(graph, self.norm).found == "Relu"


# --- linear layers --------------------------------------------------------------------------


class TestLinear:
    linear: Forward = staticmethod(lambda o, x: o.linear(x, "seg"))

    def graph(self, parse: Parse, shape: str, lines: str) -> Graph:
        return parse(
            f"g (float[B, 4] x) => (float[B, 6] y) <float[{shape}] w, float[6] b> {{ {lines} }}"
        )

    @pytest.mark.parametrize(
        ("shape", "lines", "turned"),
        [
            ("6, 4", "y = Gemm <transB = 1> (x, w, b)", False),
            ("6, 4", "y = Gemm <alpha = 1.0, beta = 1.0, transB = 1> (x, w, b)", False),
            ("4, 6", "y = Gemm <transB = 0> (x, w, b)", True),
            ("4, 6", "y = Gemm (x, w, b)", True),
            ("4, 6", "m = MatMul (x, w) y = Add (m, b)", True),
            ("4, 6", "m = MatMul (x, w) y = Add (b, m)", True),
            ("6, 4", "v = Transpose <perm = [1, 0]> (w) m = MatMul (x, v) y = Add (m, b)", False),
            ("6, 4, 1", "y = Conv (x, w, b)", False),
            ("6, 4, 1, 1", "y = Conv <kernel_shape = [1, 1]> (x, w, b)", False),
        ],
    )
    def test_binds_out_by_in_and_a_bias(
        self, parse: Parse, hit: Hit, shape: str, lines: str, turned: bool
    ) -> None:
        graph = self.graph(parse, shape, lines)
        match = hit(graph, self.linear)
        assert match.operands == ("x",)
        tensors = bound(match)
        expected = value(graph, "w").T if turned else value(graph, "w").reshape(6, 4)
        np.testing.assert_array_equal(tensors["weight"], expected)
        np.testing.assert_array_equal(tensors["bias"], value(graph, "b"))
        assert match.layer is not None
        assert graph.model.nodes[match.layer.node].op in ("Gemm", "MatMul", "Conv")

    @pytest.mark.parametrize("lines", ["y = Gemm (x, w, b)", "m = MatMul (x, w) y = Add (m, b)"])
    def test_a_bias_may_be_stored_as_the_row_that_is_added(
        self, parse: Parse, hit: Hit, lines: str
    ) -> None:
        text = f"g (float[B, 4] x) => (float[B, 6] y) <float[4, 6] w, float[1, 6] b> {{ {lines} }}"
        graph = parse(text)
        tensors = bound(hit(graph, self.linear))
        np.testing.assert_array_equal(tensors["bias"], value(graph, "b").reshape(6))

    @pytest.mark.parametrize(
        ("shape", "lines"),
        [("6, 4", "y = Gemm <transB = 1> (x, w)"), ("4, 6", "y = MatMul (x, w)")],
    )
    def test_may_have_no_bias(self, parse: Parse, hit: Hit, shape: str, lines: str) -> None:
        assert set(bound(hit(self.graph(parse, shape, lines), self.linear))) == {"weight"}

    def test_a_weight_that_was_only_turned_can_still_be_copied(
        self, parse: Parse, hit: Hit
    ) -> None:
        graph = self.graph(parse, "6, 4", "v = Transpose (w) y = MatMul (x, v)")
        layer = hit(graph, self.linear).layer
        assert layer is not None
        assert layer.tensors["weight"].origin() == "w"

    @pytest.mark.parametrize(
        ("shape", "lines", "found"),
        [
            ("6, 4", "y = Gemm <transB = 1, alpha = 2.0> (x, w, b)", "Gemm"),
            ("6, 4", "y = Gemm <transB = 1, beta = 0.5> (x, w, b)", "Gemm"),
            ("6, 4", "y = Gemm <transB = 1, transA = 1> (x, w, b)", "Gemm"),
            ("6, 4", "v = Abs (w) y = Gemm <transB = 1> (x, v, b)", "Gemm"),
            ("6, 4", "v = Abs (b) y = Gemm <transB = 1> (x, w, v)", "Gemm"),
            ("1, 4, 6", "y = MatMul (x, w)", "MatMul"),
            ("4, 6", "v = Abs (w) y = MatMul (x, v)", "MatMul"),
            ("6, 6", "y = MatMul (w, x)", "MatMul"),
            ("4, 6", "m = MatMul (x, w) v = Abs (b) y = Add (m, v)", "Add"),
            ("4, 6", "m = Relu (x) y = Add (m, b)", "Add"),
            ("4, 6", "y = Relu (x)", "Relu"),
            ("6, 4, 3", "y = Conv (x, w, b)", "conv 3, stride 1, pad 0"),
            ("6, 4, 1", "y = Conv <strides = [2]> (x, w, b)", "conv 1, stride 2, pad 0"),
            ("6, 2, 1", "y = Conv <group = 2> (x, w, b)", "conv 1, stride 1, pad 0, groups 2"),
            ("6, 4, 1", "v = Abs (w) y = Conv (x, v, b)", "a convolution with computed weights"),
        ],
    )
    def test_anything_else_is_told(
        self, parse: Parse, miss: Miss, shape: str, lines: str, found: str
    ) -> None:
        reason = miss(self.graph(parse, shape, lines), self.linear)
        assert reason.expected == "linear layer (Gemm, MatMul + Add or 1x1 Conv)"
        assert reason.found == found
        assert reason.where.endswith('-> "y"')

    def test_a_bias_of_another_rank_is_refused(self, parse: Parse, miss: Miss) -> None:
        graph = parse(
            """
            g (float[2, 4] x) => (float[2, 6] y) <float[4, 6] w, float[2, 6] b>
            { m = MatMul (x, w) y = Add (m, b) }
            """
        )
        assert miss(graph, self.linear).found == "Add"


class TestSubtract:
    subtract: Forward = staticmethod(lambda o, x: o.subtract(x, "mean_vec"))

    @pytest.mark.parametrize("shape", ["[6]", "[1, 6]", ""])
    def test_binds_the_constant(self, parse: Parse, hit: Hit, shape: str) -> None:
        text = f"g (float[B, 6] x) => (float[B, 6] y) <float{shape} c> {{ y = Sub (x, c) }}"
        match = hit(parse(text), self.subtract)
        assert match.operands == ("x",)
        assert set(bound(match)) == {"offset"}

    @pytest.mark.parametrize(
        ("line", "found"),
        [("y = Sub (c, x)", "Sub"), ("y = Sub (x, x)", "Sub"), ("y = Add (x, c)", "Add")],
    )
    def test_anything_else_is_told(self, parse: Parse, miss: Miss, line: str, found: str) -> None:
        graph = parse(f"g (float[B, 6] x) => (float[B, 6] y) <float[6] c> {{ {line} }}")
        assert miss(graph, self.subtract) == Mismatch(
            f'node 0 ({found}) -> "y"', "Sub of a constant vector", found
        )

    def test_a_map_is_no_vector(self, parse: Parse, miss: Miss) -> None:
        graph = parse(
            "g (float[2, 2, 2] x) => (float[2, 2, 2] y) <float[2, 2, 2] c> { y = Sub (x, c) }"
        )
        assert miss(graph, self.subtract).found == "Sub"
