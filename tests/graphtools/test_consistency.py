"""Vectors that do not fit their layer are refused when a file is read, by node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from graphtools.errors import NotAModelError
from graphtools.onnx_file import load

Save = Callable[..., Path]

NORM = "BatchNormalization (x, s, b, m, v)"


def text(node: str, declared: str) -> str:
    return f"g (float[1, 3, T] x) => (y) <{declared}> {{ h = Relu (x) y = {node} }}"


@pytest.mark.parametrize(
    ("node", "declared", "expected", "found"),
    [
        ("Conv (x, w, b)", "float[2, 3, 1] w, float[3] b", "[2]", "[3]"),
        ("Conv (x, w, b)", "float[2, 3, 1] w, float[1] b", "[2]", "[1]"),
        ("Conv (x, w, b)", "float[2, 3, 1] w, float[2, 1] b", "[2]", "[2, 1]"),
        ("Gemm <transB = 1> (x, w, b)", "float[2, 3] w, float[3] b", "[2]", "[3]"),
        ("Gemm (x, w, b)", "float[3, 2] w, float[3] b", "[2]", "[3]"),
        (NORM, "float[3] s, float[2] b, float[3] m, float[3] v", "[3]", "[2]"),
        (NORM, "float[3] s, float[3] b, float[4] m, float[3] v", "[3]", "[4]"),
        (NORM, "float[3] s, float[3] b, float[3] m, float[1] v", "[3]", "[1]"),
        (NORM, "float[3, 1] s, float[3] b, float[3] m, float[3] v", "[3]", "[3, 1]"),
    ],
)
def test_a_vector_of_the_wrong_length_is_refused_by_node(
    save: Save, node: str, declared: str, expected: str, found: str
) -> None:
    path = save(text(node, declared))
    with pytest.raises(NotAModelError, match="does not fit its layer") as caught:
        load(path)
    error = caught.value
    op = node.split(" ")[0]
    assert (error.file, error.where) == (str(path), f'node 1 ({op}) -> "y"')
    assert (error.expected, error.found) == (expected, found)
    assert error.todo


@pytest.mark.parametrize(
    ("node", "declared"),
    [
        ("Conv (x, w)", "float[2, 3, 1] w"),
        ("Conv (x, w, b)", "float[2, 3, 1] w, float[2] b"),
        ("Conv (x, w, h)", "float[2, 3, 1] w"),  # computed: the runtime's business
        ("Conv (x, h, b)", "float[2] b"),
        ("Gemm <transB = 1> (x, w, b)", "float[2, 3] w, float[2] b"),
        ("Gemm (x, w, b)", "float[3, 2] w, float[2] b"),
        ("Gemm (x, w, b)", "float[3, 2] w, float[1] b"),  # one number for all
        ("Gemm (x, w, b)", "float[3, 2] w, float[1, 2] b"),
        (NORM, "float[3] s, float[3] b, float[3] m, float[3] v"),
    ],
)
def test_what_fits_is_read(save: Save, node: str, declared: str) -> None:
    assert len(load(save(text(node, declared))).nodes) == 2


class TestNames:
    """Names that stand for two things: the nodes around them are told."""

    def test_of_two_initializers(self, save: Save) -> None:
        proto = onnx.load(save(text("Conv (x, w)", "float[2, 3, 1] w")))
        proto.graph.initializer.append(proto.graph.initializer[0])
        with pytest.raises(NotAModelError, match="two initializers are called 'w'") as caught:
            load(save(proto))
        assert caught.value.where == 'node 1 (Conv) -> "y"'

    def test_of_two_initializers_that_nothing_reads(self, save: Save) -> None:
        proto = onnx.load(save(text("Relu (x)", "float[2, 3, 1] w")))
        proto.graph.initializer.append(proto.graph.initializer[0])
        with pytest.raises(NotAModelError, match="two initializers are called 'w'") as caught:
            load(save(proto))
        assert caught.value.where is None

    def test_of_an_initializer_and_a_result(self, save: Save) -> None:
        proto = onnx.load(save(text("Conv (x, w)", "float[2, 3, 1] w")))
        proto.graph.node[0].output[0] = "w"
        with pytest.raises(NotAModelError, match="'w' is produced twice") as caught:
            load(save(proto))
        assert 'node 0 (Relu) -> "w"' in (caught.value.where or "")
        assert "initializer" in (caught.value.where or "")


def test_a_loop_may_leave_its_first_inputs_out(save: Save) -> None:
    """It has to list both; exporters write "" for the one that a while or a for loop lacks."""
    path = save(
        """
        g (float[2] x, bool go) => (float[2] y) {
            y = Loop (, go, x) <
                body = b (int64 i, bool on, float[2] v) => (bool still, float[2] w) {
                    still = Identity (on) w = Relu (v)
                }
            >
        }
        """
    )
    assert load(path).nodes[0].inputs == ("", "go", "x")


def test_a_part_of_a_split_needs_a_name(save: Save) -> None:
    """Without the check onnxruntime ends the process that runs it."""
    split = "g (float[2, 4] x) => (float[2, 2] a) { a, b = Split <axis = 1> (x) }"
    proto = onnx.load(save(split, opset=13))
    proto.graph.node[0].output[1] = ""
    with pytest.raises(NotAModelError, match="part of a Split has no name") as caught:
        load(save(proto))
    assert 'node 0 (Split) -> "a"' in (caught.value.where or "")
