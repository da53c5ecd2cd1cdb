"""A speaker encoder as a function of features: any ONNX file of one, or a manifest GGUF."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from converters import gguf_file
from converters.frontend import FilterBank
from converters.replay import Replay
from converters.sources.locate import is_checkpoint
from graphtools.errors import Error, UnsupportedError
from graphtools.onnx_edit import SegmentRule, has_partial_windows
from graphtools.onnx_file import load
from graphtools.runtime import Runner
from graphtools.tensors import Array

__all__ = ["Encoder", "open_encoder"]

# A batch, time and mel bins.
_AXES = 3


@dataclass(frozen=True)
class Encoder:
    """What turns features into an embedding.

    Attributes:
        n_mels: mel bins that it takes.
        frames: the one length that it takes; None where any will do.
        rules: what its last partial segment may be divided by; (None,) where it has none.
        embed: features ``[frames, n_mels]`` and a rule to the embedding ``[dim]``.
    """

    n_mels: int
    frames: int | None
    rules: tuple[SegmentRule | None, ...]
    embed: Callable[[Array, SegmentRule | None], Array]


def open_encoder(path: Path, dim: int) -> Encoder:
    """The encoder in a file whose embedding has ``dim`` values.

    An ONNX file need be none of the known families; one of its outputs has to have ``dim`` values.

    Raises:
        UnsupportedError: it takes no features, or gives no such embedding.
        UsageError: there is no such file.
    """
    if gguf_file.is_gguf(path):
        return _of_gguf(path, dim)
    if is_checkpoint(path):
        raise UnsupportedError(
            "a checkpoint is not run as an encoder",
            file=path,
            todo="convert it, and name the GGUF",
        )
    return _of_onnx(path, dim)


def _of_gguf(path: Path, dim: int) -> Encoder:
    with Error.about(path):
        replay = Replay.of(gguf_file.read(path))
    if "encoder_out" not in replay.arch.outputs:
        raise UnsupportedError(
            f"{replay.arch.name} is no speaker encoder",
            file=path,
            expected="a network that takes features and gives an embedding",
        )
    if replay.embedding_dim != dim:
        raise _other_length(path, dim, replay.embedding_dim)
    rules: tuple[SegmentRule | None, ...] = (None,)
    if "cam.valid" in replay.network.constants:
        rules = ("kernel", "valid")

    def embed(features: Array, rule: SegmentRule | None) -> Array:
        return replay.run(features, rule=rule).ravel()

    return Encoder(replay.n_mels, None, rules, embed)


def _of_onnx(path: Path, dim: int) -> Encoder:
    model = load(path)
    shape = model.inputs[0].shape if len(model.inputs) == 1 else None
    if shape is None or len(shape) != _AXES:
        raise UnsupportedError(
            "the model takes no features",
            file=path,
            expected="one input [B, T, n_mels]",
            found="; ".join(map(str, model.inputs)) or "no input",
        )
    frames, n_mels = shape[1:]
    usual = FilterBank().n_mels
    # [B, n_mels, T]: a number and no number, or the usual number and another.
    turned = frames == usual != n_mels or (isinstance(frames, int) and not isinstance(n_mels, int))
    if turned:
        frames, n_mels = n_mels, frames
    rules: tuple[SegmentRule | None, ...] = (None,)
    if has_partial_windows(model):
        rules = ("kernel", "valid")
    names = [value.name for value in model.outputs]
    runners = {rule: Runner.of(model, names, rule) for rule in rules}

    def embed(features: Array, rule: SegmentRule | None) -> Array:
        x = features.T if turned else features
        found = runners[rule].run({model.inputs[0].name: np.ascontiguousarray(x)[None]})
        for value in found.values():
            if value.size == dim:
                return value.ravel()
        raise _other_length(path, dim, *(value.size for value in found.values()))

    return Encoder(
        n_mels if isinstance(n_mels, int) else usual,
        frames if isinstance(frames, int) else None,
        rules,
        embed,
    )


def _other_length(path: Path, dim: int, *found: int) -> UnsupportedError:
    return UnsupportedError(
        "the model's embedding has another length than the known one",
        file=path,
        expected=f"{dim} values",
        found=", ".join(map(str, found)),
        todo="name the model that the embedding was made with",
    )
