"""Compute a network from its GGUF file alone, as an engine would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converters import gguf_file
from converters.archs import Arch, arch_named
from converters.manifest import Manifest
from converters.network import Network
from graphtools.errors import UnsupportedError, UsageError
from graphtools.match import Role
from graphtools.numpy_ops import NumpyOps
from graphtools.onnx_edit import SegmentRule
from graphtools.tensors import Array

__all__ = ["Replay", "ReplayResult", "read_features", "replay"]


@dataclass(frozen=True)
class ReplayResult:
    """What a replay gives.

    Attributes:
        embedding: at unit length, float64 ``[D]``.
        encoder_out: the raw embedding, float64 ``[D]``.
        frames: feature frames that went in.
    """

    embedding: Array
    encoder_out: Array
    frames: int

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "frames": self.frames,
            "encoder_out": self.encoder_out.tolist(),
            "embedding": self.embedding.tolist(),
        }


def replay(path: Path | str, features: Array) -> ReplayResult:
    """The embedding of mean-subtracted features ``[frames, n_mels]``, in float64.

    Raises:
        UnsupportedError: the file is not a speaker encoder of ours, or the features do not fit.
    """
    network = Replay.of(gguf_file.read(path))
    if features.ndim != 2 or features.shape[1] != network.n_mels:
        raise UnsupportedError(
            "the features do not fit the model",
            file=path,
            expected=f"[frames, {network.n_mels}]",
            found=str(list(features.shape)),
        )
    raw = network.run(features)
    return ReplayResult(raw / np.linalg.norm(raw), raw, len(features))


def read_features(path: Path | str) -> Array:
    """Features ``[frames, n_mels]`` from a ``.npy`` file, float.

    Raises:
        UsageError: there is no such file.
        UnsupportedError: it is not an array of numbers.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError("no such file", file=path, todo="check the path of the features")
    try:
        values = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise UnsupportedError(
            "the file is not a .npy array", file=path, found=str(error).splitlines()[0]
        ) from error
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
        raise UnsupportedError("the file does not hold one array of numbers", file=path)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise UnsupportedError(
            "the features cannot be used",
            file=path,
            expected="[frames, n_mels], all finite",
            found=f"shape {list(values.shape)}",
        )
    return values


@dataclass
class Replay:
    """A manifest that can be computed.

    Attributes:
        used: slots and constants that have taken part so far (`NumpyOps.used`).
        pulled: names of the tensors that have been read.
    """

    manifest: Manifest
    arch: Arch
    network: Network
    used: set[str]
    pulled: set[str]

    @classmethod
    def of(cls, manifest: Manifest) -> Replay:
        """Understand a manifest.

        Raises:
            UnsupportedError: its keys are not those of an architecture with a replay.
        """
        arch = arch_named(manifest.get("voicedetect.arch", "string"))
        return cls(manifest, arch, arch.restore(manifest), set(), set())

    @property
    def n_mels(self) -> int:
        return int(self.manifest.get("voicedetect.fbank.n_mels", "u32"))

    @property
    def embedding_dim(self) -> int:
        return int(self.manifest.get("voicedetect.embedding_dim", "u32"))

    def run(
        self,
        features: Array,
        on_stage: Callable[[str, Array], Array] = lambda name, x: x,
        rule: SegmentRule | None = "kernel",
    ) -> Array:
        """The raw embedding of features ``[frames, n_mels]``.

        Args:
            on_stage: called with (stage name, value); what it returns goes on.
            rule: what the last partial segment of a segment pooling is divided by.
        """
        constants: Mapping[str, float] = self.network.constants
        if "cam.valid" in constants:
            constants = {**constants, "cam.valid": float(rule == "valid")}
        ops = NumpyOps(self, constants, on_stage, self.used)
        x = np.ascontiguousarray(features.T, dtype=np.float64)
        out: Array = self.network.family.forward(ops, x, self.network.config)
        return out

    def tensor(self, slot: str, role: Role) -> Array | None:
        """The weights that the manifest names for a slot (the `Weights` protocol)."""
        name = self.network.names.get((slot, role))
        if name is None:
            return None
        found = self.manifest.by_name.get(name)
        if found is None:
            raise UnsupportedError(
                f"the manifest names a tensor that the file does not have: {name!r}",
                where=f"{role} of {slot}",
                todo="convert the model again",
            )
        self.pulled.add(name)
        return found.read()

    def stride(self, slot: str) -> int | None:
        """The stride that the manifest lists for a slot (the `Weights` protocol)."""
        return self.network.strides.get(slot)
