"""``ecapa_tdnn``: SpeechBrain's ECAPA-TDNN, tensor names verbatim."""

from __future__ import annotations

import re

from converters.archs import speaker
from converters.archs.arch import Arch
from converters.archs.checkpoint import CheckpointBuilder
from converters.manifest import Manifest
from converters.network import Network
from converters.schema import Row
from graphtools.errors import UnsupportedError
from graphtools.families import FAMILIES, ecapa
from graphtools.names import bind_names

__all__ = ["ARCH"]

_P = "voicedetect.ecapa"

_ROWS = (
    *speaker.rows("ecapa_tdnn"),
    Row(f"{_P}.channels", "u32", "channels of the first layer", "source"),
    Row(f"{_P}.n_blocks", "u32", "first layer and SE-Res2Net blocks", "source"),
    Row(f"{_P}.se_channels", "u32", "bottleneck of squeeze and excitation", "source"),
    Row(f"{_P}.res2net_scale", "u32", "chunks of a Res2Net block", "source"),
    Row(f"{_P}.attention_channels", "u32", "bottleneck of the pooling's attention", "source"),
)


def _describe_checkpoint(b: CheckpointBuilder) -> None:
    """Keys from tensor shapes; every float tensor under its own name."""
    shapes = b.source.shapes
    cfg = ecapa.config_of(shapes)
    bind_names(FAMILIES[ecapa.NAME].template(cfg), shapes)
    _require_in_space(b, cfg)
    n_mels = shapes["blocks.0.conv.conv.weight"][1]
    if n_mels != b.rows["voicedetect.fbank.n_mels"].fixed:
        raise UnsupportedError(
            "the model takes another number of mel bins than the schema's front end gives",
            file=b.source.path,
            expected=f"{b.rows['voicedetect.fbank.n_mels'].fixed} input channels",
            found=str(n_mels),
        )
    speaker.set_rows(b, shapes["fc.conv.weight"][0], "shape of fc.conv.weight")
    channels = "blocks.0.conv.conv.weight"
    se, attention = "blocks.1.se_block.conv1.conv.weight", "asp.conv.conv.weight"
    b.set(f"{_P}.channels", shapes[channels][0], f"shape of {channels}")
    b.set(f"{_P}.n_blocks", cfg.n_blocks, "names blocks.N")
    b.set(f"{_P}.se_channels", shapes[se][0], f"shape of {se}")
    b.set(f"{_P}.res2net_scale", cfg.res2net_scale, "names res2net_block.blocks.N")
    b.set(f"{_P}.attention_channels", shapes[attention][1], f"shape of {attention}")
    b.keep_all()


# Lines of hyperparams.yaml that change the forward and show in no tensor. The file is only ever
# searched as text: loading it would run code.
_DILATIONS = re.compile(r"\bdilations:\s*(\[[^\]]*\]|[^\s,}]+)")
_ACTIVATION = re.compile(r"\bactivation:\s*([^\s,}]+)")
_RELU = "!name:torch.nn.ReLU"


def _require_in_space(b: CheckpointBuilder, cfg: ecapa.Config) -> None:
    """Refuse what the forward was not proven on."""
    even = [k for k in cfg.kernels if k % 2 == 0]
    if even or not 2 <= cfg.res2net_scale <= 8 or not 3 <= cfg.n_blocks <= 5:
        raise UnsupportedError(
            "the configuration lies outside what the forward was proven on",
            file=b.source.path,
            expected=ARCH.space,
            found=f"kernels {cfg.kernels}, scale {cfg.res2net_scale}, {cfg.n_blocks - 1} blocks",
        )
    text = b.source.text("hyperparams.yaml") or ""
    wanted = [1, *range(2, cfg.n_blocks + 1), 1]
    listed = [
        [int(d) for d in re.findall(r"\d+", v)] if v[0] == "[" else v
        for v in _DILATIONS.findall(text)
    ]
    activations = _ACTIVATION.findall(text)
    # Wherever they stand: a value somewhere else may be the one that is referred to.
    if any(d != wanted for d in listed) or any(a != _RELU for a in activations):
        raise UnsupportedError(
            "hyperparams.yaml sets what the engine has fixed otherwise",
            file=b.source.path,
            expected=f"dilations {wanted}, activation torch.nn.ReLU",
            found=f"dilations {listed}, activation {activations}",
        )
    if not listed:
        b.notes.append(f"no hyperparams.yaml says the dilations: {wanted} are assumed")


def _restore(m: Manifest) -> Network:
    """The configuration, from keys and shapes; names are the checkpoint's own."""
    shapes = {t.name: t.shape for t in m.tensors}
    cfg = ecapa.config_of(shapes)
    stated = {
        f"{_P}.channels": shapes["blocks.0.conv.conv.weight"][0],
        f"{_P}.n_blocks": cfg.n_blocks,
        f"{_P}.se_channels": shapes["blocks.1.se_block.conv1.conv.weight"][0],
        f"{_P}.res2net_scale": cfg.res2net_scale,
        f"{_P}.attention_channels": shapes["asp.conv.conv.weight"][1],
    }
    for key, found in stated.items():
        if m.get(key, "u32") != found:
            raise UnsupportedError(
                f"the key {key!r} does not fit the tensors",
                expected=str(found),
                found=str(m.get(key, "u32")),
            )
    family = FAMILIES[ecapa.NAME]
    names = bind_names(family.template(cfg), shapes)
    return Network(family, cfg, names, constants={"bn.eps": ecapa.BN_EPS})


ARCH = Arch(
    "ecapa_tdnn",
    ecapa.NAME,
    _ROWS,
    _restore,
    outputs=("encoder_out",),
    describe_checkpoint=_describe_checkpoint,
    claims=ecapa.matches,
    model="speechbrain/spkrec-ecapa-voxceleb",
    tested="speechbrain 1.1.2",
    space="any widths, 2 to 4 blocks, scale 2 to 8, odd kernels, dilations 1, 2, 3 .., ReLU",
)
