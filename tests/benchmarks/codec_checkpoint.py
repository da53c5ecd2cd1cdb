"""Write a synthetic checkpoint of the 24 kHz MOSS codec in full size: 1.77e9 parameters, 7.1 GB.

    python tests/benchmarks/codec_checkpoint.py /tmp/moss_full

Names, shapes and sharding are the published model's, the values are seeded noise. It is written
tensor by tensor from one block of random numbers, so memory stays small. At the end the folder is
described as `convert` does it, from the headers alone, and the figures are compared.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Shapes = dict[str, tuple[int, ...]]

# in, d_model, heads, layers, feed-forward, out; a patch stands before each in the encoder and after
# each in the decoder.
SMALL, LARGE = (768, 12, 12, 3072), (1280, 20, 32, 5120)
ENCODER = [(240, *SMALL, 384), (768, *SMALL, 384), (768, *SMALL, 640), (1280, *LARGE, 768)]
DECODER = [(768, *LARGE, 1280), (640, *SMALL, 768), (384, *SMALL, 768), (384, *SMALL, 240)]
PATCHES = [240, 2, 2, 2]
WIDTH, RVQ, BOOKS, ROWS, ROW = 768, 512, 32, 1024, 8
SHARDS = 4

# What there is to find: keys that go in, weight-norm pairs, tensors that come out, parameters.
KEYS, PAIRS, TENSORS, PARAMETERS = 1600, 66, 1534, 1.7746e9

BLOCK = 1 << 22
"""Random numbers that are made; every tensor is a part of them, from an offset of its own."""


def config() -> dict[str, Any]:
    """The contents of config.json."""

    def patch(size: int) -> dict[str, Any]:
        return {"module_type": "PatchedPretransform", "patch_size": size}

    def transformer(stage: tuple[int, ...]) -> dict[str, Any]:
        names = ("input_dimension", "d_model", "num_heads", "num_layers", "dim_feedforward")
        return {
            "module_type": "Transformer",
            **dict(zip((*names, "output_dimension"), stage, strict=True)),
            "causal": True,
            "norm": "layer_norm",
            "positional_embedding": "rope",
            "max_period": 10000,
            "gating": "none",
            "layer_scale": 0.01,
            "conv_layout": True,
        }

    down = [(patch(p), transformer(s)) for p, s in zip(PATCHES, ENCODER, strict=True)]
    up = [(transformer(s), patch(p)) for p, s in zip(PATCHES[::-1], DECODER, strict=True)]
    return {
        "architectures": ["MossAudioTokenizerModel"],
        "model_type": "speech_tokenizer",
        "sample_rate": 24000,
        "downsample_rate": math.prod(PATCHES),
        "causal_transformer_context_duration": 10,
        "code_dim": WIDTH,
        "encoder_kwargs": [stage for pair in down for stage in pair],
        "decoder_kwargs": [stage for pair in up for stage in pair],
        "quantizer_type": "rlfq",
        "quantizer_kwargs": {
            "quantizer_type": "rlfq",
            "num_quantizers": BOOKS,
            "codebook_size": ROWS,
            "codebook_dim": ROW,
            "rvq_dim": RVQ,
            "input_dim": WIDTH,
            "output_dim": WIDTH,
        },
    }


def shapes() -> Shapes:
    """Every tensor of the checkpoint."""
    found: Shapes = {}
    for i, stage in enumerate(ENCODER):
        found |= _tower_shapes(f"encoder.{2 * i + 1}", *stage)
    found |= _conv_shapes("quantizer.input_proj", WIDTH, RVQ)
    found |= _conv_shapes("quantizer.output_proj", RVQ, WIDTH)
    for i in range(BOOKS):
        name = f"quantizer.quantizers.{i}"
        found |= _conv_shapes(f"{name}.in_proj", RVQ, ROW)
        found |= _conv_shapes(f"{name}.out_proj", ROW, RVQ)
        found[f"{name}.codebook.weight"] = (ROWS, ROW)
    for i, stage in enumerate(DECODER):
        found |= _tower_shapes(f"decoder.{2 * i}", *stage)
    return found


def _tower_shapes(
    name: str, inside: int, width: int, heads: int, layers: int, inner: int, outside: int
) -> Shapes:
    found: Shapes = {}
    if inside != width:
        found[f"{name}.input_proj.weight"] = (width, inside)
    for i in range(layers):
        layer = f"{name}.transformer.layers.{i}"
        for n in (1, 2):
            found[f"{layer}.norm{n}.weight"] = found[f"{layer}.norm{n}.bias"] = (width,)
            found[f"{layer}.layer_scale_{n}.scale"] = (width,)
        found[f"{layer}.self_attn.in_projs.0.weight"] = (3 * width, width)
        found[f"{layer}.self_attn.out_projs.0.weight"] = (width, width)
        found[f"{layer}.linear1.weight"] = (inner, width)
        found[f"{layer}.linear2.weight"] = (width, inner)
    if outside != width:
        found[f"{name}.output_proj.weight"] = (outside, width)
    return found


def _conv_shapes(name: str, inside: int, outside: int) -> Shapes:
    pair = f"{name}.parametrizations.weight.original"
    return {
        f"{name}.bias": (outside,),
        f"{pair}0": (outside, 1, 1),
        f"{pair}1": (outside, inside, 1),
    }


def write(folder: Path, *, values: bool = True, seed: int = 0) -> None:
    """The folder: config, index and shards; without values the shards are files of holes."""
    folder.mkdir(parents=True)
    every = shapes()
    total = sum(4 * math.prod(shape) for shape in every.values())
    free = shutil.disk_usage(folder).free
    if values and free < total * 1.05:
        raise SystemExit(f"{folder} has room for {free / 1e9:.1f} GB, not for {total / 1e9:.1f}")
    (folder / "config.json").write_text(json.dumps(config(), indent=1))
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(2 * BLOCK if values else 0, np.float32) * np.float32(0.02)
    weight_map: dict[str, str] = {}
    for i, names in enumerate(_shards(every, total), start=1):
        file = f"model-{i:05d}-of-{SHARDS:05d}.safetensors"
        weight_map |= dict.fromkeys(names, file)
        with (folder / file).open("wb") as stream:
            stream.write(_header({name: every[name] for name in names}))
            for name in names:
                left = math.prod(every[name])
                if not values:
                    stream.seek(4 * left, 1)
                while left:
                    start, size = int(rng.integers(BLOCK)), min(left, BLOCK)
                    part = noise[start : start + size]
                    # Norms multiply by about one, as trained ones do.
                    norm = name.endswith(("norm1.weight", "norm2.weight", "original0"))
                    stream.write((part + np.float32(1) if norm else part).data)
                    left -= size
            stream.truncate()
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def _shards(every: Shapes, total: int) -> Iterator[list[str]]:
    """Names in order, in as many parts of about one size."""
    parts: list[list[str]] = [[] for _ in range(SHARDS)]
    done = 0
    for name, shape in every.items():
        parts[min(done * SHARDS // total, SHARDS - 1)].append(name)
        done += 4 * math.prod(shape)
    yield from parts


def _header(part: Shapes) -> bytes:
    """A safetensors header, padded to eight bytes as its own writer does it."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in part.items():
        end = offset + 4 * math.prod(shape)
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def main() -> None:
    from converters.checkpoint import describe_checkpoint
    from converters.sources.source import open_source

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="a new folder")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    write(arguments.folder, seed=arguments.seed)
    print(f"written in {time.perf_counter() - start:.1f} s")

    source = open_source(arguments.folder)
    described = describe_checkpoint(source, "moss")
    unmapped = set(source.tensors) - set(described.stored) - set(described.left_out)
    found = (
        len(source.tensors),
        sum(name.endswith("original0") for name in source.tensors),
        len(described.manifest.tensors),
        len(unmapped) + len(described.left_out),
    )
    parameters = sum(t.size for t in source.tensors.values())
    print(
        "{} keys in, {} weight-norm pairs, {} tensors out, {} unmapped".format(*found)
        + f", {parameters:,} parameters, {4 * parameters / 1e9:.2f} GB"
    )
    if found != (KEYS, PAIRS, TENSORS, 0) or abs(parameters / PARAMETERS - 1) > 1e-4:
        raise SystemExit("these are not the figures of the published model")


if __name__ == "__main__":
    main()
