"""A checkpoint: named lazy tensors and the JSON files beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from converters.sources import safetensors_file, torch_file
from graphtools.errors import NotAModelError, StorageError, UnsupportedError, UsageError
from graphtools.tensors import LazyTensor

__all__ = [
    "CHECKPOINT_FILES",
    "INDEX_SUFFIX",
    "Source",
    "json_object",
    "open_source",
    "shards_of",
]

# File: where its tensors' names are put. The first that is there wins, with those of its kind.
CHECKPOINT_FILES = (
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "embedding_model.ckpt",
)
INDEX_SUFFIX = ".index.json"
# SpeechBrain keeps the feature normaliser in a file of its own; its names get the file's stem.
_BESIDE = {"embedding_model.ckpt": ("mean_var_norm_emb.ckpt",)}


@dataclass(frozen=True, eq=False)
class Source:
    """What a checkpoint holds.

    Attributes:
        path: the folder, or the one file.
        tensors: by name, in the order in which the files list them.
        skipped: entries of the state dict that are no tensors, with what they are.
    """

    path: Path
    files: tuple[Path, ...]
    tensors: Mapping[str, LazyTensor]
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tensor.shape for name, tensor in self.tensors.items()}

    def without_prefix(self, prefix: str) -> Source:
        """The same checkpoint with ``prefix`` taken off every name that has it.

        Raises:
            UsageError: no name has it.
            UnsupportedError: two names would become one.
        """
        if not any(name.startswith(prefix) for name in self.tensors):
            raise UsageError(
                f"no tensor's name begins with {prefix!r}",
                found=next(iter(self.tensors), "no tensors"),
                todo="leave --strip-prefix out, or name the prefix that is there",
            )
        tensors = {}
        for name, tensor in self.tensors.items():
            short = name.removeprefix(prefix)
            if short in tensors:
                raise UnsupportedError(f"two tensors would be called {short!r}", file=self.path)
            tensors[short] = tensor.named(short)
        return replace(self, tensors=tensors)

    def json(self, name: str) -> dict[str, Any] | None:
        """A JSON object beside the weights; None where there is no such file.

        Raises:
            NotAModelError: the file is there and is not a JSON object.
        """
        file = self._beside(name)
        return None if file is None else json_object(file)

    def text(self, name: str) -> str | None:
        """A text file beside the weights, as far as it is UTF-8; None where there is none.

        Raises:
            StorageError: it cannot be read.
        """
        file = self._beside(name)
        try:
            return None if file is None else file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise StorageError(f"cannot read: {error.strerror or error}", file=file) from error

    def _beside(self, name: str) -> Path | None:
        folder = self.path if self.path.is_dir() else self.path.parent
        file = folder / name
        return file if file.is_file() else None


def open_source(path: Path) -> Source:
    """The checkpoint of a folder, of one ``.safetensors``, ``.bin``, ``.pt`` or ``.ckpt``, or of
    a shard index.

    Only headers are read of safetensors files.

    Raises:
        UsageError: there is nothing there.
        NotAModelError: a file is damaged, or an index and its shards do not fit together.
        MissingDependencyError: a torch checkpoint, and torch is not installed.
        UnsupportedError: a torch checkpoint that needs more than weights to load.
    """
    if not path.is_dir():
        if _is_there(path):
            return _opened(path, path)
        raise UsageError("no such file or folder", file=path, todo="check the path")
    for name in CHECKPOINT_FILES:
        if _is_there(path / name):
            return _opened(path, path / name)
    raise UsageError(
        "the folder holds no checkpoint",
        file=path,
        expected=" or ".join(CHECKPOINT_FILES),
        todo="name the folder with the weights, or the file itself",
    )


def _opened(path: Path, file: Path) -> Source:
    """The checkpoint of ``file`` with the files that go with it; ``path`` is what was named."""
    if file.name.endswith(INDEX_SUFFIX):
        return _sharded(path, file)
    beside = [file.with_name(extra) for extra in _BESIDE.get(file.name, ())]
    stems = {file: ""} | {extra: f"{extra.stem}." for extra in beside if _is_there(extra)}
    return _joined(path, list(stems.items()))


def _is_there(path: Path) -> bool:
    # A dangling link too: it is refused with a reason of its own.
    return path.exists() or path.is_symlink()


def _read(file: Path) -> tuple[dict[str, LazyTensor], dict[str, str]]:
    if file.is_symlink() and not file.exists():
        raise UsageError(
            "the weights are a link to a file that is not there",
            file=file,
            found=f"a link to {file.readlink()}",
            todo="fetch the file it points to",
        )
    if file.suffix == ".safetensors":
        return safetensors_file.read(file), {}
    return torch_file.read(file)


def _joined(path: Path, files: list[tuple[Path, str]]) -> Source:
    tensors: dict[str, LazyTensor] = {}
    skipped: dict[str, str] = {}
    for file, prefix in files:
        found, others = _read(file)
        for name, tensor in found.items():
            tensors[prefix + name] = tensor.named(prefix + name)
        skipped |= {prefix + name: what for name, what in others.items()}
    return Source(path, tuple(file for file, _ in files), tensors, skipped)


def _sharded(path: Path, index: Path) -> Source:
    """The shards that an index names, checked against it."""
    folder = index.parent
    listed = shards_of(index)
    shards = dict.fromkeys(listed.values())
    tensors: dict[str, LazyTensor] = {}
    home: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for shard in shards:
        if Path(shard).is_absolute() or ".." in Path(shard).parts or len(Path(shard).parts) != 1:
            raise NotAModelError(
                "the index names a file outside its folder", file=index, found=shard
            )
        file = folder / shard
        if not _is_there(file):
            raise NotAModelError(
                "a shard is missing",
                file=file,
                expected=f"the {sum(v == shard for v in listed.values())} tensors that the index "
                "puts there",
                todo="download the shard again",
            )
        found, others = _read(file)
        skipped |= others
        for name, tensor in found.items():
            if name in tensors:
                raise NotAModelError(
                    f"the tensor {name!r} is in two files",
                    file=index,
                    found=f"{home[name]} and {shard}",
                    todo="keep the shards of one checkpoint only",
                )
            tensors[name], home[name] = tensor, shard
    for name, shard in listed.items():
        if home.get(name) != shard:
            raise NotAModelError(
                f"the index does not fit its shards: tensor {name!r}",
                file=index,
                expected=f"in {shard}",
                found=f"in {home[name]}" if name in home else "in none of the shards",
                todo="download index and shards of one revision",
            )
    extra = [name for name in tensors if name not in listed]
    if extra:
        raise UnsupportedError(
            f"{len(extra)} tensors are in the shards and not in the index",
            file=index,
            found=extra[0],
            todo="download index and shards of one revision",
        )
    return Source(path, tuple(folder / shard for shard in shards), tensors, skipped)


def shards_of(index: Path) -> dict[str, str]:
    """The weight map of a shard index: tensor name to file name.

    Raises:
        NotAModelError: the file is no such index.
    """
    listed = json_object(index).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(v, str) for v in listed.values()):
        raise NotAModelError("the index has no weight_map of names to files", file=index)
    return listed


def json_object(file: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        NotAModelError: the file is not one.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise NotAModelError(
            "the file is not JSON", file=file, found=str(error), todo="fetch it again"
        ) from error
    if not isinstance(found, dict):
        raise NotAModelError("the file is not a JSON object", file=file)
    return found
