"""What ``graphtools inspect`` shows of a checkpoint; no weights are read for it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from converters.inspect_checkpoint import inspect_checkpoint
from converters.sources.source import open_source
from graphtools.tensors import Load

Make = Callable[..., Any]

NAMES = ["ecapa_tdnn", "wav2vec2_emotion", "wav2vec2_age_gender"]


def fates(found: dict[str, Any]) -> dict[str, str]:
    return {t["name"]: t["fate"] for t in found["tensors"]}


@pytest.mark.parametrize("arch", NAMES)
def test_shows_the_architecture_its_keys_and_every_tensor(
    arch: str, made: Any, invoke: Make
) -> None:
    network = made.named(arch)
    ran = invoke("inspect", network.folder, code=0)
    first, *lines = ran.out.splitlines()
    assert first == f"{network.folder}: {arch}"
    described = network.described()
    for entry in described.manifest.entries:
        if ".fbank." not in entry.key:
            assert f"  {entry.key}: {entry.value!r}  ({entry.origin})" in lines
    for name, tensor in described.source.tensors.items():
        (row,) = [line for line in lines if f" {name} " in line]
        assert str(list(tensor.shape)) in row
        assert tensor.dtype.label in row
        assert row.startswith(name.rpartition(".")[0])


@pytest.mark.parametrize("arch", NAMES)
def test_json_is_the_twins(arch: str, made: Any, invoke: Make) -> None:
    folder = made.named(arch).folder
    ran = invoke("inspect", folder, "--json", code=0)
    twin = inspect_checkpoint(open_source(folder), str(folder))
    assert ran.json == json.loads(json.dumps(twin.to_json()))
    assert ran.json["arch"] == arch


def test_what_is_renamed_and_what_is_left_out(made: Any, invoke: Make) -> None:
    found = fates(invoke("inspect", made.wav2vec2("emotion").folder, "--json", code=0).json)
    pos = "encoder.pos_conv_embed.conv"
    renamed = f"wav2vec2.{pos}.parametrizations.weight.original0"
    assert found[renamed] == f"w2v2.{pos}.weight_g"
    assert found["layer_weights"] == "layer_weights"
    found = fates(invoke("inspect", made.ecapa().folder, "--json", code=0).json)
    tracked = found["blocks.0.norm.norm.num_batches_tracked"]
    assert tracked == "left out: i64 buffer, not a weight"
    assert found["mean_var_norm_emb.count"].startswith("left out: ")
    assert found["mean_var_norm_emb.glob_std"] == "mean_var_norm_emb.glob_std"


def test_every_tensor_is_there_once(made: Any, invoke: Make) -> None:
    for arch in NAMES:
        network = made.named(arch)
        ran = invoke("inspect", network.folder, "--json", code=0)
        source = network.described().source
        names = [t["name"] for t in ran.json["tensors"]]
        assert names == [*source.tensors, *source.skipped]


def test_counts_the_parameters_and_names_the_files(made: Any, invoke: Make) -> None:
    network = made.wav2vec2("emotion", {"shards": 3})
    facts = invoke("inspect", network.folder, "--json", code=0).json["facts"]
    count = sum(p.numel() for p in network.module.parameters())
    assert facts["parameters"] == f"{count:,}"
    assert facts["files"] == ", ".join(f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3))


def test_works_where_only_the_user_knows_whether_to_normalise(made: Any, invoke: Make) -> None:
    network = made.wav2vec2("emotion", {"do_normalize": None})
    ran = invoke("inspect", network.folder, code=0)
    assert ": wav2vec2_emotion\n" in ran.out
    assert "to convert: " in ran.out
    assert "--do-normalize or --no-do-normalize" in ran.out
    assert "w2v2.encoder.pos_conv_embed.conv.weight_g" in ran.out


def test_what_it_does_not_know_is_not_made_up(made: Any, invoke: Make) -> None:
    """The value that would have to be asked for is not shown as if it were known."""
    network = made.wav2vec2("emotion", {"do_normalize": None})
    facts = invoke("inspect", network.folder, "--json", code=0).json["facts"]
    assert "True" not in facts.get("voicedetect.w2v2.do_normalize", "")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_act": "gelu_new"}, "outside what the forward was proven on"),
        ({"conv_bias": ...}, "config.json does not say 'conv_bias'"),
        ({"id2label": {"0": "a"}}, "the labels do not fit the classifier"),
    ],
)
def test_a_model_that_cannot_be_converted_is_shown_with_the_reason(
    changes: dict[str, Any], reason: str, made: Any, reconfigured: Make, invoke: Make
) -> None:
    folder = reconfigured(made.wav2vec2("emotion"), **changes)
    ran = invoke("inspect", folder, code=0)
    assert reason in ran.out
    assert "wav2vec2.encoder.layers.0.attention.q_proj.weight" in ran.out


@pytest.mark.parametrize("broken", ["odd shape", "no config"])
def test_a_model_that_is_not_whole_is_shown_too(
    broken: str, made: Any, reweighted: Make, invoke: Make
) -> None:
    def spoil(state: dict[str, Any]) -> None:
        if broken == "odd shape":
            state["classifier.weight"] = torch.ones(())

    folder = reweighted(made.wav2vec2("emotion"), spoil)
    if broken == "no config":
        (folder / "config.json").unlink()
    ran = invoke("inspect", folder, code=0)
    assert "classifier.weight" in ran.out


def test_a_folder_of_no_known_model(tmp_path: Path, invoke: Make) -> None:
    (tmp_path / "other").mkdir()
    state = {"encoder.a.weight": torch.ones(2, 3, dtype=torch.bfloat16), "n": torch.tensor(3)}
    save_file(state, tmp_path / "other" / "model.safetensors")
    ran = invoke("inspect", tmp_path / "other", code=0)
    assert f"{tmp_path / 'other'}: no known architecture" in ran.out
    assert "the checkpoint is of no known model" in ran.out
    (row,) = [line for line in ran.out.splitlines() if "encoder.a.weight" in line]
    assert row.split()[:2] == ["encoder.a", "encoder.a.weight"]
    assert "[2, 3]" in row
    assert "bf16" in row
    found = invoke("inspect", tmp_path / "other", "--json", code=0).json
    assert found["arch"] is None
    assert found["facts"]["parameters"] == "6"


def test_an_empty_folder_is_no_checkpoint(tmp_path: Path, invoke: Make) -> None:
    (tmp_path / "empty").mkdir()
    ran = invoke("inspect", tmp_path / "empty", code=2)
    assert "holds no models" in ran.err


@pytest.mark.parametrize("save", [{}, {"shards": 2}], ids=["one file", "shards"])
def test_no_weights_are_read(
    save: dict[str, Any], made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Load) -> Any:
        raise AssertionError(f"{self.name} was read")

    monkeypatch.setattr(Load, "read", refuse)
    folder = made.wav2vec2("emotion", save).folder
    found = inspect_checkpoint(open_source(folder), "model")
    assert found.arch == "wav2vec2_emotion"


def test_a_file_of_gigabytes_is_looked_at_at_once(
    made: Any, copied: Make, graphtools: Make
) -> None:
    """Its header says 8 GB of weights, and they are holes: reading them would take its time."""
    folder = copied(made.wav2vec2("emotion"))
    file = folder / "model.safetensors"
    raw = file.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    end = len(raw) - 8 - length
    header["wav2vec2.big"] = {
        "dtype": "F32",
        "shape": [2**31],
        "data_offsets": [end, end + 2**33],
    }
    text = json.dumps(header).encode()
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text + raw[8 + length :])
        stream.truncate(8 + len(text) + end + 2**33)
    ran = graphtools("inspect", folder, code=0)
    assert "wav2vec2.big" in ran.out
    assert "[2147483648]" in ran.out
