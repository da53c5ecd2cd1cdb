"""ResNet of BasicBlocks over a feature map (WeSpeaker ResNet18, ResNet34 and other depths)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from graphtools.graph import Graph, see
from graphtools.ops import Ops, X
from graphtools.residual import residual_blocks

__all__ = [
    "NAME",
    "TITLE",
    "Block",
    "Config",
    "basic",
    "block_names",
    "configs_of",
    "embed",
    "forward",
    "guess",
    "trunk",
]

NAME = "resnet"
TITLE = "ResNet of BasicBlocks (WeSpeaker)"

_1x1, _3x3 = (1, 1), (3, 3)


@dataclass(frozen=True)
class Block:
    """A BasicBlock: its stride on both axes, and whether a 1x1 conv is on its shortcut."""

    stride: int
    shortcut: bool


@dataclass(frozen=True)
class Config:
    """Any list of blocks; ``mean_vec``: a stored vector is subtracted from the embedding."""

    blocks: tuple[Block, ...]
    mean_vec: bool


def forward(o: Ops[X], x: X, cfg: Config) -> X:
    """Features [n_mels, T] to the embedding [D]."""
    return embed(o, o.island(trunk(o, x, cfg, basic), "tstp"), cfg)


def trunk(o: Ops[X], x: X, cfg: Config, branch: Callable[[Ops[X], X, str, int], X]) -> X:
    """Stem and blocks; ``branch(o, x, name, stride)`` is what a block adds to its shortcut."""
    x = o.stage(o.relu(o.conv(o.channel(x), "stem", kernel=_3x3)), "stem")
    for name, block in zip(block_names(cfg), cfg.blocks, strict=True):
        h = branch(o, x, name, block.stride)
        if block.shortcut:
            x = o.conv(x, f"{name}.shortcut", kernel=_1x1, stride=block.stride)
        x = o.stage(o.relu(o.add(h, x)), name)
    return x


def basic(o: Ops[X], x: X, name: str, stride: int) -> X:
    """The branch of a BasicBlock."""
    h = o.relu(o.conv(x, f"{name}.conv1", kernel=_3x3, stride=stride))
    return o.conv(h, f"{name}.conv2", kernel=_3x3)


def embed(o: Ops[X], pooled: X, cfg: Config) -> X:
    """The embedding layer on what the pooling gives, and the mean vector."""
    x = o.linear(o.stage(pooled, "pooled"), "seg")
    if cfg.mean_vec:
        x = o.subtract(x, "mean_vec")
    return o.stage(x, "encoder_out")


def block_names(cfg: Config) -> Iterator[str]:
    """``layer1.0`` ...: a block with a conv on its shortcut begins the next layer."""
    layer, index = 1, -1
    for number, block in enumerate(cfg.blocks):
        if block.shortcut and number > 0:
            layer, index = layer + 1, -1
        index += 1
        yield f"layer{layer}.{index}"


def guess(graph: Graph) -> Iterator[Config]:
    """BasicBlocks read off the spine."""
    return configs_of(graph, (3, 3))


def configs_of(graph: Graph, kernels: tuple[int, ...]) -> Iterator[Config]:
    """What blocks of ``kernels`` are on the spine; where there are none, those of ResNet34, so
    that a miss can be told against something."""
    strides = (1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1)
    standard = tuple(Block(s, shortcut=s == 2) for s in strides)
    for value in graph.outputs:
        last = graph.producers.get(see(graph, value.name))
        if last is None:
            continue
        mean_vec = last.op == "Sub"
        blocks = _blocks(graph, value.name, kernels)
        if blocks:
            yield Config(blocks, mean_vec)
            # More may come after the embedding: a miss then says so.
            yield Config(blocks, not mean_vec)
        yield Config(standard, mean_vec)
    yield Config(standard, mean_vec=False)


def _blocks(graph: Graph, output: str, kernels: tuple[int, ...]) -> tuple[Block, ...]:
    """The blocks of ``kernels`` above an output; with a 1x1 more one has a shortcut conv."""
    found = []
    for convs in residual_blocks(graph, output):
        sizes = [kernel for kernel, _ in convs]
        if sizes == sorted((1, *kernels)):
            found.append(Block(max(stride for _, stride in convs), shortcut=True))
        elif sizes == sorted(kernels):
            found.append(Block(1, shortcut=False))
    return tuple(found)
