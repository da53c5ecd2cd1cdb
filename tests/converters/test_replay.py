"""The replay: from a GGUF alone to the embedding of the source."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from converters.compare import cosine
from converters.replay import Replay, audio_input, read_array, replay
from fixtures import catalog
from graphtools.errors import UnsupportedError, UsageError

Make = Callable[..., Any]
Array = npt.NDArray[Any]

TINY = catalog.names(committed=True)
ENCODERS = ["resnet34_tiny", "eres2net_tiny"]  # no partial segments: any runtime's rule will do


@pytest.fixture(scope="module")
def files(
    manifest_of: Make, written: Make, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("replay")
    return {
        name: written(manifest_of(catalog.path(name)), folder / f"{name}.gguf") for name in TINY
    }


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("frames", [298, 150, 33, 17])
def test_gives_what_onnxruntime_gives(
    name: str, frames: int, files: dict[str, Path], speech: Array
) -> None:
    features = speech[:frames] - speech[:frames].mean(axis=0)
    session = onnxruntime.InferenceSession(catalog.path(name), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"feats": features[None].astype(np.float32)})
    done = replay(files[name], features.astype(np.float32))
    assert done.length == frames
    # float32 noise of the whole network; the embedding's direction is what counts.
    assert cosine(done.encoder_out, wanted[0]) > 0.99999
    np.testing.assert_allclose(done.encoder_out, wanted[0], atol=1e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("name", TINY)
def test_the_embedding_has_unit_length(name: str, files: dict[str, Path], speech: Array) -> None:
    done = replay(files[name], speech)
    assert done.embedding.shape == done.encoder_out.shape == (32,)
    assert done.embedding.dtype == np.float64
    assert np.linalg.norm(done.embedding) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(
        done.embedding * np.linalg.norm(done.encoder_out), done.encoder_out, rtol=1e-12
    )


def test_the_file_alone_is_enough(
    edited: Make, manifest_of: Make, written: Make, speech: Array, tmp_path: Path
) -> None:
    source = edited("resnet34_tiny", lambda proto: None)
    file = written(manifest_of(source), tmp_path / "x.gguf")
    before = replay(file, speech).embedding
    source.unlink()
    np.testing.assert_array_equal(replay(str(file), speech).embedding, before)


def test_is_the_same_every_time(files: dict[str, Path], speech: Array) -> None:
    one, two = (replay(files["campplus_tiny"], speech) for _ in range(2))
    np.testing.assert_array_equal(one.encoder_out, two.encoder_out)


def test_integers_and_doubles_are_features_too(files: dict[str, Path], speech: Array) -> None:
    wanted = replay(files["resnet34_tiny"], speech).embedding
    np.testing.assert_array_equal(
        replay(files["resnet34_tiny"], speech.astype(np.float64)).embedding, wanted
    )
    rounded = np.round(speech)
    np.testing.assert_array_equal(
        replay(files["resnet34_tiny"], rounded.astype(np.int64)).embedding,
        replay(files["resnet34_tiny"], rounded).embedding,
    )


def test_json_has_both_embeddings(files: dict[str, Path], speech: Array) -> None:
    done = replay(files["resnet34_tiny"], speech)
    back = json.loads(json.dumps(done.to_json(), allow_nan=False))
    np.testing.assert_array_equal(back["embedding"], done.embedding)
    np.testing.assert_array_equal(back["encoder_out"], done.encoder_out)


def test_a_clip_becomes_the_features_of_the_schema(files: dict[str, Path], speech: Array) -> None:
    np.testing.assert_array_equal(audio_input(files["resnet34_tiny"], catalog.SPEECH), speech)


def test_the_manifests_strides_are_used(
    manifest_of: Make, written: Make, speech: Array, tmp_path: Path, files: dict[str, Path]
) -> None:
    """Not what the forward would say by itself."""
    manifest = manifest_of(catalog.path("eres2net_tiny"))
    key = "voicedetect.eres2net.conv_stride"
    strides = list(manifest[key])
    strides[0] = 2
    entries = tuple(
        replace(e, value=tuple(strides)) if e.key == key else e for e in manifest.entries
    )
    changed = written(replace(manifest, entries=entries), tmp_path / "x.gguf")
    stems: list[Array] = []

    def keep(stage: str, value: Array) -> Array:
        stems.append(value)
        raise StopIteration

    for file in (files["eres2net_tiny"], changed):
        from converters import gguf_file

        with pytest.raises(StopIteration):
            Replay.of(gguf_file.read(file)).run(speech, keep)
    assert stems[0].shape == (4, 80, 298)
    assert stems[1].shape == (4, 40, 149)


@pytest.mark.parametrize(
    "shape", [(298, 79), (298, 81), (80, 298), (298,), (1, 298, 80), (0, 80), (80,), ()]
)
def test_features_of_another_shape_are_refused(
    files: dict[str, Path], shape: tuple[int, ...]
) -> None:
    with pytest.raises(UnsupportedError, match="does not fit the model") as caught:
        replay(files["resnet34_tiny"], np.zeros(shape, np.float32))
    assert caught.value.expected == "[frames, 80]"
    assert caught.value.found == str(list(shape))


@pytest.mark.parametrize("frames", [1, 8])
def test_too_few_frames_give_no_embedding_and_say_so(
    frames: int, files: dict[str, Path], speech: Array
) -> None:
    """One is left after the strides: its unbiased variance is no number, in the source as well."""
    with pytest.raises(UnsupportedError):
        replay(files["resnet34_tiny"], speech[:frames])


@pytest.mark.parametrize("key", ["voicedetect.arch", "voicedetect.fbank.n_mels"])
def test_a_gguf_of_another_kind_is_refused(
    key: str, manifest_of: Make, written: Make, speech: Array, tmp_path: Path
) -> None:
    manifest = manifest_of(catalog.path("resnet34_tiny"))
    entries = tuple(e for e in manifest.entries if e.key != key)
    file = written(replace(manifest, entries=entries), tmp_path / "x.gguf")
    with pytest.raises(UnsupportedError, match=key):
        replay(file, speech)


def test_an_unknown_architecture_is_refused(
    manifest_of: Make, written: Make, speech: Array, tmp_path: Path
) -> None:
    manifest = manifest_of(catalog.path("resnet34_tiny"))
    entries = tuple(
        replace(e, value="ecapa2") if e.key == "voicedetect.arch" else e for e in manifest.entries
    )
    file = written(replace(manifest, entries=entries), tmp_path / "x.gguf")
    with pytest.raises(UnsupportedError, match="unknown architecture 'ecapa2'") as caught:
        replay(file, speech)
    assert "wespeaker_resnet34" in str(caught.value.expected)


def test_a_missing_file_is_a_wrong_call(tmp_path: Path, speech: Array) -> None:
    with pytest.raises(UsageError, match="no such file"):
        replay(tmp_path / "absent.gguf", speech)


class TestReadArray:
    def test_gives_the_array(self, tmp_path: Path, speech: Array) -> None:
        np.save(tmp_path / "f.npy", speech)
        np.testing.assert_array_equal(read_array(tmp_path / "f.npy"), speech)
        np.testing.assert_array_equal(read_array(str(tmp_path / "f.npy")), speech)

    def test_a_missing_file_is_a_wrong_call(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no such file"):
            read_array(tmp_path / "absent.npy")

    @pytest.mark.parametrize(
        "content",
        [b"", b"\x93NUMPY", b"text, not numpy\n" * 10, bytes(500), b"\x80\x04N.", b"PK\x03\x04"],
    )
    def test_what_is_not_npy_is_refused(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "f.npy").write_bytes(content)
        with pytest.raises(UnsupportedError):
            read_array(tmp_path / "f.npy")

    @pytest.mark.parametrize("keep", [11, 90, 127, 128, 130, 1000])
    def test_a_cut_file_is_refused(self, tmp_path: Path, speech: Array, keep: int) -> None:
        stream = io.BytesIO()
        np.save(stream, speech)
        (tmp_path / "f.npy").write_bytes(stream.getvalue()[:keep])
        with pytest.raises(UnsupportedError):
            read_array(tmp_path / "f.npy")

    def test_pickled_objects_are_never_loaded(self, tmp_path: Path) -> None:
        values = np.array([Bomb()], dtype=object)
        np.save(tmp_path / "f.npy", values, allow_pickle=True)
        Bomb.went_off = False
        with pytest.raises(UnsupportedError, match=r"not a \.npy array"):
            read_array(tmp_path / "f.npy")
        assert not Bomb.went_off

    def test_an_archive_of_arrays_is_refused(self, tmp_path: Path) -> None:
        with (tmp_path / "f.npy").open("wb") as stream:
            np.savez(stream, a=np.zeros((3, 80)))
        with pytest.raises(UnsupportedError, match="one array"):
            read_array(tmp_path / "f.npy")

    @pytest.mark.parametrize(
        "values",
        [np.array(["a", "b"]), np.array([1j]), np.array([True]), np.zeros(2, "M8[s]")],
    )
    def test_what_is_no_number_is_refused(self, tmp_path: Path, values: Array) -> None:
        np.save(tmp_path / "f.npy", values)
        with pytest.raises(UnsupportedError, match="numbers"):
            read_array(tmp_path / "f.npy")

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_values_that_are_not_finite_are_refused(self, tmp_path: Path, bad: float) -> None:
        values = np.zeros((5, 80), np.float32)
        values[3, 7] = bad
        np.save(tmp_path / "f.npy", values)
        with pytest.raises(UnsupportedError, match="not finite"):
            read_array(tmp_path / "f.npy")


class Bomb:
    """Shows whether a pickle was loaded."""

    went_off = False

    def __setstate__(self, state: object) -> None:
        Bomb.went_off = True
