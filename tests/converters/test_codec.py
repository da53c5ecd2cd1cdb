"""The MOSS codecs, against a small checkpoint with what the published model code computes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from gguf import GGUFReader, GGUFValueType
from safetensors.numpy import load_file, save_file

from converters.archs.checkpoint import Options
from converters.archs.moss_stages import seconds_of_key, stage_tables
from converters.baseline import baseline
from converters.checkpoint import describe_checkpoint, prove
from converters.codec import codec_of
from converters.convert import convert
from converters.gguf_file import read
from converters.manifest import Manifest
from converters.sources.source import open_source
from graphtools.errors import NotAModelError, UnsupportedError

TINY = Path(__file__).parents[2] / "fixtures" / "moss_tiny"


@pytest.fixture(scope="module")
def expected() -> Any:
    return np.load(TINY / "expected.npz")


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("moss") / "moss.gguf"
    assert convert(TINY, path, options=Options(strict=True)).proof
    return path


@pytest.fixture
def changed(tmp_path: Path) -> Any:
    """A copy of the checkpoint, in one file, with another config or other tensors."""

    def make(config: dict[str, Any] | None = None, tensors: Any = lambda t: t) -> Path:
        folder = tmp_path / "changed"
        shutil.copytree(TINY, folder)
        state: dict[str, Any] = {}
        for shard in sorted(folder.glob("*.safetensors")):
            state |= load_file(shard)
            shard.unlink()
        (folder / "model.safetensors.index.json").unlink()
        plain = {k: np.ascontiguousarray(v) for k, v in tensors(state).items()}
        save_file(plain, folder / "model.safetensors")
        full = json.loads((folder / "config.json").read_text()) | (config or {})
        (folder / "config.json").write_text(json.dumps(full))
        return folder

    return make


def described(folder: Path) -> Manifest:
    return describe_checkpoint(open_source(folder), "m").manifest


class TestCodes:
    def test_every_code_is_exact_the_padded_frame_included(self, gguf: Path, expected: Any) -> None:
        found = codec_of(gguf).encode(expected["wav"])
        assert found.output.shape == expected["codes"].shape == (4, 24)
        assert (found.output == expected["codes"]).all()
        # float64 against the model's float32.
        assert np.abs(found.stages["latent"] - expected["latent"]).max() < 1e-5

    def test_the_padded_frame_is_masked(self, gguf: Path, expected: Any) -> None:
        """741 samples are 23 frames and a part: without the mask other codes come out."""
        codec = codec_of(gguf)
        padded = np.pad(expected["wav"], (0, -len(expected["wav"]) % codec.downsample))
        assert (codec.encode(padded).output != expected["codes"]).any()

    def test_decoding_gives_the_models_samples_untrimmed(self, gguf: Path, expected: Any) -> None:
        found = codec_of(gguf).decode(expected["codes"])
        assert found.output.shape == (1, 768)
        assert np.abs(found.output[0] - expected["decoded"]).max() < 1e-5

    def test_margins_say_how_far_the_second_row_was(self, gguf: Path, expected: Any) -> None:
        margins = codec_of(gguf).encode(expected["wav"]).margins
        assert margins is not None
        assert margins.shape == (4, 24)
        assert (margins >= 0).all()

    def test_codes_that_are_no_rows_are_refused(self, gguf: Path) -> None:
        with pytest.raises(UnsupportedError, match="code of"):
            codec_of(gguf).decode(np.full((4, 3), 64))
        with pytest.raises(UnsupportedError, match="do not fit"):
            codec_of(gguf).decode(np.zeros((3, 3), np.int64))


class TestManifest:
    def test_keys_have_the_schemas_types(self, gguf: Path) -> None:
        fields = GGUFReader(gguf).fields
        assert fields["general.architecture"].contents() == "moss-audio-tokenizer"
        for key in ("sample_rate", "downsample", "num_quantizers", "codebook_size", "rvq_dim"):
            assert fields[f"moss.at.{key}"].types == [GGUFValueType.UINT32]
        assert fields["moss.at.context_seconds"].types == [GGUFValueType.FLOAT32]
        assert fields["moss.at.enc.d_ff"].types == [GGUFValueType.ARRAY, GGUFValueType.INT32]
        assert fields["moss.at.enc.kind"].contents() == [0, 1, 0, 1, 0, 1]
        assert fields["moss.at.dec.patch"].contents() == [0, 2, 0, 2, 0, 8]
        assert json.loads(fields["moss.at.encoder_kwargs"].contents())[0]["patch_size"] == 8
        assert not [key for key in fields if "channel" in key or "code_dim" in key]

    def test_pairs_are_fused_as_torch_fuses_them(self, gguf: Path) -> None:
        """Within 4 units in the last place: torch's own bits depend on the vector width."""
        import torch

        source, written = open_source(TINY), read(gguf)
        pairs = [n for n in source.tensors if n.endswith("weight.original0")]
        assert len(pairs) == 10
        for name in pairs:
            stem = name.removesuffix(".parametrizations.weight.original0")
            g = torch.from_numpy(source.tensors[name].read())
            v = torch.from_numpy(source.tensors[name.replace("original0", "original1")].read())
            fused = torch._weight_norm(v, g, 0).numpy()[:, :, 0]
            ours = written.by_name[f"{stem}.weight"].read()
            ulp = np.spacing(np.abs(fused))
            assert np.abs(ours - fused).max() <= 4 * ulp.max()

    def test_absent_projections_are_not_invented(self, gguf: Path) -> None:
        names = set(read(gguf).by_name)
        assert "encoder.1.input_proj.weight" in names
        assert "encoder.3.input_proj.weight" not in names


class TestRefusals:
    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ({"downsample_rate": 64}, "patches do not multiply"),
            ({"number_channels": 3}, "channels"),
            ({"sample_rate": "fast"}, "sample_rate"),
            ({"causal_transformer_context_duration": 0.004}, "shorter than a position"),
            # 51 samples of 1600 a second are fine in f64; f32 has fewer digits than that.
            ({"causal_transformer_context_duration": 0.26999999999}, "none that its f32 key"),
        ],
    )
    def test_a_config_that_does_not_fit(self, changed: Any, config: Any, message: str) -> None:
        with pytest.raises(UnsupportedError, match=message):
            described(changed(config))

    def test_more_quantizers_than_the_tensors_have(self, changed: Any) -> None:
        full = json.loads((TINY / "config.json").read_text())["quantizer_kwargs"]
        with pytest.raises(UnsupportedError, match="codebooks") as caught:
            described(changed({"quantizer_kwargs": {**full, "num_quantizers": 5}}))
        assert (caught.value.expected, caught.value.found) == (
            "num_quantizers 5",
            "4 in the tensors",
        )

    @pytest.mark.parametrize(
        ("name", "shape"),
        [
            ("encoder.1.transformer.layers.0.linear1.weight", [32, 16]),
            ("encoder.3.transformer.layers.0.self_attn.in_projs.0.weight", [72, 24]),
            ("decoder.0.transformer.layers.1.norm2.bias", [32]),
            ("quantizer.quantizers.2.codebook.weight", [64, 8]),
            ("quantizer.output_proj.bias", [24]),
        ],
    )
    def test_a_tensor_of_another_shape_or_none(
        self, changed: Any, name: str, shape: list[int]
    ) -> None:
        def cut(state: dict[str, Any]) -> dict[str, Any]:
            return state | {name: state[name][..., :-1]}

        def drop(state: dict[str, Any]) -> dict[str, Any]:
            return {k: v for k, v in state.items() if k != name}

        with pytest.raises(UnsupportedError, match="has another shape") as caught:
            described(changed(tensors=cut))
        assert repr(name) in caught.value.cause
        assert caught.value.expected == str(shape)
        assert caught.value.found == str([*shape[:-1], shape[-1] - 1])
        shutil.rmtree(Path(str(caught.value.file)))
        with pytest.raises(UnsupportedError, match=r"is missing|not as many"):
            described(changed(tensors=drop))

    def test_a_layer_that_the_config_does_not_have(self, changed: Any) -> None:
        def copied(state: dict[str, Any]) -> dict[str, Any]:
            more = {k.replace("layers.1", "layers.2"): v for k, v in state.items()}
            return state | {k: v for k, v in more.items() if k.startswith("decoder.0")}

        with pytest.raises(
            UnsupportedError, match=r"no place for the tensor 'decoder\.0.*layers\.2"
        ):
            described(changed(tensors=copied))

    def test_a_quantizer_of_another_width_than_the_towers(self, changed: Any) -> None:
        full = json.loads((TINY / "config.json").read_text())["quantizer_kwargs"]
        with pytest.raises(UnsupportedError, match="input_dim is not the encoder's last width"):
            described(changed({"quantizer_kwargs": {**full, "input_dim": 25}}))

    def test_a_tensor_of_something_else_is_left_out_and_listed(
        self, changed: Any, tmp_path: Path
    ) -> None:
        folder = changed(tensors=lambda s: s | {"optimizer.step": np.ones(3, np.float32)})
        done = convert(folder, tmp_path / "x.gguf")
        assert done.manifest.left_out == ("optimizer.step (the model has no place for it)",)
        assert "optimizer.step" not in read(tmp_path / "x.gguf").by_name
        with pytest.raises(UnsupportedError, match="no destination") as caught:
            convert(folder, tmp_path / "x.gguf", options=Options(strict=True))
        assert caught.value.found == "optimizer.step"

    def test_half_a_pair(self, changed: Any) -> None:
        def drop(state: dict[str, Any]) -> dict[str, Any]:
            name = "quantizer.input_proj.parametrizations.weight.original0"
            return {k: v for k, v in state.items() if k != name}

        with pytest.raises(UnsupportedError, match="not whole"):
            described(changed(tensors=drop))

    def test_a_projection_that_is_missing(self, changed: Any) -> None:
        def drop(state: dict[str, Any]) -> dict[str, Any]:
            return {k: v for k, v in state.items() if not k.startswith("encoder.1.input_proj")}

        with pytest.raises(UnsupportedError, match="is missing"):
            described(changed(tensors=drop))

    def test_a_prefix_on_every_name(self, changed: Any) -> None:
        with pytest.raises(UnsupportedError, match="prefix") as caught:
            described(changed(tensors=lambda s: {f"model.{k}": v for k, v in s.items()}))
        assert caught.value.todo == "add --strip-prefix model."
        folder = caught.value.file
        assert folder is not None
        options = Options(strip_prefix="model.")
        stripped = describe_checkpoint(open_source(Path(folder)), "m", options=options).manifest
        assert {t.name for t in stripped.tensors} == {t.name for t in described(TINY).tensors}


def test_both_spellings_of_the_pairs_give_the_same_tensors(changed: Any) -> None:
    def old(state: dict[str, Any]) -> dict[str, Any]:
        for new, plain in (("original0", "weight_g"), ("original1", "weight_v")):
            state = {
                k.replace(f"parametrizations.weight.{new}", plain): v for k, v in state.items()
            }
        return state

    ours, theirs = described(changed(tensors=old)), described(TINY)
    assert {t.name for t in ours.tensors} == {t.name for t in theirs.tensors}
    for tensor in ours.tensors:
        assert np.array_equal(tensor.read(), theirs.by_name[tensor.name].read())


def test_windows_run_at_the_rate_of_the_stage() -> None:
    """The decoder goes on where the encoder ended, here at 100 positions a second."""
    zeros = {k: [0] * 2 for k in ("in_dim", "d_model", "n_heads", "n_layers", "d_ff", "out_dim")}
    towers = {
        "encoder": zeros | {"kind": [0, 1], "patch": [240, 0]},
        "decoder": zeros | {"kind": [0, 1], "patch": [2, 0]},
    }

    def found(rate: float) -> list[tuple[float, int]]:
        encoder, decoder = stage_tables(towers, rate, 10.0)
        return [(encoder[1].rate, encoder[1].window), (decoder[1].rate, decoder[1].window)]

    assert found(24000.0) == [(100.0, 1000), (200.0, 2000)]
    assert found(24000.0 * 2) == [(200.0, 2000), (400.0, 4000)]


@pytest.mark.parametrize("seconds", [10.0, 0.01, 0.07, 1.3, 12.5, 0.0001])
def test_a_context_is_read_back_as_the_decimal_that_it_was(seconds: float) -> None:
    """f32(0.01) is 0.00999999977648: times 1600 it is 15.99, a window too short by one."""
    assert seconds_of_key(float(np.float32(seconds))) == seconds


def test_a_baseline_holds_both_directions(tmp_path: Path, expected: Any) -> None:
    soundfile.write(tmp_path / "c.wav", expected["wav"], 1600, subtype="FLOAT")
    done = baseline(TINY, tmp_path / "c.wav", tmp_path / "b.gguf")
    assert done.reference == "replay-f64"
    written = read(tmp_path / "b.gguf")
    assert written["baseline.reference"] == "replay-f64"
    codes = written.by_name["codes"]
    assert codes.dtype.label == "i32"
    assert (codes.read() == expected["codes"]).all()
    assert {"encoder.0", "latent", "codes_margin", "dequantized", "decoded"} <= set(written.by_name)


class TestInspect:
    COLUMNS = (
        "stage", "kind", "patch", "in", "d_model", "heads", "layers", "ff", "out", "rate", "window",
        "parameters", "bytes",
    )  # fmt: skip

    @pytest.mark.parametrize("what", ["checkpoint", "gguf"])
    def test_shows_both_towers_stage_by_stage(self, graphtools: Any, gguf: Path, what: str) -> None:
        shown = graphtools("inspect", TINY if what == "checkpoint" else gguf, code=0).out
        lines = shown.splitlines()
        (head,) = (i for i, line in enumerate(lines) if line.split() == list(self.COLUMNS))
        rows = [line.split() for line in lines[head + 1 : head + 14]]
        assert [row[0] for row in rows] == [
            *(f"encoder.{i}" for i in range(6)), "quantizer", *(f"decoder.{i}" for i in range(6))
        ]  # fmt: skip
        assert rows[0][1:] == ["patch", "8", "1600", "0", "0"]
        # in 8, d_model 16, 2 heads, 2 layers, ff 32, out 12, 200 positions a second, 0.25 s.
        assert rows[1][1:] == [
            "transformer", "8", "16", "2", "2", "32", "12", "200", "50", "4,608", "18,432"
        ]  # fmt: skip
        assert "codebooks of 64" in " ".join(rows[6])
        stored = read(gguf)
        total = sum(int(row[-2].replace(",", "")) for row in rows)
        assert total == sum(t.size for t in stored.tensors)

    def test_long_values_are_clipped_but_not_in_json(self, graphtools: Any) -> None:
        shown = graphtools("inspect", TINY, code=0).out
        assert " ... " in shown
        assert max(map(len, shown.splitlines())) < 250
        facts = graphtools("inspect", TINY, "--json", code=0).json["facts"]
        assert "PatchedPretransform" in facts["moss.at.decoder_kwargs"]
        assert " ... " not in facts["moss.at.decoder_kwargs"]


class TestVerify:
    def test_small_checkpoints_are_read_back_whole(self, tmp_path: Path) -> None:
        done = convert(TINY, tmp_path / "x.gguf")
        assert done.to_json()["proof"]["sampled"] is False

    def test_a_sample_says_so(self, graphtools: Any, tmp_path: Path) -> None:
        ran = graphtools(
            "convert", "--model", TINY, "--output", "x.gguf", "--verify", "sample", code=0
        )
        assert "144 tensors equal their sources (first, middle and last block of each)" in ran.out
        proof = json.loads((tmp_path / "x.gguf.proof.json").read_text())
        assert (proof["sampled"], proof["level"], proof["proven"]) == (True, "ci", True)

    def test_large_checkpoints_are_sampled_by_default(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from converters import convert as module

        monkeypatch.setattr(module, "_SAMPLE_ABOVE", 200_000)
        done = convert(TINY, tmp_path / "x.gguf")
        assert done.to_json()["proof"]["sampled"] is True
        done = convert(TINY, tmp_path / "x.gguf", verify="full")
        assert done.to_json()["proof"]["sampled"] is False

    @pytest.mark.parametrize("sample", [True, False])
    def test_values_of_another_tensor_are_noticed(
        self, gguf: Path, written: Any, tmp_path: Path, sample: bool
    ) -> None:
        described_ = describe_checkpoint(open_source(TINY), "m")
        manifest = described_.manifest
        names = ["encoder.1.transformer.layers.0.norm1.weight",
                 "encoder.1.transformer.layers.1.norm1.weight"]  # fmt: skip
        first, second = (manifest.by_name[name] for name in names)
        swapped = {first.name: second, second.name: first}
        tensors = tuple(swapped.get(t.name, t).named(t.name) for t in manifest.tensors)
        path = written(replace(manifest, tensors=tensors), tmp_path / "x.gguf")
        proof = prove(path, described_, sample=sample)
        assert not proof
        assert names[0] in str(proof.failures[0]) or names[1] in str(proof.failures[0])

    def test_progress_counts_the_bytes_of_tensors(self, tmp_path: Path) -> None:
        told: list[tuple[int, int]] = []
        convert(TINY, tmp_path / "x.gguf", progress=lambda *pair: told.append(pair))
        total = sum(4 * t.size for t in read(tmp_path / "x.gguf").tensors)
        assert told[-1] == (total, total)
        assert told == sorted(told)

    def test_a_terminal_sees_a_bar_on_stderr(self, tmp_path: Path, environment: Any) -> None:
        ours, theirs = os.openpty()
        command = ["convert", "--model", str(TINY), "--output", str(tmp_path / "x.gguf")]
        done = subprocess.run(
            [sys.executable, "-c", "from converters.cli import main; main()", *command],
            env=environment() | {"TERM": "xterm", "COLUMNS": "100"},
            stdout=subprocess.PIPE, stderr=theirs, check=True,
        )  # fmt: skip
        os.close(theirs)
        shown = os.read(ours, 100_000).decode()
        os.close(ours)
        assert "writing" in shown
        assert "B/s" in shown or "?" in shown
        assert b"writing" not in done.stdout


def test_a_shard_that_is_cut_leaves_nothing(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "cut")
    shard = sorted((tmp_path / "cut").glob("*.safetensors"))[1]
    os.truncate(shard, shard.stat().st_size - 100)
    with pytest.raises(NotAModelError) as caught:
        convert(tmp_path / "cut", tmp_path / "x.gguf")
    assert shard.name in str(caught.value.file)
    assert [p.name for p in tmp_path.iterdir()] == ["cut"]
