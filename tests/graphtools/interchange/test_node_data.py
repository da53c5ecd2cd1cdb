"""Node data: one number for each node, found by the name of its output."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from graphtools.boxes import Box
from graphtools.explorer import Error, Golden, Overlays
from graphtools.graph import Graph
from graphtools.interchange import to_node_data
from graphtools.recover import network_of


def of(graph: Graph, *arguments: Any) -> dict[str, Any]:
    (found,) = json.loads(to_node_data(graph, *arguments)).values()
    data: dict[str, Any] = found
    for result in data["results"].values():
        assert isinstance(result["value"], int | float)
    return data


def test_it_belongs_to_the_graph(nuisance: Graph) -> None:
    assert list(json.loads(to_node_data(nuisance))) == [nuisance.model.path.name]


def test_parameters_are_counted_once(nuisance: Graph, resnet: tuple[Graph, Box, Overlays]) -> None:
    found = of(nuisance)["results"]
    assert found == {
        "2": {"value": 36},
        "GraphInputs": {"value": 16},
        "__proto__": {"value": 1},
        "y": {"value": 1},
    }
    graph = resnet[0]
    counts = [result["value"] for result in of(graph)["results"].values()]
    assert sum(counts) == sum(t.size for t in graph.model.constants.values() if t.dtype.is_float)


def test_errors_are_over_their_bounds(resnet: tuple[Graph, Box, Overlays]) -> None:
    graph = resnet[0]
    net = network_of(graph)
    assert net is not None
    errors = {
        "stem": Error(1e-6, 1e-4, 1.0, ""),
        "layer1.0": Error(3e-4, 1e-4, 0.9, "too far"),
        "layer1.1": Error(None, 1e-4, None, "another shape"),
        "layer1.2": Error(float("nan"), 1e-4, None, "not finite"),
        "layer2.0": Error(5e-5, 1e-4, -1.0, "the cosine"),
        "layer2.1": Error(0.0, 0.0, 1.0, ""),
        "layer2.2": Error(1e-9, 0.0, 1.0, "not equal"),
        "layer2.3": Error(4.0, None, 1.0, ""),
        "fbank": Error(1.0, 2.0, 1.0, ""),
    }
    data = of(graph, Overlays(errors=errors), net.binding.stages)
    stages = {tensor: stage for stage, tensor in net.binding.stages.items()}
    values = {stages[name]: result["value"] for name, result in data["results"].items()}
    wrong = {name for name, value in values.items() if value > 1}
    assert wrong == {"layer1.0", "layer1.1", "layer1.2", "layer2.2"}
    np.testing.assert_allclose([values["stem"], values["layer1.0"]], [0.01, 3])
    marked = {stages[name] for name, r in data["results"].items() if "bgColor" in r}
    assert marked == {"layer2.0"}
    assert max(values.values()) == data["thresholds"][-1]["value"]


def test_goldens_show_their_spread(resnet: tuple[Graph, Box, Overlays]) -> None:
    golden = {
        "embs": Golden((1, 32), -1, 1, 0, 0.5),
        "feats": Golden((1, 9, 80), 0, 0, 0, float("nan")),
    }
    assert of(resnet[0], Overlays(goldens=golden))["results"] == {"embs": {"value": 0.5}}
