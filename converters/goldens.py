"""What a baseline file holds: its keys, and arrays under safe names and storable shapes.

ggml takes names of at most 63 bytes, one to four axes, and (here) f32. A name that is longer,
taken or has control characters is cut and ended with a digest of the whole; a scalar is stored as
[1]; of more than four axes the first ones are merged. The full name and the numpy shape stand in
the metadata.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from converters.archs.speaker import FBANK_ROWS
from converters.emit import MAX_NAME_BYTES
from converters.manifest import Entry
from converters.schema import Row
from graphtools.errors import UnsupportedError
from graphtools.tensors import Array, DType, Held, LazyTensor

__all__ = [
    "ARCHITECTURE",
    "ROWS",
    "file_sha256",
    "golden_array",
    "golden_entries",
    "golden_tensor",
    "safe_names",
]

ARCHITECTURE = "voicedetect-baseline"

_P = "baseline"
ROWS = (
    Row(f"{_P}.arch", "string", "which model the goldens are of", "source"),
    Row(f"{_P}.model_sha256", "string", "sha256 of the model's files, joined by commas", "source"),
    Row(f"{_P}.audio_name", "string", "file name of the clip", "source"),
    Row(f"{_P}.audio_sha256", "string", "sha256 of the clip's file", "source"),
    Row(f"{_P}.reference", "string", "library and version that computed the goldens", "source"),
    Row(
        f"{_P}.seg_pool",
        "string",
        "last partial segment is divided by: kernel (100, the engine) or valid (as PyTorch)",
        "source",
    ),
    Row(f"{_P}.stages", "[string]", "stage tensors in execution order", "source"),
    Row(
        f"{_P}.stage_weights",
        "[string]",
        "for each stage, its weight tensors in pull order, joined by a line feed",
        "source",
    ),
    Row(
        f"{_P}.noise",
        "[f32]",
        "for each stage, max |reference - float64 replay|, both end to end",
        "source",
    ),
    Row(f"{_P}.emotion_labels", "[string]", "class labels in id order", "source"),
    Row(f"{_P}.dominant_emotion", "string", "the most probable one", "source"),
    Row(f"{_P}.gender_labels", "[string]", "class labels in id order", "source"),
    Row(f"{_P}.dominant_gender", "string", "the most probable one", "source"),
    Row(f"{_P}.age_years", "f32", "100 x age_raw", "source", "years"),
    *(
        Row(r.key.replace("voicedetect", _P), r.type, r.meaning, r.proof, r.unit)
        for r in FBANK_ROWS
    ),
    Row(f"{_P}.tensors", "[string]", "full name of each tensor, in the file's order", "source"),
    Row(
        f"{_P}.shapes",
        "[string]",
        'numpy shape of each tensor, e.g. "1,80,298"; "" is a scalar',
        "source",
    ),
    Row(f"{_P}.dtypes", "[string]", "element type of each tensor as it was computed", "source"),
    Row(
        f"{_P}.tap_stages",
        "[string]",
        'stage of the recovered network that each tensor is; "" is none',
        "source",
    ),
    Row(f"{_P}.nan_counts", "[u64]", "values of each tensor that are NaN", "source"),
    Row(f"{_P}.inf_counts", "[u64]", "values of each tensor that are infinite", "source"),
    Row(f"{_P}.omitted", "[string]", "tensors that were asked for and not had: why", "source"),
    Row(f"{_P}.inputs", "[string]", "names of the model's inputs, stored as tensors too", "source"),
    Row(f"{_P}.input_sources", "[string]", "file of each input, or the random seed", "source"),
    Row(
        f"{_P}.input_sha256",
        "[string]",
        "sha256 of each input's values as they were fed, little endian in C order",
        "source",
    ),
    Row(f"{_P}.provider", "string", "onnxruntime's execution provider", "source"),
    Row(f"{_P}.versions", "[string]", "packages that took part, with their versions", "source"),
)

_DIGEST = 8
_AXES = 4


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """Full name to the name in the file; injective, the same for the same set of names."""
    listed = list(dict.fromkeys(names))
    plain = {n for n in listed if 0 < len(n.encode()) <= MAX_NAME_BYTES and n.isprintable()}
    found: dict[str, str] = {}
    taken = set(plain)
    for name in listed:
        if name in plain:
            found[name] = name
            continue
        digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
        shown = "".join(c if c.isprintable() else "?" for c in name)
        head = shown.encode()[: MAX_NAME_BYTES - _DIGEST - 1].decode("utf-8", "ignore")
        short = f"{head}~{digest}"
        if short in taken:
            raise UnsupportedError(
                f"no short name can be made for the tensor {name!r}", found=f"{short!r} is taken"
            )
        found[name] = short
        taken.add(short)
    return found


def golden_tensor(name: str, values: Array) -> LazyTensor:
    """An array as an f32 tensor with one to four axes.

    Raises:
        UnsupportedError: as `golden_array`.
    """
    stored = golden_array(name, values)
    return LazyTensor(name, stored.shape, DType.F32, Held(name, stored))


def golden_array(name: str, values: Array) -> Array:
    """An array as it is stored: float32 with one to four axes, in C order.

    Raises:
        UnsupportedError: it is empty, or holds numbers that float32 does not have.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" or not array.size:
        raise _unstorable(name, f"{array.dtype} {list(array.shape)}")
    with np.errstate(over="ignore"):
        stored = np.asarray(array, dtype=np.float32, order="C")
    if array.dtype.kind == "f" and np.any(np.isinf(stored) & np.isfinite(array)):
        raise _unstorable(name, "numbers above float32's range")
    if array.dtype.kind in "iu" and not np.array_equal(stored.astype(array.dtype), array):
        raise _unstorable(name, "integers that float32 does not have")
    extra = array.ndim - _AXES
    if extra > 0:
        stored = stored.reshape(-1, *array.shape[extra + 1 :])
    return stored.reshape(1) if array.ndim == 0 else stored


def _unstorable(name: str, found: str) -> UnsupportedError:
    return UnsupportedError(
        f"the tensor {name!r} cannot be stored as a golden",
        expected="one number or more, each a float32",
        found=found,
    )


def golden_entries(shapes: Mapping[str, tuple[int, ...]]) -> tuple[Entry, ...]:
    """The keys that record full names and numpy shapes."""
    spelled = tuple(",".join(map(str, shape)) for shape in shapes.values())
    return (
        Entry(f"{_P}.tensors", "[string]", tuple(shapes), "run"),
        Entry(f"{_P}.shapes", "[string]", spelled, "run"),
    )


def file_sha256(path: Path) -> str:
    """The digest of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
