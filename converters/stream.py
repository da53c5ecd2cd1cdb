"""Tensor bytes from their sources into a file, and both compared afterwards.

A tensor that stands in a file as it is wanted is copied by the system, without passing through
this process; one that is computed is held alone. Neither reading nor comparing maps a file: mapped
pages count as memory of the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from graphtools.spans import Progress, copy_span, read_at, write_all
from graphtools.tensors import DType, LazyTensor, widened

__all__ = ["append", "same"]

# What is held of a file while it is compared.
_BLOCK = 1 << 20
# Each of the three blocks that a sample compares of a tensor.
_SAMPLE = 64 << 10


def append(
    path: Path, tensors: Iterable[LazyTensor], alignment: int, progress: Progress | None = None
) -> None:
    """Append each tensor to the file at ``path``, padded with zeros to ``alignment``.

    Everything is stored as float32 but int32, which stays.

    Raises:
        OSError: the disk is full, say.
        NotAModelError: a source ends before its tensor does.
    """
    with ExitStack() as stack:
        out = stack.enter_context(path.open("r+b", buffering=0))
        out.seek(0, os.SEEK_END)
        sources: dict[Path, BinaryIO] = {}
        for tensor in tensors:
            meant = _as_stored(tensor)
            span = meant.span()
            write_all(out, bytes(-out.tell() % alignment))
            if span is not None:
                if span.path not in sources:
                    opened = stack.enter_context(span.path.open("rb", buffering=0))
                    sources[span.path] = opened
                copy_span(sources[span.path], out, span, meant.name, progress)
            else:
                write_all(out, _bytes_of(meant), progress)
        write_all(out, bytes(-out.tell() % alignment))


def same(stored: LazyTensor, wanted: LazyTensor, *, sample: bool) -> bool:
    """Whether a tensor of a written file has the bytes of the tensor that was to be stored.

    Args:
        stored: the tensor as the file has it.
        wanted: what was given to `append`; it is read again.
        sample: compare its first, middle and last block only.
    """
    meant = _as_stored(wanted)
    place, source = stored.span(), meant.span()
    assert place is not None  # tensors of a GGUF are plain bytes
    with ExitStack() as stack:
        file = stack.enter_context(place.path.open("rb", buffering=0))
        block: Callable[[int, int], bytes]
        if source is not None:
            length = source.length
            other = stack.enter_context(source.path.open("rb", buffering=0))
            block = partial(_block_at, other, source.offset)
        else:
            data = _bytes_of(meant)
            length = len(data)
            block = partial(_copy_of, data)
        return length == place.length and all(
            _block_at(file, place.offset, *at) == block(*at) for at in _blocks(length, sample)
        )


def _blocks(length: int, sample: bool) -> Iterator[tuple[int, int]]:
    """Begin and length of the blocks that are compared of so many bytes."""
    if not sample or length <= 3 * _SAMPLE:
        for at in range(0, length, _BLOCK):
            yield at, min(_BLOCK, length - at)
        return
    for at in (0, (length - _SAMPLE) // 2, length - _SAMPLE):
        yield at, _SAMPLE


def _as_stored(tensor: LazyTensor) -> LazyTensor:
    """Everything is stored as float32 but int32, which stays."""
    return tensor if tensor.dtype is DType.I32 else widened(tensor)


def _bytes_of(tensor: LazyTensor) -> memoryview:
    return tensor.read().reshape(-1).view(np.uint8).data


def _copy_of(data: memoryview, at: int, number: int) -> bytes:
    """A block as bytes, which compare at memory speed; views compare one by one."""
    return bytes(data[at : at + number])


def _block_at(file: BinaryIO, start: int, at: int, number: int) -> bytes:
    return read_at(file, start + at, number)
