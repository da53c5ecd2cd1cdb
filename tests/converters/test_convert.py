"""From a file to a proven GGUF: what is written, what is refused, and that nothing is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from converters.archs.checkpoint import Options
from converters.convert import convert, describe, require_recovered
from converters.proof_result import Proof
from fixtures import catalog
from graphtools.errors import (
    MissError,
    NotAModelError,
    StorageError,
    UnprovenError,
    UnsupportedError,
    UsageError,
)
from graphtools.graph import build
from graphtools.onnx_file import load

Make = Callable[..., Any]

TINY = catalog.names(committed=True)
ARCHS = {
    "resnet34_tiny": "wespeaker_resnet34",
    "eres2net_tiny": "eres2net",
    "campplus_tiny": "campplus",
}


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("name", TINY)
def test_writes_the_manifest_and_its_proof(name: str, tmp_path: Path, raw: Make) -> None:
    output = tmp_path / "x.gguf"
    done = convert(catalog.path(name), output, name="vendor/model", arch=ARCHS[name])
    assert done.arch == ARCHS[name]
    assert isinstance(done.proof, Proof)
    assert done.proof
    assert done.files == (output, tmp_path / "x.gguf.proof.json")
    assert names(tmp_path) == ["x.gguf", "x.gguf.proof.json"]
    stored = json.loads((tmp_path / "x.gguf.proof.json").read_text())
    assert stored == json.loads(json.dumps(done.proof.to_json()))
    found = raw(output)
    assert found.values["general.architecture"] == "voicedetect"
    assert found.values["general.name"] == "vendor/model"
    assert found.values["voicedetect.arch"] == ARCHS[name]
    assert not [key for key in found.values if "analyze" in key]


def test_the_name_is_the_path_by_default(tmp_path: Path, raw: Make) -> None:
    path = catalog.path("resnet34_tiny")
    convert(path, tmp_path / "x.gguf", verify="none")
    assert raw(tmp_path / "x.gguf").values["general.name"] == str(path)


def test_the_result_is_plain_data(tmp_path: Path) -> None:
    done = convert(catalog.path("campplus_tiny"), tmp_path / "x.gguf")
    back = json.loads(json.dumps(done.to_json(), allow_nan=False))
    assert back["arch"] == "campplus"
    assert back["output"] == str(tmp_path / "x.gguf")
    assert (back["keys"], back["tensors"]) == (20, 617)
    assert back["proof"]["proven"] is True
    assert len(back["left_out"]) == 2


class TestWithoutProof:
    def test_says_so_and_leaves_no_proof(self, tmp_path: Path) -> None:
        done = convert(catalog.path("resnet34_tiny"), tmp_path / "x.gguf", verify="none")
        assert done.proof is None
        assert done.to_json()["proof"] is None
        assert names(tmp_path) == ["x.gguf"]

    def test_removes_the_proof_of_the_file_before(self, tmp_path: Path) -> None:
        convert(catalog.path("resnet34_tiny"), tmp_path / "x.gguf")
        assert names(tmp_path) == ["x.gguf", "x.gguf.proof.json"]
        convert(catalog.path("eres2net_tiny"), tmp_path / "x.gguf", verify="none")
        assert names(tmp_path) == ["x.gguf"]

    def test_writes_the_same_gguf(self, tmp_path: Path) -> None:
        path = catalog.path("eres2net_tiny")
        convert(path, tmp_path / "a.gguf", name="m")
        convert(path, tmp_path / "b.gguf", name="m", verify="none")
        assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


class TestRefused:
    def test_a_key_that_does_not_exist_cannot_stay_unproven(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"no key 'voicedetect\.nonsense'"):
            convert(
                catalog.path("resnet34_tiny"),
                tmp_path / "x.gguf",
                allow_unproven=["voicedetect.nonsense"],
            )
        assert names(tmp_path) == []

    @pytest.mark.parametrize(
        "options", [Options(strict=True), Options(strip_prefix="x."), Options(do_normalize=False)]
    )
    def test_what_only_a_checkpoint_has_is_a_wrong_call(
        self, tmp_path: Path, options: Options
    ) -> None:
        with pytest.raises(UsageError, match="an ONNX file has nothing"):
            convert(catalog.path("resnet34_tiny"), tmp_path / "x.gguf", options=options)
        assert names(tmp_path) == []

    def test_a_stride_that_the_engine_does_not_have(self, edited: Make, tmp_path: Path) -> None:
        def change(proto: onnx.ModelProto) -> None:
            for node in proto.graph.node:
                for attribute in node.attribute:
                    if attribute.name == "strides" and list(attribute.ints) == [2, 2]:
                        attribute.ints[:] = [3, 3]

        with pytest.raises(UnsupportedError, match="a stride that the engine does not have"):
            convert(edited("resnet34_tiny", change), tmp_path / "x.gguf")

    @pytest.mark.parametrize("arch", ["eres2net", "campplus", "ecapa_tdnn", "nonsense"])
    def test_a_wrong_architecture(self, tmp_path: Path, arch: str) -> None:
        with pytest.raises(UnsupportedError) as caught:
            convert(catalog.path("resnet34_tiny"), tmp_path / "x.gguf", arch=arch)
        assert arch in str(caught.value)
        assert names(tmp_path) == []

    def test_the_file_before_and_its_proof_are_kept(self, edited: Make, tmp_path: Path) -> None:
        output = tmp_path / "x.gguf"
        convert(catalog.path("resnet34_tiny"), output)
        before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
        with pytest.raises(UnsupportedError):
            convert(catalog.path("resnet34_tiny"), output, arch="campplus")
        bad = edited("eres2net_tiny", swap_activation)
        with pytest.raises(MissError):
            convert(bad, output)
        bad.unlink()
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before

    def test_a_network_of_no_family_names_the_nearest(self, edited: Make, tmp_path: Path) -> None:
        with pytest.raises(MissError, match="nearest is ERes2Net") as caught:
            convert(edited("eres2net_tiny", swap_activation), tmp_path / "x.gguf")
        assert caught.value.where
        assert "Sigmoid" in str(caught.value.found)
        assert names(tmp_path) == ["edited.onnx"]

    @pytest.mark.parametrize(
        "content", [b"", b"just text\n", b"version https://git-lfs.github.com/spec/v1\n"]
    )
    def test_what_is_no_model(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "m.onnx").write_bytes(content)
        with pytest.raises(NotAModelError):
            convert(tmp_path / "m.onnx", tmp_path / "x.gguf")
        assert names(tmp_path) == ["m.onnx"]

    @pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
    def test_a_cut_model(self, tmp_path: Path, part: float) -> None:
        data = catalog.path("resnet34_tiny").read_bytes()
        (tmp_path / "m.onnx").write_bytes(data[: int(part * len(data))])
        with pytest.raises(NotAModelError):
            convert(tmp_path / "m.onnx", tmp_path / "x.gguf")
        assert names(tmp_path) == ["m.onnx"]

    def test_a_missing_model(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError):
            convert(tmp_path / "absent.onnx", tmp_path / "x.gguf")

    def test_weights_that_are_not_float(self, edited: Make, tmp_path: Path) -> None:
        def change(proto: onnx.ModelProto) -> None:
            for tensor in proto.graph.initializer:
                if tensor.name == "model.seg_1.weight":
                    values = np.ones((32, 640), np.int8)
                    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))

        with pytest.raises(UnsupportedError):
            convert(edited("resnet34_tiny", change), tmp_path / "x.gguf")
        assert names(tmp_path) == ["edited.onnx"]

    def test_a_proof_that_fails_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The manifest is made wrong on its way; only the proof can tell."""
        from converters import convert as module

        def wrong(*arguments: Any) -> Any:
            manifest = describe(*arguments)
            key = "voicedetect.resnet.conv1_weight"
            first, second, *rest = manifest[key]
            from dataclasses import replace

            entries = tuple(
                replace(e, value=(second, first, *rest)) if e.key == key else e
                for e in manifest.entries
            )
            return replace(manifest, entries=entries)

        monkeypatch.setattr(module, "describe", wrong)
        with pytest.raises(UnprovenError, match=r"layer1\.0"):
            convert(catalog.path("resnet34_tiny"), tmp_path / "x.gguf")
        assert names(tmp_path) == []

    def test_a_proof_that_cannot_be_written_leaves_no_gguf(self, tmp_path: Path) -> None:
        (tmp_path / "x.gguf.proof.json").mkdir()
        with pytest.raises(StorageError):
            convert(catalog.path("resnet34_tiny"), tmp_path / "x.gguf")
        assert names(tmp_path) == ["x.gguf.proof.json"]

    @pytest.mark.parametrize("folder", ["absent", "/proc"])
    def test_an_output_that_cannot_be_written(self, tmp_path: Path, folder: str) -> None:
        with pytest.raises(StorageError):
            convert(catalog.path("resnet34_tiny"), tmp_path / folder / "x.gguf")
        assert names(tmp_path) == []


def swap_activation(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        if node.op_type == "Tanh":
            node.op_type = "Sigmoid"


def test_require_recovered_gives_the_network_or_raises(edited: Make) -> None:
    net = require_recovered(build(load(catalog.path("resnet34_tiny"))))
    assert net.family.name == "resnet"
    with pytest.raises(MissError):
        require_recovered(build(load(edited("eres2net_tiny", swap_activation))))


def test_external_weights_are_read_and_never_moved(tmp_path: Path) -> None:
    """Weights in a file beside the model: the same GGUF, and the folder is left as it is."""
    folder = tmp_path / "model"
    folder.mkdir()
    proto = onnx.load(catalog.path("resnet34_tiny"))
    onnx.save(
        proto,
        folder / "m.onnx",
        save_as_external_data=True,
        location="m.onnx.data",
        size_threshold=100,
    )
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    done = convert(folder / "m.onnx", tmp_path / "x.gguf", name="m")
    assert done.proof
    convert(catalog.path("resnet34_tiny"), tmp_path / "y.gguf", name="m")
    assert (tmp_path / "x.gguf").read_bytes() == (tmp_path / "y.gguf").read_bytes()
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    (folder / "m.onnx.data").unlink()
    with pytest.raises(UnsupportedError, match="external weights are missing"):
        convert(folder / "m.onnx", tmp_path / "z.gguf")
