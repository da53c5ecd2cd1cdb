"""The light install: no torch, no transformers, no speechbrain."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.audio import read_audio
from fixtures import catalog

Make = Callable[..., Any]

HEAVY = "torch,transformers,speechbrain"
LINE = "pip install torch"


@pytest.mark.parametrize("head", ["emotion", "age_gender"])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_safetensors_folder_is_converted(
    head: str, shards: int, made: Any, process: Make, gguf_of: Make, tmp_path: Path
) -> None:
    network = made.wav2vec2(head, {"shards": shards})
    options = ("--output", tmp_path / "x.gguf")
    ran = process("convert", "--model", network.folder, *options, without=HEAVY, code=0)
    assert "proof level: ci" in ran.out.splitlines()
    proof = json.loads((tmp_path / "x.gguf.proof.json").read_text())
    assert (proof["proven"], proof["level"]) == (True, "ci")


def test_what_is_written_can_be_looked_at_and_replayed(
    made: Any, process: Make, replayed: Make, tmp_path: Path
) -> None:
    folder = made.wav2vec2("emotion").folder
    process("convert", "--model", folder, "--output", "x.gguf", without=HEAVY, code=0)
    ran = process("inspect", "x.gguf", without=HEAVY, code=0)
    assert "voicedetect.w2v2.hidden_size" in ran.out
    options = ("--audio", catalog.SPEECH, "--json")
    ran = process("replay", "x.gguf", *options, without=HEAVY, code=0)
    here = replayed(tmp_path / "x.gguf", read_audio(catalog.SPEECH))["emotion_logits"]
    np.testing.assert_allclose(ran.json["emotion_logits"], here, rtol=0, atol=1e-9)


def test_a_safetensors_folder_is_inspected(made: Any, process: Make) -> None:
    ran = process("inspect", made.wav2vec2("emotion").folder, without=HEAVY, code=0)
    assert ": wav2vec2_emotion\n" in ran.out


@pytest.mark.parametrize("command", ["convert", "inspect", "baseline"])
@pytest.mark.parametrize("form", ["ckpt", "bin", "sharded bin"])
def test_a_torch_file_asks_for_torch_with_the_line_that_installs_it(
    command: str, form: str, made: Any, process: Make, tmp_path: Path
) -> None:
    networks = {
        "ckpt": lambda: made.ecapa(),
        "bin": lambda: made.wav2vec2("emotion", {"torch_bin": True}),
        "sharded bin": lambda: made.wav2vec2("emotion", {"torch_bin": True, "shards": 2}),
    }
    folder = networks[form]().folder
    arguments = {
        "convert": ("--model", folder, "--output", "x.gguf"),
        "inspect": (folder,),
        "baseline": ("--model", folder, "--output", "x.gguf", "--audio", catalog.SPEECH),
    }[command]
    ran = process(command, *arguments, without=HEAVY, code=4)
    todo = [line for line in ran.err.splitlines() if line.startswith("  to do: ")]
    assert todo == [f"  to do: {LINE}, or convert a safetensors file"]
    assert not (tmp_path / "x.gguf").exists()


def test_the_line_names_the_packages_of_the_extra() -> None:
    project = tomllib.loads((catalog.HERE.parent / "pyproject.toml").read_text())["project"]
    extra = [r.split(">")[0] for r in project["optional-dependencies"]["torch"]]
    assert f"pip install {' '.join(extra)}" == LINE
    assert not [r for r in project["dependencies"] if r.startswith(("torch", "transformers"))]
    listed = project["optional-dependencies"]["reference"]
    assert {r.split(">")[0] for r in listed} == {"torch", "transformers"}


def test_a_baseline_asks_for_the_reference_extra(made: Any, process: Make) -> None:
    options = ("--output", "x.gguf", "--audio", catalog.SPEECH)
    folder = made.wav2vec2("emotion").folder
    ran = process("baseline", "--model", folder, *options, without=HEAVY, code=4)
    assert "to do: pip install torch transformers" in ran.err


def test_nothing_heavy_is_imported_to_convert_a_safetensors_folder_without_proof(
    made: Any, process: Make
) -> None:
    """Where it is installed, it still takes seconds."""
    source = """
import sys
from pathlib import Path
from converters.convert import convert
convert(Path(sys.argv[1]), Path("x.gguf"), verify="none")
heavy = {"torch", "transformers", "speechbrain", "onnxruntime"}
print(sorted(heavy & set(sys.modules)))
"""
    ran = process(made.wav2vec2("emotion").folder, source=source, code=0)
    assert ran.out == "[]\n"
