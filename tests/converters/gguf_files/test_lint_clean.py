"""What `convert` and `baseline` write is clean, and what is not a fault is not found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from converters import gguf_file
from converters.golden_taps import golden_taps
from converters.lint import lint
from converters.lint_network import networks
from converters.replay import Replay
from fixtures import catalog
from graphtools.shape_ops import ShapeOps

Make = Callable[..., Any]


def test_every_kind_of_file(kind: str, files: Make) -> None:
    found = lint(files(kind))
    assert [str(f) for f in found.findings] == []
    assert found
    assert (found.schema == "") == (kind == "foreign") == bool(found.notes)
    data = found.to_json()
    assert (data["clean"], data["findings"]) == (True, [])
    assert data["tensors"] == found.tensors > 0


def test_a_file_of_others_is_held_against_ggmls_limits_only(files: Make) -> None:
    found = lint(files("foreign"))
    assert found.schema == ""
    assert found.to_json()["schema"] is None
    assert found.notes == (
        "general.architecture 'llama' is none of ours: only ggml's limits and the values were "
        "checked",
    )


def test_a_file_comes_back_from_its_parts_byte_for_byte(
    kind: str, files: Make, planted: Make
) -> None:
    """Else a planted fault would not be the only change."""
    assert planted(kind, lambda file: None).read_bytes() == files(kind).read_bytes()


def test_goldens_of_any_tensors(tmp_path: Path) -> None:
    """With long names, integers, and masks that are all zero."""
    path = tmp_path / "taps.gguf"
    golden_taps(catalog.path("campplus_tiny"), path, seed=0, dims={"T": 60}, taps=["all"])
    found = lint(path)
    assert found, found.findings
    assert found.schema == "voicedetect-baseline"


def test_an_all_zero_mean_vector(planted: Make) -> None:
    def change(file: Any) -> None:
        vector = file.tensor("mean_vec")
        vector.values = np.zeros_like(vector.values)

    assert lint(planted("resnet", change))


def test_keys_that_any_gguf_may_have(planted: Make) -> None:
    def change(file: Any) -> None:
        file.add("general.license", "string", "apache-2.0")
        file.add("general.alignment", "u32", 32)
        file.add("general.file_type", "u32", 0)

    assert lint(planted("eres2net", change))


def test_another_alignment(planted: Make) -> None:
    def change(file: Any) -> None:
        file.add("general.alignment", "u32", 64)
        file.alignment = 64

    assert lint(planted("resnet", change))


def test_a_codecs_weights_may_be_quantised_later(planted: Make) -> None:
    def change(file: Any) -> None:
        tensor = file.tensor("encoder.1.transformer.layers.0.linear1.weight")
        tensor.data = tensor.values.astype("<f2").tobytes()
        tensor.number = 1

    assert lint(planted("moss", change))


def test_a_checkpoint_is_kept_whole(planted: Make) -> None:
    """Tensors that no layer reads are in its state dict."""

    def change(file: Any) -> None:
        tensor = file.tensor("fc.conv.bias")
        file.tensors.append(type(tensor)("extra", tensor.ne, 0, tensor.data))

    assert lint(planted("ecapa", change))


def test_shapes_are_those_that_the_replay_computes(arch: str, files: Make, speech: Any) -> None:
    """The shape reading against the numpy one, at every stage of every network."""
    manifest = gguf_file.read(files(arch))
    replay = Replay.of(manifest)
    network = networks(replay.arch, manifest)[0]
    shapes = {place: manifest.by_name[name].shape for place, name in network.names.items()}
    ops = ShapeOps(shapes, network.strides)
    out = network.family.forward(ops, network.input, network.config)
    assert ops.misfits == []

    rng = np.random.default_rng(0)
    sample = {"moss": rng.normal(size=(1, 640)), "emotion": rng.normal(size=8000)}
    sample["age_gender"] = sample["emotion"]
    seen: dict[str, tuple[int, ...]] = {}

    def keep(stage: str, x: Any) -> Any:
        seen[stage] = x.shape
        return x

    result = replay.run(sample.get(arch, speech[:120]), keep)
    assert set(seen) == set(ops.stages)
    for stage, shape in {**seen, "": result.shape}.items():
        told = ops.stages[stage] if stage else out
        assert len(told) == len(shape), stage
        assert all(a in (None, b) for a, b in zip(told, shape, strict=True)), (stage, told, shape)
        # Only time is left open, and it is the last axis.
        assert None not in told[:-1], stage


def test_paths_may_be_text(files: Make) -> None:
    assert lint(str(files("foreign"))).path == Path(files("foreign"))


def test_tensors_of_many_pieces(planted: Make) -> None:
    """Zeros in the later pieces, and blocks that no piece may cut."""

    def change(file: Any) -> None:
        values = np.zeros(3_000_000, np.float32)
        values[0] = 1.0
        file.tensor("w").values = values
        blocks = file.tensor("q")
        blocks.ne, blocks.data = (32, 150_000), blocks.data * 50_000

    assert lint(planted("foreign", change))
