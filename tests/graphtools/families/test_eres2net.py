"""ERes2Net: its pull order, its configuration, and what is read from a graph."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np
import pytest

from graphtools.families import FAMILIES
from graphtools.families.eres2net import Config, guess
from graphtools.graph import Graph
from graphtools.recover import Recovered

Known = Callable[[str], Recovered]
Parse = Callable[..., Graph]

# Stem. Layers 1 and 2: per block conv1, the 3x3 conv of each chunk, conv3, then the shortcut
# where there is one. Layers 3 and 4: before the 3x3 conv of every chunk after the first come the
# two convs of its fusion. After layer n > 1: the downsample of what was fused so far, and the two
# convs of that fusion.
_PULL_ORDER = """
stem
layer1.0.conv1 layer1.0.convs.0 layer1.0.convs.1 layer1.0.conv3 layer1.0.shortcut
layer1.1.conv1 layer1.1.convs.0 layer1.1.convs.1 layer1.1.conv3
layer1.2.conv1 layer1.2.convs.0 layer1.2.convs.1 layer1.2.conv3
layer2.0.conv1 layer2.0.convs.0 layer2.0.convs.1 layer2.0.conv3 layer2.0.shortcut
layer2.1.conv1 layer2.1.convs.0 layer2.1.convs.1 layer2.1.conv3
layer2.2.conv1 layer2.2.convs.0 layer2.2.convs.1 layer2.2.conv3
layer2.3.conv1 layer2.3.convs.0 layer2.3.convs.1 layer2.3.conv3
layer1_downsample fuse1.conv1 fuse1.conv2
layer3.0.conv1 layer3.0.convs.0 layer3.0.fuse0.conv1 layer3.0.fuse0.conv2 layer3.0.convs.1
layer3.0.conv3 layer3.0.shortcut
layer3.1.conv1 layer3.1.convs.0 layer3.1.fuse0.conv1 layer3.1.fuse0.conv2 layer3.1.convs.1
layer3.1.conv3
layer3.2.conv1 layer3.2.convs.0 layer3.2.fuse0.conv1 layer3.2.fuse0.conv2 layer3.2.convs.1
layer3.2.conv3
layer3.3.conv1 layer3.3.convs.0 layer3.3.fuse0.conv1 layer3.3.fuse0.conv2 layer3.3.convs.1
layer3.3.conv3
layer3.4.conv1 layer3.4.convs.0 layer3.4.fuse0.conv1 layer3.4.fuse0.conv2 layer3.4.convs.1
layer3.4.conv3
layer3.5.conv1 layer3.5.convs.0 layer3.5.fuse0.conv1 layer3.5.fuse0.conv2 layer3.5.convs.1
layer3.5.conv3
layer2_downsample fuse2.conv1 fuse2.conv2
layer4.0.conv1 layer4.0.convs.0 layer4.0.fuse0.conv1 layer4.0.fuse0.conv2 layer4.0.convs.1
layer4.0.conv3 layer4.0.shortcut
layer4.1.conv1 layer4.1.convs.0 layer4.1.fuse0.conv1 layer4.1.fuse0.conv2 layer4.1.convs.1
layer4.1.conv3
layer4.2.conv1 layer4.2.convs.0 layer4.2.fuse0.conv1 layer4.2.fuse0.conv2 layer4.2.convs.1
layer4.2.conv3
layer3_downsample fuse3.conv1 fuse3.conv2
"""
PULL_ORDER = _PULL_ORDER.split()
_STAGES = """
stem layer1.0 layer1.1 layer1.2 layer2.0 layer2.1 layer2.2 layer2.3 fuse1
layer3.0 layer3.1 layer3.2 layer3.3 layer3.4 layer3.5 fuse2 layer4.0 layer4.1 layer4.2 fuse3
pooled encoder_out
"""
STAGES = _STAGES.split()
DOWNSAMPLES = ["layer1_downsample", "layer2_downsample", "layer3_downsample"]


def test_pull_order(recovered: Known) -> None:
    net = recovered("eres2net_tiny")
    template = FAMILIES["eres2net"].template(net.config)
    assert [step.slot for step in template.slots("conv")] == PULL_ORDER
    assert list(net.binding.layers) == [*PULL_ORDER, "seg"]
    assert len(PULL_ORDER) == 96


def test_attributes_of_the_convolutions(recovered: Known) -> None:
    template = FAMILIES["eres2net"].template(recovered("eres2net_tiny").config)
    by_slot = {step.slot: step for step in template.slots("conv")}
    three = {s for s in by_slot if s == "stem" or ".convs." in s or s in DOWNSAMPLES}
    assert {slot for slot, step in by_slot.items() if step.kernel == (3, 3)} == three
    assert {by_slot[slot].kernel for slot in set(by_slot) - three} == {(1, 1)}
    strided = {f"layer{n}.0.{part}" for n in (2, 3, 4) for part in ("conv1", "shortcut")}
    assert {slot for slot, step in by_slot.items() if step.stride == (2, 2)} == {
        *strided,
        *DOWNSAMPLES,
    }
    assert {step.stride for step in by_slot.values()} == {(1, 1), (2, 2)}


def test_exactly_the_downsamples_have_no_bias(recovered: Known) -> None:
    layers = recovered("eres2net_tiny").binding.layers
    assert [slot for slot, layer in layers.items() if "bias" not in layer.tensors] == DOWNSAMPLES


def test_stages(recovered: Known) -> None:
    net = recovered("eres2net_tiny")
    assert list(net.binding.stages) == STAGES
    assert net.binding.template.stage_slots()["fuse1"] == (
        "layer1_downsample",
        "fuse1.conv1",
        "fuse1.conv2",
    )


def test_configuration_and_constants(recovered: Known) -> None:
    net = recovered("eres2net_tiny")
    assert net.config == Config(m_channels=4, num_blocks=(3, 4, 6, 3), scale=2)
    assert {c.name: c.value for c in net.binding.constants.values()} == {
        "relu_clamp": 20.0,
        "tstp.eps": float(np.float32(1e-8)),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "channels", "size"),
    [("eres2net_base", 32, 512), ("eres2net_large", 64, 512), ("eres2net_192", 32, 192)],
)
def test_full_size(recovered: Known, name: str, channels: int, size: int) -> None:
    net = recovered(name)
    assert net.config == Config(m_channels=channels, num_blocks=(3, 4, 6, 3), scale=2)
    assert net.binding.layers["seg"].tensors["weight"].shape[0] == size
    assert [s for s, x in net.binding.layers.items() if "bias" not in x.tensors] == DOWNSAMPLES
    assert net.binding.constants["relu_clamp"].value == 20.0
    assert net.binding.constants["tstp.eps"].value == float(np.float32(1e-8))


@pytest.mark.slow
def test_wespeakers_own_class_has_another_epsilon(
    recover_module: Callable[..., Recovered],
) -> None:
    from fixtures import upstream

    net = recover_module(upstream.wespeaker_eres2net(m_channels=4, embed_dim=8), opset=14)
    assert net.family.name == "eres2net"
    assert net.binding.constants["tstp.eps"].value == float(np.float32(1e-7))


@pytest.mark.slow
@pytest.mark.parametrize("num_blocks", [(1, 1, 1, 1), (2, 1, 3, 2)])
def test_blocks_are_counted(
    recover_module: Callable[..., Recovered], num_blocks: tuple[int, int, int, int]
) -> None:
    from fixtures import upstream

    net = recover_module(upstream.eres2net(num_blocks, m_channels=4, embedding_size=8), opset=11)
    assert net.config == Config(4, num_blocks, 2)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [11, 14])
def test_the_scale_is_read(recover_module: Callable[..., Recovered], opset: int) -> None:
    """Four chunks: three fused pairs in every block of the last two layers."""
    from fixtures.upstream import _seeded

    upstream = importlib.import_module("speakerlab.models.eres2net.ERes2Net")

    def block(base: type) -> type:
        return type(base.__name__, (base,), {"__init__": _with_scale(base, 4)})

    def make() -> object:
        return upstream.ERes2Net(
            block=block(upstream.BasicBlockERes2Net),
            block_fuse=block(upstream.BasicBlockERes2Net_diff_AFF),
            num_blocks=[1, 1, 1, 1],
            m_channels=8,
            feat_dim=80,
            embedding_size=8,
        )

    net = recover_module(_seeded(make, 0), opset=opset)  # type: ignore[arg-type]
    assert net.config == Config(8, (1, 1, 1, 1), 4)
    slots = [s for s in net.binding.layers if s.startswith("layer3.0.")]
    assert slots == [
        f"layer3.0.{part}"
        for part in ("conv1", "convs.0", "fuse0.conv1", "fuse0.conv2", "convs.1", "fuse1.conv1",
                     "fuse1.conv2", "convs.2", "fuse2.conv1", "fuse2.conv2", "convs.3", "conv3",
                     "shortcut")
    ]  # fmt: skip


def _with_scale(base: type, scale: int) -> Callable[..., None]:
    def init(self: object, *arguments: object, **keywords: object) -> None:
        base.__init__(self, *arguments, **{**keywords, "scale": scale})  # type: ignore[misc]

    return init


def test_the_usual_configuration_is_offered_for_any_graph(parse: Parse) -> None:
    graph = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    assert list(guess(graph)) == [Config(32, (3, 4, 6, 3), 2)]
