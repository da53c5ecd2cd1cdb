"""Networks built for one test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from graphtools.graph import build
from graphtools.onnx_file import load
from graphtools.recover import Recovered, recover

if TYPE_CHECKING:
    from torch import nn


@pytest.fixture
def recover_module(tmp_path: Path) -> Callable[..., Recovered]:
    """``recover_module(module, opset=14)``: what a torch module's export is."""

    def run(module: nn.Module, opset: int) -> Recovered:
        from fixtures.export import export_legacy

        graph = build(load(export_legacy(module, tmp_path / "module.onnx", opset=opset)))
        found = recover(graph)
        assert isinstance(found, Recovered), found.error(graph)
        return found

    return run
