"""The replay's kernels against torch in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from graphtools.kernels import attention, convolve, erf, fuse_weight_norm, softmax
from graphtools.tensors import Array

# float64 against float64: only the order of a few hundred additions differs.
CLOSE = {"rtol": 1e-11, "atol": 1e-11}

numbers = st.integers(1, 3)


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


class TestConvolve:
    @settings(deadline=None)
    @given(
        kernel=st.lists(st.integers(1, 5), min_size=1, max_size=2),
        data=st.data(),
        groups=st.integers(1, 3),
    )
    def test_is_torchs_for_every_attribute(
        self, kernel: list[int], data: st.DataObject, groups: int
    ) -> None:
        axes = len(kernel)
        each = st.lists(numbers, min_size=axes, max_size=axes)
        stride, dilation = data.draw(each, "stride"), data.draw(each, "dilation")
        pad = data.draw(st.lists(st.integers(0, 4), min_size=axes, max_size=axes), "pad")
        length = data.draw(st.lists(st.integers(1, 12), min_size=axes, max_size=axes), "length")
        inputs, outputs = groups * data.draw(numbers, "in"), groups * data.draw(numbers, "out")
        reach = [d * (k - 1) + 1 - 2 * p for d, k, p in zip(dilation, kernel, pad, strict=True)]
        assume(all(n >= r for n, r in zip(length, reach, strict=True)))

        x = normal(0, inputs, *length)
        weight = normal(1, outputs, inputs // groups, *kernel)
        conv = functional.conv1d if axes == 1 else functional.conv2d
        expected = conv(
            torch.from_numpy(x)[None],
            torch.from_numpy(weight),
            None,
            stride,
            pad,
            dilation,
            groups,
        )[0]
        found = convolve(x, weight, tuple(stride), tuple(dilation), tuple(pad), groups)
        assert found.shape == tuple(expected.shape)
        np.testing.assert_allclose(found, expected, **CLOSE)

    def test_leaves_its_input_alone(self) -> None:
        x, weight = normal(0, 3, 8), normal(1, 2, 3, 3)
        before = x.copy(), weight.copy()
        convolve(x, weight, (1,), (1,), (1,), 1)
        np.testing.assert_array_equal(x, before[0])
        np.testing.assert_array_equal(weight, before[1])


class TestAttention:
    @pytest.mark.parametrize(("heads", "channels", "frames"), [(1, 4, 7), (2, 8, 5), (4, 8, 1)])
    def test_is_torchs_scaled_dot_product_per_head(
        self, heads: int, channels: int, frames: int
    ) -> None:
        q, k, v = (normal(seed, channels, frames) for seed in range(3))
        parts = (torch.from_numpy(a.reshape(heads, -1, frames)).mT[None] for a in (q, k, v))
        expected = functional.scaled_dot_product_attention(*parts)[0].mT.reshape(channels, frames)
        np.testing.assert_allclose(attention(q, k, v, heads), expected, **CLOSE)


class TestSoftmax:
    @pytest.mark.parametrize("shape", [(5,), (3, 7)])
    @pytest.mark.parametrize("scale", [1.0, 1000.0])
    def test_is_torchs_over_the_last_axis_without_overflow(
        self, shape: tuple[int, ...], scale: float
    ) -> None:
        x = normal(0, *shape) * scale
        np.testing.assert_allclose(softmax(x), torch.from_numpy(x).softmax(-1), **CLOSE)


class TestErf:
    def test_is_torchs(self) -> None:
        x = np.linspace(-6, 6, 1001).reshape(7, 143)
        found = erf(x)
        assert found.shape == x.shape
        np.testing.assert_allclose(found, torch.from_numpy(x).erf(), **CLOSE)


class TestWeightNorm:
    @pytest.mark.parametrize("dim", [0, 1, 2])
    def test_is_torchs_over_the_axis_that_g_keeps(self, dim: int) -> None:
        v = normal(0, 4, 3, 5)
        g = normal(1, *(n if axis == dim else 1 for axis, n in enumerate(v.shape)))
        expected = torch._weight_norm(torch.from_numpy(v), torch.from_numpy(g), dim)
        np.testing.assert_allclose(fuse_weight_norm(g, v), expected, **CLOSE)

    def test_is_computed_in_float64(self) -> None:
        v, g = normal(0, 4, 3, 5).astype(np.float32), normal(1, 4, 1, 1).astype(np.float32)
        found = fuse_weight_norm(g, v)
        assert found.dtype == np.float64
        exact = fuse_weight_norm(g.astype(np.float64), v.astype(np.float64))
        np.testing.assert_array_equal(found, exact)
