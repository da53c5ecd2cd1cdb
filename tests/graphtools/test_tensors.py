"""Lazy tensors: every recipe gives the values it says, and says where they came from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.fusion import fuse_conv_bn_weights

from graphtools.errors import UnsupportedError
from graphtools.tensors import (
    Array,
    BatchNorm,
    DType,
    FileSpan,
    FoldBias,
    FoldWeight,
    Held,
    LazyTensor,
    Load,
    Reshape,
    Transpose,
    WeightNorm,
    Widen,
    widened,
)

Stored = Callable[[bytes, DType, tuple[int, ...]], LazyTensor]


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """A tensor ``w`` whose bytes stand in a file, with other bytes before and after them."""

    def store(data: bytes, dtype: DType, shape: tuple[int, ...]) -> LazyTensor:
        path = tmp_path / "weights.bin"
        path.write_bytes(b"\xff" * 13 + data + b"\xff" * 7)
        return LazyTensor("w", shape, dtype, Load("w", dtype, FileSpan(path, 13, len(data))))

    return store


def held(name: str, values: Array, dtype: DType = DType.F32) -> LazyTensor:
    return LazyTensor(name, values.shape, dtype, Held(name, values))


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class TestLoad:
    @pytest.mark.parametrize("dtype", [d for d in DType if d.numpy is not None])
    def test_reads_the_bytes_of_its_span_and_no_others(self, stored: Stored, dtype: DType) -> None:
        values = np.array([[0, 1, 2], [3, 100, 0]]).astype(dtype.numpy)
        found = stored(values.tobytes(), dtype, (2, 3)).read()
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values)

    def test_reads_little_endian(self, stored: Stored) -> None:
        assert stored(b"\x01\x02\x03\x04", DType.I32, (1,)).read().tolist() == [0x04030201]

    def test_reads_bf16_as_f32(self, stored: Stored) -> None:
        values = torch.tensor([1.5, -2.0, 3.1415926]).to(torch.bfloat16)
        found = stored(values.view(torch.uint8).numpy().tobytes(), DType.BF16, (3,)).read()
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, values.float().numpy())

    @pytest.mark.parametrize("dtype", [DType.STRING, DType.OTHER])
    def test_an_element_type_without_a_size_is_refused(self, stored: Stored, dtype: DType) -> None:
        with pytest.raises(UnsupportedError, match="'w' has an element type") as caught:
            stored(b"abcd", dtype, (1,)).read()
        assert caught.value.found == dtype.label

    def test_is_read_when_asked_and_not_before(self, stored: Stored) -> None:
        tensor = stored(np.float32(1.0).tobytes(), DType.F32, (1,))
        stored(np.float32(2.0).tobytes(), DType.F32, (1,))
        assert tensor.read().tolist() == [2.0]


class TestWiden:
    @pytest.mark.parametrize(
        ("dtype", "oracle"), [(DType.F16, torch.float16), (DType.BF16, torch.bfloat16)]
    )
    def test_is_exact_for_every_16_bit_pattern(
        self, stored: Stored, dtype: DType, oracle: torch.dtype
    ) -> None:
        patterns = np.arange(1 << 16).astype("<u2")
        tensor = widened(stored(patterns.tobytes(), dtype, (1 << 16,)))
        expected = torch.from_numpy(patterns.view(np.int16)).view(oracle).float().numpy()
        found = tensor.read()
        assert (tensor.dtype, found.dtype) == (DType.F32, np.float32)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        # Bits, so that -0.0 is not taken for 0.0; the payload of a NaN means nothing.
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(found[numbers].view("u4"), expected[numbers].view("u4"))

    def test_rounds_f64_to_the_nearest_f32(self) -> None:
        halfway = 1.0 + 2.0**-24  # between two floats: to the even one
        values = np.array([np.pi, halfway, np.nextafter(halfway, 2.0), 1e-46])
        found = widened(held("w", values, DType.F64)).read()
        expected = torch.from_numpy(values).float().numpy()
        np.testing.assert_array_equal(found, expected)
        assert found.tolist()[1:] == [1.0, 1.0 + 2.0**-23, 0.0]

    def test_f32_stays_the_tensor_that_it_is(self) -> None:
        tensor = held("w", normal(0, 2))
        assert widened(tensor) is tensor

    @pytest.mark.parametrize("dtype", [DType.I8, DType.U8, DType.I64, DType.BOOL, DType.STRING])
    def test_what_is_not_float_is_refused(self, dtype: DType) -> None:
        with pytest.raises(UnsupportedError, match="weight 'w' is not float") as caught:
            widened(held("w", np.zeros(2), dtype))
        assert caught.value.expected == "f32, f16, bf16 or f64"
        assert caught.value.found == dtype.label
        assert "quantised" in (caught.value.todo or "")


class TestLayout:
    @given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
    def test_transpose_permutes_axes(self, shape: list[int], data: st.DataObject) -> None:
        axes = data.draw(st.permutations(range(len(shape))))
        source = held("w", normal(0, *shape))
        tensor = LazyTensor(
            "w", tuple(shape[a] for a in axes), DType.F32, Transpose(source, tuple(axes))
        )
        found = tensor.read()
        expected = torch.from_numpy(source.read()).permute(axes).contiguous().numpy()
        np.testing.assert_array_equal(found, expected)
        assert found.flags.c_contiguous

    def test_reshape_keeps_the_order_of_elements(self) -> None:
        values = normal(0, 2, 6)
        tensor = LazyTensor("w", (3, 2, 2), DType.F32, Reshape(held("w", values)))
        np.testing.assert_array_equal(tensor.read(), values.reshape(3, 2, 2))

    def test_a_name_changes_nothing_else(self) -> None:
        tensor = held("w", normal(0, 2))
        assert tensor.named("other") == LazyTensor("other", (2,), DType.F32, tensor.recipe)

    def test_size_counts_elements(self) -> None:
        assert held("w", normal(0, 2, 3, 4)).size == 24
        assert held("w", np.float32(1.0).reshape(())).size == 1


class TestSpan:
    def test_plain_f32_bytes_can_be_copied_as_they_are(self, stored: Stored) -> None:
        values = normal(0, 2, 3)
        tensor = stored(values.tobytes(), DType.F32, (2, 3))
        reshaped = LazyTensor("w", (6,), DType.F32, Reshape(tensor))
        for plain in (tensor, tensor.named("other"), reshaped):
            span = plain.span()
            assert span is not None
            assert span.path.read_bytes()[span.offset :][: span.length] == plain.read().tobytes()

    def test_computed_values_have_none(self, stored: Stored) -> None:
        tensor = stored(normal(0, 2, 2).tobytes(), DType.F32, (2, 2))
        column = LazyTensor("v", (2,), DType.F32, Reshape(stored(b"\0" * 8, DType.F32, (2,))))
        norm = BatchNorm(column, column, column, column, 1e-5)
        recipes = [
            Transpose(tensor, (1, 0)),
            Widen(tensor),
            FoldWeight(tensor, norm),
            FoldBias(column, norm),
            Held("w", normal(0, 2)),
            Reshape(LazyTensor("w", (2, 2), DType.F32, Transpose(tensor, (1, 0)))),
        ]
        assert [recipe.span() for recipe in recipes] == [None] * len(recipes)

    @pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F64])
    def test_another_float_has_none_once_it_is_f32(self, stored: Stored, dtype: DType) -> None:
        assert widened(stored(b"\0" * 16, dtype, (16 // (dtype.itemsize or 1),))).span() is None


def _norm(channels: int, eps: float = 1e-5) -> tuple[BatchNorm, torch.nn.Module]:
    """A batch norm as ours and as torch's, the latter in float64."""
    scale, bias, mean = (normal(seed, channels) for seed in (1, 2, 3))
    var = np.square(normal(4, channels)) + np.float32(0.01)
    theirs = torch.nn.BatchNorm1d(channels, eps=eps).double().eval()
    with torch.no_grad():
        for target, values in zip(
            (theirs.weight, theirs.bias, theirs.running_mean, theirs.running_var),
            (scale, bias, mean, var),
            strict=True,
        ):
            assert target is not None
            target.copy_(torch.from_numpy(values))
    names = ("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var")
    parts = [held(n, v) for n, v in zip(names, (scale, bias, mean, var), strict=True)]
    return BatchNorm(*parts, eps), theirs


class TestFold:
    @pytest.mark.parametrize("kernel", [(3,), (2, 3)])
    @pytest.mark.parametrize("has_bias", [True, False])
    @pytest.mark.parametrize("eps", [1e-5, 1e-2])
    def test_gives_what_torch_computes_in_float64(
        self, kernel: tuple[int, ...], has_bias: bool, eps: float
    ) -> None:
        weight = held("conv.weight", normal(5, 4, 3, *kernel))
        bias = held("conv.bias", normal(6, 4)) if has_bias else None
        norm, theirs = _norm(4, eps)
        new_weight, new_bias = FoldWeight(weight, norm).read(), FoldBias(bias, norm).read()
        assert new_weight.dtype == new_bias.dtype == np.float32

        conv = torch.nn.functional.conv1d if len(kernel) == 1 else torch.nn.functional.conv2d
        x = torch.from_numpy(normal(7, 2, 3, *[8] * len(kernel))).double()
        b = None if bias is None else torch.from_numpy(bias.read()).double()
        unfolded = conv(x, torch.from_numpy(weight.read()).double(), b)
        expected = theirs(unfolded.reshape(2, 4, -1)).reshape(unfolded.shape)
        folded = conv(x, torch.from_numpy(new_weight).double(), torch.from_numpy(new_bias).double())
        # The folded tensors were rounded to float32: 6e-8 relative, over sums of up to 19 terms.
        torch.testing.assert_close(folded, expected, rtol=2e-6, atol=2e-6)

    def test_rounds_once(self) -> None:
        weight, bias = held("conv.weight", normal(5, 4, 3, 3)), held("conv.bias", normal(6, 4))
        norm, theirs = _norm(4)
        exact_weight, exact_bias = fuse_conv_bn_weights(
            torch.from_numpy(weight.read()).double(),
            torch.from_numpy(bias.read()).double(),
            theirs.running_mean,
            theirs.running_var,
            theirs.eps,
            theirs.weight,
            theirs.bias,
        )
        for found, exact in (
            (FoldWeight(weight, norm).read(), exact_weight.detach().numpy()),
            (FoldBias(bias, norm).read(), exact_bias.detach().numpy()),
        ):
            # Rounded once means half a unit in the last place; 2 % for the order of operations.
            unit = np.spacing(np.abs(found)).astype(np.float64)
            assert (np.abs(found - exact) / unit).max() <= 0.51


class TestWeightNorm:
    @pytest.mark.parametrize("shape", [(4, 3, 5), (4, 3)])
    def test_is_torchs_over_the_first_axis_rounded_once(self, shape: tuple[int, ...]) -> None:
        v, g = normal(0, *shape), normal(1, 4, *[1] * (len(shape) - 1))
        exact = torch._weight_norm(torch.from_numpy(v).double(), torch.from_numpy(g).double(), 0)
        found = WeightNorm(held("g", g), held("v", v)).read()
        assert found.dtype == np.float32
        unit = np.spacing(np.abs(found)).astype(np.float64)
        # Half a unit in the last place; 2 % for the order of operations.
        assert (np.abs(found - exact.numpy()) / unit).max() <= 0.51

    def test_says_of_what(self) -> None:
        recipe = WeightNorm(held("g", normal(0, 4, 1)), held("v", normal(1, 4, 3)))
        assert recipe.origin() == "weight norm(g, v)"
        assert [t.name for t in recipe.sources()] == ["g", "v"]
        assert recipe.span() is None


class TestOrigin:
    def test_names_the_sources_and_what_was_done(self) -> None:
        weight, bias = held("w", normal(0, 2, 2)), held("b", normal(0, 2))
        half = held("h", normal(0, 2).astype(np.float16), DType.F16)
        norm, _ = _norm(2)
        turned = LazyTensor("t", (2, 2), DType.F32, Transpose(weight, (1, 0)))
        assert weight.named("other").origin() == "w"
        assert turned.origin() == "transpose(w, [1, 0])"
        assert Reshape(turned).origin() == "reshape(transpose(w, [1, 0]))"
        assert widened(half).origin() == "f16 to f32(h)"
        whole = "bn.weight, bn.bias, bn.running_mean, bn.running_var, eps 1e-05"
        assert FoldWeight(weight, norm).origin() == f"fold(w, {whole})"
        assert FoldBias(bias, norm).origin() == f"fold(b, {whole})"
        assert FoldBias(None, norm).origin() == f"fold(0, {whole})"

    def test_sources_are_the_tensors_that_are_read(self, stored: Stored) -> None:
        weight, bias = held("w", normal(0, 2, 2)), held("b", normal(0, 2))
        norm, _ = _norm(2)
        parts = ["bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"]
        plain = stored(b"\0" * 4, DType.F32, (1,)).recipe
        for recipe, expected in (
            (Widen(weight), ["w"]),
            (Reshape(weight), ["w"]),
            (Transpose(weight, (1, 0)), ["w"]),
            (FoldWeight(weight, norm), ["w", *parts]),
            (FoldBias(bias, norm), ["b", *parts]),
            (FoldBias(None, norm), parts),
            (weight.recipe, []),
            (plain, []),
        ):
            assert [t.name for t in recipe.sources()] == expected


def test_element_types_know_their_size() -> None:
    for dtype in DType:
        found = dtype.itemsize
        if dtype in (DType.STRING, DType.OTHER):
            assert found is None
        else:
            words = {"f": "float", "i": "int", "u": "uint", "b": "bfloat"}
            name = "bool" if dtype is DType.BOOL else words[dtype.label[0]]
            name += dtype.label.lstrip("abcdefghijklmnopqrstuvwxyz")
            assert found == getattr(torch, name).itemsize


def test_exactly_the_floats_are_floats() -> None:
    floats = {DType.F16, DType.BF16, DType.F32, DType.F64}
    assert {dtype for dtype in DType if dtype.is_float} == floats
