"""Vectors that do not fit their layer are refused when a file is read, by node."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
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

    def test_of_two_inputs(self, save: Save) -> None:
        proto = onnx.load(save(text("Conv (x, w)", "float[2, 3, 1] w")))
        proto.graph.input.append(proto.graph.input[0])
        with pytest.raises(NotAModelError, match="two inputs of a graph are called 'x'"):
            load(save(proto))

    @pytest.mark.parametrize(
        ("old", "new", "cause", "where"),
        [
            ("float[2] v", "float[2] on", "two inputs of a graph are called 'on'", "body of"),
            ("s = Relu (v)", "k = Relu (v)", "'k' is produced twice", "node 1 (Relu)"),
            ("s = Relu", "v = Constant <value_float = 1.0> () s = Relu", "'v' is", "(Constant)"),
        ],
    )
    def test_in_a_body(self, save: Save, old: str, new: str, cause: str, where: str) -> None:
        loop = """
        g (float[2] x, bool go) => (float[2] y) {
            y = Loop (, go, x) <
                body = b (int64 i, bool on, float[2] v) => (bool t, float[2] w)
                <float[2] k = {1, 2}> { t = Identity (on) s = Relu (v) w = Add (s, k) }
            >
        }
        """
        assert load(save(loop))
        with pytest.raises(NotAModelError) as caught:
            load(save(loop.replace(old, new)))
        assert cause in str(caught.value)
        assert where in (caught.value.where or "")
        assert "body of node 0" in (caught.value.where or "")


def test_the_names_around_a_graph_are_not_gone_through_for_each(
    save: Save, deadline: Callable[[int], AbstractContextManager[None]]
) -> None:
    """20,000 of them take two seconds; a copy of the names for each took twenty."""
    proto = onnx.load(
        save("""
        g (float[2] x, bool c) => (float[2] t0) {
            t0 = If (c) <
                then_branch = a () => (float[2] p) { p = Neg (x) },
                else_branch = b () => (float[2] q) { q = Abs (x) }
            >
        }
        """)
    )
    (first,) = proto.graph.node
    for number in range(1, 20_000):
        proto.graph.node.add().CopyFrom(first)
        proto.graph.node[-1].output[0] = f"t{number}"
    path = save(proto)
    with deadline(10):
        assert len(load(path).nodes) == 20_000


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


@pytest.mark.parametrize(
    ("opset", "node"),
    [
        (10, "Loop (n, , x) < body = b (int64 i, bool on, float[1, 2] v)"),
        (10, "Loop (, go, x) < body = b (int64 i, bool on, float[1, 2] v)"),
        (8, "Scan (, x, rows) < num_scan_inputs = 1, body = b (bool on, float[2] v)"),
    ],
)
def test_the_first_versions_of_loop_and_scan_may_leave_inputs_out_too(
    save: Save, opset: int, node: str
) -> None:
    """They need an input after those that they may do without."""
    text = f"""
    g (float[1, 2] x, float[1, 5, 2] rows, bool go, int64 n) => (y) {{
        y = {node} => (bool still, float[2] w) {{ still = Identity (on) w = Relu (v) }} >
    }}
    """
    assert "" in load(save(text, opset=opset)).nodes[0].inputs
    with pytest.raises(NotAModelError, match="not the inputs and outputs of its kind"):
        load(save(text.replace(", x", ", "), opset=opset))


def test_a_part_of_a_split_needs_a_name(save: Save) -> None:
    """Without the check onnxruntime ends the process that runs it."""
    split = "g (float[2, 4] x) => (float[2, 2] a) { a, b = Split <axis = 1> (x) }"
    proto = onnx.load(save(split, opset=13))
    proto.graph.node[0].output[1] = ""
    with pytest.raises(NotAModelError, match="part of a Split has no name") as caught:
        load(save(proto))
    assert 'node 0 (Split) -> "a"' in (caught.value.where or "")
