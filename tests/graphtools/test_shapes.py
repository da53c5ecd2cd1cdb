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


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2, T] x) => (float[?] y) { n = NonZero(x) t = Transpose<perm = [1, 0]>(n)"
        " y = GatherND(x, t) }",
        "g (float[2, T] x, int64[1] k) => (float[?, ?] y, int64[?, ?] i) { y, i = TopK(x, k) }",
        "g (float[2, T] x, bool c) => (float[?, ?] y) { y = If (c) <then_branch = a () =>"
        " (float[?, ?] p) { p = Concat<axis = 0>(x, x) }, else_branch = b () =>"
        " (float[?, ?] q) { q = Identity(x) }> }",
    ],
    ids=["NonZero", "TopK", "If"],
)
def test_a_shape_that_values_decide_is_not_measured(parse: Parse, text: str) -> None:
    """Zeros have no nonzero element, and a number of elements that is 0 is no fixed axis."""
    graph = parse(text)
    found = shapes(graph)["y"].shape
    assert found is None or not any(isinstance(axis, int) for axis in found)


def test_what_values_decide_does_not_hide_what_lengths_decide(parse: Parse) -> None:
    graph = parse("""
        g (float[2, T] x) => (float[?, ?] y)
        { s = Shape(x) y = Expand(x, s) n = NonZero(x) m = Shape(n) }
    """)
    found = shapes(graph)
    assert (found["y"].shape, found["m"].shape) == ((2, "T"), (2,))


@pytest.mark.parametrize(("axes", "part"), [("T", 8), ("T, 4", 8), ("T, B, 4", 2)])
def test_a_part_of_a_first_axis_is_no_fixed_length(parse: Parse, axes: str, part: int) -> None:
    graph = parse(f"""
        g (float[{axes}] x) => (float[{", ".join("?" for _ in axes.split(","))}] y)
        <int64[1] zero = {{0}}, int64[1] more = {{{part - 1}}}, int64[1] part = {{{part}}}>
        {{ s = Shape<start = 0, end = 1>(x) t = Add(s, more) h = Div(t, part)
           y = Slice(x, zero, h, zero) }}
    """)
    found = shapes(graph)["y"].shape
    assert found is not None
    assert not isinstance(found[0], int)


def test_what_a_branch_makes_by_values_is_not_measured(parse: Parse) -> None:
    """The condition is a length, what the branches give is not."""
    text = """
    g (float[N, M] x, int64[2] s) => (float z) {
        n = Size (x)
        c = Cast <to = 9> (n)
        q = If (c) <
            then_branch = a () => (p) { p = Reshape (x, s) },
            else_branch = b () => (p) { p = Reshape (x, s) }
        >
        z = ReduceSum <keepdims = 0> (q)
    }
    """
    assert shapes(parse(text))["q"].shape == ("?", "?")


def test_a_branch_has_names_of_its_own(parse: Parse) -> None:
    """onnx's inference would take the ``y`` of a branch for the output of that name."""
    text = """
    g (float[N, M] x, bool c) => (float[5, 7] y) <int64[2] five = {5, 7}> {
        q = If (c) <
            then_branch = a () => (r) { y = Transpose (x) r = Relu (y) },
            else_branch = b () => (r) { y = Neg (x) r = Relu (y) }
        >
        s = ReduceSum <keepdims = 0> (q)
        y = Expand (s, five)
    }
    """
    found = shapes(parse(text), measure=False)
    assert (found["q"].shape, found["y"].shape) == (("?", "?"), (5, 7))
    assert "r" not in found
