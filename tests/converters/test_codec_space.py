"""The space that a codec's proof names: any stages, one or two channels, drawn at random."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from converters.archs.checkpoint import Options
from converters.codec import codec_of
from converters.convert import convert
from fixtures.checkpoints import codec, codec_config, load_codec, save_codec
from fixtures.codec import outputs


def drawn(seed: int) -> dict[str, Any]:
    """A config: stages of either kind in any order, widths that chain, rates that do not divide."""
    rng = random.Random(seed)
    channels = rng.choice([1, 2])
    patches = [rng.choice([1, 2, 3, 5, 7]) for _ in range(rng.randint(1, 3))] + [channels]

    def tower(first: str) -> tuple[list[dict[str, Any]], int]:
        """From the samples to the latent, and the latent's width; ``first`` is the outer end."""
        stages: list[dict[str, Any]] = []
        outside = 1
        for patch in rng.sample(patches, len(patches)):
            stages.append({"module_type": "PatchedPretransform", "patch_size": patch})
            outside *= patch
            # The first patch is followed by one at least: without any it would be no codec.
            for _ in range(rng.choice([1, 2] if len(stages) == 1 else [0, 1, 2])):
                width = 8 * rng.randint(1, 3)
                inside = rng.choice([outside, width, rng.randint(2, 12)])
                ends = (outside, inside) if first == "input" else (inside, outside)
                stages.append(
                    codec_config()["encoder_kwargs"][1]
                    | dict(zip(("input_dimension", "output_dimension"), ends, strict=True))
                    | {"module_type": rng.choice(["Transformer", "ProjectedTransformer"])}
                    | {"d_model": width, "num_heads": width // 8, "dim_feedforward": 20}
                )
                outside = inside
        return stages, outside

    encoder, latent = tower("input")
    decoder, dequantized = tower("output")
    return codec_config(
        channels,
        sample_rate=rng.choice([1600, 4410, 997]),
        downsample_rate=math.prod(patches) // channels,
        causal_transformer_context_duration=rng.choice([0.3, 0.7, 1.1, 2]),
        code_dim=latent,
        encoder_kwargs=encoder,
        decoder_kwargs=decoder[::-1],
        quantizer_kwargs={
            "codebook_dim": 3,
            "codebook_size": 16,
            "input_dim": latent,
            "num_quantizers": rng.randint(1, 3),
            "output_dim": dequantized,
            "quantizer_type": "rlfq",
            # A row as wide as the residual would have no projections: refused, none is published.
            "rvq_dim": rng.choice([d for d in (latent, dequantized, 16) if d != 3]),
        },
    )


@pytest.mark.parametrize("seed", range(20))
def test_any_stages_compute_as_the_module_does(tmp_path: Path, seed: int) -> None:
    folder = save_codec(codec(drawn(seed), seed=seed), tmp_path / "codec", shards=1)
    assert convert(folder, tmp_path / "x.gguf", options=Options(strict=True)).proof
    found, module = codec_of(tmp_path / "x.gguf"), load_codec(folder).double()
    length = random.Random(seed).randint(1, 20 * found.downsample)
    wav = 0.3 * np.random.default_rng(seed).normal(size=(found.channels, length))
    with outputs(module) as expected:
        codes = module.encode(torch.from_numpy(wav)).numpy()
    encoded = found.encode(wav)
    for name, value in expected.items():
        np.testing.assert_allclose(encoded.stages[name], value.numpy(), atol=1e-10, err_msg=name)
    assert encoded.margins is not None
    # The quantizer's weights are rounded to float32 in the file: a tie may fall to either side.
    assert (encoded.output == codes)[encoded.margins > 1e-5].all()
    decoded = found.decode(codes).output
    np.testing.assert_allclose(decoded, module.decode(torch.from_numpy(codes)).numpy(), atol=1e-3)


def test_the_draws_are_of_all_kinds() -> None:
    """Both channels, patches at the latent's end and not, each projection of the quantizer."""
    configs = [drawn(seed) for seed in range(20)]
    kinds = [(c["encoder_kwargs"][-1]["module_type"], c["decoder_kwargs"][0]["module_type"])
             for c in configs]  # fmt: skip
    assert {encoder == "PatchedPretransform" for encoder, _ in kinds} == {True, False}
    assert {decoder == "PatchedPretransform" for _, decoder in kinds} == {True, False}
    assert {c.get("number_channels", 1) for c in configs} == {1, 2}
    dims = [c["quantizer_kwargs"] for c in configs]
    projected = {(d["rvq_dim"] != d["input_dim"], d["rvq_dim"] != d["output_dim"]) for d in dims}
    assert projected >= {(True, True), (True, False), (False, True)}
