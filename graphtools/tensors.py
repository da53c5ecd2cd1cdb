"""Lazy tensors: a name, a shape, a dtype and a recipe that makes the values when asked.

Graphs and sources hand these out; the emitter reads them one at a time. Folding, widening and
transposing are recipes over other tensors, so nothing is computed or held before it is needed,
and every tensor can say where it came from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from graphtools.errors import UnsupportedError

__all__ = [
    "Array",
    "BatchNorm",
    "DType",
    "FileSpan",
    "FoldBias",
    "FoldWeight",
    "Held",
    "LazyTensor",
    "Load",
    "Recipe",
    "Reshape",
    "Transpose",
    "WeightNorm",
    "Widen",
    "bf16_to_f32",
    "widened",
]

Array = npt.NDArray[Any]


class DType(Enum):
    """Element types we can name. ``numpy`` is None where numpy has no such type."""

    F32 = ("f32", "<f4")
    F16 = ("f16", "<f2")
    BF16 = ("bf16", None)
    F64 = ("f64", "<f8")
    I8 = ("i8", "i1")
    I16 = ("i16", "<i2")
    I32 = ("i32", "<i4")
    I64 = ("i64", "<i8")
    U8 = ("u8", "u1")
    U16 = ("u16", "<u2")
    U32 = ("u32", "<u4")
    U64 = ("u64", "<u8")
    BOOL = ("bool", "?")
    STRING = ("string", None)
    OTHER = ("other", None)

    def __init__(self, label: str, numpy: str | None) -> None:
        self.label = label
        self.numpy = numpy

    @property
    def is_float(self) -> bool:
        return self in (DType.F32, DType.F16, DType.BF16, DType.F64)

    @property
    def itemsize(self) -> int | None:
        """Bytes of one element; None for strings and types we cannot read."""
        if self is DType.BF16:
            return 2
        return None if self.numpy is None else np.dtype(self.numpy).itemsize


@dataclass(frozen=True)
class FileSpan:
    """A run of bytes in a file that is exactly the tensor, little endian, C order."""

    path: Path
    offset: int
    length: int


class Recipe(Protocol):
    """How a tensor's values are had."""

    def read(self) -> Array:
        """The values, in the tensor's shape and dtype (bf16 is returned as float32)."""

    def span(self) -> FileSpan | None:
        """Where the bytes stand on disk as they are, if they do."""

    def origin(self) -> str:
        """One short phrase: which source tensors, and what was done to them."""

    def sources(self) -> Iterator[LazyTensor]:
        """The tensors that this recipe reads."""


@dataclass(frozen=True)
class LazyTensor:
    """A tensor that is read when asked.

    Attributes:
        name: its name in the file it came from, or the one it will be written under.
        shape: numpy axis order.
        dtype: element type of what ``read`` returns.
        recipe: how the values are had.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    recipe: Recipe

    def __repr__(self) -> str:
        origin = self.origin()
        shown = origin if len(origin) <= 60 else f"{origin[:57]}..."
        return f"<{self.name} {self.dtype.label} {list(self.shape)}, unread, from {shown}>"

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """What ``numpy.asarray`` asks for: the values."""
        return np.asarray(self.read(), dtype)

    def read(self) -> Array:
        """The values as a C-contiguous array of ``self.shape``."""
        array = np.ascontiguousarray(self.recipe.read())
        return array.reshape(self.shape)

    def span(self) -> FileSpan | None:
        """The file span, for a copy inside the kernel; None when the values are computed."""
        return self.recipe.span()

    def origin(self) -> str:
        return self.recipe.origin()

    def named(self, name: str) -> LazyTensor:
        """The same values under another name."""
        return replace(self, name=name)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Held:
    """Values that are in memory already (small constants)."""

    name: str
    values: Array

    def read(self) -> Array:
        return self.values

    def span(self) -> FileSpan | None:
        return None

    def origin(self) -> str:
        return self.name

    def sources(self) -> Iterator[LazyTensor]:
        return iter(())


@dataclass(frozen=True)
class Load:
    """Bytes of a file, as they are."""

    name: str
    dtype: DType
    where: FileSpan

    def read(self) -> Array:
        if self.dtype.itemsize is None:
            raise UnsupportedError(
                f"tensor {self.name!r} has an element type that cannot be read",
                file=self.where.path,
                found=self.dtype.label,
            )
        raw_dtype = "<u2" if self.dtype is DType.BF16 else self.dtype.numpy
        with self.where.path.open("rb") as stream:
            stream.seek(self.where.offset)
            raw = np.fromfile(stream, raw_dtype, self.where.length // self.dtype.itemsize)
        return bf16_to_f32(raw) if self.dtype is DType.BF16 else raw

    def span(self) -> FileSpan | None:
        return self.where

    def origin(self) -> str:
        return self.name

    def sources(self) -> Iterator[LazyTensor]:
        return iter(())


@dataclass(frozen=True)
class Widen:
    """Any float to f32: exact from f16 and bf16, rounded once from f64."""

    source: LazyTensor

    def read(self) -> Array:
        return self.source.read().astype(np.float32)

    def span(self) -> FileSpan | None:
        return None

    def origin(self) -> str:
        return f"{self.source.dtype.label} to f32({self.source.origin()})"

    def sources(self) -> Iterator[LazyTensor]:
        yield self.source


@dataclass(frozen=True)
class Transpose:
    """Axes permuted, as numpy.transpose does."""

    source: LazyTensor
    axes: tuple[int, ...]

    def read(self) -> Array:
        return self.source.read().transpose(self.axes)

    def span(self) -> FileSpan | None:
        return None

    def origin(self) -> str:
        return f"transpose({self.source.origin()}, {list(self.axes)})"

    def sources(self) -> Iterator[LazyTensor]:
        yield self.source


@dataclass(frozen=True)
class Reshape:
    """The same elements in another shape (the tensor that holds this says which)."""

    source: LazyTensor

    def read(self) -> Array:
        return self.source.read()

    def span(self) -> FileSpan | None:
        return self.source.span()

    def origin(self) -> str:
        return f"reshape({self.source.origin()})"

    def sources(self) -> Iterator[LazyTensor]:
        yield self.source


@dataclass(frozen=True)
class BatchNorm:
    """The four tensors ``[C]`` and epsilon of an inference batch norm."""

    scale: LazyTensor
    bias: LazyTensor
    mean: LazyTensor
    var: LazyTensor
    eps: float

    def factor(self) -> Array:
        """Scale / sqrt(var + eps), float64 ``[C]``."""
        scale = self.scale.read().astype(np.float64)
        var = self.var.read().astype(np.float64)
        return np.asarray(scale / np.sqrt(var + self.eps))

    def tensors(self) -> tuple[LazyTensor, LazyTensor, LazyTensor, LazyTensor]:
        return (self.scale, self.bias, self.mean, self.var)

    def origin(self) -> str:
        """All four and epsilon: norms that share some of them are different norms."""
        names = ", ".join(tensor.origin() for tensor in self.tensors())
        return f"{names}, eps {self.eps:g}"


@dataclass(frozen=True)
class FoldWeight:
    """A convolution's weight with the batch norm after it folded in: ``W * factor`` per output
    channel (axis 0), in float64, rounded once.
    """

    weight: LazyTensor
    norm: BatchNorm

    def read(self) -> Array:
        weight = self.weight.read().astype(np.float64)
        factor = self.norm.factor().reshape(-1, *[1] * (weight.ndim - 1))
        return np.asarray((weight * factor).astype(np.float32))

    def span(self) -> FileSpan | None:
        return None

    def origin(self) -> str:
        return f"fold({self.weight.origin()}, {self.norm.origin()})"

    def sources(self) -> Iterator[LazyTensor]:
        yield from (self.weight, *self.norm.tensors())


@dataclass(frozen=True)
class FoldBias:
    """The bias that goes with `FoldWeight`: ``(b - mean) * factor + beta``; b is 0 if None."""

    bias: LazyTensor | None
    norm: BatchNorm

    def read(self) -> Array:
        mean = self.norm.mean.read().astype(np.float64)
        beta = self.norm.bias.read().astype(np.float64)
        bias = 0.0 if self.bias is None else self.bias.read().astype(np.float64)
        return np.asarray(((bias - mean) * self.norm.factor() + beta).astype(np.float32))

    def span(self) -> FileSpan | None:
        return None

    def origin(self) -> str:
        bias = "0" if self.bias is None else self.bias.origin()
        return f"fold({bias}, {self.norm.origin()})"

    def sources(self) -> Iterator[LazyTensor]:
        if self.bias is not None:
            yield self.bias
        yield from self.norm.tensors()


@dataclass(frozen=True)
class WeightNorm:
    """The weight that a weight-norm pair over the first axis means: ``g * v / ||v||``, the norm
    over every other axis, in float64, rounded once."""

    g: LazyTensor
    v: LazyTensor

    def read(self) -> Array:
        v = self.v.read().astype(np.float64)
        norm = np.sqrt(np.square(v).sum(axis=tuple(range(1, v.ndim)), keepdims=True))
        g = self.g.read().astype(np.float64).reshape(norm.shape)
        return np.asarray((g * v / norm).astype(np.float32))

    def span(self) -> FileSpan | None:
        return None

    def origin(self) -> str:
        return f"weight norm({self.g.origin()}, {self.v.origin()})"

    def sources(self) -> Iterator[LazyTensor]:
        yield from (self.g, self.v)


def widened(tensor: LazyTensor) -> LazyTensor:
    """The tensor as f32; itself when it is f32 already.

    Raises:
        UnsupportedError: the tensor does not hold floats (a quantised export, say).
    """
    if tensor.dtype is DType.F32:
        return tensor
    if not tensor.dtype.is_float:
        raise UnsupportedError(
            f"weight {tensor.name!r} is not float",
            expected="f32, f16, bf16 or f64",
            found=tensor.dtype.label,
            todo="convert the float export, not a quantised one",
        )
    return LazyTensor(tensor.name, tensor.shape, DType.F32, Widen(tensor))


def bf16_to_f32(bits: Array) -> Array:
    """bfloat16 bit patterns (uint16) to float32, exactly: they are its upper half."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
