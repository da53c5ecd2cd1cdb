"""The acceptance check of models that are here; tests/converters/checkpoints has the hub's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from converters.check import check
from fixtures import catalog
from graphtools.errors import NotAModelError

Make = Callable[..., Any]
TINY = catalog.path("resnet34_tiny")


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The folder of temporary files; nothing may be left in it."""
    import tempfile

    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def silent_bias(proto: onnx.ModelProto) -> None:
    """The embedding layer's bias becomes zero: sound for the proof, suspicious in a model."""
    (seg,) = (n for n in proto.graph.node if n.op_type == "Gemm")
    (bias,) = (t for t in proto.graph.initializer if t.name == seg.input[2])
    zeros = np.zeros_like(numpy_helper.to_array(bias))
    bias.CopyFrom(numpy_helper.from_array(zeros, bias.name))


def test_a_model_that_is_right_passes(invoke: Make, temporary: Path) -> None:
    ran = invoke("check", "--model", TINY, code=0)
    assert "proven" in ran.out
    assert "no findings: 29 keys and 75 tensors" in ran.out
    assert ran.out.endswith(f"pass: {TINY}\n")
    assert ran.err == ""
    shown = invoke("check", "--model", TINY, "--json", code=0).json
    assert (shown["status"], shown["arch"]) == ("pass", "wespeaker_resnet34")
    assert shown["lint"]["clean"] is True
    assert shown["proof"]["proven"] is True
    assert shown["reason"] is None


def test_findings_fail(edited: Make, invoke: Make) -> None:
    path = edited("resnet34_tiny", silent_bias)
    ran = invoke("check", "--model", path, code=1)
    assert "V302 all zero: model.seg_1.bias" in ran.out
    assert ran.out.endswith(f"fail: {path}\n")
    shown = invoke("check", "--model", path, "--json", code=1).json
    assert [f["code"] for f in shown["lint"]["findings"]] == ["V302"]


def test_a_model_that_is_refused_fails(invoke: Make, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("the model card")
    ran = invoke("check", "--model", "m.onnx", code=1)
    assert "not an ONNX model" in ran.err
    assert ran.out == "fail: m.onnx\n"
    done = check("m.onnx")
    assert not done
    assert isinstance(done.reason, NotAModelError)
    assert done.to_json()["reason"]["error"]
    assert (done.conversion, done.lint) == (None, None)


def test_another_architecture_than_the_asserted_one_fails(invoke: Make) -> None:
    for flag in (["--analyze"], ["--age-gender"], ["--arch", "campplus"]):
        assert "not " in invoke("check", "--model", TINY, *flag, code=1).err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--analyze", "--age-gender"],
        ["--arch", "nonsense", "--analyze"],
        ["--nonsense"],
        ["--model", "absent.onnx"],
        ["--model", ""],
        ["--arch", "campplus"],
    ],
)
def test_wrong_calls(arguments: list[str], invoke: Make) -> None:
    assert invoke("check", *arguments, code=2).out == ""


def test_a_bug_of_ours_is_neither_skipped_nor_a_failure(
    invoke: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from converters import check as module

    for error in (RuntimeError("boom"), ModuleNotFoundError("no", name="converters.typo")):

        def broken(*_: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(module, "lint", broken)
        assert "bug in graphtools" in invoke("check", "--model", TINY, code=70).err


def test_a_full_disk_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    from converters import check as module

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "/tmp/x")

    monkeypatch.setattr(module, "lint", full)
    done = check(str(TINY))
    assert done.status == "fail"
    assert "No space left" in str(done.reason)
