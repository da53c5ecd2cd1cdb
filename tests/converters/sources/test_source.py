"""A checkpoint as one thing: a file, a folder, shards with their index, files beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from converters.sources.source import CHECKPOINT_FILES, open_source
from graphtools.errors import NotAModelError, UnsupportedError, UsageError

Make = Callable[..., Any]

STATE = {"z": torch.arange(4.0), "a": torch.ones(2, 3), "m": torch.full((5,), 2.0)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m").mkdir()
    return tmp_path / "m"


@pytest.fixture
def sharded(folder: Path) -> Make:
    """Two shards and their index; the arguments replace what the index says."""

    def make(weight_map: Any = None, **shards: Any) -> Path:
        files = shards or {"one": {"z": STATE["z"], "a": STATE["a"]}, "two": {"m": STATE["m"]}}
        for name, state in files.items():
            save_file(state, folder / f"{name}.safetensors")
        listed = {n: f"{name}.safetensors" for name, state in files.items() for n in state}
        index = {"metadata": {}, "weight_map": listed if weight_map is None else weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return folder

    return make


def refused(path: Path, message: str, kind: type[Exception] = NotAModelError) -> str:
    with pytest.raises(kind, match=message) as caught:
        open_source(path)
    return str(caught.value)


class TestOneFile:
    def test_of_safetensors(self, folder: Path) -> None:
        save_file(STATE, folder / "model.safetensors")
        for path in (folder, folder / "model.safetensors"):
            source = open_source(path)
            assert source.path == path
            assert source.files == (folder / "model.safetensors",)
            assert set(source.shapes.items()) == {("z", (4,)), ("a", (2, 3)), ("m", (5,))}
            np.testing.assert_array_equal(source.tensors["z"].read(), np.arange(4))

    @pytest.mark.parametrize("name", ["pytorch_model.bin", "embedding_model.ckpt"])
    def test_of_torch(self, name: str, folder: Path) -> None:
        torch.save({**STATE, "step": 3}, folder / name)
        for path in (folder, folder / name):
            source = open_source(path)
            assert list(source.tensors) == ["z", "a", "m"]
            assert source.skipped == {"step": "int"}

    def test_under_another_name_has_to_be_named(self, folder: Path) -> None:
        save_file(STATE, folder / "weights.safetensors")
        assert set(open_source(folder / "weights.safetensors").tensors) == {"z", "a", "m"}
        message = refused(folder, "the folder holds no checkpoint", UsageError)
        assert "name the folder with the weights, or the file itself" in message

    def test_safetensors_goes_before_torch(self, folder: Path) -> None:
        """The same weights are often published in both; one of them needs no torch."""
        save_file({"safe": torch.ones(1)}, folder / "model.safetensors")
        torch.save({"torch": torch.ones(1)}, folder / "pytorch_model.bin")
        assert list(open_source(folder).tensors) == ["safe"]

    def test_through_a_link_to_the_file(self, folder: Path) -> None:
        """As the hub's cache stores them."""
        save_file(STATE, folder.parent / "blob")
        (folder / "model.safetensors").symlink_to("../blob")
        assert set(open_source(folder).tensors) == {"z", "a", "m"}
        assert set(open_source(folder / "model.safetensors").tensors) == {"z", "a", "m"}

    @pytest.mark.parametrize("form", ["safetensors", "bin"])
    def test_through_a_link_to_the_folder(self, form: str, folder: Path) -> None:
        if form == "bin":
            torch.save(STATE, folder / "pytorch_model.bin")
        else:
            save_file(STATE, folder / "model.safetensors")
        (folder.parent / "link").symlink_to(folder, target_is_directory=True)
        assert set(open_source(folder.parent / "link").tensors) == {"z", "a", "m"}


class TestNothing:
    def test_where_there_is_nothing(self, folder: Path) -> None:
        refused(folder / "absent", "no such file or folder", UsageError)

    def test_an_empty_folder_lists_what_it_might_hold(self, folder: Path) -> None:
        message = refused(folder, "the folder holds no checkpoint", UsageError)
        assert all(name in message for name in CHECKPOINT_FILES)

    @pytest.mark.parametrize("name", CHECKPOINT_FILES)
    def test_a_dangling_link(self, name: str, folder: Path) -> None:
        (folder / name).symlink_to(folder.parent / "gone")
        if name.endswith("index.json"):
            refused(folder, "link|JSON", (UsageError, NotAModelError))  # type: ignore[arg-type]
            return
        message = refused(folder, "a link to a file that is not there", UsageError)
        assert "gone" in message
        message = refused(folder / name, "a link to a file that is not there", UsageError)

    def test_a_dangling_link_of_a_shard(self, sharded: Make) -> None:
        folder = sharded()
        (folder / "two.safetensors").unlink()
        (folder / "two.safetensors").symlink_to("gone")
        refused(folder, "a link to a file that is not there", UsageError)


class TestShards:
    def test_are_joined_in_the_order_of_the_index(self, sharded: Make) -> None:
        folder = sharded()
        source = open_source(folder)
        assert list(source.tensors) == [*open_source(folder / "one.safetensors").tensors, "m"]
        assert [f.name for f in source.files] == ["one.safetensors", "two.safetensors"]
        np.testing.assert_array_equal(source.tensors["m"].read(), STATE["m"])

    def test_of_torch_are_joined_and_what_is_no_tensor_is_listed(self, folder: Path) -> None:
        torch.save({"a": STATE["a"], "step": 3}, folder / "one.bin")
        torch.save({"m": STATE["m"], "version": "1"}, folder / "two.bin")
        index = {"weight_map": {"a": "one.bin", "m": "two.bin"}}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        source = open_source(folder)
        assert list(source.tensors) == ["a", "m"]
        assert source.skipped == {"step": "int", "version": "str"}

    def test_an_index_goes_before_a_single_file(self, sharded: Make) -> None:
        folder = sharded()
        save_file({"single": torch.ones(1)}, folder / "model.safetensors")
        assert "single" not in open_source(folder).tensors

    def test_one_is_missing(self, sharded: Make) -> None:
        folder = sharded()
        (folder / "one.safetensors").unlink()
        message = refused(folder, "a shard is missing")
        assert "one.safetensors" in message
        assert "the 2 tensors that the index puts there" in message

    def test_one_is_damaged(self, sharded: Make) -> None:
        folder = sharded()
        raw = (folder / "two.safetensors").read_bytes()
        (folder / "two.safetensors").write_bytes(raw[:-4])
        assert "two.safetensors" in refused(folder, "runs past the end")

    def test_one_is_a_pointer(self, sharded: Make) -> None:
        folder = sharded()
        (folder / "two.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
        assert "two.safetensors" in refused(folder, "not a safetensors file")

    def test_a_tensor_is_in_two(self, sharded: Make) -> None:
        folder = sharded(one=STATE, two={"m": STATE["m"]})
        message = refused(folder, "the tensor 'm' is in two files")
        assert "one.safetensors and two.safetensors" in message

    @pytest.mark.parametrize(
        "name",
        ["../one.safetensors", "/one.safetensors", "sub/one.safetensors", "..", ".", "", "a/../b"],
    )
    def test_an_index_names_a_file_outside_its_folder(self, name: str, sharded: Make) -> None:
        folder = sharded()
        save_file({"z": torch.ones(1)}, folder.parent / "one.safetensors")
        (folder / "sub").mkdir()
        save_file({"z": torch.ones(1)}, folder / "sub" / "one.safetensors")
        sharded({"z": name, "a": "one.safetensors", "m": "two.safetensors"})
        message = refused(folder, "the index names a file outside its folder")
        assert f"found: {name}" in message or not name

    def test_an_index_puts_a_tensor_elsewhere(self, sharded: Make) -> None:
        where = {"z": "two.safetensors", "a": "one.safetensors", "m": "two.safetensors"}
        message = refused(sharded(where), "the index does not fit its shards: tensor 'z'")
        assert "expected: in two.safetensors" in message
        assert "found: in one.safetensors" in message

    def test_an_index_lists_a_tensor_that_is_nowhere(self, sharded: Make) -> None:
        listed = dict.fromkeys("za", "one.safetensors") | dict.fromkeys("mq", "two.safetensors")
        message = refused(sharded(listed), "the index does not fit its shards: tensor 'q'")
        assert "in none of the shards" in message

    def test_an_index_lacks_a_tensor_that_is_there(self, sharded: Make) -> None:
        listed = {"z": "one.safetensors", "m": "two.safetensors"}
        message = refused(sharded(listed), "in the shards and not in the index", UnsupportedError)
        assert "found: a" in message

    @pytest.mark.parametrize(
        "text",
        ["", "{", "[]", "3", "{}", '{"weight_map": null}', '{"weight_map": ["a"]}',
         '{"weight_map": {"a": 3}}', '{"weight_map": {"a": null}}', "[" * 100_000],
    )  # fmt: skip
    def test_an_index_is_damaged(self, text: str, folder: Path) -> None:
        (folder / "model.safetensors.index.json").write_text(text)
        assert "model.safetensors.index.json" in refused(folder, "JSON|weight_map")

    def test_an_index_is_no_text(self, folder: Path) -> None:
        (folder / "model.safetensors.index.json").write_bytes(b"\xff\xfe\x00")
        refused(folder, "not JSON")


class TestBeside:
    def test_a_normaliser_joins_under_its_own_name(self, folder: Path) -> None:
        torch.save({"fc.weight": torch.ones(2)}, folder / "embedding_model.ckpt")
        normaliser = {"count": 3, "glob_mean": torch.ones(4), "spk_dict_mean": {}}
        torch.save(normaliser, folder / "mean_var_norm_emb.ckpt")
        source = open_source(folder)
        assert list(source.tensors) == ["fc.weight", "mean_var_norm_emb.glob_mean"]
        assert source.tensors["mean_var_norm_emb.glob_mean"].name == "mean_var_norm_emb.glob_mean"
        assert source.skipped == {
            "mean_var_norm_emb.count": "int",
            "mean_var_norm_emb.spk_dict_mean": "dict",
        }
        names = [f.name for f in source.files]
        assert names == ["embedding_model.ckpt", "mean_var_norm_emb.ckpt"]

    def test_only_goes_with_an_embedding_model(self, folder: Path) -> None:
        torch.save({"glob_mean": torch.ones(4)}, folder / "mean_var_norm_emb.ckpt")
        save_file(STATE, folder / "model.safetensors")
        assert set(open_source(folder).tensors) == {"z", "a", "m"}

    def test_that_is_damaged_is_not_taken_for_absent(self, folder: Path) -> None:
        torch.save({"fc.weight": torch.ones(2)}, folder / "embedding_model.ckpt")
        (folder / "mean_var_norm_emb.ckpt").write_bytes(b"")
        assert "mean_var_norm_emb.ckpt" in refused(folder, "not a complete torch checkpoint")

    def test_that_is_a_dangling_link_is_not_taken_for_absent(self, folder: Path) -> None:
        torch.save({"fc.weight": torch.ones(2)}, folder / "embedding_model.ckpt")
        (folder / "mean_var_norm_emb.ckpt").symlink_to("gone")
        refused(folder, "a link to a file that is not there", UsageError)

    def test_json_and_text_are_read_from_the_folder_of_a_single_file_too(
        self, folder: Path
    ) -> None:
        save_file(STATE, folder / "model.safetensors")
        (folder / "config.json").write_text('{"a": 1}')
        (folder / "hyperparams.yaml").write_text("a: 1\n")
        for path in (folder, folder / "model.safetensors"):
            source = open_source(path)
            assert source.json("config.json") == {"a": 1}
            assert source.text("hyperparams.yaml") == "a: 1\n"
            assert source.json("absent.json") is None
            assert source.text("absent.yaml") is None

    @pytest.mark.parametrize("text", ["{", "[]", "null", "\x00"])
    def test_json_that_is_not_an_object_is_refused(self, text: str, folder: Path) -> None:
        save_file(STATE, folder / "model.safetensors")
        (folder / "config.json").write_text(text)
        source = open_source(folder)
        with pytest.raises(NotAModelError, match="JSON"):
            source.json("config.json")

    def test_text_that_is_not_utf_8_is_read_as_far_as_it_goes(self, folder: Path) -> None:
        save_file(STATE, folder / "model.safetensors")
        (folder / "hyperparams.yaml").write_bytes(b"a: \xff1\n")
        assert open_source(folder).text("hyperparams.yaml") == "a: \ufffd1\n"
