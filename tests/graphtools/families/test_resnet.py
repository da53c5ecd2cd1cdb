"""ResNet of BasicBlocks: its pull order, its configuration, and what is read from a graph."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from graphtools.families import FAMILIES
from graphtools.families.resnet import Block, Config, block_names, guess
from graphtools.graph import Graph, build
from graphtools.recover import Recovered

Known = Callable[[str], Recovered]
Parse = Callable[..., Graph]

# Stem; then per block conv1, conv2, and the 1x1 downsample where there is one.
_PULL_ORDER = """
stem
layer1.0.conv1 layer1.0.conv2
layer1.1.conv1 layer1.1.conv2
layer1.2.conv1 layer1.2.conv2
layer2.0.conv1 layer2.0.conv2 layer2.0.shortcut
layer2.1.conv1 layer2.1.conv2
layer2.2.conv1 layer2.2.conv2
layer2.3.conv1 layer2.3.conv2
layer3.0.conv1 layer3.0.conv2 layer3.0.shortcut
layer3.1.conv1 layer3.1.conv2
layer3.2.conv1 layer3.2.conv2
layer3.3.conv1 layer3.3.conv2
layer3.4.conv1 layer3.4.conv2
layer3.5.conv1 layer3.5.conv2
layer4.0.conv1 layer4.0.conv2 layer4.0.shortcut
layer4.1.conv1 layer4.1.conv2
layer4.2.conv1 layer4.2.conv2
"""
PULL_ORDER = _PULL_ORDER.split()
_STAGES = """
stem
layer1.0 layer1.1 layer1.2
layer2.0 layer2.1 layer2.2 layer2.3
layer3.0 layer3.1 layer3.2 layer3.3 layer3.4 layer3.5
layer4.0 layer4.1 layer4.2
pooled encoder_out
"""
STAGES = _STAGES.split()
STRIDES = [1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1]


def test_pull_order(recovered: Known) -> None:
    net = recovered("resnet34_tiny")
    template = FAMILIES["resnet"].template(net.config)
    assert [step.slot for step in template.slots("conv")] == PULL_ORDER
    assert [step.slot for step in template.slots()] == [*PULL_ORDER, "seg", "mean_vec"]
    assert list(net.binding.layers) == [*PULL_ORDER, "seg", "mean_vec"]
    assert len(PULL_ORDER) == 36


def test_attributes_of_the_convolutions(recovered: Known) -> None:
    template = FAMILIES["resnet"].template(recovered("resnet34_tiny").config)
    by_slot = {step.slot: step for step in template.slots("conv")}
    for slot, step in by_slot.items():
        assert step.kernel == ((1, 1) if slot.endswith("shortcut") else (3, 3))
        assert (step.dilation, step.groups) == ((1, 1), 1)
    strides = [s.stride for slot, s in by_slot.items() if slot.endswith("conv1")]
    assert strides == [(n, n) for n in STRIDES]
    assert {s.stride for slot, s in by_slot.items() if slot.endswith("shortcut")} == {(2, 2)}


def test_stages(recovered: Known) -> None:
    net = recovered("resnet34_tiny")
    assert list(net.binding.stages) == STAGES
    assert net.binding.template.stage_slots()["layer2.0"] == (
        "layer2.0.conv1",
        "layer2.0.conv2",
        "layer2.0.shortcut",
    )


def test_configuration_and_constants(recovered: Known) -> None:
    net = recovered("resnet34_tiny")
    assert net.family.name == "resnet"
    assert [block.stride for block in net.config.blocks] == STRIDES
    assert [block.shortcut for block in net.config.blocks] == [n == 2 for n in STRIDES]
    assert net.config.mean_vec
    # The pooling adds 1e-7 to the variance, which a float32 holds as this.
    assert {c.name: c.value for c in net.binding.constants.values()} == {
        "tstp.eps": float(np.float32(1e-7))
    }
    assert "Add" in net.binding.constants["tstp.eps"].origin


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mean_vec"),
    [("resnet34", True), ("resnet34_zero_mean", True), ("resnet34_no_mean", False)],
)
def test_configuration_with_any_mean_vector(recovered: Known, name: str, mean_vec: bool) -> None:
    net = recovered(name)
    assert net.config == Config(tuple(Block(n, n == 2) for n in STRIDES), mean_vec)
    assert ("mean_vec" in net.binding.layers) == mean_vec
    offset = net.binding.layers["mean_vec"].tensors["offset"].read() if mean_vec else None
    assert offset is None or bool(offset.any()) == (name == "resnet34")
    assert net.binding.constants["tstp.eps"].value == float(np.float32(1e-7))


@pytest.mark.slow
def test_another_depth(recovered: Known) -> None:
    net = recovered("resnet18")
    assert [block.stride for block in net.config.blocks] == [1, 1, 2, 1, 2, 1, 2, 1]
    assert len(net.binding.template.slots("conv")) == 1 + 2 * 8 + 3


@pytest.mark.parametrize(
    ("shortcuts", "names"),
    [
        ([], []),
        ([False, False], ["layer1.0", "layer1.1"]),
        ([True, False], ["layer1.0", "layer1.1"]),
        ([False, True, False], ["layer1.0", "layer2.0", "layer2.1"]),
        ([True, True, True], ["layer1.0", "layer2.0", "layer3.0"]),
    ],
)
def test_a_block_with_a_shortcut_begins_a_layer(shortcuts: list[bool], names: list[str]) -> None:
    config = Config(tuple(Block(1, shortcut) for shortcut in shortcuts), mean_vec=False)
    assert list(block_names(config)) == names


BLOCKS = """
g (float[1, 1, F, T] x) => (float[1, 8] y)
<float[2, 1, 3, 3] w0, float[2, 2, 3, 3] w1, float[2, 2, 3, 3] w2, float[2, 2, 1, 1] w3, float[2] m>
{{
    s = Conv <pads = [1, 1, 1, 1]> (x, w0)
    a = Relu (s)
    h1 = Conv <pads = [1, 1, 1, 1]> (a, w1)
    h2 = Relu (h1)
    h3 = Conv <pads = [1, 1, 1, 1]> (h2, w2)
    h4 = Add (h3, a)
    b = Relu (h4)
    i1 = Conv <pads = [1, 1, 1, 1], strides = [{stride}, {stride}]> (b, w1)
    i2 = Relu (i1)
    i3 = Conv <pads = [1, 1, 1, 1]> (i2, w2)
    i4 = Conv <strides = [{stride}, {stride}]> (b, w3)
    i5 = Add (i4, i3)
    c = Relu (i5)
    y = {last}
}}
"""


class TestGuess:
    @pytest.mark.parametrize("stride", [1, 2, 3])
    def test_reads_strides_and_shortcuts_off_the_spine(self, parse: Parse, stride: int) -> None:
        graph = parse(BLOCKS.format(stride=stride, last="GlobalAveragePool (c)"))
        first = next(iter(guess(graph)))
        assert first == Config((Block(1, False), Block(stride, True)), mean_vec=False)

    def test_reads_the_same_off_every_order_of_nodes(self, parse: Parse) -> None:
        graph = parse(BLOCKS.format(stride=2, last="GlobalAveragePool (c)"))
        expected = Config((Block(1, False), Block(2, True)), mean_vec=False)
        for seed in range(20):
            nodes = list(graph.model.nodes)
            random.Random(seed).shuffle(nodes)
            moved = tuple(replace(node, index=at) for at, node in enumerate(nodes))
            assert next(iter(guess(build(replace(graph.model, nodes=moved))))) == expected

    @pytest.mark.parametrize("last", ["Sub (c, m)", "Identity (z) z = Sub (c, m)"])
    def test_a_last_subtraction_is_a_mean_vector(self, parse: Parse, last: str) -> None:
        assert next(iter(guess(parse(BLOCKS.format(stride=2, last=last))))).mean_vec

    def test_is_made_for_every_output(self, parse: Parse) -> None:
        text = BLOCKS.replace("(float[1, 8] y)", "(float[1, 8] y, float[1, 8] z)")
        graph = parse(text.format(stride=2, last="GlobalAveragePool (c) z = Sub (y, m)"))
        blocks = (Block(1, False), Block(2, True))
        assert {Config(blocks, False), Config(blocks, True)} <= set(guess(graph))

    def test_offers_resnet34_where_there_are_no_blocks(self, parse: Parse) -> None:
        (config,) = set(guess(parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")))
        assert [block.stride for block in config.blocks] == STRIDES

    def test_a_block_that_strides_has_a_shortcut(self, parse: Parse) -> None:
        """Without one its addition would have operands of two lengths."""
        text = BLOCKS.replace(
            "pads = [1, 1, 1, 1]> (a, w1)", "pads = [1, 1, 1, 1], strides = [2, 2]> (a, w1)"
        )
        for config in guess(parse(text.format(stride=2, last="GlobalAveragePool (c)"))):
            assert all(block.shortcut or block.stride == 1 for block in config.blocks)
