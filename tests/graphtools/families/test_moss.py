"""MOSS audio tokenizers: stages and slots of both directions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphtools.families import FAMILIES
from graphtools.families.moss import Config, Patch, Transformer

STAGE = Transformer(in_dim=4, d_model=8, heads=2, layers=2, ff=16, out_dim=6, window=5)
ENCODER = Config("encode", (Patch(4), STAGE, Patch(2)), quantizers=2, projected=True)
DECODER = Config("decode", (Patch(2), STAGE, Patch(4)), quantizers=2, projected=True)

# Of one layer: attention between a norm and a scale, then the feed-forward likewise.
LAYER = [
    *("norm1", "self_attn.in_projs.0", "self_attn.out_projs.0", "layer_scale_1.scale"),
    *("norm2", "linear1", "linear2", "layer_scale_2.scale"),
]


def slots(config: Config, *kinds: str) -> list[str]:
    return [s.slot for s in FAMILIES["moss"].template(config).slots(*kinds)]


def tower(name: str) -> list[str]:
    layers = [f"{name}.transformer.layers.{i}.{part}" for i in range(2) for part in LAYER]
    return [f"{name}.input_proj", *layers, f"{name}.output_proj"]


def test_pull_order_of_the_encoder() -> None:
    assert slots(ENCODER) == [
        *tower("encoder.1"),
        "quantizer.input_proj",
        *(
            f"quantizer.quantizers.{i}.{part}"
            for i in range(2)
            for part in ("in_proj", "codebook", "out_proj")
        ),
    ]


def test_pull_order_of_the_decoder() -> None:
    assert slots(DECODER) == [
        *(
            f"quantizer.quantizers.{i}.{part}"
            for i in range(2)
            for part in ("codebook", "out_proj")
        ),
        "quantizer.output_proj",
        *tower("decoder.1"),
    ]


def test_norms_and_positions_have_the_published_constants() -> None:
    steps = FAMILIES["moss"].template(ENCODER).steps
    assert {step.value for step in steps if step.kind == "layer_norm"} == {1e-5}
    assert {step.value for step in steps if step.kind == "rotary"} == {10000.0}


def test_stages() -> None:
    assert FAMILIES["moss"].template(ENCODER).stages() == (
        *("encoder.0", "encoder.1", "encoder.2", "latent", "codes.0", "codes.1", "codes"),
    )
    assert FAMILIES["moss"].template(DECODER).stages() == (
        *("dequantized", "decoder.0", "decoder.1", "decoder.2", "decoded"),
    )


@pytest.mark.parametrize(
    ("dims", "absent"),
    [
        ({"in_dim": 8}, "encoder.1.input_proj"),
        ({"out_dim": 8}, "encoder.1.output_proj"),
    ],
)
def test_a_projection_between_equal_dimensions_has_no_tensor(
    dims: dict[str, int], absent: str
) -> None:
    config = replace(ENCODER, stages=(Patch(4), replace(STAGE, **dims), Patch(2)))
    assert set(slots(ENCODER)) - set(slots(config)) == {absent}


def test_a_quantizer_in_the_towers_own_dimensions_has_no_projections() -> None:
    for config, absent in ((ENCODER, "quantizer.input_proj"), (DECODER, "quantizer.output_proj")):
        assert set(slots(config)) - set(slots(replace(config, projected=False))) == {absent}


def test_the_encoder_patches_and_the_decoder_unpatches() -> None:
    for config, kind in ((ENCODER, "patch"), (DECODER, "unpatch")):
        steps = FAMILIES["moss"].template(config).steps
        found = [(s.kind, s.value) for s in steps if s.kind in ("patch", "unpatch")]
        sizes = [stage.size for stage in config.stages if isinstance(stage, Patch)]
        assert found == [(kind, size) for size in sizes]


def test_padding_is_masked_before_and_after_every_search() -> None:
    steps = FAMILIES["moss"].template(ENCODER).steps
    assert sum(step.kind == "mask_padding" for step in steps) == 2 * ENCODER.quantizers
    kinds = [step.kind for step in FAMILIES["moss"].template(DECODER).steps]
    assert "mask_padding" not in kinds
