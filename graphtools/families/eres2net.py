"""ERes2Net (3D-Speaker): Res2Net blocks with attentional fusion, layers fused bottom up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphtools.graph import Graph, canonical_order, constant, see
from graphtools.model import Node
from graphtools.ops import Ops, X

__all__ = ["NAME", "STRIDES", "TITLE", "Config", "aff", "block", "forward", "guess"]

NAME = "eres2net"
TITLE = "ERes2Net (3D-Speaker)"

_1x1, _3x3 = (1, 1), (3, 3)
# Stride of each layer's first block, and the layers whose blocks fuse their chunks with AFF.
STRIDES = (1, 2, 2, 2)
_FUSING = (False, False, True, True)


@dataclass(frozen=True)
class Config:
    """Channels of the stem, blocks per layer (four layers), chunks in a block.

    A block of layer n gives ``m_channels * 2**n`` channels; the engine builds on that.
    """

    m_channels: int
    num_blocks: tuple[int, int, int, int]
    scale: int


def forward(o: Ops[X], x: X, cfg: Config) -> X:
    """Features [n_mels, T] to the embedding [D]."""
    x = o.stage(o.relu(o.conv(o.channel(x), "stem", kernel=_3x3, channels=cfg.m_channels)), "stem")
    fused = x
    for layer in range(4):
        channels = cfg.m_channels << (layer + 1)
        for index in range(cfg.num_blocks[layer]):
            name = f"layer{layer + 1}.{index}"
            stride = 1 if index else STRIDES[layer]
            x = block(o, x, name, stride, cfg.scale, channels, first=not index)
            x = o.stage(x, name)
        if layer == 0:
            fused = x
        else:
            slot = f"layer{layer}_downsample"
            down = o.conv(fused, slot, kernel=_3x3, stride=2, channels=channels)
            fused = o.stage(aff(o, x, down, f"fuse{layer}"), f"fuse{layer}")
    x = o.stage(o.island(fused, "tstp"), "pooled")
    return o.stage(o.linear(x, "seg"), "encoder_out")


def block(
    o: Ops[X], x: X, name: str, stride: int, scale: int, channels: int | None, *, first: bool
) -> X:
    """A Res2Net block called ``layerN.M``; ``channels`` where the family fixes its width."""
    layer = int(name[5]) - 1
    h = o.clip(o.conv(x, f"{name}.conv1", kernel=_1x1, stride=stride), "relu_clamp")
    chunks: list[X] = []
    for i, chunk in enumerate(o.split(h, scale)):
        if i and _FUSING[layer]:
            chunk = aff(o, chunks[-1], chunk, f"{name}.fuse{i - 1}")
        elif i:
            chunk = o.add(chunks[-1], chunk)
        chunks.append(o.clip(o.conv(chunk, f"{name}.convs.{i}", kernel=_3x3), "relu_clamp"))
    h = o.conv(o.concat(chunks), f"{name}.conv3", kernel=_1x1, channels=channels)
    if first:
        x = o.conv(x, f"{name}.shortcut", kernel=_1x1, stride=stride, channels=channels)
    return o.clip(o.add(h, x), "relu_clamp")


def aff(o: Ops[X], x: X, y: X, name: str) -> X:
    """X * (1 + a) + y * (1 - a), a = tanh(conv(silu(conv(concat(x, y))))).

    Spelled as the class does: t = 1 + a, then x * t + y * (2 - t).
    """
    a = o.silu(o.conv(o.concat([x, y]), f"{name}.conv1", kernel=_1x1))
    t = o.add_scalar(o.tanh(o.conv(a, f"{name}.conv2", kernel=_1x1)), 1.0)
    return o.add(o.mul(x, t), o.mul(y, o.subtract_from(2.0, t)))


def guess(graph: Graph) -> Iterator[Config]:
    """Blocks end in Clip(Add(a, b)); one whose shortcut is not itself such a Clip begins a
    layer. The scale is the number of parts that a block is split in.
    """
    ends = [n for n in graph.model.nodes if n.op == "Clip" and _producer(graph, n, 0) == "Add"]
    outputs = {n.outputs[0] for n in ends}
    counts: list[int] = []
    channels, seen_conv = 32, False
    for index in canonical_order(graph):
        node = graph.model.nodes[index]
        if node.op == "Conv" and not seen_conv:
            seen_conv, weight = True, constant(graph, node.inputs[1])
            channels = weight.shape[0] if weight else channels
        if node.op != "Clip" or node.outputs[0] not in outputs:
            continue
        add = graph.producers[see(graph, node.inputs[0])]
        if counts and any(see(graph, name) in outputs for name in add.inputs):
            counts[-1] += 1
        else:
            counts.append(1)
    scale = max((len(n.outputs) for n in graph.model.nodes if n.op == "Split"), default=2)
    if len(counts) == 4:
        yield Config(channels, (counts[0], counts[1], counts[2], counts[3]), scale)
    yield Config(channels, (3, 4, 6, 3), 2)


def _producer(graph: Graph, node: Node, slot: int) -> str:
    above = graph.producers.get(see(graph, node.inputs[slot]))
    return "" if above is None else above.op
