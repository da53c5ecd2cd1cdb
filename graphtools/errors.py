"""Every error this project raises on purpose, as one tree.

    Error                       anything a user can act on
    ├── UsageError              the call itself is wrong (bad option, missing input file)
    ├── UnsupportedError        the input is understood to be something we do not convert
    │   ├── NotAModelError      the bytes are not a usable model file
    │   ├── MissError           a well-formed graph that is none of our families
    │   └── UnprovenError       the written file does not compute what its source computes
    ├── MissingDependencyError  an optional package is needed and not installed
    └── StorageError            reading, writing or fetching failed
        └── UnreachableError    the network, or what is behind it, did not answer

An error says what was found, what was expected and what to do next. It never carries a
traceback's worth of context: file, node and tensor are named in the fields below.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "Error",
    "MissError",
    "MissingDependencyError",
    "NotAModelError",
    "StorageError",
    "UnprovenError",
    "UnreachableError",
    "UnsupportedError",
    "UsageError",
]


class Error(Exception):
    """Base of all deliberate errors.

    Args:
        cause: one line, what is wrong.
        file: the file it is about.
        where: node or tensor it is about, e.g. ``node 12 (Conv) -> "x"``.
        expected: what would have been right.
        found: what was there instead.
        todo: what the reader can do about it.
    """

    def __init__(
        self,
        cause: str,
        *,
        file: Path | str | None = None,
        where: str | None = None,
        expected: str | None = None,
        found: str | None = None,
        todo: str | None = None,
    ) -> None:
        super().__init__(cause)
        self.cause = cause
        self.file = None if file is None else str(file)
        self.where = where
        self.expected = expected
        self.found = found
        self.todo = todo

    @staticmethod
    @contextlib.contextmanager
    def about(file: Path | str) -> Iterator[None]:
        """Errors that are raised inside are about ``file``, where they name none themselves."""
        try:
            yield
        except Error as error:
            error.file = error.file or str(file)
            raise

    def fields(self) -> dict[str, str]:
        """The non-empty fields in reading order, for printing and for ``--json``."""
        pairs = [
            ("error", self.cause),
            ("file", self.file),
            ("where", self.where),
            ("expected", self.expected),
            ("found", self.found),
            ("to do", self.todo),
        ]
        return {label: value for label, value in pairs if value}

    def __str__(self) -> str:
        return "\n".join(
            value if label == "error" else f"  {label}: {value}"
            for label, value in self.fields().items()
        )


class UsageError(Error):
    """The call is wrong: an option, a name, or an input path that does not exist."""


class UnsupportedError(Error):
    """The input was understood and is not something this project converts."""


class NotAModelError(UnsupportedError):
    """The file is not a usable model: wrong format, cut off, or inconsistent."""


class MissError(UnsupportedError):
    """The graph is none of the known families; the nearest one is explained."""


class UnprovenError(UnsupportedError):
    """A written file differs from its source, or holds a value nothing proved."""


class MissingDependencyError(Error):
    """An optional dependency is needed; the message holds the exact install line."""


class StorageError(Error):
    """A file or the network failed while reading or writing."""


class UnreachableError(StorageError):
    """What has to be fetched cannot be reached from here, whether it exists or not."""
