"""``graphtools inspect``: an ONNX file, recovered or not, and a GGUF of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from converters.manifest import Entry
from fixtures import catalog
from graphtools.report import report

Make = Callable[..., Any]

TINY = catalog.names(committed=True)
TITLES = {"resnet34_tiny": "ResNet", "eres2net_tiny": "ERes2Net", "campplus_tiny": "CAM++"}


def with_sigmoids(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        if node.op_type == "Tanh":
            node.op_type = "Sigmoid"


class TestOnnx:
    @pytest.mark.parametrize("name", TINY)
    def test_json_is_the_twins(self, name: str, invoke: Make) -> None:
        ran = invoke("inspect", catalog.path(name), "--json", code=0)
        twin = report(catalog.path(name)).to_json()
        assert ran.json == json.loads(json.dumps(twin))
        assert ran.json["family"].startswith(TITLES[name])
        assert ran.json["miss"] == {}
        assert ran.err == ""

    def test_shows_the_facts_and_the_blocks(self, invoke: Make) -> None:
        text = invoke("inspect", catalog.path("resnet34_tiny"), code=0).out
        for fact in (
            "feats: f32 [B, T, 80]",
            "embs: f32 [B, 32]",
            "opset    ai.onnx 14",
            "pytorch 2.13.0",
            "Conv 36",
            "Recovered: ResNet",
            "tstp.eps = 1e-07",
        ):
            assert fact in text, fact
        rows = [line.split() for line in text.splitlines()]
        (block,) = (r for r in rows if r and r[0] == "layer2.0")
        nodes = onnx.load(catalog.path("resnet34_tiny")).graph.node
        (conv,) = (n for n in nodes if n.output[0] == "/model/layer2/layer2.0/conv1/Conv_output_0")
        weight = conv.input[1]
        assert block == ["layer2.0", "conv1", weight, "[8,", "4,", "3,", "3]", "2", "conv"]
        assert sum(r[0].startswith("layer") for r in rows if r) == 16

    def test_shows_metadata_props(self, edited: Make, invoke: Make) -> None:
        def change(proto: onnx.ModelProto) -> None:
            proto.metadata_props.add(key="framework", value="wespeaker")

        text = invoke("inspect", edited("resnet34_tiny", change), code=0).out
        assert "framework = wespeaker" in text

    def test_fixed_and_dynamic_axes(self, edited: Make, invoke: Make) -> None:
        def change(proto: onnx.ModelProto) -> None:
            proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 200

        assert "feats: f32 [B, 200, 80]" in invoke("inspect", edited("resnet34_tiny", change)).out

    def test_a_miss_says_how_near_and_where(self, edited: Make, invoke: Make) -> None:
        path = edited("eres2net_tiny", with_sigmoids)
        text = invoke("inspect", path, code=0).out
        assert "nearest is ERes2Net" in text
        for label in (
            "where:",
            "expected: Tanh",
            "found: Sigmoid",
            "from the output",
            "from the input",
        ):
            assert label in text, label
        data = invoke("inspect", path, "--json", code=0).json
        assert data["family"] is None
        assert data["blocks"] == []
        assert "nearest is ERes2Net" in data["miss"]["error"]
        assert len([o for o in data["order"] if o["op"] == "Conv"]) == 96

    @pytest.mark.parametrize("name", TINY)
    def test_order_is_the_pull_order_with_slots(self, name: str, invoke: Make) -> None:
        """An untouched legacy export stands in forward order, so node numbers only rise."""
        text = invoke("inspect", catalog.path(name), "--order", code=0).out
        rows = [line.split() for line in text.splitlines()[2:] if line.strip()]
        nodes = [int(r[2]) for r in rows]
        assert nodes == sorted(nodes)
        ops = {"Conv", "Gemm", "BatchNormalization"}
        proto = onnx.load(catalog.path(name))
        wanted = [
            (node.op_type, node.output[0]) for node in proto.graph.node if node.op_type in ops
        ]
        found = [(r[3], r[-1]) for r in rows if r[3] in ops]
        assert found == wanted
        assert all(r[1] != "-" for r in rows)

    def test_order_of_a_network_of_no_family_has_no_slots(self, edited: Make, invoke: Make) -> None:
        text = invoke("inspect", edited("eres2net_tiny", with_sigmoids), "--order", code=0).out
        rows = [line.split() for line in text.splitlines()[2:] if line.strip()]
        assert len(rows) == 97
        assert all(r[1] == "-" for r in rows)


class TestGguf:
    @pytest.fixture
    def file(self, manifest_of: Make, written: Make, tmp_path: Path) -> Path:
        path: Path = written(manifest_of(catalog.path("eres2net_tiny")), tmp_path / "m.gguf")
        return path

    def test_shows_every_key_with_its_meaning(self, file: Path, invoke: Make) -> None:
        text = invoke("inspect", file, code=0).out
        assert "model (voicedetect)" in text
        (row,) = (line for line in text.splitlines() if "eres2net.relu_clamp" in line)
        assert row.split()[1:3] == ["f32", "20"]
        assert "Hardtanh" in row
        (row,) = (line for line in text.splitlines() if "eres2net.conv_weight" in line)
        assert "96 in all" in row
        assert "191 tensors" in text
        assert "layer1_downsample.weight" in text

    def test_json_has_all_values(self, file: Path, invoke: Make, manifest_of: Make) -> None:
        data = invoke("inspect", file, "--json", code=0).json
        manifest = manifest_of(catalog.path("eres2net_tiny"))
        assert data["general.architecture"] == "voicedetect"
        assert data["general.name"] == "model"
        keys = [(k["key"], k["type"], k["value"]) for k in data["keys"]]
        assert keys == [
            (e.key, e.type, list(e.value) if isinstance(e.value, tuple) else e.value)
            for e in manifest.entries
        ]
        assert all(k["meaning"] for k in data["keys"])
        assert [(t["name"], tuple(t["shape"])) for t in data["tensors"]] == [
            (t.name, t.shape) for t in manifest.tensors
        ]

    def test_knows_a_baseline(self, invoke: Make, tmp_path: Path) -> None:
        invoke(
            "baseline", "--model", catalog.path("resnet34_tiny"), "--audio", catalog.SPEECH,
            "--output", "b.gguf", code=0,
        )  # fmt: skip
        data = invoke("inspect", "b.gguf", "--json", code=0).json
        assert data["general.architecture"] == "voicedetect-baseline"
        assert all(k["meaning"] for k in data["keys"])

    def test_a_gguf_of_others_is_shown_without_meanings(
        self, small: Make, written: Make, invoke: Make, tmp_path: Path
    ) -> None:
        manifest = replace(small(Entry("x.y", "f32", 0.5, "test")), architecture="llama")
        written(manifest, tmp_path / "other.gguf")
        data = invoke("inspect", "other.gguf", "--json", code=0).json
        assert data["general.architecture"] == "llama"
        assert data["keys"][-1] == {"key": "x.y", "type": "f32", "value": 0.5, "meaning": ""}
        assert "x.y" in invoke("inspect", "other.gguf", code=0).out

    def test_the_name_of_the_file_does_not_matter(
        self, file: Path, invoke: Make, tmp_path: Path
    ) -> None:
        file.rename(tmp_path / "m.onnx")
        assert "191 tensors" in invoke("inspect", "m.onnx", code=0).out

    def test_a_cut_file_is_refused(self, file: Path, invoke: Make) -> None:
        file.write_bytes(file.read_bytes()[:2000])
        ran = invoke("inspect", file, code=3)
        assert "damaged or cut off" in ran.err
