"""A shell with a model at hand: real consoles, typed into."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from converters.convert import convert
from fixtures import catalog

Make = Callable[..., Any]

RESNET = catalog.path("resnet34_tiny")
LINES = """\
g
net
net.blocks[7].conv2.weight
g["/model/conv1/Conv"]
m["voicedetect.arch"]
g["no such node"]
exit()
"""
# A module of this name that cannot be imported: what a machine without IPython has.
WITHOUT = (
    "import importlib.util as u; find = u.find_spec\n"
    "u.find_spec = lambda name, *more: None if name == 'IPython' else find(name, *more)\n"
)
MAIN = "from converters.cli import main; main()"


def typed(
    lines: str, model: Path, environment: Callable[[], dict[str, str]], home: Path, before: str = ""
) -> str:
    done = subprocess.run(
        [sys.executable, "-c", before + MAIN, "shell", str(model)],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=home,
        env=environment() | {"HOME": str(home), "IPYTHONDIR": str(home / "ipython")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("before", ["", WITHOUT], ids=["ipython", "plain"])
def test_what_a_person_types_is_answered(
    before: str, environment: Callable[[], dict[str, str]], tmp_path: Path
) -> None:
    if not before:
        pytest.importorskip("IPython")
    said = typed(LINES, RESNET, environment, tmp_path, before)
    assert ("In [1]" in said) == (not before)
    assert 'g.find(op="Conv", kernel=(3, 3))' in said  # the banner's examples
    assert "net.blocks[0]" in said
    assert "input   feats: f32 [B, T, 80]" in said
    assert "layer2.0     conv1, conv2, shortcut" in said
    assert "[16, 16, 3, 3], unread" in said
    assert "attribute kernel_shape  (3, 3)" in said
    assert "wespeaker_resnet34" in said
    assert "the graph has no node or tensor 'no such node'" in said
    assert "During handling of the above exception" not in said


def test_the_banners_examples_run(
    environment: Callable[[], dict[str, str]], tmp_path: Path
) -> None:
    lines = (
        'g.find(op="Conv", kernel=(3, 3))[0].op\n'
        "x = np.zeros((1, 60, 80))\n"
        'len(g.run(x, taps="op:Conv"))\n'
        "net.blocks[0]\n"
        "exit()\n"
    )
    said = typed(lines, RESNET, environment, tmp_path, WITHOUT)
    assert "'Conv'" in said
    assert "36" in said
    assert "<block layer1.0: conv1.weight [4, 4, 3, 3]" in said
    assert "Error" not in said


class TestNames:
    def test_of_an_onnx_file(self, invoke: Make) -> None:
        found = invoke("shell", RESNET, "--json", code=0).json
        assert found["g"].startswith("<Graph resnet34_tiny.onnx")
        assert found["net"].startswith("<Recovered ResNet")
        assert found["m"].endswith("27 keys, 75 tensors>")

    def test_of_a_gguf(self, invoke: Make, tmp_path: Path) -> None:
        convert(RESNET, tmp_path / "m.gguf", verify="none")
        found = invoke("shell", "m.gguf", "--json", code=0).json
        assert (found["g"], found["net"]) == ("None", "None")
        assert "27 keys" in found["m"]

    def test_of_a_network_that_is_no_family(self, invoke: Make, edited: Make) -> None:
        def change(proto: Any) -> None:
            node = next(n for n in proto.graph.node if n.op_type == "Relu")
            node.op_type = "Tanh"

        found = invoke("shell", edited("resnet34_tiny", change), "--json", code=0).json
        assert found["net"].startswith("<NearMiss ")
        assert found["m"] == "None"

    def test_a_file_that_is_not_there(self, invoke: Make) -> None:
        assert "no such" in invoke("shell", "absent.onnx", code=2).err.lower()
