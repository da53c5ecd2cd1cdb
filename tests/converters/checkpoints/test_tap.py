"""Goldens of any torch module: what its submodules gave, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from converters.tap import tap_module
from graphtools.errors import UnsupportedError, UsageError

Make = Callable[..., Any]

X = np.random.default_rng(0).normal(size=(1, 3, 10)).astype(np.float32)

MODULE = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 3, 3, padding=1)

    def forward(self, x, scale=None):
        y = self.conv(x)
        return y, (y * 2 if scale is None else y * scale)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.act = nn.Tanh()

    def forward(self, x, scale=None):
        for block in self.blocks:
            _, x = block(x, scale)
            x = self.act(x)
        return x

def make():
    torch.manual_seed(0)
    return Net()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a module's code and its input are."""
    (tmp_path / "nets.py").write_text(MODULE)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "scale.npy", np.float32([3.0]))
    return tmp_path


@pytest.fixture
def tap(folder: Path, process: Make, environment: Make) -> Make:
    """``graphtools tap`` of ``nets:make``, in the folder."""
    path = environment()["PYTHONPATH"]

    def run(*arguments: str, **more: Any) -> Any:
        env = {"PYTHONPATH": f"{folder}:{path}"}
        options = ("tap", "--module", "nets:make", "--output", "b.gguf")
        return process(*options, *arguments, env=env, **more)

    return run


@pytest.fixture
def net(folder: Path) -> nn.Module:
    scope: dict[str, Any] = {}
    exec(MODULE, scope)
    made: nn.Module = scope["make"]()
    return made.eval()


class TestFunction:
    def test_gives_what_each_submodule_gave(self, net: Any) -> None:
        found = tap_module(net, ["blocks.0.conv", "act", ""], [X])
        with torch.no_grad():
            x = torch.from_numpy(X)
            first = net.blocks[0].conv(x)
            middle = torch.tanh(2 * first)
            last = torch.tanh(2 * net.blocks[1].conv(middle))
        assert set(found) == {"blocks.0.conv", "act", "act#1", "output"}
        for name, value in (
            ("blocks.0.conv", first), ("act", middle), ("act#1", last), ("output", last)
        ):  # fmt: skip
            np.testing.assert_array_equal(found[name], value[0].numpy(), err_msg=name)

    def test_stands_in_the_order_in_which_they_finished(self, net: Any) -> None:
        found = list(tap_module(net, ["*"], [X]))
        order = ["blocks.0.conv", "blocks.0.0", "blocks.0.1", "act"]
        assert [name for name in found if name in order] == order
        assert found[-1] == "output"

    def test_takes_globs_and_keywords(self, net: Any) -> None:
        plain = tap_module(net, ["blocks.*.conv"], [X])
        assert list(plain) == ["blocks.0.conv", "blocks.1.conv"]
        scale = np.float32([3.0])
        scaled = tap_module(net, ["blocks.*.conv"], {"x": X, "scale": scale})
        np.testing.assert_array_equal(plain["blocks.0.conv"], scaled["blocks.0.conv"])
        assert not np.allclose(plain["blocks.1.conv"], scaled["blocks.1.conv"])

    def test_names_what_is_close_to_a_wrong_name(self, net: Any) -> None:
        with pytest.raises(UsageError, match=r"no submodule is called 'blocks\.0\.cnv'") as caught:
            tap_module(net, ["act", "blocks.0.cnv"], [X])
        assert "blocks.0.conv" in str(caught.value)

    def test_leaves_no_hook_and_no_gradient(self, net: Any) -> None:
        tap_module(net, ["*"], [X])
        assert not any(part._forward_hooks for part in net.modules())
        assert all(p.grad is None for p in net.parameters())

    def test_takes_the_hooks_away_when_the_module_fails(self, net: Any) -> None:
        with pytest.raises(UnsupportedError, match="cannot run on these inputs"):
            tap_module(net, ["*"], [X[:, :2]])
        assert not any(part._forward_hooks for part in net.modules())

    def test_gives_values_of_its_own(self) -> None:
        """A later in-place step must not change what was tapped before it."""
        module = nn.Sequential(nn.Linear(10, 4), nn.ReLU(inplace=True)).eval()
        found = tap_module(module, ["0", "1"], [X])
        assert (found["0"] < 0).any()
        np.testing.assert_array_equal(np.maximum(found["0"], 0), found["1"])

    def test_of_a_checkpoint_gives_its_goldens(
        self, made: Any, speech: Any, by_library: Make
    ) -> None:
        network = made.ecapa()
        features = speech[None, :60]
        found = tap_module(network.module, ["mfa", "blocks.2", "fc"], [features])
        goldens = by_library(network, speech[:60])
        np.testing.assert_array_equal(found["mfa"], goldens["mfa_out"])
        np.testing.assert_array_equal(found["blocks.2"], goldens["block2_out"])
        np.testing.assert_array_equal(found["fc"].ravel(), goldens["encoder_out"])


class TestCommand:
    def test_writes_a_baseline(self, tap: Make, net: Any, raw: Make, folder: Path) -> None:
        ran = tap("--input", "x.npy", "--tap", "blocks.*", "--tap", "act", "--json", code=0)
        found = raw(folder / "b.gguf")
        wanted = tap_module(net, ["blocks.*", "act"], [X])
        assert list(found.tensors) == list(wanted) == list(ran.json["taps"])
        for name, value in wanted.items():
            np.testing.assert_array_equal(found.tensors[name], value, err_msg=name)
        assert found.values["general.architecture"] == "voicedetect-baseline"
        assert found.values["general.name"] == "nets:make"
        assert found.values["baseline.reference"] == f"torch {torch.__version__}"
        assert found.values["baseline.tensors"] == list(wanted)
        assert found.values["baseline.shapes"] == ["3,10"] * len(wanted)

    def test_loads_weights(self, tap: Make, net: Any, raw: Make, folder: Path) -> None:
        with torch.no_grad():
            net.blocks[0].conv.weight.mul_(2.0)
        save_file(net.state_dict(), folder / "w.safetensors")
        options = ("--input", "x=x.npy", "--input", "scale=scale.npy", "--tap", "act")
        tap("--weights", "w.safetensors", *options, code=0)
        wanted = tap_module(net, ["act"], {"x": X, "scale": np.float32([3.0])})
        found = raw(folder / "b.gguf").tensors
        np.testing.assert_array_equal(found["act"], wanted["act"])

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (("--input", "x.npy", "--tap", "nonsense"), 2, "no submodule is called 'nonsense'"),
            (("--input", "absent.npy"), 2, "no such file"),
            (("--input", "x.npy", "--input", "scale=scale.npy"), 2, "all inputs or none"),
            (("--input", "scale.npy"), 3, "error: "),
            (("--input", "x.npy", "--weights", "bad.safetensors"), 3, "do not fit the module"),
            (("--input", "x.npy", "--weights", "absent.safetensors"), 2, "error: "),
            (("--input", "x.npy", "--module", "nets:absent"), 2, "cannot make a module"),
            (("--input", "x.npy", "--module", "absent:make"), 2, "cannot make a module"),
            (("--input", "x.npy", "--module", "os:getcwd"), 2, "gave no torch module"),
        ],
    )
    def test_refuses(
        self, arguments: tuple[str, ...], code: int, message: str, tap: Make, folder: Path
    ) -> None:
        save_file({"other": torch.ones(3)}, folder / "bad.safetensors")
        ran = tap(*arguments, code=code)
        assert message in ran.err
        assert not (folder / "b.gguf").exists()

    def test_without_torch_says_which_line_installs_it(self, tap: Make) -> None:
        ran = tap("--input", "x.npy", without="torch", code=4)
        assert "to do: pip install torch" in ran.err
