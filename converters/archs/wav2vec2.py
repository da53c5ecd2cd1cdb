"""``wav2vec2_emotion`` and ``wav2vec2_age_gender``: two heads on one backbone.

Names are the state dict's own, shortened so that they fit ggml's limit: ``wav2vec2.`` becomes
``w2v2.``, and both spellings of a weight norm become ``weight_g`` and ``weight_v``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from converters.archs.arch import Arch
from converters.archs.checkpoint import BY_USER, CheckpointBuilder
from converters.archs.wav2vec2_network import PREFIX, restore, sizes
from converters.manifest import Manifest
from converters.network import axis
from converters.schema import Row
from graphtools.errors import UnsupportedError, UsageError
from graphtools.families import wav2vec2

__all__ = ["ARCHS", "stored_name"]

_W, _A = PREFIX, "voicedetect.analyze"
_POS = "w2v2.encoder.pos_conv_embed.conv"

# Of the speaker encoders: a head has no filter bank and no embedding.
_FORBIDDEN = ("voicedetect.fbank.", "voicedetect.embedding_dim", "voicedetect.l2_normalize")

_BACKBONE_ROWS = (
    Row(f"{_W}.hidden_size", "u32", "width of the transformer", "source"),
    Row(f"{_W}.n_layers", "u32", "transformer layers", "source"),
    Row(f"{_W}.n_heads", "u32", "attention heads", "replay"),
    Row(f"{_W}.ff_dim", "u32", "width of the feed-forward layers", "source"),
    Row(f"{_W}.num_conv_layers", "u32", "convolutions of the feature extractor", "source"),
    Row(f"{_W}.conv_dims", "[i32]", "their channels", "source", group="convs"),
    Row(f"{_W}.conv_kernels", "[i32]", "their kernels", "source", "samples", group="convs"),
    Row(f"{_W}.conv_strides", "[i32]", "their strides", "replay", "samples", group="convs"),
    Row(f"{_W}.feat_extract_norm", "string", "group (first conv only) or layer (all)", "source"),
    Row(f"{_W}.conv_bias", "bool", "the convolutions have a bias", "source"),
    Row(f"{_W}.do_normalize", "bool", "zero-mean, unit-variance waveform", "replay"),
    Row(
        f"{_W}.feat_extract_activation",
        "string",
        "activation of the conv stack",
        "source",
        fixed="gelu",
    ),
    Row(
        f"{_W}.hidden_act",
        "string",
        "activation of the feed-forward layers",
        "source",
        fixed="gelu",
    ),
    Row(f"{_W}.do_stable_layer_norm", "bool", "norm before each sublayer, not after", "replay"),
    Row(f"{_W}.layer_norm_eps", "f32", "epsilon of the layer norms", "source"),
    Row(f"{_W}.num_conv_pos_embeddings", "u32", "kernel of the positional convolution", "source"),
    Row(f"{_W}.num_conv_pos_embedding_groups", "u32", "its groups", "source"),
    Row(
        f"{_W}.pos_conv_weight_norm_dim",
        "u32",
        "axis that its weight norm keeps",
        "source",
        fixed=2,
    ),
    Row(f"{_W}.use_weighted_layer_sum", "bool", "softmax-weighted sum of all layers", "replay"),
    Row(f"{_W}.classifier_proj_size", "u32", "width of the classifier's projector", "source"),
)


def _head_rows(arch: str, kind: str, label: str) -> tuple[Row, ...]:
    labels = f"{label}_labels"
    return (
        Row("voicedetect.arch", "string", "which model this is", "schema", "", arch),
        Row(f"{_A}.present", "bool", "an analyze head is here", "schema", "", True),
        Row(f"{_A}.kind", "string", "which head", "schema", "", kind),
        Row(f"{_A}.{labels}", "[string]", "class labels in id order", "source"),
        Row(f"{_A}.num_{label}s", "u32", "number of classes", "source"),
        Row(f"{_A}.pooling", "string", "pooling over time", "schema", "", "mean"),
        *_BACKBONE_ROWS,
    )


def stored_name(name: str) -> str:
    """The name in the file of a state dict's name."""
    if name.startswith("wav2vec2."):
        name = "w2v2." + name.removeprefix("wav2vec2.")
    for new, old in (("weight_g", "original0"), ("weight_v", "original1")):
        name = name.replace(f".parametrizations.weight.{old}", f".{new}")
    return name


def _describe_backbone(b: CheckpointBuilder, config: Mapping[str, Any]) -> None:
    shapes = {stored_name(name): shape for name, shape in b.source.shapes.items()}
    _require_pair(b, shapes)
    ints = {
        "hidden_size": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "ff_dim": "intermediate_size",
        "num_conv_pos_embeddings": "num_conv_pos_embeddings",
        "num_conv_pos_embedding_groups": "num_conv_pos_embedding_groups",
        "classifier_proj_size": "classifier_proj_size",
    }
    for key, name in ints.items():
        b.set(f"{_W}.{key}", b.require_config(config, name, int), f"config.json: {name}")
    arrays = {"conv_dims": "conv_dim", "conv_kernels": "conv_kernel", "conv_strides": "conv_stride"}
    for key, name in arrays.items():
        b.set(f"{_W}.{key}", tuple(b.require_config(config, name, list)), f"config.json: {name}")
    number = len(config["conv_dim"])
    b.set(f"{_W}.num_conv_layers", number, "config.json: length of conv_dim")
    for key in ("feat_extract_norm", "feat_extract_activation", "hidden_act"):
        b.set(f"{_W}.{key}", b.require_config(config, key, str), f"config.json: {key}")
    for key in ("conv_bias", "do_stable_layer_norm", "use_weighted_layer_sum"):
        b.set(f"{_W}.{key}", b.require_config(config, key, bool), f"config.json: {key}")
    eps = b.require_number(config, "layer_norm_eps")
    b.set(f"{_W}.layer_norm_eps", eps, "config.json: layer_norm_eps")
    _require_in_space(b, config)
    g = shapes[f"{_POS}.weight_g"]
    kept = [axis for axis, size in enumerate(g) if size > 1]
    if kept not in ([], [2]):
        raise UnsupportedError(
            "the positional convolution's weight norm keeps another axis than the engine's",
            where=f"{_POS}.weight_g",
            expected="axis 2, the kernel",
            found=f"shape {list(g)}",
        )
    b.set(f"{_W}.pos_conv_weight_norm_dim", 2, f"shape of {_POS}.weight_g")
    b.set(f"{_W}.do_normalize", *_do_normalize(b))
    b.keep_all(stored_name)


def _require_in_space(b: CheckpointBuilder, config: Mapping[str, Any]) -> None:
    """Refuse what the forward was not proven on: finite numbers on a probe prove nothing."""
    wanted = {
        "model_type": ("wav2vec2",),
        "feat_extract_activation": ("gelu",),
        "hidden_act": ("gelu",),
        "feat_extract_norm": ("group", "layer"),
        "add_adapter": (False, None),
        "adapter_attn_dim": (None,),
    }
    for key, allowed in wanted.items():
        if config.get(key) not in allowed:
            raise UnsupportedError(
                "the configuration lies outside what the forward was proven on",
                file=b.source.path,
                where=f"config.json: {key}",
                expected=" or ".join(repr(a) for a in allowed),
                found=repr(config.get(key)),
            )
    if config["do_stable_layer_norm"] and config["use_weighted_layer_sum"]:
        raise UnsupportedError(
            "a weighted layer sum over a pre-norm encoder has no one meaning",
            file=b.source.path,
            expected="use_weighted_layer_sum with do_stable_layer_norm false",
            found="both true: transformers 4 sums the last state after its norm, 5 before it",
            todo="this configuration cannot be converted safely",
        )
    layers = config.get("num_feat_extract_layers", len(config["conv_dim"]))
    if layers != len(config["conv_dim"]):
        raise UnsupportedError(
            "config.json contradicts itself",
            file=b.source.path,
            where="config.json: num_feat_extract_layers",
            expected=f"{len(config['conv_dim'])}, the length of conv_dim",
            found=repr(layers),
        )
    heads, width = config["num_attention_heads"], config["hidden_size"]
    kernel = config["num_conv_pos_embeddings"]
    if kernel % 2 or heads < 1 or width % heads:
        raise UnsupportedError(
            "the configuration lies outside what the forward was proven on",
            file=b.source.path,
            expected="an even positional kernel, a width that the heads divide",
            found=f"kernel {kernel}, width {width}, {heads} heads",
        )


def _do_normalize(b: CheckpointBuilder) -> tuple[bool, str]:
    if b.options.do_normalize is not None:
        return b.options.do_normalize, BY_USER
    preprocessor = b.source.json("preprocessor_config.json") or {}
    found = preprocessor.get("do_normalize")
    if not isinstance(found, bool):
        raise UsageError(
            "nothing says whether the waveform is normalised",
            file=b.source.path,
            expected="do_normalize in preprocessor_config.json",
            todo="pass --do-normalize or --no-do-normalize",
        )
    return found, "preprocessor_config.json: do_normalize"


def _require_pair(b: CheckpointBuilder, shapes: Mapping[str, object]) -> None:
    halves = [half for half in ("weight_g", "weight_v") if f"{_POS}.{half}" in shapes]
    if f"{_POS}.weight" in shapes:
        raise UnsupportedError(
            "the positional convolution's weight norm is fused already",
            file=b.source.path,
            where=f"{_POS}.weight",
            expected="the pair weight_g and weight_v, which the engine fuses itself",
            todo="use the checkpoint as it was published",
        )
    if len(halves) != 2:
        raise UnsupportedError(
            "the positional convolution's weight-norm pair is not whole",
            file=b.source.path,
            expected=f"{_POS}.weight_g and .weight_v",
            found=", ".join(halves) or "neither",
        )


def _describe_emotion(b: CheckpointBuilder) -> None:
    """Labels in id order; a head of projector, mean and classifier."""
    config = _config(b)
    labels = _labels(config)
    classes = _outputs(b, "classifier.weight")
    if labels is None or len(labels) != classes:
        raise UnsupportedError(
            "the labels do not fit the classifier",
            file=b.source.path,
            expected=f"{classes} labels in config.json's id2label",
            found="none" if labels is None else ", ".join(labels),
        )
    _describe_head(b, labels, "emotion", "config.json: id2label")
    _describe_backbone(b, config)


_GENDERS = ("female", "male", "child")


def _describe_age_gender(b: CheckpointBuilder) -> None:
    """Two heads of dense, tanh and out_proj; the labels are the published model's."""
    config = _config(b)
    classes = _outputs(b, "gender.out_proj.weight")
    labels, origin = _labels(config), "config.json: id2label"
    if labels is None or len(labels) != classes or labels[0].startswith("LABEL_"):
        labels, origin = _GENDERS, "seed default"
    ages = _outputs(b, "age.out_proj.weight")
    if ages != 1 or classes != len(_GENDERS):
        raise UnsupportedError(
            "the heads are not those of age and gender",
            file=b.source.path,
            expected=f"1 age and {len(_GENDERS)} genders",
            found=f"{ages} and {classes}",
        )
    _describe_head(b, labels, "gender", origin)
    _describe_backbone(b, config)


def _describe_head(b: CheckpointBuilder, labels: tuple[str, ...], label: str, origin: str) -> None:
    for key in ("voicedetect.arch", f"{_A}.present", f"{_A}.kind", f"{_A}.pooling"):
        b.fixed(key, "schema")
    b.set(f"{_A}.{label}_labels", labels, origin)
    b.set(f"{_A}.num_{label}s", len(labels), "shape of the head's last layer")


def _outputs(b: CheckpointBuilder, name: str) -> int:
    if name not in b.source.tensors:
        raise UnsupportedError(
            f"the checkpoint has no tensor {name!r}",
            file=b.source.path,
            todo="check that this is the model with that head",
        )
    shape = b.source.tensors[name].shape
    if len(shape) != 2:
        raise UnsupportedError(
            f"the tensor {name!r} is not the weight of a linear layer",
            file=b.source.path,
            expected="2 axes",
            found=f"shape {list(shape)}",
            todo="check that this is the checkpoint as it was published",
        )
    return shape[0]


def _config(b: CheckpointBuilder) -> Mapping[str, Any]:
    config = b.source.json("config.json")
    if config is None:
        raise UsageError("the folder has no config.json", file=b.source.path)
    return config


def _labels(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """id2label in id order; its keys are integers, as numbers or as text."""
    listed = config.get("id2label")
    if not isinstance(listed, dict) or not listed:
        return None
    try:
        by_id = {int(k): str(v) for k, v in listed.items()}
    except ValueError:
        return None
    return (
        tuple(by_id[i] for i in range(len(by_id))) if set(by_id) == set(range(len(by_id))) else None
    )


def _is_backbone(names: Collection[str]) -> bool:
    return "wav2vec2.feature_projection.projection.weight" in names


def _counts(m: Manifest, label: str, classifier: str) -> dict[str, object]:
    classes = axis(m, classifier)
    return {f"{_A}.num_{label}s": classes, f"{_A}.{label}_labels": classes, **sizes(m)}


_TESTED = "transformers 5.24.0"
_SPACE = (
    "model_type wav2vec2, any widths and depths, group or layer norm in the conv stack, pre- or "
    "post-norm layers, erf gelu, an even positional kernel, no adapters, "
    "no weighted layer sum over a pre-norm encoder"
)

_EMOTION = Arch(
    "wav2vec2_emotion",
    wav2vec2.NAME,
    _head_rows("wav2vec2_emotion", "emotion", "emotion"),
    lambda m: restore(m, "emotion"),
    outputs=("emotion_logits", "emotion_probs"),
    describe_checkpoint=_describe_emotion,
    claims=lambda names: _is_backbone(names) and "classifier.weight" in names,
    tested=_TESTED,
    space=_SPACE,
    model="superb/wav2vec2-base-superb-er",
    forbidden=_FORBIDDEN,
    counts=lambda m: _counts(m, "emotion", "classifier.weight"),
    whole=True,
)
_AGE_GENDER = Arch(
    "wav2vec2_age_gender",
    wav2vec2.NAME,
    _head_rows("wav2vec2_age_gender", "age_gender", "gender"),
    lambda m: restore(m, "age_gender"),
    outputs=("age_raw", "gender_logits", "gender_probs"),
    describe_checkpoint=_describe_age_gender,
    claims=lambda names: _is_backbone(names) and "gender.out_proj.weight" in names,
    tested=_TESTED,
    space=_SPACE,
    model="audeering/wav2vec2-large-robust-24-ft-age-gender",
    licence="the published age/gender model is CC-BY-NC-SA-4.0: not for commercial use",
    forbidden=_FORBIDDEN,
    counts=lambda m: _counts(m, "gender", "gender.out_proj.weight"),
    whole=True,
)
ARCHS = (_EMOTION, _AGE_GENDER)
