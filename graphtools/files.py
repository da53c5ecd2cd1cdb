"""Files that are written whole or not at all, and the room for them on a disk."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from graphtools.errors import StorageError, UsageError

__all__ = ["folder_of", "replacing", "require_other", "require_room", "temporary"]


@contextlib.contextmanager
def replacing(output: Path, size: int = 0) -> Iterator[Path]:
    """Yield an empty temp file in ``output``'s folder; it takes that name when the block ends
    well and is removed when it does not. What an earlier run that was killed has left of it is
    removed too.

    Raises:
        StorageError: ``output`` is a folder, its folder cannot be written to, or has no room for
            ``size`` bytes.
    """
    if not output.name or output.is_dir():
        raise StorageError(
            "cannot write: the output is a folder", file=output, todo="name the file to write"
        )
    if output.exists() and not output.is_file():
        raise StorageError(
            "cannot write: the output is no regular file", file=output, todo="name a file"
        )
    with temporary(output, size) as temp:
        yield temp
        with temp.open("rb+") as stream:
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        temp.chmod(0o666 & ~mask)
        temp.replace(output)


@contextlib.contextmanager
def temporary(output: Path, size: int = 0) -> Iterator[Path]:
    """Yield an empty temp file beside ``output``; it is removed when the block ends, unless it
    was renamed by then.

    Raises:
        StorageError: as `replacing`, for any error of the system inside the block.
    """
    temp: Path | None = None
    lock = -1
    try:
        _remove_leftovers(output)
        lock, name = tempfile.mkstemp(prefix=f".{output.name}.", suffix=".tmp", dir=output.parent)
        temp = Path(name)
        _locked(lock)
        require_room(output, size)
        yield temp
    except OSError as error:
        raise StorageError(
            f"cannot write: {error.strerror or error}",
            file=output,
            todo="check that the folder exists, is writable and has room",
        ) from error
    finally:
        if lock >= 0:
            os.close(lock)
        if temp is not None:
            temp.unlink(missing_ok=True)


def _remove_leftovers(output: Path) -> None:
    """Remove temp files of this output that no living process holds."""
    for old in sorted(output.parent.glob(f".{glob.escape(output.name)}.*.tmp")):
        with contextlib.suppress(OSError), old.open("rb") as held:
            if _locked(held.fileno()):
                shutil.rmtree(folder_of(old), ignore_errors=True)
                old.unlink()


def folder_of(temp: Path) -> Path:
    """The folder that goes with a temp file, where what is written is one."""
    return temp.with_name(f"{temp.name}.d")


def _locked(handle: int) -> bool:
    """Take the lock of a temp file, which ends with the process; False where another has it, or
    where the system has no locks."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def require_other(output: Path, *inputs: Path) -> None:
    """Check that writing ``output`` replaces none of the inputs.

    Raises:
        UsageError: it is one of them.
    """
    for path in inputs:
        if output.exists() and path.exists() and output.samefile(path):
            raise UsageError(
                "the output would replace an input", file=output, todo="name another output"
            )


def require_room(path: Path, size: int) -> None:
    """Check that ``size`` bytes fit on the disk that ``path`` is on, or will be.

    Raises:
        StorageError: they do not.
    """
    there = next((p for p in (path, *path.absolute().parents) if p.exists()), Path("/"))
    free = shutil.disk_usage(there).free
    if size > free:
        raise StorageError(
            "the disk has no room for the file",
            file=path,
            expected=f"{size / 1e9:.2f} GB",
            found=f"{free / 1e9:.2f} GB free",
            todo="make room, or use another disk",
        )
