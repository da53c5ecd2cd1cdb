"""Goldens written as they come, in three forms: a GGUF, an ``.npz``, a folder of ``.npy`` files.

The two numpy forms keep every type, and hold the metadata keys in ``baseline.json``, with the file
or member of each tensor: names of tensors may hold what names of files may not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np

from converters.emit import emit_goldens
from converters.goldens import ARCHITECTURE, golden_array, safe_names
from converters.manifest import Entry, Manifest, Value
from graphtools.errors import NotAModelError, UsageError
from graphtools.files import folder_of, replacing, temporary
from graphtools.tensors import Array, DType, FileSpan, LazyTensor, Load

__all__ = ["KEYS_FILE", "GoldenFile", "golden_file", "keys_of", "require_form"]

KEYS_FILE = "baseline.json"
_NAME = 180


class GoldenFile(Protocol):
    """What is being written; it gets its name when `golden_file` ends well."""

    def add(self, name: str, values: Array) -> None:
        """Store one array under its full name.

        Raises:
            UnsupportedError: this form cannot hold it; others may follow.
        """

    def finish(self, name: str, entries: Sequence[Entry]) -> None:
        """Store the model's name and the keys, after the last array."""


def require_form(output: Path) -> None:
    """Check that a name says in which form goldens are wanted, and that a folder may be replaced.

    Raises:
        UsageError: it ends in something else; it is there and no folder, or a folder that holds
            other things.
    """
    if output.suffix in (".gguf", ".npz"):
        return
    if output.suffix and not output.is_dir():
        raise UsageError(
            "the output's name does not say what to write",
            expected="a name that ends in .gguf or .npz, or a folder",
            found=str(output),
        )
    if output.exists() and not output.is_dir():
        raise UsageError(
            "the output is there, and is no folder", file=output, todo="name a new folder"
        )
    if others := _others(output):
        raise UsageError(
            "the output is a folder that holds other things than goldens",
            file=output,
            found=", ".join(others[:3]),
            todo="name a new or an empty folder",
        )


def _others(folder: Path) -> list[str]:
    """What a folder holds beside goldens."""
    if not folder.is_dir():
        return []
    own = [KEYS_FILE]
    with contextlib.suppress(NotAModelError, FileNotFoundError, IsADirectoryError):
        own += keys_of(folder, (folder / KEYS_FILE).read_bytes())[1].values()
    return sorted({p.name for p in folder.iterdir()} - {*own})


@contextlib.contextmanager
def golden_file(output: Path, size: int) -> Iterator[GoldenFile]:
    """Goldens at ``output``, in the form that its name says; nothing stays when the block fails.

    Args:
        size: bytes that will be written, about.

    Raises:
        StorageError: it cannot be written.
    """
    require_form(output)
    if output.suffix == ".gguf":
        with temporary(output, 2 * size) as spill:  # the header comes first, and is known last
            yield _Gguf(spill, output)
    elif output.suffix == ".npz":
        with replacing(output, size) as temp, zipfile.ZipFile(temp, "w") as archive:
            yield _Npz(archive)
    else:
        output = output.resolve()  # of a link what it leads to is replaced
        with temporary(output, size) as lock:
            folder = folder_of(lock)
            folder.mkdir()
            try:
                yield _Folder(folder)
                _replace_folder(folder, output)
            finally:
                shutil.rmtree(folder, ignore_errors=True)


def keys_of(path: Path, data: bytes) -> tuple[Manifest, dict[str, str]]:
    """The keys of a numpy form as a manifest without tensors, and the file of each tensor by
    name.

    Raises:
        NotAModelError: it is not what `golden_file` writes.
    """
    try:
        found = json.loads(data)
        entries = tuple(
            Entry(key, str(item["type"]), _plain(item["value"]), path.name)
            for key, item in found["keys"].items()
        )
        files = {str(name): str(file) for name, file in found["files"].items()}
        manifest = Manifest(str(found["architecture"]), str(found["name"]), entries, ())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotAModelError(
            f"{KEYS_FILE} is damaged", file=path, found=str(error)[:200], todo="write it again"
        ) from error
    return manifest, files


def _plain(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value


class _Gguf:
    def __init__(self, spill: Path, output: Path) -> None:
        self._spill = spill
        self._output = output
        self._places: dict[str, tuple[tuple[int, ...], FileSpan]] = {}
        self._end = 0

    def add(self, name: str, values: Array) -> None:
        stored = golden_array(name, values)
        with self._spill.open("ab") as stream:
            stream.write(stored.astype("<f4", copy=False).data)
        self._places[name] = stored.shape, FileSpan(self._spill, self._end, stored.nbytes)
        self._end += stored.nbytes

    def finish(self, name: str, entries: Sequence[Entry]) -> None:
        short = safe_names(self._places)
        tensors = tuple(
            LazyTensor(short[full], shape, DType.F32, Load(short[full], DType.F32, span))
            for full, (shape, span) in self._places.items()
        )
        emit_goldens(Manifest(ARCHITECTURE, name, tuple(entries), tensors), self._output)


class _Npz:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._files: dict[str, str] = {}

    def add(self, name: str, values: Array) -> None:
        plain = name.isprintable() and "%" not in name  # which begins an escape
        file = f"{name if plain else quote(name, safe='')}.npy"
        # A name in place of a ZipInfo gets a fixed date: the same bytes every time.
        with self._archive.open(file, "w", force_zip64=True) as stream:
            np.lib.format.write_array(stream, np.asarray(values), allow_pickle=False)
        self._files[name] = file

    def finish(self, name: str, entries: Sequence[Entry]) -> None:
        with self._archive.open(KEYS_FILE, "w") as stream:
            stream.write(_document(name, entries, self._files))


class _Folder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, str] = {}
        self._taken: set[str] = set()

    def add(self, name: str, values: Array) -> None:
        stem = quote(name.strip("/").replace("/", "."), safe=" ()[],+=@")
        if len(stem) > _NAME or stem.casefold() in self._taken:  # disks that ignore the case
            stem = f"{stem[:_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        self._taken.add(stem.casefold())
        np.save(self._folder / f"{stem}.npy", np.asarray(values), allow_pickle=False)
        self._files[name] = f"{stem}.npy"

    def finish(self, name: str, entries: Sequence[Entry]) -> None:
        (self._folder / KEYS_FILE).write_bytes(_document(name, entries, self._files))


def _document(name: str, entries: Sequence[Entry], files: dict[str, str]) -> bytes:
    keys = {entry.key: {"type": entry.type, "value": entry.value} for entry in entries}
    found = {"architecture": ARCHITECTURE, "name": name, "keys": keys, "files": files}
    return json.dumps(found, indent=1).encode()


def _replace_folder(folder: Path, output: Path) -> None:
    """Give a finished folder its name; the one before goes once the new one is there."""
    old = folder.with_name(f"{folder.name}.old")
    if output.exists():
        output.rename(old)
    try:
        folder.rename(output)
    except OSError:
        if old.exists():
            old.rename(output)
        raise
    shutil.rmtree(old, ignore_errors=True)
