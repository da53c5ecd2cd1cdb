"""``moss-audio-tokenizer``: both MOSS codecs, 24 kHz mono and 48 kHz stereo.

One schema: mono is the case of one channel, and writes the mono keys exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from converters.archs.arch import Arch, StageRow
from converters.archs.checkpoint import CheckpointBuilder
from converters.archs.moss_stages import (
    ARRAYS,
    MAX_SECONDS,
    Stage,
    arrays_of,
    check_code_dim,
    check_quantizer,
    check_shapes,
    check_tower,
    check_windows,
    require_meaningful,
    seconds_of_key,
    stage_tables,
)
from converters.manifest import Manifest
from converters.network import Network, axis
from converters.schema import Row
from graphtools.errors import UnsupportedError, UsageError
from graphtools.families import FAMILIES, moss
from graphtools.names import bind_names

__all__ = ["ARCH", "ARCHITECTURE"]

ARCHITECTURE = "moss-audio-tokenizer"

_P = "moss.at"
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

_MONO_ROWS = (
    Row(f"{_P}.sample_rate", "u32", "sample rate", "replay", "Hz"),
    Row(f"{_P}.downsample", "u32", "samples of a channel per frame of codes", "source"),
    Row(f"{_P}.num_quantizers", "u32", "residual codebooks", "replay"),
    Row(f"{_P}.codebook_size", "u32", "rows of a codebook", "source"),
    Row(f"{_P}.codebook_dim", "u32", "width of a row", "source"),
    Row(f"{_P}.rvq_dim", "u32", "width of the residual", "source"),
    Row(
        f"{_P}.context_seconds",
        "f32",
        "how far back attention sees; as the decimal it was rounded from",
        "replay",
        "s",
    ),
    *(
        row
        for tower, name in (("enc", "encoder"), ("dec", "decoder"))
        for row in (
            Row(f"{_P}.{tower}.n_stages", "u32", f"stages of the {name}", "source"),
            *(
                Row(
                    f"{_P}.{tower}.{key}",
                    "[i32]",
                    f"{name}: {_MEANINGS[key]}",
                    "replay",
                    group=tower,
                )
                for key in ARRAYS
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
    towers: dict[str, dict[str, list[int]]] = {}
    for tower, kwargs in (("enc", "encoder_kwargs"), ("dec", "decoder_kwargs")):
        listed = b.require_config(config, kwargs, list)
        arrays = towers[kwargs.removesuffix("_kwargs")] = arrays_of(b, kwargs, listed)
        b.set(f"{_P}.{tower}.n_stages", len(listed), f"config.json: length of {kwargs}")
        for key in ARRAYS:
            b.set(f"{_P}.{tower}.{key}", tuple(arrays[key]), f"config.json: {kwargs}")
        text = json.dumps(listed, sort_keys=True, separators=(",", ":"))
        b.set(f"{_P}.{kwargs}", text, f"config.json: {kwargs}")
        check_tower(b, tower, arrays, downsample, channels)
    if channels > 1:
        b.set(f"{_P}.channels", channels, "config.json: number_channels")
        b.set(f"{_P}.channel_interleave", 1, "config.json: enable_channel_interleave")
        check_code_dim(b, config, towers["encoder"])
        b.set(f"{_P}.code_dim", config["code_dim"], "config.json: code_dim")
    check_quantizer(b, quantizer, towers["encoder"], towers["decoder"])
    check_shapes(b, towers, quantizer)
    check_windows(b, towers, float(rate * channels), seconds)


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


def _towers(m: Manifest) -> tuple[list[Stage], list[Stage]]:
    """The stages of encoder and decoder, from the keys."""
    rate = float(m.get(f"{_P}.sample_rate", "u32"))
    channels = m.get(f"{_P}.channels", "u32") if f"{_P}.channels" in m.by_key else 1
    seconds = m.get(f"{_P}.context_seconds", "f32")
    towers = {"encoder": "enc", "decoder": "dec"}
    arrays = {
        name: {k: m.get(f"{_P}.{t}.{k}", "[i32]") for k in ARRAYS} for name, t in towers.items()
    }
    lengths = {len(a) for tower in arrays.values() for a in tower.values()}
    for tower, found in arrays.items():
        if {len(a) for a in found.values()} != {m.get(f"{_P}.{towers[tower]}.n_stages", "u32")}:
            raise UnsupportedError(
                f"the stage arrays of {tower} are not of one length", found=str(sorted(lengths))
            )
        require_meaningful(tower, found, len(m.tensors))
    if not 0.0 < seconds <= MAX_SECONDS or rate * channels < 1:
        raise UnsupportedError(
            "the attention's reach means nothing",
            expected=f"a sample rate, channels, and above 0 to {MAX_SECONDS:g} s",
            found=f"{rate:g} Hz, {channels} channels, {seconds:g} s",
        )
    return stage_tables(arrays, rate * channels, seconds_of_key(seconds))


def _restore(m: Manifest, direction: str) -> Network:
    """One direction's configuration and names, from the keys."""
    encoder, decoder = _towers(m)
    stages = tuple(
        _family_stage(stage) for stage in (encoder if direction == "encode" else decoder)
    )
    names = {t.name for t in m.tensors}
    quantizers = m.get(f"{_P}.num_quantizers", "u32")
    if not 1 <= quantizers <= len(names):
        raise UnsupportedError(
            f"the key {_P + '.num_quantizers'!r} does not fit the tensors",
            expected=f"from 1 to {len(names)}, the number of tensors",
            found=str(quantizers),
        )
    cfg = moss.Config(
        "encode" if direction == "encode" else "decode",
        stages,
        quantizers,
        f"quantizer.{'input' if direction == 'encode' else 'output'}_proj.weight" in names,
    )
    family = FAMILIES[moss.NAME]
    bound = bind_names(family.template(cfg), names)
    return Network(
        family,
        cfg,
        bound,
        constants={},
        input=(1, None) if direction == "encode" else (quantizers, None),
    )


def _stages(m: Manifest) -> list[StageRow]:
    """Both towers stage by stage, and the quantizer between them."""
    encoder, decoder = _towers(m)
    rows = [_row(m, f"encoder.{stage.index}", stage) for stage in encoder]
    rows.append(_row(m, "quantizer", None))
    return [*rows, *(_row(m, f"decoder.{stage.index}", stage) for stage in decoder)]


def _row(m: Manifest, name: str, stage: Stage | None) -> StageRow:
    values: dict[str, int | float | str]
    if stage is None:
        books = m.get(f"{_P}.num_quantizers", "u32"), m.get(f"{_P}.codebook_size", "u32")
        values = {"kind": f"{books[0]} codebooks of {books[1]}"}
    elif stage.kind == 0:
        values = {"kind": "patch", "patch": stage.patch, "rate": stage.rate}
    else:
        values = {"kind": "transformer", "in": stage.in_dim, "d_model": stage.d_model}
        values |= {"heads": stage.n_heads, "layers": stage.n_layers, "ff": stage.d_ff}
        values |= {"out": stage.out_dim, "rate": stage.rate, "window": stage.window}
    size = sum(t.size for t in m.tensors if t.name.startswith(f"{name}."))
    return StageRow(name, values, size)


def _family_stage(s: Stage) -> moss.Patch | moss.Transformer:
    if s.kind == 0:
        return moss.Patch(s.patch)
    return moss.Transformer(s.in_dim, s.d_model, s.n_heads, s.n_layers, s.d_ff, s.out_dim, s.window)


def _counts(m: Manifest) -> dict[str, object]:
    book = "quantizer.quantizers.0"
    channels = m.get(f"{_P}.channels", "u32") if f"{_P}.channels" in m.by_key else 1
    patches = math.prod(patch for patch in m.get(f"{_P}.enc.patch", "[i32]") if patch)
    found: dict[str, object] = {
        f"{_P}.num_quantizers": _numbered(m, "quantizer.quantizers."),
        f"{_P}.codebook_size": axis(m, f"{book}.codebook.weight"),
        f"{_P}.codebook_dim": axis(m, f"{book}.codebook.weight", 1),
        f"{_P}.rvq_dim": axis(m, f"{book}.in_proj.weight", 1),
        f"{_P}.downsample": patches // max(channels, 1),
        f"{_P}.code_dim": axis(m, "quantizer.input_proj.weight", 1),
    }
    for key, tower in (("enc", "encoder"), ("dec", "decoder")):
        kinds = m.get(f"{_P}.{key}.kind", "[i32]")
        found[f"{_P}.{key}.n_stages"] = len(kinds)
        rows = [_widths(m, f"{tower}.{i}") if kind == 1 else {} for i, kind in enumerate(kinds)]
        for name in ("in_dim", "d_model", "n_layers", "d_ff", "out_dim"):
            values = tuple(row.get(name, 0) for row in rows)
            found[f"{_P}.{key}.{name}"] = None if None in values else values
    return found


def _widths(m: Manifest, name: str) -> dict[str, int | None]:
    """What the tensors of a transformer stage say of it; a projection that is not there keeps
    the width."""
    layer = f"{name}.transformer.layers.0"
    width = axis(m, f"{layer}.norm1.weight")
    into, out = f"{name}.input_proj.weight", f"{name}.output_proj.weight"
    return {
        "in_dim": axis(m, into, 1) if into in m.by_name else width,
        "d_model": width,
        "n_layers": _numbered(m, f"{name}.transformer.layers."),
        "d_ff": axis(m, f"{layer}.linear1.weight"),
        "out_dim": axis(m, out) if out in m.by_name else width,
    }


def _numbered(m: Manifest, stem: str) -> int:
    """How many modules stand below a list, by their names."""
    return len({n.removeprefix(stem).split(".")[0] for n in m.by_name if n.startswith(stem)})


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
    stages=_stages,
    counts=_counts,
    quantised=True,
    space="any stages of patches and causal rotary transformers, one or two interleaved channels",
)
