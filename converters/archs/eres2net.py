"""``eres2net``: 3D-Speaker's ERes2Net, a flat list of convolutions in pull order."""

from __future__ import annotations

from converters.archs import speaker
from converters.archs.arch import Arch
from converters.archs.building import Builder
from converters.manifest import Manifest
from converters.network import Network, axis, pull
from converters.schema import Row, tensor_row
from graphtools.errors import UnsupportedError
from graphtools.families import FAMILIES, eres2net
from graphtools.match import Role

__all__ = ["ARCH"]

_P = "voicedetect.eres2net"

_ROWS = (
    *speaker.rows("eres2net"),
    tensor_row(f"{_P}.conv_weight", "convolutions in pull order", group="convs"),
    tensor_row(
        f"{_P}.conv_bias", 'their biases; "" where there is none', optional=True, group="convs"
    ),
    Row(f"{_P}.conv_stride", "[i32]", "their strides, on both axes", "replay", group="convs"),
    Row(f"{_P}.num_blocks", "[i32]", "blocks in each of the four layers", "replay"),
    Row(f"{_P}.m_channels", "u32", "channels of the stem", "replay"),
    Row(f"{_P}.scale", "u32", "chunks that a block splits its channels into", "replay"),
    tensor_row(f"{_P}.seg_weight", "embedding layer [out, in]"),
    tensor_row(f"{_P}.seg_bias", 'its bias; "" for none', optional=True),
    Row(f"{_P}.relu_clamp", "f32", "upper bound of the blocks' Hardtanh(0, bound)", "replay"),
    Row(f"{_P}.var_eps", "f32", "added to the variance in the pooling", "measured"),
)


def _describe(b: Builder) -> None:
    """Every convolution in pull order, then the embedding layer."""
    cfg: eres2net.Config = b.net.config
    binding = b.net.binding
    speaker.describe(b, "seg")
    convs = binding.template.slots("conv")
    names = [b.conv(step.slot) for step in convs]
    seg = b.conv("seg")
    b.set(f"{_P}.conv_weight", tuple(w for w, _ in names), "graph: pull order")
    b.set(f"{_P}.conv_bias", tuple(bias for _, bias in names), "graph: pull order")
    b.set(f"{_P}.conv_stride", tuple(s.stride[0] for s in convs), "graph: strides of each Conv")
    b.set(f"{_P}.num_blocks", cfg.num_blocks, "graph: blocks between shortcuts with a conv")
    b.set(f"{_P}.m_channels", cfg.m_channels, "shape of stem")
    b.set(f"{_P}.scale", cfg.scale, "graph: parts of each Split")
    b.set(f"{_P}.seg_weight", seg[0], "graph: embedding layer")
    b.set(f"{_P}.seg_bias", seg[1], "graph: embedding layer")
    clamp, eps = binding.constants["relu_clamp"], binding.constants["tstp.eps"]
    b.set(f"{_P}.relu_clamp", clamp.value, clamp.origin)
    b.set(f"{_P}.var_eps", eps.value, eps.origin)


def _restore(m: Manifest) -> Network:
    """Configuration and names from the keys, by a running index."""
    blocks = m.get(f"{_P}.num_blocks", "[i32]")
    scale = m.get(f"{_P}.scale", "u32")
    if len(blocks) != 4 or any(not 1 <= n <= 1000 for n in blocks) or not 2 <= scale <= 64:
        raise UnsupportedError(
            "the block counts cannot be an ERes2Net's",
            expected="four counts of 1 or more, a scale of 2 or more",
            found=f"{list(blocks)}, scale {scale}",
        )
    cfg = eres2net.Config(m.get(f"{_P}.m_channels", "u32"), blocks, scale)
    family = FAMILIES[eres2net.NAME]
    slots = [step.slot for step in family.template(cfg).slots("conv")]
    lists: dict[Role, str] = {"weight": f"{_P}.conv_weight", "bias": f"{_P}.conv_bias"}
    names = pull(m, slots, lists, optional=("bias",))
    strides = m.get(f"{_P}.conv_stride", "[i32]")
    if len(strides) != len(slots) or any(s < 1 for s in strides):
        raise UnsupportedError(
            f"the list {_P + '.conv_stride'!r} does not fit the network",
            expected=f"{len(slots)} strides of 1 or more",
            found=f"{len(strides)}",
        )
    names["seg", "weight"] = m.get(f"{_P}.seg_weight", "string")
    if bias := m.get(f"{_P}.seg_bias", "string"):
        names["seg", "bias"] = bias
    keys = {"relu_clamp": f"{_P}.relu_clamp", "tstp.eps": f"{_P}.var_eps"}
    return Network(
        family=family,
        config=cfg,
        names=names,
        constants={name: m.get(key, "f32") for name, key in keys.items()},
        strides=dict(zip(slots, strides, strict=True)),
        keys=keys,
        input=speaker.features(m),
    )


def _counts(m: Manifest) -> dict[str, object]:
    return {
        "voicedetect.embedding_dim": axis(m, m.get(f"{_P}.seg_weight", "string")),
        f"{_P}.m_channels": axis(m, m.get(f"{_P}.conv_weight", "[string]")[0]),
    }


ARCH = Arch(
    "eres2net",
    eres2net.NAME,
    _ROWS,
    _restore,
    outputs=("encoder_out",),
    describe=_describe,
    forbidden=speaker.FORBIDDEN,
    counts=_counts,
)
