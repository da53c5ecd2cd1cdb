"""What tests of every room share: a real browser for the pages that people look at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Debian's names first; never a browser that playwright would download.
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium; skips, and says why, only where no browser is installed."""
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None:
        pytest.skip("no browser is installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root, as in a container, has no sandbox.
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


class Offline:
    """Opens files from disk in pages that have no network, and remembers what went wrong.

    Attributes:
        requests: every URL that a page asked for beside the file itself.
        errors: console errors and uncaught exceptions.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[Any] = []
        self.requests: list[str] = []
        self.errors: list[str] = []

    def open(self, file: Path, fragment: str = "", **options: Any) -> Page:
        """The file in a new page; options are those of ``Browser.new_context``."""
        context = self._browser.new_context(offline=True, **options)
        self._contexts.append(context)
        page = context.new_page()
        url = file.resolve().as_uri()
        page.on("request", lambda r: self._asked(r.url, url))
        page.on("pageerror", lambda e: self.errors.append(str(e)))
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.goto(url + fragment)
        return page

    def _asked(self, asked: str, url: str) -> None:
        if asked.split("#")[0] != url and not asked.startswith(("data:", "blob:")):
            self.requests.append(asked)

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def offline(browser: Browser) -> Iterator[Offline]:
    """Pages from disk without a network; a request or a console error fails the test."""
    pages = Offline(browser)
    yield pages
    pages.close()
    assert pages.requests == []
    assert pages.errors == []
