"""Baselines of checkpoints: the contract's tensors and metadata, computed by the library."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from converters.audio import read_audio
from converters.frontend import log_mel, mean_subtracted
from fixtures import catalog

Make = Callable[..., Any]

NAMES = ["ecapa_tdnn", "wav2vec2_emotion", "wav2vec2_age_gender"]
CONTRACT = {
    "ecapa_tdnn": [
        *("fbank_raw", "fbank", "block0_out", "block1_out", "block2_out", "block3_out"),
        *("mfa_out", "pooled", "encoder_out", "embedding"),
    ],
    "wav2vec2_emotion": [
        *("feat_extract_out", "enc_layer_0", "enc_layer_mid", "enc_layer_last"),
        *("emotion_logits", "emotion_probs"),
    ],
    "wav2vec2_age_gender": [
        *("feat_extract_out", "enc_layer_last", "age_raw", "gender_logits", "gender_probs"),
    ],
}
STRING, STRINGS, F32, FLOATS = ["STRING"], ["ARRAY", "STRING"], ["FLOAT32"], ["ARRAY", "FLOAT32"]


@pytest.fixture
def audio(tmp_path: Path) -> Make:
    """A part of the shipped clip as a WAV file; silence in it unless it is short."""

    def write(samples: int) -> Path:
        path = tmp_path / f"clip{samples}.wav"
        part = read_audio(catalog.SPEECH)[9000 : 9000 + samples]
        soundfile.write(path, part, 16000, subtype="PCM_16")
        return path

    return write


@pytest.fixture
def golden(invoke: Make, raw: Make, tmp_path: Path) -> Make:
    """The baseline of a checkpoint on a clip, as gguf's own reader has it."""

    def make(made: Any, clip: Path, *more: str) -> Any:
        options = ("--audio", clip, "--output", tmp_path / "b.gguf", *more)
        invoke("baseline", "--model", made.folder, *options, code=0)
        return raw(tmp_path / "b.gguf")

    return make


@pytest.mark.parametrize("arch", NAMES)
@pytest.mark.parametrize("samples", [20_000, 8_123])
def test_tensors_are_the_librarys_own_in_the_contracts_order(
    arch: str, samples: int, made: Any, audio: Make, golden: Make, by_library: Make
) -> None:
    clip = audio(samples)
    network = made.named(arch)
    found = golden(network, clip)
    assert list(found.tensors) == CONTRACT[arch]
    assert set(found.kinds.values()) == {"F32"}
    values = read_audio(clip)
    front: dict[str, Any] = {}
    if arch == "ecapa_tdnn":
        features = log_mel(values)
        values = mean_subtracted(features)
        front = {"fbank_raw": features.T, "fbank": values.T}
    wanted = front | by_library(network, values)
    if arch == "ecapa_tdnn":
        out = wanted["encoder_out"].astype(np.float64)
        wanted["embedding"] = out / np.linalg.norm(out)
        assert np.linalg.norm(found.tensors["embedding"]) == pytest.approx(1.0, abs=1e-6)
    for name, value in wanted.items():
        assert found.tensors[name].shape == value.shape, name
        # The same classes on the same numbers; the standardised waveform may differ in its last
        # bit, and that grows to a few 1e-6 on the way.
        scale = max(1.0, float(np.abs(value).max()))
        np.testing.assert_allclose(found.tensors[name], value, rtol=0, atol=2e-5 * scale)


def test_shapes_are_channels_by_time(made: Any, audio: Make, golden: Make) -> None:
    clip = audio(8_000)
    frames, steps = (8_000 - 400) // 160 + 1, 8_000
    for kernel, stride in ((10, 5), (8, 4), (4, 4)):
        steps = (steps - kernel) // stride + 1
    shapes = {n: t.shape for n, t in golden(made.ecapa(), clip).tensors.items()}
    assert shapes == {
        "fbank_raw": (80, frames),
        "fbank": (80, frames),
        **{f"block{i}_out": (32, frames) for i in range(4)},
        "mfa_out": (96, frames),
        "pooled": (192,),
        "encoder_out": (24,),
        "embedding": (24,),
    }
    shapes = {n: t.shape for n, t in golden(made.wav2vec2("emotion"), clip).tensors.items()}
    assert shapes == {
        "feat_extract_out": (24, steps),
        **{f"enc_layer_{at}": (48, steps) for at in ("0", "mid", "last")},
        "emotion_logits": (4,),
        "emotion_probs": (4,),
    }
    shapes = {n: t.shape for n, t in golden(made.wav2vec2("age_gender"), clip).tensors.items()}
    assert shapes == {
        "feat_extract_out": (24, steps),
        "enc_layer_last": (48, steps),
        "age_raw": (1,),
        "gender_logits": (3,),
        "gender_probs": (3,),
    }


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_the_middle_layer_is_half_of_them_rounded_down(
    layers: int, made: Any, audio: Make, golden: Make
) -> None:
    """Against the states that the library lists, by index; of one layer it is what goes in."""
    import torch
    from transformers import Wav2Vec2FeatureExtractor

    network = made.wav2vec2("emotion", num_hidden_layers=layers)
    clip = audio(8_123)
    found = golden(network, clip).tensors
    assert sorted(found) == sorted(CONTRACT["wav2vec2_emotion"])
    extract = Wav2Vec2FeatureExtractor(do_normalize=True)
    wave = extract(read_audio(clip), sampling_rate=16000, return_tensors="pt").input_values
    with torch.no_grad():
        states = network.module.wav2vec2(wave, output_hidden_states=True).hidden_states
    assert len(states) == layers + 1
    for name, index in (("0", 1), ("mid", layers // 2), ("last", layers)):
        state = states[index][0].T.numpy()
        np.testing.assert_allclose(found[f"enc_layer_{name}"], state, rtol=0, atol=5e-5)


def test_a_short_faint_clip_shows_how_the_waveform_is_standardised(
    made: Any, tmp_path: Path, golden: Make, by_library: Make
) -> None:
    """The variance is over n, not n - 1, and 1e-7 is added: both matter here, and only where no
    norm takes the scale out again."""
    network = made.wav2vec2("emotion", feat_extract_norm="layer", conv_bias=True)
    clip = tmp_path / "short.wav"
    part = 1e-3 * read_audio(catalog.SPEECH)[9000:9600]
    soundfile.write(clip, part, 16000, subtype="FLOAT")
    found = golden(network, clip).tensors
    wanted = by_library(network, read_audio(clip))
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-4, err_msg=name)


class TestMetadata:
    COMMON = ("arch", "model_sha256", "audio_name", "audio_sha256", "reference")

    @pytest.mark.parametrize("arch", NAMES)
    def test_says_of_what_and_by_what_it_was_made(
        self, arch: str, made: Any, audio: Make, golden: Make
    ) -> None:
        network, clip = made.named(arch), audio(8_000)
        found = golden(network, clip)
        library = "speechbrain" if arch == "ecapa_tdnn" else "transformers"
        assert found.values["general.architecture"] == "voicedetect-baseline"
        assert found.values["general.name"] == str(network.folder)
        assert found.values["baseline.arch"] == arch
        assert found.values["baseline.audio_name"] == "clip8000.wav"
        assert (
            found.values["baseline.audio_sha256"] == hashlib.sha256(clip.read_bytes()).hexdigest()
        )
        assert found.values["baseline.reference"] == f"{library} {version(library)}"
        assert {tuple(found.types[f"baseline.{k}"]) for k in self.COMMON} == {("STRING",)}

    @pytest.mark.parametrize("arch", NAMES)
    def test_lists_the_stages_with_their_weights_and_noise(
        self, arch: str, made: Any, audio: Make, golden: Make, gguf_of: Make, raw: Make
    ) -> None:
        network = made.named(arch)
        found = golden(network, audio(8_000))
        keys = ("stages", "stage_weights", "noise")
        stages, weights, noise = (found.values[f"baseline.{k}"] for k in keys)
        assert [found.types[f"baseline.{k}"] for k in keys] == [STRINGS, STRINGS, FLOATS]
        computed = [n for n in CONTRACT[arch] if n not in ("fbank_raw", "fbank", "embedding")]
        assert stages == computed
        assert len(weights) == len(noise) == len(stages)
        assert all(0 < v < 1e-4 for v in noise)  # measured: 1e-8 to 1e-5
        stored = set(raw(gguf_of(network.folder)).tensors)
        listed = [name for line in weights for name in line.split("\n") if name]
        assert len(listed) == len(set(listed))
        unused = {n for n in stored if "masked_spec" in n or n.startswith("mean_var_norm")}
        assert set(listed) == stored - unused

    def test_of_a_checkpoint_of_several_files_has_a_digest_of_each(
        self, made: Any, audio: Make, golden: Make
    ) -> None:
        network = made.wav2vec2("emotion", {"shards": 3})
        found = golden(network, audio(8_000)).values["baseline.model_sha256"]
        files = sorted(network.folder.glob("*.safetensors"))
        assert found.split(",") == [hashlib.sha256(f.read_bytes()).hexdigest() for f in files]

    def test_of_emotion(self, made: Any, audio: Make, golden: Make) -> None:
        found = golden(made.wav2vec2("emotion"), audio(20_000))
        labels = ["neu", "hap", "ang", "sad"]
        assert found.types["baseline.emotion_labels"] == STRINGS
        assert found.values["baseline.emotion_labels"] == labels
        assert found.types["baseline.dominant_emotion"] == STRING
        best = labels[int(found.tensors["emotion_probs"].argmax())]
        assert found.values["baseline.dominant_emotion"] == best
        assert best != labels[0]  # else a constant would do
        assert found.tensors["emotion_probs"].sum() == pytest.approx(1.0, abs=1e-6)
        assert not [k for k in found.types if "gender" in k or "age_years" in k or "fbank" in k]

    def test_of_age_and_gender(self, made: Any, audio: Make, golden: Make) -> None:
        found = golden(made.wav2vec2("age_gender"), audio(20_000))
        labels = ["female", "male", "child"]
        assert found.types["baseline.gender_labels"] == STRINGS
        assert found.values["baseline.gender_labels"] == labels
        assert found.types["baseline.dominant_gender"] == STRING
        best = labels[int(found.tensors["gender_probs"].argmax())]
        assert found.values["baseline.dominant_gender"] == best
        assert found.types["baseline.age_years"] == F32
        years = 100.0 * float(found.tensors["age_raw"][0])
        assert found.values["baseline.age_years"] == pytest.approx(years, rel=1e-6)
        assert abs(years) > 1.0
        assert not [k for k in found.types if "emotion" in k or "fbank" in k]

    def test_of_ecapa_has_the_front_end(self, made: Any, audio: Make, golden: Make) -> None:
        found = golden(made.ecapa(), audio(8_000))
        assert found.values["baseline.fbank.window"] == "povey"
        assert found.values["baseline.fbank.n_mels"] == 80
        assert found.types["baseline.fbank.sample_rate"] == ["UINT32"]
        assert len([k for k in found.types if k.startswith("baseline.fbank.")]) == 11


class TestCall:
    @pytest.mark.parametrize(
        ("arch", "flag"),
        [("wav2vec2_emotion", "--analyze"), ("wav2vec2_age_gender", "--age-gender")],
    )
    def test_aliases_work_as_on_convert(
        self, arch: str, flag: str, made: Any, audio: Make, golden: Make
    ) -> None:
        found = golden(made.named(arch), audio(8_000), flag)
        assert found.values["baseline.arch"] == arch

    def test_a_wrong_one_is_refused(
        self, made: Any, audio: Make, invoke: Make, tmp_path: Path
    ) -> None:
        options = ("--audio", audio(8_000), "--output", "b.gguf", "--age-gender")
        ran = invoke("baseline", "--model", made.wav2vec2("emotion").folder, *options, code=3)
        assert "not wav2vec2_age_gender" in ran.err
        assert not (tmp_path / "b.gguf").exists()

    @pytest.mark.parametrize("arch", NAMES)
    def test_the_replay_of_the_converted_file_agrees(
        self, arch: str, made: Any, audio: Make, golden: Make, invoke: Make
    ) -> None:
        """The main job of the command line: convert, baseline, replay."""
        network, clip = made.named(arch), audio(20_000)
        found = golden(network, clip).tensors
        invoke("convert", "--model", network.folder, "--output", "x.gguf", code=0)
        ran = invoke("replay", "x.gguf", "--audio", clip, "--json", code=0)
        outputs = {k: v for k, v in ran.json.items() if k in found}
        assert len(outputs) >= 2
        for name, value in outputs.items():
            np.testing.assert_allclose(value, found[name], rtol=0, atol=2e-5, err_msg=name)

    @pytest.mark.parametrize("arch", NAMES)
    @pytest.mark.parametrize("samples", [7, 420, 1_000])
    def test_a_clip_that_is_too_short_is_refused(
        self, arch: str, samples: int, made: Any, audio: Make, invoke: Make, tmp_path: Path
    ) -> None:
        """Or long enough, of a network that takes it: but never an error of the library's."""
        options = ("--audio", audio(samples), "--output", "b.gguf")
        ran = invoke("baseline", "--model", made.named(arch).folder, *options)
        assert ran.code in (0, 3), ran.err
        assert (tmp_path / "b.gguf").exists() == (ran.code == 0)

    def test_the_same_call_gives_the_same_bytes(
        self, made: Any, audio: Make, invoke: Make, tmp_path: Path
    ) -> None:
        clip = audio(8_000)
        for name in ("a.gguf", "b.gguf"):
            options = ("--audio", clip, "--output", name)
            invoke("baseline", "--model", made.wav2vec2("emotion").folder, *options, code=0)
        assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
