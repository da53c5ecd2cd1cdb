"""Arbitrary named arrays as the tensors of a GGUF: safe names, storable shapes, both recorded.

ggml takes names of at most 63 bytes, one to four axes, and (here) f32. A name that is longer or
taken is cut and ended with a digest of the whole; a scalar is stored as [1]; of more than four
axes the first ones are merged. The full name and the numpy shape stand in the metadata.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from converters.emit import MAX_NAME_BYTES
from converters.manifest import Entry
from converters.schema import Row
from graphtools.errors import UnsupportedError
from graphtools.tensors import Array, DType, Held, LazyTensor

__all__ = ["ROWS", "golden_entries", "golden_tensor", "safe_names"]

ROWS = (
    Row(
        "baseline.tensors",
        "[string]",
        "full name of each tensor, in the file's order",
        "source",
        group="tensors",
    ),
    Row(
        "baseline.shapes",
        "[string]",
        'numpy shape of each tensor, e.g. "1,80,298"; "" is a scalar',
        "source",
        group="tensors",
    ),
)

_DIGEST = 8
_AXES = 4


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """Full name to the name in the file; injective, the same for the same set of names."""
    listed = list(dict.fromkeys(names))
    plain = {n for n in listed if 0 < len(n.encode()) <= MAX_NAME_BYTES}
    found: dict[str, str] = {}
    for name in listed:
        if name in plain:
            found[name] = name
            continue
        digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
        head = name.encode()[: MAX_NAME_BYTES - _DIGEST - 1].decode("utf-8", "ignore")
        short = f"{head}~{digest}"
        if short in plain or short in found.values():
            raise UnsupportedError(
                f"no short name can be made for the tensor {name!r}", found=f"{short!r} is taken"
            )
        found[name] = short
    return found


def golden_tensor(name: str, values: Array) -> LazyTensor:
    """An array as an f32 tensor with one to four axes.

    Raises:
        UnsupportedError: it is empty, or holds integers that f32 does not have.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" or not array.size:
        raise UnsupportedError(
            f"the tensor {name!r} cannot be stored as a golden",
            expected="numbers, at least one",
            found=f"{array.dtype} {list(array.shape)}",
        )
    stored = np.ascontiguousarray(array, dtype=np.float32)
    if array.dtype.kind in "iu" and not np.array_equal(stored.astype(array.dtype), array):
        raise UnsupportedError(f"the tensor {name!r} holds integers that f32 cannot")
    extra = array.ndim - _AXES
    if extra > 0:
        stored = stored.reshape(-1, *array.shape[extra + 1 :])
    stored = stored.reshape(1) if array.ndim == 0 else stored
    return LazyTensor(name, stored.shape, DType.F32, Held(name, stored))


def golden_entries(goldens: Mapping[str, Array]) -> tuple[Entry, ...]:
    """The keys that record full names and shapes."""
    shapes = tuple(",".join(map(str, np.shape(value))) for value in goldens.values())
    return (
        Entry(ROWS[0].key, ROWS[0].type, tuple(goldens), "run"),
        Entry(ROWS[1].key, ROWS[1].type, shapes, "run"),
    )
