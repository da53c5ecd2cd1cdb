"""A shell with a model at hand: real consoles, typed into."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from converters.convert import convert
from converters.shell import session
from fixtures import catalog

Make = Callable[..., Any]

RESNET = catalog.path("resnet34_tiny")
LINES = """\
g
net
net.blocks[7].conv2.weight
g.find(op="Gemm")
g["/model/conv1/Conv"]
m["voicedetect.arch"]
g["no such node"]
exit()
"""
# A module of this name that cannot be imported: what a machine without IPython has.
WITHOUT = "import sys; sys.modules['IPython'] = None\n"
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
    assert "[<node 108 Gemm '/model/seg_1/Gemm' -> " in said  # in a list one line each
    assert "wespeaker_resnet34" in said
    assert "the graph has no node or tensor 'no such node'" in said
    assert "During handling of the above exception" not in said


def test_the_plain_console_is_pythons(
    environment: Callable[[], dict[str, str]], tmp_path: Path
) -> None:
    """The last value is ``_``, and an error is told without what came before the console."""
    said = typed("6 * 7\n_ + 1\nnet.nothing\n", RESNET, environment, tmp_path, WITHOUT)
    assert "43" in said
    assert "has no attribute 'nothing'" in said
    assert "IPython" not in said


@pytest.mark.parametrize("known", [True, False])
def test_the_banners_examples_run_as_they_are_written(known: bool, tmp_path: Path) -> None:
    other = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]>'
        " g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }"
    )
    onnx.save(other, tmp_path / "other.onnx")
    found = session(RESNET if known else tmp_path / "other.onnx")
    examples = found.banner.split("Try:\n")[1].splitlines()
    assert len(examples) == 3
    for line in examples:
        value = eval(line.strip(), dict(found.names))
        assert value is not None, line
        assert not isinstance(value, list | dict) or value, line


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
