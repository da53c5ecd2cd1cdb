"""The computing reading of a forward: against torch in float64, and shapes that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from graphtools.errors import UnsupportedError
from graphtools.match import Role
from graphtools.numpy_ops import NumpyOps
from graphtools.tensors import Array


def close(found: Array, expected: object) -> None:
    """float64 against float64: only the order of a few hundred additions differs."""
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-11, atol=1e-11)


class Held:
    """Weights in memory, by role; every slot has the same."""

    def __init__(self, stride: int | None = None, **tensors: Array) -> None:
        self.tensors: Mapping[str, Array] = tensors
        self.stated = stride

    def tensor(self, slot: str, role: Role) -> Array | None:
        return self.tensors.get(role)

    def stride(self, slot: str) -> int | None:
        return self.stated


def ops(
    stride: int | None = None, constants: Mapping[str, float] | None = None, **tensors: Array
) -> NumpyOps:
    return NumpyOps(Held(stride, **tensors), constants or {})


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def torch_of(array: Array) -> torch.Tensor:
    """With a batch axis, in float64."""
    return torch.from_numpy(np.ascontiguousarray(array)).double()[None]


class TestConv:
    @settings(deadline=None)
    @given(
        kernel=st.lists(st.integers(1, 5), min_size=1, max_size=2),
        stride=st.integers(1, 3),
        dilation=st.integers(1, 3),
        pad=st.one_of(st.none(), st.integers(0, 3)),
        groups=st.integers(1, 3),
        has_bias=st.booleans(),
        length=st.integers(1, 14),
    )
    def test_is_torchs_for_every_attribute(
        self,
        kernel: list[int],
        stride: int,
        dilation: int,
        pad: int | None,
        groups: int,
        has_bias: bool,
        length: int,
    ) -> None:
        edge = [dilation * (k - 1) // 2 if pad is None else pad for k in kernel]
        reach = [dilation * (k - 1) + 1 - 2 * e for k, e in zip(kernel, edge, strict=True)]
        assume(all(length >= r for r in reach))
        x = normal(0, 2 * groups, *[length] * len(kernel))
        weight, bias = normal(1, 3 * groups, 2, *kernel), normal(2, 3 * groups)
        tensors = {"weight": weight, **({"bias": bias} if has_bias else {})}
        found = ops(**tensors).conv(
            x,
            "c",
            kernel=tuple(kernel),
            stride=stride,
            dilation=dilation,
            pad=pad,
            groups=groups,
            channels=3 * groups,
        )
        conv = functional.conv1d if len(kernel) == 1 else functional.conv2d
        expected = conv(
            torch_of(x),
            torch.from_numpy(weight),
            torch.from_numpy(bias) if has_bias else None,
            stride,
            edge,
            dilation,
            groups,
        )[0]
        assert found.shape == tuple(expected.shape)
        close(found, expected)

    def test_takes_another_number_for_every_axis(self) -> None:
        x, weight = normal(0, 2, 9, 12), normal(1, 4, 2, 3, 5)
        found = ops(weight=weight).conv(
            x, "c", kernel=(3, 5), stride=(2, 1), dilation=(1, 2), pad=(0, 3)
        )
        expected = functional.conv2d(
            torch_of(x), torch.from_numpy(weight), None, (2, 1), (0, 3), (1, 2)
        )[0]
        close(found, expected)

    def test_reflects_at_the_edges_as_torch_does(self) -> None:
        x, weight = normal(0, 2, 9), normal(1, 4, 2, 5)
        found = ops(weight=weight).conv(x, "c", kernel=(5,), dilation=2, pad_mode="reflect")
        padded = functional.pad(torch_of(x), (4, 4), mode="reflect")
        expected = functional.conv1d(padded, torch.from_numpy(weight), dilation=2)[0]
        close(found, expected)

    def test_a_vector_is_a_sequence_of_one_step(self) -> None:
        x, weight, bias = normal(0, 3), normal(1, 4, 3, 1), normal(2, 4)
        found = ops(weight=weight, bias=bias).conv(x, "c", kernel=(1,))
        close(found, weight[:, :, 0] @ x + bias)

    def test_a_stated_stride_stands_above_the_forwards(self) -> None:
        x, weight = normal(0, 2, 9), normal(1, 4, 2, 3)
        stated = ops(stride=3, weight=weight).conv(x, "c", kernel=(3,), stride=1)
        plain = ops(weight=weight).conv(x, "c", kernel=(3,), stride=3)
        np.testing.assert_array_equal(stated, plain)
        assert stated.shape == (4, 3)

    def test_fuses_a_weight_norm_pair(self) -> None:
        x, v, g = normal(0, 2, 9), normal(1, 4, 2, 3), normal(2, 4, 1, 1)
        found = ops(weight_v=v, weight_g=g).conv(x, "c", kernel=(3,))
        weight = torch._weight_norm(torch.from_numpy(v), torch.from_numpy(g), 0)
        close(found, functional.conv1d(torch_of(x), weight, None, 1, 1)[0])

    def test_computes_float32_weights_in_float64(self) -> None:
        x, weight, bias = normal(0, 2, 9), normal(1, 4, 2, 3), normal(2, 4)
        half, quarter = weight.astype(np.float32), bias.astype(np.float32)
        found = ops(weight=half, bias=quarter).conv(x, "c", kernel=(3,))
        wide = ops(weight=half.astype(np.float64), bias=quarter.astype(np.float64))
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, wide.conv(x, "c", kernel=(3,)))


class TestNorms:
    @pytest.mark.parametrize("shape", [(4,), (4, 9), (4, 3, 5)])
    @pytest.mark.parametrize("affine", [True, False])
    def test_bn_is_torchs_with_and_without_its_affine_part(
        self, shape: tuple[int, ...], affine: bool
    ) -> None:
        x, scale, bias, mean = normal(0, *shape), normal(1, 4), normal(2, 4), normal(3, 4)
        var = np.square(normal(4, 4)) + 0.1
        tensors = {"mean": mean, "var": var}
        tensors |= {"scale": scale, "bias": bias} if affine else {}
        o = ops(constants={"bn.eps": 1e-3}, **tensors)
        found = o.bn(x, "n")
        expected = functional.batch_norm(
            torch_of(x),
            *(torch.from_numpy(a) for a in (mean, var)),
            *((torch.from_numpy(a) for a in (scale, bias)) if affine else (None, None)),
            eps=1e-3,
        )[0]
        close(found, expected)
        assert o.used == {"n", "bn.eps"}

    def test_layer_norm_is_torchs_over_channels(self) -> None:
        x, weight, bias = normal(0, 6, 9), normal(1, 6), normal(2, 6)
        found = ops(weight=weight, bias=bias).layer_norm(x, "n", 1e-3)
        expected = functional.layer_norm(
            torch_of(x).mT, (6,), torch.from_numpy(weight), torch.from_numpy(bias), 1e-3
        ).mT[0]
        close(found, expected)

    def test_instance_norm_is_torchs_group_norm_of_one_channel_each(self) -> None:
        x, weight, bias = normal(0, 6, 9), normal(1, 6), normal(2, 6)
        found = ops(weight=weight, bias=bias).instance_norm(x, "n", 1e-3)
        expected = functional.group_norm(
            torch_of(x), 6, torch.from_numpy(weight), torch.from_numpy(bias), 1e-3
        )[0]
        close(found, expected)

    def test_standardize_is_over_all_elements(self) -> None:
        x = normal(0, 40)
        found = ops().standardize(x, 1e-3)
        close(found, functional.layer_norm(torch_of(x), (40,), eps=1e-3)[0])


class TestLinear:
    @pytest.mark.parametrize("shape", [(5,), (5, 7)])
    @pytest.mark.parametrize("has_bias", [True, False])
    def test_is_torchs(self, shape: tuple[int, ...], has_bias: bool) -> None:
        x, weight, bias = normal(0, *shape), normal(1, 3, 5), normal(2, 3)
        tensors = {"weight": weight, **({"bias": bias} if has_bias else {})}
        found = ops(**tensors).linear(x, "l")
        expected = functional.linear(
            torch.from_numpy(x.T),
            torch.from_numpy(weight),
            torch.from_numpy(bias) if has_bias else None,
        )
        close(found.T, expected)

    @pytest.mark.parametrize("shape", [(5,), (1, 5), (1,), ()])
    def test_subtract_takes_a_vector_or_one_number(self, shape: tuple[int, ...]) -> None:
        x, offset = normal(0, 5), normal(1, *shape)
        found = ops(offset=offset).subtract(x, "m")
        np.testing.assert_array_equal(found, x - offset.reshape(-1))
        assert found.shape == (5,)

    def test_weighted_sum_weighs_by_the_softmax(self) -> None:
        xs, value = [normal(i, 3, 4) for i in range(3)], normal(9, 3)
        found = ops(value=value).weighted_sum(xs, "w")
        shares = torch.from_numpy(value).softmax(0)
        expected = (torch.from_numpy(np.stack(xs)) * shares[:, None, None]).sum(0)
        close(found, expected)


X = normal(7, 4, 9) * 5
UNARY: list[tuple[Callable[[NumpyOps], Array], Callable[[torch.Tensor], torch.Tensor]]] = [
    (lambda o: o.relu(X), functional.relu),
    (lambda o: o.gelu(X), functional.gelu),
    (lambda o: o.silu(X), functional.silu),
    (lambda o: o.tanh(X), torch.tanh),
    (lambda o: o.sigmoid(X), torch.sigmoid),
    (lambda o: o.softmax(X), lambda t: t.softmax(-1)),
    (lambda o: o.clip(X, "bound"), lambda t: functional.hardtanh(t, 0.0, 2.5)),
    (lambda o: o.mean(X), lambda t: t.mean(-1)),
    (lambda o: o.add_scalar(X, 1.5), lambda t: t + 1.5),
    (lambda o: o.subtract_from(2.0, X), lambda t: 2.0 - t),
    (lambda o: o.drop_last(X, 2), lambda t: t[..., :-2]),
    (lambda o: o.channel(X), lambda t: t.unsqueeze(1)),
    (lambda o: o.merge_frequency(o.channel(X)), lambda t: t.unsqueeze(1).flatten(1, 2)),
    (lambda o: o.add(X, 2 * X), lambda t: 3 * t),
    (lambda o: o.mul(X, X), lambda t: t * t),
    (lambda o: o.mul(X, X[:, :1]), lambda t: t * t[..., :1]),
    (lambda o: o.mul(X[:1], X), lambda t: t * t[:, :1]),
    (lambda o: o.concat([X, X[:2]]), lambda t: torch.cat([t, t[:, :2]], 1)),
    (lambda o: o.split(X, 2)[1], lambda t: t.chunk(2, 1)[1]),
    (lambda o: o.spread(X[:, 0], X), lambda t: t[..., :1].expand_as(t)),
    (lambda o: o.subtract_value(X, 3 * X), lambda t: -2 * t),
    (lambda o: o.stack([X, 2 * X]), lambda t: torch.stack([t, 2 * t], 1)),
    (lambda o: o.unstack(X, 4)[2], lambda t: t[:, 2]),
    # Channel c * size + j of a patch is sample j: the inverse of a pixel shuffle in one dimension.
    (lambda o: o.patch(X, 3), lambda t: t.unfold(-1, 3, 3).transpose(-1, -2).reshape(1, 12, 3)),
    (lambda o: o.unpatch(o.patch(X, 3), 3), lambda t: t),
    (lambda o: o.unpatch(X, 2), lambda t: t.reshape(1, 2, 2, 9).mT.reshape(1, 2, 18)),
    (lambda o: o.mask_padding(X), lambda t: t),
    (lambda o: o.attention(X, X, X, 2, 1), lambda t: t),
    (lambda o: o.attention(X, X, X, 2), lambda t: functional.scaled_dot_product_attention(
        *[t.reshape(1, 2, 2, 9).mT] * 3).mT.reshape(1, 4, 9)),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs"), UNARY)
def test_operations_without_weights_are_torchs(
    ours: Callable[[NumpyOps], Array], theirs: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    found, expected = ours(ops(constants={"bound": 2.5})), theirs(torch_of(X))[0]
    assert found.shape == tuple(expected.shape)
    close(found, expected)


def test_sigmoid_does_not_overflow() -> None:
    found = ops().sigmoid(np.array([-1e4, 0.0, 1e4]))
    np.testing.assert_allclose(found, [0.0, 0.5, 1.0], atol=1e-12)


class TestCodebooks:
    BOOK = normal(3, 8, 4)

    def test_nearest_gives_codes_and_keeps_the_margins(self) -> None:
        o = ops(value=self.BOOK)
        codes = o.nearest(self.BOOK[[5, 0, 7]].T * 2.0, "book")
        assert codes.tolist() == [5, 0, 7]
        assert set(o.margins) == {"book"}
        assert (o.margins["book"] > 0).all()

    def test_lookup_gives_the_rows_as_they_are_stored(self) -> None:
        found = ops(value=self.BOOK).lookup(np.array([5.0, 0.0, 5.0]), "book")
        np.testing.assert_array_equal(found, self.BOOK[[5, 0, 5]].T)

    def test_scale_is_one_factor_per_channel(self) -> None:
        x, factor = normal(0, 4, 9), normal(1, 4)
        np.testing.assert_array_equal(ops(value=factor).scale(x, "s"), x * factor[:, None])

    @pytest.mark.parametrize(("valid", "kept"), [(None, 9), (9, 9), (20, 9), (6, 6), (0, 0)])
    def test_frames_of_padding_are_masked(self, valid: int | None, kept: int) -> None:
        o = NumpyOps(Held(), {}, valid_frames=valid)
        found = o.mask_padding(X)
        np.testing.assert_array_equal(found[:, :kept], X[:, :kept])
        assert not found[:, kept:].any()


class TestStatistics:
    def test_weighs_every_frame_alike_or_by_attention(self) -> None:
        x, weights = normal(0, 3, 8), np.random.default_rng(1).dirichlet(np.ones(8), 3)
        mean, std = np.split(ops().statistics(x, None, floor=0.0), 2)
        close(mean, x.mean(1))
        close(std, x.std(1))
        mean, std = np.split(ops().statistics(x, weights, floor=0.0), 2)
        for row in range(3):
            expected = np.average(x[row], weights=weights[row])
            close(mean[row], expected)
            spread = np.cov(x[row], aweights=weights[row], ddof=0)
            close(std[row], np.sqrt(spread))

    def test_the_variance_has_a_floor(self) -> None:
        found = ops().statistics(np.full((2, 5), 3.0), None, floor=0.25)
        close(found, [3.0, 3.0, 0.5, 0.5])


class TestStages:
    def test_what_the_callback_returns_goes_on(self) -> None:
        seen: list[tuple[str, float]] = []

        def replace(name: str, x: Array) -> Array:
            seen.append((name, float(x[0])))
            return x * 10

        o = NumpyOps(Held(), {}, replace)
        out = o.stage(o.relu(o.stage(np.ones(1), "a")), "b")
        assert seen == [("a", 1.0), ("b", 10.0)]
        assert out.tolist() == [100.0]

    def test_without_a_callback_it_is_the_value_itself(self) -> None:
        x = np.ones(1)
        assert ops().stage(x, "a") is x


class TestIslands:
    def test_get_their_own_constants(self) -> None:
        o = ops(constants={"tstp.eps": 0.25, "stats.eps": 9.0, "relu_clamp": 20.0})
        found = o.island(np.zeros((1, 2, 4)), "tstp")
        np.testing.assert_allclose(found, [0, 0, 0.5, 0.5])
        assert o.used == {"tstp.eps"}

    def test_a_segment_pooling_has_a_rule(self) -> None:
        o = ops(constants={"cam.segment": 100.0, "cam.valid": 1.0})
        np.testing.assert_allclose(o.island(np.ones((2, 149)), "cam"), 2.0)


class TestUsed:
    def test_a_bound_counts_only_where_it_cut_something(self) -> None:
        o = ops(constants={"bound": 2.0})
        o.clip(np.array([-5.0, 1.0, 2.0]), "bound")
        assert o.used == set()
        o.clip(np.array([2.1]), "bound")
        assert o.used == {"bound"}

    def test_slots_are_counted(self) -> None:
        o = ops(weight=normal(0, 3, 5), offset=normal(1, 3))
        o.subtract(o.linear(normal(2, 5), "seg"), "mean")
        assert o.used == {"seg", "mean"}


W3 = normal(1, 4, 3, 3)
B4 = normal(2, 4)


@pytest.mark.parametrize(
    ("tensors", "call", "said"),
    [
        ({}, lambda o: o.conv(normal(0, 3, 9), "s", kernel=(3,)), "s has no weight"),
        ({"weight": W3}, lambda o: o.conv(normal(0, 3, 9), "s", kernel=(5,)), "weight of s"),
        ({"weight": W3}, lambda o: o.conv(normal(0, 4, 9), "s", kernel=(3,)), "weight of s"),
        ({"weight": W3}, lambda o: o.conv(normal(0, 3, 9), "s", kernel=(3,), channels=5), "weight"),
        ({"weight": W3}, lambda o: o.conv(normal(0, 3, 9, 9), "s", kernel=(3, 3)), "weight of s"),
        ({"weight": W3, "bias": normal(0, 5)},
         lambda o: o.conv(normal(0, 3, 9), "s", kernel=(3,)), "bias of s"),
        ({"weight": W3}, lambda o: o.conv(normal(0, 3, 2), "s", kernel=(3,), pad=0), "input of s"),
        ({"weight": W3}, lambda o: o.conv(normal(0, 3, 2), "s", kernel=(3,), dilation=2,
                                          pad_mode="reflect"), "reflected"),
        ({"weight": normal(0, 4, 2, 3)},
         lambda o: o.conv(normal(0, 5, 9), "s", kernel=(3,), groups=2), "s"),
        ({"weight": normal(0, 5, 2, 3)},
         lambda o: o.conv(normal(0, 4, 9), "s", kernel=(3,), groups=2), "s"),
        ({"weight_g": normal(0, 4, 1, 1)},
         lambda o: o.conv(normal(0, 3, 9), "s", kernel=(3,)), "s has no weight_v"),
        ({"weight_g": normal(0, 5, 1, 1), "weight_v": W3},
         lambda o: o.conv(normal(0, 3, 9), "s", kernel=(3,)), "s"),
        ({"mean": B4}, lambda o: o.bn(normal(0, 4, 9), "s"), "s has no var"),
        ({"mean": B4, "var": B4**2, "scale": B4}, lambda o: o.bn(normal(0, 4, 9), "s"),
         "s has no bias"),
        ({"mean": B4, "var": B4**2}, lambda o: o.bn(normal(0, 5, 9), "s"), "mean of s"),
        ({"mean": normal(0, 1), "var": B4**2}, lambda o: o.bn(normal(0, 4, 9), "s"), "mean of s"),
        ({"weight": normal(0, 3, 5)}, lambda o: o.linear(normal(0, 4), "s"), "weight of s"),
        ({"weight": normal(0, 3, 4), "bias": normal(0, 1)},
         lambda o: o.linear(normal(0, 4), "s"), "bias of s"),
        ({"offset": normal(0, 3)}, lambda o: o.subtract(normal(0, 4), "s"), "offset of s"),
        ({"weight": B4}, lambda o: o.layer_norm(normal(0, 4, 9), "s", 0.1), "bias of s"),
        ({"weight": B4, "bias": B4[:1]},
         lambda o: o.layer_norm(normal(0, 4, 9), "s", 0.1), "bias of s"),
        ({"weight": B4[:1], "bias": B4},
         lambda o: o.instance_norm(normal(0, 4, 9), "s", 0.1), "weight of s"),
        ({"value": normal(0, 3)},
         lambda o: o.weighted_sum([normal(0, 4)] * 2, "s"), "s does not fit"),
        ({"value": normal(0, 2)},
         lambda o: o.weighted_sum([normal(0, 4), normal(0, 5)], "s"), "s"),
        ({}, lambda o: o.add(normal(0, 4), normal(0, 5)), "addition"),
        ({}, lambda o: o.add(normal(0, 4, 1), normal(0, 4, 5)), "addition"),
        ({}, lambda o: o.mul(normal(0, 4), normal(0, 5)), "product"),
        ({}, lambda o: o.mul(normal(0, 4, 4), normal(0, 4)), "product"),
        ({}, lambda o: o.concat([normal(0, 4, 5), normal(0, 4, 6)]), "concatenation"),
        ({}, lambda o: o.concat([normal(0, 4, 5), normal(0, 4)]), "concatenation"),
        ({}, lambda o: o.split(normal(0, 5), 2), "split in 2"),
        ({}, lambda o: o.attention(*[normal(0, 5, 4)] * 3, 2), "heads"),
        ({}, lambda o: o.rotary(normal(0, 6, 4), 2, 10.0), "heads"),
        ({}, lambda o: o.patch(normal(0, 2, 7), 3), "patch by 3"),
        ({}, lambda o: o.unpatch(normal(0, 4, 7), 3), "unpatch by 3"),
        ({}, lambda o: o.subtract_value(normal(0, 4), normal(0, 5)), "subtraction"),
        ({}, lambda o: o.unstack(normal(0, 4), 3), "parts"),
        ({"value": normal(0, 3)}, lambda o: o.scale(normal(0, 4, 9), "s"), "s does not fit"),
        ({"value": normal(0, 8, 3)}, lambda o: o.nearest(normal(0, 4, 9), "s"), "s does not fit"),
        ({"value": normal(0, 8, 3)}, lambda o: o.lookup(np.array([0, 8]), "s"), "code of s"),
        ({"value": normal(0, 8, 3)}, lambda o: o.lookup(np.array([-1, 0]), "s"), "code of s"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_no_traceback_of_numpy(
    tensors: dict[str, Array], call: Callable[[NumpyOps], Any], said: str
) -> None:
    with pytest.raises(UnsupportedError, match=said) as caught:
        call(ops(constants={"bn.eps": 1e-5}, **tensors))
    assert caught.value.expected
