"""Slots bound by name: every role has torch's suffix, and what is missing is named."""

from __future__ import annotations

import pytest

from graphtools.errors import UnsupportedError
from graphtools.match import Role
from graphtools.names import SUFFIXES, bind_names, require_ranks
from graphtools.ops import Ops, X
from graphtools.trace import trace


def forward(o: Ops[X], x: X) -> X:
    x = o.bn(o.conv(x, "a.conv", kernel=(3,)), "a.norm")
    x = o.layer_norm(x, "b.norm", 1e-5)
    x = o.weighted_sum([x, x], "weights")
    return o.linear(o.mean(x), "head")


NAMES = [
    *("head.weight", "head.bias", "weights", "b.norm.bias", "b.norm.weight", "a.conv.weight"),
    *(f"a.norm.{part}" for part in ("weight", "bias", "running_mean", "running_var")),
    "a.norm.num_batches_tracked",
]


def without(*names: str) -> list[str]:
    return [name for name in NAMES if name not in names]


def test_slots_bind_in_pull_order_whatever_the_order_of_names() -> None:
    assert list(bind_names(trace(forward), NAMES).items()) == [
        (("a.conv", "weight"), "a.conv.weight"),
        (("a.norm", "scale"), "a.norm.weight"),
        (("a.norm", "bias"), "a.norm.bias"),
        (("a.norm", "mean"), "a.norm.running_mean"),
        (("a.norm", "var"), "a.norm.running_var"),
        (("b.norm", "weight"), "b.norm.weight"),
        (("b.norm", "bias"), "b.norm.bias"),
        (("weights", "value"), "weights"),
        (("head", "weight"), "head.weight"),
        (("head", "bias"), "head.bias"),
    ]


def test_scales_and_codebooks_are_one_tensor_each() -> None:
    def codec(o: Ops[X], x: X) -> X:
        return o.scale(o.lookup(o.nearest(x, "q.book"), "q.book"), "layer_scale.scale")

    names = ["layer_scale.scale", "q.book.weight"]
    assert bind_names(trace(codec), names) == {
        ("q.book", "value"): "q.book.weight",
        ("layer_scale.scale", "value"): "layer_scale.scale",
    }
    with pytest.raises(UnsupportedError, match=r"no tensor 'only\.read\.weight'"):
        bind_names(trace(lambda o, x: o.lookup(x, "only.read")), names)


def test_a_bias_of_a_convolution_or_a_linear_layer_may_be_missing() -> None:
    bound = bind_names(trace(forward), without("head.bias"))
    assert ("head", "bias") not in bound
    assert ("a.conv", "bias") not in bound


@pytest.mark.parametrize(
    ("without_bias", "missing"),
    [((), "a.conv.bias"), (("head",), "a.conv.bias"), (("a.conv",), "head.bias")],
)
def test_where_it_is_known_which_layers_have_a_bias_a_lost_one_is_named(
    without_bias: tuple[str, ...], missing: str
) -> None:
    names = without("head.bias")
    with pytest.raises(UnsupportedError, match=f"no tensor '{missing}'"):
        bind_names(trace(forward), names, without_bias=without_bias)
    assert bind_names(trace(forward), names, without_bias=("a.conv", "head"))


SHAPES = {
    **dict.fromkeys(NAMES, (4,)),
    "a.conv.weight": (4, 2, 3),
    "head.weight": (5, 4),
}


def test_tensors_with_the_axes_of_their_places_pass() -> None:
    template = trace(forward)
    require_ranks(template, bind_names(template, SHAPES), SHAPES)


@pytest.mark.parametrize("shape", [(), (4, 4, 4, 4)])
@pytest.mark.parametrize("name", [n for n in NAMES if "num_batches" not in n])
def test_a_tensor_with_more_or_fewer_axes_is_named(name: str, shape: tuple[int, ...]) -> None:
    template, shapes = trace(forward), {**SHAPES, name: shape}
    with pytest.raises(UnsupportedError, match=f"'{name}' has another number of axes") as caught:
        require_ranks(template, bind_names(template, shapes), shapes)
    assert caught.value.found == f"shape {list(shape)}"


def test_a_weight_norm_pair_stands_for_the_weight() -> None:
    names = [*without("a.conv.weight"), "a.conv.weight_g", "a.conv.weight_v", "a.conv.bias"]
    roles: list[Role] = [r for s, r in bind_names(trace(forward), names) if s == "a.conv"]
    assert roles == ["weight_g", "weight_v", "bias"]


@pytest.mark.parametrize(
    ("names", "missing", "where"),
    [
        (without("a.conv.weight"), "a.conv.weight", "weight of a.conv (conv)"),
        (without("a.norm.running_var"), "a.norm.running_var", "var of a.norm (bn)"),
        (without("b.norm.bias"), "b.norm.bias", "bias of b.norm (layer_norm)"),
        (without("weights"), "weights", "value of weights (weighted_sum)"),
        (
            [*without("a.conv.weight"), "a.conv.weight_g"],
            "a.conv.weight_v",
            "weight_v of a.conv (conv)",
        ),
    ],
)
def test_a_missing_tensor_is_named_with_its_place(
    names: list[str], missing: str, where: str
) -> None:
    with pytest.raises(UnsupportedError, match=f"no tensor '{missing}'") as caught:
        bind_names(trace(forward), names)
    assert caught.value.where == where


def test_every_kind_of_slot_has_suffixes_and_no_two_roles_share_one() -> None:
    for kind, roles in SUFFIXES.items():
        assert len(set(roles.values())) == len(roles), kind
    assert {"conv", "linear", "bn"} <= set(SUFFIXES)


def test_all_that_is_missing_is_listed() -> None:
    with pytest.raises(UnsupportedError, match=r"'a\.norm\.running_mean'") as caught:
        bind_names(trace(forward), without("a.norm.running_mean", "weights"))
    assert caught.value.found == "without a tensor: a.norm.running_mean, weights"
    with pytest.raises(UnsupportedError) as caught:
        bind_names(trace(forward), [])
    assert str(caught.value.found).endswith("a.norm.running_var .. 9 in all")
