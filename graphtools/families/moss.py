"""MOSS audio tokenizers: patches and causal transformers in two towers, residual LFQ between.

The published model's semantics. Linear layers have no bias but those of the quantizer; a
projection whose dimensions agree is the identity and has no tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphtools.ops import Ops, X

__all__ = [
    "EPS",
    "MAX_PERIOD",
    "NAME",
    "TAKES",
    "TITLE",
    "Config",
    "Patch",
    "Transformer",
    "forward",
]

NAME = "moss"
TITLE = "MOSS audio tokenizer"
TAKES = "samples"

# The layer norms' epsilon and the period of the rotary positions; no key carries them.
EPS = 1e-5
MAX_PERIOD = 10000.0


@dataclass(frozen=True)
class Patch:
    """``size`` neighbouring frames become channels of one (encoder), or the way back."""

    size: int


@dataclass(frozen=True)
class Transformer:
    """Causal layers between two projections; ``window`` is how many positions one sees."""

    in_dim: int
    d_model: int
    heads: int
    layers: int
    ff: int
    out_dim: int
    window: int


@dataclass(frozen=True)
class Config:
    """One direction of a codec.

    Attributes:
        direction: ``encode``: samples [1, n] to codes [quantizers, frames]; ``decode``: back.
        stages: of that direction's tower, in order.
        quantizers: how many codebooks.
        projected: the quantizer works in other dimensions than the towers, so that it has an
            ``input_proj`` and an ``output_proj``.
    """

    direction: Literal["encode", "decode"]
    stages: tuple[Patch | Transformer, ...]
    quantizers: int
    projected: bool


def forward(o: Ops[X], x: X, cfg: Config) -> X:
    """Samples [1, n] to codes [quantizers, frames], or codes to samples."""
    if cfg.direction == "encode":
        x = _tower(o, x, "encoder", cfg.stages)
        return _encode(o, o.stage(x, "latent"), cfg)
    return o.stage(_tower(o, _decode(o, x, cfg), "decoder", cfg.stages), "decoded")


def _tower(o: Ops[X], x: X, tower: str, stages: tuple[Patch | Transformer, ...]) -> X:
    for i, stage in enumerate(stages):
        name = f"{tower}.{i}"
        if isinstance(stage, Patch):
            x = o.patch(x, stage.size) if tower == "encoder" else o.unpatch(x, stage.size)
        else:
            x = _transformer(o, x, name, stage)
        x = o.stage(x, name)
    return x


def _transformer(o: Ops[X], x: X, name: str, cfg: Transformer) -> X:
    if cfg.in_dim != cfg.d_model:
        x = o.linear(x, f"{name}.input_proj")
    for i in range(cfg.layers):
        layer = f"{name}.transformer.layers.{i}"
        h = _attention(o, o.layer_norm(x, f"{layer}.norm1", EPS), f"{layer}.self_attn", cfg)
        x = o.add(x, o.scale(h, f"{layer}.layer_scale_1.scale"))
        h = o.gelu(o.linear(o.layer_norm(x, f"{layer}.norm2", EPS), f"{layer}.linear1"))
        x = o.add(x, o.scale(o.linear(h, f"{layer}.linear2"), f"{layer}.layer_scale_2.scale"))
    return o.linear(x, f"{name}.output_proj") if cfg.d_model != cfg.out_dim else x


def _attention(o: Ops[X], x: X, name: str, cfg: Transformer) -> X:
    q, k, v = o.split(o.linear(x, f"{name}.in_projs.0"), 3)
    q, k = o.rotary(q, cfg.heads, MAX_PERIOD), o.rotary(k, cfg.heads, MAX_PERIOD)
    return o.linear(o.attention(q, k, v, cfg.heads, cfg.window), f"{name}.out_projs.0")


def _encode(o: Ops[X], x: X, cfg: Config) -> X:
    """Residual quantization; frames that hold padding see zeros and leave the residual alone."""
    residual = o.linear(x, "quantizer.input_proj") if cfg.projected else x
    codes: list[X] = []
    for i in range(cfg.quantizers):
        name = f"quantizer.quantizers.{i}"
        query = o.linear(o.mask_padding(residual), f"{name}.in_proj")
        code = o.nearest(query, f"{name}.codebook")
        rows = o.linear(o.lookup(code, f"{name}.codebook"), f"{name}.out_proj")
        residual = o.subtract_value(residual, o.mask_padding(rows))
        codes.append(o.stage(code, f"codes.{i}"))
    return o.stage(o.stack(codes), "codes")


def _decode(o: Ops[X], codes: X, cfg: Config) -> X:
    total: X | None = None
    for i, code in enumerate(o.unstack(codes, cfg.quantizers)):
        name = f"quantizer.quantizers.{i}"
        rows = o.linear(o.lookup(code, f"{name}.codebook"), f"{name}.out_proj")
        total = rows if total is None else o.add(total, rows)
    assert total is not None  # a codec has at least one quantizer
    if cfg.projected:
        total = o.linear(total, "quantizer.output_proj")
    return o.stage(total, "dequantized")
