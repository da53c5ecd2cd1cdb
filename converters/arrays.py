"""Named arrays from whatever holds them: a GGUF, an ``.npz``, ``.npy`` and ``.bin`` files, a dict.

They are read one at a time. A ``.bin`` is raw little-endian float32 without a shape.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters import gguf_file
from converters.golden_files import KEYS_FILE, keys_of
from converters.manifest import Manifest
from graphtools.errors import NotAModelError, UnsupportedError, UsageError
from graphtools.tensors import Array, DType

if TYPE_CHECKING:
    from gguf import GGUFReader

__all__ = ["Arrays", "open_arrays"]

_SUFFIXES = (".npy", ".bin")
_INTEGERS = {t.label: t.numpy for t in DType if t.numpy and np.dtype(t.numpy).kind in "iub"}
# What numpy, zipfile and zlib raise on files that were cut, changed or encrypted.
_DAMAGED = (
    *(ValueError, EOFError, OSError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True)
class Arrays:
    """Arrays by name, in the order of the file.

    Attributes:
        path: of the file or folder; None of arrays in memory.
        manifest: the keys of a GGUF; None of anything else.
        raw: names of those that have no shape of their own.
    """

    path: Path | None
    readers: Mapping[str, Callable[[], Array]]
    manifest: Manifest | None = None
    raw: frozenset[str] = field(default_factory=frozenset)

    def __contains__(self, name: object) -> bool:
        return name in self.readers

    def read(self, name: str) -> Array:
        """One array of real numbers or booleans.

        Raises:
            NotAModelError: its file is damaged.
            UnsupportedError: it holds something else.
        """
        try:
            array = self.readers[name]()
        except _DAMAGED as error:
            raise NotAModelError(
                f"the array {name!r} cannot be read",
                file=self.path,
                found=(str(error) or type(error).__name__).splitlines()[0],
                todo="write it again",
            ) from error
        if array.dtype.kind not in "fiub":
            raise UnsupportedError(
                f"the array {name!r} cannot be compared",
                file=self.path,
                expected="real numbers",
                found=str(array.dtype),
            )
        return array


def open_arrays(source: Path | Mapping[str, Any]) -> Arrays:
    """The arrays of a GGUF, an ``.npz``, an ``.npy`` or ``.bin``, or of a folder of those.

    Args:
        source: their path; or name to array, where an array is what ``numpy.asarray`` takes.

    Raises:
        UsageError: there is nothing there.
        NotAModelError: a file is damaged.
        UnsupportedError: it is none of these.
    """
    if isinstance(source, Mapping):
        return Arrays(None, {name: partial(np.asarray, value) for name, value in source.items()})
    path = source
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
    missing = [file for file in files.values() if file not in readers]
    if missing:
        raise NotAModelError(
            "a tensor of the goldens is missing",
            file=path,
            found=f"no {missing[0]!r}",
            todo="write them again",
        )
    return Arrays(path, {name: readers[file] for name, file in files.items()}, manifest)


def _member(archive: zipfile.ZipFile, file: str) -> Callable[[], Array]:
    def read() -> Array:
        with archive.open(file) as stream:
            return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))

    return read


def _reader(file: Path) -> Callable[[], Array]:
    if file.suffix == ".bin":
        return partial(_raw, file)
    return lambda: np.asarray(np.load(file, allow_pickle=False))


def _raw(file: Path) -> Array:
    if file.stat().st_size % 4:
        raise ValueError(f"{file.stat().st_size} bytes are no whole number of float32")
    return np.fromfile(file, "<f4")


def _of_gguf(path: Path) -> Arrays:
    """A baseline's tensors under their full names, with the shapes and integer types that they
    had; quantised ones dequantised."""
    manifest = gguf_file.read(path)
    readers: dict[str, Callable[[], Array]] = {}
    reader = cache(partial(_gguf_reader, path))
    for tensor in manifest.tensors:
        if tensor.dtype is DType.OTHER:
            readers[tensor.name] = partial(_dequantised, reader, tensor.name)
        else:
            readers[tensor.name] = tensor.read
    if "baseline.tensors" in manifest.by_key and "baseline.shapes" in manifest.by_key:
        full = manifest.get("baseline.tensors", "[string]")
        shapes = manifest.get("baseline.shapes", "[string]")
        types = [""] * len(full)
        if "baseline.dtypes" in manifest.by_key:
            types = manifest.get("baseline.dtypes", "[string]")
        if len(full) == len(shapes) == len(types) == len(readers):
            moved = [n for n, stored in zip(full, readers, strict=True) if n != stored]
            if any(name in readers for name in moved):  # a short name stands for a long one only
                raise NotAModelError(
                    "the tensors are not in the order of their full names",
                    file=path,
                    expected="baseline.tensors in the file's order",
                    found=f"{moved[0]!r} elsewhere",
                    todo="write the file again, or drop the baseline keys with the order",
                )
            listed = zip(full, readers.values(), shapes, types, strict=True)
            readers = {name: partial(_restored, *how) for name, *how in listed}
    return Arrays(path, readers, manifest)


def _restored(read: Callable[[], Array], shape: str, type: str) -> Array:
    """As it was computed: GGUF holds up to four axes, and integers as float32."""
    values = read().reshape(tuple(int(d) for d in shape.split(",")) if shape else ())
    if type not in _INTEGERS:
        return values
    with np.errstate(invalid="ignore"):
        whole = values.astype(_INTEGERS[type])
    # An engine's values may be none of the type that its keys claim.
    return whole if np.array_equal(whole, values) else values


def _gguf_reader(path: Path) -> GGUFReader:
    from gguf import GGUFReader

    return GGUFReader(path)


def _dequantised(reader: Callable[[], GGUFReader], name: str) -> Array:
    from gguf import dequantize

    tensor = next(t for t in reader().tensors if t.name == name)
    shape = tuple(int(d) for d in reversed(tensor.shape.tolist()))
    try:
        return np.asarray(dequantize(tensor.data, tensor.tensor_type)).reshape(shape)
    except NotImplementedError as error:
        raise ValueError(f"{tensor.tensor_type.name} cannot be dequantised") from error
