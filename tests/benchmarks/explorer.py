"""The page in headless Chromium: time to the first view, time to unfold a box, size of the file.

    python tests/benchmarks/explorer.py [--runs 5]

Bounds: 1.5 s to the first view of 5,000 nodes, from opening the file to its being drawn; 0.3 s to
unfold a box, the largest first view's; 1 MB and 100 bytes for each node. The median of the runs.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from converters.view import view
from fixtures import catalog
from fixtures.synthetic import tangle

FIRST_S, UNFOLD_S = 1.5, 0.3
_NAMES = ("resnet34", "eres2net_base", "campplus_192")
# Until the next frame is on the screen: what a person waits for.
_UNFOLD = """() => new Promise((done) => {
  const boxes = explorer.model.root.children.filter((c) => c.type === "box");
  const largest = boxes.sort((a, b) => b.ops - a.ops)[0], started = performance.now();
  explorer.toggle(largest);
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - started)));
})"""


def measured(browser: Any, page: Path, runs: int) -> tuple[float, float]:
    """Median seconds to the first view, and to unfold its largest box."""
    first, unfold = [], []
    for _ in range(runs):
        context = browser.new_context(offline=True)
        tab = context.new_page()
        started = time.perf_counter()
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]")
        first.append(time.perf_counter() - started)
        unfold.append(tab.evaluate(_UNFOLD) / 1000)
        context.close()
    return statistics.median(first), statistics.median(unfold)


def main() -> None:
    """Print a line for each network; exit 1 where a bound is broken."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    path = shutil.which("chromium") or shutil.which("google-chrome")
    broken = False
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        models = [catalog.path(n) for n in _NAMES] + [tangle(folder / "tangle.onnx", 5000)]
        for model in models:
            started = time.perf_counter()
            done = view(model, folder / "page.html")
            wrote = time.perf_counter() - started
            first, unfold = measured(browser, done.output, runs)
            most = 1_000_000 + 100 * done.nodes
            print(
                f"{model.name[:16]:16} {done.nodes:5} nodes  written in {wrote:5.2f} s  "
                f"first view {first:5.2f} s (< {FIRST_S})  unfold {unfold:5.3f} s (< {UNFOLD_S})  "
                f"{done.size / 1e3:5.0f} kB (< {most / 1e3:.0f})",
                flush=True,
            )
            broken |= first > FIRST_S or unfold > UNFOLD_S or done.size > most
        browser.close()
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
