"""SimAM-ResNet with attentive pooling (WeSpeaker SimAM_ResNet34_ASP, SimAM_ResNet100_ASP)."""

from __future__ import annotations

from collections.abc import Iterator

from graphtools.families.resnet import Config, basic, configs_of, embed, trunk
from graphtools.graph import Graph
from graphtools.ops import Ops, X

__all__ = ["NAME", "TITLE", "forward", "guess"]

NAME = "simam"
TITLE = "SimAM-ResNet (WeSpeaker)"

# The variance is clipped from below before its root is taken, in the class itself.
_STD_FLOOR = 1e-5


def forward(o: Ops[X], x: X, cfg: Config) -> X:
    """Features [n_mels, T] to the embedding [D]."""
    x = o.merge_frequency(trunk(o, x, cfg, _branch))
    w = o.bn(o.relu(o.conv(x, "attention.conv1", kernel=(1,))), "attention.bn")
    w = o.softmax(o.conv(w, "attention.conv2", kernel=(1,)))
    return embed(o, o.statistics(x, w, floor=_STD_FLOOR), cfg)


def _branch(o: Ops[X], x: X, name: str, stride: int) -> X:
    return o.island(basic(o, x, name, stride), "simam")


def guess(graph: Graph) -> Iterator[Config]:
    """BasicBlocks read off the spine; their attention has no weights."""
    return configs_of(graph, (3, 3))
