"""What a file's metadata_props say is held against the manifest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from converters.convert import convert
from converters.metadata_props import check
from fixtures import catalog
from graphtools.errors import UnsupportedError

Make = Callable[..., Any]
HERE = Path("model.onnx")
WESPEAKER = {
    "framework": "wespeaker",
    "language": "English",
    "url": "https://github.com/wenet-e2e/wespeaker",
    "comment": "English models",
    "sample_rate": "16000",
    "output_dim": "32",
    "normalize_samples": "0",
    "feature_normalize_type": "global-mean",
}
THREE_D_SPEAKER = WESPEAKER | {"framework": "3d-speaker", "normalize_samples": "1"}


@pytest.fixture(scope="module")
def notes(manifest_of: Make) -> Callable[..., list[str]]:
    manifest = manifest_of(catalog.path("resnet34_tiny"))
    return lambda metadata: check(metadata, manifest, HERE)


def test_nothing_said_nothing_noted(notes: Make) -> None:
    assert notes({}) == []
    assert notes({"language": "English", "comment": "a model"}) == []


def test_a_3d_speaker_release_agrees(notes: Make) -> None:
    assert notes(THREE_D_SPEAKER) == []


def test_a_wespeaker_release_is_noted(notes: Make) -> None:
    scale, window = notes(WESPEAKER)
    assert "32768" in scale
    assert "silence" in scale
    assert "hamming" in window
    assert "povey" in window


def test_the_framework_alone_is_enough_for_the_window(notes: Make) -> None:
    (window,) = notes({"framework": "WeSpeaker"})
    assert "hamming" in window


@pytest.mark.parametrize(
    ("name", "said", "key"),
    [
        ("sample_rate", "8000", "voicedetect.fbank.sample_rate"),
        ("sample_rate", "16k", "voicedetect.fbank.sample_rate"),
        ("output_dim", "256", "voicedetect.embedding_dim"),
        ("feat_dim", "60", "voicedetect.fbank.n_mels"),
        ("feature_normalize_type", "utterance-std", "voicedetect.fbank.cmn"),
        ("feature_normalize_type", "none", "voicedetect.fbank.cmn"),
        ("normalize_samples", "2", "voicedetect.fbank"),
        ("window_type", "hann", "voicedetect.fbank.window"),
        ("n_mels", "40", "voicedetect.fbank.n_mels"),
        ("use_energy", "True", "voicedetect.fbank.use_energy"),
        ("preemph", "0.0", "voicedetect.fbank.preemph"),
    ],
)
def test_a_contradiction_is_refused(notes: Make, name: str, said: str, key: str) -> None:
    with pytest.raises(UnsupportedError, match=f"contradicts the manifest: {name}") as caught:
        notes(THREE_D_SPEAKER | {name: said})
    assert said in str(caught.value.found)
    assert key in str(caught.value.expected)
    assert caught.value.file == "model.onnx"


@pytest.mark.parametrize(
    "said",
    [
        {"sample_rate": "16000.0", "n_mels": "80.0"},
        {"use_energy": "False", "window_type": "Povey", "preemph": "0.970"},
        {"use_energy": "0", "normalize_samples": "True"},
    ],
)
def test_other_spellings_say_the_same(notes: Make, said: dict[str, str]) -> None:
    assert notes(said) == []


@pytest.mark.parametrize("said", ["0", "0.0", "False"])
def test_the_scale_is_noted_however_it_is_spelled(notes: Make, said: str) -> None:
    (note,) = notes({"normalize_samples": said})
    assert "32768" in note


@pytest.mark.parametrize("said", ["16000", " 16000 ", ""])
def test_spaces_and_empty_values_say_nothing_else(notes: Make, said: str) -> None:
    assert notes({"sample_rate": said}) == []


def with_props(metadata: dict[str, str]) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        for key, value in metadata.items():
            proto.metadata_props.add(key=key, value=value)

    return change


def test_convert_passes_the_notes_on(edited: Make, tmp_path: Path) -> None:
    done = convert(edited("resnet34_tiny", with_props(WESPEAKER)), tmp_path / "x.gguf")
    assert any("hamming" in note for note in done.notes)
    assert any("32768" in note for note in done.notes)


def test_convert_refuses_a_contradiction_and_writes_nothing(edited: Make, tmp_path: Path) -> None:
    path = edited("resnet34_tiny", with_props(WESPEAKER | {"output_dim": "256"}))
    with pytest.raises(UnsupportedError, match="output_dim"):
        convert(path, tmp_path / "x.gguf")
    assert [p.name for p in tmp_path.iterdir()] == ["edited.onnx"]


def test_metadata_changes_no_byte_of_the_gguf(edited: Make, tmp_path: Path) -> None:
    convert(catalog.path("resnet34_tiny"), tmp_path / "a.gguf", name="m")
    path = edited("resnet34_tiny", with_props(THREE_D_SPEAKER))
    convert(path, tmp_path / "b.gguf", name="m")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
