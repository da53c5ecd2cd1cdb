"""A stereo codec of 9 stages a tower, and its mono twin, against the torch module stage by stage.

The module computes in float64, as the replay does, so what they differ by is what the file rounds
to float32: the fused weights of the quantizer. Weights are strong and windows short, so that a
wrong window, a lost layer scale or swapped channels are differences of whole units.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from converters.archs.checkpoint import Options
from converters.archs.moss import ARCH
from converters.checkpoint import describe_checkpoint
from converters.codec import Codec, codec_of
from converters.convert import convert
from converters.manifest import Manifest
from converters.sources.source import open_source
from fixtures.checkpoints import codec, codec_config, load_codec, save_codec
from fixtures.codec import outputs
from graphtools.errors import UnsupportedError
from graphtools.tensors import Array

# Of one channel: less than a frame, a frame of each codec (48 and 96 samples) with one more and one
# less, several frames without and with a last one that is padded.
LENGTHS = [1, 20, 47, 48, 49, 95, 96, 97, 480, 1000]
# What the rounding of the fused weights to float32 leaves at the output (measured: 1.1e-5, of
# samples up to 10, after four stages of steep attention).
ROUNDING = 1e-4
# How much farther the second row is at least: the seed is chosen for that (measured: 5.2e-3 over
# all lengths), since float32 moves the latent by up to 7e-5.
NO_TIE = 2e-3


QUANTIZER = codec_config()["quantizer_kwargs"]


@dataclass(frozen=True)
class Pair:
    """One checkpoint: its folder, its GGUF, and the module with the same weights in float64."""

    folder: Path
    gguf: Path
    codec: Codec
    module: Any


def wave(channels: int, length: int, seed: int = 8) -> Array:
    return 0.3 * np.random.default_rng([seed, length]).normal(size=(channels, length))


@pytest.fixture(scope="module")
def pair_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Pair]:
    made: dict[int, Pair] = {}

    def make(channels: int) -> Pair:
        if channels not in made:
            path = tmp_path_factory.mktemp("codec")
            folder = save_codec(codec(codec_config(channels)), path / "folder")
            assert convert(folder, path / "codec.gguf", options=Options(strict=True)).proof
            module = load_codec(folder).double()
            gguf = path / "codec.gguf"
            made[channels] = Pair(folder, gguf, codec_of(gguf), module)
        return made[channels]

    return make


@pytest.fixture(params=[2, 1], ids=["stereo", "mono"])
def pair(pair_of: Callable[[int], Pair], request: pytest.FixtureRequest) -> Pair:
    return pair_of(request.param)


@pytest.fixture
def stereo(pair_of: Callable[[int], Pair]) -> Pair:
    return pair_of(2)


class TestForward:
    @pytest.mark.parametrize("length", LENGTHS)
    def test_encoding(self, pair: Pair, length: int) -> None:
        """Every code, that of the padded last frame too, and the output of all nine stages."""
        wav = wave(pair.codec.channels, length)
        with outputs(pair.module) as expected:
            codes = pair.module.encode(torch.from_numpy(wav)).numpy()
        found = pair.codec.encode(wav)
        assert found.output.shape == codes.shape == (5, -(-length // pair.codec.downsample))
        assert found.margins is not None
        assert found.margins.min() > NO_TIE, "a tie: take another seed"
        assert (found.output == codes).all()
        assert list(expected) == [f"encoder.{i}" for i in range(9)]
        for name, value in expected.items():
            # Nothing before the quantizer is rounded.
            np.testing.assert_allclose(found.stages[name], value.numpy(), atol=1e-11, err_msg=name)
        np.testing.assert_array_equal(found.stages["latent"], found.stages["encoder.8"])

    @pytest.mark.parametrize("frames", [1, 2, 10, 21])
    def test_decoding(self, pair: Pair, frames: int) -> None:
        codes = np.random.default_rng(frames).integers(0, 32, (5, frames))
        with outputs(pair.module) as expected:
            samples = pair.module.decode(torch.from_numpy(codes)).numpy()
        found = pair.codec.decode(codes)
        assert list(expected) == [f"decoder.{i}" for i in range(9)]
        for name, value in expected.items():
            np.testing.assert_allclose(
                found.stages[name], value.numpy(), atol=ROUNDING, err_msg=name
            )
        np.testing.assert_allclose(found.output, samples, atol=ROUNDING)

    def test_float32_as_the_published_code_runs(self, pair: Pair) -> None:
        """Measured: 5e-5 on the latent, 1.5e-4 on the samples, of values up to 15."""
        wav = wave(pair.codec.channels, 1000).astype(np.float32)
        module = load_codec(pair.folder)
        with outputs(module) as expected:
            codes = module.encode(torch.from_numpy(wav))
        found = pair.codec.encode(wav)
        assert (found.output == codes.numpy()).all()
        assert np.abs(found.stages["latent"] - expected["encoder.8"].numpy()).max() < 1e-3
        decoded = pair.codec.decode(found.output).output
        assert np.abs(decoded - module.decode(codes).numpy()).max() < 1e-3

    @pytest.mark.parametrize(
        ("rvq_dim", "present"), [(24, {"output_proj"}), (32, {"input_proj"}), (16, None)]
    )
    def test_one_projection_of_the_quantizer_alone(
        self, tmp_path: Path, rvq_dim: int, present: set[str] | None
    ) -> None:
        """24 in, 32 out: each projection is absent where its own two widths agree."""
        dims = {"rvq_dim": rvq_dim, "output_dim": 32}
        config = codec_config(quantizer_kwargs=QUANTIZER | dims)
        config["decoder_kwargs"][1]["input_dimension"] = 16  # half of 32, after a patch of 2
        folder = save_codec(codec(config), tmp_path / "folder")
        assert convert(folder, tmp_path / "x.gguf", options=Options(strict=True)).proof
        found, module = codec_of(tmp_path / "x.gguf"), load_codec(folder).double()
        names = {t.name for t in found.manifest.tensors}
        both = {"input_proj", "output_proj"}
        assert {p for p in both if f"quantizer.{p}.weight" in names} == (present or both)
        wav = wave(2, 480)
        codes = module.encode(torch.from_numpy(wav))
        assert (found.encode(wav).output == codes.numpy()).all()
        decoded = found.decode(codes.numpy()).output
        np.testing.assert_allclose(decoded, module.decode(codes).numpy(), atol=ROUNDING)


class TestChannels:
    def test_samples_are_interleaved(self, stereo: Pair) -> None:
        """Frames x downsample x channels of them: left, right, left, right."""
        codes = np.random.default_rng(0).integers(0, 32, (5, 7))
        found = stereo.codec.decode(codes)
        sequence = found.stages["decoded"]
        assert sequence.shape == (1, 7 * 48 * 2)
        assert found.output.shape == (2, 7 * 48)
        assert np.array_equal(found.output[0], sequence[0, 0::2])
        assert np.array_equal(found.output[1], sequence[0, 1::2])
        assert np.abs(found.output[0] - found.output[1]).max() > 1.0

    def test_left_is_not_right(self, stereo: Pair) -> None:
        wav = wave(2, 480)
        found, swapped = stereo.codec.encode(wav), stereo.codec.encode(wav[::-1])
        assert (found.output != swapped.output).any()

    def test_other_numbers_of_channels_are_refused(self, stereo: Pair) -> None:
        for wav in (wave(1, 480), wave(3, 480), wave(1, 480)[0], np.zeros((2, 0))):
            with pytest.raises(UnsupportedError) as caught:
                stereo.codec.encode(wav)
            assert caught.value.expected == "2 channels"


class TestWindows:
    """The comparison with the module would notice a wrong window; these say by how much."""

    @pytest.mark.parametrize(
        ("change", "windows"),
        [
            # As wide as the clip: no window at all.
            ({"causal_transformer_context_duration": 10.0}, "ignored"),
            # Half of the sequence's rate: that of one channel.
            ({"causal_transformer_context_duration": 0.005}, "at the rate of one channel"),
            ({"causal_transformer_context_duration": 0.015}, "a half wider"),
        ],
    )
    def test_another_window_gives_another_result(
        self, stereo: Pair, change: dict[str, Any], windows: str
    ) -> None:
        other = codec(codec_config(**change)).double()
        wav = wave(2, 1000)
        found = stereo.codec.encode(wav)
        with outputs(other) as seen:
            other.encode(torch.from_numpy(wav))
            other.decode(torch.from_numpy(found.output).long())
        decoded = stereo.codec.decode(found.output)
        for name in ("encoder.1", "encoder.3", "encoder.5", "encoder.7"):
            assert np.abs(found.stages[name] - seen[name].numpy()).max() > 0.1, (windows, name)
        for name in ("decoder.1", "decoder.3", "decoder.5", "decoder.7"):
            assert np.abs(decoded.stages[name] - seen[name].numpy()).max() > 0.1, (windows, name)

    def test_a_position_sees_its_window_and_no_more(self, stereo: Pair) -> None:
        """The last position of the first stage: 2 layers of 16 positions reach back 30 more."""
        wav = wave(2, 480)  # 160 positions of 6 samples of the interleaved sequence, 3 of a channel
        last = stereo.codec.encode(wav).stages["encoder.1"][:, -1]

        def changed_at(position: int) -> Any:
            other = wav.copy()
            other[:, 3 * position : 3 * position + 3] += 1.0
            return np.abs(stereo.codec.encode(other).stages["encoder.1"][:, -1] - last).max()

        assert changed_at(159 - 30) > 1e-6
        assert changed_at(159 - 31) == 0.0

    def test_run_at_the_rate_of_all_channels(self, pair: Pair) -> None:
        """9600 samples a second in both: of one channel, or of two with 4800 each."""
        assert ARCH.stages is not None
        rows = {row.name: row.values for row in ARCH.stages(pair.codec.manifest)}
        windows = [rows[f"encoder.{i}"].get("window") for i in (1, 3, 5, 7)]
        assert windows == [16, 8, 4, 2]
        assert [rows[f"decoder.{i}"].get("window") for i in (1, 3, 5, 7)] == windows[::-1]


class TestManifest:
    STEREO = ("moss.at.channels", "moss.at.channel_interleave", "moss.at.code_dim")

    def test_stereo_has_three_keys_more_than_mono(
        self, pair_of: Callable[[int], Pair], raw: Callable[[Path], Any]
    ) -> None:
        stereo, mono = raw(pair_of(2).gguf), raw(pair_of(1).gguf)
        assert set(stereo.types) - set(mono.types) == set(self.STEREO)
        assert set(mono.types) <= set(stereo.types)
        for key, value in zip(self.STEREO, (2, 1, 24), strict=True):
            assert (stereo.types[key], stereo.values[key]) == (["UINT32"], value)
        assert list(stereo.tensors) == list(mono.tensors)
        assert (stereo.values["moss.at.sample_rate"], mono.values["moss.at.sample_rate"]) == (
            4800,
            9600,
        )
        assert (stereo.values["moss.at.downsample"], mono.values["moss.at.downsample"]) == (48, 96)

    def test_one_channel_may_be_said(self, tmp_path: Path, pair_of: Callable[[int], Pair]) -> None:
        """The mono schema is that of one channel, whether the config says so or is silent."""
        config = codec_config(1, number_channels=1, enable_channel_interleave=True)
        said = described(save_codec(codec(config), tmp_path / "said"))
        silent = described(pair_of(1).folder)
        assert [(e.key, e.type, e.value) for e in said.entries] == [
            (e.key, e.type, e.value) for e in silent.entries
        ]

    def test_stages_are_arrays_of_nine(self, pair: Pair, raw: Callable[[Path], Any]) -> None:
        found = raw(pair.gguf)
        arrays = {
            "kind": [0, 1, 0, 1, 0, 1, 0, 1, 0],
            "patch": [6, 0, 2, 0, 2, 0, 2, 0, 2],
            "in_dim": [0, 6, 0, 32, 0, 64, 0, 24, 0],
            "d_model": [0, 16, 0, 32, 0, 24, 0, 24, 0],
            "n_heads": [0, 2, 0, 4, 0, 3, 0, 3, 0],
            "n_layers": [0, 2, 0, 2, 0, 1, 0, 1, 0],
            "d_ff": [0, 32, 0, 64, 0, 48, 0, 48, 0],
            "out_dim": [0, 16, 0, 32, 0, 12, 0, 12, 0],
        }
        mirrored = {"in_dim": "out_dim", "out_dim": "in_dim"}
        for tower in ("enc", "dec"):
            assert found.types[f"moss.at.{tower}.n_stages"] == ["UINT32"]
            assert found.values[f"moss.at.{tower}.n_stages"] == 9
            for key, values in arrays.items():
                name = f"moss.at.{tower}.{key}"
                expected = values if tower == "enc" else arrays[mirrored.get(key, key)][::-1]
                assert found.types[name] == ["ARRAY", "INT32"], name
                assert found.values[name] == expected, name

    def test_projections_are_where_widths_differ(
        self, pair: Pair, raw: Callable[[Path], Any]
    ) -> None:
        """Stage 1 has the first only, stage 3 none, stage 5 both, stage 7 the last only."""
        projections = {
            n for n in raw(pair.gguf).tensors if n.startswith("encoder") and "_proj." in n
        }
        assert projections == {
            "encoder.1.input_proj.weight",
            "encoder.5.input_proj.weight",
            "encoder.5.output_proj.weight",
            "encoder.7.output_proj.weight",
        }

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"downsample_rate": 96}, r"downsample_rate 96 x 2 channels = 192"),
            ({"number_channels": 1}, r"downsample_rate 48 x 1 channels = 48"),
            ({"enable_channel_interleave": False}, "enable_channel_interleave"),
            ({"number_channels": 4}, "number_channels"),
            ({"code_dim": 25}, "code_dim is not the encoder's last width"),
            ({"code_dim": None}, "code_dim"),
            # Where patches stand at both ends the widths are those outside them: 2 x 12.
            ({"quantizer_kwargs": QUANTIZER | {"input_dim": 12}}, "encoder's last width"),
            ({"quantizer_kwargs": QUANTIZER | {"output_dim": 12}}, "decoder's first width"),
        ],
    )
    def test_a_config_that_does_not_fit(
        self, stereo: Pair, tmp_path: Path, change: dict[str, Any], message: str
    ) -> None:
        folder = tmp_path / "changed"
        folder.mkdir()
        for file in stereo.folder.iterdir():
            (folder / file.name).symlink_to(file)
        (folder / "config.json").unlink()
        (folder / "config.json").write_text(json.dumps(codec_config(**change)))
        with pytest.raises(UnsupportedError, match=message):
            described(folder)


def described(folder: Path) -> Manifest:
    return describe_checkpoint(open_source(folder), "m").manifest


LONG = """
import sys
import numpy as np
from converters.codec import codec_of

def peak():  # of this process alone: getrusage's would begin with that of the one that forked it
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024

codec = codec_of(sys.argv[1])
codec.decode(codec.encode(np.zeros((2, 480))).output)
before = peak()
found = codec.encode(0.3 * np.random.default_rng(0).normal(size=(2, 120_000)))
assert found.stages["encoder.1"].shape == (16, 40_000)
decoded = codec.decode(found.output)
assert decoded.stages["decoder.7"].shape == (6, 40_000)
print(peak() - before)
"""


def test_long_audio_needs_no_square_of_scores(stereo: Pair, bounded: Callable[..., Any]) -> None:
    """40,000 positions of the first stage: squared they are 12.8 GB of one head's scores.

    Measured: 151 MB in both directions, for the widest activations and some copies of them.
    """
    ran = bounded(LONG, stereo.gguf)
    assert ran.code == 0, ran.err
    assert int(ran.out) < 300
