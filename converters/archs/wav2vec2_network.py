"""The wav2vec 2.0 network that a manifest's keys and tensors make up, each checked by the other."""

from __future__ import annotations

from collections.abc import Collection

from converters.manifest import Manifest
from converters.network import Network, axis
from graphtools.errors import UnsupportedError
from graphtools.families import FAMILIES, wav2vec2
from graphtools.names import bind_names, require_ranks

__all__ = ["PREFIX", "restore", "sizes"]

# Of the backbone's keys.
PREFIX = "voicedetect.w2v2"


def restore(m: Manifest, head: str) -> Network:
    """The configuration from the keys; names are module paths.

    Raises:
        UnsupportedError: a key or a tensor is missing, or they do not fit together.
    """
    strides = m.get(f"{PREFIX}.conv_strides", "[i32]")
    kernels = m.get(f"{PREFIX}.conv_kernels", "[i32]")
    norm = m.get(f"{PREFIX}.feat_extract_norm", "string")
    cfg = wav2vec2.Config(
        head=head,
        kernels=kernels,
        strides=strides,
        group_norm=norm == "group",
        n_layers=m.get(f"{PREFIX}.n_layers", "u32"),
        n_heads=m.get(f"{PREFIX}.n_heads", "u32"),
        pos_kernel=m.get(f"{PREFIX}.num_conv_pos_embeddings", "u32"),
        pos_groups=m.get(f"{PREFIX}.num_conv_pos_embedding_groups", "u32"),
        stable=m.get(f"{PREFIX}.do_stable_layer_norm", "bool"),
        normalize=m.get(f"{PREFIX}.do_normalize", "bool"),
        weighted_layers=m.get(f"{PREFIX}.use_weighted_layer_sum", "bool"),
        eps=m.get(f"{PREFIX}.layer_norm_eps", "f32"),
    )
    shapes = {t.name: t.shape for t in m.tensors}
    _require_meaningful(cfg, len(shapes))
    convs = [f"{_CONVS}{i}" for i in range(len(kernels))]
    family = FAMILIES[wav2vec2.NAME]
    template = family.template(cfg)
    unbiased = () if m[f"{PREFIX}.conv_bias"] else [f"{conv}.conv" for conv in convs]
    names = bind_names(template, shapes, without_bias=unbiased)
    require_ranks(template, names, shapes)
    for key, found in sizes(m).items():
        if m[key] != found:
            raise UnsupportedError(
                f"the key {key!r} does not fit the tensors",
                expected=repr(found),
                found=repr(m[key]),
                todo="use the config.json that was published with these weights",
            )
    return Network(family, cfg, names, constants={})


_CONVS, _LAYERS = "w2v2.feature_extractor.conv_layers.", "w2v2.encoder.layers."


def sizes(m: Manifest) -> dict[str, object]:
    """What the tensors say that the backbone's keys are; those whose tensors are missing are not
    among them."""
    names = m.by_name
    number = _count(names, _CONVS)
    convs = [f"{_CONVS}{i}.conv" for i in range(number)]
    normed = any(f"{_CONVS}{i}.layer_norm.weight" in names for i in range(1, number))
    found: dict[str, object] = {
        "n_layers": _count(names, _LAYERS),
        "num_conv_layers": number,
        "hidden_size": axis(m, "w2v2.encoder.layer_norm.weight"),
        "ff_dim": axis(m, f"{_LAYERS}0.feed_forward.intermediate_dense.weight"),
        "conv_dims": tuple(axis(m, f"{conv}.weight") for conv in convs),
        "conv_kernels": tuple(axis(m, f"{conv}.weight", 2) for conv in convs),
        "conv_bias": any(f"{conv}.bias" in names for conv in convs),
        "feat_extract_norm": "layer" if normed else "group",
        "num_conv_pos_embeddings": axis(m, f"{_POSITIONS}.weight_v", 2),
        "classifier_proj_size": axis(m, "projector.weight"),
    }
    return {f"{PREFIX}.{key}": value for key, value in found.items() if _is_known(value)}


_POSITIONS = "w2v2.encoder.pos_conv_embed.conv"


def _is_known(value: object) -> bool:
    return value is not None and not (isinstance(value, tuple) and None in value)


def _count(names: Collection[str], stem: str) -> int:
    """How many modules stand below a list, by their names."""
    return len({n.removeprefix(stem).split(".")[0] for n in names if n.startswith(stem)})


def _require_meaningful(cfg: wav2vec2.Config, tensors: int) -> None:
    """Refuse numbers that no network has, before one is made of them."""
    counts = (*cfg.kernels, *cfg.strides, cfg.n_heads, cfg.pos_kernel, cfg.pos_groups)
    sound = len(cfg.kernels) == len(cfg.strides) and all(count > 0 for count in counts)
    if not sound or not 0 < cfg.n_layers <= tensors or not cfg.eps > 0.0:
        raise UnsupportedError(
            "the configuration holds a value that means nothing",
            expected="counts of 1 or more, a kernel and a stride for each convolution, "
            "weights for each layer, an epsilon above 0",
            found=f"conv_kernels {list(cfg.kernels)}, conv_strides {list(cfg.strides)}, "
            f"n_heads {cfg.n_heads}, n_layers {cfg.n_layers}, positional kernel "
            f"{cfg.pos_kernel} in {cfg.pos_groups} groups, layer_norm_eps {cfg.eps:g}",
            todo="use the config.json that was published with these weights",
        )
