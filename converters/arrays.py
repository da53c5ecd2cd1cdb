"""Named arrays from whatever wrote them: a GGUF, an ``.npz``, ``.npy`` and ``.bin`` files.

They are read one at a time. A ``.bin`` is raw little-endian float32 without a shape.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from converters import gguf_file
from converters.golden_files import KEYS_FILE, keys_of
from converters.manifest import Manifest
from graphtools.errors import NotAModelError, UnsupportedError, UsageError
from graphtools.tensors import Array, DType

__all__ = ["Arrays", "open_arrays"]

_SUFFIXES = (".npy", ".bin")
# What numpy, zipfile and zlib raise on files that were cut, changed or encrypted.
_DAMAGED = (
    *(ValueError, EOFError, OSError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True)
class Arrays:
    """Arrays by name, in the order of the file.

    Attributes:
        manifest: the keys of a GGUF; None of anything else.
        raw: names of those that have no shape of their own.
    """

    path: Path
    readers: Mapping[str, Callable[[], Array]]
    manifest: Manifest | None = None
    raw: frozenset[str] = field(default_factory=frozenset)

    def __contains__(self, name: object) -> bool:
        return name in self.readers

    def read(self, name: str) -> Array:
        """One array.

        Raises:
            NotAModelError: its file is damaged.
        """
        try:
            return self.readers[name]()
        except _DAMAGED as error:
            raise NotAModelError(
                f"the array {name!r} cannot be read",
                file=self.path,
                found=(str(error) or type(error).__name__).splitlines()[0],
                todo="write it again",
            ) from error


def open_arrays(path: Path) -> Arrays:
    """The arrays of a GGUF, an ``.npz``, an ``.npy`` or ``.bin``, or of a folder of those.

    Raises:
        UsageError: there is nothing there.
        NotAModelError: a file is damaged.
        UnsupportedError: it is none of these.
    """
    if path.is_dir():
        if (path / KEYS_FILE).is_file():
            found = {p.name: _reader(p) for p in sorted(path.glob("*.npy"))}
            return _described(path, (path / KEYS_FILE).read_bytes(), found)
        files = [p for p in sorted(path.rglob("*")) if p.suffix in _SUFFIXES]
        names = {p.relative_to(path).with_suffix("").as_posix(): p for p in files}
        if not files or len(names) < len(files):
            raise UsageError(
                "the folder holds no arrays" if not files else "two files have one name",
                file=path,
                expected=".npy or .bin files, one for each name",
            )
        raw = frozenset(name for name, file in names.items() if file.suffix == ".bin")
        return Arrays(path, {n: _reader(file) for n, file in names.items()}, None, raw)
    if not path.is_file():
        raise UsageError("no such file or folder", file=path, todo="check the path")
    if gguf_file.is_gguf(path):
        return _of_gguf(path)
    if path.suffix in _SUFFIXES:
        raw = frozenset([path.stem] if path.suffix == ".bin" else [])
        return Arrays(path, {path.stem: _reader(path)}, None, raw)
    return _of_npz(path)


def _of_npz(path: Path) -> Arrays:
    try:
        archive = zipfile.ZipFile(path)  # closed with the last reader
        members = [n for n in archive.namelist() if n.endswith(".npy")]
        keys = archive.read(KEYS_FILE) if KEYS_FILE in archive.namelist() else None
    except (OSError, zipfile.BadZipFile) as error:
        raise UnsupportedError(
            "the file holds no arrays",
            file=path,
            expected="a GGUF, .npz, .npy or .bin file, or a folder of .npy or .bin files",
            found=str(error),
        ) from error
    readers = {file: _member(archive, file) for file in members}
    if keys is not None:
        return _described(path, keys, readers)
    return Arrays(path, {file.removesuffix(".npy"): read for file, read in readers.items()})


def _described(path: Path, keys: bytes, readers: Mapping[str, Callable[[], Array]]) -> Arrays:
    """Goldens whose names and keys stand beside them."""
    manifest, files = keys_of(path, keys)
    missing = [file for file in files if file not in readers]
    if missing:
        raise NotAModelError(
            "a tensor of the goldens is missing",
            file=path,
            found=f"no {missing[0]!r}",
            todo="write them again",
        )
    names = manifest.get("baseline.tensors", "[string]")
    return Arrays(path, {n: readers[f] for n, f in zip(names, files, strict=True)}, manifest)


def _member(archive: zipfile.ZipFile, file: str) -> Callable[[], Array]:
    def read() -> Array:
        with archive.open(file) as stream:
            return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))

    return read


def _reader(file: Path) -> Callable[[], Array]:
    if file.suffix == ".bin":
        return lambda: np.fromfile(file, "<f4")
    return lambda: np.asarray(np.load(file, allow_pickle=False))


def _of_gguf(path: Path) -> Arrays:
    """A baseline's tensors under their full names and shapes; quantised ones dequantised."""
    manifest = gguf_file.read(path)
    readers: dict[str, Callable[[], Array]] = {}
    for tensor in manifest.tensors:
        if tensor.dtype is DType.OTHER:
            readers[tensor.name] = _dequantised(path, tensor.name)
        else:
            readers[tensor.name] = tensor.read
    if "baseline.tensors" in manifest.by_key and "baseline.shapes" in manifest.by_key:
        full = manifest.get("baseline.tensors", "[string]")
        shapes = manifest.get("baseline.shapes", "[string]")
        if len(full) == len(shapes) == len(readers):
            listed = zip(full, shapes, readers.values(), strict=True)
            readers = {name: _shaped(read, shape) for name, shape, read in listed}
    return Arrays(path, readers, manifest)


def _shaped(read: Callable[[], Array], shape: str) -> Callable[[], Array]:
    wanted = tuple(int(d) for d in shape.split(",")) if shape else ()
    return lambda: read().reshape(wanted)


def _dequantised(path: Path, name: str) -> Callable[[], Array]:
    def read() -> Array:
        from gguf import GGUFReader, dequantize

        (tensor,) = (t for t in GGUFReader(path).tensors if t.name == name)
        shape = tuple(int(d) for d in reversed(tensor.shape.tolist()))
        try:
            return np.asarray(dequantize(tensor.data, tensor.tensor_type)).reshape(shape)
        except NotImplementedError as error:
            raise ValueError(f"{tensor.tensor_type.name} cannot be dequantised") from error

    return read
