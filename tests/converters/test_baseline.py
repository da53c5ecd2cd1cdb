"""Goldens: the right tensors under the right names, as onnxruntime itself computes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
import soundfile
from onnx import helper, numpy_helper

from converters.audio import read_audio
from converters.baseline import Baseline, baseline
from converters.convert import convert
from converters.replay import replay
from fixtures import catalog
from graphtools.errors import UnsupportedError, UsageError

Make = Callable[..., Any]
Array = npt.NDArray[Any]

TINY = catalog.names(committed=True)
T = 298  # frames of the clip
RESNET = [f"layer{i}.{j}" for i, n in enumerate((3, 4, 6, 3), 1) for j in range(n)]
STAGES = {
    "resnet34_tiny": ["stem", *RESNET, "pooled", "encoder_out"],
    "eres2net_tiny": [
        "stem",
        *[f"layer{i}.{j}" for i, n in ((1, 3), (2, 4)) for j in range(n)],
        "fuse1",
        *[f"layer3.{j}" for j in range(6)],
        "fuse2",
        *[f"layer4.{j}" for j in range(3)],
        "fuse3",
        "pooled",
        "encoder_out",
    ],
    "campplus_tiny": [
        "fcm",
        "tdnn",
        *[f"block1.{j}" for j in range(12)],
        "transit1",
        *[f"block2.{j}" for j in range(24)],
        "transit2",
        *[f"block3.{j}" for j in range(16)],
        "transit3",
        "pooled",
        "encoder_out",
    ],
}
# The tensor of each stage in the export, by hand from the graph: what the next stage reads.
TAPS = {
    "resnet34_tiny": {
        "stem": "/model/Relu_output_0",
        **{n: f"/model/{n.split('.')[0]}/{n}/Relu_1_output_0" for n in RESNET},
        "pooled": "/model/pool/Concat_output_0",
        "encoder_out": "embs",
    },
    "eres2net_tiny": {
        "stem": "/Relu_output_0",
        "layer1.0": "/layer1/layer1.0/relu_3/Clip_output_0",
        "layer2.3": "/layer2/layer2.3/relu_3/Clip_output_0",
        "fuse1": "/fuse_mode12/Add_1_output_0",
        "fuse2": "/fuse_mode123/Add_1_output_0",
        "layer4.2": "/layer4/layer4.2/relu_3/Clip_output_0",
        "fuse3": "/fuse_mode1234/Add_1_output_0",
        "pooled": "/pool/Concat_output_0",
        "encoder_out": "embs",
    },
    "campplus_tiny": {
        "fcm": "/head/Reshape_output_0",
        "tdnn": "/xvector/tdnn/nonlinear/relu/Relu_output_0",
        "block1.0": "/xvector/block1/Concat_output_0",
        "block1.11": "/xvector/block1/Concat_11_output_0",
        "transit1": "/xvector/transit1/linear/Conv_output_0",
        "block2.23": "/xvector/block2/Concat_23_output_0",
        "transit2": "/xvector/transit2/linear/Conv_output_0",
        "transit3": "/xvector/out_nonlinear/relu/Relu_output_0",
        "pooled": "/xvector/stats/Concat_output_0",
        "encoder_out": "embs",
    },
}
FBANK = {
    "baseline.fbank.sample_rate": ("UINT32", 16000),
    "baseline.fbank.n_mels": ("UINT32", 80),
    "baseline.fbank.n_fft": ("UINT32", 512),
    "baseline.fbank.win_length": ("UINT32", 400),
    "baseline.fbank.hop_length": ("UINT32", 160),
    "baseline.fbank.preemph": ("FLOAT32", np.float32(0.97)),
    "baseline.fbank.low_freq": ("FLOAT32", 20.0),
    "baseline.fbank.high_freq": ("FLOAT32", 0.0),
    "baseline.fbank.use_energy": ("BOOL", False),
    "baseline.fbank.cmn": ("BOOL", True),
    "baseline.fbank.window": ("STRING", "povey"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("baseline")


@pytest.fixture(scope="module")
def goldens(folder: Path, raw: Make) -> Callable[..., tuple[Baseline, Any]]:
    """The result and the file as gguf's reader sees it, of a tiny export on the shipped clip."""
    done: dict[tuple[str, str], tuple[Baseline, Any]] = {}

    def make(name: str, rule: Any = "kernel") -> tuple[Baseline, Any]:
        if (name, rule) not in done:
            path = folder / f"{name}-{rule}.gguf"
            result = baseline(catalog.path(name), catalog.SPEECH, path, name="model", seg_pool=rule)
            done[name, rule] = (result, raw(path))
        return done[name, rule]

    return make


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", TINY)
def test_metadata_has_every_key_with_its_type(name: str, goldens: Make) -> None:
    _, file = goldens(name)
    pool = {"baseline.seg_pool": ("STRING", "kernel")} if name == "campplus_tiny" else {}
    arch = {"resnet34_tiny": "wespeaker_resnet34", "eres2net_tiny": "eres2net"}
    version = onnxruntime.__version__
    expected = {
        "general.architecture": ("STRING", "voicedetect-baseline"),
        "general.name": ("STRING", "model"),
        "baseline.arch": ("STRING", arch.get(name, "campplus")),
        "baseline.model_sha256": ("STRING", sha256(catalog.path(name))),
        "baseline.audio_name": ("STRING", "speech.wav"),
        "baseline.audio_sha256": ("STRING", sha256(catalog.SPEECH)),
        "baseline.reference": ("STRING", f"onnxruntime {version}"),
        **pool,
        **FBANK,
    }
    lists = {
        "baseline.stages": ["ARRAY", "STRING"],
        "baseline.stage_weights": ["ARRAY", "STRING"],
        "baseline.noise": ["ARRAY", "FLOAT32"],
    }
    assert {k: v for k, v in file.types.items() if k in lists} == lists
    found = {k: (file.types[k][0], file.values[k]) for k in file.types if k not in lists}
    assert found == expected
    assert all(len(file.values[key]) == len(STAGES[name]) for key in lists)


@pytest.mark.parametrize("name", TINY)
def test_tensors_are_the_front_end_the_stages_and_the_embedding(name: str, goldens: Make) -> None:
    result, file = goldens(name)
    assert file.values["baseline.stages"] == STAGES[name]
    assert list(file.tensors) == ["fbank_raw", "fbank", *STAGES[name], "embedding"]
    assert set(file.kinds.values()) == {"F32"}
    assert list(result.stages) == STAGES[name]
    assert all(result.stages[s][0] == file.tensors[s].shape for s in STAGES[name])


def test_shapes_have_no_batch_axis(goldens: Make) -> None:
    shapes = {name: {n: v.shape for n, v in goldens(name)[1].tensors.items()} for name in TINY}
    resnet, eres2net, campplus = (shapes[name] for name in TINY)
    for one in (resnet, eres2net, campplus):
        assert one["fbank_raw"] == one["fbank"] == (80, T)
        assert one["encoder_out"] == one["embedding"] == (32,)
    assert resnet["stem"] == resnet["layer1.2"] == (4, 80, T)
    assert resnet["layer2.0"] == (8, 40, 149)
    assert resnet["layer4.2"] == (32, 10, 38)
    assert resnet["pooled"] == (640,)
    assert eres2net["stem"] == (4, 80, T)
    assert eres2net["layer1.0"] == (8, 80, T)
    assert eres2net["fuse1"] == (16, 40, 149)
    assert eres2net["fuse3"] == (64, 10, 38)
    assert eres2net["pooled"] == (1280,)
    assert campplus["fcm"] == (40, T)
    assert campplus["tdnn"] == (12, 149)
    assert campplus["block1.0"] == (15, 149)  # the concatenation after that layer
    assert campplus["block1.11"] == (48, 149)
    assert campplus["transit1"] == (24, 149)
    assert campplus["pooled"] == (2 * campplus["transit3"][0],)


@pytest.mark.parametrize("name", TINY)
def test_stage_values_are_onnxruntimes_own(name: str, goldens: Make, speech: Array) -> None:
    """An independent run, with the taps named by hand, of the export as it is."""
    proto = onnx.load(catalog.path(name))
    if name == "campplus_tiny":
        divide_by_the_kernel(proto)
    del proto.graph.output[:]
    taps = TAPS[name]
    proto.graph.output.extend(onnx.ValueInfoProto(name=tensor) for tensor in taps.values())
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = session.run(list(taps.values()), {"feats": speech[None]})
    _, file = goldens(name)
    exact = 0
    for stage, value in zip(taps, found, strict=True):
        golden = file.tensors[stage]
        value = value[0] if value.shape[0] == 1 and value.ndim > 1 else value
        value = value.reshape(golden.shape)
        # Only what another spelling of the segment mean rounds otherwise may differ.
        np.testing.assert_allclose(golden, value, rtol=1e-4, atol=1e-4 * np.abs(value).max())
        exact += np.array_equal(golden, value)
    # The same runtime with the same settings gives the same bits; a replay's would differ.
    assert exact >= (2 if name == "campplus_tiny" else len(taps))


def divide_by_the_kernel(proto: onnx.ModelProto) -> None:
    """Spell the segment mean out as a matrix product, which no runtime reads another way.

    298 frames are 149 after the stride: segments of 100 and 49, both divided by 100.
    """
    shares = np.zeros((149, 2), np.float32)
    shares[:100, 0] = shares[100:, 1] = 0.01
    proto.graph.initializer.append(numpy_helper.from_array(shares, "shares"))
    for index, node in enumerate(proto.graph.node):
        if node.op_type == "AveragePool":
            mean = helper.make_node("MatMul", [node.input[0], "shares"], list(node.output))
            proto.graph.node.remove(node)
            proto.graph.node.insert(index, mean)


@pytest.mark.parametrize("name", TINY)
def test_the_front_end_is_stored_raw_and_mean_subtracted(
    name: str, goldens: Make, speech: Array
) -> None:
    _, file = goldens(name)
    np.testing.assert_array_equal(file.tensors["fbank"], speech.T)
    raw_mean = file.tensors["fbank_raw"].astype(np.float64).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(
        file.tensors["fbank"], file.tensors["fbank_raw"] - raw_mean, rtol=0, atol=1e-5
    )
    silent = file.tensors["fbank_raw"][:, 130:170]
    np.testing.assert_allclose(silent, np.log(np.finfo(np.float32).eps), rtol=1e-5)


@pytest.mark.parametrize("name", TINY)
def test_the_embedding_has_unit_length_and_is_the_replays(
    name: str, goldens: Make, speech: Array, manifest_of: Make, written: Make, folder: Path
) -> None:
    result, file = goldens(name)
    embedding, out = file.tensors["embedding"], file.tensors["encoder_out"]
    assert np.linalg.norm(embedding.astype(np.float64)) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(embedding * np.linalg.norm(out), out, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result.embedding, embedding)
    np.testing.assert_array_equal(result.encoder_out, out)
    path = written(manifest_of(catalog.path(name)), folder / f"{name}.gguf")
    np.testing.assert_allclose(embedding, replay(path, speech).embedding, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", TINY)
def test_noise_is_the_distance_to_the_float64_replay(
    name: str, goldens: Make, speech: Array, manifest_of: Make
) -> None:
    from converters.replay import Replay

    result, file = goldens(name)
    ours: dict[str, Array] = {}
    Replay.of(manifest_of(catalog.path(name))).run(
        speech, lambda stage, x: ours.setdefault(stage, x)
    )
    for stage, noise in zip(STAGES[name], file.values["baseline.noise"], strict=True):
        far = np.abs(file.tensors[stage].astype(np.float64) - ours[stage]).max()
        assert noise == pytest.approx(far, rel=1e-6), stage
        assert 0 < noise < 1e-2 * (1 + np.abs(ours[stage]).max()), stage
        assert result.stages[stage][1] == pytest.approx(noise, rel=1e-6)


@pytest.mark.parametrize("name", TINY)
def test_stage_weights_are_the_manifests_tensors_in_pull_order(
    name: str, goldens: Make, manifest_of: Make
) -> None:
    _, file = goldens(name)
    by_stage = [text.split("\n") if text else [] for text in file.values["baseline.stage_weights"]]
    listed = [weight for weights in by_stage for weight in weights]
    assert listed == [t.name for t in manifest_of(catalog.path(name)).tensors]
    assert dict(zip(STAGES[name], by_stage, strict=True))["pooled"] == []


class TestSegmentPool:
    def test_both_rules_can_be_had_and_differ_behind_the_first_mask(self, goldens: Make) -> None:
        kernel, valid = (goldens("campplus_tiny", rule) for rule in ("kernel", "valid"))
        assert kernel[1].values["baseline.seg_pool"] == "kernel"
        assert valid[1].values["baseline.seg_pool"] == "valid"
        assert (kernel[0].seg_pool, valid[0].seg_pool) == ("kernel", "valid")
        for stage in ("fbank", "fcm", "tdnn"):
            np.testing.assert_array_equal(kernel[1].tensors[stage], valid[1].tensors[stage])
        one, two = kernel[1].tensors["block1.0"], valid[1].tensors["block1.0"]
        # The first segment is whole; the last, of 49 frames, is where the rules part.
        np.testing.assert_array_equal(one[:, :100], two[:, :100])
        assert np.abs(one[12:, 100:] - two[12:, 100:]).max() > 1e-3

    @pytest.mark.slow
    def test_valid_is_pytorchs(self, goldens: Make, speech: Array) -> None:
        torch = pytest.importorskip("torch")
        with torch.no_grad():
            module = catalog.EXPORTS["campplus_tiny"].module()
            wanted = module(torch.from_numpy(speech[None])).numpy()[0]
        out = goldens("campplus_tiny", "valid")[1].tensors["encoder_out"]
        np.testing.assert_allclose(out, wanted, atol=1e-3 * np.abs(wanted).max())

    @pytest.mark.parametrize("name", ["resnet34_tiny", "eres2net_tiny"])
    def test_other_networks_have_no_rule(self, name: str, goldens: Make) -> None:
        result, file = goldens(name)
        assert result.seg_pool is None
        assert "baseline.seg_pool" not in file.types


@pytest.mark.parametrize("name", TINY)
def test_the_same_run_gives_the_same_bytes(name: str, goldens: Make, folder: Path) -> None:
    goldens(name)
    again = folder / "again.gguf"
    baseline(catalog.path(name), catalog.SPEECH, again, name="model")
    assert again.read_bytes() == (folder / f"{name}-kernel.gguf").read_bytes()


@pytest.mark.parametrize("name", TINY)
def test_json_is_plain(name: str, goldens: Make) -> None:
    result, _ = goldens(name)
    back = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert list(back["stages"]) == STAGES[name]
    np.testing.assert_array_equal(np.float32(back["embedding"]), result.embedding)
    np.testing.assert_array_equal(np.float32(back["encoder_out"]), result.encoder_out)
    assert back["length"] == T


def test_the_name_is_the_path_by_default(tmp_path: Path, raw: Make) -> None:
    path = catalog.path("resnet34_tiny")
    baseline(path, catalog.SPEECH, tmp_path / "b.gguf")
    assert raw(tmp_path / "b.gguf").values["general.name"] == str(path)


class TestRefused:
    @staticmethod
    def fixed(frames: int) -> Callable[[onnx.ModelProto], None]:
        def change(proto: onnx.ModelProto) -> None:
            proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = frames

        return change

    def test_a_clip_of_another_length_than_a_fixed_export(
        self, edited: Make, tmp_path: Path
    ) -> None:
        path = edited("resnet34_tiny", self.fixed(200))
        with pytest.raises(UnsupportedError, match="one length only") as caught:
            baseline(path, catalog.SPEECH, tmp_path / "b.gguf")
        assert (caught.value.expected, caught.value.found) == ("200 frames", "298 frames")
        assert not (tmp_path / "b.gguf").exists()

    def test_a_clip_of_just_that_length_is_taken(self, edited: Make, tmp_path: Path) -> None:
        path = edited("resnet34_tiny", self.fixed(298))
        assert baseline(path, catalog.SPEECH, tmp_path / "b.gguf").length == 298

    def test_a_clip_of_another_rate(self, tmp_path: Path) -> None:
        soundfile.write(tmp_path / "a.wav", np.zeros(8000), 8000)
        with pytest.raises(UnsupportedError, match="16 kHz"):
            baseline(catalog.path("resnet34_tiny"), tmp_path / "a.wav", tmp_path / "b.gguf")
        assert not (tmp_path / "b.gguf").exists()

    @pytest.mark.parametrize("missing", ["model", "audio"])
    def test_what_is_missing(self, tmp_path: Path, missing: str) -> None:
        model = tmp_path / "m.onnx" if missing == "model" else catalog.path("resnet34_tiny")
        audio = tmp_path / "a.wav" if missing == "audio" else catalog.SPEECH
        with pytest.raises(UsageError, match="no such file"):
            baseline(model, audio, tmp_path / "b.gguf")
        assert not (tmp_path / "b.gguf").exists()

    def test_a_clip_so_short_that_its_embedding_is_no_number(self, tmp_path: Path) -> None:
        """8 frames are one after the strides: an unbiased variance of one frame."""
        rng = np.random.default_rng(0)
        soundfile.write(tmp_path / "a.wav", rng.uniform(-0.5, 0.5, 400 + 7 * 160), 16000)
        with pytest.raises(UnsupportedError):
            baseline(catalog.path("resnet34_tiny"), tmp_path / "a.wav", tmp_path / "b.gguf")
        assert not (tmp_path / "b.gguf").exists()

    def test_an_asserted_architecture_that_is_another(self, tmp_path: Path) -> None:
        with pytest.raises(UnsupportedError, match="not campplus"):
            baseline(
                catalog.path("resnet34_tiny"),
                catalog.SPEECH,
                tmp_path / "b.gguf",
                arch="campplus",
            )
        assert not (tmp_path / "b.gguf").exists()


@pytest.mark.parametrize("name", TINY)
def test_a_clip_that_the_network_is_cannot_pool_is_refused(name: str, tmp_path: Path) -> None:
    """One position has no unbiased variance."""
    clip = tmp_path / "short.wav"
    soundfile.write(clip, read_audio(catalog.SPEECH)[8000:8400], 16000)
    with pytest.raises(UnsupportedError, match="not finite at the stage pooled") as caught:
        baseline(catalog.path(name), clip, tmp_path / "b.gguf")
    assert caught.value.file == str(clip)
    assert caught.value.found == "a clip of 1 frames"
    assert not (tmp_path / "b.gguf").exists()


def test_the_proof_of_a_file_that_was_there_goes_with_it(tmp_path: Path) -> None:
    output = tmp_path / "x.gguf"
    convert(catalog.path("resnet34_tiny"), output)
    assert (tmp_path / "x.gguf.proof.json").exists()
    baseline(catalog.path("eres2net_tiny"), catalog.SPEECH, output)
    assert [p.name for p in tmp_path.iterdir()] == ["x.gguf"]
