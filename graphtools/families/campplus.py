"""CAM++ (3D-Speaker): a 2-d convolutional front, then a densely connected TDNN with masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphtools.graph import Graph
from graphtools.ops import Ops, X

__all__ = ["DILATIONS", "LAYERS", "NAME", "TITLE", "Config", "forward", "guess"]

NAME = "campplus"
TITLE = "CAM++ (3D-Speaker)"

_1x1, _3x3 = (1, 1), (3, 3)
# Layers and dilation of the three dense blocks; the engine has them fixed.
LAYERS = (12, 24, 16)
DILATIONS = (1, 2, 2)


@dataclass(frozen=True)
class Config:
    """The shape of CAM++ does not vary; only its widths do, and tensors carry those."""


def forward(o: Ops[X], x: X, cfg: Config) -> X:
    """Features [n_mels, T] to the embedding [D]."""
    x = o.stage(_front(o, o.channel(x)), "fcm")
    x = o.stage(o.relu(o.conv(x, "tdnn", kernel=(5,), stride=2)), "tdnn")
    for block, (layers, dilation) in enumerate(zip(LAYERS, DILATIONS, strict=True), start=1):
        for index in range(layers):
            name = f"block{block}.{index}"
            x = o.stage(o.concat([x, _dense_layer(o, x, name, dilation)]), name)
        x = o.relu(o.bn(x, f"transit{block}.bn"))
        x = o.conv(x, f"transit{block}.conv", kernel=(1,))
        x = o.stage(o.relu(x) if block == len(LAYERS) else x, f"transit{block}")
    x = o.stage(o.island(x, "stats"), "pooled")
    return o.stage(o.bn(o.conv(x, "dense", kernel=(1,)), "emb_bn"), "encoder_out")


def _front(o: Ops[X], x: X) -> X:
    """FCM: [1, n_mels, T] to [C * n_mels / 8, T]; strides are on the frequency axis alone."""
    x = o.relu(o.conv(x, "fcm.stem", kernel=_3x3))
    for stage in (1, 2):
        for index in (0, 1):
            name, stride = f"fcm.layer{stage}.{index}", (1, 1) if index else (2, 1)
            h = o.relu(o.conv(x, f"{name}.conv1", kernel=_3x3, stride=stride))
            h = o.conv(h, f"{name}.conv2", kernel=_3x3)
            if index == 0:
                x = o.conv(x, f"{name}.shortcut", kernel=_1x1, stride=stride)
            x = o.relu(o.add(h, x))
    x = o.relu(o.conv(x, "fcm.conv", kernel=_3x3, stride=(2, 1)))
    return o.merge_frequency(x)


def _dense_layer(o: Ops[X], x: X, name: str, dilation: int) -> X:
    """What a layer adds to its input: a local convolution times a context-aware mask."""
    h = o.relu(o.conv(o.relu(o.bn(x, f"{name}.bn")), f"{name}.conv", kernel=(1,)))
    local = o.conv(h, f"{name}.linear_local", kernel=(3,), dilation=dilation)
    mask = o.relu(o.conv(o.island(h, "cam"), f"{name}.mask1", kernel=(1,)))
    return o.mul(local, o.sigmoid(o.conv(mask, f"{name}.mask2", kernel=(1,))))


def guess(graph: Graph) -> Iterator[Config]:
    """There is one configuration."""
    yield Config()
