"""ResNet of BasicBlocks over a feature map (WeSpeaker ResNet18, ResNet34 and other depths)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from graphtools.graph import ENTRY, Graph, constant, see
from graphtools.ops import Ops, X

__all__ = ["NAME", "TITLE", "Block", "Config", "block_names", "forward", "guess"]

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
    x = o.stage(o.relu(o.conv(o.channel(x), "stem", kernel=_3x3)), "stem")
    for name, block in zip(block_names(cfg), cfg.blocks, strict=True):
        h = o.relu(o.conv(x, f"{name}.conv1", kernel=_3x3, stride=block.stride))
        h = o.conv(h, f"{name}.conv2", kernel=_3x3)
        if block.shortcut:
            x = o.conv(x, f"{name}.shortcut", kernel=_1x1, stride=block.stride)
        x = o.stage(o.relu(o.add(h, x)), name)
    x = o.stage(o.island(x, "tstp"), "pooled")
    x = o.linear(x, "seg")
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
    """Read the blocks off the spine: the nodes that every path from input to output passes.

    An Add of two computed tensors on the spine ends a block; the convolutions that hang
    between it and the spine node before it are the block's own. Where they are not those of
    BasicBlocks, ResNet34 is offered, so that a miss can be told against something.
    """
    strides = (1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1)
    standard = tuple(Block(s, shortcut=s == 2) for s in strides)
    for value in graph.outputs:
        last = graph.producers.get(see(graph, value.name))
        if last is None:
            continue
        blocks = tuple(_blocks(graph, _spine(graph, last.index)))
        mean_vec = last.op == "Sub"
        if blocks:
            yield Config(blocks, mean_vec)
            # More may come after the embedding: a miss then says so.
            yield Config(blocks, not mean_vec)
        yield Config(standard, mean_vec)
    yield Config(standard, mean_vec=False)


def _blocks(graph: Graph, spine: list[int]) -> Iterator[Block]:
    convs = _convs_by_spine(graph, spine)
    for above in _block_starts(graph, spine):
        kernels = sorted(kernel for kernel, _ in convs.get(above, ()))
        if kernels == [1, 3, 3]:
            yield Block(max(s for _, s in convs[above]), shortcut=True)
        elif kernels == [3, 3]:
            yield Block(1, shortcut=False)


def _spine(graph: Graph, node: int) -> list[int]:
    """Dominators of a node, from the input side to the node itself."""
    spine = []
    while node != ENTRY and node in graph.dominators:
        spine.append(node)
        node = graph.dominators[node]
    return spine[::-1]


def _block_starts(graph: Graph, spine: list[int]) -> Iterator[int]:
    """The spine node before every Add of two computed tensors on the spine."""
    for above, below in pairwise(spine):
        node = graph.model.nodes[below]
        if node.op == "Add" and not any(constant(graph, name) for name in node.inputs):
            yield above


def _convs_by_spine(graph: Graph, spine: list[int]) -> dict[int, list[tuple[int, int]]]:
    """(kernel, stride) of the convolutions off the spine, by the spine node above them."""
    found: dict[int, list[tuple[int, int]]] = {}
    on_spine = frozenset(spine)
    nearest = {node: node for node in (*spine, ENTRY)}
    for node in graph.model.nodes:
        walk: list[int] = []
        at = node.index
        while at not in nearest and at in graph.dominators:
            walk.append(at)
            at = graph.dominators[at]
        top = nearest.get(at, ENTRY)
        nearest.update(dict.fromkeys(walk, top))
        if node.op == "Conv" and node.index not in on_spine:
            weight = constant(graph, node.inputs[1])
            kernel = weight.shape[-1] if weight is not None and weight.shape else 0
            found.setdefault(top, []).append(
                (kernel, max(node.integers("strides", (1,)), default=1))
            )
    return found
