"""Known defects: tests that show them run, and do not fail the run until they are mended."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

_LIST = Path(__file__).with_name("known_defects.txt")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that the list names; its lines are globs over test ids, or ``slow``."""
    lines = [line.split("#")[0].strip() for line in _LIST.read_text().splitlines()]
    patterns = [line for line in lines if line]
    for item in items:
        # Parameters may hold brackets, which mean something else in a glob.
        name = item.nodeid.replace("[", "(").replace("]", ")")
        slow = "slow" in patterns and item.get_closest_marker("slow") is not None
        if slow or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            item.add_marker(pytest.mark.xfail(reason="listed in known_defects.txt", strict=False))
