"""What an architecture's file declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from converters.archs.building import Builder
from converters.manifest import Manifest
from converters.network import Network
from converters.schema import Row

__all__ = ["Arch"]


@dataclass(frozen=True)
class Arch:
    """One value of ``voicedetect.arch``.

    Attributes:
        family: the module of `graphtools.families` that it stores.
        rows: its keys, in the order they are written.
        describe: sets every key of a recovered network on a builder.
        restore: the way back, from the keys alone.
    """

    name: str
    family: Any
    rows: tuple[Row, ...]
    describe: Callable[[Builder], None]
    restore: Callable[[Manifest], Network]
