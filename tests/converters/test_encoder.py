"""An encoder takes features and gives an embedding, whatever file it is in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from converters.convert import convert
from converters.encoder import open_encoder
from converters.manifest import Manifest
from fixtures import catalog
from graphtools.errors import UnsupportedError

FEATURES = np.random.default_rng(0).normal(size=(120, 80)).astype(np.float32)

# The mean over time of the input, of its negative too, and a score that is no embedding.
_BODY = """
    ({input} x) => (float[1] score, float[1, {dim}] y, float[1, {dim}] negative) {{
        y = ReduceMean <axes = [{time}], keepdims = 0> (x)
        negative = Neg (y)
        score = ReduceMean <axes = [1], keepdims = 0> (y)
    }}
"""


@pytest.fixture
def foreign(tmp_path: Path) -> Callable[..., Path]:
    """A file of no known family."""

    def make(input: str, time: int, dim: int = 80) -> Path:
        body = _BODY.format(input=input, time=time, dim=dim)
        text = f'<ir_version: 8, opset_import: ["" : 13]> foreign {body}'
        onnx.save(onnx.parser.parse_model(text), tmp_path / "foreign.onnx")
        return tmp_path / "foreign.onnx"

    return make


@pytest.mark.parametrize("name", ["resnet34_tiny", "campplus_tiny"])
def test_an_export_and_its_gguf_give_the_same(
    name: str,
    manifest_of: Callable[[Path], Manifest],
    written: Callable[[Manifest, Path], Path],
    tmp_path: Path,
) -> None:
    model = catalog.path(name)
    encoder = open_encoder(model, 32)
    other = open_encoder(written(manifest_of(model), tmp_path / "model.gguf"), 32)
    assert encoder.rules == other.rules
    assert (encoder.n_mels, encoder.frames) == (other.n_mels, other.frames) == (80, None)
    for rule in encoder.rules:
        ours, theirs = encoder.embed(FEATURES, rule), other.embed(FEATURES, rule)
        assert ours.shape == theirs.shape == (32,)
        np.testing.assert_allclose(ours, theirs, atol=1e-4 * np.abs(ours).max())


def test_an_export_without_segments_gives_what_onnxruntime_does() -> None:
    model = catalog.path("eres2net_tiny")
    session = onnxruntime.InferenceSession(str(model))
    (wanted,) = session.run(None, {session.get_inputs()[0].name: FEATURES[None]})
    encoder = open_encoder(model, 32)
    assert encoder.rules == (None,)
    found = encoder.embed(FEATURES, None)
    np.testing.assert_allclose(found, wanted[0], atol=1e-3 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("input", "time", "frames"),
    [
        ("float[B, T, 80]", 1, None),
        ("float[B, T, N]", 1, None),
        ("float[1, 120, 80]", 1, 120),
        ("float[B, 80, T]", 2, None),
        ("float[1, 80, 120]", 2, 120),
    ],
)
def test_a_file_of_no_family_is_one_too(
    foreign: Callable[..., Path], input: str, time: int, frames: int | None
) -> None:
    encoder = open_encoder(foreign(input, time), 80)
    assert (encoder.n_mels, encoder.frames) == (80, frames)
    np.testing.assert_allclose(encoder.embed(FEATURES, None), FEATURES.mean(axis=0), atol=1e-6)


def test_other_bins_than_80_are_read_off_the_input(foreign: Callable[..., Path]) -> None:
    for input, time in (("float[B, T, 64]", 1), ("float[B, 64, T]", 2)):
        encoder = open_encoder(foreign(input, time, 64), 64)
        assert encoder.n_mels == 64
        found = encoder.embed(FEATURES[:, :64], None)
        np.testing.assert_allclose(found, FEATURES[:, :64].mean(axis=0), atol=1e-6)


def test_an_embedding_of_another_length_is_refused(
    foreign: Callable[..., Path],
    manifest_of: Callable[[Path], Manifest],
    written: Callable[[Manifest, Path], Path],
    tmp_path: Path,
) -> None:
    encoder = open_encoder(foreign("float[B, T, 80]", 1), 32)
    with pytest.raises(UnsupportedError, match="another length") as error:
        encoder.embed(FEATURES, None)
    assert error.value.found == "1, 80, 80"
    manifest = manifest_of(catalog.path("resnet34_tiny"))
    with pytest.raises(UnsupportedError, match="another length"):
        open_encoder(written(manifest, tmp_path / "model.gguf"), 64)


@pytest.mark.parametrize("input", ["float[B, T]", "float[B, 1, T, 80]"])
def test_what_takes_no_features_is_refused(tmp_path: Path, input: str) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 13]> g ({input} x) => ({input} y) {{ y = Neg(x) }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "other.onnx")
    with pytest.raises(UnsupportedError, match="the model takes no features"):
        open_encoder(tmp_path / "other.onnx", 80)


def test_a_codec_is_refused(tmp_path: Path) -> None:
    convert(catalog.HERE / "moss_tiny", tmp_path / "codec.gguf", verify="none")
    with pytest.raises(UnsupportedError, match="is no speaker encoder"):
        open_encoder(tmp_path / "codec.gguf", 80)
