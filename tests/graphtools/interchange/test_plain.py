"""The plain JSON: what is in it, and that every value of a model has a place in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

from graphtools.boxes import Box
from graphtools.explorer import Overlays
from graphtools.graph import Graph
from graphtools.hierarchy import hierarchy
from graphtools.interchange import to_json
from graphtools.subgraphs import opened


def test_nodes_say_where_they_are(resnet: tuple[Graph, Box, Overlays]) -> None:
    graph, tree, overlays = resnet
    data = json.loads(to_json(graph, tree, overlays, graph.values))
    assert data["family"] == "ResNet"
    assert (data["inputs"], data["outputs"]) == (["feats"], ["embs"])
    assert sorted(n["index"] for n in data["nodes"]) == [*range(len(graph.model.nodes))]
    place = {name: at for at, n in enumerate(data["nodes"]) for name in n["outputs"]}
    for at, node in enumerate(data["nodes"]):
        assert all(place[name] < at for name in node["inputs"] if name in place)
    (conv,) = (n for n in data["nodes"] if n["slot"] == "layer2.0.conv1")
    assert conv["op"] == "Conv"
    assert conv["namespace"] == "layer2/layer2.0"
    assert conv["attributes"]["strides"] == [2, 2]
    weight = data["tensors"][conv["inputs"][1]]
    assert weight == {
        "dtype": "f32",
        "shape": [8, 4, 3, 3],
        "constant": True,
        "became": [{"tensor": "blk.weight", "key": "voicedetect.list", "index": 3}],
    }
    assert data["tensors"]["feats"] == {"dtype": "f32", "shape": ["B", "T", 80], "constant": False}
    assert set(data["tensors"]) >= {name for n in data["nodes"] for name in n["outputs"]}


def test_a_constant_is_where_its_readers_are(resnet: tuple[Graph, Box, Overlays]) -> None:
    graph, tree, _ = resnet
    data = json.loads(to_json(graph, tree))
    nodes = {n["index"]: n for n in data["nodes"]}
    for node in data["nodes"]:
        if node["op"] == "Constant":
            (reader, _), *_ = graph.consumers[node["outputs"][0]]
            assert node["namespace"] == nodes[reader.index]["namespace"]


def test_names_and_numbers_come_back(nuisance: Graph) -> None:
    data = json.loads(to_json(nuisance, hierarchy(nuisance)))
    by_index = {n["index"]: n for n in data["nodes"]}
    for node in nuisance.model.nodes:
        found = by_index[node.index]
        assert found["name"] == node.name
        assert (found["inputs"], found["outputs"]) == ([*node.inputs], [*node.outputs])
    (constant,) = (n for n in data["nodes"] if n["op"] == "Constant")
    assert constant["attributes"] == {"value_float": "inf"}
    assert data["tensors"]["five"]["values"] == ["inf"]
    assert data["tensors"]["one"]["values"] == [1.0]


def test_text_constants_are_not_numbers(parse: Callable[..., Graph]) -> None:
    graph = parse(
        """
        g (int64[1] x) => (string[1] y) <string[2] words = {"a", "b"}> { y = Gather (words, x) }
        """
    )
    tensors = json.loads(to_json(graph, hierarchy(graph)))["tensors"]
    assert tensors["words"] == {"dtype": "string", "shape": [2], "constant": True}


def test_subgraphs_say_what_they_give(parse: Callable[..., Graph]) -> None:
    branch = "(float[1, 2] {0}) {{ {0} = Mul (h, h) }}"
    graph = parse(
        f"""
        g (float[1, 2] x) => (float[1, 2] y) <bool yes = {{1}}> {{
            h = Neg (x)
            y = If (yes) <
                then_branch = a () => {branch.format("p")},
                else_branch = b () => {branch.format("q")}
            >
        }}
        """
    )
    graph = opened(graph)
    first, *branches, last = json.loads(to_json(graph, hierarchy(graph)))["nodes"]
    assert last["attributes"]["then_branch"] == {"gives": ["p"]}
    assert (first["inside"], last["inside"]) == (None, None)
    assert [(n["index"], n["inputs"], n["inside"]) for n in branches] == [
        (index, ["h", "h"], {"node": 1, "attribute": attribute, "place": 0})
        for index, attribute in ((2, "then_branch"), (3, "else_branch"))
    ]


def test_the_same_graph_gives_the_same_text(resnet: tuple[Graph, Box, Overlays]) -> None:
    assert to_json(*resnet) == to_json(*resnet)
