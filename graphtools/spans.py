"""Bytes of tensors from one file to another, without passing through this process."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import BinaryIO

from graphtools.errors import NotAModelError
from graphtools.tensors import FileSpan

__all__ = ["Progress", "copy_span", "read_at", "write_all"]

# Called with the number of bytes that were written since the last call.
Progress = Callable[[int], None]

# What one system call copies, and what is held where the system does not copy.
_COPY = 32 << 20
_BLOCK = 1 << 20
# The two files are on different systems, or this one does not copy.
_NOT_HERE = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)


def copy_span(
    source: BinaryIO, out: BinaryIO, span: FileSpan, name: str, progress: Progress | None = None
) -> None:
    """Copy a tensor's bytes to where ``out`` stands.

    Args:
        source: the span's file, open and unbuffered.
        out: the file that is written, unbuffered.
        name: the tensor's, for the message.

    Raises:
        OSError: the disk is full, say.
        NotAModelError: the source ends before the tensor does.
    """
    at, end = span.offset, span.offset + span.length
    while at < end:
        number = _system_copy(source.fileno(), out.fileno(), min(_COPY, end - at), at)
        if number is None:
            chunk = read_at(source, at, min(_BLOCK, end - at))
            write_all(out, chunk)
            number = len(chunk)
        if number == 0:
            raise NotAModelError(
                f"the file ends inside the tensor {name!r}",
                file=span.path,
                expected=f"{span.length} bytes at {span.offset}",
                found=f"{at - span.offset} bytes",
                todo="fetch it again",
            )
        at += number
        if progress is not None:
            progress(number)


def write_all(out: BinaryIO, data: bytes | memoryview, progress: Progress | None = None) -> None:
    """Write all of ``data``: an unbuffered file may take less at once."""
    view = memoryview(data)
    while view:
        number = out.write(view[:_COPY])
        view = view[number:]
        if progress is not None:
            progress(number)


def read_at(file: BinaryIO, at: int, number: int) -> bytes:
    """Up to ``number`` bytes from ``at``; fewer at the end of the file."""
    file.seek(at)
    parts = []
    while number and (part := file.read(number)):
        parts.append(part)
        number -= len(part)
    return b"".join(parts)


def _system_copy(source: int, out: int, number: int, at: int) -> int | None:
    """Bytes that the system copied by itself; None where it cannot."""
    if not hasattr(os, "copy_file_range"):
        return None
    try:
        return os.copy_file_range(source, out, number, offset_src=at)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return None
        raise
