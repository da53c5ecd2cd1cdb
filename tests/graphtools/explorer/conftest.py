"""Pages of graphs, opened in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from graphtools.explorer import Overlays, page
from graphtools.graph import Graph
from graphtools.hierarchy import hierarchy
from graphtools.recover import Recovered

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def show(offline: Any, tmp_path: Path) -> Callable[..., Page]:
    """``show(graph, net, overlays, fragment="#node=x")``: its page, ready to be used."""

    def opened(
        graph: Graph,
        net: Recovered | None = None,
        overlays: Overlays | None = None,
        fragment: str = "",
        **options: Any,
    ) -> Page:
        file = tmp_path / "page.html"
        file.write_text(page(graph, hierarchy(graph, net), overlays), "utf-8")
        found: Page = offline.open(file, fragment, **options)
        found.wait_for_selector("html[data-ready]")
        return found

    return opened
