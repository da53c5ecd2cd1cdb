"""The replay's kernels against torch in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from graphtools.kernels import (
    attention,
    convolve,
    erf,
    fuse_weight_norm,
    nearest,
    rotary,
    softmax,
)
from graphtools.tensors import Array


def close(found: Array, expected: object) -> None:
    """float64 against float64: only the order of a few hundred additions differs."""
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-11, atol=1e-11)


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
        close(found, expected)

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
        close(attention(q, k, v, heads), expected)

    @pytest.mark.parametrize("window", [1, 3, 7, 600, 2000])
    @pytest.mark.parametrize("frames", [1, 9, 1300])  # more than two blocks of queries
    def test_with_a_window_sees_so_many_positions_up_to_its_own(
        self, window: int, frames: int
    ) -> None:
        q, k, v = (normal(seed, 4, frames) for seed in range(3))
        age = torch.arange(frames)[:, None] - torch.arange(frames)
        mask = (age >= 0) & (age < window)
        parts = (torch.from_numpy(a.reshape(2, 2, frames)).mT[None] for a in (q, k, v))
        expected = functional.scaled_dot_product_attention(*parts, attn_mask=mask)
        found = attention(q, k, v, 2, window)
        close(found, expected[0].mT.reshape(4, frames))


class TestRotary:
    def test_turns_neighbouring_channels_as_complex_numbers(self) -> None:
        heads, width, frames = 2, 6, 9
        x = normal(0, heads * width, frames)
        turned = x.reshape(heads, width // 2, 2, frames)
        rate = 10000.0 ** (-2.0 * np.arange(width // 2) / width)
        angle = rate[:, None] * np.arange(frames)
        expected = (turned[:, :, 0] + 1j * turned[:, :, 1]) * np.exp(1j * angle)
        found = rotary(x, heads, 10000.0).reshape(heads, width // 2, 2, frames)
        close(found[:, :, 0], expected.real)
        close(found[:, :, 1], expected.imag)

    def test_leaves_position_zero_and_every_length_alone(self) -> None:
        x = normal(0, 8, 5)
        found = rotary(x, 2, 100.0)
        np.testing.assert_array_equal(found[:, 0], x[:, 0])
        pairs = [a.reshape(4, 2, 5) for a in (x, found)]
        close(*(np.linalg.norm(p, axis=1) for p in pairs))


class TestNearest:
    def test_is_the_row_of_the_largest_cosine_with_its_margin(self) -> None:
        x, book = normal(0, 6, 40), normal(1, 32, 6)
        codes, margins = nearest(x, book)
        cosine = functional.cosine_similarity(
            torch.from_numpy(x.T)[:, None], torch.from_numpy(book)[None], dim=-1
        )
        best = cosine.topk(2).values.numpy()
        np.testing.assert_array_equal(codes, cosine.argmax(1))
        # Of unit vectors the squared distance is 2 - 2 cos.
        close(margins, 2 * (best[:, 0] - best[:, 1]))

    def test_of_equal_rows_takes_the_first_with_no_margin(self) -> None:
        book = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]])
        codes, margins = nearest(np.array([[3.0], [0.0]]), book)
        assert codes.tolist() == [1]
        np.testing.assert_allclose(margins, 0.0, atol=1e-12)

    def test_a_column_of_zeros_and_a_book_of_one_row_have_an_answer(self) -> None:
        codes, margins = nearest(np.zeros((2, 3)), np.array([[1.0, 0.0]]))
        assert codes.tolist() == [0, 0, 0]
        assert np.isfinite(margins).all()


class TestSoftmax:
    @pytest.mark.parametrize("shape", [(5,), (3, 7)])
    @pytest.mark.parametrize("scale", [1.0, 1000.0])
    def test_is_torchs_over_the_last_axis_without_overflow(
        self, shape: tuple[int, ...], scale: float
    ) -> None:
        x = normal(0, *shape) * scale
        close(softmax(x), torch.from_numpy(x).softmax(-1))


class TestErf:
    def test_is_torchs(self) -> None:
        x = np.linspace(-6, 6, 1001).reshape(7, 143)
        found = erf(x)
        assert found.shape == x.shape
        close(found, torch.from_numpy(x).erf())


class TestWeightNorm:
    @pytest.mark.parametrize("dim", [0, 1, 2])
    def test_is_torchs_over_the_axis_that_g_keeps(self, dim: int) -> None:
        v = normal(0, 4, 3, 5)
        g = normal(1, *(n if axis == dim else 1 for axis, n in enumerate(v.shape)))
        expected = torch._weight_norm(torch.from_numpy(v), torch.from_numpy(g), dim)
        close(fuse_weight_norm(g, v), expected)

    def test_is_computed_in_float64(self) -> None:
        v, g = normal(0, 4, 3, 5).astype(np.float32), normal(1, 4, 1, 1).astype(np.float32)
        found = fuse_weight_norm(g, v)
        assert found.dtype == np.float64
        exact = fuse_weight_norm(g.astype(np.float64), v.astype(np.float64))
        np.testing.assert_array_equal(found, exact)
