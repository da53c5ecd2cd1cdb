"""The notebook of the documentation runs from top to bottom, and is kept without outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "export_to_gguf.ipynb"
RUN = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


@pytest.mark.slow
def test_runs_and_shows_what_it_says(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(NOTEBOOK), str(tmp_path / "ran.ipynb")],
        cwd=NOTEBOOK.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    cells = json.loads((tmp_path / "ran.ipynb").read_text())["cells"]
    shown = [
        "".join(output["data"].get("text/html", output["data"].get("text/plain", "")))
        for cell in cells
        for output in cell.get("outputs", ())
        if "data" in output
    ]
    assert shown[0].startswith("<iframe")  # the graph as the explorer
    assert any("voicedetect.resnet.stride" in html for html in shown)
    assert "1 frame later" in shown[-1]


def test_has_no_outputs_and_no_paths_of_a_machine() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    assert "/home/" not in NOTEBOOK.read_text()
