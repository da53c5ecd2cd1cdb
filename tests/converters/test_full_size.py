"""The full-size exports of the real classes: figures, floors of the proof, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from converters import gguf_file
from converters.baseline import baseline
from converters.compare import local_error
from converters.convert import convert
from converters.proof_result import GATE, Proof
from converters.proof_source import probes_of
from converters.replay import Replay, replay
from fixtures import catalog
from graphtools.errors import MissError
from graphtools.onnx_edit import SegmentRule, has_partial_windows
from graphtools.runtime import Runner

pytestmark = pytest.mark.slow

Make = Callable[..., Any]
Array = npt.NDArray[Any]

RESNET34 = (1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1)
F32 = {eps: float(np.float32(eps)) for eps in (1e-5, 1e-7, 1e-8)}


def resnet(stride: tuple[int, ...], mean_vec: str, dim: int = 256) -> dict[str, Any]:
    return {
        "voicedetect.arch": "wespeaker_resnet34",
        "voicedetect.embedding_dim": dim,
        "voicedetect.resnet.stride": stride,
        "voicedetect.resnet.mean_vec": mean_vec,
        "voicedetect.resnet.var_eps": F32[1e-7],
    }


def eres2net(channels: int, dim: int) -> dict[str, Any]:
    return {
        "voicedetect.arch": "eres2net",
        "voicedetect.embedding_dim": dim,
        "voicedetect.eres2net.num_blocks": (3, 4, 6, 3),
        "voicedetect.eres2net.m_channels": channels,
        "voicedetect.eres2net.scale": 2,
        "voicedetect.eres2net.relu_clamp": 20.0,
        "voicedetect.eres2net.var_eps": F32[1e-8],
    }


def campplus(dim: int) -> dict[str, Any]:
    return {
        "voicedetect.arch": "campplus",
        "voicedetect.embedding_dim": dim,
        "voicedetect.campplus.bn_eps": F32[1e-5],
    }


FIGURES: dict[str, dict[str, Any]] = {
    "resnet34": resnet(RESNET34, "mean_vec"),
    "resnet34_zero_mean": resnet(RESNET34, "mean_vec"),
    "resnet34_no_mean": resnet(RESNET34, ""),
    "resnet18": resnet((1, 1, 2, 1, 2, 1, 2, 1), "mean_vec"),
    "eres2net_base": eres2net(32, 512),
    "eres2net_large": eres2net(64, 512),
    "eres2net_192": eres2net(32, 192),
    "campplus_192": campplus(192),
    "campplus_512": campplus(512),
    "campplus_merged": campplus(192),
}
# Names, biases that are "", tensors.
LISTS = {
    "eres2net": ("eres2net.conv_weight", 96, 3, 191),
    "campplus": ("campplus.conv_weight", 225, 55, 617),
}
# The nearest family, and what the first difference is about.
REFUSED = {
    "eres2net_huge": "ERes2Net",
    "resnet34_two_emb": "ResNet",
    "mlp": "",
}


def test_the_catalog_has_no_other_networks() -> None:
    unstored = {"eres2netv2", "resnet50", "resnet152"}  # recovered: test_unstored.py
    assert sorted([*FIGURES, *REFUSED, *unstored]) == sorted(catalog.names(committed=False))


@pytest.mark.parametrize("name", FIGURES)
def test_converts_is_proven_and_agrees_with_its_goldens(
    name: str, tmp_path: Path, recovered: Make, speech: Array,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    path, output = catalog.path(name), tmp_path / "x.gguf"
    done = convert(path, output, name=name)
    assert isinstance(done.proof, Proof)
    assert done.proof
    for key, value in FIGURES[name].items():
        assert done.manifest[key] == value, key
    arch = done.arch
    if arch in LISTS:
        key, count, without, tensors = LISTS[arch]
        weights = done.manifest[f"voicedetect.{key}"]
        biases = done.manifest[f"voicedetect.{key.replace('weight', 'bias')}"]
        assert len(weights) == len(biases) == count
        assert list(biases).count("") == without
        assert len(done.manifest.tensors) == tensors or name == "campplus_merged"
    if arch == "campplus":
        assert len(done.manifest["voicedetect.campplus.bn_prefix"]) == 55
        assert set(done.proof.end_to_end) == {"kernel", "valid"}
        assert done.proof.rule_distance is not None
        assert done.proof.rule_distance > 0
        told = f"distance of the segment rules {done.proof.rule_distance:.3g}"
        print(f"RULES {name} {told}, runtime follows {done.proof.runtime_rule}")
    ends = {rule: f"{d.max_abs:.2g}" for rule, d in done.proof.end_to_end.items()}
    print(f"END {name} {ends}")

    floors = local_floors(output, recovered(path))
    for probe, (error, stage) in floors.items():
        print(f"FLOOR {name} | {probe} | {error:.2e} | {stage}")
        record_property(f"{name} {probe}", f"{error:.2e} {stage}")
    assert all(error <= GATE for error, _ in floors.values())
    worst = done.proof.worst
    assert worst is not None
    # The proof's own figure is the worst of these: the same arithmetic, on other code's loop.
    assert worst.error == pytest.approx(max(e for e, _ in floors.values()), rel=1e-3)

    golden = baseline(path, catalog.SPEECH, tmp_path / "b.gguf", name=name)
    embedding = replay(output, speech).embedding
    np.testing.assert_allclose(golden.embedding, embedding, rtol=0, atol=1e-5)
    noisiest = max(golden.stages, key=lambda s: golden.stages[s][1])
    print(f"NOISE {name} {golden.stages[noisiest][1]:.2g} at {noisiest}")


def local_floors(file: Path, net: Any) -> dict[str, tuple[float, str]]:
    """By probe the worst local error and its stage, over both segment rules."""
    tensors = net.binding.stages
    partial = has_partial_windows(net.graph.model)
    rules: tuple[SegmentRule | None, ...] = ("kernel", "valid") if partial else (None,)
    worst: dict[str, tuple[float, str]] = {}
    player = Replay.of(gguf_file.read(file))
    for rule in rules:
        runner = Runner.of(net.graph.model, [*tensors.values()], rule)
        for probe in probes_of(net):
            reference = runner.run({net.binding.input: probe.features[None]})

            def check(
                stage: str, ours: Array, found: Any = reference, name: str = probe.name
            ) -> Array:
                theirs = found[tensors[stage]].reshape(ours.shape).astype(np.float64)
                error = local_error(theirs, ours)
                worst[name] = max(worst.get(name, (0.0, "")), (error, stage))
                return np.asarray(theirs)

            player.run(probe.features, check, rule)
    return worst


@pytest.mark.parametrize("name", REFUSED)
def test_other_networks_are_refused_with_the_nearest_family(
    name: str, graphtools: Make, tmp_path: Path
) -> None:
    path = catalog.path(name)
    ran = graphtools("convert", "--model", path, "--output", "x.gguf", code=3)
    assert f"nearest is {REFUSED[name]}" in ran.err
    for label in ("where: ", "expected: ", "found: ", "from the output", "from the input"):
        assert label in ran.err, label
    assert list(tmp_path.iterdir()) == []
    found = graphtools("inspect", path, "--json", code=0).json
    assert found["family"] is None
    assert f"nearest is {REFUSED[name]}" in found["miss"]["error"]
    print(f"REFUSED {name} | {json.dumps(found['miss'], ensure_ascii=False)}")


def test_a_refused_network_raises_a_miss(tmp_path: Path) -> None:
    with pytest.raises(MissError):
        convert(catalog.path("mlp"), tmp_path / "x.gguf")
    assert list(tmp_path.iterdir()) == []
