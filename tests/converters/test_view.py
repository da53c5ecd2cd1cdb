"""``view``: what the manifest, a baseline and a comparison say reaches the page."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from converters.arrays import open_arrays
from converters.baseline import baseline
from converters.comparison import compare
from converters.convert import convert
from converters.golden_taps import golden_taps
from converters.manifest import Manifest
from converters.view import View, view
from fixtures import catalog
from graphtools.errors import NotAModelError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from playwright.sync_api import Page

Make = Callable[..., Any]

TINY = catalog.names(committed=True)


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A baseline of the tiny ERes2Net, and an engine that is wrong from layer3.2 on."""
    folder = tmp_path_factory.mktemp("dump")
    baseline(catalog.path("eres2net_tiny"), catalog.SPEECH, folder / "b.gguf")
    arrays = open_arrays(folder / "b.gguf")
    assert arrays.manifest is not None
    stages = list(arrays.manifest.get("baseline.stages", "[string]"))
    wrong = stages[stages.index("layer3.2") :]
    values = {
        name: arrays.read(name) * np.float32(1.1 if name in wrong else 1.0)
        for name in arrays.readers
        if name != "pooled"
    }
    np.savez(folder / "ours.npz", **values)
    return folder / "b.gguf", folder / "ours.npz"


def data_of(page: Path) -> dict[str, Any]:
    """What the scripts of a page are given."""
    packed = re.search(r'id="data">([^<]*)<', page.read_text("utf-8"))
    assert packed
    found: dict[str, Any] = json.loads(zlib.decompress(b64decode(packed[1])))
    return found


def shown(name: str, tmp_path: Path, **more: Any) -> tuple[View, dict[str, Any]]:
    done = view(catalog.path(name), tmp_path / "page.html", **more)
    return done, data_of(done.output)


@pytest.mark.parametrize("name", TINY)
class TestManifest:
    def test_every_key_is_there_with_its_origin(
        self, name: str, manifest_of: Make, tmp_path: Path
    ) -> None:
        manifest: Manifest = manifest_of(catalog.path(name))
        _, data = shown(name, tmp_path)
        facts = {key: (value, origin, meaning) for key, value, origin, meaning in data["facts"]}
        assert list(facts) == [entry.key for entry in manifest.entries]
        for entry in manifest.entries:
            value, origin, meaning = facts[entry.key]
            assert origin == entry.origin
            assert meaning
            if isinstance(entry.value, str | int):
                assert value == str(entry.value)

    def test_every_tensor_of_the_file_has_its_key_and_index(
        self, name: str, manifest_of: Make, tmp_path: Path
    ) -> None:
        manifest: Manifest = manifest_of(catalog.path(name))
        _, data = shown(name, tmp_path)
        carried = [entry for _, weight in data["weights"] for entry in weight["carried"]]
        assert {tensor for _, _, tensor, _ in carried} == {t.name for t in manifest.tensors}
        for key, index, tensor, origin in carried:
            value = manifest[key]
            listed = value if index is None else value[index]  # type: ignore[index]
            assert tensor == listed or tensor.startswith(f"{listed}."), (key, index, tensor)
            assert origin == manifest.by_name[tensor].origin()

    def test_weights_have_the_names_of_the_family(self, name: str, tmp_path: Path) -> None:
        _, data = shown(name, tmp_path)
        labels = {row[1]: set() for row in data["nodes"]}  # type: ignore[var-annotated]
        for row in data["nodes"]:
            labels[row[1]].add(row[6])
        assert "" not in labels["Conv"]
        assert labels["Relu" if "Relu" in labels else "Clip"] == {""}


def test_a_folded_weight_is_told_by_its_parts(unfolded: Make, tmp_path: Path) -> None:
    """Every constant that a fold reads leads to the tensor that it became a part of."""
    done = view(unfolded("resnet34_tiny"), tmp_path / "page.html")
    data = data_of(done.output)
    weights = {data["tensors"][t][0]: weight["carried"] for t, weight in data["weights"]}
    (folded,) = weights["model.layer1.0.conv1.weight"]
    assert folded[3].startswith("fold(model.layer1.0.conv1.weight, model.layer1.0.bn1")
    stored = {entry[2] for entry in weights["model.layer1.0.bn1.running_var"]}
    assert len(stored) == 2  # the weight and its bias


class TestResult:
    @pytest.mark.parametrize("name", TINY)
    def test_says_what_is_seen(self, name: str, tmp_path: Path) -> None:
        done, data = shown(name, tmp_path)
        assert done.size == done.output.stat().st_size
        assert done.family == data["title"]
        assert len(done.boxes) <= 12
        assert "encoder_out" in done.boxes
        assert done.to_json()["output"] == str(done.output)
        json.dumps(done.to_json())

    def test_is_the_same_every_time(self, tmp_path: Path) -> None:
        first = view(catalog.path("eres2net_tiny"), tmp_path / "a.html").output.read_bytes()
        assert view(catalog.path("eres2net_tiny"), tmp_path / "b.html").output.read_bytes() == first


class TestUnknown:
    def test_the_node_where_a_family_ends_is_marked(self, edited: Make, tmp_path: Path) -> None:
        def with_a_sigmoid(proto: onnx.ModelProto) -> None:
            node = next(n for n in proto.graph.node if n.name.endswith("layer3.4/relu_3/Clip"))
            node.op_type = "Sigmoid"
            del node.input[1:]

        done = view(edited("eres2net_tiny", with_a_sigmoid), tmp_path / "page.html")
        data = data_of(done.output)
        assert done.family is None
        assert "nearest is ERes2Net" in done.notes[0]
        index, reason = data["mark"]
        (op,) = (row[1] for row in data["nodes"] if row[0] == index)
        assert op == "Sigmoid"
        assert "Sigmoid" in reason

    def test_a_network_that_is_near_to_none_has_no_mark(self, edited: Make, tmp_path: Path) -> None:
        def another(proto: onnx.ModelProto) -> None:
            for node in proto.graph.node:
                if node.op_type == "Conv":
                    node.op_type = "ConvTranspose"

        done = view(edited("resnet34_tiny", another), tmp_path / "page.html")
        assert data_of(done.output)["mark"] is None
        assert "near to none" in done.notes[0]

    def test_two_readings_are_said(self, edited: Make, tmp_path: Path) -> None:
        def twice(proto: onnx.ModelProto) -> None:
            embedding = proto.graph.output[0].name
            proto.graph.node.append(onnx.helper.make_node("Identity", [embedding], ["again"]))
            proto.graph.output.append(onnx.ValueInfoProto(name="again"))

        done = view(edited("resnet34_tiny", twice), tmp_path / "page.html")
        assert done.family is None
        assert done.notes[0].startswith("The network can be read in more than one way: ResNet")

    def test_more_after_the_embedding_is_marked(self, edited: Make, tmp_path: Path) -> None:
        def normalised(proto: onnx.ModelProto) -> None:
            embedding = proto.graph.output[0].name
            proto.graph.node.append(onnx.helper.make_node("Softmax", [embedding], ["more"]))
            proto.graph.output[0].name = "more"

        done = view(edited("resnet34_tiny", normalised), tmp_path / "page.html")
        assert "its embedding is not the output" in done.notes[0]
        data = data_of(done.output)
        (op,) = (row[1] for row in data["nodes"] if row[0] == data["mark"][0])
        assert op == "Softmax"

    def test_another_form_of_file_is_named(self, edited: Make, tmp_path: Path) -> None:
        def quantised(proto: onnx.ModelProto) -> None:
            for node in proto.graph.node:
                if node.op_type == "Conv":
                    node.op_type = "ConvInteger"

        done = view(edited("resnet34_tiny", quantised), tmp_path / "page.html")
        assert "quantised export" in done.notes[0]
        assert "ConvInteger" in done.notes[0]


class TestBaseline:
    def test_figures_are_numpys(self, dump: tuple[Path, Path], tmp_path: Path) -> None:
        _, data = shown("eres2net_tiny", tmp_path, baseline=dump[0])
        arrays = open_arrays(dump[0])
        assert set(data["goldens"]) == set(arrays.readers)
        for name, golden in data["goldens"].items():
            values = arrays.read(name).astype(np.float64)
            wanted = [values.min(), values.max(), values.mean(), values.std()]
            assert golden["figures"] == [f"{v:.6g}" for v in wanted]
        assert data["goldens"]["layer1.0"]["noise"] != ""
        assert data["errors"] == {}

    def test_errors_are_those_of_compare(self, dump: tuple[Path, Path], tmp_path: Path) -> None:
        done, data = shown("eres2net_tiny", tmp_path, baseline=dump[0], ours=dump[1])
        compared = compare(*dump)
        assert done.first_wrong == data["first_wrong"] == "layer3.2"
        assert list(data["errors"]) == [row.name for row in compared.rows]
        for row in compared.rows:
            assert data["errors"][row.name]["problem"] == row.problem
        assert data["errors"]["pooled"]["max_abs"] is None

    def test_what_the_engine_lacks_is_not_the_first(
        self, dump: tuple[Path, Path], tmp_path: Path
    ) -> None:
        """An engine that dumps some stages only is judged by these."""
        arrays = open_arrays(dump[1])
        kept = {n: arrays.read(n) for n in arrays.readers if n.startswith("layer4")}
        np.savez(tmp_path / "some.npz", **kept)
        done, data = shown("eres2net_tiny", tmp_path, baseline=dump[0], ours=tmp_path / "some.npz")
        assert done.first_wrong == "layer4.0"
        assert data["errors"]["stem"]["missing"]
        assert not data["errors"]["layer4.0"]["missing"]

    def test_goldens_by_tensor_are_shown_by_stage(self, tmp_path: Path) -> None:
        model = catalog.path("resnet34_tiny")
        golden_taps(model, tmp_path / "taps.gguf", seed=0, dims={"T": 100, "B": 1})
        _, data = shown("resnet34_tiny", tmp_path, baseline=tmp_path / "taps.gguf")
        assert {"stem", "layer1.0", "encoder_out"} <= set(data["goldens"])

    def test_of_another_network_is_refused(self, dump: tuple[Path, Path], tmp_path: Path) -> None:
        with pytest.raises(UnsupportedError, match="another network") as raised:
            shown("resnet34_tiny", tmp_path, baseline=dump[0])
        assert raised.value.found == "eres2net"
        assert raised.value.expected == "resnet or wespeaker_resnet34"
        assert not (tmp_path / "page.html").exists()
        with pytest.raises(UnsupportedError) as raised:
            shown("campplus_tiny", tmp_path, baseline=dump[0])
        assert raised.value.expected == "campplus"  # the family and its schema are of one name

    def test_of_another_file_is_said(
        self, dump: tuple[Path, Path], edited: Make, tmp_path: Path
    ) -> None:
        def renamed(proto: onnx.ModelProto) -> None:
            proto.producer_name = "someone"

        path = edited("eres2net_tiny", renamed)
        done = view(path, tmp_path / "page.html", baseline=dump[0])
        assert "The baseline was made of another file of this network." in done.notes

    def test_is_needed_for_a_comparison(self, dump: tuple[Path, Path], tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="goldens, and none are given"):
            shown("eres2net_tiny", tmp_path, ours=dump[1])


class TestRefused:
    def test_what_has_no_graph(self, tmp_path: Path) -> None:
        convert(catalog.path("resnet34_tiny"), tmp_path / "m.gguf", verify="none")
        (tmp_path / "folder").mkdir()
        for model in (tmp_path / "m.gguf", tmp_path / "folder"):
            with pytest.raises(UnsupportedError, match="only an ONNX file has a graph"):
                view(model, tmp_path / "page.html")

    def test_what_is_no_model(self, tmp_path: Path) -> None:
        (tmp_path / "text.onnx").write_text("hello" * 100)
        with pytest.raises(NotAModelError):
            view(tmp_path / "text.onnx", tmp_path / "page.html")

    def test_the_model_as_its_own_page(self, edited: Make) -> None:
        path = edited("resnet34_tiny", lambda proto: None)
        before = path.read_bytes()
        with pytest.raises(UsageError):
            view(path, path)
        assert path.read_bytes() == before


class TestInTheBrowser:
    def test_a_weight_leads_to_its_key(self, offline: Any, tmp_path: Path) -> None:
        done, _ = shown("campplus_tiny", tmp_path)
        page: Page = offline.open(done.output)
        page.wait_for_selector("html[data-ready]")
        page.keyboard.press("/")
        page.keyboard.type("voicedetect.campplus.conv_weight[13]")
        page.keyboard.press("Enter")
        text = page.locator("#panel").inner_text()
        assert "block1.0.conv" in text
        assert "voicedetect.campplus.conv_weight[13]" in text

    def test_the_first_wrong_stage_is_what_is_seen(
        self, dump: tuple[Path, Path], offline: Any, tmp_path: Path
    ) -> None:
        done, _ = shown("eres2net_tiny", tmp_path, baseline=dump[0], ours=dump[1])
        page: Page = offline.open(done.output)
        page.wait_for_selector("html[data-ready]")
        assert page.locator("#panel h2").inner_text() == "layer3.2"
        assert page.locator(".item.chosen .flag").count() == 1
        page.locator("#crumbs button").first.click()
        assert "10 of 25 tensors differ, 1 missing" in page.locator("#panel").inner_text()
        pooled = page.locator('.item:has-text("pooled")').last
        assert "? missing" in (pooled.text_content() or "")

    def test_goldens_of_any_network_are_on_its_operations(
        self, edited: Make, offline: Any, tmp_path: Path
    ) -> None:
        """No family and so no stages: boxes are the exporter's modules, goldens are tensors."""

        def another(proto: onnx.ModelProto) -> None:
            for node in proto.graph.node:
                if node.op_type == "Relu":
                    node.op_type = "Tanh"

        model = edited("resnet34_tiny", another)
        golden_taps(model, tmp_path / "b.npz", seed=0, dims={"T": 50}, taps=["op:Conv"])
        arrays = open_arrays(tmp_path / "b.npz")
        ours = {name: arrays.read(name) for name in arrays.readers}
        wrong = "/model/layer3/layer3.1/conv2/Conv_output_0"
        ours[wrong] = 2.0 * ours[wrong]
        np.savez(tmp_path / "ours.npz", **ours)
        done = view(
            model,
            tmp_path / "page.html",
            baseline=tmp_path / "b.npz",
            ours=tmp_path / "ours.npz",
        )
        assert done.family is None
        assert done.first_wrong == wrong
        page: Page = offline.open(done.output)
        page.wait_for_selector("html[data-ready]")
        text = page.locator("#panel").inner_text()
        assert "/model/layer3/layer3.1/conv2/Conv" in text
        assert "✗ max|d|" in text
        assert "first that differs" in (page.locator(".item.chosen").text_content() or "")
        page.locator("#crumbs button").first.click()
        layer3 = page.locator('.item.box:has-text("layer3")').first
        assert "✗ 1 of 13" in (layer3.text_content() or "")
