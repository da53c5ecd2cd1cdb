"""Networks that are recovered and that no engine has a schema for: looked at, and never written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from converters.audio import read_audio
from converters.baseline import baseline
from converters.compare import local_error
from converters.convert import convert, require_recovered
from converters.frontend import log_mel, mean_subtracted
from converters.gguf_file import read
from converters.proof_result import GATE
from converters.proof_source import probes_of
from converters.replay import Replay
from fixtures import catalog
from graphtools.errors import UnsupportedError
from graphtools.graph import build
from graphtools.onnx_file import load
from graphtools.runtime import Runner

Array = npt.NDArray[Any]

# The published depths at a fraction of their widths: (constructor, its arguments).
RESNETS = {
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3),
    "resnet221": (6, 16, 48, 3),
    "resnet293": (10, 20, 64, 3),
}
NARROW = {"m_channels": 4, "embed_dim": 16, "mean_vec": "random", "block": "bottleneck"}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    name: ("resnet", "bottleneck", {**NARROW, "num_blocks": blocks})
    for name, blocks in RESNETS.items()
} | {
    "simam34": ("simam", "simam", {"depth": 34, "in_planes": 4, "embed_dim": 16}),
    "simam100": ("simam", "simam", {"depth": 100, "in_planes": 4, "embed_dim": 16}),
    "eres2net_v2": ("eres2net_v2", "eres2net_v2", {"m_channels": 8}),
}
TITLES = {
    "bottleneck": "ResNet of Bottlenecks (WeSpeaker)",
    "simam": "SimAM-ResNet (WeSpeaker)",
    "eres2net_v2": "ERes2NetV2 (3D-Speaker)",
}
FULL = {"resnet50": "bottleneck", "resnet152": "bottleneck", "eres2netv2": "eres2net_v2"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A narrow export, built once."""
    folder = tmp_path_factory.mktemp("unstored")

    def make(name: str) -> Path:
        from fixtures import upstream
        from fixtures.export import export_legacy

        path = folder / f"{name}.onnx"
        if not path.exists():
            constructor, _, arguments = MODELS[name]
            export_legacy(getattr(upstream, constructor)(**arguments), path, opset=14)
        return path

    return make


def worst_local_error(path: Path) -> float:
    """Of every stage on every probe: the forward over the bound weights against onnxruntime."""
    net = require_recovered(build(load(path)))
    replay, stages = Replay.bound(net), net.binding.stages
    runner = Runner.of(net.graph.model, [*stages.values()])
    errors = []
    for probe in probes_of(net):
        found = runner.run({net.binding.input: probe.features[None]})

        def check(stage: str, ours: Array, found: dict[str, Array] = found) -> Array:
            theirs = found[stages[stage]].astype(np.float64).reshape(ours.shape)
            errors.append(local_error(theirs, ours))
            return theirs

        replay.run(probe.features, check)
    return max(errors)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_is_recovered_and_computed(name: str, model: Callable[[str], Path]) -> None:
    path = model(name)
    assert require_recovered(build(load(path))).family.name == MODELS[name][1]
    assert worst_local_error(path) <= GATE


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_is_in_full_size_too(name: str) -> None:
    path = catalog.path(name)
    assert require_recovered(build(load(path))).family.name == FULL[name]
    assert worst_local_error(path) <= GATE


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "simam34", "eres2net_v2"])
def test_convert_refuses_and_says_what_it_is(
    name: str, model: Callable[[str], Path], tmp_path: Path
) -> None:
    title = TITLES[MODELS[name][1]]
    with pytest.raises(UnsupportedError, match="no engine schema") as caught:
        convert(model(name), tmp_path / "x.gguf")
    assert caught.value.cause.startswith(f"recovered as {title}")
    assert "baseline" in str(caught.value.todo)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "simam34", "eres2net_v2"])
def test_inspect_and_baseline_work(
    name: str, model: Callable[[str], Path], graphtools: Any, tmp_path: Path
) -> None:
    path, family = model(name), MODELS[name][1]
    shown = graphtools("inspect", path, code=0).out
    assert f"Recovered: {TITLES[family]}" in shown
    assert "layer2.0" in shown
    done = baseline(path, catalog.SPEECH, tmp_path / "b.gguf")
    assert done.arch == family
    written = read(tmp_path / "b.gguf")
    assert written["baseline.arch"] == family
    features = mean_subtracted(log_mel(read_audio(catalog.SPEECH)))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"feats": features[None]})
    np.testing.assert_allclose(
        written.by_name["encoder_out"].read(), wanted[0], rtol=0, atol=1e-3 * np.abs(wanted).max()
    )
    weights = written["baseline.stage_weights"]
    assert isinstance(weights, tuple)
    known = set(load(path).constants)
    named = {name for line in weights for name in str(line).split("\n") if name}
    assert len(named & known) > 40


@pytest.mark.slow
def test_an_asserted_architecture_is_refused(model: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="is not wespeaker_resnet34"):
        baseline(model("resnet50"), catalog.SPEECH, tmp_path / "b.gguf", arch="wespeaker_resnet34")
