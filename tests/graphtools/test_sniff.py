"""What is no model is named for what it is, with what to do about it."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphtools.errors import NotAModelError, UsageError
from graphtools.sniff import require_model_bytes

LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 26542033\n"
)
HTML = b"\n\n<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"


def zipped() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("model.onnx", b"\x08\x07")
    return stream.getvalue()


def checkpoint(zip_format: bool) -> bytes:
    stream = io.BytesIO()
    state = {"weight": torch.zeros(2)}
    torch.save(state, stream, _use_new_zipfile_serialization=zip_format)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "found", "todo"),
    [
        (LFS_POINTER, "Git LFS pointer", "git lfs pull"),
        (zipped(), "zip archive", "unpack"),
        (checkpoint(zip_format=True), "PyTorch checkpoint", "export the model to ONNX"),
        (checkpoint(zip_format=False), "Python pickle", "torch.onnx.export"),
        (pickle.dumps({"a": 1}, protocol=4), "Python pickle", "torch.onnx.export"),
        (b"\x1f\x8b\x08\x00" + b"\0" * 16, "gzip", "unpack"),
        (b"GGUF\x03\0\0\0", "GGUF file", "graphtools inspect"),
        (HTML, "web page", "fetch it again"),
        (b"\xef\xbb\xbf<?xml version='1.0'?><a/>", "web page or XML", "fetch it again"),
        (json.dumps({"model": "x"}, indent=1).encode(), "JSON", "name the .onnx file"),
        (b"These weights moved to another place.\n", "text that begins 'These w", "a note"),
        ("Die Gewichte, größer als je\n".encode(), "text that begins 'Die Gewichte, gr", "a note"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_another_format_is_named(tmp_path: Path, content: bytes, found: str, todo: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(NotAModelError, match="the file is not an ONNX model") as caught:
        require_model_bytes(path)
    assert caught.value.file == str(path)
    assert caught.value.expected == "an ONNX protobuf"
    assert found in (caught.value.found or "")
    assert todo in (caught.value.todo or "")


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.touch()
    with pytest.raises(NotAModelError, match="the file is empty") as caught:
        require_model_bytes(path)
    assert "again" in (caught.value.todo or "")


def test_text_longer_than_what_is_read_may_end_within_a_character(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("a" + "é" * 5000, encoding="utf-8")  # byte 4096 is half of an é
    with pytest.raises(NotAModelError) as caught:
        require_model_bytes(path)
    assert "text that begins" in (caught.value.found or "")


def _missing(folder: Path) -> Path:
    return folder / "model.onnx"


def _folder(folder: Path) -> Path:
    return folder


def _dangling(folder: Path) -> Path:
    link = folder / "model.onnx"
    link.symlink_to("../blobs/0123abcd")
    return link


def _loop(folder: Path) -> Path:
    link = folder / "model.onnx"
    link.symlink_to("model.onnx")
    return link


@pytest.mark.parametrize(
    ("make", "cause", "found", "todo"),
    [
        (_missing, "no such file", None, "check the path"),
        (_folder, "expected a file, found a folder", None, "name the .onnx file"),
        (_dangling, "link to a file that is not there", "../blobs/0123abcd", "fetch the file"),
        (_loop, "link to a file that is not there", "model.onnx", "fetch the file"),
    ],
)
def test_a_path_that_leads_to_no_file_is_a_wrong_call(
    tmp_path: Path, make: Callable[[Path], Path], cause: str, found: str | None, todo: str
) -> None:
    path = make(tmp_path)
    with pytest.raises(UsageError, match=cause) as caught:
        require_model_bytes(path)
    assert caught.value.file == str(path)
    assert (found or "") in (caught.value.found or "")
    assert todo in (caught.value.todo or "")


def test_a_path_that_no_file_system_can_hold_is_a_wrong_call(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        require_model_bytes(tmp_path / ("x" * 300 + ".onnx"))


@pytest.mark.parametrize(
    "head",
    [
        b"\x08\x07\x12\x07pytorch",  # ir_version first, as every exporter writes it
        b"\x12\x07pytorch\x08\x07",  # fields may come in any order
        b"\x3a\x04\x0a\x02\x0a\x00\x08\x07",  # the graph's tag is a printable ':'
    ],
)
def test_what_may_be_a_protobuf_passes_and_its_size_is_returned(
    tmp_path: Path, head: bytes
) -> None:
    path = tmp_path / "model.bin"  # the name decides nothing
    path.write_bytes(head + b"\0" * 5000)
    assert require_model_bytes(path) == len(head) + 5000
