"""Faults that porters make, planted in an engine: each is found at its stage, and explained.

The engine is the upstream torch class, which shares no code with the goldens' onnxruntime run; the
faults are in its weights and its forward, not in what it wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from converters.audio import read_audio
from converters.baseline import baseline
from converters.comparison import Comparison, compare
from converters.comparison_text import summary
from converters.frontend import log_mel, mean_subtracted
from converters.tap import tap_module, write_taps
from fixtures import catalog

Array = npt.NDArray[Any]
Fault = Callable[[Any], None]


@pytest.fixture(scope="module")
def goldens(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The goldens of a committed export, by onnxruntime."""
    folder = tmp_path_factory.mktemp("goldens")

    def make(name: str) -> Path:
        path = folder / f"{name}.gguf"
        if not path.exists():
            baseline(catalog.path(name), catalog.SPEECH, path, seg_pool="valid")
        return path

    return make


def plain(value: Tensor) -> Array:
    array: Array = value.detach().numpy().copy()
    return array


def resnet_dump(module: Any, *, scale: float = 1.0) -> dict[str, Array]:
    """What a ResNet engine writes of the clip, its samples scaled."""
    raw = log_mel(scale * read_audio(catalog.SPEECH))
    dump = {"fbank_raw": raw.T, "fbank": mean_subtracted(raw).T}
    model = module.model
    watched = {
        f"{name}.{i}": block
        for name in ("layer1", "layer2", "layer3", "layer4")
        for i, block in enumerate(getattr(model, name))
    }
    model.layer1.register_forward_pre_hook(lambda _, args: dump.update(stem=plain(args[0])))
    for name, part in {**watched, "pooled": model.pool}.items():
        part.register_forward_hook(lambda *call, name=name: dump.update({name: plain(call[2])}))
    with torch.no_grad():
        dump["encoder_out"] = plain(module(torch.from_numpy(dump["fbank"].T[None].copy())))
    dump["embedding"] = dump["encoder_out"] / np.linalg.norm(dump["encoder_out"])
    return dump


def swapped_at(layer: int) -> Callable[[list[Array], Any, Tensor], Tensor]:
    """CAM++'s dense block, whose concatenation after one layer is the wrong way round."""

    def forward(dump: list[Array], block: Any, x: Tensor) -> Tensor:
        for i, part in enumerate(block):
            x = torch.cat([part(x), x] if i == layer else [x, part(x)], dim=1)
            dump.append(plain(x))
        return x

    return forward


@pytest.fixture
def planted(goldens: Callable[[str], Path]) -> Callable[..., Comparison]:
    """The comparison with a ResNet engine that has a fault."""

    def make(fault: Fault, **options: float) -> Comparison:
        module = catalog.EXPORTS["resnet34_tiny"].module()
        with torch.no_grad():
            fault(module.model)
        return compare(goldens("resnet34_tiny"), resnet_dump(module, **options))

    return make


def hooked(part: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    part.register_forward_hook(lambda _, __, output: change(output))


def test_an_engine_without_a_fault_passes(planted: Callable[..., Comparison]) -> None:
    found = planted(lambda model: None)
    assert found, summary(found)
    assert len(found.rows) == 22


def test_weights_of_one_conv_transposed(planted: Callable[..., Comparison]) -> None:
    def fault(model: Any) -> None:
        weight = model.layer2[1].conv1.weight
        weight.copy_(weight.transpose(2, 3).clone())

    found = planted(fault)
    assert found.first is not None
    assert found.first.name == "layer2.1"
    said = summary(found)
    assert "in block layer2" in said
    assert "weights: onnx::Conv" in said  # and among them is the conv that was transposed
    assert found.hints == ()  # nothing that is done to the output undoes it


def test_epsilon_of_one_norm(planted: Callable[..., Comparison]) -> None:
    def fault(model: Any) -> None:
        model.layer3[0].bn1.eps = 0.1

    found = planted(fault)
    assert found.first is not None
    assert found.first.name == "layer3.0"


def test_one_frame_late(planted: Callable[..., Comparison]) -> None:
    """As a streaming engine is that keeps one frame too many."""
    found = planted(
        lambda model: hooked(model.layer2[2], lambda x: nn.functional.pad(x, (1, 0))[..., :-1])
    )
    assert found.first is not None
    assert found.first.name == "layer2.2"
    assert found.hints == ("ours is the golden 1 frame later, along axis 2 (time)",)


def test_features_times_32768(planted: Callable[..., Comparison]) -> None:
    found = planted(lambda model: hooked(model.layer1[0], lambda x: 32768.0 * x))
    assert found.first is not None
    assert found.first.name == "layer1.0"
    assert found.hints == ("ours is too large by 32768 (samples as integers)",)


def test_samples_over_32768(planted: Callable[..., Comparison]) -> None:
    """The mean subtraction hides it everywhere but in the silence: there the log has a floor."""
    found = planted(lambda model: None, scale=1.0 / 32768.0)
    assert found.first is not None
    assert found.first.name == "fbank_raw"


def test_nan_in_one_element(planted: Callable[..., Comparison]) -> None:
    def broken(x: Tensor) -> Tensor:
        x[0, 3, 2, 1] = float("nan")
        return x

    found = planted(lambda model: hooked(model.layer3[1], broken))
    assert found.first is not None
    assert found.first.name == "layer3.1"
    assert found.first.problem == "1 value is NaN or infinite"
    assert found.first.difference is not None
    assert found.first.difference.at == (3, 2, 1)


def test_the_last_time_step_dropped(planted: Callable[..., Comparison]) -> None:
    found = planted(lambda model: hooked(model.layer2[3], lambda x: x[..., :-1]))
    assert found.first is not None
    assert found.first.name == "layer2.3"
    assert "shape [1, 8, 40, 148] where [8, 40, 149] should be" in found.first.problem
    assert found.hints == (
        "ours lacks 0 frames at the start and 1 at the end, along axis 2 (time)",
    )


def test_a_concatenation_the_wrong_way_round(
    goldens: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = catalog.EXPORTS["campplus_tiny"].module()
    dump: list[Array] = []
    forward = swapped_at(layer=2)
    monkeypatch.setattr(
        type(module.xvector.block1), "forward", lambda block, x: forward(dump, block, x)
    )
    with torch.no_grad():
        module(torch.from_numpy(mean_subtracted(log_mel(read_audio(catalog.SPEECH)))[None]))
    ours = {f"block1.{i}": array for i, array in enumerate(dump[:12])}
    found = compare(goldens("campplus_tiny"), ours)
    assert found.first is not None
    assert found.first.name == "block1.2"
    (hint,) = found.hints
    assert "concatenated in another order: the golden's 18:21, 0:18 of axis 0" in hint


def taps(fault: Fault) -> dict[str, Array]:
    """What every submodule of two layers of a ResNet engine gives."""
    module = catalog.EXPORTS["resnet34_tiny"].module()
    fault(module.model)
    features = mean_subtracted(log_mel(read_audio(catalog.SPEECH)))[None]
    return tap_module(module, ["model.layer1*", "model.layer2*"], [features])


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("taps") / "taps.gguf"
    write_taps(taps(lambda model: None), path, name="resnet34_tiny")
    return path


class TestFinerGoldens:
    """Goldens of every submodule: faults inside a block have a stage of their own."""

    def test_the_value_before_a_norm(self, golden: Path) -> None:
        def fault(model: Any) -> None:
            model.layer2[0].bn2 = nn.Identity()

        found = compare(golden, taps(fault))
        assert found.first is not None
        assert found.first.name == "model.layer2.0.bn2"
        said = "ours is the golden 'model.layer2.0.conv2', 1 before it in execution order"
        assert found.hints[0] == said

    def test_the_epsilon_of_a_norm(self, golden: Path) -> None:
        def fault(model: Any) -> None:
            model.layer2[1].bn1.eps = 1.0

        found = compare(golden, taps(fault))
        assert found.first is not None
        assert found.first.name == "model.layer2.1.bn1"
        (hint,) = found.hints
        assert hint.startswith("ours differs by a factor and an offset for each of axis 0")
