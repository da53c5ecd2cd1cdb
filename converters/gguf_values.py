"""The values of a GGUF's tensors in pieces, so that memory does not grow with the tensor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from converters.gguf_file import dtype_of
from converters.gguf_header import Header, TensorInfo
from graphtools.errors import UnsupportedError
from graphtools.tensors import Array, DType, bf16_to_f32

__all__ = ["values"]

# Elements of a piece, a multiple of every block of ggml's.
_PIECE = 1 << 20


def values(header: Header, info: TensorInfo) -> Iterator[Array]:
    """The values of a tensor, flat and in order, a piece at a time.

    Floats keep their type but bf16, which comes as float32; quantised ones are dequantised to
    float32; integers stay.

    Raises:
        UnsupportedError: a type that the gguf package cannot dequantise.
    """
    assert info.type is not None
    dtype = dtype_of(info.type.label)
    span = header.span(info)
    step = _PIECE // info.type.block * info.type.size
    with span.path.open("rb") as stream:
        stream.seek(span.offset)
        for start in range(0, span.length, step):
            raw = np.fromfile(stream, np.uint8, min(step, span.length - start))
            if dtype is DType.BF16:
                yield bf16_to_f32(raw.view("<u2"))
            elif dtype is DType.OTHER:
                yield _dequantised(raw, info)
            else:
                assert dtype.numpy is not None
                yield raw.view(dtype.numpy)


def _dequantised(raw: Array, info: TensorInfo) -> Array:
    from gguf import GGMLQuantizationType, dequantize

    assert info.type is not None
    try:
        blocks = raw.reshape(-1, info.type.size)
        return np.asarray(dequantize(blocks, GGMLQuantizationType(info.number))).ravel()
    except NotImplementedError as error:
        raise UnsupportedError(
            f"the tensor {info.name!r} cannot be dequantised",
            found=info.type.label,
            expected="a type that the gguf package can read",
        ) from error
