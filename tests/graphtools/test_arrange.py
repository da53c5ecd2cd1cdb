"""A level of any size becomes one that can be looked at; nothing is lost and nothing is twice."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from graphtools.arrange import FIRST, INSIDE, arrange, common
from graphtools.boxes import Box, nodes_of
from graphtools.graph import Graph

Parse = Callable[..., Graph]


def chain(*ops: str) -> str:
    """Operations in a row; MatMul has weights."""
    lines = []
    weights = []
    for i, op in enumerate(ops):
        source, out = f"t{i - 1}" if i else "x", f"t{i}" if i < len(ops) - 1 else "y"
        if op == "MatMul":
            weights.append(f"float[4, 4] w{i}")
            lines.append(f"{out} = MatMul({source}, w{i})")
        else:
            lines.append(f"{out} = {op}({source})")
    return f"c (float[N, 4] x) => (float[N, 4] y) <{', '.join(weights)}> {{ {' '.join(lines)} }}"


def arranged(graph: Graph, limit: int = FIRST) -> tuple[Box | int, ...]:
    nodes = [node.index for node in graph.model.nodes]
    units = arrange(graph, nodes, {}, limit)
    assert sorted(nodes_of(units)) == nodes
    assert len(units) <= limit
    for unit in units:
        if isinstance(unit, Box):
            assert all(len(box.children) <= INSIDE for box in unit.boxes())
    return units


def names(units: tuple[Box | int, ...]) -> list[str]:
    return [unit.name for unit in units if isinstance(unit, Box)]


def test_a_small_level_stays_as_it_is(parse: Parse) -> None:
    graph = parse(chain(*["MatMul", "Relu"] * 6))
    assert arranged(graph) == tuple(range(12))


def test_a_run_of_one_pattern_is_one_box(parse: Parse) -> None:
    ops = ["MatMul", "Tanh", *["MatMul", "Relu", "MatMul", "Sigmoid"] * 6, "MatMul", "Softmax"]
    units = arranged(parse(chain(*ops)), 5)
    (run,) = (u for u in units if isinstance(u, Box) and u.kind == "repeat")
    assert run.name == "MatMul x 6"
    assert len(run.children) == 6
    assert {len(list(nodes_of([child]))) for child in run.children} == {4}


def test_boxes_that_are_nearly_all_alike_are_cut_in_pieces_by_name(parse: Parse) -> None:
    graph = parse(chain(*["Exp", *["MatMul", "Relu"] * 15]))
    boxes = [Box(f"layer.{i}", "scope", (2 * i + 1, 2 * i + 2)) for i in range(15)]
    units = arrange(graph, [0, *boxes], {}, 6)
    assert [name for name in names(units) if name.startswith("layer.")][-1].endswith("layer.14")
    assert all(unit.kind == "part" for unit in units if isinstance(unit, Box))


def test_what_has_no_pattern_is_cut_in_pieces(parse: Parse) -> None:
    ops = random.Random(0).choices(["MatMul", "MatMul", "Relu", "Tanh", "Exp"], k=300)
    units = arranged(parse(chain(*ops)))
    sizes = [len(list(nodes_of([unit]))) for unit in units]
    assert max(sizes) < 100


@pytest.mark.parametrize("count", [13, 25, 100, 700])
def test_equal_operations_are_cut_too(count: int, parse: Parse) -> None:
    arranged(parse(chain(*["Relu"] * count)))


def test_a_box_is_called_as_what_its_weights_share(parse: Parse) -> None:
    graph = parse(chain(*["MatMul", "Relu"] * 14))
    paths = {i: ("encoder", f"layer{i // 4}", f"fc{i}") for i in range(28)}
    units = arrange(graph, list(range(28)), paths, 7)
    assert {name.split(" #")[0] for name in names(units)} == {"encoder"}
    inside = [box for unit in units if isinstance(unit, Box) for box in unit.boxes()]
    assert "encoder.layer3" in {box.name.split(" #")[0] for box in inside}


def test_what_paths_share() -> None:
    assert common([("a", "b", "c"), ("a", "b", "d"), ("a", "b")]) == ("a", "b")
    assert common([("a",), ("b",)]) == ()
    assert common([]) == ()
