"""onnxruntime as a source of reference values: any tensor, and refusals that are ours."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from graphtools.errors import UnsupportedError
from graphtools.graph import Graph
from graphtools.onnx_edit import SegmentRule
from graphtools.onnx_file import load
from graphtools.runtime import Runner, runtime_version
from graphtools.tensors import Array

Parse = Callable[..., Graph]

TEXT = """
g (float[B, 4] x) => (float[B, 3] y) <float[4, 3] w>
{ h = Relu (x) y = MatMul (h, w) }
"""


def test_the_version_is_the_installed_ones() -> None:
    assert runtime_version() == version("onnxruntime")


def test_returns_values_by_name_with_the_batch_axis(parse: Parse) -> None:
    graph = parse(TEXT)
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    found = Runner.of(graph.model, ["y", "h", "y"]).run({"x": x})
    assert list(found) == ["y", "h"]
    np.testing.assert_array_equal(found["h"], np.maximum(x, 0))
    assert found["y"].shape == (2, 3)


def test_the_same_input_gives_the_same_bits_every_time(parse: Parse) -> None:
    runner = Runner.of(parse(TEXT).model, ["y"])
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    first = runner.run({"x": x})["y"]
    assert all(np.array_equal(runner.run({"x": x})["y"], first) for _ in range(3))
    assert np.array_equal(Runner.of(parse(TEXT).model, ["y"]).run({"x": x})["y"], first)


def test_a_tensor_is_tapped_even_where_an_optimiser_would_remove_it(parse: Parse) -> None:
    graph = parse(
        "g (float[2] x) => (float[2] y) { a = Identity (x) b = Identity (a) y = Relu (b) }"
    )
    found = Runner.of(graph.model, ["a", "b", "y"]).run({"x": np.ones(2, np.float32)})
    assert sorted(found) == ["a", "b", "y"]


def test_a_model_that_onnxruntime_cannot_load_is_refused(parse: Parse) -> None:
    graph = parse("g (float[2] x) => (float[2] y) { y = NoSuchOperator (x) }")
    with pytest.raises(UnsupportedError, match="cannot load the model") as caught:
        Runner.of(graph.model, ["y"]).run({"x": np.ones(2, np.float32)})
    assert caught.value.file == str(graph.model.path)
    assert "NoSuchOperator" in (caught.value.found or "")
    assert "\n" not in (caught.value.found or "")


@pytest.mark.parametrize(
    "x", [np.ones((2, 5), np.float32), np.ones((2, 4), np.float64), np.ones(4, np.float32)]
)
def test_an_input_that_it_cannot_run_on_is_refused(parse: Parse, x: Array) -> None:
    graph = parse(TEXT)
    with pytest.raises(UnsupportedError, match="cannot run the model") as caught:
        Runner.of(graph.model, ["y"]).run({"x": x})
    assert caught.value.where == f"input shapes {{'x': {list(x.shape)}}}"
    assert caught.value.todo


def test_a_missing_input_is_refused(parse: Parse) -> None:
    with pytest.raises(UnsupportedError, match="cannot run the model"):
        Runner.of(parse(TEXT).model, ["y"]).run({})


@pytest.mark.parametrize("rule", [None, "valid"])
@pytest.mark.parametrize("kind", ["initializer", "attribute"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_weights_inside_a_branch_come_from_beside_the_model(
    dtype: type[np.floating[Any]],
    kind: str,
    rule: SegmentRule | None,
    save: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not from a file of the same name where the process runs."""
    name = {np.float32: "float", np.float16: "float16"}[dtype]
    text = f"""
        g ({name}[2] x, bool c) => ({name}[2] y) {{
            y = If (c) <
                then_branch = a () => ({name}[2] p) {{ p = Mul (x, w) }},
                else_branch = b () => ({name}[2] q) {{ q = Neg (x) }}
            >
        }}
    """
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    then = next(a.g for a in proto.graph.node[0].attribute if a.name == "then_branch")
    values = np.array([2, 3], dtype)
    weight = numpy_helper.from_array(values, "w")
    onnx.external_data_helper.set_external_data(weight, "w.bin", offset=0, length=values.nbytes)
    weight.ClearField("raw_data")
    if kind == "initializer":
        then.initializer.append(weight)
    else:
        then.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=weight))
    source = save(proto)
    (tmp_path / "w.bin").write_bytes(values.tobytes())
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "w.bin").write_bytes((values + 1).tobytes())
    monkeypatch.chdir(tmp_path / "elsewhere")
    feeds = {"x": np.ones(2, np.float32), "c": np.array(True)}
    found = Runner.of(load(source), ["y"], rule).run(feeds)
    np.testing.assert_array_equal(found["y"], [2, 3])


def test_more_of_them_than_a_message_holds_is_refused(
    save: Callable[..., Path], tmp_path: Path
) -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y) { y = Mul (x, w) }
    """)
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT16, dims=[2**30])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    proto.graph.initializer.append(weight)
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(2**31)  # of zeros, without blocks on the disk
    with pytest.raises(UnsupportedError, match="too large weights in other files") as caught:
        Runner.of(load(save(proto)), ["y"]).run({"x": np.ones(2, np.float32)})
    assert caught.value.where == "w"


def test_nothing_is_loaded_before_the_first_run(parse: Parse) -> None:
    graph = parse("g (float[2] x) => (float[2] y) { y = NoSuchOperator (x) }")
    assert Runner.of(graph.model, ["y"]).outputs == ("y",)
