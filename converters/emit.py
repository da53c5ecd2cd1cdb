"""The one GGUF emitter: writes a temp file, reads it back, compares, then renames it.

gguf's writer lets through what its readers then choke on (names of 64 bytes, 0-d and 5-d
tensors, repeated keys, dropped empty values), so everything is checked here first, and what was
written is compared key by key and byte by byte with what was meant.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from converters import gguf_file, stream
from converters.manifest import Manifest, is_utf8, require_value
from graphtools.errors import StorageError, UnsupportedError
from graphtools.files import replacing
from graphtools.spans import Progress
from graphtools.tensors import DType

__all__ = ["MAX_NAME_BYTES", "emit", "emit_goldens", "proof_path"]

# ggml's GGML_MAX_NAME is 64 with the final NUL.
MAX_NAME_BYTES = 63
_MAX_DIMS = 4

_TYPES = {
    "string": "STRING",
    "bool": "BOOL",
    "u8": "UINT8",
    "u32": "UINT32",
    "u64": "UINT64",
    "i32": "INT32",
    "i64": "INT64",
    "f32": "FLOAT32",
}


@contextlib.contextmanager
def emit(
    manifest: Manifest, output: Path, *, sample: bool = False, progress: Progress | None = None
) -> Iterator[Path]:
    """Write ``manifest`` beside ``output`` and yield the finished temp file.

    When the block ends without an error the file gets its name; otherwise nothing stays.

    Args:
        manifest: what to write.
        output: the file's name in the end.
        sample: read back a sample of every tensor, not every byte.
        progress: told the bytes of tensors as they are written.

    Raises:
        UnsupportedError: a name, shape or value cannot be stored.
        StorageError: writing failed, or what was read back differs.
    """
    _require_storable(manifest)
    with replacing(output, manifest.size) as temp:
        _write(manifest, temp, progress)
        _require_same(manifest, temp, sample)
        yield temp


def emit_goldens(manifest: Manifest, output: Path) -> None:
    """Write a file that no proof goes with; one that lies beside it was another file's.

    Raises:
        UnsupportedError, StorageError: as `emit`.
    """
    with emit(manifest, output):
        pass
    proof_path(output).unlink(missing_ok=True)


def proof_path(output: Path) -> Path:
    """Where the proof of a file is written."""
    return output.with_name(f"{output.name}.proof.json")


def _require_storable(manifest: Manifest) -> None:
    keys = [e.key for e in manifest.entries]
    names = [t.name for t in manifest.tensors]
    for what, listed in (("key", keys), ("tensor", names)):
        repeated = (
            {n for n in listed if listed.count(n) > 1} if len(set(listed)) < len(listed) else ()
        )
        if repeated:
            raise UnsupportedError(f"the {what} {min(repeated)!r} would be written twice")
    for entry in manifest.entries:
        require_value(entry.key, entry.type, entry.value)
    if not is_utf8(manifest.name):
        raise UnsupportedError(
            "the model's name cannot be stored: it is not UTF-8",
            found=ascii(manifest.name),
            todo="rename the file",
        )
    for tensor in manifest.tensors:
        size = len(tensor.name.encode()) if is_utf8(tensor.name) else 0
        if not 0 < size <= MAX_NAME_BYTES or any(ord(c) < 32 for c in tensor.name):
            raise UnsupportedError(
                f"the tensor name {tensor.name!a} cannot be stored",
                expected=f"1 to {MAX_NAME_BYTES} bytes (ggml's limit), no control characters",
                found=f"{size} bytes of UTF-8",
                todo="export the model with shorter parameter names",
            )
        if not 1 <= len(tensor.shape) <= _MAX_DIMS or not tensor.size:
            raise UnsupportedError(
                f"the tensor {tensor.name!r} cannot be stored",
                expected=f"1 to {_MAX_DIMS} axes, none empty",
                found=f"shape {list(tensor.shape)}",
            )


def _write(manifest: Manifest, path: Path, progress: Progress | None) -> None:
    """Write the file: keys and places with gguf's writer, then the tensors one by one."""
    from gguf import GGUFValueType, GGUFWriter

    writer = GGUFWriter(None, manifest.architecture)
    try:
        writer.add_key_value("general.name", manifest.name, GGUFValueType.STRING)
        for entry in manifest.entries:
            if entry.type.startswith("["):
                item = GGUFValueType[_TYPES[entry.type[1:-1]]]
                writer.add_key_value(entry.key, entry.value, GGUFValueType.ARRAY, item)
            else:
                writer.add_key_value(entry.key, entry.value, GGUFValueType[_TYPES[entry.type]])
        for tensor in manifest.tensors:
            stored = np.dtype(np.int32 if tensor.dtype is DType.I32 else np.float32)
            writer.add_tensor_info(tensor.name, tensor.shape, stored, 4 * tensor.size)
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
    finally:
        writer.close()
    stream.append(path, manifest.tensors, writer.data_alignment, progress)


def _require_same(manifest: Manifest, path: Path, sample: bool) -> None:
    """Compare the file on disk with the manifest, in everything that a reader sees."""
    back = gguf_file.read(path)
    wanted = {e.key: (e.type, e.value) for e in manifest.entries}
    found = {e.key: (e.type, e.value) for e in back.entries}
    if back.architecture != manifest.architecture or back.name != manifest.name:
        raise _differs(path, "the general keys", manifest.name, back.name)
    for key in sorted({*wanted, *found}):
        if wanted.get(key) != found.get(key):
            raise _differs(path, f"the key {key!r}", wanted.get(key), found.get(key))
    if [t.name for t in back.tensors] != [t.name for t in manifest.tensors]:
        raise _differs(path, "the list of tensors", len(manifest.tensors), len(back.tensors))
    for tensor, stored in zip(manifest.tensors, back.tensors, strict=True):
        dtype = DType.I32 if tensor.dtype is DType.I32 else DType.F32
        if stored.shape != tensor.shape or stored.dtype is not dtype:
            raise _differs(path, f"the tensor {tensor.name!r}", tensor.shape, stored.shape)
        if not stream.same(stored, tensor, sample=sample):
            raise _differs(path, f"the bytes of {tensor.name!r}", "those read", "others")


def _differs(path: Path, what: str, expected: object, found: object) -> StorageError:
    return StorageError(
        f"the file read back differs from what was written, in {what}",
        file=path,
        expected=repr(expected)[:200],
        found=repr(found)[:200],
        todo="check the disk and its free space, then convert again",
    )
