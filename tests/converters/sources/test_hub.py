"""Hugging Face ids, against a hub of our own on this machine; the real one is never asked."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import converters
from fixtures import catalog

Make = Callable[..., Any]
TINY = catalog.path("resnet34_tiny")
SLOW = pytest.mark.slow  # the client tries again for half a minute


@pytest.fixture
def model() -> bytes:
    return TINY.read_bytes()


def convert(through: Make, tmp_path: Path, *more: str, code: int) -> Any:
    output = tmp_path / "x.gguf"
    started = time.monotonic()
    ran = through("convert", "--output", output, "--verify", "none", *more, code=code)
    assert time.monotonic() - started < 120
    assert output.exists() == (code == 0)
    if code:
        assert ran.err.startswith("error: ") or "\nerror: " in ran.err
        assert "skipped" not in ran.err.lower()
    return ran


def test_a_repository_with_one_onnx_file(
    hub: Any, through: Make, model: bytes, tmp_path: Path, raw: Make
) -> None:
    hub.repositories["owner/one"] = {"README.md": b"# hello", "onnx/model.onnx": model}
    convert(through, tmp_path, "--model", "owner/one", code=0)
    assert raw(tmp_path / "x.gguf").values["general.name"] == "owner/one"
    assert hub.downloads() == {"onnx/model.onnx"}


def test_external_weights_come_along(hub: Any, through: Make, tmp_path: Path, raw: Make) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    onnx.save(
        onnx.load(TINY),
        folder / "model.onnx",
        save_as_external_data=True,
        location="model.onnx.data",
        size_threshold=100,
    )
    hub.repositories["owner/ext"] = {
        "model.onnx": (folder / "model.onnx").read_bytes(),
        "model.onnx.data": (folder / "model.onnx.data").read_bytes(),
        "big.bin": b"not asked for",
    }
    convert(through, tmp_path, "--model", "owner/ext", code=0)
    assert hub.downloads() == {"model.onnx", "model.onnx.data"}
    assert len(raw(tmp_path / "x.gguf").tensors) == 75


def test_several_onnx_files_are_listed_and_one_is_asked_for(
    hub: Any, through: Make, model: bytes, tmp_path: Path
) -> None:
    hub.repositories["owner/two"] = {"b/int8.onnx": b"no model", "a.onnx": model}
    ran = convert(through, tmp_path, "--model", "owner/two", code=2)
    assert "a.onnx, b/int8.onnx" in ran.err
    assert "--file" in ran.err
    assert hub.downloads() == set()
    convert(through, tmp_path, "--model", "owner/two", "--file", "a.onnx", code=0)
    assert hub.downloads() == {"a.onnx"}


def test_a_file_that_the_repository_has_not(
    hub: Any, through: Make, model: bytes, tmp_path: Path
) -> None:
    hub.repositories["owner/one"] = {"model.onnx": model}
    ran = convert(through, tmp_path, "--model", "owner/one", "--file", "other.onnx", code=2)
    assert "owner/one has no other.onnx" in ran.err
    assert "model.onnx" in ran.err


def test_a_repository_without_a_model(hub: Any, through: Make, tmp_path: Path) -> None:
    hub.repositories["owner/none"] = {"README.md": b"# hello"}
    ran = convert(through, tmp_path, "--model", "owner/none", code=2)
    assert "owner/none" in ran.err


@pytest.mark.parametrize("code", [404, 401])
def test_a_repository_that_is_not_there(hub: Any, through: Make, tmp_path: Path, code: int) -> None:
    """To a caller without a token the hub answers 401 for a name that does not exist."""
    hub.status["owner/absent"] = (code, "RepoNotFound")
    ran = convert(through, tmp_path, "--model", "owner/absent", code=2)
    assert "owner/absent" in ran.err
    assert "check the name" in ran.err


def test_a_gated_repository(hub: Any, through: Make, model: bytes, tmp_path: Path) -> None:
    hub.repositories["owner/gated"] = {"model.onnx": model}
    hub.gated.add("owner/gated")
    ran = convert(through, tmp_path, "--model", "owner/gated", code=3)
    assert "gated" in ran.err
    assert "HF_TOKEN" in ran.err


def test_a_repository_that_is_gated_altogether(hub: Any, through: Make, tmp_path: Path) -> None:
    hub.status["owner/gated"] = (403, "GatedRepo")
    ran = convert(through, tmp_path, "--model", "owner/gated", code=3)
    assert "HF_TOKEN" in ran.err


@pytest.mark.slow
def test_a_download_that_breaks_off(hub: Any, through: Make, model: bytes, tmp_path: Path) -> None:
    hub.repositories["owner/cut"] = {"model.onnx": model}
    hub.cut.add("owner/cut")
    ran = convert(through, tmp_path, "--model", "owner/cut", code=5)
    assert "cannot fetch owner/cut" in ran.err
    hub.cut.clear()
    convert(through, tmp_path, "--model", "owner/cut", code=0)  # and can be taken up again


@pytest.mark.parametrize(
    "code", [403, pytest.param(500, marks=SLOW), pytest.param(502, marks=SLOW)]
)
def test_a_hub_that_fails(hub: Any, through: Make, tmp_path: Path, code: int) -> None:
    hub.status["owner/one"] = (code, "")
    ran = convert(through, tmp_path, "--model", "owner/one", code=5)
    assert "cannot fetch owner/one from the hub" in ran.err
    assert "network" in ran.err


@pytest.mark.slow
def test_a_hub_that_is_down(hub: Any, through: Make, tmp_path: Path) -> None:
    down = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    output = tmp_path / "x.gguf"
    ran = through("convert", "--model", "owner/one", "--output", output, env=down, code=5)
    assert "cannot fetch owner/one from the hub" in ran.err
    assert "skipped" not in ran.err.lower()
    assert not output.exists()


def test_the_cache_serves_when_the_user_says_offline(
    hub: Any, through: Make, model: bytes, tmp_path: Path
) -> None:
    """Or the command says that it cannot ask; either is an answer, a crash is none."""
    hub.repositories["owner/one"] = {"model.onnx": model}
    convert(through, tmp_path, "--model", "owner/one", code=0)
    ran = through("inspect", "owner/one", "--json", env={"HF_HUB_OFFLINE": "1"})
    if ran.code == 0:
        assert json.loads(ran.out)["family"]
    else:
        assert ran.code == 5
        assert "cannot fetch owner/one" in ran.err


def test_inspect_takes_an_id_too(hub: Any, through: Make, model: bytes) -> None:
    hub.repositories["owner/one"] = {"model.onnx": model}
    ran = through("inspect", "owner/one", "--json", code=0)
    assert ran.json["family"].startswith("ResNet")


def test_a_path_is_never_taken_for_an_id(hub: Any, through: Make, tmp_path: Path) -> None:
    """A typing mistake in a path must not send its name over the network."""
    for name in ("absent/model.onnx", "./absent/model", "/absent/model", "a/b/c"):
        ran = through("inspect", name, code=2)
        assert "no such file" in ran.err, name
    assert hub.requests == []


def test_a_cache_without_room_is_told_before_the_download(
    hub: Any, through: Make, model: bytes, tmp_path: Path
) -> None:
    hub.repositories["owner/name"] = {"model.onnx": model}
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "sitecustomize.py").write_text(
        "import shutil\n"
        "usage = shutil.disk_usage('/')\n"
        "shutil.disk_usage = lambda path: usage._replace(free=100)\n"
    )
    paths = os.pathsep.join([str(tmp_path / "full"), str(Path(converters.__file__).parents[1])])
    arguments = ("convert", "--model", "owner/name", "--output", "x.gguf")
    ran = through(*arguments, env={"PYTHONPATH": paths}, code=5)
    assert "no room" in ran.err
    assert str(tmp_path / "home") in ran.err  # the cache's disk, not the output's
    assert hub.downloads() == set()


@pytest.mark.parametrize(("status", "code"), [(503, 77), (403, 77), (418, 1)])
def test_a_check_is_skipped_where_the_server_is_away_and_not_where_the_request_is_wrong(
    hub: Any, through: Make, status: int, code: int
) -> None:
    hub.status["owner/one"] = (status, "")
    through("check", "--model", "owner/one", "--json", code=code)
