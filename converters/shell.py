"""What a shell has at hand: the graph, the network, the manifest, and examples to begin with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.archs import arch_of_family
from converters.checkpoint import describe_checkpoint
from converters.convert import describe
from converters.gguf_file import is_gguf, read
from converters.manifest import Manifest
from converters.sources.locate import is_checkpoint
from converters.sources.source import open_source
from graphtools.errors import Error
from graphtools.graph import Graph, build
from graphtools.onnx_file import load
from graphtools.recover import Recovered, recover

__all__ = ["Session", "session"]

_OF_NETWORK = ("net.blocks[0]", "a block and its weights, unread")
_OF_MANIFEST = ("m.tensors[0].read()", "a tensor as it is stored")


@dataclass(frozen=True)
class Session:
    """The names of a shell.

    Attributes:
        names: ``g`` the graph, ``net`` the recovered network or the miss, ``m`` the manifest,
            ``np`` numpy; those that a model does not have are None.
        banner: what is printed first.
    """

    names: Mapping[str, Any]
    banner: str

    def to_json(self) -> dict[str, Any]:
        """The names with their reprs."""
        return {name: repr(value) for name, value in self.names.items() if name != "np"}


def session(model: Path, name: str | None = None) -> Session:
    """Open a model for a shell.

    Args:
        model: an ONNX file, a manifest GGUF, or a checkpoint.
        name: what the model is called; its path by default.

    Raises:
        UsageError, UnsupportedError: it cannot be opened.
    """
    import numpy as np

    title = name or str(model)
    graph = net = manifest = None
    why = "no manifest"
    if is_gguf(model):
        manifest = read(model)
    elif is_checkpoint(model):
        manifest = describe_checkpoint(open_source(model), title).manifest
    else:
        graph = build(load(model))
        try:
            net = recover(graph)
            manifest = _manifest(net, title) if isinstance(net, Recovered) else None
            why = "no manifest: no engine schema stores the network"
        except Error as error:  # the graph can be walked all the same
            why = f"no manifest: {error.cause}"
    names = {"g": graph, "net": net, "m": manifest, "np": np}
    lines = [f"graphtools shell: {title}"]
    for key, value in (("g", graph), ("net", net), ("m", manifest)):
        if value is not None:
            lines.append(f"  {key:<4} {value!r}")
    if manifest is None:
        lines.append(f"  ({why})")
    examples = [
        *(_of_graph(graph) if graph is not None else ()),
        *([_OF_NETWORK] if isinstance(net, Recovered) else []),
        *([_OF_MANIFEST] if manifest is not None else []),
        *((("net", "where the nearest family differs"),) if net and manifest is None else ()),
        ("m.by_key.keys()", "the keys"),
        ("dir(m)", "what else there is"),
    ][:3]
    lines.append("Try:")
    width = max(len(code) for code, _ in examples)
    lines += [f"  {code:<{width}} # {meaning}" for code, meaning in examples]
    return Session(names, "\n".join(lines))


def _of_graph(graph: Graph) -> Iterator[tuple[str, str]]:
    """Examples that run as they are written."""
    ops = Counter(node.op for node in graph.model.nodes if node.op != "Constant")
    op = "Conv" if "Conv" in ops else max(ops, key=ops.__getitem__, default="Constant")
    kernel = ", kernel=(3, 3)" if op == "Conv" else ""
    yield f"g.find(op={json.dumps(op)}{kernel})", "nodes by what they are"
    if len(graph.inputs) == 1 and graph.inputs[0].shape is not None:
        axes = enumerate(graph.inputs[0].shape)
        shape = tuple(n if isinstance(n, int) else 200 if place else 1 for place, n in axes)
        code = f"g.run(np.zeros({shape}), taps={json.dumps(f'op:{op}')})"
        yield code, "onnxruntime's values of any tensor"


def _manifest(net: Recovered, title: str) -> Manifest | None:
    arch = arch_of_family(net.family.name)
    return None if arch is None else describe(net, arch, title)
