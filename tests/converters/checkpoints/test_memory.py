"""A replay upcasts one layer at a time: it never needs its weights twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from converters.checkpoint import describe_checkpoint
from converters.emit import emit
from converters.probes import speech_samples
from converters.reference.wav2vec2 import age_gender_module
from converters.sources.source import Source
from graphtools.tensors import Array, DType, LazyTensor

Make = Callable[..., Any]

MB = 1 << 20

# A process takes over the peak of the one that it was forked from, and that may be this one: the
# command is started, and measured, by a small process in between.
LAUNCHER = """
import json, resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(json.dumps([code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024]))
"""


@dataclass(frozen=True)
class Random:
    """Values that are made when they are asked for."""

    shape: tuple[int, ...]
    seed: int

    def read(self) -> Array:
        values = np.random.default_rng(self.seed).standard_normal(self.shape, np.float32)
        if len(self.shape) == 1:
            return np.asarray(values * np.float32(0.1) + np.float32(1.0))
        return np.asarray(values / np.float32(np.sqrt(np.prod(self.shape[1:]))))

    def span(self) -> None:
        return None

    def origin(self) -> str:
        return "random"

    def sources(self) -> Iterator[LazyTensor]:
        return iter(())


class Told(Source):
    """A checkpoint of the size of wav2vec2-large, which is nowhere."""

    CONFIG: dict[str, Any] = {  # noqa: RUF012
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "feat_extract_norm": "layer",
        "conv_bias": True,
        "do_stable_layer_norm": True,
    }

    @classmethod
    def make(cls) -> Told:
        from transformers import Wav2Vec2Config

        with torch.device("meta"):
            state = age_gender_module(Wav2Vec2Config(**cls.CONFIG)).state_dict()
        shapes = {name: tuple(value.shape) for name, value in state.items()}
        tensors = {
            name: LazyTensor(name, shape, DType.F32, Random(shape, seed))
            for seed, (name, shape) in enumerate(shapes.items())
        }
        return cls(Path("nowhere"), (), tensors)

    def json(self, name: str) -> dict[str, Any] | None:
        from transformers import Wav2Vec2Config

        if name != "config.json":
            return {"do_normalize": True}
        found: dict[str, Any] = json.loads(json.dumps(Wav2Vec2Config(**self.CONFIG).to_dict()))
        return found


@pytest.mark.slow
def test_a_replay_of_the_large_size_stays_below_its_file_and_some(
    environment: Make, tmp_path: Path
) -> None:
    gguf = tmp_path / "large.gguf"
    with emit(describe_checkpoint(Told.make(), "large").manifest, gguf):
        pass
    size = gguf.stat().st_size
    assert size > 1_200_000_000
    np.save(tmp_path / "half_a_second.npy", speech_samples()[6000:14000])
    replay = ("replay", gguf, "--input", tmp_path / "half_a_second.npy")
    main = "from converters.cli import main; main()"
    command = [sys.executable, "-c", main, *map(str, replay)]
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *command],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        env=environment(),
    )
    gguf.unlink()
    code, peak = json.loads(done.stdout)
    print(f"file {size / MB:.0f} MB, peak {peak / MB:.0f} MB")
    assert code == 0, done.stderr
    # In float64 the weights alone are twice the file.
    assert peak < size + 700 * MB
    # And one layer at a time is far less than the weights as they are: the largest tensor in
    # float64 (67 MB, the positional convolution and what makes it), and Python with its packages.
    assert peak < size / 2
