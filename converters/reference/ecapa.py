"""ECAPA-TDNN's stages, by SpeechBrain's own class."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from converters.sources.source import Source
from graphtools.errors import MissingDependencyError
from graphtools.families.ecapa import config_of
from graphtools.tensors import Array, widened

__all__ = ["ecapa_class", "library", "stages"]

# The packages above the module that holds the class. Their own imports need hyperpyyaml and a
# torchaudio that fits the torch at hand; the class needs neither, so they are registered bare.
_BARE = ("", ".lobes", ".lobes.models", ".nnet", ".dataio", ".utils", ".processing")


def library() -> str:
    """``speechbrain`` and its version."""
    _require()
    from importlib.metadata import version

    return f"speechbrain {version('speechbrain')}"


def ecapa_class() -> Any:
    """The class ``speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN``."""
    _require()
    if "speechbrain" not in sys.modules:
        found = importlib.util.find_spec("speechbrain")
        assert found is not None
        assert found.submodule_search_locations is not None
        root = found.submodule_search_locations[0]
        for part in _BARE:
            package = ModuleType(f"speechbrain{part}")
            package.__path__ = [root + part.replace(".", "/")]
            sys.modules[package.__name__] = package
    with _stand_in("torchaudio"):
        return importlib.import_module("speechbrain.lobes.models.ECAPA_TDNN").ECAPA_TDNN


@contextlib.contextmanager
def _stand_in(name: str) -> Iterator[None]:
    """An empty module where there is none, while another one is imported that names it.

    It does not stay: other libraries look for the real one.
    """
    if name in sys.modules or importlib.util.find_spec(name) is not None:
        yield
        return
    module = ModuleType(name)
    module.__dict__["__version__"] = "2.8.0"  # one that speechbrain does not remark on
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]


def stages(source: Source, arch: str, normalize: bool) -> Callable[[Array], dict[str, Array]]:
    """Features ``[frames, 80]`` to the stages; the checkpoint is loaded strictly."""
    import torch

    cfg, shapes = config_of(source.shapes), source.shapes
    widths = [shapes["blocks.0.conv.conv.weight"][0]]
    widths += [shapes[f"blocks.{i}.tdnn2.conv.conv.weight"][0] for i in range(1, cfg.n_blocks)]
    module = ecapa_class()(
        shapes["blocks.0.conv.conv.weight"][1],
        lin_neurons=shapes["fc.conv.weight"][0],
        channels=[*widths, shapes["mfa.conv.conv.weight"][0]],
        kernel_sizes=list(cfg.kernels),
        dilations=[1, *range(2, cfg.n_blocks + 1), 1],
        attention_channels=shapes["asp.conv.conv.weight"][1],
        res2net_scale=cfg.res2net_scale,
        se_channels=shapes["blocks.1.se_block.conv1.conv.weight"][0],
        groups=[1] * (cfg.n_blocks + 1),
    ).eval()
    state = module.state_dict()
    for name in state:
        if not name.endswith("num_batches_tracked"):
            # A tensor that is a view of the file would be written to when torch loads it.
            state[name] = torch.from_numpy(np.array(widened(source.tensors[name]).read()))
    module.load_state_dict(state)
    taps = {f"block{i}_out": module.blocks[i] for i in range(cfg.n_blocks)}
    taps |= {"mfa_out": module.mfa, "pooled": module.asp, "encoder_out": module.fc}

    def run(features: Array) -> dict[str, Array]:
        found: dict[str, Array] = {}
        handles = [
            part.register_forward_hook(
                lambda _, __, out, name=name: found.__setitem__(name, out[0].squeeze().numpy())
            )
            for name, part in taps.items()
        ]
        with torch.no_grad():
            module(torch.from_numpy(np.array(features, np.float32))[None])
        for handle in handles:
            handle.remove()
        return found

    return run


def _require() -> None:
    for name, line in (
        ("torch", "pip install torch transformers"),
        ("speechbrain", "pip install --no-deps speechbrain"),
    ):
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            raise MissingDependencyError(
                f"the goldens of ECAPA-TDNN are made with {name}, which is not installed",
                todo=line,
            )
