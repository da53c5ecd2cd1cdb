"""The Hugging Face hub: what a repository holds, and fetching only what is needed of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphtools.errors import StorageError, UnsupportedError, UsageError

__all__ = ["fetch", "list_files"]


def list_files(model: str) -> list[str]:
    """The files of a repository, sorted.

    Raises:
        UsageError: there is no such repository.
        UnsupportedError: it is gated.
        StorageError: the hub cannot be reached.
    """
    from huggingface_hub import HfApi

    with _explained(model):
        return sorted(HfApi().list_repo_files(model))


def fetch(model: str, names: Sequence[str], index: str | None = None) -> Path:
    """The folder of the local cache that holds those files of a repository that exist.

    Args:
        model: ``owner/name``.
        names: exact file names.
        index: a shard index among them; the shards it names are fetched too.

    Raises:
        UsageError, UnsupportedError, StorageError: as `list_files`.
    """
    from huggingface_hub import snapshot_download

    with _explained(model):
        folder = Path(snapshot_download(model, allow_patterns=list(names)))
        if index is not None:
            listed = json.loads((folder / index).read_text()).get("weight_map", {})
            shards = sorted(set(listed.values()))
            folder = Path(snapshot_download(model, allow_patterns=[*names, *shards]))
    return folder


@contextlib.contextmanager
def _explained(model: str) -> Iterator[None]:
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        yield
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
    except EntryNotFoundError as error:
        raise StorageError(
            f"a file of {model} is not on the hub any more", found=_line(error)
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise StorageError(
            f"cannot fetch {model} from the hub",
            found=_line(error),
            todo="check the network, or download the model and name its path",
        ) from error


def _line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__
