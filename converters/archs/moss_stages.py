"""The stages of a MOSS codec: the arrays that say them, and what a config has to fit.

Everything that a config says twice, or that the tensors say too, is compared here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.archs.checkpoint import CheckpointBuilder
from graphtools.errors import UnsupportedError
from graphtools.families import moss

__all__ = [
    "ARRAYS",
    "MAX_SECONDS",
    "Stage",
    "arrays_of",
    "check_code_dim",
    "check_quantizer",
    "check_shapes",
    "check_tower",
    "check_windows",
    "latent_width",
    "require_meaningful",
    "seconds_of_key",
    "stage_tables",
]

# The stage arrays of a tower, one entry a stage, as the keys call them.
ARRAYS = ("kind", "patch", "in_dim", "d_model", "n_heads", "n_layers", "d_ff", "out_dim")
# Of attention's reach: a day.
MAX_SECONDS = 86400.0
# Of one patch; the published codecs' largest is 240.
_MAX_PATCH = 1 << 14
_MAX_STAGES = 64
_KINDS = {"PatchedPretransform": 0, "Transformer": 1, "ProjectedTransformer": 1}


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


def stage_tables(
    towers: Mapping[str, Mapping[str, Sequence[int]]], rate: float, seconds: float
) -> tuple[list[Stage], list[Stage]]:
    """The stages of encoder and decoder: rate and window of each from the rate at its input.

    A patch divides the rate in the encoder and multiplies it in the decoder, which begins at the
    rate that the encoder ends with.

    Args:
        towers: the eight stage arrays of ``encoder`` and ``decoder``.
        rate: samples per second of all channels together.
        seconds: how far back attention sees.
    """
    tables: dict[str, list[Stage]] = {"encoder": [], "decoder": []}
    for tower, table in tables.items():
        for i, row in enumerate(zip(*(towers[tower][key] for key in ARRAYS), strict=True)):
            kind, patch = row[0], row[1]
            window = int(rate * seconds) if kind == 1 else 0
            table.append(Stage(i, *row[:8], rate, window))  # type: ignore[call-arg]  # eight arrays
            if kind == 0:
                rate = rate / patch if tower == "encoder" else rate * patch
    return tables["encoder"], tables["decoder"]


def require_meaningful(tower: str, arrays: Mapping[str, Sequence[int]], tensors: int) -> None:
    """Refuse numbers that no tower has, before stages are made of them.

    Raises:
        UnsupportedError: a stage of no known kind, a patch or a transformer without a size, more
            layers than the file has tensors.
    """
    stages = list(zip(*(arrays[key] for key in ARRAYS), strict=True))
    for i, (kind, patch, *widths) in enumerate(stages):
        sound = kind in (0, 1) and (1 <= patch <= _MAX_PATCH if kind == 0 else min(widths) > 0)
        if not sound or arrays["n_layers"][i] > tensors or len(stages) > _MAX_STAGES:
            raise UnsupportedError(
                f"stage {i} of {tower} means nothing",
                expected=f"kind 0 with a patch of 1 to {_MAX_PATCH}, or kind 1 with widths, "
                f"heads and layers of 1 or more; at most {_MAX_STAGES} stages",
                found=", ".join(f"{key} {arrays[key][i]}" for key in ARRAYS),
            )


def seconds_of_key(stored: float) -> float:
    """What an f32 key meant: its shortest decimal.

    A context of 0.01 s is stored as 0.00999999977648, with which 1600 positions a second would
    give a window of 15 and not of 16.
    """
    return float(str(np.float32(stored)))


def arrays_of(b: CheckpointBuilder, kwargs: str, listed: list[Any]) -> dict[str, list[int]]:
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
    arrays: dict[str, list[int]] = {key: [] for key in ARRAYS}
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


def check_tower(
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


def check_windows(
    b: CheckpointBuilder,
    towers: Mapping[str, Mapping[str, Sequence[int]]],
    rate: float,
    seconds: float,
) -> None:
    """Every position sees at least itself, and as many as the model does after rounding to f32."""
    exact = stage_tables(towers, rate, seconds)
    stored = stage_tables(towers, rate, seconds_of_key(seconds))
    for tower, ours, theirs in zip(("encoder", "decoder"), exact, stored, strict=True):
        for stage, other in zip(ours, theirs, strict=True):
            if stage.kind == 1 and (stage.window < 1 or stage.window != other.window):
                empty = stage.window < 1
                raise UnsupportedError(
                    f"{tower}.{stage.index}: the context is "
                    + ("shorter than a position" if empty else "none that its f32 key can say"),
                    file=b.source.path,
                    expected="a window of 1 or more" if empty else f"a window of {stage.window}",
                    found=f"{seconds!r} s at {stage.rate:g} positions a second: {other.window}",
                    todo="use the config.json that was published with these weights",
                )


def check_code_dim(
    b: CheckpointBuilder, config: Mapping[str, Any], encoder: Mapping[str, Sequence[int]]
) -> None:
    """``code_dim`` is the width of the latent."""
    width = latent_width(encoder, "out_dim")
    if b.require_config(config, "code_dim", int) != width:
        what = "code_dim is not the encoder's last width"
        raise _mismatch(b, what, str(width), f"code_dim {config['code_dim']}")


def check_quantizer(
    b: CheckpointBuilder,
    kwargs: Mapping[str, Any],
    encoder: Mapping[str, Sequence[int]],
    decoder: Mapping[str, Sequence[int]],
) -> None:
    """There are as many codebooks as the config says, and the towers' widths at both ends.

    Raises:
        UnsupportedError: there are more or fewer, or the widths differ.
    """
    ends = {
        "input_dim": ("the encoder's last", latent_width(encoder, "out_dim")),
        "output_dim": ("the decoder's first", latent_width(decoder, "in_dim")),
    }
    for key, (which, width) in ends.items():
        if b.require_config(kwargs, key, int) != width:
            what = f"the quantizer's {key} is not {which} width"
            raise _mismatch(b, what, str(width), f"{key} {kwargs[key]}")
    number = kwargs["num_quantizers"]
    found = {n for n in b.tensors if n.startswith("quantizer.quantizers.")}
    books = {n.split(".")[2] for n in found}
    if books != {str(i) for i in range(number)}:
        what = "the codebooks are not as many as the config says"
        raise _mismatch(b, what, f"num_quantizers {number}", f"{len(books)} in the tensors")


def _mismatch(b: CheckpointBuilder, what: str, expected: str, found: str) -> UnsupportedError:
    return UnsupportedError(
        what,
        file=b.source.path,
        expected=expected,
        found=found,
        todo="use the config.json that was published with these weights",
    )


def latent_width(arrays: Mapping[str, Sequence[int]], key: str) -> int:
    """The width at the latent's end of a tower, where patches may stand outside the layers.

    Args:
        key: ``out_dim`` for an encoder, ``in_dim`` for a decoder.
    """
    inwards = list(zip(arrays["kind"], arrays["patch"], arrays[key], strict=True))
    width = 1
    for kind, patch, dim in reversed(inwards) if key == "out_dim" else inwards:
        if kind == 1:
            return width * dim
        width *= patch
    return width


def check_shapes(
    b: CheckpointBuilder,
    towers: Mapping[str, Mapping[str, Sequence[int]]],
    quantizer: Mapping[str, Any],
) -> None:
    """Every tensor has the shape that the config gives its place, and every place its tensor.

    A tensor of the towers or the quantizer beyond those contradicts the config; any other is
    left out, and listed.

    Raises:
        UnsupportedError: one is missing, has another shape, or is one too many.
    """
    wanted: dict[str, tuple[int, ...]] = {}
    optional: dict[str, tuple[int, ...]] = {}
    for tower, arrays in towers.items():
        for i, kind in enumerate(arrays["kind"]):
            if kind == 1:
                stage = {key: arrays[key][i] for key in ARRAYS}
                wanted |= _transformer_shapes(f"{tower}.{i}", stage)
                for end, width in (("input", stage["d_model"]), ("output", stage["out_dim"])):
                    optional[f"{tower}.{i}.{end}_proj.bias"] = (width,)
    wanted |= _quantizer_shapes(b, quantizer)
    for name, shape in wanted.items():
        found = b.tensors.get(name)
        if found is None:
            raise _mismatch(b, f"the tensor {name!r} is missing", str(list(shape)), "no tensor")
    for name, tensor in list(b.tensors.items()):
        place = wanted.get(name, optional.get(name))
        if place == tensor.shape:
            continue
        if place is not None:
            what = f"the tensor {name!r} has another shape than the config says"
            raise _mismatch(b, what, str(list(place)), str(list(tensor.shape)))
        if name.startswith(("encoder.", "decoder.", "quantizer.")):
            what = f"the config has no place for the tensor {name!r}"
            raise _mismatch(b, what, "as many stages, layers and codebooks as tensors", name)
        b.leave_out(name, "the model has no place for it")


def _transformer_shapes(name: str, stage: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    d, ff = stage["d_model"], stage["d_ff"]
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(stage["n_layers"]):
        layer = f"{name}.transformer.layers.{i}"
        shapes |= {f"{layer}.{norm}.{part}": (d,) for norm in _NORMS for part in _PARTS}
        shapes |= {f"{layer}.layer_scale_{n}.scale": (d,) for n in (1, 2)}
        shapes[f"{layer}.self_attn.in_projs.0.weight"] = (3 * d, d)
        shapes[f"{layer}.self_attn.out_projs.0.weight"] = (d, d)
        shapes[f"{layer}.linear1.weight"] = (ff, d)
        shapes[f"{layer}.linear2.weight"] = (d, ff)
    if stage["in_dim"] != d:
        shapes[f"{name}.input_proj.weight"] = (d, stage["in_dim"])
    if stage["out_dim"] != d:
        shapes[f"{name}.output_proj.weight"] = (stage["out_dim"], d)
    return shapes


_NORMS, _PARTS = ("norm1", "norm2"), ("weight", "bias")


def _quantizer_shapes(
    b: CheckpointBuilder, kwargs: Mapping[str, Any]
) -> dict[str, tuple[int, ...]]:
    number, size, dim, rvq = (
        kwargs[k] for k in ("num_quantizers", "codebook_size", "codebook_dim", "rvq_dim")
    )
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(number):
        name = f"quantizer.quantizers.{i}"
        shapes[f"{name}.codebook.weight"] = (size, dim)
        shapes |= {f"{name}.in_proj.weight": (dim, rvq), f"{name}.in_proj.bias": (dim,)}
        shapes |= {f"{name}.out_proj.weight": (rvq, dim), f"{name}.out_proj.bias": (rvq,)}
    wide = b.require_config(kwargs, "input_dim", int), b.require_config(kwargs, "output_dim", int)
    if wide[0] != rvq:
        shapes |= {
            "quantizer.input_proj.weight": (rvq, wide[0]),
            "quantizer.input_proj.bias": (rvq,),
        }
    if wide[1] != rvq:
        shapes["quantizer.output_proj.weight"] = (wide[1], rvq)
        shapes["quantizer.output_proj.bias"] = (wide[1],)
    return shapes
