"""Tensor bytes: copied as they stand, computed one by one, and compared afterwards."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from converters.stream import append, same
from graphtools.errors import NotAModelError
from graphtools.tensors import DType, FileSpan, Held, LazyTensor, Load, Reshape

Array = npt.NDArray[Any]
BIG = 300_000  # elements: more than a block, and no multiple of one


def values(size: int, dtype: str = "<f4") -> Array:
    return np.random.default_rng(size).normal(size=size).astype(dtype)


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., LazyTensor]:
    """``stored(name, array)``: a tensor whose bytes stand in a file, after some others."""

    def make(name: str, array: Array, dtype: DType = DType.F32) -> LazyTensor:
        path = tmp_path / f"{name}.bin"
        path.write_bytes(bytes(13) + array.tobytes() + b"after")
        span = FileSpan(path, 13, array.nbytes)
        return LazyTensor(name, array.shape, dtype, Load(name, dtype, span))

    return make


def held(name: str, array: Array) -> LazyTensor:
    return LazyTensor(name, array.shape, DType.F32, Held(name, array))


def places(path: Path, start: int, tensors: list[LazyTensor]) -> list[LazyTensor]:
    """The tensors as they stand in the file after ``start`` bytes, each aligned to 32."""
    found = []
    for tensor in tensors:
        start = -(-start // 32) * 32
        span = FileSpan(path, start, 4 * tensor.size)
        dtype = DType.I32 if tensor.dtype is DType.I32 else DType.F32
        found.append(LazyTensor(tensor.name, tensor.shape, dtype, Load(tensor.name, dtype, span)))
        start += 4 * tensor.size
    return found


def some(stored: Callable[..., LazyTensor]) -> tuple[list[LazyTensor], list[Array]]:
    big, odd, half = values(BIG), values(7), values(5, "<f2")
    codes = np.arange(9, dtype=np.int32)
    tensors = [
        stored("big", big),
        held("odd", odd),
        stored("half", half, DType.F16),
        LazyTensor("grid", (3, 3), DType.I32, Reshape(stored("codes", codes, DType.I32))),
        held("computed", values(BIG + 1)),
    ]
    return tensors, [big, odd, half.astype(np.float32), codes.reshape(3, 3), values(BIG + 1)]


def no_such_call(*_: Any, **__: Any) -> int:
    raise OSError(errno.EXDEV, "Invalid cross-device link")


@pytest.mark.parametrize("system", ["copies", "refuses", "has no such call"])
def test_every_tensor_stands_where_it_should(
    stored: Callable[..., LazyTensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    if system == "refuses":
        monkeypatch.setattr(os, "copy_file_range", no_such_call)
    elif system == "has no such call":
        monkeypatch.delattr(os, "copy_file_range")
    tensors, wanted = some(stored)
    path = tmp_path / "out"
    path.write_bytes(b"a header of 27 bytes, say..")
    told: list[int] = []
    append(path, tensors, 32, told.append)
    assert path.stat().st_size % 32 == 0
    assert sum(told) == sum(4 * t.size for t in tensors)
    for place, values_, tensor in zip(places(path, 27, tensors), wanted, tensors, strict=True):
        np.testing.assert_array_equal(place.read(), values_)
        assert same(place, tensor, sample=False)
        assert same(place, tensor, sample=True)


def test_what_stands_in_a_file_is_not_read_by_this_process(
    stored: Callable[..., LazyTensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = stored("big", values(BIG))
    monkeypatch.setattr(Load, "read", lambda self: pytest.fail("read"))
    path = tmp_path / "out"
    path.write_bytes(b"")
    append(path, [tensor], 32)
    assert path.read_bytes()[: 4 * BIG] == values(BIG).tobytes()


@pytest.mark.parametrize("number", [0, 4])  # copied, computed
@pytest.mark.parametrize(
    ("at", "sampled"),
    [(0, True), (2 * BIG, True), (4 * BIG - 1, True), (100_000, False), (1_000_000, False)],
)
def test_a_byte_that_changed_is_noticed(
    stored: Callable[..., LazyTensor], tmp_path: Path, number: int, at: int, sampled: bool
) -> None:
    """A sample has the first, the last and one block between; all of it has every byte."""
    tensors, _ = some(stored)
    path = tmp_path / "out"
    path.write_bytes(b"")
    append(path, tensors, 32)
    place = places(path, 0, tensors)[number]
    span = place.span()
    assert span is not None
    data = bytearray(path.read_bytes())
    data[span.offset + at] ^= 1
    path.write_bytes(data)
    assert not same(place, tensors[number], sample=False)
    assert same(place, tensors[number], sample=True) is not sampled


def test_another_length_is_another_tensor(
    stored: Callable[..., LazyTensor], tmp_path: Path
) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"")
    append(path, [stored("a", values(8))], 32)
    (place,) = places(path, 0, [held("a", values(7))])
    assert not same(place, stored("a", values(8)), sample=False)
    assert not same(place, held("a", values(8)), sample=False)


@pytest.mark.parametrize("length", [0, 13, 200, 4 * BIG])
def test_a_source_that_was_cut_is_named(
    stored: Callable[..., LazyTensor], tmp_path: Path, length: int
) -> None:
    """Since its header was read: another program may be at work on it."""
    tensor = stored("big", values(BIG))
    span = tensor.span()
    assert span is not None
    os.truncate(span.path, length)
    (tmp_path / "out").write_bytes(b"")
    with pytest.raises(NotAModelError, match="ends inside the tensor 'big'") as caught:
        append(tmp_path / "out", [tensor], 32)
    assert caught.value.file == str(span.path)
    assert caught.value.found == f"{max(0, length - 13)} bytes"


def test_another_error_of_the_system_is_raised(
    stored: Callable[..., LazyTensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "copy_file_range", full)
    (tmp_path / "out").write_bytes(b"")
    with pytest.raises(OSError, match="No space left"):
        append(tmp_path / "out", [stored("big", values(BIG))], 32)
