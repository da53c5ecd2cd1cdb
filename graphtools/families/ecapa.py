"""ECAPA-TDNN (SpeechBrain): SE-Res2Net blocks over time, attentive statistics pooling.

The semantics are those of ``speechbrain.lobes.models.ECAPA_TDNN``: every convolution with a kernel
is padded by reflection, a TDNN layer is conv - ReLU - batch norm, and the pooling attends with the
clip's own mean and deviation as context. Slots are the checkpoint's module paths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from graphtools.errors import UnsupportedError
from graphtools.ops import Ops, X

__all__ = ["BN_EPS", "NAME", "STD_FLOOR", "TITLE", "Config", "config_of", "forward", "matches"]

NAME = "ecapa"
TITLE = "ECAPA-TDNN (SpeechBrain)"

# The variance is clipped from below before its root is taken, in the class itself.
STD_FLOOR = 1e-12
# Epsilon of torch.nn.BatchNorm1d, which the class leaves at its default.
BN_EPS = 1e-5


@dataclass(frozen=True)
class Config:
    """What tensor shapes say.

    Attributes:
        n_blocks: the first TDNN layer and the SE-Res2Net blocks.
        kernels: of the first layer, each block's inner convolutions, and the MFA layer.
        res2net_scale: chunks of a block, one more than its inner convolutions.
        shortcuts: whether block n has a convolution on its shortcut.
    """

    n_blocks: int
    kernels: tuple[int, ...]
    res2net_scale: int
    shortcuts: tuple[bool, ...]


def forward(o: Ops[X], x: X, cfg: Config) -> X:
    """Features [n_mels, T] to the embedding [D]."""
    x = o.stage(_tdnn(o, x, "blocks.0", cfg.kernels[0]), "block0_out")
    outputs: list[X] = []
    for i in range(1, cfg.n_blocks):
        x = o.stage(_se_res2net(o, x, f"blocks.{i}", i, cfg), f"block{i}_out")
        outputs.append(x)
    x = o.stage(_tdnn(o, o.concat(outputs), "mfa", cfg.kernels[-1]), "mfa_out")
    x = o.stage(_attentive_pooling(o, x), "pooled")
    x = o.conv(o.bn(x, "asp_bn.norm"), "fc.conv", kernel=(1,))
    return o.stage(x, "encoder_out")


def _tdnn(o: Ops[X], x: X, name: str, kernel: int, dilation: int = 1) -> X:
    h = o.conv(x, f"{name}.conv.conv", kernel=(kernel,), dilation=dilation, pad_mode="reflect")
    return o.bn(o.relu(h), f"{name}.norm.norm")


def _se_res2net(o: Ops[X], x: X, name: str, index: int, cfg: Config) -> X:
    # SpeechBrain's dilations grow with the block: 2, 3, 4 for the first, second, third.
    dilation = index + 1
    h = _tdnn(o, x, f"{name}.tdnn1", 1)
    chunks: list[X] = []
    for i, chunk in enumerate(o.split(h, cfg.res2net_scale)):
        if i > 1:
            chunk = o.add(chunk, chunks[-1])
        if i > 0:
            inner = f"{name}.res2net_block.blocks.{i - 1}"
            chunk = _tdnn(o, chunk, inner, cfg.kernels[index], dilation)
        chunks.append(chunk)
    h = _tdnn(o, o.concat(chunks), f"{name}.tdnn2", 1)
    gate = o.relu(o.conv(o.mean(h), f"{name}.se_block.conv1.conv", kernel=(1,)))
    gate = o.sigmoid(o.conv(gate, f"{name}.se_block.conv2.conv", kernel=(1,)))
    h = o.mul(h, o.spread(gate, h))
    if cfg.shortcuts[index - 1]:
        x = o.conv(x, f"{name}.shortcut.conv", kernel=(1,))
    return o.add(h, x)


def _attentive_pooling(o: Ops[X], x: X) -> X:
    """[C, T] to [2C]: mean and deviation weighted by attention; the context is global."""
    context = o.spread(o.statistics(x, None, floor=STD_FLOOR), x)
    h = _tdnn(o, o.concat([x, context]), "asp.tdnn", 1)
    attention = o.softmax(o.conv(o.tanh(h), "asp.conv.conv", kernel=(1,)))
    return o.statistics(x, attention, floor=STD_FLOOR)


def matches(names: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a checkpoint's names are an ECAPA-TDNN's."""
    return {"blocks.0.conv.conv.weight", "asp.conv.conv.weight", "fc.conv.weight"} <= set(names)


def config_of(shapes: Mapping[str, tuple[int, ...]]) -> Config:
    """The configuration that the tensors' names and shapes imply.

    Raises:
        UnsupportedError: a tensor is missing, or the pooling has no global context.
    """

    def shape(name: str, rank: int = 3) -> tuple[int, ...]:
        found = shapes.get(name, ())
        if len(found) != rank:
            raise UnsupportedError(
                f"the checkpoint has no ECAPA-TDNN tensor {name!r} as it should be",
                expected=f"{rank} axes",
                found="no such tensor" if name not in shapes else f"shape {list(found)}",
            )
        return found

    parts = _submodules(shapes)
    blocks = len(parts["blocks"] - {"0"})
    inner = len(parts["blocks.1.res2net_block.blocks"])
    kernels = [shape("blocks.0.conv.conv.weight")[2]]
    shape("blocks.1.tdnn1.conv.conv.weight")  # without any block there is nothing to aggregate
    shortcuts = []
    for i in range(1, blocks + 1):
        here = len(parts[f"blocks.{i}.res2net_block.blocks"])
        if here != inner:
            raise UnsupportedError(
                f"block {i} has another Res2Net scale than block 1",
                expected=str(inner + 1),
                found=str(here + 1),
            )
        kernels.append(shape(f"blocks.{i}.res2net_block.blocks.0.conv.conv.weight")[2])
        shortcuts.append("shortcut" in parts[f"blocks.{i}"])
    kernels.append(shape("mfa.conv.conv.weight")[2])
    channels, context = shape("mfa.conv.conv.weight")[0], shape("asp.tdnn.conv.conv.weight")[1]
    if context != 3 * channels:
        raise UnsupportedError(
            "the attentive pooling has no global context, which the engine's has",
            expected=f"{3 * channels} input channels of asp.tdnn.conv.conv.weight",
            found=str(context),
        )
    return Config(blocks + 1, tuple(kernels), inner + 1, tuple(shortcuts))


def _submodules(names: Iterable[str]) -> Mapping[str, set[str]]:
    """What stands below ``blocks``, a block and its Res2Net: names by module path.

    Any tensor of a module shows that it is there, so that one which lost a tensor still counts
    and what it lost is named.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        path = name.split(".", 5)
        for depth in (1, 2, 4):
            if len(path) > depth:
                found[".".join(path[:depth])].add(path[depth])
    return found
