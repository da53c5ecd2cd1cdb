"""The Hugging Face hub: what a repository holds, and fetching only what is needed of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from converters.sources.source import shards_of
from graphtools.errors import StorageError, UnreachableError, UnsupportedError, UsageError
from graphtools.files import require_room
from graphtools.tensors import Array, DType, FileSpan, LazyTensor

__all__ = ["fetch", "header", "list_files"]


def list_files(model: str) -> list[str]:
    """The files of a repository, sorted.

    Raises:
        UsageError: there is no such repository.
        UnsupportedError: it is gated.
        UnreachableError: the hub cannot be reached.
        StorageError: it answers with what cannot be used, or the disk fails.
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
    if index is None:
        return _downloaded(model, names)
    first = _downloaded(model, [name for name in names if not name.endswith(_WEIGHTS)])
    home = PurePosixPath(index).parent
    shards = sorted({str(home / shard) for shard in shards_of(first / index).values()})
    return _downloaded(model, [*names, *shards])


_WEIGHTS = (".safetensors", ".bin")


def _downloaded(model: str, names: Sequence[str]) -> Path:
    """Fetch what is not in the cache yet, when its disk has room for all of it."""
    from huggingface_hub import constants, snapshot_download

    with _explained(model):
        plan = snapshot_download(model, allow_patterns=list(names), dry_run=True)
    missing = sum(file.file_size or 0 for file in plan if file.will_download)
    require_room(Path(constants.HF_HUB_CACHE), missing)
    with _explained(model):
        return Path(snapshot_download(model, allow_patterns=list(names)))


def header(model: str, name: str) -> dict[str, LazyTensor]:
    """The tensors of a safetensors file of a repository: only its header is fetched.

    Raises:
        UsageError, UnsupportedError, StorageError: as `list_files`.
    """
    from huggingface_hub import HfApi

    with _explained(model):
        found = HfApi().parse_safetensors_file_metadata(model, name).tensors
    dtypes = {d.label.upper(): d for d in DType}
    return {
        tensor: LazyTensor(
            tensor,
            tuple(info.shape),
            dtypes.get(info.dtype, DType.OTHER),
            _OnTheHub(tensor, f"{model}/{name}"),
        )
        for tensor, info in found.items()
    }


@dataclass(frozen=True)
class _OnTheHub:
    """Values that were not fetched."""

    name: str
    where: str

    def read(self) -> Array:
        raise UnsupportedError(f"the tensor {self.name!r} was not fetched", file=self.where)

    def span(self) -> FileSpan | None:
        return None

    def origin(self) -> str:
        return self.name

    def sources(self) -> Iterator[LazyTensor]:
        return iter(())


@contextlib.contextmanager
def _explained(model: str) -> Iterator[None]:
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
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
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise UsageError(
            f"no file, folder or hub repository called {model!r}",
            todo="check the name; a private repository needs HF_TOKEN",
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, *_transport_errors()) as error:  # type: ignore[misc]  # classes that are known at run time only
        gone = isinstance(error, EntryNotFoundError) and not isinstance(
            error, LocalEntryNotFoundError
        )
        if gone:
            raise StorageError(
                f"a file of {model} is not on the hub any more",
                found=_line(error),
                todo="check the repository, or download the model and name its path",
            ) from error
        if _is_unreachable(error):
            raise UnreachableError(
                f"cannot fetch {model} from the hub",
                found=_line(error),
                todo="check the network, or download the model and name its path",
            ) from error
        raise StorageError(
            f"cannot fetch {model} from the hub",
            found=_line(error),
            todo="check the disk and the folder of HF_HOME, or download the model by other means",
        ) from error


# Answers of a server, or of what stands between, that say nothing about the request itself.
_AWAY = (403, 407, 408, 429)


def _is_unreachable(error: BaseException) -> bool:
    """Whether the network failed, and not the disk or the request."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if isinstance(error, HfHubHTTPError):
        status = getattr(getattr(error, "response", None), "status_code", None)
        return not isinstance(status, int) or status >= 500 or status in _AWAY
    kinds = (LocalEntryNotFoundError, ConnectionError, TimeoutError, *_transport_errors())
    return isinstance(error, kinds)


def _transport_errors() -> tuple[type[Exception], ...]:
    """Errors of the HTTP library that this huggingface_hub uses, if they are no OSErrors."""
    modules = [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]
    found: list[type[Exception]] = [module.HTTPError for module in modules]
    return tuple(found)


def _line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__
