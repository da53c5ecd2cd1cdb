"""``moss-audio-tokenizer``: both MOSS codecs, 24 kHz mono and 48 kHz stereo.

One schema: mono is the case of one channel, and writes the mono keys exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from converters.archs.arch import Arch
from converters.archs.checkpoint import CheckpointBuilder
from converters.manifest import Manifest
from converters.network import Network
from converters.schema import Row
from graphtools.errors import UnsupportedError, UsageError
from graphtools.families import FAMILIES, moss
from graphtools.names import bind_names

__all__ = ["ARCH", "ARCHITECTURE", "Stage", "stage_table"]

ARCHITECTURE = "moss-audio-tokenizer"

_P = "moss.at"
_ARRAYS = ("kind", "patch", "in_dim", "d_model", "n_heads", "n_layers", "d_ff", "out_dim")
_MEANINGS = {
    "kind": "0 patch, 1 transformer",
    "patch": "patch size; 0 for a transformer",
    "in_dim": "width that goes in; 0 for a patch",
    "d_model": "width of the layers; 0 for a patch",
    "n_heads": "attention heads; 0 for a patch",
    "n_layers": "layers; 0 for a patch",
    "d_ff": "width of the feed-forward layers; 0 for a patch",
    "out_dim": "width that comes out; 0 for a patch",
}
_KINDS = {"PatchedPretransform": 0, "Transformer": 1, "ProjectedTransformer": 1}

_MONO_ROWS = (
    Row(f"{_P}.sample_rate", "u32", "sample rate", "replay", "Hz"),
    Row(f"{_P}.downsample", "u32", "samples of a channel per frame of codes", "source"),
    Row(f"{_P}.num_quantizers", "u32", "residual codebooks", "replay"),
    Row(f"{_P}.codebook_size", "u32", "rows of a codebook", "source"),
    Row(f"{_P}.codebook_dim", "u32", "width of a row", "source"),
    Row(f"{_P}.rvq_dim", "u32", "width of the residual", "source"),
    Row(f"{_P}.context_seconds", "f32", "how far back attention sees", "replay", "s"),
    *(
        row
        for tower, name in (("enc", "encoder"), ("dec", "decoder"))
        for row in (
            Row(f"{_P}.{tower}.n_stages", "u32", f"stages of the {name}", "source"),
            *(
                Row(f"{_P}.{tower}.{key}", "[i32]", f"{name}: {_MEANINGS[key]}", "replay")
                for key in _ARRAYS
            ),
        )
    ),
    Row(f"{_P}.encoder_kwargs", "string", "the config's list as JSON; for people", "source"),
    Row(f"{_P}.decoder_kwargs", "string", "the config's list as JSON; for people", "source"),
)
_STEREO_ROWS = (
    Row(f"{_P}.channels", "u32", "channels, interleaved into one sequence", "replay"),
    Row(f"{_P}.channel_interleave", "u32", "1: the channels are interleaved", "source"),
    Row(f"{_P}.code_dim", "u32", "width of the latent", "source"),
)


@dataclass(frozen=True)
class Stage:
    """One stage of a tower as the arrays say it, and the rate at which it runs.

    Attributes:
        rate: positions per second at the stage's input.
        window: positions that one attends to; 0 for a patch.
    """

    index: int
    kind: int
    patch: int
    in_dim: int
    d_model: int
    n_heads: int
    n_layers: int
    d_ff: int
    out_dim: int
    rate: float
    window: int


def stage_table(
    arrays: Mapping[str, Sequence[int]], tower: str, rate: float, seconds: float
) -> list[Stage]:
    """The stages of a tower: rate and window of each from the rate at its input.

    Args:
        arrays: the eight stage arrays, all of one length.
        tower: ``enc`` (a patch divides the rate) or ``dec`` (it multiplies it).
        rate: positions per second that go in.
        seconds: how far back attention sees.
    """
    table = []
    for i, row in enumerate(zip(*(arrays[key] for key in _ARRAYS), strict=True)):
        kind, patch = row[0], row[1]
        window = int(rate * seconds) if kind == 1 else 0
        table.append(Stage(i, *row[:8], rate, window))  # type: ignore[call-arg]  # eight arrays
        if kind == 0:
            rate = rate / patch if tower == "enc" else rate * patch
    return table


def _claims(names: Collection[str]) -> bool:
    """Whether a checkpoint's names are a MOSS codec's, under a prefix or not."""
    return any("quantizer.quantizers.0.codebook.weight" in name for name in names) and any(
        ".self_attn.in_projs.0.weight" in name for name in names
    )


def _describe_checkpoint(b: CheckpointBuilder) -> None:
    """Keys from config.json, checked against the tensors; weight norms fused."""
    config = b.source.json("config.json")
    if config is None:
        raise UsageError("the folder has no config.json", file=b.source.path)
    _require_no_prefix(b)
    channels = _channels(b, config)
    quantizer = b.require_config(config, "quantizer_kwargs", dict)
    rate = b.require_config(config, "sample_rate", int)
    downsample = b.require_config(config, "downsample_rate", int)
    b.set(f"{_P}.sample_rate", rate, "config.json: sample_rate")
    b.set(f"{_P}.downsample", downsample, "config.json: downsample_rate")
    for key in ("num_quantizers", "codebook_size", "codebook_dim", "rvq_dim"):
        value = b.require_config(quantizer, key, int)
        b.set(f"{_P}.{key}", value, f"config.json: quantizer_kwargs.{key}")
    name = "causal_transformer_context_duration"
    seconds = b.require_number(config, name)
    b.set(f"{_P}.context_seconds", seconds, f"config.json: {name}")
    b.fuse_weight_norms()
    for tower, kwargs in (("enc", "encoder_kwargs"), ("dec", "decoder_kwargs")):
        listed = b.require_config(config, kwargs, list)
        arrays = _arrays(b, kwargs, listed)
        b.set(f"{_P}.{tower}.n_stages", len(listed), f"config.json: length of {kwargs}")
        for key in _ARRAYS:
            b.set(f"{_P}.{tower}.{key}", tuple(arrays[key]), f"config.json: {kwargs}")
        text = json.dumps(listed, sort_keys=True, separators=(",", ":"))
        b.set(f"{_P}.{kwargs}", text, f"config.json: {kwargs}")
        _check_tower(b, tower, arrays, downsample, channels)
    if channels > 1:
        b.set(f"{_P}.channels", channels, "config.json: number_channels")
        b.set(f"{_P}.channel_interleave", 1, "config.json: enable_channel_interleave")
        b.set(f"{_P}.code_dim", b.require_config(config, "code_dim", int), "config.json: code_dim")
    _check_quantizer(b, quantizer)


def _require_no_prefix(b: CheckpointBuilder) -> None:
    """A wrapper's prefix on every name is recognised, not guessed away."""
    for name in b.source.tensors:
        head, found, _ = name.partition("encoder.")
        if found and head:
            raise UnsupportedError(
                f"the tensors have the prefix {head!r}, which the engine does not look for",
                file=b.source.path,
                found=name,
                todo=f"add --strip-prefix {head}",
            )


def _channels(b: CheckpointBuilder, config: Mapping[str, Any]) -> int:
    channels = config.get("number_channels", 1)
    interleave = config.get("enable_channel_interleave", False)
    if channels == 1:
        return 1
    if channels != 2 or interleave is not True:
        raise UnsupportedError(
            "the codec's channels are not handled as the engine does",
            file=b.source.path,
            expected="number_channels 1, or 2 with enable_channel_interleave true",
            found=f"number_channels {channels}, enable_channel_interleave {interleave}",
        )
    return 2


def _arrays(b: CheckpointBuilder, kwargs: str, listed: list[Any]) -> dict[str, list[int]]:
    """The stage arrays of a tower, from the config's list."""
    keys = {
        "in_dim": "input_dimension",
        "d_model": "d_model",
        "n_heads": "num_heads",
        "n_layers": "num_layers",
        "d_ff": "dim_feedforward",
        "out_dim": "output_dimension",
    }
    fixed = {
        "causal": True,
        "norm": "layer_norm",
        "positional_embedding": "rope",
        "max_period": moss.MAX_PERIOD,
        "gating": "none",
    }
    arrays: dict[str, list[int]] = {key: [] for key in _ARRAYS}
    for i, stage in enumerate(listed):
        module_type = stage.get("module_type") if isinstance(stage, dict) else None
        kind = _KINDS.get(str(module_type))
        if kind is None:
            raise UnsupportedError(
                f"stage {i} of {kwargs} is of no known kind",
                file=b.source.path,
                expected=" or ".join(_KINDS),
                found=repr(module_type),
            )
        arrays["kind"].append(kind)
        arrays["patch"].append(b.require_config(stage, "patch_size", int) if kind == 0 else 0)
        for key, name in keys.items():
            arrays[key].append(b.require_config(stage, name, int) if kind == 1 else 0)
        for key, value in fixed.items() if kind == 1 else ():
            if stage.get(key, value) != value:
                raise UnsupportedError(
                    f"stage {i} of {kwargs} has another {key} than the engine's",
                    file=b.source.path,
                    expected=repr(value),
                    found=repr(stage[key]),
                )
    return arrays


def _check_tower(
    b: CheckpointBuilder,
    tower: str,
    arrays: Mapping[str, Sequence[int]],
    downsample: int,
    channels: int,
) -> None:
    """Patches multiply to the downsampling, widths chain, projections are where widths differ."""
    name = "encoder" if tower == "enc" else "decoder"
    product = math.prod(p for p in arrays["patch"] if p)
    if product != downsample * channels:
        raise _mismatch(
            b,
            f"the {name}'s patches do not multiply to the downsampling",
            f"downsample_rate {downsample} x {channels} channels = {downsample * channels}",
            f"product {product} of {[p for p in arrays['patch'] if p]}",
        )
    width: int | None = 1 if tower == "enc" else None
    for i, kind in enumerate(arrays["kind"]):
        patch, heads, d_model = arrays["patch"][i], arrays["n_heads"][i], arrays["d_model"][i]
        if kind == 0 and width is not None:
            if tower == "dec" and width % patch:
                what = f"{name}.{i}: a patch does not divide the width"
                raise _mismatch(b, what, f"{width}", f"patch {patch}")
            width = width * patch if tower == "enc" else width // patch
        if kind == 1:
            if width not in (None, arrays["in_dim"][i]):
                raise _mismatch(
                    b,
                    f"{name}.{i} takes another width than comes in",
                    f"{width}",
                    f"input_dimension {arrays['in_dim'][i]}",
                )
            if heads < 1 or d_model % heads:
                what = f"{name}.{i}: the heads do not divide d_model"
                raise _mismatch(b, what, f"{d_model}", f"{heads} heads")
            width = arrays["out_dim"][i]
            ends = {"input_proj": arrays["in_dim"][i], "output_proj": width}
            for projection, outside in ends.items():
                tensor = f"{name}.{i}.{projection}.weight"
                there, needed = tensor in b.tensors, outside != d_model
                if there != needed:
                    raise _mismatch(
                        b,
                        f"{tensor} is {'there' if there else 'missing'}",
                        f"{'a projection' if needed else 'none'} between {outside} and {d_model}",
                        "a tensor" if there else "no tensor",
                    )
    if tower == "dec" and width not in (None, 1):
        raise _mismatch(b, "the decoder does not end in samples", "width 1", f"width {width}")


def _check_quantizer(b: CheckpointBuilder, kwargs: Mapping[str, Any]) -> None:
    """Codebooks, as many and as large as the config says."""
    number, size, dim = (kwargs[k] for k in ("num_quantizers", "codebook_size", "codebook_dim"))
    found = {n for n in b.tensors if n.startswith("quantizer.quantizers.")}
    books = {n.split(".")[2] for n in found}
    if books != {str(i) for i in range(number)}:
        what = "the codebooks are not as many as the config says"
        raise _mismatch(b, what, f"num_quantizers {number}", f"{len(books)} in the tensors")
    for i in range(number):
        name = f"quantizer.quantizers.{i}.codebook.weight"
        shape = b.tensors[name].shape if name in b.tensors else ()
        if shape != (size, dim):
            raise _mismatch(b, f"{name} has another shape", f"{[size, dim]}", f"{list(shape)}")
    projection = b.tensors.get("quantizer.input_proj.weight")
    rvq = kwargs["rvq_dim"]
    if projection is not None:
        wanted = (rvq, kwargs.get("input_dim", projection.shape[1]))
        if projection.shape != wanted:
            what = "quantizer.input_proj.weight has another shape"
            raise _mismatch(b, what, f"{list(wanted)}", f"{list(projection.shape)}")


def _mismatch(b: CheckpointBuilder, what: str, expected: str, found: str) -> UnsupportedError:
    return UnsupportedError(
        what,
        file=b.source.path,
        expected=expected,
        found=found,
        todo="use the config.json that was published with these weights",
    )


def _restore(m: Manifest, direction: str) -> Network:
    """One direction's configuration and names, from the keys."""
    rate = float(m.get(f"{_P}.sample_rate", "u32"))
    channels = m.get(f"{_P}.channels", "u32") if f"{_P}.channels" in m.by_key else 1
    seconds = m.get(f"{_P}.context_seconds", "f32")
    arrays = {t: {k: m.get(f"{_P}.{t}.{k}", "[i32]") for k in _ARRAYS} for t in ("enc", "dec")}
    lengths = {len(a) for tower in arrays.values() for a in tower.values()}
    for tower, found in arrays.items():
        if {len(a) for a in found.values()} != {m.get(f"{_P}.{tower}.n_stages", "u32")}:
            raise UnsupportedError(
                f"the stage arrays of {tower} are not of one length", found=str(sorted(lengths))
            )
        if any(p < 1 for k, p in zip(found["kind"], found["patch"], strict=True) if k == 0):
            raise UnsupportedError(f"a patch stage of {tower} has no size")
    encoder = stage_table(arrays["enc"], "enc", rate * channels, seconds)
    last = math.prod(stage.patch for stage in encoder if stage.kind == 0)
    decoder = stage_table(arrays["dec"], "dec", rate * channels / last, seconds)
    stages = tuple(
        _family_stage(stage) for stage in (encoder if direction == "encode" else decoder)
    )
    names = {t.name for t in m.tensors}
    cfg = moss.Config(
        "encode" if direction == "encode" else "decode",
        stages,
        m.get(f"{_P}.num_quantizers", "u32"),
        "quantizer.input_proj.weight" in names,
    )
    family = FAMILIES[moss.NAME]
    return Network(family, cfg, bind_names(family.template(cfg), names), constants={})


def _family_stage(s: Stage) -> moss.Patch | moss.Transformer:
    if s.kind == 0:
        return moss.Patch(s.patch)
    return moss.Transformer(s.in_dim, s.d_model, s.n_heads, s.n_layers, s.d_ff, s.out_dim, s.window)


ARCH = Arch(
    ARCHITECTURE,
    moss.NAME,
    _MONO_ROWS,
    lambda m: _restore(m, "encode"),
    outputs=("codes",),
    describe_checkpoint=_describe_checkpoint,
    claims=_claims,
    architecture=ARCHITECTURE,
    optional_rows=_STEREO_ROWS,
    inverse=lambda m: _restore(m, "decode"),
    tested="the published model code (a small checkpoint with its latent, codes and audio)",
    space="any stages of patches and causal rotary transformers, one or two interleaved channels",
)
