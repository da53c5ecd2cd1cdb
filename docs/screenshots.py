"""Take the README's pictures again: ``python docs/screenshots.py [folder]``.

Needs the test extra and Chromium. One picture is of the small CAM++ with a block unfolded, the
other of an ERes2Net whose engine goes wrong in ``layer3.2``.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from converters.arrays import open_arrays
from converters.baseline import baseline
from converters.view import view
from fixtures import catalog

__all__ = ["main", "wrong_engine"]

_SIZE = {"width": 1160, "height": 760}


def main(folder: Path) -> None:
    """Write ``view.png`` and ``compare.png`` to a folder."""
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        work = Path(name)
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = view(catalog.path("campplus_tiny"), work / "view.html").output
        _shoot(browser, page, folder / "view.png", "light", "block1.0.conv")
        golden, ours = wrong_engine(work)
        page = view(
            catalog.path("eres2net_tiny"), work / "compare.html", baseline=golden, ours=ours
        ).output
        _shoot(browser, page, folder / "compare.png", "dark", "")
        browser.close()


def wrong_engine(folder: Path) -> tuple[Path, Path]:
    """A baseline of the small ERes2Net, and tensors that drift from ``layer3.2`` on."""
    golden, ours = folder / "baseline.gguf", folder / "engine.npz"
    baseline(catalog.path("eres2net_tiny"), catalog.SPEECH, golden)
    arrays = open_arrays(golden)
    names = list(arrays.readers)
    at = names.index("layer3.2")
    noise = np.random.default_rng(0)
    values = {}
    for number, name in enumerate(names):
        value = arrays.read(name)
        drift = 1e-7 if number < at else 0.02
        values[name] = value + drift * value.std() * noise.normal(size=value.shape)
    np.savez(ours, **{name: value.astype(np.float32) for name, value in values.items()})
    return golden, ours


def _shoot(browser: Any, page: Path, picture: Path, scheme: str, search: str) -> None:
    context = browser.new_context(offline=True, color_scheme=scheme, viewport=_SIZE)
    tab = context.new_page()
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-ready]")
    if search:
        tab.keyboard.press("/")
        tab.keyboard.type(search)
        tab.keyboard.press("Enter")
    tab.screenshot(path=picture)
    context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images")
