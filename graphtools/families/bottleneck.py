"""ResNet of Bottleneck blocks (WeSpeaker ResNet50, 101, 152, 221, 293)."""

from __future__ import annotations

from collections.abc import Iterator

from graphtools.families.resnet import Config, configs_of, embed, trunk
from graphtools.graph import Graph
from graphtools.ops import Ops, X

__all__ = ["NAME", "TITLE", "forward", "guess"]

NAME = "bottleneck"
TITLE = "ResNet of Bottlenecks (WeSpeaker)"

_1x1, _3x3 = (1, 1), (3, 3)


def forward(o: Ops[X], x: X, cfg: Config) -> X:
    """Features [n_mels, T] to the embedding [D]."""
    return embed(o, o.island(trunk(o, x, cfg, _branch), "tstp"), cfg)


def _branch(o: Ops[X], x: X, name: str, stride: int) -> X:
    h = o.relu(o.conv(x, f"{name}.conv1", kernel=_1x1))
    h = o.relu(o.conv(h, f"{name}.conv2", kernel=_3x3, stride=stride))
    return o.conv(h, f"{name}.conv3", kernel=_1x1)


def guess(graph: Graph) -> Iterator[Config]:
    """Bottlenecks read off the spine."""
    return configs_of(graph, (1, 3, 1))
