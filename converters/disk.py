"""Room on a disk, asked for before anything is written."""

from __future__ import annotations

import shutil
from pathlib import Path

from graphtools.errors import StorageError

__all__ = ["require_room"]


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
