"""Names where the file offers none, or one that is taken: the closed list of exceptions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from converters.convert import convert
from converters.proof import prove
from fixtures import catalog

Make = Callable[..., Any]
P = "voicedetect.resnet"


def unfold_stem(proto: onnx.ModelProto) -> None:
    """Give the stem a batch norm of its own: scale 2, bias 1, mean 0.5, variance 4 - eps."""
    (stem,) = (n for n in proto.graph.node if n.output[0] == "/model/conv1/Conv_output_0")
    values = {"scale": 2.0, "beta": 1.0, "mean": 0.5, "var": 4.0 - 1e-5}
    for name, value in values.items():
        proto.graph.initializer.append(
            numpy_helper.from_array(np.full(4, value, np.float32), f"n.{name}")
        )
    out = stem.output[0]
    stem.output[0] = "stem_raw"
    norm = helper.make_node(
        "BatchNormalization", ["stem_raw", *(f"n.{n}" for n in values)], [out], epsilon=1e-5
    )
    proto.graph.node.insert(list(proto.graph.node).index(stem) + 1, norm)


def rename(proto: onnx.ModelProto, old: str, new: str) -> None:
    for tensor in proto.graph.initializer:
        if tensor.name == old:
            tensor.name = new
    for node in proto.graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == old:
                    names[i] = new


def stem_names(proto: onnx.ModelProto) -> tuple[str, str]:
    (stem,) = (n for n in proto.graph.node if n.output[0] == "stem_raw")
    return stem.input[1], stem.input[2]


def folded(path: Path, weight: str, bias: str) -> tuple[Any, Any]:
    """What the stem's two tensors must hold: (b - 0.5) * 2 / 2 + 1, in float64."""
    values = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    factor = 2.0 / np.sqrt(np.float64(np.float32(4.0 - 1e-5)) + np.float64(np.float32(1e-5)))
    return (
        (values[weight] * factor).astype(np.float32),
        ((values[bias].astype(np.float64) - 0.5) * factor + 1.0).astype(np.float32),
    )


def test_a_folded_bias_is_named_after_its_weight(
    edited: Make, manifest_of: Make, same_network: Make
) -> None:
    def change(proto: onnx.ModelProto) -> None:
        unfold_stem(proto)
        rename(proto, stem_names(proto)[0], "conv1.weight")
        rename(proto, stem_names(proto)[1], "conv1.offset")

    path = edited("resnet34_tiny", change)
    manifest = manifest_of(path)
    assert manifest[f"{P}.stem_weight"] == "conv1.weight"
    assert manifest[f"{P}.stem_bias"] == "conv1.bias"
    weight, bias = folded(path, "conv1.weight", "conv1.offset")
    np.testing.assert_allclose(manifest.by_name["conv1.weight"].read(), weight, rtol=1e-7)
    np.testing.assert_allclose(manifest.by_name["conv1.bias"].read(), bias, rtol=1e-7)
    same_network(path, manifest)
    assert "n.scale" not in manifest.left_out  # it went into the fold


def test_a_weight_without_the_suffix_gets_dot_bias_too(edited: Make, manifest_of: Make) -> None:
    def change(proto: onnx.ModelProto) -> None:
        unfold_stem(proto)
        rename(proto, stem_names(proto)[0], "kernel")

    assert manifest_of(edited("resnet34_tiny", change))[f"{P}.stem_bias"] == "kernel.bias"


def test_the_bias_that_is_folded_away_lends_its_own_name(
    edited: Make, manifest_of: Make, same_network: Make
) -> None:
    def change(proto: onnx.ModelProto) -> None:
        unfold_stem(proto)
        rename(proto, stem_names(proto)[0], "conv1.weight")
        rename(proto, stem_names(proto)[1], "conv1.bias")

    path = edited("resnet34_tiny", change)
    manifest = manifest_of(path)
    assert manifest[f"{P}.stem_bias"] == "conv1.bias"
    same_network(path, manifest)


@pytest.mark.parametrize("taken", ["model.seg_1.bias", "onnx::Conv_371"])
def test_a_name_that_is_taken_gives_way_to_the_pull_index(
    edited: Make, manifest_of: Make, same_network: Make, taken: str
) -> None:
    """Another tensor of the file is called what the folded bias would be."""

    def change(proto: onnx.ModelProto) -> None:
        unfold_stem(proto)
        rename(proto, stem_names(proto)[0], "conv1.weight")
        rename(proto, taken, "conv1.bias")

    path = edited("resnet34_tiny", change)
    manifest = manifest_of(path)
    assert manifest[f"{P}.stem_bias"] == "conv.0.bias"
    same_network(path, manifest)


@pytest.mark.parametrize("taken", ["model.seg_1.bias", "onnx::Conv_371"])
def test_the_pull_index_itself_may_be_taken(
    edited: Make, manifest_of: Make, same_network: Make, taken: str
) -> None:
    """Both names belong to other tensors: any third name will do, none of theirs."""

    def change(proto: onnx.ModelProto) -> None:
        unfold_stem(proto)
        rename(proto, stem_names(proto)[0], "conv1.weight")
        rename(proto, "onnx::Conv_374", "conv1.bias")
        rename(proto, taken, "conv.0.bias")

    path = edited("resnet34_tiny", change)
    manifest = manifest_of(path)
    same_network(path, manifest)
    (wanted,) = (
        numpy_helper.to_array(t)
        for t in onnx.load(path).graph.initializer
        if t.name == "conv.0.bias"
    )
    np.testing.assert_array_equal(manifest.by_name["conv.0.bias"].read(), wanted)


def test_one_weight_in_two_places_is_written_as_each_place_needs_it(
    edited: Make, manifest_of: Make, same_network: Make, written: Make, recovered: Make,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Two convs share a weight; one has a batch norm to be folded in, so that values differ."""

    def change(proto: onnx.ModelProto) -> None:
        convs = [n for n in proto.graph.node if n.op_type == "Conv"]
        first, second = convs[1], convs[2]
        second.input[1] = first.input[1]
        out = second.output[0]
        for name in ("scale", "beta", "mean", "var"):
            values = np.full(4, 2.0 if name in ("scale", "var") else 0.25, np.float32)
            proto.graph.initializer.append(numpy_helper.from_array(values, f"n.{name}"))
        second.output[0] = "second_raw"
        norm = helper.make_node(
            "BatchNormalization",
            ["second_raw", "n.scale", "n.beta", "n.mean", "n.var"],
            [out],
        )
        proto.graph.node.insert(list(proto.graph.node).index(second) + 1, norm)

    path = edited("resnet34_tiny", change)
    manifest = manifest_of(path)
    assert manifest[f"{P}.conv1_weight"][0] != manifest[f"{P}.conv2_weight"][0]
    assert manifest[f"{P}.conv2_weight"][0] == "conv.2.weight"
    same_network(path, manifest)
    assert prove(written(manifest, tmp_path / "x.gguf"), recovered(path))


@pytest.mark.parametrize("own", ["mean", "var"])
def test_norms_that_share_some_tensors_are_different_norms(
    edited: Make, manifest_of: Make, same_network: Make, own: str
) -> None:
    """Two convs share weight, bias, scale and offset, and only one statistic is another."""

    def change(proto: onnx.ModelProto) -> None:
        convs = [n for n in proto.graph.node if n.op_type == "Conv"]
        first, second = convs[1], convs[2]
        second.input[1:] = first.input[1:]
        for name in ("scale", "beta", "mean", "var", "other"):
            values = np.full(4, 0.5 if name == "other" else 2.0, np.float32)
            proto.graph.initializer.append(numpy_helper.from_array(values, f"n.{name}"))
        for conv, other in ((first, None), (second, own)):
            out = conv.output[0]
            conv.output[0] = f"{out}/raw"
            parts = ["other" if p == other else p for p in ("scale", "beta", "mean", "var")]
            norm = helper.make_node(
                "BatchNormalization", [conv.output[0], *(f"n.{p}" for p in parts)], [out]
            )
            proto.graph.node.insert(list(proto.graph.node).index(conv) + 1, norm)

    path = edited("resnet34_tiny", change)
    manifest = manifest_of(path)
    assert manifest[f"{P}.conv1_bias"][0] != manifest[f"{P}.conv2_bias"][0]
    same_network(path, manifest)


def test_tensors_that_nothing_reads_are_left_out_and_listed(
    edited: Make, tmp_path: Path, raw: Make
) -> None:
    def change(proto: onnx.ModelProto) -> None:
        for name, values in (
            ("dead.weight", np.ones((3, 3), np.float32)),
            ("a.shape", np.array([1, 2], np.int64)),
            ("a.scalar", np.array(0.5, np.float32)),
        ):
            proto.graph.initializer.append(numpy_helper.from_array(values, name))

    done = convert(edited("resnet34_tiny", change), tmp_path / "x.gguf")
    assert done.manifest.left_out == ("dead.weight",)
    assert not {"dead.weight", "a.shape", "a.scalar"} & set(raw(tmp_path / "x.gguf").tensors)


def test_f64_weights_are_stored_as_f32(
    edited: Make, manifest_of: Make, written: Make, raw: Make, tmp_path: Path
) -> None:
    def change(proto: onnx.ModelProto) -> None:
        (bias,) = (t for t in proto.graph.initializer if t.name == "model.seg_1.bias")
        values = numpy_helper.to_array(bias).astype(np.float16)
        bias.CopyFrom(numpy_helper.from_array(values, "half"))
        cast = helper.make_node("Cast", ["half"], ["model.seg_1.bias"], to=onnx.TensorProto.FLOAT)
        proto.graph.node.insert(0, cast)

    path = edited("resnet34_tiny", change)
    found = raw(written(manifest_of(path), tmp_path / "x.gguf"))
    assert set(found.kinds.values()) == {"F32"}
    bias = manifest_of(path)[f"{P}.seg_bias"]
    plain = onnx.load(catalog.path("resnet34_tiny")).graph.initializer
    (wanted,) = (numpy_helper.to_array(t) for t in plain if t.name == "model.seg_1.bias")
    np.testing.assert_array_equal(found.tensors[bias], wanted.astype(np.float16).astype(np.float32))
