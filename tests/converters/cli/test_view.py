"""``graphtools view``: one page, opened unless that is not wanted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from converters.view import view
from fixtures import catalog

Make = Callable[..., Any]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was asked to open; it is never there."""
    asked: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: asked.append(url) or False)
    return asked


def test_the_page_lies_here_and_is_opened(invoke: Make, opened: list[str], tmp_path: Path) -> None:
    shutil.copy(catalog.path("resnet34_tiny"), tmp_path / "some model.onnx")
    ran = invoke("view", "some model.onnx", code=0)
    page = tmp_path / "some model.html"
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert opened == [page.as_uri()]
    assert "layer1, layer2" in ran.out
    assert "no browser was found" in ran.out


def test_it_is_not_opened_when_that_is_not_wanted(invoke: Make, opened: list[str]) -> None:
    path = catalog.path("resnet34_tiny")
    invoke("view", path, "--no-open", code=0)
    invoke("view", path, "--json", code=0)
    assert opened == []


def test_json_is_the_twins(invoke: Make, tmp_path: Path) -> None:
    path = catalog.path("eres2net_tiny")
    ran = invoke("view", path, "-o", tmp_path / "x.html", "--json", code=0)
    assert ran.json == view(path, tmp_path / "x.html").to_json()
    assert ran.err == ""


def test_a_failure_leaves_the_page_that_was_there(invoke: Make, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("earlier")
    shutil.copy(catalog.path("resnet34_tiny"), tmp_path / "m.onnx")
    invoke("view", "m.onnx", "-o", "page.html", "--baseline", "nowhere.gguf", code=2)
    invoke("view", "m.onnx", "-o", "page.html", "--compare", "nowhere.npz", code=2)
    invoke("view", "missing.onnx", "-o", "page.html", code=2)
    invoke("view", "m.onnx", "-o", tmp_path / "no" / "page.html", "--no-open", code=5)
    assert (tmp_path / "page.html").read_text() == "earlier"


def test_a_manifest_has_no_graph(invoke: Make, tmp_path: Path) -> None:
    invoke("convert", "--model", catalog.path("resnet34_tiny"), "--output", "m.gguf", code=0)
    ran = invoke("view", "m.gguf", code=3)
    assert "graphtools inspect" in ran.err
