"""``ecapa_tdnn``: SpeechBrain's ECAPA-TDNN, tensor names verbatim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from converters.archs import speaker
from converters.archs.arch import Arch
from converters.archs.checkpoint import CheckpointBuilder
from converters.manifest import Manifest
from converters.network import Network, axis
from converters.schema import Row
from converters.sources.yaml_text import values_of
from graphtools.errors import UnsupportedError
from graphtools.families import FAMILIES, ecapa
from graphtools.names import bind_names, require_ranks

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


# State of the feature normaliser's training; it is no tensor, and inference does not read it.
_NORMALIZER = tuple(
    f"mean_var_norm_emb.{name}"
    for name in ("count", "spk_dict_mean", "spk_dict_std", "spk_dict_count")
)


def _describe_checkpoint(b: CheckpointBuilder) -> None:
    """Keys from tensor shapes; every float tensor under its own name."""
    shapes = b.source.shapes
    network = _network(shapes)
    _require_in_space(b, network.config)
    n_mels = shapes["blocks.0.conv.conv.weight"][1]
    if n_mels != b.rows["voicedetect.fbank.n_mels"].fixed:
        raise UnsupportedError(
            "the model takes another number of mel bins than the schema's front end gives",
            file=b.source.path,
            expected=f"{b.rows['voicedetect.fbank.n_mels'].fixed} input channels",
            found=str(n_mels),
        )
    speaker.set_rows(b, shapes["fc.conv.weight"][0], "shape of fc.conv.weight")
    for key, (value, origin) in _sizes(network.config, shapes).items():
        b.set(key, value, origin)
    b.keep_all(expected=_NORMALIZER)


def _network(shapes: Mapping[str, tuple[int, ...]]) -> Network:
    """The network that the tensors make up; every layer of the library's class has its bias."""
    family = FAMILIES[ecapa.NAME]
    cfg = ecapa.config_of(shapes)
    template = family.template(cfg)
    names = bind_names(template, shapes, without_bias=())
    require_ranks(template, names, shapes)
    return Network(family, cfg, names, constants={"bn.eps": ecapa.BN_EPS})


def _sizes(cfg: ecapa.Config, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, str]]:
    """Value and origin of every key that the tensors decide."""
    first, attention = "blocks.0.conv.conv.weight", "asp.conv.conv.weight"
    squeezes = [f"blocks.{i}.se_block.conv1.conv.weight" for i in range(1, cfg.n_blocks)]
    widths = [shapes[name][0] for name in squeezes]
    if len(set(widths)) != 1:
        raise UnsupportedError(
            "the blocks have different squeeze and excitation bottlenecks",
            where=", ".join(squeezes),
            expected=f"one width for all: {_P}.se_channels is one number",
            found=str(widths),
            todo="this configuration cannot be converted",
        )
    return {
        f"{_P}.channels": (shapes[first][0], f"shape of {first}"),
        f"{_P}.n_blocks": (cfg.n_blocks, "names blocks.N"),
        f"{_P}.se_channels": (widths[0], f"shape of {squeezes[0]}"),
        f"{_P}.res2net_scale": (cfg.res2net_scale, "names res2net_block.blocks.N"),
        f"{_P}.attention_channels": (shapes[attention][1], f"shape of {attention}"),
    }


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
    # Values of hyperparams.yaml that change the forward and show in no tensor.
    wanted = str([1, *range(2, cfg.n_blocks + 1), 1])
    text = b.source.text("hyperparams.yaml") or ""
    said = values_of("hyperparams.yaml", text, "dilations", "activation")
    dilations, activations = said["dilations"], said["activation"]
    # Wherever they stand: a value somewhere else may be the one that is referred to.
    if {*dilations} - {wanted} or {*activations} - {_RELU}:
        raise UnsupportedError(
            "hyperparams.yaml sets what the engine has fixed otherwise",
            file=b.source.path,
            expected=f"dilations {wanted}, activation torch.nn.ReLU",
            found=", ".join(f"{key} {value}" for key in said for value in said[key]),
        )
    if not dilations:
        b.notes.append(f"no hyperparams.yaml says the dilations: {wanted} are assumed")


def _restore(m: Manifest) -> Network:
    """The configuration, from keys and shapes; names are the checkpoint's own."""
    shapes = {t.name: t.shape for t in m.tensors}
    network = _network(shapes)
    for key, (found, _) in _sizes(network.config, shapes).items():
        if m.get(key, "u32") != found:
            raise UnsupportedError(
                f"the key {key!r} does not fit the tensors",
                expected=str(found),
                found=str(m.get(key, "u32")),
            )
    return replace(network, input=speaker.features(m))


def _counts(m: Manifest) -> dict[str, object]:
    shapes = {t.name: t.shape for t in m.tensors}
    sizes = _sizes(_network(shapes).config, shapes)
    found: dict[str, object] = {key: value for key, (value, _) in sizes.items()}
    return found | {"voicedetect.embedding_dim": axis(m, "fc.conv.weight")}


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
    forbidden=speaker.FORBIDDEN,
    counts=_counts,
    whole=True,
)
