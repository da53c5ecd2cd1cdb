"""The values of tensors: none that is not finite, and none that was never filled."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from converters.gguf_header import Header, TensorInfo
from converters.gguf_values import values
from converters.lint_codes import Code, Finding
from graphtools.errors import UnsupportedError

__all__ = ["value_findings"]


def value_findings(header: Header, may_be_zero: Collection[str] = ()) -> Iterator[Finding]:
    """Read every tensor once, in pieces.

    Args:
        may_be_zero: tensors of which zeros alone are no fault.
    """
    for info in header.tensors:
        if info.is_countable and info.size:
            yield from _of_tensor(header, info, info.name in may_be_zero)


def _of_tensor(header: Header, info: TensorInfo, may_be_zero: bool) -> Iterator[Finding]:
    bad, first, seen, filled = 0, 0, 0, False
    try:
        # What overflows in a damaged block is infinite, and is counted.
        with np.errstate(all="ignore"):
            for piece in values(header, info):
                if piece.dtype.kind == "f":
                    wrong = ~np.isfinite(piece)
                    if wrong.any():
                        first = first if bad else seen + int(wrong.argmax())
                        bad += int(wrong.sum())
                filled = filled or bool(piece.any())
                seen += len(piece)
    except UnsupportedError:
        return  # of a type that nothing here reads no value is known
    if bad:
        found = f"{bad} of {info.size} values, the first at {first} of the flat tensor"
        yield Finding(Code.NOT_FINITE, info.name, found)
    elif not filled and not may_be_zero:
        yield Finding(Code.ALL_ZERO, info.name, f"{info.told()}, nothing but zeros")
