"""A ``--model`` argument to the file or folder that it means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from converters.sources.hub import fetch, header, list_files
from converters.sources.source import CHECKPOINT_FILES, INDEX_SUFFIX, Source, shards_of
from graphtools.errors import UsageError

__all__ = ["is_checkpoint", "locate", "locate_to_look"]

# Models that a message lists.
_SHOWN = 10
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_CHECKPOINT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
# Beside the weights: what the architectures read.
_CONFIGS = ("config.json", "preprocessor_config.json", "hyperparams.yaml", "mean_var_norm_emb.ckpt")


def is_checkpoint(path: Path) -> bool:
    """Whether a located path is a state dict (a folder, a file of weights, an index of such
    files), not ONNX."""
    return path.is_dir() or path.name.endswith((*_CHECKPOINT_SUFFIXES, INDEX_SUFFIX))


def locate(model: str, file: str | None = None) -> Path:
    """An ONNX file, or a checkpoint's folder or file, of a path or a Hugging Face id.

    A file that is named is the one that is read: its folder may hold the weights in other forms.

    Args:
        model: a path, or ``owner/name`` on the hub.
        file: which file of a folder or repository that holds several models.

    Raises:
        UsageError: there is nothing there, or several models and none named.
        StorageError: the hub cannot be reached.
    """
    if not model:
        raise UsageError("the model's name is empty", todo="name a file, a folder or a hub id")
    path = Path(model)
    if path.is_dir():
        names = [p.relative_to(path).as_posix() for p in sorted(path.rglob("*")) if not p.is_dir()]
        chosen = _chosen(model, names, file)
        return path if file is None and is_checkpoint(Path(chosen)) else path / chosen
    if not _is_on_the_hub(model):
        if file is not None:
            raise UsageError("--file goes with a folder or a hub id", found=model)
        return path
    chosen = _chosen(model, list_files(model), file)
    if is_checkpoint(Path(chosen)):
        index = chosen if chosen.endswith(INDEX_SUFFIX) else None
        folder = fetch(model, [chosen, *_configs_of(chosen)], index=index)
        return folder if file is None else folder / chosen
    data = [f"{chosen}.data", f"{chosen}_data", f"{chosen.removesuffix('.onnx')}.data"]
    return fetch(model, [chosen, *data]) / chosen


def locate_to_look(model: str, file: str | None = None) -> Path | Source:
    """As `locate`, but of a safetensors checkpoint on the hub only configs and headers are
    fetched: kilobytes of a model of gigabytes."""
    if Path(model).is_dir() or not _is_on_the_hub(model):
        return locate(model, file)
    chosen = _chosen(model, list_files(model), file)
    if "safetensors" not in chosen:
        return locate(model, file)
    sharded = chosen.endswith(INDEX_SUFFIX)
    cache = fetch(model, [*_configs_of(chosen), *([chosen] if sharded else [])])
    home = PurePosixPath(chosen).parent
    shards = [chosen]
    if sharded:
        shards = sorted({str(home / shard) for shard in shards_of(cache / chosen).values()})
    tensors = {n: t for shard in shards for n, t in header(model, shard).items()}
    return Source(cache / home, tuple(cache / shard for shard in shards), tensors)


def _is_on_the_hub(model: str) -> bool:
    path = Path(model)
    if len(path.parts) > 1 and path.parent.is_dir():  # something in a folder that is here, misspelt
        return False
    is_path = path.exists() or path.is_symlink() or not _HUB_ID.fullmatch(model)
    return not is_path and path.suffix not in (".onnx", ".gguf", *_CHECKPOINT_SUFFIXES)


def _configs_of(weights: str) -> list[str]:
    """The configuration files beside a repository's weights."""
    return [str(PurePosixPath(weights).with_name(name)) for name in _CONFIGS]


def _chosen(model: str, names: Sequence[str], file: str | None) -> str:
    """The one file that stands for the model.

    A checkpoint goes before ONNX files in the same place only when it is named: which of the two
    is meant must not be guessed.
    """
    onnx = sorted(n for n in names if n.endswith(".onnx"))
    checkpoint = next((n for n in CHECKPOINT_FILES if n in names), None)
    if file is not None:
        if file in names:
            return file
        raise UsageError(
            f"{model} has no {file}",
            found=", ".join([*onnx, *filter(None, [checkpoint])]) or "none",
        )
    found = [*onnx, *filter(None, [checkpoint])]
    if len(found) == 1:
        return found[0]
    more = f" .. {len(found)} in all" if len(found) > _SHOWN else ""
    raise UsageError(
        f"{model} holds {len(found) or 'no'} models",
        expected="exactly one .onnx file or checkpoint, or --file to name one",
        found=", ".join(found[:_SHOWN]) + more or "none",
        todo=f"add --file NAME, e.g. --file {found[0]}"
        if found
        else "check that this is the model's folder",
    )
