"""``graphtools convert``, ``baseline`` and ``replay``: the main job from the command line."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from converters.baseline import baseline
from converters.convert import convert
from converters.replay import replay
from fixtures import catalog

Make = Callable[..., Any]
MAIN = "from converters.cli import main; main()"
TINY = catalog.names(committed=True)


@pytest.mark.parametrize("name", TINY)
def test_the_main_job(name: str, graphtools: Make, raw: Make, tmp_path: Path) -> None:
    """In processes of their own: inspect, convert, baseline, replay; the embeddings agree."""
    shutil.copy(catalog.path(name), tmp_path / "model.onnx")
    audio = ("--audio", catalog.SPEECH)
    done = graphtools("convert", "--model", "model.onnx", "--output", "m.gguf", code=0)
    assert "proven against onnxruntime" in done.out
    assert "wrote m.gguf" in done.out
    assert "wrote m.gguf.proof.json" in done.out
    assert raw(tmp_path / "m.gguf").values["general.name"] == "model.onnx"
    graphtools("baseline", "--model", "model.onnx", *audio, "--output", "b.gguf", code=0)
    (tmp_path / "model.onnx").unlink()  # the GGUF alone is enough from here on
    ran = graphtools("replay", "m.gguf", *audio, "--json", code=0)
    golden = raw(tmp_path / "b.gguf").tensors
    np.testing.assert_allclose(ran.json["embedding"], golden["embedding"], rtol=0, atol=1e-5)
    assert {"embedding", "encoder_out"} <= set(ran.json)


class TestConvert:
    def test_json_is_the_twins(self, invoke: Make, tmp_path: Path) -> None:
        path = catalog.path("campplus_tiny")
        ran = invoke("convert", "--model", path, "--output", tmp_path / "x.gguf", "--json", code=0)
        twin = convert(path, tmp_path / "x.gguf", name=str(path))
        assert ran.json == json.loads(json.dumps(twin.to_json()))
        assert ran.err == ""

    def test_out_is_output(self, invoke: Make, tmp_path: Path) -> None:
        invoke("convert", "--model", catalog.path("resnet34_tiny"), "--out", "x.gguf", code=0)
        assert (tmp_path / "x.gguf").exists()

    def test_the_right_architecture_is_accepted(self, invoke: Make) -> None:
        invoke(
            "convert", "--model", catalog.path("resnet34_tiny"), "--output", "x.gguf",
            "--arch", "wespeaker_resnet34", code=0,
        )  # fmt: skip

    def test_without_proof_it_says_so(self, invoke: Make, tmp_path: Path) -> None:
        ran = invoke(
            "convert", "--model", catalog.path("resnet34_tiny"), "--output", "x.gguf",
            "--verify", "none", code=0,
        )  # fmt: skip
        assert "NOT PROVEN" in ran.out
        assert not (tmp_path / "x.gguf.proof.json").exists()

    def test_both_segment_rules_and_their_distance_are_printed(self, invoke: Make) -> None:
        ran = invoke(
            "convert", "--model", catalog.path("campplus_tiny"), "--output", "x.gguf", code=0
        )
        assert "segment rule kernel" in ran.out
        assert "segment rule valid" in ran.out
        assert "1 - cosine = 0.0" in ran.out
        assert "left out" in ran.out

    def test_notes_are_printed(self, edited: Make, invoke: Make) -> None:
        def change(proto: onnx.ModelProto) -> None:
            proto.metadata_props.add(key="framework", value="wespeaker")

        path = edited("resnet34_tiny", change)
        ran = invoke("convert", "--model", path, "--output", "x.gguf", code=0)
        assert "note: WeSpeaker trains with a hamming window" in ran.out

    def test_an_unproven_value_is_refused_unless_allowed(
        self, edited: Make, invoke: Make, tmp_path: Path
    ) -> None:
        def change(proto: onnx.ModelProto) -> None:
            bounds = {n.input[2] for n in proto.graph.node if n.op_type == "Clip"}
            for node in proto.graph.node:
                if node.op_type == "Constant" and node.output[0] in bounds:
                    node.attribute[0].t.CopyFrom(numpy_helper.from_array(np.float32(1e6)))

        call = ("convert", "--model", edited("eres2net_tiny", change), "--output", "x.gguf")
        key = "voicedetect.eres2net.relu_clamp"
        ran = invoke(*call, code=3)
        assert key in ran.err
        assert f"--allow-unproven {key}" in ran.err
        assert not (tmp_path / "x.gguf").exists()
        ran = invoke(*call, "--allow-unproven", key, code=0)
        assert f"unproven, allowed by you: {key}" in ran.out
        stored = json.loads((tmp_path / "x.gguf.proof.json").read_text())
        assert stored["allowed_unproven"] == [key]

    def test_a_folder_with_one_model(self, invoke: Make, raw: Make, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        shutil.copy(catalog.path("resnet34_tiny"), tmp_path / "folder" / "a.onnx")
        invoke("convert", "--model", "folder", "--output", "x.gguf", code=0)
        assert raw(tmp_path / "x.gguf").values["general.name"] == "folder"
        shutil.copy(catalog.path("eres2net_tiny"), tmp_path / "folder" / "b.onnx")
        ran = invoke("convert", "--model", "folder", "--output", "x.gguf", code=2)
        assert "a.onnx, b.onnx" in ran.err
        invoke("convert", "--model", "folder", "--output", "x.gguf", "--file", "b.onnx", code=0)
        assert raw(tmp_path / "x.gguf").values["voicedetect.arch"] == "eres2net"


class TestBaseline:
    @pytest.mark.parametrize("rule", ["kernel", "valid"])
    def test_json_is_the_twins(self, rule: Any, invoke: Make, tmp_path: Path) -> None:
        path, output = catalog.path("campplus_tiny"), tmp_path / "b.gguf"
        ran = invoke(
            "baseline", "--model", path, "--audio", catalog.SPEECH, "--output", output,
            "--seg-pool", rule, "--json", code=0,
        )  # fmt: skip
        twin = baseline(path, catalog.SPEECH, output, name=str(path), seg_pool=rule)
        assert ran.json == json.loads(json.dumps(twin.to_json()))
        assert ran.json["seg_pool"] == rule

    def test_prints_a_table_of_stages(self, invoke: Make) -> None:
        ran = invoke(
            "baseline", "--model", catalog.path("resnet34_tiny"), "--audio", catalog.SPEECH,
            "--output", "b.gguf", code=0,
        )  # fmt: skip
        (row,) = (line for line in ran.out.splitlines() if line.startswith("layer2.0"))
        assert "[8, 40, 149]" in row
        assert "298 frames" in ran.out
        assert "wrote b.gguf" in ran.out


class TestReplay:
    @pytest.fixture
    def file(self, manifest_of: Make, written: Make, tmp_path: Path) -> Path:
        path: Path = written(manifest_of(catalog.path("resnet34_tiny")), tmp_path / "m.gguf")
        return path

    def test_features_give_the_twins_json(
        self, file: Path, invoke: Make, tmp_path: Path, speech: Any
    ) -> None:
        np.save(tmp_path / "f.npy", speech)
        ran = invoke("replay", file, "--input", "f.npy", "--json", code=0)
        assert ran.json == json.loads(json.dumps(replay(file, speech).to_json()))

    def test_audio_gives_the_same(
        self, file: Path, invoke: Make, tmp_path: Path, speech: Any
    ) -> None:
        np.save(tmp_path / "f.npy", speech)
        clip = invoke("replay", file, "--audio", catalog.SPEECH, "--json", code=0).json
        assert clip == invoke("replay", file, "--input", "f.npy", "--json", code=0).json

    def test_prints_the_embedding(self, file: Path, invoke: Make) -> None:
        out = invoke("replay", file, "--audio", catalog.SPEECH, code=0).out
        assert "embedding" in out
        assert len(out.splitlines()[-1].split()) == 32

    @pytest.mark.parametrize(
        ("values", "told"),
        [
            (np.zeros((5, 79), np.float32), "[frames, 80]"),
            (np.zeros((1, 5, 80), np.float32), "[frames, 80]"),
            (np.full((5, 80), np.nan), "not finite"),
            (np.array(["a"]), "numbers"),
        ],
    )
    def test_features_that_do_not_fit(
        self, values: Any, told: str, file: Path, invoke: Make, tmp_path: Path
    ) -> None:
        np.save(tmp_path / "f.npy", values)
        ran = invoke("replay", file, "--input", "f.npy", code=3)
        assert told in ran.err

    def test_objects_in_the_features_are_not_loaded(
        self, file: Path, invoke: Make, tmp_path: Path
    ) -> None:
        np.save(tmp_path / "f.npy", np.array([{"a": 1}]), allow_pickle=True)
        assert "not a .npy array" in invoke("replay", file, "--input", "f.npy", code=3).err

    def test_the_goldens_are_no_network(self, invoke: Make) -> None:
        invoke(
            "baseline", "--model", catalog.path("resnet34_tiny"), "--audio", catalog.SPEECH,
            "--output", "b.gguf", code=0,
        )  # fmt: skip
        ran = invoke("replay", "b.gguf", "--audio", catalog.SPEECH, code=3)
        assert "voicedetect" in ran.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_command_that_is_told_to_stop_leaves_nothing(
    number: signal.Signals, environment: Make, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "convert", "--model", catalog.path("campplus_tiny"),
         "--output", tmp_path / "x.gguf"],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        # A shell that runs tests in the background has its children ignore interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    for _ in range(600):
        if list(tmp_path.iterdir()):  # the temp file is there: it is in the middle of its work
            break
        time.sleep(0.02)
    else:
        pytest.fail("nothing was written in 12 s")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert list(tmp_path.iterdir()) == []
