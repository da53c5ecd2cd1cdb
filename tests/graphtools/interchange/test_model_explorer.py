"""Model Explorer's graph, against the rules by which its page (0.1.34) reads a file.

Its wheel has no reader but the page, which wants a browser and 130 MB of adapters; so the rules are
written out here, as they stand in the page's script. Both files of these tests were opened with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from graphtools.boxes import Box
from graphtools.explorer import Fact, Overlays
from graphtools.graph import Graph
from graphtools.hierarchy import hierarchy
from graphtools.interchange import to_model_explorer


def layers(namespace: str) -> list[str]:
    """The names of layers that the page shows for a namespace."""
    last = [part for part in namespace.split(";") if part][-1:] or [""]
    escaped = last[0].replace("\\/", "\0").split("/")
    return [part.replace("\0", "/") for part in escaped if part]


def opened(text: str) -> dict[str, Any]:
    """The one graph of the file, if the page would load it."""
    data = json.loads(text)
    assert isinstance(data["label"], str)
    (graph,) = data["graphs"]
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert len(nodes) == len(graph["nodes"])
    outputs = {
        (node["id"], item["id"])
        for node in graph["nodes"]
        for item in node.get("outputsMetadata", ())
    }
    for node in graph["nodes"]:
        assert all(isinstance(node[key], str) for key in ("id", "label", "namespace"))
        assert not node["id"].endswith("___group___")
        for edge in node.get("incomingEdges", ()):
            assert (edge["sourceNodeId"], edge["sourceNodeOutputId"]) in outputs
            assert edge["targetNodeInputId"].isdecimal()
        items = [*node.get("outputsMetadata", ()), {"attrs": node.get("attrs", ())}]
        for pair in (pair for item in items for pair in item["attrs"]):
            assert set(pair) == {"key", "value"}
            assert isinstance(pair["value"], str)
    spaces = {node["namespace"] for node in graph["nodes"]}
    for name, attributes in graph["groupNodeAttributes"].items():
        assert not name or any(s == name or s.startswith(f"{name}/") for s in spaces)
        assert all(isinstance(value, str) for value in attributes.values())
    found: dict[str, Any] = graph
    return found


def pairs(listed: list[dict[str, str]]) -> dict[str, str]:
    return {pair["key"]: pair["value"] for pair in listed}


@pytest.fixture
def graph(resnet: tuple[Graph, Box, Overlays]) -> dict[str, Any]:
    return opened(to_model_explorer(*resnet, resnet[0].values))


def test_boxes_are_layers(graph: dict[str, Any]) -> None:
    (conv,) = (
        n for n in graph["nodes"] if pairs(n.get("attrs", [])).get("slot") == "layer2.0.conv1"
    )
    assert conv["label"] == "Conv"
    assert layers(conv["namespace"]) == ["layer2", "layer2.0"]
    assert graph["groupNodeAttributes"]["layer2/layer2.0"] == {"stage": "layer2.0"}


def test_nodes_show_what_is_known(graph: dict[str, Any]) -> None:
    (conv,) = (
        n for n in graph["nodes"] if pairs(n.get("attrs", [])).get("slot") == "layer2.0.conv1"
    )
    shown = pairs(conv["attrs"])
    assert shown["strides"] == "[2, 2]"
    assert shown["input 1"].endswith(": f32 [8, 4, 3, 3]")
    assert shown["input 1 became"] == "blk.weight (voicedetect.list[3])"
    (output,) = conv["outputsMetadata"]
    assert pairs(output["attrs"]) == {
        "tensor_name": "/model/layer2/layer2.0/conv1/Conv_output_0",
        "shape": "B\u00d78\u00d740\u00d7T/2",
        "dtype": "f32",
    }


def test_the_ends_are_what_the_page_looks_for(graph: dict[str, Any]) -> None:
    first, *_, last = graph["nodes"]
    assert first["id"] == first["label"] == "GraphInputs"
    assert last["id"] == last["label"] == "GraphOutputs"
    assert pairs(first["outputsMetadata"][0]["attrs"])["tensor_name"] == "feats"
    assert len(last["incomingEdges"]) == 1


def test_facts_are_of_the_whole(resnet: tuple[Graph, Box, Overlays]) -> None:
    overlays = Overlays(title="T", facts=(Fact("key", "value"),))
    found = opened(to_model_explorer(resnet[0], resnet[1], overlays))
    assert found["groupNodeAttributes"][""] == {"family": "T", "key": "value"}


def test_names_mean_nothing_to_the_page(nuisance: Graph) -> None:
    found = opened(to_model_explorer(nuisance, hierarchy(nuisance)))
    names = {tuple(layers(node["namespace"])) for node in found["nodes"]}
    assert names == {(), ('one\uff1btwo "\uff3c',), ("back\uff3cslash</script>",)}
    nested = Box("n", "network", (Box("a/b", "scope", (Box("c\\", "scope", (0, 1, 2, 4, 5, 6)),)),))
    found = opened(to_model_explorer(nuisance, nested))
    assert layers(found["nodes"][1]["namespace"]) == ["a/b", "c\uff3c"]


def test_constants_are_no_nodes(nuisance: Graph) -> None:
    found = opened(to_model_explorer(nuisance, hierarchy(nuisance)))
    assert "Constant" not in {node["label"] for node in found["nodes"]}
    (node,) = (n for n in found["nodes"] if n["label"] == "Min")
    assert [edge["targetNodeInputId"] for edge in node["incomingEdges"]] == ["0"]
    assert pairs(node["attrs"])["input 1"] == "five: f32 []"


def test_what_a_subgraph_takes_is_an_edge(parse: Callable[..., Graph]) -> None:
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
    found = opened(to_model_explorer(graph, hierarchy(graph)))
    (node,) = (n for n in found["nodes"] if n["label"] == "If")
    assert {edge["sourceNodeId"] for edge in node["incomingEdges"]} == {"0"}


def test_the_same_graph_gives_the_same_text(resnet: tuple[Graph, Box, Overlays]) -> None:
    text = to_model_explorer(*resnet)
    assert text == to_model_explorer(*resnet)
    assert re.search(r"\d{4}-\d\d-\d\d", text) is None
