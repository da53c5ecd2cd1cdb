"""What `inspect` shows: facts of a file, and the network in it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from fixtures import catalog
from graphtools.errors import NotAModelError
from graphtools.recover import Recovered
from graphtools.report import Block, OnnxReport, report

Save = Callable[..., Path]

TINY = catalog.names(committed=True)


@pytest.fixture(scope="module")
def reports() -> dict[str, OnnxReport]:
    return {name: report(catalog.path(name)) for name in TINY}


@pytest.mark.parametrize("name", TINY)
def test_facts_are_those_of_the_file(reports: dict[str, OnnxReport], name: str) -> None:
    found, file = reports[name], onnx.load(catalog.path(name))
    assert found.path == str(catalog.path(name))
    assert found.inputs == ("feats: f32 [B, T, 80]",)
    assert found.outputs[0].startswith("embs: f32 [B, ")
    assert found.opset == {"": catalog.EXPORTS[name].opset}
    assert (found.ir_version, found.producer) == (file.ir_version, "pytorch 2.13.0")
    assert found.metadata == {}
    assert found.nodes == len(file.graph.node)
    assert found.histogram == Counter(node.op_type for node in file.graph.node)
    pairs = [(-count, op) for op, count in found.histogram.items()]
    assert pairs == sorted(pairs)  # the most frequent first, equals by name


@pytest.mark.parametrize("name", TINY)
def test_parameters_count_the_elements_of_all_floats(
    reports: dict[str, OnnxReport], name: str
) -> None:
    graph = onnx.load(catalog.path(name)).graph
    made = [n.attribute[0].t for n in graph.node if n.op_type == "Constant"]
    floats = [t for t in (*graph.initializer, *made) if t.data_type == onnx.TensorProto.FLOAT]
    assert reports[name].parameters == sum(math.prod(t.dims) for t in floats)


def test_what_control_flow_holds_counts(save: Save) -> None:
    text = """
        g (float[2] x, int64 n) => (float[2] y) <bool yes = {1}, float[2] v> {
            h = Mul (x, v)
            y = Loop (n, yes, h) <
                body = b (int64 i, bool go, float[2] a) => (bool on, float[2] z)
                <float[2] w = {1, 2}> {
                    on = Identity (go)
                    z = Mul (a, w)
                }
            >
        }
    """
    found = report(save(text))
    assert (found.nodes, found.parameters) == (4, 4)
    assert found.histogram == {"Mul": 2, "Identity": 1, "Loop": 1}


def test_properties_of_the_file_are_shown(save: Save) -> None:
    proto = onnx.load(catalog.path("resnet34_tiny"))
    helper.set_model_props(proto, {"sample_rate": "16000", "framework": "wespeaker"})
    assert list(report(save(proto)).metadata.items()) == [
        ("framework", "wespeaker"),
        ("sample_rate", "16000"),
    ]


def test_a_resnet(reports: dict[str, OnnxReport]) -> None:
    found = reports["resnet34_tiny"]
    assert found.family == "ResNet of BasicBlocks (WeSpeaker)"
    assert found.config["mean_vec"] is True
    assert found.config["blocks"][3] == {"stride": 2, "shortcut": True}
    ((name, (value, origin)),) = found.constants.items()
    assert (name, value) == ("tstp.eps", float(np.float32(1e-7)))
    assert origin.startswith("node ")
    assert found.miss == {}


def test_blocks_are_the_stages_with_their_layers(
    reports: dict[str, OnnxReport], recovered: Callable[[str], Recovered]
) -> None:
    found = {block.name: block for block in reports["resnet34_tiny"].blocks}
    assert list(found) == list(recovered("resnet34_tiny").binding.stages)
    block = found["layer2.0"]
    assert block.shortcut
    assert [(layer.slot, layer.kind, layer.stride) for layer in block.layers] == [
        ("conv1", "conv", (2, 2)),
        ("conv2", "conv", (1, 1)),
        ("shortcut", "conv", (2, 2)),
    ]
    assert [layer.shape for layer in block.layers] == [(8, 4, 3, 3), (8, 8, 3, 3), (8, 4, 1, 1)]
    tensors = recovered("resnet34_tiny").binding.layers["layer2.0.conv1"].tensors
    assert block.layers[0].weight == tensors["weight"].name
    assert not found["layer2.1"].shortcut
    assert found["pooled"] == Block("pooled", (), shortcut=False)


@pytest.mark.parametrize("name", TINY)
def test_order_lists_every_weighted_node_in_pull_order(
    reports: dict[str, OnnxReport], recovered: Callable[[str], Recovered], name: str
) -> None:
    net = recovered(name)
    order = reports[name].order
    assert [entry.slot for entry in order] == list(net.binding.layers)
    for entry in order:
        node = net.graph.model.nodes[entry.node]
        assert (entry.op, entry.output) == (node.op, node.outputs[0])
        assert entry.weight == node.inputs[1]
        assert entry.node == net.binding.layers[entry.slot].node


def test_order_of_a_convolution_with_an_unfolded_norm_lists_both(save: Save) -> None:
    proto = onnx.load(catalog.path("resnet34_tiny"))
    conv = next(node for node in proto.graph.node if node.op_type == "Conv")
    out, channels = conv.output[0], 4
    conv.output[0] = "before_norm"
    parts = ["scale", "offset", "mean", "var"]
    for part in parts:
        values = np.full(channels, 0.5, np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values, part))
    norm = helper.make_node("BatchNormalization", ["before_norm", *parts], [out])
    proto.graph.node.append(norm)
    first, second = report(save(proto)).order[:2]
    assert (first.op, first.output, first.slot) == ("Conv", "before_norm", "stem")
    assert (second.op, second.output, second.slot) == ("BatchNormalization", out, "stem")
    assert second.weight == "scale"


def test_the_others(reports: dict[str, OnnxReport]) -> None:
    found = reports["eres2net_tiny"]
    assert found.family == "ERes2Net (3D-Speaker)"
    assert found.config == {"m_channels": 4, "num_blocks": (3, 4, 6, 3), "scale": 2}
    assert found.constants["relu_clamp"][0] == 20.0
    found = reports["campplus_tiny"]
    assert (found.family, found.config) == ("CAM++ (3D-Speaker)", {})
    assert sorted(found.constants) == ["bn.eps", "cam.segment", "stats.eps"]


class TestUnrecognised:
    TEXT = """
    g (float[B, T, 80] feats, float[1] scale) => (float[B, 4] embs)
    <float[80, 6] w1, float[6, 4] w2, float[6] b1, int64[2] shape = {0, -1}, float eps = {1e-5}>
    {
        # the second layer stands first
        embs = MatMul (a, w2)
        h = Gemm (m, w1, b1)
        a = Relu (h)
        m = ReduceMean <axes = [1], keepdims = 0> (feats)
        s = Add (m, eps)
    }
    """

    @pytest.fixture
    def found(self, save: Save) -> OnnxReport:
        return report(save(self.TEXT.replace("        # the second layer stands first\n", "")))

    def test_has_no_family_and_a_nearest_miss(self, found: OnnxReport) -> None:
        assert (found.family, found.config, found.constants, found.blocks) == (None, {}, {}, ())
        assert list(found.miss) == ["error", "file", "where", "expected", "found", "to do"]
        assert "none of the known families; nearest is" in found.miss["error"]
        assert found.miss["file"] == found.path

    def test_facts_are_shown_all_the_same(self, found: OnnxReport) -> None:
        assert found.inputs == ("feats: f32 [B, T, 80]", "scale: f32 [1]")
        assert found.outputs == ("embs: f32 [B, 4]",)
        assert found.nodes == 5
        assert found.parameters == 80 * 6 + 6 * 4 + 6 + 1

    def test_order_is_canonical_and_fills_no_slots(self, found: OnnxReport) -> None:
        assert [(e.node, e.op, e.output, e.slot, e.weight) for e in found.order] == [
            (1, "Gemm", "h", "", "w1"),
            (0, "MatMul", "embs", "", "w2"),
        ]


@pytest.mark.parametrize("name", TINY)
def test_is_plain_data(reports: dict[str, OnnxReport], name: str) -> None:
    plain = json.loads(json.dumps(reports[name].to_json()))
    assert plain["family"] == reports[name].family
    assert len(plain["order"]) == len(reports[name].order)
    assert plain["blocks"][0]["layers"][0]["slot"]


def test_the_same_file_gives_the_same_report(reports: dict[str, OnnxReport]) -> None:
    again = report(str(catalog.path("eres2net_tiny")))
    assert again == reports["eres2net_tiny"]


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(NotAModelError, match="not an ONNX model"):
        report(path)
