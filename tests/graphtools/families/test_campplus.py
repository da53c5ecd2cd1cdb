"""CAM++: its pull order, its configuration, and what is read from a graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from graphtools.families import FAMILIES
from graphtools.families.campplus import Config
from graphtools.recover import Recovered

Known = Callable[[str], Recovered]

# The front: stem; two stages of two blocks, the first of each with a shortcut; one more conv.
_FRONT = """
fcm.stem
fcm.layer1.0.conv1 fcm.layer1.0.conv2 fcm.layer1.0.shortcut
fcm.layer1.1.conv1 fcm.layer1.1.conv2
fcm.layer2.0.conv1 fcm.layer2.0.conv2 fcm.layer2.0.shortcut
fcm.layer2.1.conv1 fcm.layer2.1.conv2
fcm.conv
"""
FRONT = _FRONT.split()
# A layer of a dense block: the kept norm, conv, linear_local, and the mask's two convs.
LAYER = ["bn", "conv", "linear_local", "mask1", "mask2"]


def dense(block: int, layers: int) -> list[str]:
    """A block's layers, then its transit."""
    slots = [f"block{block}.{index}.{part}" for index in range(layers) for part in LAYER]
    return [*slots, f"transit{block}.bn", f"transit{block}.conv"]


# Front, TDNN, three dense blocks of 12, 24 and 16 layers, the last layer and its norm.
PULL_ORDER = [*FRONT, "tdnn", *dense(1, 12), *dense(2, 24), *dense(3, 16), "dense", "emb_bn"]
STAGES = [
    "fcm",
    "tdnn",
    *(f"block1.{i}" for i in range(12)),
    "transit1",
    *(f"block2.{i}" for i in range(24)),
    "transit2",
    *(f"block3.{i}" for i in range(16)),
    "transit3",
    "pooled",
    "encoder_out",
]


def test_pull_order(recovered: Known) -> None:
    net = recovered("campplus_tiny")
    template = FAMILIES["campplus"].template(net.config)
    assert [step.slot for step in template.slots()] == PULL_ORDER
    assert list(net.binding.layers) == PULL_ORDER
    assert len(template.slots("conv")) == 225
    assert len(template.slots("bn")) == 56
    assert len(template.slots()) == 225 + 56


def test_norms_are_those_that_upstream_calls_so(recovered: Known) -> None:
    """The export keeps upstream's names for what it could not fold; they give the place away."""
    net = recovered("campplus_tiny")
    names = {}
    for block, layers in enumerate((12, 24, 16), start=1):
        for index in range(layers):
            names[f"block{block}.{index}.bn"] = f"block{block}.tdnnd{index + 1}.nonlinear1"
        names[f"transit{block}.bn"] = f"transit{block}.nonlinear"
    for slot, name in names.items():
        tensors = net.binding.layers[slot].tensors
        assert {role: t.name for role, t in tensors.items()} == {
            "scale": f"xvector.{name}.batchnorm.weight",
            "bias": f"xvector.{name}.batchnorm.bias",
            "mean": f"xvector.{name}.batchnorm.running_mean",
            "var": f"xvector.{name}.batchnorm.running_var",
        }
    for block, layers in enumerate((12, 24, 16), start=1):
        for index in range(layers):
            layer = f"xvector.block{block}.tdnnd{index + 1}.cam_layer"
            for slot, part in (("linear_local", "linear_local"), ("mask1", "linear1")):
                tensors = net.binding.layers[f"block{block}.{index}.{slot}"].tensors
                assert tensors["weight"].name == f"{layer}.{part}.weight"


def test_attributes_of_the_convolutions(recovered: Known) -> None:
    template = FAMILIES["campplus"].template(recovered("campplus_tiny").config)
    by_slot = {step.slot: step for step in template.slots("conv")}
    # Strides of the front are on the frequency axis alone.
    strided = [f"fcm.layer{n}.0.{part}" for n in (1, 2) for part in ("conv1", "shortcut")]
    assert {s for s, step in by_slot.items() if step.stride == (2, 1)} == {*strided, "fcm.conv"}
    assert (by_slot["tdnn"].kernel, by_slot["tdnn"].stride) == ((5,), (2,))
    for block, dilation in ((1, 1), (2, 2), (3, 2)):
        local = by_slot[f"block{block}.3.linear_local"]
        assert (local.kernel, local.dilation, local.pad) == ((3,), (dilation,), (dilation,))
    others = [s for s in by_slot if s.endswith((".conv", "mask1", "mask2")) and "fcm" not in s]
    assert {by_slot[s].kernel for s in [*others, "dense"]} == {(1,)}


def test_stages(recovered: Known) -> None:
    net = recovered("campplus_tiny")
    assert list(net.binding.stages) == STAGES
    assert net.binding.template.stage_slots()["transit1"] == ("transit1.bn", "transit1.conv")


def test_the_value_after_a_transit_is_its_convs_but_the_last_has_an_activation(
    recovered: Known,
) -> None:
    net = recovered("campplus_tiny")
    ops = [net.graph.producers[net.binding.stages[f"transit{n}"]].op for n in (1, 2, 3)]
    assert ops == ["Conv", "Conv", "Relu"]
    assert net.graph.producers[net.binding.stages["block1.0"]].op == "Concat"
    assert net.graph.producers[net.binding.stages["fcm"]].op == "Reshape"


def test_configuration_and_constants(recovered: Known) -> None:
    net = recovered("campplus_tiny")
    assert net.config == Config()
    assert {c.name: c.value for c in net.binding.constants.values()} == {
        "bn.eps": float(np.float32(1e-5)),
        "cam.segment": 100.0,
        "stats.eps": 0.0,
    }
    assert [kind for kind, _ in net.binding.regions] == ["cam"] * 52 + ["stats"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"), [("campplus_192", 192), ("campplus_512", 512), ("campplus_merged", 192)]
)
def test_full_size(recovered: Known, name: str, size: int) -> None:
    net = recovered(name)
    assert list(net.binding.layers) == PULL_ORDER
    assert net.binding.layers["dense"].tensors["weight"].shape[0] == size
    assert net.binding.constants["bn.eps"].value == float(np.float32(1e-5))


@pytest.mark.slow
def test_merged_parameters_reach_every_place_under_their_own_names(recovered: Known) -> None:
    """A fresh network's byte-equal parameters are stored once and reached through Identity."""
    net = recovered("campplus_merged")
    tensors = [t for layer in net.binding.layers.values() for t in layer.tensors.values()]
    names = [t.name for t in tensors]
    stored = {t.origin() for t in tensors}
    assert len(set(names)) == len(names) > len(stored)
    assert net.binding.layers["block2.7.bn"].tensors["mean"].name == (
        "xvector.block2.tdnnd8.nonlinear1.batchnorm.running_mean"
    )


@pytest.mark.slow
def test_wespeakers_own_class_has_an_epsilon_in_its_pooling(
    recover_module: Callable[..., Recovered],
) -> None:
    from fixtures import upstream

    narrow = {"growth_rate": 2, "init_channels": 4, "fcm_channels": 2, "embed_dim": 8}
    net = recover_module(upstream.wespeaker_campplus(**narrow), opset=13)
    assert net.family.name == "campplus"
    assert net.binding.constants["stats.eps"].value == float(np.float32(1e-7))
