"""A ``--model`` argument that is a path: a file, or a folder with one model."""

from __future__ import annotations

from pathlib import Path

import pytest

from converters.sources.locate import is_checkpoint, locate
from converters.sources.source import CHECKPOINT_FILES, open_source
from graphtools.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "README.md").touch()
    return tmp_path / "m"


def test_a_file_is_itself(folder: Path) -> None:
    (folder / "a.onnx").touch()
    assert locate(str(folder / "a.onnx")) == folder / "a.onnx"


def test_a_file_of_another_name_too(folder: Path) -> None:
    (folder / "weights").touch()
    assert locate(str(folder / "weights")) == folder / "weights"


def test_a_path_that_does_not_exist_is_left_to_the_reader(tmp_path: Path) -> None:
    for name in (tmp_path / "absent.onnx", tmp_path / "absent", Path("absent/model.onnx")):
        assert locate(str(name)) == name


def test_a_dangling_link_is_a_path(folder: Path) -> None:
    (folder / "a").symlink_to(folder / "gone")
    assert locate(str(folder / "a")) == folder / "a"


def test_a_folder_with_one_model_is_that_model(folder: Path) -> None:
    (folder / "onnx").mkdir()
    (folder / "onnx" / "a.onnx").touch()
    (folder / "onnx" / "a.onnx.data").touch()
    assert locate(str(folder)) == folder / "onnx" / "a.onnx"


def test_a_folder_with_several_lists_them(folder: Path) -> None:
    for name in ("b.onnx", "a.onnx"):
        (folder / name).touch()
    with pytest.raises(UsageError, match="holds 2 models") as caught:
        locate(str(folder))
    assert caught.value.found == "a.onnx, b.onnx"
    assert "--file" in str(caught.value.expected)
    assert locate(str(folder), "b.onnx") == folder / "b.onnx"


def test_a_checkpoint_beside_an_onnx_file_is_not_guessed(folder: Path) -> None:
    (folder / "a.onnx").touch()
    (folder / "model.safetensors").touch()
    with pytest.raises(UsageError, match="holds 2 models"):
        locate(str(folder))
    assert locate(str(folder), "a.onnx") == folder / "a.onnx"


def test_a_folder_with_none(folder: Path) -> None:
    with pytest.raises(UsageError, match="holds no models") as caught:
        locate(str(folder))
    assert caught.value.found == "none"


def test_a_file_that_the_folder_has_not(folder: Path) -> None:
    (folder / "a.onnx").touch()
    with pytest.raises(UsageError, match=r"has no b\.onnx"):
        locate(str(folder), "b.onnx")


@pytest.mark.parametrize("name", ["../a.onnx", "/etc/hostname", "README.md/../../a.onnx"])
def test_a_file_outside_the_folder_is_not_taken(folder: Path, name: str) -> None:
    (folder.parent / "a.onnx").touch()
    (folder / "b.onnx").touch()
    with pytest.raises(UsageError):
        locate(str(folder), name)


def test_a_file_option_beside_a_file_is_a_wrong_call(folder: Path) -> None:
    (folder / "a.onnx").touch()
    with pytest.raises(UsageError, match="--file goes with a folder"):
        locate(str(folder / "a.onnx"), "a.onnx")


class TestCheckpoints:
    @pytest.mark.parametrize("name", CHECKPOINT_FILES)
    def test_a_folder_with_one_is_itself(self, name: str, folder: Path) -> None:
        """Its configuration stands beside the weights."""
        (folder / name).touch()
        assert locate(str(folder)) == folder
        assert is_checkpoint(folder)

    def test_the_same_weights_in_two_forms_are_one_checkpoint(self, folder: Path) -> None:
        for name in ("model.safetensors", "pytorch_model.bin", "config.json"):
            (folder / name).touch()
        assert locate(str(folder)) == folder

    @pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
    def test_the_form_that_is_named_is_the_one_that_is_read(self, name: str, folder: Path) -> None:
        import torch
        from safetensors.torch import save_file

        save_file({"model.safetensors": torch.ones(1)}, folder / "model.safetensors")
        torch.save({"pytorch_model.bin": torch.ones(1)}, folder / "pytorch_model.bin")
        assert list(open_source(locate(str(folder), name)).tensors) == [name]

    def test_an_index_that_is_named_brings_its_shards(self, folder: Path) -> None:
        """Beside the same weights in one file, which would go before it."""
        import torch
        from safetensors.torch import save_file

        index = "pytorch_model.bin.index.json"
        save_file({"one": torch.ones(1)}, folder / "model.safetensors")
        torch.save({"a": torch.ones(1)}, folder / "shard.bin")
        (folder / index).write_text('{"weight_map": {"a": "shard.bin"}}')
        path = locate(str(folder), index)
        assert is_checkpoint(path)
        assert list(open_source(path).tensors) == ["a"]

    def test_a_file_of_another_name_can_be_named(self, folder: Path) -> None:
        for name in ("model.safetensors", "model.fp16.safetensors"):
            (folder / name).touch()
        assert locate(str(folder), "model.fp16.safetensors") == folder / "model.fp16.safetensors"

    def test_one_in_a_folder_below_is_not_found_by_itself(self, folder: Path) -> None:
        (folder / "below").mkdir()
        (folder / "below" / "model.safetensors").touch()
        with pytest.raises(UsageError, match="holds no models"):
            locate(str(folder))
        assert locate(str(folder / "below")) == folder / "below"

    def test_a_dangling_link_is_found_so_that_it_can_be_refused(self, folder: Path) -> None:
        (folder / "model.safetensors").symlink_to(folder / "gone")
        with pytest.raises(UsageError, match="a link to a file that is not there"):
            open_source(locate(str(folder)))

    @pytest.mark.parametrize("suffix", ["safetensors", "bin", "pt", "pth", "ckpt"])
    def test_files_are_known_by_their_suffix(self, suffix: str) -> None:
        assert is_checkpoint(Path(f"weights.{suffix}"))
        assert locate(f"owner/absent.{suffix}") == Path(f"owner/absent.{suffix}")

    @pytest.mark.parametrize("name", ["model.onnx", "model.gguf", "model"])
    def test_other_files_are_none(self, name: str) -> None:
        assert not is_checkpoint(Path(name))
