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
from converters.manifest import Entry, Manifest
from converters.network import axis
from converters.schema import TENSOR, Row, Schema
from graphtools.errors import UnsupportedError
from graphtools.tensors import Array, DType, Held, LazyTensor

__all__ = [
    "ARCHITECTURE",
    "SCHEMA",
    "file_sha256",
    "golden_array",
    "golden_entries",
    "golden_tensor",
    "safe_names",
]

ARCHITECTURE = "voicedetect-baseline"

_P = "baseline"


def _row(key: str, type: str, meaning: str, group: str = "", unit: str = "") -> Row:
    return Row(f"{_P}.{key}", type, meaning, "source", unit, group=group)


_STAGES = Row(
    f"{_P}.stages",
    "[string]",
    "stage tensors in execution order",
    "source",
    names=TENSOR,
    group="stages",
)
_TENSORS = Row(
    f"{_P}.tensors",
    "[string]",
    "full name of each, in the file's order",
    "source",
    group="tensors",
    zero=True,  # a mask may be
)
_POOL = "last partial segment is divided by: kernel (100, the engine) or valid (as PyTorch)"
_WEIGHTS = "for each stage, its weight tensors in pull order, joined by a line feed"
_NOISE = "for each stage, max |reference - float64 replay|, both end to end"
_TAP_WEIGHTS = "weights that each is computed with from the others, joined by a line feed"
_STAGE = 'stage of the recovered network that each tensor is; "" is none'
_DIGEST_OF = "sha256 of each input's values as they were fed, little endian in C order"


def _counts(m: Manifest) -> dict[str, object]:
    return {
        f"{_P}.tensors": len(m.tensors),
        f"{_P}.emotion_labels": axis(m, "emotion_probs"),
        f"{_P}.gender_labels": axis(m, "gender_probs"),
    }


SCHEMA = Schema(
    ARCHITECTURE,
    rows=(_row("reference", "string", "library and version that computed the goldens"),),
    optional=(
        (_row("model_sha256", "string", "sha256 of the model's files, joined by commas"),),
        (
            _row("audio_name", "string", "file name of the clip"),
            _row("audio_sha256", "string", "sha256 of the clip's file"),
        ),
        # A known network's run on a clip.
        (_row("arch", "string", "which model the goldens are of"), _STAGES),
        (_row("seg_pool", "string", _POOL),),
        (_row("stage_weights", "[string]", _WEIGHTS, "stages"),),
        (_row("noise", "[f32]", _NOISE, "stages"),),
        (
            _row("emotion_labels", "[string]", "class labels in id order"),
            _row("dominant_emotion", "string", "the most probable one"),
        ),
        (
            _row("gender_labels", "[string]", "class labels in id order"),
            _row("dominant_gender", "string", "the most probable one"),
            _row("age_years", "f32", "100 x age_raw", unit="years"),
        ),
        tuple(
            Row(r.key.replace("voicedetect", _P), r.type, r.meaning, r.proof, r.unit)
            for r in FBANK_ROWS
        ),
        # Any tensors of any model.
        (
            _TENSORS,
            _row("shapes", "[string]", 'numpy shape, e.g. "1,80,298"; "" is a scalar', "tensors"),
        ),
        (
            _row("dtypes", "[string]", "element type of each as it was computed", "tensors"),
            _row("tap_stages", "[string]", _STAGE, "tensors"),
            _row("tap_weights", "[string]", _TAP_WEIGHTS, "tensors"),
            _row("nan_counts", "[u64]", "values of each that are NaN", "tensors"),
            _row("inf_counts", "[u64]", "values of each that are infinite", "tensors"),
        ),
        (_row("omitted", "[string]", "tensors that were asked for and not had: why"),),
        (
            _row("inputs", "[string]", "names of the inputs, stored as tensors too", "inputs"),
            _row("input_sources", "[string]", "file of each, or the random seed", "inputs"),
            _row("input_sha256", "[string]", _DIGEST_OF, "inputs"),
        ),
        (
            _row("provider", "string", "onnxruntime's execution provider"),
            _row("versions", "[string]", "packages that took part, with their versions"),
        ),
    ),
    counts=_counts,
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
    if array.dtype.kind in "iu":
        # What was rounded up, out of the type's range, has no cast back.
        inside = bool((stored < float(np.iinfo(array.dtype).max) + 1.0).all())
        if not inside or not np.array_equal(stored.astype(array.dtype), array):
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
