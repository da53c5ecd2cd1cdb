"""A network as text that other programs read: plain JSON, Graphviz, Google's Model Explorer."""

from graphtools.interchange.dot import to_dot
from graphtools.interchange.model_explorer import to_model_explorer
from graphtools.interchange.node_data import to_node_data
from graphtools.interchange.plain import to_json

__all__ = ["to_dot", "to_json", "to_model_explorer", "to_node_data"]
