"""Shapes: inferred where that is certain, measured where it is not, unknown where neither helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from fixtures import catalog
from graphtools.graph import Graph, build
from graphtools.onnx_file import load
from graphtools.runtime import Runner
from graphtools.shapes import shapes
from graphtools.tensors import DType

Parse = Callable[..., Graph]

TINY = catalog.names(committed=True)


@pytest.mark.parametrize("name", TINY)
def test_every_tensor_of_a_family_has_its_shape(name: str) -> None:
    """What is said for T holds at a length that nothing was measured at."""
    graph = build(load(catalog.path(name)))
    found = shapes(graph)
    tensors = [o for node in graph.model.nodes if node.op != "Constant" for o in node.outputs]
    assert all(found[tensor].shape is not None for tensor in tensors)
    frames, batch = 640, 3
    lengths = {"B": batch} | {f"T/{k}": frames // k for k in (2, 4, 8, 16)} | {"T": frames}
    features = np.zeros((batch, frames, 80), np.float32)
    ran = Runner.of(graph.model, tensors).run({graph.inputs[0].name: features})
    for tensor in tensors:
        wanted = found[tensor].shape
        assert wanted is not None
        real = ran[tensor].shape
        assert len(real) == len(wanted), tensor
        for axis, length in zip(wanted, real, strict=True):
            assert axis == "?" or lengths.get(str(axis), axis) == length, (tensor, wanted, real)


def test_the_stages_are_told_by_the_length_of_the_input() -> None:
    graph = build(load(catalog.path("resnet34_tiny")))
    value = shapes(graph)["/model/layer4/layer4.0/Relu_1_output_0"]
    assert (value.dtype, value.shape) == (DType.F32, ("B", 32, 10, "T/8"))


def test_without_running_it_some_are_unknown() -> None:
    graph = build(load(catalog.path("campplus_tiny")))
    found = shapes(graph, measure=False)
    known = [v for v in found.values() if v.shape is not None]
    assert 0 < len(known) < len(found)


def test_what_onnxruntime_refuses_stays_unknown(parse: Parse) -> None:
    graph = parse("g (float[N, 4] x) => (float[?] y) { a = com.microsoft.None(x) y = Relu(a) }")
    assert shapes(graph).get("a") is None


def test_weights_in_another_file_are_no_obstacle(tmp_path: Path) -> None:
    proto = onnx.load(catalog.path("campplus_tiny"))
    onnx.save(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="w", size_threshold=0
    )
    found = shapes(build(load(tmp_path / "m.onnx")))
    assert found == shapes(build(load(catalog.path("campplus_tiny"))))


def test_a_fixed_input_is_measured_as_it_is(parse: Parse) -> None:
    graph = parse("""
        g (float[2, 6] x) => (float[?, ?] y)
        { s = Shape(x) n = Size(s) m = Unsqueeze(n, s) t = Reshape(x, m) y = Relu(t) }
    """)
    assert shapes(graph, measure=False)["s"].shape == (2,)
