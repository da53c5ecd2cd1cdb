"""A ``--model`` argument to the ONNX file it means."""

from __future__ import annotations

import re
from pathlib import Path

from graphtools.errors import StorageError, UnsupportedError, UsageError

__all__ = ["locate_onnx"]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def locate_onnx(model: str, file: str | None = None) -> Path:
    """The ONNX file of a path, a folder with one, or a Hugging Face id.

    Args:
        file: which ``.onnx`` of a folder or repository with several.

    Raises:
        UsageError: there is nothing there, or several files and none named.
        StorageError: the hub cannot be reached or refuses.
    """
    path = Path(model)
    if path.is_dir():
        found = sorted(p.relative_to(path).as_posix() for p in path.rglob("*.onnx"))
        return path / _chosen(model, found, file)
    if (
        path.exists()
        or path.is_symlink()
        or not _HUB_ID.fullmatch(model)
        or model.endswith(".onnx")
    ):
        if file is not None:
            raise UsageError("--file goes with a folder or a hub id", found=model)
        return path
    return _from_hub(model, file)


def _chosen(model: str, found: list[str], file: str | None) -> str:
    if file is not None and file in found:
        return file
    if len(found) == 1 and file is None:
        return found[0]
    raise UsageError(
        f"{model} has no {file}" if file else f"{model} has {len(found) or 'no'} .onnx files",
        expected="exactly one, or --file to name it",
        found=", ".join(found) or "none",
        todo=f"add --file {found[0]}" if found else "export the model to ONNX first",
    )


def _from_hub(model: str, file: str | None) -> Path:
    """Fetch the ONNX file, and the external data beside it, of a repository."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        found = sorted(n for n in HfApi().list_repo_files(model) if n.endswith(".onnx"))
        name = _chosen(model, found, file)
        wanted = [name, f"{name}.data", f"{name}_data", f"{name.removesuffix('.onnx')}.data"]
        return Path(snapshot_download(model, allow_patterns=wanted)) / name
    except GatedRepoError as error:
        raise UnsupportedError(
            f"the repository {model} is gated",
            todo="accept its terms on the hub and set HF_TOKEN",
        ) from error
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"no file, folder or hub repository called {model!r}",
            todo="check the name; a private repository needs HF_TOKEN",
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise StorageError(
            f"cannot fetch {model} from the hub",
            found=str(error).splitlines()[0][:200],
            todo="check the network, or download the model and name its path",
        ) from error
