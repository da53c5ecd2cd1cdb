"""``wespeaker_resnet34``: WeSpeaker's ResNets of BasicBlocks, of any depth."""

from __future__ import annotations

from converters.archs import speaker
from converters.archs.arch import Arch
from converters.archs.building import Builder
from converters.manifest import Manifest
from converters.network import Network, axis, pull
from converters.schema import Row, tensor_row
from graphtools.errors import UnsupportedError
from graphtools.families import FAMILIES, resnet
from graphtools.match import Role

__all__ = ["ARCH"]

_P = "voicedetect.resnet"
_LISTS = ("conv1", "conv2", "down")
_STRIDES = (1, 2)

_ROWS = (
    *speaker.rows("wespeaker_resnet34"),
    tensor_row(f"{_P}.stem_weight", "3x3 stem convolution"),
    tensor_row(f"{_P}.stem_bias", "its bias, batch norm folded in"),
    tensor_row(f"{_P}.conv1_weight", "first 3x3 convolution of each block", group="blocks"),
    tensor_row(f"{_P}.conv1_bias", "its biases", group="blocks"),
    tensor_row(f"{_P}.conv2_weight", "second 3x3 convolution of each block", group="blocks"),
    tensor_row(f"{_P}.conv2_bias", "its biases", group="blocks"),
    tensor_row(
        f"{_P}.down_weight",
        '1x1 shortcut of each block; "" is identity',
        optional=True,
        group="blocks",
    ),
    tensor_row(
        f"{_P}.down_bias", 'its biases; "" where there is none', optional=True, group="blocks"
    ),
    Row(f"{_P}.stride", "[i32]", "stride of each block, on both axes", "replay", group="blocks"),
    tensor_row(f"{_P}.seg_weight", "embedding layer [out, in]"),
    tensor_row(f"{_P}.seg_bias", "its bias"),
    tensor_row(
        f"{_P}.mean_vec", 'subtracted from the embedding; "" if none', optional=True, zero=True
    ),
    Row(f"{_P}.var_eps", "f32", "added to the variance in the pooling", "measured"),
)


def _describe(b: Builder) -> None:
    """Parallel lists, one entry a block; tensors in pull order."""
    cfg: resnet.Config = b.net.config
    speaker.describe(b, "seg")
    b.notes.append(speaker.WESPEAKER_WINDOW)
    stem = b.conv("stem")
    blocks = [
        (
            b.conv(f"{name}.conv1"),
            b.conv(f"{name}.conv2"),
            b.conv(f"{name}.shortcut") if block.shortcut else ("", ""),
        )
        for name, block in zip(resnet.block_names(cfg), cfg.blocks, strict=True)
    ]
    seg = b.conv("seg")
    mean_vec = ""
    if cfg.mean_vec:
        offset = b.layer("mean_vec").tensors["offset"]
        length = b.layer("seg").tensors["weight"].shape[0]
        if offset.size != length:
            raise UnsupportedError(
                "the mean vector has another length than the embedding",
                file=b.net.graph.model.path,
                where=f"tensor {offset.name!r}",
                expected=f"{length} values",
                found=f"shape {list(offset.shape)}",
            )
        mean_vec = b.add(offset, "mean_vec")
    steep = [c.stride for c in cfg.blocks if c.stride not in _STRIDES]
    if steep:
        raise UnsupportedError(
            "a block has a stride that the engine does not have",
            file=b.net.graph.model.path,
            expected="1 or 2",
            found=str(steep[0]),
            todo="this network cannot be converted",
        )
    b.set(f"{_P}.stem_weight", stem[0], "graph: stem")
    b.set(f"{_P}.stem_bias", stem[1], "graph: stem")
    bare = [w for w, bias in (stem, seg, *(n for block in blocks for n in block)) if w and not bias]
    if bare:
        raise UnsupportedError(
            "a layer has no bias, which the manifest cannot say",
            file=b.net.graph.model.path,
            where=f"tensor {bare[0]!r}",
            expected='a bias for every layer ("" stands for a block without a shortcut conv only)',
            todo="export the model with its batch norms folded, or not folded at all",
        )
    for i, key in enumerate(_LISTS):
        b.set(f"{_P}.{key}_weight", tuple(n[i][0] for n in blocks), f"graph: {key} of each block")
        b.set(f"{_P}.{key}_bias", tuple(n[i][1] for n in blocks), f"graph: {key} of each block")
    b.set(f"{_P}.stride", tuple(c.stride for c in cfg.blocks), "graph: strides of conv1")
    b.set(f"{_P}.seg_weight", seg[0], "graph: embedding layer")
    b.set(f"{_P}.seg_bias", seg[1], "graph: embedding layer")
    origin = "graph: Sub after the embedding layer" if mean_vec else "graph: no Sub at the output"
    b.set(f"{_P}.mean_vec", mean_vec, origin)
    eps = b.net.binding.constants["tstp.eps"]
    b.set(f"{_P}.var_eps", eps.value, eps.origin)


def _restore(m: Manifest) -> Network:
    """Configuration and names from the keys."""
    strides = m.get(f"{_P}.stride", "[i32]")
    down = m.get(f"{_P}.down_weight", "[string]")
    if len(strides) != len(down) or any(s < 1 for s in strides):
        raise UnsupportedError(
            "the block lists do not fit together",
            expected=f"{len(down)} strides of 1 or more",
            found=f"{len(strides)}: {list(strides)}",
        )
    blocks = tuple(resnet.Block(s, bool(d)) for s, d in zip(strides, down, strict=True))
    mean_vec = m.get(f"{_P}.mean_vec", "string")
    cfg = resnet.Config(blocks, bool(mean_vec))
    named = list(resnet.block_names(cfg))
    names: dict[tuple[str, Role], str] = {}

    def one(slot: str, key: str) -> None:
        names[slot, "weight"] = m.get(f"{_P}.{key}_weight", "string")
        if bias := m.get(f"{_P}.{key}_bias", "string"):
            names[slot, "bias"] = bias

    biases = m.get(f"{_P}.down_bias", "[string]")
    if any(bool(bias) != bool(weight) for weight, bias in zip(down, biases, strict=False)):
        raise UnsupportedError(
            "down_weight and down_bias name tensors for different blocks",
            expected="both, or neither, for each block",
        )
    one("stem", "stem")
    lists = {
        key: pull(
            m,
            [f"{name}.{'shortcut' if key == 'down' else key}" for name in named],
            {"weight": f"{_P}.{key}_weight", "bias": f"{_P}.{key}_bias"},
            optional=("weight", "bias") if key == "down" else ("bias",),
        )
        for key in _LISTS
    }
    for name in named:
        for key in _LISTS:
            slot = f"{name}.{'shortcut' if key == 'down' else key}"
            names |= {k: v for k, v in lists[key].items() if k[0] == slot}
    one("seg", "seg")
    if mean_vec:
        names["mean_vec", "offset"] = mean_vec
    return Network(
        family=FAMILIES[resnet.NAME],
        config=cfg,
        names=names,
        constants={"tstp.eps": m.get(f"{_P}.var_eps", "f32")},
        keys={"tstp.eps": f"{_P}.var_eps"},
        input=speaker.features(m),
    )


def _counts(m: Manifest) -> dict[str, object]:
    return {"voicedetect.embedding_dim": axis(m, m.get(f"{_P}.seg_weight", "string"))}


ARCH = Arch(
    "wespeaker_resnet34",
    resnet.NAME,
    _ROWS,
    _restore,
    outputs=("encoder_out",),
    describe=_describe,
    forbidden=speaker.FORBIDDEN,
    counts=_counts,
)
