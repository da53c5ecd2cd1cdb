"""Two files, one network or not: by slots where both are recovered, else node by node."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from converters.network_diff import NetworkDiff, network_diff
from fixtures import catalog
from graphtools.graph import build
from graphtools.onnx_file import load

Make = Callable[..., Any]
TINY = catalog.names(committed=True)


def diff(first: Path, second: Path, **options: Any) -> NetworkDiff:
    return network_diff(build(load(first)), build(load(second)), **options)


def scramble(proto: onnx.ModelProto) -> None:
    """Other names for all tensors but the ends, nodes and initializers in another order."""
    draw = random.Random(0)
    ends = {v.name for v in (*proto.graph.input, *proto.graph.output)}
    names: dict[str, str] = {}

    def renamed(name: str) -> str:
        return name if name in ends or not name else names.setdefault(name, f"t{len(names)}")

    for tensor in proto.graph.initializer:
        tensor.name = renamed(tensor.name)
    for node in proto.graph.node:
        node.name = ""
        node.input[:] = [renamed(n) for n in node.input]
        node.output[:] = [renamed(n) for n in node.output]
    for part in (proto.graph.node, proto.graph.initializer):
        kept = list(part)
        draw.shuffle(kept)
        del part[:]
        part.extend(kept)


def of_weight(number: int, change: Callable[[Any], Any]) -> Callable[[onnx.ModelProto], None]:
    def edit(proto: onnx.ModelProto) -> None:
        convs = [n for n in proto.graph.node if n.op_type == "Conv"]
        name = convs[number].input[1]
        (tensor,) = (t for t in proto.graph.initializer if t.name == name)
        values = change(numpy_helper.to_array(tensor).copy()).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, name))

    return edit


class TestRecovered:
    @pytest.mark.parametrize("name", TINY)
    def test_names_and_order_say_nothing(self, name: str, edited: Make) -> None:
        found = diff(catalog.path(name), edited(name, scramble))
        assert found
        assert "slot by slot" in found.how
        assert found.to_json()["same"] is True

    @pytest.mark.parametrize("name", TINY)
    def test_one_weight_that_differs_is_named_by_its_place(self, name: str, edited: Make) -> None:
        def nudge(values: Any) -> Any:
            values.flat[3] += 0.25
            return values

        found = diff(catalog.path(name), edited(name, of_weight(0, nudge)))
        assert not found
        assert found.structure == ""
        (only,) = found.tensors
        assert only.place.endswith("stem.weight")
        assert only.difference.max_abs == pytest.approx(0.25, rel=1e-6)
        assert diff(catalog.path(name), edited(name, of_weight(0, nudge)), atol=0.3)

    def test_two_families(self) -> None:
        found = diff(catalog.path("resnet34_tiny"), catalog.path("campplus_tiny"))
        assert found.structure == "ResNet of BasicBlocks (WeSpeaker) against CAM++ (3D-Speaker)"

    def test_a_constant(self, edited: Make) -> None:
        def change(proto: onnx.ModelProto) -> None:
            for node in proto.graph.node:
                if node.op_type == "Clip":
                    for name in node.input[2:]:
                        for other in proto.graph.node:
                            if name in other.output:
                                value = numpy_helper.from_array(np.float32(6.0))
                                other.attribute[0].t.CopyFrom(value)
                        for tensor in proto.graph.initializer:
                            if tensor.name == name:
                                tensor.CopyFrom(numpy_helper.from_array(np.float32(6.0), name))

        found = diff(catalog.path("eres2net_tiny"), edited("eres2net_tiny", change))
        assert found.structure == "relu_clamp is 20 against 6"

    @pytest.mark.slow
    def test_another_depth_and_another_width(self) -> None:
        tiny, full = catalog.path("resnet34_tiny"), catalog.path("resnet34")
        assert "weight of stem is [4, 1, 3, 3] against [32, 1, 3, 3]" in diff(tiny, full).structure
        shorter = diff(full, catalog.path("resnet18"))
        assert "layer1.2.conv1" in shorter.structure

    def test_a_network_that_is_recovered_and_one_that_is_not(self, edited: Make) -> None:
        def change(proto: onnx.ModelProto) -> None:
            (first, *_) = (n for n in proto.graph.node if n.op_type == "Relu")
            first.op_type = "Tanh"

        other = edited("resnet34_tiny", change)
        found = diff(other, catalog.path("resnet34_tiny"))
        assert found.structure.startswith("only the second file is ResNet")
        assert "(Tanh)" in found.structure


BODY = "h = Conv (x, w) r = Relu (h) y = Add (r, h)"


def small(path: Path, body: str = BODY, weight: float = 0.5, shape: str = "4, 3, 1") -> Path:
    size = int(np.prod([int(d) for d in shape.split(", ")]))
    values = ", ".join(str(weight * i) for i in range(size))
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1, 3, T] x) => (float[1, 4, T] y) <float[{shape}] w = {{{values}}}>
        {{ {body} }}"""
    )
    onnx.save(proto, path)
    return path


class TestNodeByNode:
    def test_the_same(self, tmp_path: Path) -> None:
        a = small(tmp_path / "a.onnx")
        b = small(tmp_path / "b.onnx", "q = Conv (x, w) p = Relu (q) y = Add (p, q)")
        found = diff(a, b)
        assert found
        assert "node by node" in found.how

    @pytest.mark.parametrize(
        ("body", "told"),
        [
            ("h = Conv (x, w) r = Sigmoid (h) y = Add (r, h)", "(Relu)"),
            ("h = Conv <strides = [2]> (x, w) r = Relu (h) y = Add (r, h)", "strides"),
            ("h = Conv (x, w) r = Relu (h) y = Add (r, r)", "(Conv)"),
            ("h = Conv (x, w) y = Relu (h)", "(Add)"),
            ("h = Conv (x, w) i = Conv (x, w) r = Relu (h) y = Add (r, i)", "(Conv)"),
        ],
    )
    def test_the_first_difference_is_named(self, tmp_path: Path, body: str, told: str) -> None:
        found = diff(small(tmp_path / "a.onnx"), small(tmp_path / "b.onnx", body))
        assert not found
        assert told in found.structure
        assert " against " in found.structure

    def test_values_and_shapes(self, tmp_path: Path) -> None:
        a = small(tmp_path / "a.onnx")
        (only,) = diff(a, small(tmp_path / "b.onnx", weight=0.25)).tensors
        assert only.difference.max_abs == pytest.approx(11 * 0.25)
        assert (only.first, only.second) == ("w", "w")
        other = diff(a, small(tmp_path / "c.onnx", shape="4, 3, 3"))
        assert "f32 [4, 3, 1] against f32 [4, 3, 3]" in other.structure

    def test_control_flow_is_never_called_the_same(self, tmp_path: Path) -> None:
        branch = helper.make_graph(
            [helper.make_node("Relu", ["x"], ["z"])],
            "branch",
            [],
            [helper.make_tensor_value_info("z", 1, None)],
        )
        graph = helper.make_graph(
            [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)],
            "g",
            [
                helper.make_tensor_value_info("x", 1, [2]),
                helper.make_tensor_value_info("c", 9, []),
            ],
            [helper.make_tensor_value_info("y", 1, [2])],
        )
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "a.onnx")
        found = diff(tmp_path / "a.onnx", tmp_path / "a.onnx")
        assert not found
        assert "not compared" in found.structure


def test_from_the_command_line(graphtools: Make, edited: Make) -> None:
    plain = catalog.path("resnet34_tiny")
    same = graphtools("diff", plain, edited("resnet34_tiny", scramble), code=0)
    assert same.out.startswith("the same network")
    doubled = edited("resnet34_tiny", of_weight(1, lambda v: 2 * v))
    ran = graphtools("diff", plain, doubled, code=1)
    assert "1 weight differs" in ran.out
    assert "layer1.0.conv1.weight" in ran.out
    shown = graphtools("diff", plain, doubled, "--json", code=1).json
    assert shown["tensors"][0]["cosine"] == pytest.approx(1.0)
    graphtools("diff", plain, "absent.onnx", code=2)
