"""What the tests of the three architectures share: an oracle that knows no forward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import numpy_helper

from converters.manifest import Manifest

Array = npt.NDArray[Any]

COMMON = {
    "voicedetect.embedding_dim": ("u32", 32),
    "voicedetect.l2_normalize": ("bool", True),
    "voicedetect.fbank.sample_rate": ("u32", 16000),
    "voicedetect.fbank.n_mels": ("u32", 80),
    "voicedetect.fbank.n_fft": ("u32", 512),
    "voicedetect.fbank.win_length": ("u32", 400),
    "voicedetect.fbank.hop_length": ("u32", 160),
    "voicedetect.fbank.preemph": ("f32", float(np.float32(0.97))),
    "voicedetect.fbank.low_freq": ("f32", 20.0),
    "voicedetect.fbank.high_freq": ("f32", 0.0),
    "voicedetect.fbank.use_energy": ("bool", False),
    "voicedetect.fbank.cmn": ("bool", True),
    "voicedetect.fbank.window": ("string", "povey"),
}


@pytest.fixture(scope="session")
def common() -> Mapping[str, tuple[str, Any]]:
    """Keys of every speaker encoder: name to (type, value), for a 32-d embedding."""
    return COMMON


@dataclass(frozen=True)
class Conv:
    """A Conv or Gemm node of a file, in the file's order."""

    weight: str
    bias: str
    kernel: tuple[int, ...]
    stride: int


@dataclass(frozen=True)
class Oracle:
    """An untouched legacy export: its nodes stand in forward order, so order is the file's."""

    convs: list[Conv]
    norms: list[list[str]]
    sequence: list[list[str]]
    values: dict[str, Array]


@pytest.fixture(scope="session")
def oracle() -> Callable[[Path], Oracle]:
    """Weights and batch norms of an ONNX file by the order of its nodes, and all values.

    ``sequence`` lists the weights of every Conv, BatchNormalization and Gemm in that order.
    """

    def make(path: Path) -> Oracle:
        graph = onnx.load(path).graph
        values = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant":
                values[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        convs, norms, sequence = [], [], []
        for node in graph.node:
            if node.op_type == "Conv":
                weight, bias = node.input[1], [*node.input, ""][2]
                strides = next(a.ints for a in node.attribute if a.name == "strides")
                convs.append(Conv(weight, bias, values[weight].shape[2:], strides[0]))
            if node.op_type == "BatchNormalization":
                norms.append(list(node.input[1:5]))
            if node.op_type in ("Conv", "Gemm", "BatchNormalization"):
                sequence.append([name for name in node.input[1:] if name])
        return Oracle(convs, norms, sequence, values)

    return make


@pytest.fixture(scope="session")
def typed() -> Callable[[Manifest], dict[str, tuple[str, Any]]]:
    """A manifest's keys: name to (type, value), in their order."""

    def make(manifest: Manifest) -> dict[str, tuple[str, Any]]:
        return {e.key: (e.type, e.value) for e in manifest.entries}

    return make


@pytest.fixture(scope="session")
def same_network(recovered: Any) -> Callable[[Path, Manifest], None]:
    """Assert that a manifest alone gives back configuration, slots and values of its source."""
    from converters.archs import arch_named

    def check(path: Path, manifest: Manifest) -> None:
        net = recovered(path)
        network = arch_named(str(manifest["voicedetect.arch"])).restore(manifest)
        assert network.family.name == net.family.name
        assert network.config == net.config
        assert network.template.slots() == net.binding.template.slots()
        assert network.template.stages() == net.binding.template.stages()
        wanted = {
            (slot, role): tensor
            for slot, layer in net.binding.layers.items()
            for role, tensor in layer.tensors.items()
            if (slot, role) not in {("emb_bn", "scale"), ("emb_bn", "bias")}
        }
        assert set(network.names) == set(wanted)
        for place, tensor in wanted.items():
            stored = manifest.by_name[network.names[place]]
            np.testing.assert_array_equal(stored.read(), tensor.read(), err_msg=str(place))

    return check
