"""The page is one file that is the same every time, small, and asks for nothing."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from fixtures import catalog
from fixtures.synthetic import tangle
from graphtools.explorer import Error, Fact, Golden, Overlays, inline, page
from graphtools.explorer.data import attribute_text, figure, page_data, shape_text
from graphtools.graph import Graph, build
from graphtools.hierarchy import hierarchy
from graphtools.onnx_file import load
from graphtools.recover import Recovered, recover

Parse = Callable[..., Graph]

TINY = catalog.names(committed=True)


def graph_of(name: str) -> Graph:
    return build(load(catalog.path(name)))


def text_of(graph: Graph, overlays: Overlays | None = None) -> str:
    net = recover(graph)
    return page(graph, hierarchy(graph, net if isinstance(net, Recovered) else None), overlays)


def unpacked(text: str) -> dict[str, Any]:
    packed = re.search(r'id="data">([^<]*)<', text)
    assert packed
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed[1])))
    return found


class TestFile:
    def test_is_the_same_every_time(self) -> None:
        assert text_of(graph_of("resnet34_tiny")) == text_of(graph_of("resnet34_tiny"))

    @pytest.mark.parametrize("name", TINY)
    def test_is_small(self, name: str) -> None:
        graph = graph_of(name)
        assert len(text_of(graph).encode()) <= 1_000_000 + 100 * len(graph.model.nodes)

    @pytest.mark.parametrize(
        ("nodes", "norms"), [(5000, False), (620, True), (1500, True), (5000, True)]
    )
    def test_is_small_with_many_weights(self, nodes: int, norms: bool, tmp_path: Path) -> None:
        """Without norms 2,000 weights; with them 2,480, 6,000 and 20,000."""
        graph = build(load(tangle(tmp_path / "tangle.onnx", nodes, norms=norms)))
        assert len(page(graph, hierarchy(graph)).encode()) <= 1_000_000 + 100 * nodes

    def test_names_no_other_file(self) -> None:
        text = text_of(graph_of("resnet34_tiny"))
        assert re.findall(r"""(?:src|href)\s*=\s*["'][^"']""", text) == []
        assert "sourceMappingURL" not in text
        assert "@import" not in text

    def test_holds_the_licences_of_what_it_holds(self) -> None:
        text = text_of(graph_of("resnet34_tiny"))
        vendor = files("graphtools.explorer") / "vendor"
        for name in ("dagre.LICENSE", "graphlib.LICENSE"):
            licence = (vendor / name).read_text()
            assert "Permission is hereby granted" in licence
            assert licence in text

    def test_holds_the_library_as_npm_has_it(self) -> None:
        import hashlib

        vendor = files("graphtools.explorer") / "vendor"
        lines = (vendor / "SHA256SUMS").read_text().splitlines()
        assert len(lines) == 3
        for line in lines:
            digest, name = line.split()
            assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest

    def test_no_name_is_part_of_the_markup(self) -> None:
        hostile = "</script><img src=x onerror=alert(1)>{{css}}"
        overlays = Overlays(title=hostile, facts=(Fact(hostile, hostile),), notes=(hostile,))
        assert "onerror" not in text_of(graph_of("resnet34_tiny"), overlays)

    def test_a_frame_holds_the_whole_page(self) -> None:
        graph = graph_of("resnet34_tiny")
        frame = inline(graph, hierarchy(graph), height=300)
        assert frame.startswith("<iframe")
        assert "height:300px" in frame
        (inside,) = re.findall(r'srcdoc="([^"]*)"', frame)
        assert html.unescape(inside) == page(graph, hierarchy(graph))


class TestData:
    @pytest.mark.parametrize("name", TINY)
    def test_has_every_node_with_its_tensors(self, name: str) -> None:
        graph = graph_of(name)
        data = unpacked(text_of(graph))
        names = [row[0] for row in data["tensors"]]
        shown = {row[0]: tuple(names[t] if t >= 0 else "" for t in row[4]) for row in data["nodes"]}
        assert shown == {n.place: n.outputs for n in graph.model.nodes if n.op != "Constant"}

    def test_weights_have_numpys_figures(self) -> None:
        proto = onnx.load(catalog.path("campplus_tiny"))
        data = unpacked(text_of(graph_of("campplus_tiny")))
        shown = {data["tensors"][number][0]: weight for number, weight in data["weights"]}
        compared = 0
        for tensor in proto.graph.initializer:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            if values.size > 8 and tensor.name in shown:
                wanted = [values.min(), values.max(), values.mean(), values.std()]
                assert shown[tensor.name]["figures"] == [f"{v:.6g}" for v in wanted]
                compared += 1
        assert compared > 300

    def test_counts_nodes_as_the_file_has_them(self, parse: Parse) -> None:
        text = """
            g (float[2] x) => (float[2] y) {
                two = Constant <value_float = 2.0> ()
                y = Mul(x, two)
            }
        """
        about = unpacked(text_of(parse(text)))["about"]
        assert ["nodes", "2; 1 of them Constants, which are not drawn"] in about

    def test_small_constants_are_shown_as_they_are(self, parse: Parse) -> None:
        graph = parse("""
            g (float[N, 4] x) => (float[N, 4] y) <float two = {2.5}, int64[2] shape = {-1, 4}>
            { a = Mul(x, two) y = Reshape(a, shape) }
        """)
        data = unpacked(page(graph, hierarchy(graph)))
        values = {data["tensors"][t][0]: weight["value"] for t, weight in data["weights"]}
        assert values == {"two": "2.5", "shape": "[-1, 4]"}

    def test_a_weight_without_a_finite_value_is_said_to_be_so(self, parse: Parse) -> None:
        graph = parse("g (float[9] x) => (float[9] y) <float[9] w> { y = Add(x, w) }")
        graph.model.proto.graph.initializer[0].raw_data = np.full(9, np.nan, "<f4").tobytes()
        data = unpacked(page(graph, hierarchy(graph)))
        assert [weight["strange"] for _, weight in data["weights"]] == [9]

    def test_the_range_of_channels_is_from_0_to_63(self, parse: Parse) -> None:
        graph = parse("g (float[N, 9] x) => (float[N, 9] y) <float[2, 9] w> { y = Gemm(x, w) }")
        data = unpacked(page(graph, hierarchy(graph)))
        ((_, weight),) = data["weights"]
        assert len(weight["strip"]) == 4
        assert "A" in weight["strip"]  # the minimum
        assert "/" in weight["strip"]  # the maximum
        assert "/" in weight["histogram"]

    def test_overlays_are_written_as_text(self, parse: Parse) -> None:
        graph = parse("g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }")
        overlays = Overlays(
            goldens={"a": Golden((2, 3), -1.0, 1.0, 0.123456789, 0.5, 1e-6)},
            errors={
                "a": Error(0.2, 0.1, 0.99, "too far"),
                "b": Error(float("inf"), 0.1, 0.0, "not finite"),
                "c": Error(None, 0.0, None, "not there"),
                "d": Error(0.1, 0.0, 1.0, "differs"),
            },
        )
        data = page_data(graph, hierarchy(graph), overlays, None)
        assert data["goldens"]["a"]["figures"] == ["-1", "1", "0.123457", "0.5"]
        assert [e["ratio"] for e in data["errors"].values()] == [2.0, 1e9, 0.0, 1e9]
        assert [e["max_abs_text"] for e in data["errors"].values()] == ["0.2", "inf", "-", "0.1"]
        json.dumps(data, allow_nan=False)

    def test_long_attributes_are_cut(self) -> None:
        text = attribute_text("a" * 3_000)
        assert text == f"{'a' * 200} .. 3000 characters in all"
        assert attribute_text((text, "b")).endswith(" in all, b]")

    def test_numbers_and_shapes(self) -> None:
        assert figure(1 / 3) == "0.333333"
        assert shape_text(("B", 80, "T/2")) == "B\u00d780\u00d7T/2"
        assert (shape_text(()), shape_text(None)) == ("scalar", "")
