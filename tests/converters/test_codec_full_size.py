"""The full-size 24 kHz codec, by its headers: the files are holes, and no weight is read."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from converters.archs.checkpoint import Options
from converters.checkpoint import Described, describe_checkpoint
from converters.sources.source import Source, open_source

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "codec_checkpoint.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("codec_checkpoint", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def holes(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Source:
    """7.1 GB of them; on disk some 400 kB."""
    folder = tmp_path_factory.mktemp("full") / "moss"
    script.write(folder, values=False)
    files = list(folder.iterdir())
    assert len(list(folder.glob("model-0000?-of-00004.safetensors"))) == 4
    if sum(512 * file.stat().st_blocks for file in files) > 100e6:
        pytest.skip("this file system stores holes")
    return open_source(folder)


@pytest.fixture(scope="module")
def described(holes: Source) -> Described:
    return describe_checkpoint(holes, "moss", options=Options(strict=True))


def test_every_key_has_a_destination(holes: Source, described: Described) -> None:
    assert len(holes.tensors) == 1600
    assert set(described.stored) == set(holes.tensors)
    assert not described.left_out
    assert sum(name.endswith("original0") for name in holes.tensors) == 66
    assert len(described.manifest.tensors) == 1600 - 66


def test_it_is_as_large_as_the_published_model(holes: Source, described: Described) -> None:
    parameters = sum(t.size for t in holes.tensors.values())
    assert parameters == pytest.approx(1.7746e9, rel=1e-4)
    assert 4 * parameters == pytest.approx(7.1e9, rel=1e-2)
    # What is fused is one tensor for two: the gains are gone, a number for each row.
    gains = sum(t.size for name, t in holes.tensors.items() if name.endswith("original0"))
    assert sum(t.size for t in described.manifest.tensors) == parameters - gains


def test_projections_are_where_widths_differ(described: Described) -> None:
    found = {
        t.name.removesuffix(".weight")
        for t in described.manifest.tensors
        if "_proj.weight" in t.name and not t.name.startswith("quantizer")
    }
    assert found == {
        "encoder.1.input_proj",
        *(f"encoder.{i}.output_proj" for i in (1, 3, 5, 7)),
        *(f"decoder.{i}.input_proj" for i in (0, 2, 4, 6)),
        "decoder.6.output_proj",
    }


def test_windows_are_ten_seconds_at_every_stage(described: Described) -> None:
    """100 positions a second behind the first patch, 12.5 frames of codes a second."""
    assert described.arch.stages is not None
    rows = {row.name: row.values for row in described.arch.stages(described.manifest)}
    windows = [rows[f"encoder.{i}"]["window"] for i in (1, 3, 5, 7)]
    assert windows == [1000, 500, 250, 125]
    assert [rows[f"decoder.{i}"]["window"] for i in (0, 2, 4, 6)] == windows[::-1]
    assert rows["decoder.0"]["rate"] == 12.5


def test_the_script_streams_seeded_values(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same code on a few small tensors: each has values of its own, norms near one."""
    few = {"a.norm1.weight": (300,), "b.weight": (70, 100), "c.weight": (70, 100), "d": (5,)}
    monkeypatch.setattr(script, "shapes", lambda: few)
    monkeypatch.setattr(script, "BLOCK", 1000)
    for name in ("one", "two"):
        script.write(tmp_path / name)
    one, two = (open_source(tmp_path / name).tensors for name in ("one", "two"))
    assert {name: t.shape for name, t in one.items()} == few
    for name in few:
        assert np.array_equal(one[name].read(), two[name].read())
    assert one["a.norm1.weight"].read().mean() == pytest.approx(1.0, abs=0.01)
    assert np.abs(one["b.weight"].read() - one["c.weight"].read()).max() > 0.01
    assert one["b.weight"].read().std() == pytest.approx(0.02, rel=0.1)
