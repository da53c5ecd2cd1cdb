"""Weight-free regions: what they compute, against torch, and how their constants are read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtools.graph import Graph, Region
from graphtools.islands import ISLANDS, Constant, Mismatch
from graphtools.tensors import Array

Parse = Callable[..., Graph]


def close(found: Array, expected: object) -> None:
    """float64 against float64: only the order of a few hundred additions differs."""
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-11, atol=1e-11)


def normal(*shape: int) -> Array:
    return np.random.default_rng(0).normal(1.0, 2.0, size=shape)


class TestStatistics:
    @pytest.mark.parametrize("kind", ["tstp", "stats"])
    @pytest.mark.parametrize("eps", [0.0, 1e-7, 0.5])
    @pytest.mark.parametrize("shape", [(4, 9), (2, 3, 9), (3, 2)])
    def test_are_mean_and_unbiased_deviation_as_in_torch(
        self, kind: str, eps: float, shape: tuple[int, ...]
    ) -> None:
        x = normal(*shape)
        t = torch.from_numpy(x)
        expected = torch.cat(
            [t.mean(-1).flatten(), (torch.var(t, -1, unbiased=True) + eps).sqrt().flatten()]
        )
        found = ISLANDS[kind].compute(x, {"eps": eps})
        assert found.shape == (2 * x[..., 0].size,)
        close(found, expected)

    def test_of_a_constant_the_deviation_is_the_root_of_eps(self) -> None:
        found = ISLANDS["tstp"].compute(np.full((2, 3, 7), 5.0), {"eps": 1e-8})
        np.testing.assert_allclose(found[:6], 5.0)
        np.testing.assert_allclose(found[6:], 1e-4)

    def test_of_one_frame_are_not_a_number_as_in_torch(self) -> None:
        x = normal(3, 1)
        found = ISLANDS["stats"].compute(x, {"eps": 1e-7})
        np.testing.assert_array_equal(found[:3], x[:, 0])
        assert np.isnan(found[3:]).all()
        with pytest.warns(UserWarning, match="degrees of freedom"):
            assert torch.var(torch.from_numpy(x), -1, unbiased=True).isnan().all()


class TestSegmentContext:
    @settings(deadline=None)
    @given(st.integers(1, 400))
    def test_by_valid_frames_is_torchs_pooling(self, frames: int) -> None:
        x = normal(3, frames)
        t = torch.from_numpy(x)[None]
        pooled = torch.nn.functional.avg_pool1d(t, 100, 100, ceil_mode=True)
        spread = pooled.repeat_interleave(100, -1)[..., :frames]
        expected = (t.mean(-1, keepdim=True) + spread)[0]
        found = ISLANDS["cam"].compute(x, {"segment": 100.0, "valid": 1.0})
        close(found, expected)

    @given(st.integers(1, 400))
    def test_by_the_kernel_every_segment_is_a_hundredth_of_its_sum(self, frames: int) -> None:
        x = normal(3, frames)
        expected = np.empty_like(x)
        for start in range(0, frames, 100):
            part = x[:, start : start + 100]
            expected[:, start : start + 100] = part.sum(axis=1, keepdims=True) / 100
        expected += x.mean(axis=1, keepdims=True)
        found = ISLANDS["cam"].compute(x, {"segment": 100.0, "valid": 0.0})
        close(found, expected)

    @pytest.mark.parametrize(("frames", "same"), [(100, True), (300, True), (99, False)])
    def test_the_rules_differ_only_where_a_segment_is_partial(
        self, frames: int, same: bool
    ) -> None:
        x = normal(3, frames)
        by_kernel, by_valid = (
            ISLANDS["cam"].compute(x, {"segment": 100.0, "valid": v}) for v in (0.0, 1.0)
        )
        assert np.allclose(by_kernel, by_valid, rtol=1e-11, atol=1e-11) == same


def region(graph: Graph) -> Region:
    """All of a graph."""
    return Region("x", "y", frozenset(node.index for node in graph.model.nodes))


class TestReadingEps:
    def read(self, parse: Parse, lines: str, opset: int = 17) -> tuple[float, str] | Mismatch:
        graph = parse(
            f"""
            g (float[1, 4] x) => (float[1, 4] y)
            <float eps = {{0.125}}, float[1] single = {{0.125}}, float half = {{0.5}},
             float two = {{2.0}}, float other = {{0.25}}, float[4] pair>
            {{ {lines} }}
            """,
            opset=opset,
        )
        found = ISLANDS["tstp"].read(graph, region(graph))
        if isinstance(found, Mismatch):
            return found
        assert list(found) == ["eps"]
        assert found["eps"].name == "eps"
        return found["eps"].value, found["eps"].origin

    @pytest.mark.parametrize(
        ("lines", "value", "origin"),
        [
            ("v = Add (x, eps) y = Sqrt (v)", 0.125, 'node 0 (Add) -> "v", constant "eps"'),
            ("v = Add (eps, x) y = Sqrt (v)", 0.125, 'node 0 (Add) -> "v", constant "eps"'),
            ("v = Add (x, single) y = Sqrt (v)", 0.125, "single"),
            ("v = Add (x, eps) y = Pow (v, half)", 0.125, 'node 0 (Add) -> "v", constant "eps"'),
            ("q = Pow (x, two) v = Add (q, eps) y = Pow (v, half)", 0.125, "eps"),
            ("v = Add (x, eps) c = Reshape (v, s) y = Sqrt (c)", 0.125, "eps"),
            ("c = Constant <value_float = 0.125> () v = Add (x, c) y = Sqrt (v)", 0.125, "c"),
            ("y = Sqrt (x)", 0.0, 'nothing added before node 0 (Sqrt) -> "y"'),
            ("y = Pow (x, half)", 0.0, "nothing added before node 0 (Pow)"),
            ("v = Abs (x) y = Sqrt (v)", 0.0, "nothing added"),
            ("v = Add (x, x) y = Sqrt (v)", 0.0, "nothing added"),
            ("v = Add (x, pair) y = Sqrt (v)", 0.0, "nothing added"),
            ("v = Add (x, eps) r = Sqrt (v) w = Add (r, eps) y = Sqrt (w)", 0.125, "node 0"),
        ],
    )
    def test_it_is_what_is_added_right_before_the_root(
        self, parse: Parse, lines: str, value: float, origin: str
    ) -> None:
        if "s)" in lines:
            lines = f"s = Constant <value_ints = [1, 4]> () {lines}"
            origin = "eps"
        found = self.read(parse, lines)
        assert not isinstance(found, Mismatch)
        assert found[0] == value
        assert origin in found[1]

    @pytest.mark.parametrize(
        ("lines", "found"),
        [
            ("y = Exp (x)", "0 square roots, constants []"),
            ("y = Pow (x, two)", "1 square roots, constants []"),
            ("y = Pow (x, x)", "1 square roots, constants []"),
            (
                "v = Add (x, eps) r = Sqrt (v) w = Add (r, other) y = Sqrt (w)",
                "2 square roots, constants [0.125, 0.25]",
            ),
            (
                "v = Add (x, eps) r = Sqrt (v) y = Sqrt (r)",
                "2 square roots, constants [0.0, 0.125]",
            ),
        ],
    )
    def test_no_root_or_two_constants_are_told(self, parse: Parse, lines: str, found: str) -> None:
        assert self.read(parse, lines) == Mismatch(
            'the region from "x" to "y"',
            "one square root, of a variance plus a constant",
            found,
        )


class TestReadingSegments:
    def read(
        self, parse: Parse, attributes: str, axes: str = "3, T", more: str = ""
    ) -> dict[str, Constant] | Mismatch:
        graph = parse(
            f"""
            g (float[1, {axes}] x) => (float[1, {axes}] y)
            {{ p = AveragePool <{attributes}> (x) {more} y = Add (x, p) }}
            """,
            opset=19,
        )
        found = ISLANDS["cam"].read(graph, region(graph))
        return found if isinstance(found, Mismatch) else dict(found)

    GOOD = "kernel_shape = [100], strides = [100], ceil_mode = 1, count_include_pad = 1"

    @pytest.mark.parametrize(
        ("attributes", "axes"),
        [
            (GOOD, "3, T"),
            (f"{GOOD}, pads = [0, 0]", "3, T"),
            (f"{GOOD}, dilations = [1], count_include_pad = 1", "3, T"),
            (f'{GOOD}, auto_pad = "NOTSET"', "3, T"),
            (f'{GOOD}, auto_pad = "VALID"', "3, T"),
            (
                "kernel_shape = [1, 100], strides = [1, 100], ceil_mode = 1, count_include_pad = 1",
                "3, 1, T",
            ),
            (
                "kernel_shape = [100, 1], strides = [100, 1], ceil_mode = 1, count_include_pad = 1",
                "3, T, 1",
            ),
        ],
    )
    def test_a_pooling_over_a_hundred_frames(
        self, parse: Parse, attributes: str, axes: str
    ) -> None:
        assert self.read(parse, attributes, axes) == {
            "segment": Constant("segment", 100.0, 'node 0 (AveragePool) -> "p", kernel_shape')
        }

    @pytest.mark.parametrize(
        ("attributes", "found"),
        [
            (
                "kernel_shape = [99], strides = [100], ceil_mode = 1, count_include_pad = 1",
                "kernel (99,), stride (100,), pads (0, 0), ceil_mode 1",
            ),
            (
                "kernel_shape = [100], strides = [50], ceil_mode = 1, count_include_pad = 1",
                "kernel (100,), stride (50,), pads (0, 0), ceil_mode 1",
            ),
            (
                "kernel_shape = [100], ceil_mode = 1, count_include_pad = 1",
                "kernel (100,), stride (1,), pads (0, 0), ceil_mode 1",
            ),
            (
                "kernel_shape = [100], strides = [100]",
                "kernel (100,), stride (100,), pads (0, 0), ceil_mode 0",
            ),
            (f"{GOOD}, pads = [0, 1]", "kernel (100,), stride (100,), pads (0, 1), ceil_mode 1"),
            (f"{GOOD}, dilations = [2]", None),
            (f'{GOOD}, auto_pad = "SAME_UPPER"', None),
            (
                "kernel_shape = [100, 100], strides = [100, 100], ceil_mode = 1, count_include_pad = 1",  # noqa: E501
                "kernel (100, 100), stride (100, 100), pads (0, 0, 0, 0), ceil_mode 1",
            ),
            (
                "kernel_shape = [1, 100], strides = [2, 100], ceil_mode = 1, count_include_pad = 1",
                "kernel (1, 100), stride (2, 100), pads (0, 0, 0, 0), ceil_mode 1",
            ),
        ],
    )
    def test_another_pooling_is_told(
        self, parse: Parse, attributes: str, found: str | None
    ) -> None:
        reason = self.read(parse, attributes)
        assert isinstance(reason, Mismatch)
        assert reason.where == 'node 0 (AveragePool) -> "p"'
        assert (
            reason.expected
            == "one AveragePool, kernel 100, stride 100, no pads, ceil_mode 1, count_include_pad 1"
        )
        assert reason.found.startswith(found or "kernel (100,), stride (100,), pads (0, 0)")

    def test_what_differs_is_in_what_was_found(self, parse: Parse) -> None:
        """A reader must see the difference between expected and found."""
        for attribute, word in (
            ("dilations = [2]", "dilation"),
            ('auto_pad = "SAME_UPPER"', "SAME"),
        ):
            reason = self.read(parse, f"{self.GOOD}, {attribute}")
            assert isinstance(reason, Mismatch)
            assert word in reason.found

    @pytest.mark.parametrize("count", [0, 2])
    def test_one_pooling_and_no_more(self, parse: Parse, count: int) -> None:
        op = "AveragePool <kernel_shape = [100], strides = [100], ceil_mode = 1, count_include_pad = 1>"  # noqa: E501
        more = f"q = {op} (x)"
        graph = parse(
            f"""
            g (float[1, 3, T] x) => (float[1, 3, T] y)
            {{ {f"p = {op} (x) {more}" if count else ""} y = Relu (x) }}
            """
        )
        found = ISLANDS["cam"].read(graph, region(graph))
        assert isinstance(found, Mismatch)
        assert found.found == f"{count} AveragePool nodes"


def test_every_kind_says_what_it_means() -> None:
    assert set(ISLANDS) == {"tstp", "stats", "cam", "simam"}
    assert all(island.meaning and "\n" not in island.meaning for island in ISLANDS.values())
