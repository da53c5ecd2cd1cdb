"""The acceptance check of checkpoints: the default models, and what is skipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Make = Callable[..., Any]

DEFAULTS = {
    (): ("ecapa_tdnn", "speechbrain/spkrec-ecapa-voxceleb"),
    ("--analyze",): ("wav2vec2_emotion", "superb/wav2vec2-base-superb-er"),
    ("--age-gender",): (
        "wav2vec2_age_gender",
        "audeering/wav2vec2-large-robust-24-ft-age-gender",
    ),
}


@pytest.mark.parametrize("flags", DEFAULTS, ids=" ".join)
def test_the_default_model_of_each_flag(
    flags: tuple[str, ...], made: Any, hub: Any, online: Make
) -> None:
    arch, model = DEFAULTS[flags]
    hub.add(model, made.named(arch).folder)
    # ECAPA's checkpoint is a pickle, which takes torch to read.
    without = "transformers,speechbrain" + (",torch" if flags else "")
    ran = online("check", *flags, "--json", without=without, code=0)
    assert (ran.json["status"], ran.json["arch"], ran.json["model"]) == ("pass", arch, model)
    assert ran.json["lint"]["clean"] is True


def test_a_folder_that_is_here(made: Any, online: Make) -> None:
    folder = made.wav2vec2("emotion").folder
    assert online("check", "--analyze", "--model", folder, code=0).out.endswith(f"pass: {folder}\n")
    assert (
        "not wav2vec2_age_gender" in online("check", "--age-gender", "--model", folder, code=1).err
    )


def skipped(ran: Any) -> Any:
    assert ran.code == 77, f"exit {ran.code}\n{ran.out}{ran.err}"
    assert ran.json["status"] == "skip"
    assert ran.json["lint"] is None
    return ran.json["reason"]


class TestSkipped:
    """Exit 77: a package is missing, or the checkpoint cannot be reached."""

    def test_torch_is_not_installed(self, made: Any, online: Make) -> None:
        folder = made.ecapa().folder
        ran = online("check", "--model", folder, "--json", without="torch")
        assert "pip install" in skipped(ran)["to do"]
        assert "pip install" in ran.err or ran.err == ""

    def test_gguf_is_not_installed(self, made: Any, online: Make) -> None:
        folder = made.wav2vec2("emotion").folder
        ran = online("check", "--model", folder, "--json", without="gguf,torch")
        assert "'gguf' is not installed" in skipped(ran)["error"]

    def test_nothing_listens(self, online: Make) -> None:
        down = {"HF_ENDPOINT": "http://127.0.0.1:9"}
        assert "cannot fetch" in skipped(online("check", "--json", env=down))["error"]

    def test_the_hub_hangs_up(self, hub: Any, online: Make) -> None:
        hub.hangs_up = True
        skipped(online("check", "--analyze", "--json"))

    def test_the_hub_is_switched_off(self, online: Make) -> None:
        skipped(online("check", "--json", env={"HF_HUB_OFFLINE": "1"}))

    @pytest.mark.slow  # the client tries again for half a minute
    def test_a_server_error(self, made: Any, hub: Any, online: Make) -> None:
        folder = made.wav2vec2("emotion").folder
        hub.add("owner/model", folder, failing=frozenset({"model.safetensors"}))
        skipped(online("check", "--model", "owner/model", "--json"))


class TestNotSkipped:
    """Whatever can be reached and is wrong fails; a misspelt name is a wrong call."""

    def test_a_gated_repository(self, made: Any, hub: Any, online: Make) -> None:
        hub.add("owner/model", made.wav2vec2("emotion").folder, gated=True)
        ran = online("check", "--model", "owner/model", "--json", code=1)
        assert "gated" in ran.json["reason"]["error"]

    def test_a_file_that_is_gone(self, made: Any, hub: Any, online: Make) -> None:
        folder = made.wav2vec2("emotion").folder
        hub.add("owner/model", folder, gone=frozenset({"model.safetensors"}))
        ran = online("check", "--model", "owner/model", "--json", code=1)
        assert ran.json["status"] == "fail"

    def test_a_name_that_does_not_exist(self, online: Make) -> None:
        ran = online("check", "--model", "owner/absent", "--json", code=2)
        assert "owner/absent" in ran.json["error"]["error"]

    def test_a_damaged_checkpoint(self, made: Any, copied: Make, online: Make) -> None:
        folder: Path = copied(made.wav2vec2("emotion"))
        file = folder / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-1000])
        assert online("check", "--model", folder, "--json", code=1).json["status"] == "fail"
