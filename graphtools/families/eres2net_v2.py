"""ERes2NetV2 (3D-Speaker): ERes2Net's blocks, of any width, and only the last layers fused."""

from __future__ import annotations

from collections.abc import Iterator

from graphtools.families import eres2net
from graphtools.families.eres2net import STRIDES, Config, aff, block
from graphtools.graph import Graph
from graphtools.ops import Ops, X

__all__ = ["NAME", "TITLE", "forward", "guess"]

NAME = "eres2net_v2"
TITLE = "ERes2NetV2 (3D-Speaker)"


def forward(o: Ops[X], x: X, cfg: Config) -> X:
    """Features [n_mels, T] to the embedding [D]."""
    x = o.stage(o.relu(o.conv(o.channel(x), "stem", kernel=(3, 3))), "stem")
    before = x
    for layer, (blocks, stride) in enumerate(zip(cfg.num_blocks, STRIDES, strict=True), start=1):
        before = x
        for index in range(blocks):
            name = f"layer{layer}.{index}"
            step = 1 if index else stride
            x = o.stage(block(o, x, name, step, cfg.scale, None, first=not index), name)
    down = o.conv(before, "layer3_ds", kernel=(3, 3), stride=2)
    x = o.stage(aff(o, x, down, "fuse34"), "fuse34")
    return o.stage(o.linear(o.stage(o.island(x, "tstp"), "pooled"), "seg"), "encoder_out")


def guess(graph: Graph) -> Iterator[Config]:
    """As ERes2Net's."""
    return eres2net.guess(graph)
