"""Graphviz reads what is written, and shows names as they are."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from graphtools.boxes import Box
from graphtools.explorer import Overlays
from graphtools.graph import Graph
from graphtools.hierarchy import hierarchy
from graphtools.interchange import to_dot

graphviz = pytest.mark.skipif(
    shutil.which("dot") is None, reason="Graphviz is not installed: apt-get install graphviz"
)


def read(text: str) -> dict[str, Any]:
    """What Graphviz itself understands: its own JSON, before any layout."""
    done = subprocess.run(
        ["dot", "-Tdot_json"], input=text.encode(), capture_output=True, check=True, timeout=60
    )
    assert done.stderr == b""
    data: dict[str, Any] = json.loads(done.stdout, strict=False)
    return data


@graphviz
def test_boxes_are_nested_clusters(resnet: tuple[Graph, Box, Overlays]) -> None:
    graph, tree, overlays = resnet
    data = read(to_dot(graph, tree, overlays, graph.values))
    objects = {o["name"]: o for o in data["objects"]}
    clusters = [o for o in data["objects"] if o["name"].startswith("cluster")]
    assert len(clusters) == len([*tree.boxes()]) - 1
    (outer,) = (o for o in clusters if o["label"] == "layer2")
    (inner,) = (o for o in clusters if o["label"] == "layer2.0")
    assert inner["_gvid"] in outer["subgraphs"]
    (conv,) = (o for o in data["objects"] if "layer2.0.conv1" in o["label"])
    assert conv["label"] == "Conv\\nlayer2.0.conv1\\n8\u00d74\u00d73\u00d73, 8"
    assert conv["_gvid"] in inner["nodes"]
    assert objects["in0"]["label"] == "feats\\nf32 B\u00d7T\u00d780"


@graphviz
def test_every_read_of_data_is_an_edge(resnet: tuple[Graph, Box, Overlays]) -> None:
    graph, tree, overlays = resnet
    data = read(to_dot(graph, tree, overlays))
    named = {o["_gvid"]: o["name"] for o in data["objects"]}
    found = {(named[e["tail"]], named[e["head"]]) for e in data["edges"]}
    wanted = {
        (f"n{graph.producers[name].index}" if name in graph.producers else "in0", f"n{node.index}")
        for node in graph.model.nodes
        for name in node.inputs
        if name not in graph.model.constants
    }
    assert found == wanted | {(f"n{graph.producers['embs'].index}", "out0")}


@graphviz
def test_names_mean_nothing_to_graphviz(nuisance: Graph) -> None:
    data = read(to_dot(nuisance, hierarchy(nuisance)))
    labels = {o["label"] for o in data["objects"] if o["name"].startswith("cluster")}
    assert {label.replace("\\\\", "\\") for label in labels} == {
        'one;two "\\',
        "back\\slash</script>",
    }
    tips = {e["tooltip"] for e in data["edges"]}
    assert r'"<b>";\\N\\l&amp;gt;\n' in tips


@graphviz
def test_it_is_drawn_as_valid_svg(nuisance: Graph) -> None:
    from xml.etree import ElementTree

    text = to_dot(nuisance, hierarchy(nuisance)).encode()
    done = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, check=True, timeout=60)
    drawn = {e.text for e in ElementTree.fromstring(done.stdout).iter() if e.text}
    assert 'one;two "\\' in drawn


def test_control_characters_are_blanks(nuisance: Graph) -> None:
    tree = Box("network", "network", (Box("a\x00b\x1b\ud800c", "scope", (0, 1, 2, 4, 5, 6)),))
    assert 'label="a b  c"' in to_dot(nuisance, tree)


def test_the_same_graph_gives_the_same_text(resnet: tuple[Graph, Box, Overlays]) -> None:
    assert to_dot(*resnet) == to_dot(*resnet)
