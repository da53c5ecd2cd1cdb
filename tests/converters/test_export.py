"""``graphtools export``: four forms of a graph, whole or not written, and the command around it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from converters.arrays import open_arrays
from converters.baseline import baseline
from converters.convert import convert
from converters.export import Format, export, node_data_path
from converters.view import view
from fixtures import catalog
from graphtools.errors import StorageError, UnsupportedError, UsageError
from graphtools.tensors import Array

Make = Callable[..., Any]

TINY = catalog.path("resnet34_tiny")
FORMATS: list[Format] = ["json", "dot", "model-explorer", "onnx"]


@pytest.fixture(scope="module")
def goldens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A baseline, and the dump of an engine that is wrong from layer3.2 on."""
    folder = tmp_path_factory.mktemp("goldens")
    baseline(TINY, catalog.SPEECH, folder / "baseline.gguf")
    arrays = open_arrays(folder / "baseline.gguf")
    (folder / "dump").mkdir()
    wrong = False
    for name in arrays.readers:
        wrong = wrong or name == "layer3.2"
        np.save(
            folder / "dump" / f"{name}.npy", arrays.read(name) * np.float32(1.5 if wrong else 1)
        )
    return folder / "baseline.gguf", folder / "dump"


class TestOnnx:
    @pytest.mark.parametrize("name", ["resnet34_tiny", "eres2net_tiny", "campplus_tiny"])
    def test_gives_the_same_bits(self, name: str, tmp_path: Path) -> None:
        export(catalog.path(name), tmp_path / "boxed.onnx", "onnx")
        x = np.random.default_rng(0).normal(0, 4, (1, 130, 80)).astype(np.float32)
        one, other = (run(path, x) for path in (catalog.path(name), tmp_path / "boxed.onnx"))
        np.testing.assert_array_equal(one, other)

    def test_every_node_says_its_boxes(self, tmp_path: Path) -> None:
        export(TINY, tmp_path / "boxed.onnx", "onnx")
        proto = onnx.load(tmp_path / "boxed.onnx")
        spaces = {}
        for node in proto.graph.node:
            (prop,) = node.metadata_props
            assert prop.key == "namespace"
            spaces[node.output[0]] = prop.value
        assert spaces["/model/layer2/layer2.0/conv1/Conv_output_0"] == "layer2/layer2.0"
        assert spaces["/model/Transpose_output_0"] == "stem"
        onnx.checker.check_model(proto, full_check=True)

    def test_what_it_writes_is_an_export_like_any_other(self, tmp_path: Path) -> None:
        boxed = tmp_path / "boxed.onnx"
        export(TINY, boxed, "onnx")
        found, plain = (view(path, tmp_path / "page.html") for path in (boxed, TINY))
        assert (found.family, found.boxes) == (plain.family, plain.boxes)
        shutil.copy(TINY, tmp_path / "plain.onnx")
        for name in ("boxed", "plain"):
            assert convert(tmp_path / f"{name}.onnx", tmp_path / f"{name}.gguf").proof
        one, other = (open_arrays(tmp_path / f"{name}.gguf") for name in ("boxed", "plain"))
        for name in one.readers:
            np.testing.assert_array_equal(one.read(name), other.read(name))
        export(boxed, tmp_path / "again.onnx", "onnx")
        assert (tmp_path / "again.onnx").read_bytes() == boxed.read_bytes()

    def test_a_network_of_no_family_has_its_exporters_scopes(
        self, edited: Make, tmp_path: Path
    ) -> None:
        def change(proto: onnx.ModelProto) -> None:
            for node in proto.graph.node:
                if node.op_type == "Relu":
                    node.op_type = "Sigmoid"

        done = export(edited("resnet34_tiny", change), tmp_path / "boxed.onnx", "onnx")
        assert done.family is None
        nodes = onnx.load(tmp_path / "boxed.onnx").graph.node
        (space,) = (
            node.metadata_props[0].value
            for node in nodes
            if node.name == "/model/layer2/layer2.0/conv1/Conv"
        )
        assert space == "model/layer2/layer2.0"


def run(path: Path, x: Array) -> Array:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found: Array = session.run(None, {session.get_inputs()[0].name: x})[0]
    return found


class TestText:
    def test_slots_and_keys_are_the_converters(self, tmp_path: Path) -> None:
        done = export(TINY, tmp_path / "graph.json", "json")
        data = json.loads((tmp_path / "graph.json").read_text())
        assert data["family"] == done.family
        (conv,) = (n for n in data["nodes"] if n["slot"] == "layer2.0.conv1")
        (became,) = data["tensors"][conv["inputs"][1]]["became"]
        assert became["key"].startswith("voicedetect.resnet")
        assert done.nodes == len(data["nodes"]) == 110
        assert done.boxes == 23
        assert done.files == (tmp_path / "graph.json",)
        assert done.size == (tmp_path / "graph.json").stat().st_size

    def test_dot_has_a_cluster_for_every_box(self, tmp_path: Path) -> None:
        done = export(TINY, tmp_path / "graph.dot", "dot")
        text = (tmp_path / "graph.dot").read_text()
        assert len(re.findall(r"^ *subgraph cluster_", text, re.MULTILINE)) == done.boxes
        assert 'label="layer2.0"' in text

    @pytest.mark.parametrize("format", FORMATS)
    def test_the_same_file_gives_the_same_bytes(self, format: Format, tmp_path: Path) -> None:
        texts = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            done = export(TINY, tmp_path / name / "graph.out", format)
            texts.append([path.read_bytes() for path in done.files])
        assert texts[0] == texts[1]


class TestNodeData:
    def results(self, path: Path) -> dict[str, Any]:
        (found,) = json.loads(node_data_path(path).read_text()).values()
        return {name: result["value"] for name, result in found["results"].items()}

    def test_without_goldens_it_is_parameters(self, tmp_path: Path) -> None:
        done = export(TINY, tmp_path / "graph.json", "model-explorer")
        assert done.files == (tmp_path / "graph.json", tmp_path / "graph.node_data.json")
        assert self.results(tmp_path / "graph.json")["/model/conv1/Conv_output_0"] == 4 * 9 + 4

    def test_with_goldens_it_is_their_spread(
        self, goldens: tuple[Path, Path], tmp_path: Path
    ) -> None:
        export(TINY, tmp_path / "graph.json", "model-explorer", baseline=goldens[0])
        found = self.results(tmp_path / "graph.json")
        values = open_arrays(goldens[0]).read("layer3.2")
        name = "/model/layer3/layer3.2/Relu_1_output_0"
        np.testing.assert_allclose(found[name], values.std(dtype=np.float64), rtol=1e-5)

    def test_with_an_engine_it_is_errors(self, goldens: tuple[Path, Path], tmp_path: Path) -> None:
        path = tmp_path / "graph.json"
        export(TINY, path, "model-explorer", baseline=goldens[0], ours=goldens[1])
        found = self.results(path)
        assert found["/model/layer3/layer3.1/Relu_1_output_0"] == 0
        assert found["/model/layer3/layer3.2/Relu_1_output_0"] > 1

    def test_a_graph_that_cannot_be_written_leaves_no_node_data(self, tmp_path: Path) -> None:
        (tmp_path / "graph.node_data.json").mkdir()
        with pytest.raises(StorageError):
            export(TINY, tmp_path / "graph.json", "model-explorer")
        assert [path.name for path in tmp_path.iterdir()] == ["graph.node_data.json"]


class TestRefusals:
    @pytest.mark.parametrize("format", FORMATS)
    def test_the_model_is_not_replaced(self, format: Format, tmp_path: Path) -> None:
        model = shutil.copy(TINY, tmp_path / "model.onnx")
        with pytest.raises(UsageError, match="would replace an input"):
            export(model, model, format)
        assert model.read_bytes() == TINY.read_bytes()

    def test_node_data_replace_no_input(self, goldens: tuple[Path, Path], tmp_path: Path) -> None:
        stored = shutil.copy(goldens[0], tmp_path / "graph.node_data.json")
        with pytest.raises(UsageError, match="would replace an input"):
            export(TINY, tmp_path / "graph.json", "model-explorer", baseline=stored)
        assert not (tmp_path / "graph.json").exists()

    def test_goldens_are_for_model_explorer(
        self, goldens: tuple[Path, Path], tmp_path: Path
    ) -> None:
        with pytest.raises(UsageError, match="no place in the format 'dot'"):
            export(TINY, tmp_path / "graph.dot", "dot", baseline=goldens[0])

    def test_an_engine_needs_goldens(self, goldens: tuple[Path, Path], tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="compared with goldens"):
            export(TINY, tmp_path / "graph.json", "model-explorer", ours=goldens[1])

    def test_a_gguf_has_no_graph(self, goldens: tuple[Path, Path], tmp_path: Path) -> None:
        with pytest.raises(UnsupportedError, match="only an ONNX file has a graph"):
            export(goldens[0], tmp_path / "graph.json", "json")

    def test_a_format_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no such format"):
            export(TINY, tmp_path / "graph.json", "yaml")  # type: ignore[arg-type]


class TestCommand:
    def test_json_is_the_twins(self, invoke: Make, tmp_path: Path) -> None:
        ran = invoke("export", TINY, "--format", "dot", "-o", "graph.dot", "--json", code=0)
        twin = export(TINY, tmp_path / "twin.dot", "dot").to_json()
        assert ran.json == json.loads(json.dumps({**twin, "files": ["graph.dot"]}))

    def test_names_the_files(self, invoke: Make) -> None:
        out = invoke("export", TINY, "--format", "model-explorer", "-o", "g.json", code=0).out
        assert out.splitlines()[:2] == ["g.json", "g.node_data.json"]
        assert "ResNet of BasicBlocks (WeSpeaker), 110 nodes in 23 boxes" in out

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (["export", "missing.onnx", "--format", "dot", "-o", "x"], 2),
            (["export", str(TINY), "--format", "yaml", "-o", "x"], 2),
            (["export", str(TINY), "--format", "dot"], 2),
            (["export", str(TINY), "--format", "onnx", "-o", "no/x.onnx"], 5),
            (["export", str(catalog.SPEECH), "--format", "onnx", "-o", "x.onnx"], 3),
        ],
    )
    def test_exit_codes(self, invoke: Make, arguments: list[str], code: int) -> None:
        assert "Traceback" not in invoke(*arguments, code=code).err
