"""Compute a network from its GGUF file alone, as an engine would."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from converters import gguf_file
from converters.archs import Arch, arch_of_manifest
from converters.audio import read_audio
from converters.frontend import log_mel, mean_subtracted
from converters.manifest import Manifest
from converters.network import Network
from graphtools.errors import Error, UnsupportedError, UsageError
from graphtools.match import Role
from graphtools.numpy_ops import NumpyOps
from graphtools.onnx_edit import SegmentRule
from graphtools.recover import Recovered
from graphtools.tensors import Array, LazyTensor, widened

__all__ = ["Replay", "ReplayResult", "audio_input", "read_array", "replay"]


@dataclass(frozen=True)
class ReplayResult:
    """What a replay gives.

    Attributes:
        outputs: the network's results by name, float64; a speaker encoder's are ``encoder_out``,
            the raw embedding, and ``embedding``, the same at unit length.
        length: feature frames or samples that went in.
    """

    outputs: Mapping[str, Array]
    length: int

    @property
    def embedding(self) -> Array:
        """A speaker encoder's embedding at unit length ``[D]``."""
        return self.outputs["embedding"]

    @property
    def encoder_out(self) -> Array:
        """A speaker encoder's raw embedding ``[D]``."""
        return self.outputs["encoder_out"]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"length": self.length} | {k: v.tolist() for k, v in self.outputs.items()}


def replay(path: Path | str, values: Array) -> ReplayResult:
    """Compute a GGUF in float64.

    Args:
        path: the manifest GGUF.
        values: mean-subtracted features ``[frames, n_mels]``; for the wav2vec 2.0 heads samples
            ``[n]`` at 16 kHz in [-1, 1]; for a codec samples ``[n]`` or ``[channels, n]`` at its
            own rate, or integer codes ``[quantizers, frames]``, which are decoded.

    Raises:
        UnsupportedError: the file is none of ours, or the input does not fit.
    """
    with Error.about(path):
        network = Replay.of(gguf_file.read(path))
    if network.arch.inverse is not None:
        return _codec_replay(network.manifest, values)
    network.require_fits(values)
    outputs: dict[str, Array] = {}

    def keep(stage: str, x: Array) -> Array:
        if stage in network.arch.outputs:
            outputs[stage] = x
        return x

    network.run(values, keep)
    broken = [name for name, value in outputs.items() if not np.isfinite(value).all()]
    if broken:
        raise UnsupportedError(
            "the network gives values that are not finite",
            file=path,
            found=f"{broken[0]} of an input of length {len(values)}",
            todo="use a longer input; if that does not help, the weights are broken",
        )
    if "encoder_out" in outputs:
        outputs["embedding"] = outputs["encoder_out"] / np.linalg.norm(outputs["encoder_out"])
    return ReplayResult(outputs, len(values))


def _codec_replay(manifest: Manifest, values: Array) -> ReplayResult:
    """Integers are codes to decode, anything else samples to encode."""
    from converters.codec import codec_of

    codec = codec_of(manifest)
    if values.dtype.kind in "iu":
        return ReplayResult({"decoded": codec.decode(values).output}, values.shape[-1])
    return ReplayResult({"codes": codec.encode(values).output}, values.shape[-1])


def audio_input(gguf: Path | str, audio: Path | str) -> Array:
    """What the network in ``gguf`` takes of a 16 kHz mono clip.

    Raises:
        UnsupportedError: the clip has another rate or more channels.
    """
    with Error.about(gguf):
        network = Replay.of(gguf_file.read(gguf))
    if network.arch.inverse is not None:
        from converters.codec import codec_of

        codec = codec_of(network.manifest)
        return read_audio(audio, codec.sample_rate, codec.channels)
    samples = read_audio(audio)
    if network.takes_samples:
        return samples
    return mean_subtracted(log_mel(samples))


def read_array(path: Path | str) -> Array:
    """An array of finite numbers from a ``.npy`` file.

    Raises:
        UsageError: there is no such file.
        UnsupportedError: it is not an array of numbers.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError("no such file", file=path, todo="check the path")
    try:
        with path.open("rb") as stream:
            values = np.load(stream, allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError, zipfile.BadZipFile) as error:
        # numpy advises to load what is no array as a pickle, which nobody should.
        found = "no array" if "pickle" in str(error) else str(error) or type(error).__name__
        raise UnsupportedError(
            "the file is not a .npy array",
            file=path,
            found=found.splitlines()[0],
            todo="a clip goes with --audio",
        ) from error
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
        raise UnsupportedError("the file does not hold one array of numbers", file=path)
    if not np.isfinite(values).all():
        raise UnsupportedError("the array has values that are not finite", file=path)
    return values


@dataclass
class Replay:
    """A manifest that can be computed.

    Attributes:
        used: slots and constants that have taken part so far (`NumpyOps.used`).
        pulled: names of the tensors that have been read.
        margins: of the codebooks searched (`NumpyOps.margins`).
    """

    manifest: Manifest
    arch: Arch
    network: Network
    used: set[str] = field(default_factory=set)
    pulled: set[str] = field(default_factory=set)
    margins: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, manifest: Manifest, *, inverse: bool = False) -> Replay:
        """Understand a manifest; ``inverse`` takes a codec's way back.

        Raises:
            UnsupportedError: its keys are not those of an architecture with a replay.
        """
        arch = arch_of_manifest(manifest)
        restore = arch.inverse if inverse and arch.inverse is not None else arch.restore
        return cls(manifest, arch, restore(manifest))

    @classmethod
    def bound(cls, net: Recovered) -> Replay:
        """A recovered network as it stands in its source, without a manifest's keys."""
        names: dict[tuple[str, Role], str] = {}
        tensors: dict[str, LazyTensor] = {}
        for slot, layer in net.binding.layers.items():
            for role, tensor in layer.tensors.items():
                name = tensor.name
                if name in tensors and tensors[name].origin() != tensor.origin():
                    name = f"{slot}.{role}"  # one name may stand for a folded weight elsewhere
                names[slot, role] = name
                tensors[name] = widened(tensor).named(name)
        constants = {name: found.value for name, found in net.binding.constants.items()}
        network = Network(net.family, net.config, names, constants)
        arch = Arch(net.family.name, net.family.name, (), lambda m: network, ("encoder_out",))
        manifest = Manifest(arch.architecture, net.family.title, (), tuple(tensors.values()))
        return cls(manifest, arch, network)

    @property
    def n_mels(self) -> int:
        return int(self.manifest.get("voicedetect.fbank.n_mels", "u32"))

    @property
    def embedding_dim(self) -> int:
        return int(self.manifest.get("voicedetect.embedding_dim", "u32"))

    @property
    def takes_samples(self) -> bool:
        return self.network.family.takes == "samples"

    @property
    def normalize(self) -> bool:
        """Whether the network standardises the waveform it takes."""
        return bool(getattr(self.network.config, "normalize", False))

    def require_fits(self, values: Array) -> None:
        """Check an input's shape.

        Raises:
            UnsupportedError: it is not what the network takes.
        """
        expected = "[samples]" if self.takes_samples else f"[frames, {self.n_mels}]"
        fits = values.ndim == 1 if self.takes_samples else values.shape[1:] == (self.n_mels,)
        if not fits or not len(values):
            raise UnsupportedError(
                "the input does not fit the model",
                expected=expected,
                found=str(list(values.shape)),
            )

    def run(
        self,
        values: Array,
        on_stage: Callable[[str, Array], Array] = lambda name, x: x,
        rule: SegmentRule | None = "kernel",
        valid_frames: int | None = None,
    ) -> Array:
        """The network's last output.

        Args:
            values: features ``[frames, n_mels]`` or samples ``[n]``.
            on_stage: called with (stage name, value); what it returns goes on.
            rule: what the last partial segment of a segment pooling is divided by.
            valid_frames: frames from here on hold padding (codecs).
        """
        constants: Mapping[str, float] = self.network.constants
        if "cam.valid" in constants:
            constants = {**constants, "cam.valid": float(rule == "valid")}
        ops = NumpyOps(
            self, constants, on_stage, self.used, valid_frames=valid_frames, margins=self.margins
        )
        x = np.ascontiguousarray(values if self.takes_samples else values.T, dtype=np.float64)
        # What is not finite shows in the result, and is refused there.
        with np.errstate(all="ignore"):
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
