"""Numbers at the nodes of a graph, as the JSON that Google's Model Explorer colours it by.

One file holds one number for each node. Results are keyed by the node's first output, which is
also how a node without a name is found; the format is that of ``node_data_builder.py`` of
ai-edge-model-explorer 0.1.34.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from graphtools.explorer.overlays import Error, Overlays
from graphtools.graph import Graph, canonical_order
from graphtools.interchange.model_explorer import graph_id

__all__ = ["WRONG", "to_node_data"]

# What an error without a size counts as: another shape, NaN, a bound of 0 that is not kept.
WRONG = 1e9

_RIGHT_COLOUR, _NEAR_COLOUR, _WRONG_COLOUR = "#a5d6a7", "#ffcc80", "#ef5350"
_SCALE = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#42a5f5"}]


def to_node_data(
    graph: Graph, overlays: Overlays | None = None, tensors: Mapping[str, str] | None = None
) -> str:
    """The text: of the most telling of three things that there is.

    Where there are errors, every golden's largest absolute difference over its bound: right up
    to 1. Else, where there are goldens, the standard deviation of each. Else, of every node, how
    many elements the weights have that no node before it reads.

    Args:
        graph: the one that `to_model_explorer` writes.
        overlays: goldens and errors, by name.
        tensors: the tensor of the graph that a golden is, by the golden's name; one that is not
            listed is the tensor of its own name, if there is one.
    """
    overlays = overlays or Overlays()
    tensors = tensors or {}
    data: dict[str, Any]
    if overlays.errors:
        results = {name: _result(error) for name, error in overlays.errors.items()}
        data = {
            "name": "max|d| over its bound",
            "results": _placed(graph, results, tensors),
            "thresholds": [
                {"value": 1, "bgColor": _RIGHT_COLOUR},
                {"value": 10, "bgColor": _NEAR_COLOUR},
                {"value": WRONG, "bgColor": _WRONG_COLOUR},
            ],
        }
    elif overlays.goldens:
        results = {n: {"value": g.std} for n, g in overlays.goldens.items() if isfinite(g.std)}
        data = {
            "name": "golden's standard deviation",
            "results": _placed(graph, results, tensors),
            "gradient": _SCALE,
        }
    else:
        data = {"name": "parameters", "results": _parameters(graph), "gradient": _SCALE}
    return json.dumps({graph_id(graph): data}, indent=1, allow_nan=False) + "\n"


def _result(error: Error) -> dict[str, Any]:
    ratio = WRONG
    if error.max_abs is not None and error.bound is not None and error.max_abs < WRONG:
        ratio = error.max_abs / error.bound if error.bound else WRONG * (error.max_abs > 0)
    elif not error.problem:
        ratio = 0.0
    result: dict[str, Any] = {"value": min(ratio, WRONG)}
    if error.problem and ratio <= 1:  # wrong by another rule than its bound
        result["bgColor"] = _WRONG_COLOUR
    return result


def _placed(
    graph: Graph, results: Mapping[str, dict[str, Any]], tensors: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """By tensor; what is none of the graph's is left out."""
    found = {tensors.get(name, name): result for name, result in results.items()}
    there = {*graph.producers, *(value.name for value in graph.inputs)}
    return {name: result for name, result in found.items() if name in there}


def _parameters(graph: Graph) -> dict[str, dict[str, Any]]:
    seen: set[str] = set()
    found: dict[str, dict[str, Any]] = {}
    for index in canonical_order(graph):
        node = graph.model.nodes[index]
        weights = {name: graph.model.constants.get(name) for name in node.reads()}
        count = sum(w.size for n, w in weights.items() if w and w.dtype.is_float and n not in seen)
        seen.update(weights)
        output = next(filter(None, node.outputs), "")
        if count and output:
            found[output] = {"value": count}
    return found
