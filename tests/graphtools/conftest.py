"""What the graph layer's tests share: graphs from text, weights from a seed, changed copies."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from fixtures import catalog
from graphtools.graph import Graph, build
from graphtools.islands import Mismatch
from graphtools.match import Match
from graphtools.matchers import MATCHERS
from graphtools.onnx_file import load
from graphtools.ops import Ops
from graphtools.recover import Recovered, recover
from graphtools.trace import Traced, trace


def model_of(text: str, opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
    """A model from the text of a graph, its versions pinned.

    Tensors that the text declares between ``<`` and ``>`` without a value, and that no node
    makes, become initializers of that type and shape: seeded, positive and negative, no two
    alike.
    """
    domains = f'"" : {opset}' + (', "com.microsoft" : 1' if "com.microsoft." in text else "")
    header = f"<ir_version: {ir_version}, opset_import: [{domains}]>"
    proto = onnx.parser.parse_model(f"{header}\n{text}")
    made = {name for node in proto.graph.node for name in node.output}
    for seed, value in enumerate(v for v in proto.graph.value_info if v.name not in made):
        kind = value.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        values = np.random.default_rng(seed).normal(size=shape)
        if value.name.startswith("var"):  # a variance
            values = np.square(values) + 0.1
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        proto.graph.initializer.append(numpy_helper.from_array(values.astype(dtype), value.name))
    del proto.graph.value_info[:]
    return proto


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """``save(text, opset=17)`` or ``save(proto)``: the path of an ONNX file of its own."""
    number = count()

    def write(source: str | onnx.ModelProto, **versions: int) -> Path:
        proto = model_of(source, **versions) if isinstance(source, str) else source
        path = tmp_path / f"hand_made_{next(number)}.onnx"
        path.write_bytes(proto.SerializeToString())
        return path

    return write


@pytest.fixture
def parse(save: Callable[..., Path]) -> Callable[..., Graph]:
    """``parse(text, opset=17)``: the graph of a hand-made model, read back from a file."""
    return lambda source, **versions: build(load(save(source, **versions)))


@cache
def _export(name: str) -> Graph:
    return build(load(catalog.path(name)))


@cache
def _recovered(name: str) -> Recovered:
    found = recover(_export(name))
    assert isinstance(found, Recovered), name
    return found


@pytest.fixture
def export() -> Callable[[str], Graph]:
    """``export("resnet34_tiny")``: the graph of a catalog file, loaded once per process."""
    return _export


@pytest.fixture
def recovered() -> Callable[[str], Recovered]:
    """``recovered("resnet34_tiny")``: the recovered network of a catalog file."""
    return _recovered


@pytest.fixture
def changed() -> Callable[..., Graph]:
    """``changed(graph, node index, strides=(1, 2), ...)``: the graph with one node's attributes
    changed. The protobuf that onnxruntime would run stays as it was.
    """

    def change(graph: Graph, index: int, **attributes: Any) -> Graph:
        nodes = list(graph.model.nodes)
        both: Mapping[str, Any] = {**nodes[index].attributes, **attributes}
        nodes[index] = replace(nodes[index], attributes=both)
        return build(replace(graph.model, nodes=tuple(nodes)))

    return change


def _read(
    graph: Graph, forward: Callable[[Ops[Traced], Traced], Traced], tensor: str = "y"
) -> list[Match] | Mismatch:
    step = trace(forward).steps[-1]
    return MATCHERS[step.kind](graph, step, tensor)


@pytest.fixture
def read() -> Callable[..., list[Match] | Mismatch]:
    """``read(graph, forward, "y")``: what the last step of a forward finds at a tensor."""
    return _read


@pytest.fixture
def hit() -> Callable[..., Match]:
    """``hit(graph, forward, "y")``: the only way to read the last step of a forward there."""

    def only(*arguments: Any) -> Match:
        found = _read(*arguments)
        assert not isinstance(found, Mismatch), found
        (match,) = found
        return match

    return only


@pytest.fixture
def miss() -> Callable[..., Mismatch]:
    """``miss(graph, forward, "y")``: why the last step of a forward is not there."""

    def why(*arguments: Any) -> Mismatch:
        found = _read(*arguments)
        assert isinstance(found, Mismatch), found
        return found

    return why


@contextmanager
def _deadline(seconds: int) -> Iterator[None]:
    def stop(signum: int, frame: object) -> None:
        raise TimeoutError(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def deadline() -> Callable[[int], AbstractContextManager[None]]:
    """``with deadline(10): ...`` fails what does not end, so that a hang is an ordinary failure."""
    return _deadline
