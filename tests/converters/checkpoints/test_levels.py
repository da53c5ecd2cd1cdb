"""How far a conversion is proven: data and ci anywhere, full where the library is installed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters import gguf_file
from converters.archs import ARCHS
from converters.checkpoint import prove
from converters.emit import emit
from converters.manifest import Manifest
from converters.reference import reference_for
from graphtools.errors import UnprovenError
from graphtools.tensors import DType, Held, LazyTensor

Make = Callable[..., Any]

NAMES = ["ecapa_tdnn", "wav2vec2_emotion", "wav2vec2_age_gender"]
LIBRARY = {
    "ecapa_tdnn": "speechbrain",
    "wav2vec2_emotion": "transformers",
    "wav2vec2_age_gender": "transformers",
}
STAGES = {"ecapa_tdnn": 7, "wav2vec2_emotion": 6, "wav2vec2_age_gender": 5}


def proof_of(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output.with_name(f"{output.name}.proof.json").read_text())
    return found


@pytest.mark.parametrize("arch", [a for a in ARCHS if a.name in NAMES], ids=lambda a: a.name)
def test_the_libraries_named_are_those_that_these_tests_run(arch: Any) -> None:
    """Level ci says "proven in our tests against": that has to be this very version."""
    assert arch.tested == reference_for(arch.family).library()
    assert arch.tested == f"{LIBRARY[arch.name]} {version(LIBRARY[arch.name])}"
    assert arch.space


@pytest.mark.parametrize("arch", NAMES)
class TestFull:
    """The library is here: every stage is compared now."""

    def test_is_named_on_screen_and_in_the_proof(
        self, arch: str, made: Any, invoke: Make, tmp_path: Path
    ) -> None:
        network = made.named(arch)
        ran = invoke("convert", "--model", network.folder, "--output", "x.gguf", code=0)
        lines = ran.out.splitlines()
        assert "proof level: full" in lines
        library = f"{LIBRARY[arch]} {version(LIBRARY[arch])}"
        assert f"{STAGES[arch]} stages equal {library} here and now" in ran.out
        proof = proof_of(tmp_path / "x.gguf")
        assert (proof["proven"], proof["level"], proof["library"]) == (True, "full", library)
        assert len(proof["stages"]) == STAGES[arch]
        for stage, found in proof["stages"].items():
            assert found["cosine"] >= 0.9999, stage
            assert found["max_abs"] < 1e-3, stage
        assert proof["failures"] == []
        assert proof["notes"] == []

    def test_says_how_many_tensors_equal_their_sources(
        self, arch: str, made: Any, invoke: Make, raw: Make, tmp_path: Path
    ) -> None:
        """Level data is part of every other one."""
        network = made.named(arch)
        ran = invoke("convert", "--model", network.folder, "--output", "x.gguf", code=0)
        stored = len(raw(tmp_path / "x.gguf").tensors)
        assert f"  {stored} tensors equal their sources" in ran.out.splitlines()
        assert proof_of(tmp_path / "x.gguf")["tensors_equal_to_source"] == stored

    def test_compares_with_the_library_and_not_only_with_the_source(
        self, arch: str, made: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """With keys and bytes taken on trust, a tensor that is off by half is still found."""
        monkeypatch.setattr("converters.checkpoint._check_keys", lambda *_: None)
        monkeypatch.setattr("converters.checkpoint._check_data", lambda *_: 0)
        described = made.named(arch).described()
        last = {
            "ecapa_tdnn": "fc.conv.weight",
            "wav2vec2_emotion": "classifier.weight",
            "wav2vec2_age_gender": "gender.out_proj.weight",
        }[arch]
        path = written(scaled(described.manifest, last, 1.5), tmp_path)
        proof = prove(path, described)
        assert not proof
        assert "is not what the library computes" in proof.failures[0].cause
        with pytest.raises(UnprovenError):
            proof.require()

    def test_the_first_stage_that_differs_is_named(
        self, arch: str, made: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("converters.checkpoint._check_keys", lambda *_: None)
        monkeypatch.setattr("converters.checkpoint._check_data", lambda *_: 0)
        described = made.named(arch).described()
        name, stage = {
            "ecapa_tdnn": ("blocks.2.tdnn1.conv.conv.weight", "block2_out"),
            "wav2vec2_emotion": ("w2v2.encoder.layers.1.attention.v_proj.weight", "enc_layer_mid"),
            "wav2vec2_age_gender": (
                "w2v2.encoder.layers.1.attention.v_proj.weight",
                "enc_layer_last",
            ),
        }[arch]
        path = written(scaled(described.manifest, name, 1.5), tmp_path)
        assert f"the stage {stage} is not" in prove(path, described).failures[0].cause


@pytest.mark.parametrize(
    ("arch", "without", "line"),
    [
        ("ecapa_tdnn", "speechbrain", "pip install --no-deps speechbrain"),
        ("wav2vec2_emotion", "transformers", "pip install torch transformers"),
        ("wav2vec2_emotion", "torch", "pip install torch transformers"),
        ("wav2vec2_age_gender", "torch,transformers", "pip install torch transformers"),
    ],
)
class TestCi:
    """The library is not here: the tests of the project stand for it."""

    def test_is_named_on_screen_and_in_the_proof(
        self, arch: str, without: str, line: str, made: Any, process: Make, tmp_path: Path
    ) -> None:
        folder = made.named(arch).folder
        ran = process("convert", "--model", folder, "--output", "x.gguf", without=without, code=0)
        declared = next(a for a in ARCHS if a.name == arch)
        lines = ran.out.splitlines()
        assert "proof level: ci" in lines
        assert f"  this forward is proven in our tests against {declared.tested} on:" in lines
        assert f"  {declared.space}" in lines
        notes = [shown for shown in lines if shown.startswith("note: ")]
        assert any(f"against {declared.tested}, not here" in n and line in n for n in notes)
        proof = proof_of(tmp_path / "x.gguf")
        assert (proof["proven"], proof["level"]) == (True, "ci")
        assert (proof["library"], proof["config_space"]) == (declared.tested, declared.space)
        assert proof["stages"] == {}
        assert proof["tensors_equal_to_source"] == len(gguf_file.read(tmp_path / "x.gguf").tensors)

    def test_writes_the_same_file_as_full(
        self,
        arch: str,
        without: str,
        line: str,
        made: Any,
        process: Make,
        invoke: Make,
        tmp_path: Path,
    ) -> None:
        options = ("--model", made.named(arch).folder, "--output")
        process("convert", *options, "ci.gguf", without=without, code=0)
        invoke("convert", *options, "full.gguf", code=0)
        assert (tmp_path / "ci.gguf").read_bytes() == (tmp_path / "full.gguf").read_bytes()

    def test_a_baseline_needs_the_library_and_says_which_line_installs_it(
        self, arch: str, without: str, line: str, made: Any, process: Make, tmp_path: Path
    ) -> None:
        from fixtures import catalog

        options = ("--output", "b.gguf", "--audio", catalog.SPEECH)
        folder = made.named(arch).folder
        ran = process("baseline", "--model", folder, *options, without=without, code=4)
        assert f"to do: {line}\n" in ran.err
        assert not (tmp_path / "b.gguf").exists()


class TestCiRefuses:
    """What the library would have noticed has to be noticed without it."""

    @pytest.mark.parametrize(
        ("name", "shape"),
        [
            ("wav2vec2.encoder.layers.0.attention.q_proj.weight", (44, 48)),
            ("layer_weights", (4,)),
            ("projector.weight", (20, 47)),
            ("wav2vec2.feature_extractor.conv_layers.1.conv.weight", (16, 16, 7)),
            ("wav2vec2.encoder.layers.0.final_layer_norm.bias", (47,)),
        ],
    )
    def test_tensors_of_another_shape(
        self, name: str, shape: tuple[int, ...], made: Any, reweighted: Make, process: Make
    ) -> None:
        import torch

        def reshape(state: dict[str, Any]) -> None:
            state[name] = torch.ones(shape)

        folder = reweighted(made.wav2vec2("emotion"), reshape)
        ran = process("convert", "--model", folder, "--output", "x.gguf", without="torch", code=3)
        assert "error: " in ran.err

    def test_what_lies_outside_the_space(
        self, made: Any, reconfigured: Make, process: Make
    ) -> None:
        folder = reconfigured(made.wav2vec2("emotion"), hidden_act="gelu_new")
        ran = process("convert", "--model", folder, "--output", "x.gguf", without="torch", code=3)
        assert "outside what the forward was proven on" in ran.err


class TestNone:
    def test_is_said_and_an_older_proof_is_taken_away(
        self, made: Any, invoke: Make, tmp_path: Path
    ) -> None:
        folder = made.wav2vec2("emotion").folder
        invoke("convert", "--model", folder, "--output", "x.gguf", code=0)
        assert (tmp_path / "x.gguf.proof.json").exists()
        options = ("--output", "x.gguf", "--verify", "none")
        ran = invoke("convert", "--model", folder, *options, code=0)
        assert "NOT PROVEN" in ran.out
        assert "proof level" not in ran.out
        assert not (tmp_path / "x.gguf.proof.json").exists()


class TestWhatIsSaid:
    def test_the_licence_of_age_and_gender(self, made: Any, invoke: Make) -> None:
        folder = made.wav2vec2("age_gender").folder
        options = ("--output", "x.gguf", "--verify", "none")
        ran = invoke("convert", "--model", folder, *options, code=0)
        assert "CC-BY-NC-SA-4.0: not for commercial use" in ran.out
        ran = invoke("convert", "--model", folder, *options, "--json", code=0)
        assert any("CC-BY-NC-SA-4.0" in note for note in ran.json["notes"])

    @pytest.mark.parametrize("arch", NAMES[:2])
    def test_no_licence_where_there_is_nothing_to_say(
        self, arch: str, made: Any, invoke: Make
    ) -> None:
        options = ("--output", "x.gguf", "--verify", "none")
        ran = invoke("convert", "--model", made.named(arch).folder, *options, code=0)
        assert "commercial" not in ran.out

    def test_float64_is_rounded_with_a_note(self, made: Any, invoke: Make) -> None:
        import torch

        network = made.wav2vec2("emotion", {"dtype": torch.float64})
        ran = invoke("convert", "--model", network.folder, "--output", "x.gguf", code=0)
        assert "note: 84 f64 tensors are rounded to f32" in ran.out

    def test_no_such_note_for_what_widens_exactly(self, made: Any, invoke: Make) -> None:
        import torch

        network = made.wav2vec2("emotion", {"dtype": torch.bfloat16})
        ran = invoke("convert", "--model", network.folder, "--output", "x.gguf", code=0)
        assert "rounded" not in ran.out
        assert "proof level: full" in ran.out


class TestNotANumber:
    """A network that gives no numbers equals no library: nan is not even equal to itself."""

    def test_in_a_weight_is_not_proven(self, made: Any, reweighted: Make, invoke: Make) -> None:
        def spoil(state: dict[str, Any]) -> None:
            state["projector.weight"][3, 5] = float("nan")

        folder = reweighted(made.wav2vec2("emotion"), spoil)
        ran = invoke("convert", "--model", folder, "--output", "x.gguf", code=3)
        assert "finite" in ran.err or "number" in ran.err

    def test_of_the_file_alone_is_found(
        self, made: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("converters.checkpoint._check_data", lambda *_: 0)
        described = made.wav2vec2("emotion").described()
        path = written(scaled(described.manifest, "projector.weight", float("nan")), tmp_path)
        assert not prove(path, described)


def scaled(manifest: Manifest, name: str, factor: float) -> Manifest:
    """The manifest with one tensor multiplied."""

    def change(tensor: LazyTensor) -> LazyTensor:
        if tensor.name != name:
            return tensor
        values = (tensor.read() * factor).astype(np.float32)
        return LazyTensor(name, values.shape, DType.F32, Held(name, values))

    assert name in manifest.by_name
    changed = tuple(change(t) for t in manifest.tensors)
    return Manifest(manifest.architecture, manifest.name, manifest.entries, changed)


def written(manifest: Manifest, folder: Path) -> Path:
    shutil.rmtree(folder / "mutant", ignore_errors=True)
    (folder / "mutant").mkdir()
    path = folder / "mutant" / "x.gguf"
    with emit(manifest, path):
        pass
    return path
