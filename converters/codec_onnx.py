"""A codec's ONNX exports, run by onnxruntime: samples to codes, codes to samples.

Exports name their inputs as they like; which way one goes is told by its input's type, and the
axes of codes by the one that has as many rows as the codec has quantizers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from converters.codec import Codec
from graphtools.errors import UnsupportedError
from graphtools.model import Model, Value
from graphtools.onnx_file import load
from graphtools.runtime import Runner
from graphtools.tensors import Array

__all__ = ["Exports"]


class Exports:
    """The exports of one codec, one for each direction or for one of them.

    Raises:
        UnsupportedError: an export has more than one input, or two go the same way.
    """

    def __init__(self, paths: Sequence[Path], codec: Codec) -> None:
        self.codec = codec
        self.files = tuple(paths)
        self._encoder: Model | None = None
        self._decoder: Model | None = None
        for model in map(load, paths):
            if len(model.inputs) != 1:
                raise UnsupportedError(
                    "the export of a codec has one input, samples or codes",
                    file=model.path,
                    found="; ".join(map(str, model.inputs)) or "none",
                    todo="export the encoder and the decoder apart",
                )
            decodes = not model.inputs[0].dtype.is_float
            if (self._decoder if decodes else self._encoder) is not None:
                raise UnsupportedError(
                    "two exports go the same way",
                    file=model.path,
                    found=f"input {model.inputs[0]}",
                    todo="name one that takes samples and one that takes codes",
                )
            if decodes:
                self._decoder = model
            else:
                self._encoder = model

    def encode(self, wave: Array) -> Array | None:
        """Codes ``[quantizers, frames]`` int32 of samples ``[channels, n]``; None without an
        encoder.

        Raises:
            UnsupportedError: onnxruntime cannot run it, or no output is codes.
        """
        if self._encoder is None:
            return None
        (value,) = self._encoder.inputs
        axes = 3 if value.shape is None else len(value.shape)
        samples = wave.astype(np.float32).reshape((1,) * (axes - wave.ndim) + wave.shape)
        found = self._run(self._encoder, value, samples)
        codes = [c for c in map(self._as_codes, found) if c is not None]
        if len(codes) != 1:
            raise self._strange(self._encoder, "codes", found)
        return codes[0].astype(np.int32)

    def decode(self, codes: Array) -> Array | None:
        """Samples ``[channels, n]`` float32 of codes ``[quantizers, frames]``; None without a
        decoder.

        Raises:
            UnsupportedError: onnxruntime cannot run it, its axes cannot be told apart, or no
                output is samples.
        """
        if self._decoder is None:
            return None
        (value,) = self._decoder.inputs
        number = self.codec.quantizers
        shape = value.shape or ()
        rows = [axis for axis, size in enumerate(shape[:-1]) if size == number]  # the last is time
        if len(shape) == 3 and rows == [0]:
            fed = codes[:, None]
        elif len(shape) == 3 and rows == [1]:
            fed = codes[None]
        elif len(shape) == 2 and rows == [0]:
            fed = codes
        else:
            raise UnsupportedError(
                "the export does not say which axis of its codes is which",
                file=self._decoder.path,
                expected=f"[{number}, B, T], [B, {number}, T] or [{number}, T]",
                found=str(value),
                todo=f"export it with the {number} quantizers as a fixed axis",
            )
        found = self._run(self._decoder, value, fed.astype(value.dtype.numpy))
        length = codes.shape[1] * self.codec.downsample * self.codec.channels
        samples = [a for a in found if a.dtype.kind == "f" and a.size == length]
        if len(samples) != 1:
            raise self._strange(self._decoder, "samples", found)
        return samples[0].astype(np.float32).reshape(self.codec.channels, -1)

    def _run(self, model: Model, value: Value, fed: Array) -> list[Array]:
        names = [output.name for output in model.outputs]
        found = Runner.of(model, names).run({value.name: fed})
        return [found[name] for name in names]

    def _as_codes(self, values: Array) -> Array | None:
        """Integers ``[quantizers, T]``, whichever axis of size 1 is the batch's."""
        if values.dtype.kind not in "iu" or values.ndim not in (2, 3):
            return None
        if values.ndim == 3 and 1 in values.shape[:2]:
            values = values[:, 0] if values.shape[1] == 1 else values[0]
        return values if values.shape[:1] == (self.codec.quantizers,) else None

    def _strange(self, model: Model, wanted: str, found: Sequence[Array]) -> UnsupportedError:
        return UnsupportedError(
            f"the export does not have one output that is {wanted}",
            file=model.path,
            found="; ".join(f"{a.dtype} {list(a.shape)}" for a in found),
            todo="export the encoder with its codes, the decoder with its samples",
        )
