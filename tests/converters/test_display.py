"""What a shell or a notebook shows fits a screen, and shows names as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from converters.archs import arch_of_family
from converters.comparison import compare
from converters.convert import describe
from converters.display import SHOWN, shown
from converters.manifest import Entry, Manifest
from fixtures import catalog
from graphtools.graph import build
from graphtools.navigate import NodeView
from graphtools.onnx_file import load
from graphtools.recover import Recovered, recover

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m"


@pytest.fixture(scope="module")
def things() -> dict[str, Any]:
    """One of each class, of the largest fixture."""
    graph = build(load(catalog.path("campplus_tiny")))
    net = recover(graph)
    assert isinstance(net, Recovered)
    arch = arch_of_family(net.family.name)
    assert arch is not None
    arrays = {f"block{i}.{j}": np.ones(3) for i in range(20) for j in range(20)}
    wrong = {name: np.zeros(3) for name in arrays}
    node = graph[3]
    assert isinstance(node, NodeView)
    return {
        "Graph": graph,
        "Recovered": net,
        "NodeView": node,
        "Manifest": describe(net, arch, "m"),
        "Comparison": compare(arrays, wrong),
    }


@pytest.mark.parametrize("kind", [c.__name__ for c in SHOWN if c.__name__ != "NearMiss"])
def test_fits_a_screen(things: dict[str, Any], kind: str) -> None:
    text = shown(things[kind])
    lines = text.splitlines()
    assert 1 < len(lines) <= 45
    assert max(map(len, lines)) <= 80
    assert len(repr(things[kind])) < 400


@pytest.mark.parametrize("kind", ["Graph", "Recovered", "Manifest", "Comparison"])
def test_has_html_for_a_notebook(things: dict[str, Any], kind: str) -> None:
    assert things[kind]._repr_html_().lstrip().startswith("<")


def test_names_are_shown_and_neither_run_nor_obeyed() -> None:
    manifest = Manifest("a", HOSTILE, (Entry(HOSTILE, "string", HOSTILE, HOSTILE),), ())
    text = shown(manifest, 200)
    assert "\x1b" not in text
    assert "<img src=x" in text
    page = manifest._repr_html_()
    assert "<img" not in page
    assert "&lt;img src=x" in page
    assert "\x1b" not in page


def test_a_miss_says_where_the_nearest_family_differs(edited: Callable[..., Any]) -> None:
    def change(proto: Any) -> None:
        next(n for n in proto.graph.node if n.op_type == "Relu").op_type = "Tanh"

    found = recover(build(load(edited("resnet34_tiny", change))))
    assert "expected" in shown(found)
    assert "Tanh" in repr(found)
