"""Vectors that do not fit their layer are refused when a file is read, by node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
