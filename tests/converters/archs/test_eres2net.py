"""``eres2net``: every key of its table, and what may vary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from converters.archs import arch_named
from converters.convert import convert
from converters.manifest import Entry, Manifest
from converters.proof import prove
from fixtures import catalog
from graphtools.errors import MissError, UnsupportedError

Make = Callable[..., Any]

TINY = catalog.path("eres2net_tiny")
P = "voicedetect.eres2net"


def test_every_key_has_its_type_and_value(
    manifest_of: Make, oracle: Make, typed: Make, common: Any
) -> None:
    convs = oracle(TINY).convs
    assert len(convs) == 96
    assert typed(manifest_of(TINY)) == {
        "voicedetect.arch": ("string", "eres2net"),
        **common,
        f"{P}.conv_weight": ("[string]", tuple(c.weight for c in convs)),
        f"{P}.conv_bias": ("[string]", tuple(c.bias for c in convs)),
        f"{P}.conv_stride": ("[i32]", tuple(c.stride for c in convs)),
        f"{P}.num_blocks": ("[i32]", (3, 4, 6, 3)),
        f"{P}.m_channels": ("u32", 4),
        f"{P}.scale": ("u32", 2),
        f"{P}.seg_weight": ("string", "seg_1.weight"),
        f"{P}.seg_bias": ("string", "seg_1.bias"),
        f"{P}.relu_clamp": ("f32", 20.0),
        f"{P}.var_eps": ("f32", float(np.float32(1e-8))),
    }


def test_the_three_convs_without_a_bias_are_the_cross_stage_ones(manifest_of: Make) -> None:
    manifest = manifest_of(TINY)
    without = [
        weight
        for weight, bias in zip(
            manifest[f"{P}.conv_weight"], manifest[f"{P}.conv_bias"], strict=True
        )
        if bias == ""
    ]
    assert without == [f"layer{i}_downsample.weight" for i in (1, 2, 3)]


def test_strides_are_two_where_the_network_says(manifest_of: Make) -> None:
    """The stem, 11 convs of layer 1 and 1 + 15 of layer 2 precede its downsample; and so on."""
    strides = manifest_of(TINY)[f"{P}.conv_stride"]
    layer1 = 1 + 3 * 4 + 1
    layer2 = layer1 + 4 * 4 + 1
    layer3 = layer2 + 3 + 6 * 6 + 1
    layer4 = layer3 + 3 + 3 * 6 + 1
    two = {layer1, layer1 + 4, layer2, layer2 + 3, layer2 + 9, layer3, layer3 + 3, layer3 + 9}
    assert {i for i, s in enumerate(strides) if s != 1} == {*two, layer4}
    assert {strides[i] for i in (*two, layer4)} == {2}


def test_tensors_are_verbatim_in_the_order_of_first_use(manifest_of: Make, oracle: Make) -> None:
    manifest, source = manifest_of(TINY), oracle(TINY)
    assert [t.name for t in manifest.tensors] == [n for names in source.sequence for n in names]
    for tensor in manifest.tensors:
        np.testing.assert_array_equal(tensor.read(), source.values[tensor.name])
    assert manifest.left_out == ()


def test_the_manifest_alone_gives_the_network_back(manifest_of: Make, same_network: Make) -> None:
    same_network(TINY, manifest_of(TINY))


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [(1, 1, 1, 1), (2, 1, 2, 3)])
def test_any_number_of_blocks(
    blocks: tuple[int, ...], manifest_of: Make, same_network: Make, written: Make,
    recovered: Make, tmp_path: Path,
) -> None:  # fmt: skip
    from fixtures import upstream
    from fixtures.export import export_legacy

    module = upstream.eres2net(blocks, m_channels=4, embedding_size=8)
    path = export_legacy(module, tmp_path / "any.onnx", opset=11)
    manifest = manifest_of(path)
    assert manifest[f"{P}.num_blocks"] == blocks
    same_network(path, manifest)
    assert prove(written(manifest, tmp_path / "x.gguf"), recovered(path))


@pytest.mark.slow
def test_wespeakers_own_class_has_the_larger_pooling_eps(
    manifest_of: Make, tmp_path: Path, same_network: Make
) -> None:
    """Its export has 1e-7 there, not 3D-Speaker's 1e-8."""
    from fixtures import upstream
    from fixtures.export import export_legacy

    module = upstream.wespeaker_eres2net(m_channels=4, embed_dim=8)
    path = export_legacy(module, tmp_path / "w.onnx", opset=14)
    manifest = manifest_of(path)
    assert manifest[f"{P}.var_eps"] == float(np.float32(1e-7))
    same_network(path, manifest)


@pytest.mark.slow
def test_a_mean_vector_has_no_key_and_is_refused(tmp_path: Path) -> None:
    from fixtures import upstream
    from fixtures.export import export_legacy

    module = upstream.wespeaker_eres2net(m_channels=4, embed_dim=8, mean_vec="random")
    path = export_legacy(module, tmp_path / "w.onnx", opset=14)
    with pytest.raises(UnsupportedError):
        convert(path, tmp_path / "x.gguf")
    assert not (tmp_path / "x.gguf").exists()


class TestScalars:
    @pytest.mark.parametrize("bound", [6.0, 19.5])
    def test_the_clamp_is_read_from_the_graph(
        self, edited: Make, manifest_of: Make, bound: float
    ) -> None:
        def change(proto: onnx.ModelProto) -> None:
            for constant in clip_bounds(proto):
                constant.CopyFrom(numpy_helper.from_array(np.array(bound, np.float32)))

        manifest = manifest_of(edited("eres2net_tiny", change))
        assert manifest[f"{P}.relu_clamp"] == bound

    def test_clamps_that_disagree_are_refused(self, edited: Make, tmp_path: Path) -> None:
        def change(proto: onnx.ModelProto) -> None:
            clip_bounds(proto)[5].CopyFrom(numpy_helper.from_array(np.array(6.0, np.float32)))

        with pytest.raises(MissError) as caught:
            convert(edited("eres2net_tiny", change), tmp_path / "x.gguf")
        assert "relu_clamp" in str(caught.value)
        assert not (tmp_path / "x.gguf").exists()

    @pytest.mark.parametrize("eps", [1e-5, 1.1920929e-7])
    def test_the_pooling_eps_is_read_from_the_graph(
        self, edited: Make, manifest_of: Make, recovered: Make, written: Make, eps: float,
        tmp_path: Path,
    ) -> None:  # fmt: skip
        def change(proto: onnx.ModelProto) -> None:
            pooling_eps(proto).CopyFrom(numpy_helper.from_array(np.array(eps, np.float32)))

        path = edited("eres2net_tiny", change)
        manifest = manifest_of(path)
        assert manifest[f"{P}.var_eps"] == float(np.float32(eps))
        proof = prove(written(manifest, tmp_path / "x.gguf"), recovered(path))
        assert proof
        assert "measured" in proof.values[f"{P}.var_eps"]

    def test_an_exporter_that_dropped_the_eps_gives_zero(
        self, edited: Make, manifest_of: Make, recovered: Make, written: Make, tmp_path: Path
    ) -> None:
        path = edited("eres2net_tiny", drop_pooling_eps)
        manifest = manifest_of(path)
        assert manifest[f"{P}.var_eps"] == 0.0
        assert prove(written(manifest, tmp_path / "x.gguf"), recovered(path))


def clip_bounds(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    """The upper bounds of the Clip nodes, in file order."""
    constants = {n.output[0]: n.attribute[0].t for n in proto.graph.node if n.op_type == "Constant"}
    return [constants[n.input[2]] for n in proto.graph.node if n.op_type == "Clip"]


def pooling_eps(proto: onnx.ModelProto) -> onnx.TensorProto:
    """The constant that is added to the variance."""
    (add,) = (n for n in proto.graph.node if n.output[0] == "/pool/Add_output_0")
    (constant,) = (n for n in proto.graph.node if n.output[0] == add.input[1])
    found: onnx.TensorProto = constant.attribute[0].t
    return found


def drop_pooling_eps(proto: onnx.ModelProto) -> None:
    (add,) = (n for n in proto.graph.node if n.output[0] == "/pool/Add_output_0")
    (root,) = (n for n in proto.graph.node if n.op_type == "Sqrt")
    root.input[0] = add.input[0]
    proto.graph.node.remove(add)


class TestUnfolded:
    def test_the_folded_manifest_comes_out(
        self, unfolded: Make, manifest_of: Make, same_network: Make
    ) -> None:
        plain, path = manifest_of(TINY), unfolded("eres2net_tiny")
        manifest = manifest_of(path)
        same_network(path, manifest)
        for key in ("conv_stride", "num_blocks", "m_channels", "scale", "relu_clamp"):
            assert manifest[f"{P}.{key}"] == plain[f"{P}.{key}"]
        biases = manifest[f"{P}.conv_bias"], plain[f"{P}.conv_bias"]
        assert [b == "" for b in biases[0]] == [b == "" for b in biases[1]]
        for ours, theirs in zip(manifest.tensors, plain.tensors, strict=True):
            # torch folds in float32, we in float64: three roundings of a float32.
            np.testing.assert_allclose(ours.read(), theirs.read(), rtol=1e-6, atol=1e-6)

    def test_names_are_those_of_the_modules(self, unfolded: Make, manifest_of: Make) -> None:
        manifest = manifest_of(unfolded("eres2net_tiny"))
        weights, biases = manifest[f"{P}.conv_weight"], manifest[f"{P}.conv_bias"]
        assert weights[:4] == (
            "conv1.weight",
            "layer1.0.conv1.weight",
            "layer1.0.convs.0.weight",
            "layer1.0.convs.1.weight",
        )
        assert biases[:3] == ("conv1.bias", "layer1.0.conv1.bias", "layer1.0.convs.0.bias")


class TestRestore:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            (f"{P}.num_blocks", (3, 4, 6)),
            (f"{P}.num_blocks", (3, 4, 6, 0)),
            (f"{P}.num_blocks", (3, 4, 6, -3)),
            (f"{P}.num_blocks", (3, 4, 6, 2**31 - 1)),
            (f"{P}.num_blocks", (3, 4, 6, 4)),
            (f"{P}.scale", 0),
            (f"{P}.scale", 1),
            (f"{P}.scale", 2**32 - 1),
            (f"{P}.conv_stride", (1,) * 95),
            (f"{P}.conv_stride", (0,) * 96),
            (f"{P}.conv_weight", ("w",)),
            (f"{P}.conv_bias", ("",) * 97),
            (f"{P}.seg_weight", None),
            (f"{P}.relu_clamp", None),
        ],
    )
    def test_what_cannot_be_a_network_is_refused(
        self, manifest_of: Make, key: str, value: Any
    ) -> None:
        manifest = manifest_of(TINY)
        entries = [
            Entry(e.key, e.type, value if e.key == key else e.value, e.origin)
            for e in manifest.entries
            if e.key != key or value is not None
        ]
        broken = Manifest("voicedetect", "m", tuple(entries), manifest.tensors)
        with pytest.raises(UnsupportedError):
            arch_named("eres2net").restore(broken)
