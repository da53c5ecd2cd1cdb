"""The tree of boxes: walks over it, and names that can be told apart."""

from __future__ import annotations

from graphtools.boxes import Box, first_node, nodes_of, unique_names

TREE = Box("network", "network", (Box("a", "scope", (3, Box("b", "part", (1, 2)))), 0))


def test_nodes_come_in_the_order_of_the_tree() -> None:
    assert list(TREE.nodes()) == [3, 1, 2, 0]
    assert list(nodes_of(TREE.children)) == [3, 1, 2, 0]
    assert first_node(TREE) == 3


def test_a_box_comes_before_those_inside() -> None:
    assert [box.name for box in TREE.boxes()] == ["network", "a", "b"]


def test_boxes_of_one_name_are_numbered() -> None:
    boxes = [Box(name, "part", (i,)) for i, name in enumerate(["Conv", "Add", "Conv", "Conv #1"])]
    named = unique_names([*boxes, 9])
    assert [b.name for b in named if isinstance(b, Box)] == ["Conv #2", "Add", "Conv #3", "Conv #1"]
    assert [list(nodes_of([unit])) for unit in named] == [[0], [1], [2], [3], [9]]


def test_names_that_differ_stay() -> None:
    boxes = (Box("a", "stage", (0,), "a"), Box("b", "stage", (1,)))
    assert unique_names(boxes) == boxes
