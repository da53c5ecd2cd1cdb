"""The documentation tells the truth: generated pages are current, and every command runs."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fixtures import catalog

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_MODULE = """
import torch
def encoder():
    module = torch.nn.Module()
    module.layers = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.GELU())
    module.forward = lambda x: module.layers(x)
    return module
"""


def commands(page: Path) -> list[list[str]]:
    """The graphtools lines of a page's sh blocks, and of the examples in help texts."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    found = [shlex.split(line, comments=True) for line in lines if line.startswith("graphtools ")]
    return [c for c in found if c[1] not in ("[OPTIONS]",)]


def test_the_generated_pages_are_current() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for path, text in module.pages().items():
        assert path.read_text() == text, f"run python docs/generate.py: {path.name} is old"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([\w./]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.fixture
def workplace(made: Path, tmp_path: Path) -> Path:
    """A folder that has what the documentation's commands name, for one page alone."""
    return Path(shutil.copytree(made, tmp_path / "work"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from safetensors.numpy import save_file

    from fixtures import checkpoints

    folder = tmp_path_factory.mktemp("docs")
    for name in ("model.onnx", "other_export.onnx"):
        shutil.copy(catalog.path("resnet34_tiny"), folder / name)
    shutil.copy(catalog.SPEECH, folder / "clip.wav")
    checkpoints.save_ecapa(checkpoints.ecapa(), folder / "spkrec-ecapa-voxceleb")
    shutil.copytree(folder / "spkrec-ecapa-voxceleb", folder / "checkpoint_folder")
    for head in ("emotion", "age_gender"):
        config = checkpoints.wav2vec2_config(use_weighted_layer_sum=head == "emotion")
        module = checkpoints.wav2vec2(head, config)
        checkpoints.save_wav2vec2(module, config, folder / head)
    _add_codec(folder)
    _add_dump(folder)
    (folder / "my_models.py").write_text(_MODULE)
    rng = np.random.default_rng(0)
    np.save(folder / "feats.npy", rng.normal(size=(1, 50, 80)))
    np.save(folder / "features.npy", rng.normal(size=(5, 8)).astype(np.float32))
    weights = {"layers.0.weight": (4, 8), "layers.0.bias": (4,)}
    save_file(
        {name: rng.normal(size=shape).astype(np.float32) for name, shape in weights.items()},
        folder / "encoder.safetensors",
    )
    return folder


def _add_dump(folder: Path) -> None:
    """A baseline, and what an engine without a fault writes."""
    from converters.arrays import open_arrays
    from converters.baseline import baseline

    baseline(folder / "model.onnx", folder / "clip.wav", folder / "baseline.gguf")
    arrays = open_arrays(folder / "baseline.gguf")
    np.save(folder / "known.npy", arrays.read("embedding"))
    np.save(folder / "known_features.npy", arrays.read("fbank"))
    (folder / "engine_dump").mkdir()
    for name in arrays.readers:
        np.save(folder / "engine_dump" / f"{name}.npy", arrays.read(name))
    for dump in ("engine.gguf", "local.gguf"):  # what the C++ engine of engine.md writes
        shutil.copy(folder / "baseline.gguf", folder / dump)


def _add_codec(folder: Path) -> None:
    """A codec's checkpoint, a clip at its rate, and its exports."""
    import soundfile
    import torch

    from fixtures.checkpoints import load_codec
    from fixtures.export import export_codec

    shutil.copytree(ROOT / "fixtures" / "moss_tiny", folder / "moss")
    wave = np.load(folder / "moss" / "expected.npz")["wav"].astype(np.float32)
    soundfile.write(folder / "codec_clip.wav", wave, 1600, "FLOAT")
    export_codec(load_codec(folder / "moss"), torch.from_numpy(wave)[None], folder)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_is_shown_runs(page: Path, workplace: Path) -> None:
    run(shlex.split("graphtools convert --model model.onnx --output model.gguf"), workplace)
    shutil.copy(workplace / "model.gguf", workplace / "other.gguf")
    for command in commands(page):
        # The default models are on the hub, which a test does not ask.
        for flag, folder in (("--analyze", "emotion"), ("--age-gender", "age_gender")):
            if flag in command and "--model" not in command:
                command = [*command, "--model", folder]
        run(command, workplace)


def test_the_pages_show_commands() -> None:
    assert len(commands(ROOT / "README.md")) >= 5
    assert sum(len(commands(page)) for page in PAGES) >= 15


def run(command: list[str], folder: Path) -> None:
    tool = [sys.executable, "-c", "from converters.cli import main; main()"]
    done = subprocess.run(
        [*tool, *command[1:]],
        cwd=folder,
        # Whatever asks for a browser gets one that shows nothing.
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
            "BROWSER": "true",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
