"""Checkpoints by their Hugging Face id, against a hub on this machine that speaks its interface."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import catalog

Make = Callable[..., Any]

EMOTION = "superb/wav2vec2-base-superb-er"
AGE_GENDER = "audeering/wav2vec2-large-robust-24-ft-age-gender"
ECAPA = "speechbrain/spkrec-ecapa-voxceleb"
CONFIGS = {"config.json", "preprocessor_config.json"}
# What repositories hold besides, and nobody needs.
CLUTTER = {
    "README.md": b"# A model\n",
    "flax_model.msgpack": b"f" * 5000,
    "tf_model.h5": b"t" * 5000,
    "training_args.bin": b"a" * 5000,
    "optimizer.pt": b"o" * 5000,
    "vocab.json": b"{}",
    ".gitattributes": b"",
}


def cluttered(repo: Any) -> Any:
    repo.files |= CLUTTER
    return repo


def shards(stem: str, suffix: str) -> set[str]:
    return {f"{stem}-0000{i}-of-00003.{suffix}" for i in (1, 2, 3)}


FORMS: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "safetensors": ("emotion", {}, {"model.safetensors", *CONFIGS}),
    "sharded safetensors": (
        "age_gender",
        {"shards": 3},
        {"model.safetensors.index.json", *shards("model", "safetensors"), *CONFIGS},
    ),
    "bin": ("emotion", {"torch_bin": True}, {"pytorch_model.bin", *CONFIGS}),
    "sharded bin": (
        "emotion",
        {"torch_bin": True, "shards": 3},
        {"pytorch_model.bin.index.json", *shards("pytorch_model", "bin"), *CONFIGS},
    ),
}


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest, made: Any, hub: Any) -> tuple[Any, set[str], str]:
    """A repository ``owner/model``: its network, the files that it takes, what to hide."""
    head, save, needed = FORMS[request.param]
    network = made.wav2vec2(head, save)
    cluttered(hub.add("owner/model", network.folder))
    # Reading a .bin takes torch; the proof is at level ci all the same.
    return network, needed, "transformers" if "torch_bin" in save else "torch"


class TestCommands:
    def test_convert(
        self,
        form: tuple[Any, set[str], str],
        hub: Any,
        online: Make,
        gguf_of: Make,
        raw: Make,
        tmp_path: Path,
    ) -> None:
        network, needed, without = form
        options = ("--model", "owner/model", "--output", "hub.gguf")
        online("convert", *options, without=without, code=0)
        found, local = raw(tmp_path / "hub.gguf"), raw(gguf_of(network.folder))
        assert found.values == local.values | {"general.name": "owner/model"}
        assert list(found.tensors) == list(local.tensors)
        for name, values in local.tensors.items():
            assert (found.tensors[name] == values).all(), name
        assert hub.asked == needed

    def test_inspect(self, form: tuple[Any, set[str], str], hub: Any, online: Make) -> None:
        network, needed, without = form
        ran = online("inspect", "owner/model", "--json", without=without, code=0)
        assert ran.json["model"] == "owner/model"
        assert ran.json["arch"].startswith("wav2vec2_")
        assert len(ran.json["tensors"]) == len(network.module.state_dict())
        assert hub.asked == needed

    @pytest.mark.parametrize("save", [{}, {"shards": 3}], ids=["one file", "shards"])
    def test_inspect_fetches_headers_only(
        self, save: dict[str, Any], made: Any, hub: Any, online: Make
    ) -> None:
        """Config, index and headers: kilobytes, of a model that may have gigabytes."""
        network = made.wav2vec2("emotion", save, hidden_size=192, intermediate_size=768)
        hub.add("owner/model", network.folder)
        ran = online("inspect", "owner/model", code=0)
        assert "wav2vec2_emotion" in ran.out
        weights = {name: sent for name, sent in hub.sent.items() if name.endswith("safetensors")}
        whole = sum(p.stat().st_size for p in network.folder.glob("*.safetensors"))
        assert whole > 5_000_000
        # The library asks for the first 100 kB of each file, which hold the header.
        assert max(weights.values()) <= 100_001, f"{weights} of {whole} bytes were fetched"

    def test_baseline(self, made: Any, hub: Any, online: Make, raw: Make, tmp_path: Path) -> None:
        cluttered(hub.add("owner/model", made.wav2vec2("emotion").folder))
        options = ("--model", "owner/model", "--audio", catalog.SPEECH, "--output", "b.gguf")
        online("baseline", *options, without="", code=0)
        found = raw(tmp_path / "b.gguf")
        assert found.values["general.name"] == "owner/model"
        assert "emotion_logits" in found.tensors
        assert hub.asked == {"model.safetensors", *CONFIGS}

    def test_a_second_call_fetches_nothing_again(self, made: Any, hub: Any, online: Make) -> None:
        hub.add("owner/model", made.wav2vec2("emotion").folder)
        options = ("--model", "owner/model", "--output", "x.gguf", "--verify", "none")
        online("convert", *options, code=0)
        hub.requests.clear()
        online("convert", *options, code=0)
        assert hub.asked == set()

    def test_one_file_of_a_repository_comes_with_its_configuration(
        self, made: Any, hub: Any, online: Make
    ) -> None:
        """Under a name of its own, beside others."""
        repo = hub.add("owner/model", made.wav2vec2("emotion").folder)
        repo.files["wav2vec2.fp32.safetensors"] = repo.files.pop("model.safetensors")
        options = ("--model", "owner/model", "--file", "wav2vec2.fp32.safetensors")
        online("convert", *options, "--output", "x.gguf", code=0)
        assert hub.asked == {"wav2vec2.fp32.safetensors", *CONFIGS}

    @pytest.mark.parametrize("command", ["convert", "inspect"])
    def test_a_checkpoint_in_a_folder_of_a_repository_comes_with_its_own_configuration(
        self, command: str, made: Any, hub: Any, online: Make
    ) -> None:
        repo = hub.add("owner/model", made.wav2vec2("emotion", {"shards": 3}).folder)
        repo.files |= {f"emotion/{name}": repo.files.pop(name) for name in [*repo.files]}
        repo.files["config.json"] = b"{}"
        file = ("--file", "emotion/model.safetensors.index.json")
        options = ("--model", "owner/model", "--output", "x.gguf", "--verify", "none")
        online(command, *(options if command == "convert" else ("owner/model",)), *file, code=0)
        index = "model.safetensors.index.json"
        needed = {index, *shards("model", "safetensors"), *CONFIGS}
        assert hub.asked == {f"emotion/{name}" for name in needed}

    def test_weights_and_onnx_in_one_repository_are_not_guessed_between(
        self, made: Any, hub: Any, online: Make
    ) -> None:
        repo = hub.add("owner/model", made.wav2vec2("emotion").folder)
        repo.files["onnx/model.onnx"] = b"not one"
        options = ("--model", "owner/model", "--output", "x.gguf")
        ran = online("convert", *options, code=2)
        assert "--file" in ran.err
        assert "model.safetensors" in ran.err
        online("convert", *options, "--file", "model.safetensors", code=0)
        assert "onnx/model.onnx" not in hub.asked


class TestDefaultModels:
    @pytest.mark.parametrize(
        ("flag", "repo", "head", "save"),
        [
            ("--analyze", EMOTION, "emotion", {"torch_bin": True, "old_weight_norm": True}),
            ("--analyze", EMOTION, "emotion", {}),
            ("--age-gender", AGE_GENDER, "age_gender", {}),
            ("--age-gender", AGE_GENDER, "age_gender", {"torch_bin": True}),
        ],
    )
    @pytest.mark.parametrize(
        "command", ["convert", pytest.param("baseline", marks=pytest.mark.slow)]
    )
    def test_stand_for_a_left_out_model(
        self,
        command: str,
        flag: str,
        repo: str,
        head: str,
        save: dict[str, Any],
        made: Any,
        hub: Any,
        online: Make,
        raw: Make,
        tmp_path: Path,
    ) -> None:
        cluttered(hub.add(repo, made.wav2vec2(head, save).folder))
        audio = ("--audio", catalog.SPEECH) if command == "baseline" else ()
        without = "" if audio else "transformers" if save else "torch"
        ran = online(command, flag, "--output", "x.gguf", *audio, without=without, code=0)
        found = raw(tmp_path / "x.gguf").values
        assert found["general.name"] == repo
        key = "baseline.arch" if command == "baseline" else "voicedetect.arch"
        assert found[key] == f"wav2vec2_{head}"
        weights = "pytorch_model.bin" if save else "model.safetensors"
        assert hub.asked == {weights, *CONFIGS}
        if command == "convert":
            assert ("not for commercial use" in ran.out) == (head == "age_gender")

    def test_of_ecapa(self, made: Any, hub: Any, online: Make, raw: Make, tmp_path: Path) -> None:
        repo = cluttered(hub.add(ECAPA, made.ecapa().folder))
        repo.files |= {"classifier.ckpt": b"c" * 5000, "label_encoder.txt": b"x"}
        options = ("--arch", "ecapa_tdnn", "--output", "x.gguf")
        online("convert", *options, without="speechbrain", code=0)
        assert raw(tmp_path / "x.gguf").values["general.name"] == ECAPA
        needed = {"embedding_model.ckpt", "hyperparams.yaml", "mean_var_norm_emb.ckpt"}
        assert needed <= hub.asked <= needed | {"config.json"}

    def test_are_for_an_architecture_that_is_named(self, hub: Any, online: Make) -> None:
        ran = online("convert", "--output", "x.gguf", code=2)
        assert "no model is named" in ran.err
        ran = online("convert", "--arch", "eres2net", "--output", "x.gguf", code=2)
        assert "no model is named" in ran.err
        assert hub.requests == []


class TestTrouble:
    """Each has its own clear message and exit code; nothing is "skipped", nothing is left."""

    @pytest.fixture
    def failed(self, online: Make, tmp_path: Path) -> Make:
        def convert(message: str, code: int, **more: Any) -> str:
            options = ("--model", "owner/model", "--output", "x.gguf")
            ran = online("convert", *options, code=code, **more)
            shown = ran.err[ran.err.index("error: ") :]
            assert message in shown
            assert "owner/model" in shown
            assert "skip" not in (ran.out + ran.err).lower()
            assert "Traceback" not in ran.err
            assert not (tmp_path / "x.gguf").exists()
            return shown

        return convert

    def test_no_such_repository(self, failed: Make) -> None:
        assert "check the name" in failed("no file, folder or hub repository", 2)

    def test_a_gated_repository(self, made: Any, hub: Any, failed: Make) -> None:
        hub.add("owner/model", made.wav2vec2("emotion").folder, gated=True)
        assert "set HF_TOKEN" in failed("is gated", 3)

    def test_a_file_that_is_listed_and_gone(self, made: Any, hub: Any, failed: Make) -> None:
        folder = made.wav2vec2("emotion").folder
        hub.add("owner/model", folder, gone=frozenset({"model.safetensors"}))
        failed("is not on the hub any more", 5)

    def test_a_shard_that_the_repository_lacks(self, made: Any, hub: Any, online: Make) -> None:
        repo = hub.add("owner/model", made.wav2vec2("emotion", {"shards": 3}).folder)
        del repo.files["model-00002-of-00003.safetensors"]
        ran = online("convert", "--model", "owner/model", "--output", "x.gguf", code=3)
        assert "a shard is missing" in ran.err
        assert "model-00002-of-00003.safetensors" in ran.err

    def test_a_repository_without_the_configuration(
        self, made: Any, hub: Any, online: Make
    ) -> None:
        repo = hub.add("owner/model", made.wav2vec2("emotion").folder)
        del repo.files["config.json"]
        ran = online("convert", "--model", "owner/model", "--output", "x.gguf", code=2)
        assert "the folder has no config.json" in ran.err

    def test_a_repository_without_the_preprocessors_configuration(
        self, made: Any, hub: Any, online: Make
    ) -> None:
        repo = hub.add("owner/model", made.wav2vec2("emotion").folder)
        del repo.files["preprocessor_config.json"]
        options = ("--model", "owner/model", "--output", "x.gguf")
        assert "--do-normalize" in online("convert", *options, code=2).err
        online("convert", *options, "--no-do-normalize", code=0)

    def test_a_repository_without_a_model(self, hub: Any, tmp_path: Path, failed: Make) -> None:
        (tmp_path / "repo").mkdir()
        (tmp_path / "repo" / "README.md").write_text("# Nothing\n")
        hub.add("owner/model", tmp_path / "repo")
        failed("holds no models", 2)

    @pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
    @pytest.mark.parametrize("cut", [0, 1000])
    def test_a_download_that_breaks_off(
        self, file: str, cut: int, made: Any, hub: Any, failed: Make
    ) -> None:
        hub.add("owner/model", made.wav2vec2("emotion").folder, cut={file: cut})
        failed("cannot fetch owner/model from the hub", 5)

    def test_a_download_that_breaks_off_is_taken_up_again(
        self, made: Any, hub: Any, failed: Make, online: Make
    ) -> None:
        folder = made.wav2vec2("emotion").folder
        hub.add("owner/model", folder, cut={"model.safetensors": 1000})
        failed("cannot fetch owner/model from the hub", 5)
        hub.add("owner/model", folder)
        online("convert", "--model", "owner/model", "--output", "x.gguf", code=0)

    def test_a_file_that_the_hub_fails_to_give(self, made: Any, hub: Any, failed: Make) -> None:
        folder = made.wav2vec2("emotion").folder
        hub.add("owner/model", folder, failing=frozenset({"model.safetensors"}))
        shown = failed("cannot fetch owner/model from the hub", 5)
        assert "not on the hub any more" not in shown

    def test_a_hub_that_hangs_up(self, hub: Any, failed: Make) -> None:
        hub.hangs_up = True
        failed("cannot fetch owner/model from the hub", 5)

    def test_a_hub_that_is_down(self, failed: Make) -> None:
        down = {"HF_ENDPOINT": "http://127.0.0.1:9"}
        shown = failed("cannot fetch owner/model from the hub", 5, env=down)
        assert "check the network" in shown

    @pytest.mark.parametrize("flag", ["--analyze", "--age-gender"])
    def test_a_default_model_that_cannot_be_had_is_named(
        self, flag: str, hub: Any, online: Make
    ) -> None:
        ran = online("convert", flag, "--output", "x.gguf", code=2)
        assert (EMOTION if flag == "--analyze" else AGE_GENDER) in ran.err

    @pytest.mark.parametrize(
        "index",
        [
            b"{",
            b"[]",
            b"{}",
            b'{"weight_map": null}',
            b'{"weight_map": {"a": 3}}',
            b'{"weight_map": {"a": "../../../etc/passwd"}}',
            b'{"weight_map": {"a": "/etc/passwd"}}',
            b"\xff\xfe",
        ],
    )
    def test_an_index_that_is_damaged(
        self, index: bytes, made: Any, hub: Any, online: Make
    ) -> None:
        repo = hub.add("owner/model", made.wav2vec2("emotion", {"shards": 3}).folder)
        repo.files["model.safetensors.index.json"] = index
        ran = online("convert", "--model", "owner/model", "--output", "x.gguf", code=3)
        assert "model.safetensors.index.json" in ran.err

    def test_a_pointer_in_place_of_the_weights(self, made: Any, hub: Any, online: Make) -> None:
        repo = hub.add("owner/model", made.wav2vec2("emotion").folder)
        repo.files["model.safetensors"] = b"version https://git-lfs.github.com/spec/v1\noid x\n"
        ran = online("convert", "--model", "owner/model", "--output", "x.gguf", code=3)
        assert "Git LFS pointer" in ran.err
