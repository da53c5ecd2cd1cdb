"""The browser of the tests is real: it runs scripts, and it has no network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conftest import Offline


def test_a_page_runs_from_disk(offline: Offline, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("<p id=p></p><script>document.all.p.textContent = 6 * 7</script>")
    assert offline.open(file).locator("#p").inner_text() == "42"


def test_requests_and_errors_are_seen(offline: Offline, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("<img src='http://127.0.0.1:9/x.png'><script>undefined.x</script>")
    offline.open(file)
    assert offline.requests == ["http://127.0.0.1:9/x.png"]
    assert any("undefined" in error for error in offline.errors)
    offline.requests.clear()
    offline.errors.clear()
