"""Goldens of a codec by onnxruntime, from ONNX exports of the torch module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import soundfile
import torch

from converters.baseline import baseline
from converters.codec import codec_of
from converters.convert import convert
from converters.gguf_file import read
from fixtures import catalog
from fixtures.checkpoints import codec, codec_config, save_codec
from fixtures.export import export_codec
from graphtools.errors import UnsupportedError, UsageError

LENGTH = 480
QUANTIZERS = 5


class Made:
    """A checkpoint, its exports and a clip."""

    def __init__(self, folder: Path, channels: int, batch_first: bool) -> None:
        module = codec(codec_config(channels))
        self.folder = save_codec(module, folder / "checkpoint")
        self.channels, self.rate = channels, 9600 // channels
        self.wave = 0.3 * np.random.default_rng(8).normal(size=(channels, LENGTH))
        self.clip = folder / "clip.wav"
        soundfile.write(self.clip, self.wave.T, self.rate, "FLOAT")
        wave = torch.from_numpy(self.wave).float()
        self.codes = module.encode(wave)
        self.decoded = module.decode(self.codes).numpy()
        self.encoder, self.decoder = export_codec(module, wave, folder, batch_first=batch_first)


@pytest.fixture(scope="module", params=[(2, False), (1, True)], ids=["stereo", "mono, batch first"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("exports"), *request.param)


def test_both_ways_are_onnxruntimes(made: Made, tmp_path: Path) -> None:
    exports = (made.decoder, made.encoder)  # in any order
    done = baseline(made.folder, made.clip, tmp_path / "b.gguf", exports=exports)
    assert done.reference.startswith("onnxruntime ")
    written = read(tmp_path / "b.gguf")
    assert written["baseline.reference"] == done.reference
    assert written["baseline.stages"] == ("codes", "decoded")
    codes, decoded = written.by_name["codes"], written.by_name["decoded"]
    assert codes.dtype.label == "i32"
    np.testing.assert_array_equal(codes.read(), made.codes)
    # The same arithmetic by two float32 runtimes; samples are up to 10.
    np.testing.assert_allclose(decoded.read(), made.decoded, rtol=0, atol=1e-3)
    noise = written["baseline.noise"]
    assert isinstance(noise, tuple)
    assert noise[0] == 0.0
    assert 0.0 < float(noise[1]) < 1e-3
    assert written["baseline.model_sha256"].count(",") == 3  # type: ignore[union-attr]  # two shards, two exports


def test_one_way_alone(made: Made, tmp_path: Path) -> None:
    """The decoder is then fed the replay's codes."""
    baseline(made.folder, made.clip, tmp_path / "e.gguf", exports=[made.encoder])
    baseline(made.folder, made.clip, tmp_path / "d.gguf", exports=[made.decoder])
    assert read(tmp_path / "e.gguf")["baseline.stages"] == ("codes",)
    found = read(tmp_path / "d.gguf")
    assert found["baseline.stages"] == ("decoded",)
    np.testing.assert_allclose(found.by_name["decoded"].read(), made.decoded, rtol=0, atol=1e-3)


def test_from_the_command_line(made: Made, graphtools: Any, tmp_path: Path) -> None:
    ran = graphtools(
        "baseline", "--model", made.folder, "--audio", made.clip, "--output", "b.gguf",
        "--onnx", made.encoder, "--onnx", made.decoder, code=0,
    )  # fmt: skip
    assert "by onnxruntime" in ran.out
    assert read(tmp_path / "b.gguf")["baseline.stages"] == ("codes", "decoded")


class TestRefused:
    @pytest.fixture
    def edited(self, made: Made, tmp_path: Path) -> Callable[..., Path]:
        def make(which: str, change: Callable[[onnx.ModelProto], None]) -> Path:
            proto = onnx.load(getattr(made, which))
            change(proto)
            onnx.save(proto, tmp_path / "edited.onnx")
            return tmp_path / "edited.onnx"

        return make

    def refused(self, made: Made, tmp_path: Path, *exports: Path) -> UnsupportedError:
        with pytest.raises(UnsupportedError) as caught:
            baseline(made.folder, made.clip, tmp_path / "b.gguf", exports=exports)
        assert not (tmp_path / "b.gguf").exists()
        return caught.value

    def test_two_of_one_way(self, made: Made, tmp_path: Path) -> None:
        error = self.refused(made, tmp_path, made.encoder, made.encoder)
        assert "same way" in error.cause

    def test_more_than_one_input(self, made: Made, tmp_path: Path, edited: Any) -> None:
        extra = onnx.helper.make_tensor_value_info("lengths", 7, [1])
        path = edited("encoder", lambda proto: proto.graph.input.append(extra))
        assert "one input" in self.refused(made, tmp_path, path).cause

    def test_codes_whose_axes_are_not_told(self, made: Made, tmp_path: Path, edited: Any) -> None:
        def free(proto: onnx.ModelProto) -> None:
            for dim in proto.graph.input[0].type.tensor_type.shape.dim:
                dim.dim_param = "any"

        error = self.refused(made, tmp_path, edited("decoder", free))
        assert "which axis" in error.cause
        assert f"{QUANTIZERS} quantizers" in str(error.todo)

    def test_an_output_that_is_no_codes(self, made: Made, tmp_path: Path, edited: Any) -> None:
        def as_floats(proto: onnx.ModelProto) -> None:
            (output,) = proto.graph.output
            proto.graph.node.append(onnx.helper.make_node("Cast", [output.name], ["f"], to=1))
            output.name = "f"
            output.type.tensor_type.elem_type = 1

        error = self.refused(made, tmp_path, edited("encoder", as_floats))
        assert "one output that is codes" in error.cause
        assert "float32" in str(error.found)

    def test_of_another_length_than_the_clip(self, made: Made, tmp_path: Path) -> None:
        """A fixed export takes its own length only: onnxruntime says so."""
        shorter = tmp_path / "short.wav"
        soundfile.write(shorter, made.wave.T[:-96], made.rate, "FLOAT")
        with pytest.raises(UnsupportedError, match="onnxruntime cannot run"):
            baseline(made.folder, shorter, tmp_path / "b.gguf", exports=[made.encoder])

    def test_beside_a_model_that_is_no_codec(self, tmp_path: Path) -> None:
        model = catalog.path("resnet34_tiny")
        with pytest.raises(UsageError, match="only a codec's checkpoint"):
            baseline(model, catalog.SPEECH, tmp_path / "b.gguf", exports=[model])


def test_the_replay_is_the_reference_without_exports(made: Made, tmp_path: Path) -> None:
    baseline(made.folder, made.clip, tmp_path / "b.gguf")
    convert(made.folder, tmp_path / "c.gguf")
    written = read(tmp_path / "b.gguf")
    assert written["baseline.reference"] == "replay-f64"
    assert "baseline.noise" not in written.by_key  # nothing measured it
    ours = codec_of(tmp_path / "c.gguf").encode(made.wave.astype(np.float32))
    np.testing.assert_array_equal(written.by_name["codes"].read(), ours.output)
