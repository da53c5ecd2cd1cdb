"""``campplus``: every key of its table, names for kept batch norms, and the pooling's epsilon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper, numpy_helper

from converters.archs import arch_named
from converters.convert import convert
from converters.manifest import Entry, Manifest
from fixtures import catalog
from graphtools.errors import UnsupportedError

Make = Callable[..., Any]
Array = npt.NDArray[Any]

TINY = catalog.path("campplus_tiny")
P = "voicedetect.campplus"
PARTS = ("weight", "bias", "running_mean", "running_var")
LAST = "xvector.dense.nonlinear.batchnorm"


def test_every_key_has_its_type_and_value(
    manifest_of: Make, oracle: Make, typed: Make, common: Any
) -> None:
    source = oracle(TINY)
    assert (len(source.convs), len(source.norms)) == (225, 56)
    prefixes = []
    for norm in source.norms[:-1]:
        (prefix,) = {name.rsplit(".", 1)[0] for name in norm}
        assert [name.rsplit(".", 1)[1] for name in norm] == list(PARTS)
        prefixes.append(prefix)
    assert typed(manifest_of(TINY)) == {
        "voicedetect.arch": ("string", "campplus"),
        **common,
        f"{P}.conv_weight": ("[string]", tuple(c.weight for c in source.convs)),
        f"{P}.conv_bias": ("[string]", tuple(c.bias for c in source.convs)),
        f"{P}.bn_prefix": ("[string]", tuple(prefixes)),
        f"{P}.emb_bn_mean": ("string", f"{LAST}.running_mean"),
        f"{P}.emb_bn_var": ("string", f"{LAST}.running_var"),
        f"{P}.bn_eps": ("f32", float(np.float32(1e-5))),
    }


def test_tensors_are_verbatim_in_the_order_of_first_use(manifest_of: Make, oracle: Make) -> None:
    """The last batch norm's scale and bias, ones and zeros, are the only weights left out."""
    manifest, source = manifest_of(TINY), oracle(TINY)
    plain = source.norms[-1][:2]
    wanted = [n for names in source.sequence for n in names if n not in plain]
    assert [t.name for t in manifest.tensors] == wanted
    for tensor in manifest.tensors:
        np.testing.assert_array_equal(tensor.read(), source.values[tensor.name])
    assert set(manifest.left_out) == set(plain)


def test_the_manifest_alone_gives_the_network_back(manifest_of: Make, same_network: Make) -> None:
    same_network(TINY, manifest_of(TINY))


def test_a_pooling_without_an_eps_needs_no_note(manifest_of: Make) -> None:
    assert manifest_of(TINY).notes == ()


def initializer(proto: onnx.ModelProto, name: str) -> onnx.TensorProto:
    (found,) = (t for t in proto.graph.initializer if t.name == name)
    return found


def rename(proto: onnx.ModelProto, old: str, new: str) -> None:
    """Another name for a tensor, everywhere."""
    assert not any(t.name == new for t in proto.graph.initializer)
    for tensor in proto.graph.initializer:
        if tensor.name == old:
            tensor.name = new
    for node in proto.graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == old:
                    names[i] = new


def prefix_of(proto: onnx.ModelProto, index: int) -> str:
    norms = [n for n in proto.graph.node if n.op_type == "BatchNormalization"]
    return str(norms[index].input[1].removesuffix(".weight"))


class TestNormNames:
    @pytest.mark.parametrize("part", PARTS)
    @pytest.mark.parametrize("index", [0, 7, 54])
    def test_without_a_shared_prefix_the_four_go_under_bn_and_the_pull_index(
        self, edited: Make, manifest_of: Make, same_network: Make, part: str, index: int
    ) -> None:
        def change(proto: onnx.ModelProto) -> None:
            rename(proto, f"{prefix_of(proto, index)}.{part}", "stray")

        path = edited("campplus_tiny", change)
        manifest, plain = manifest_of(path), manifest_of(TINY)
        prefixes = list(plain[f"{P}.bn_prefix"])
        prefixes[index] = f"bn.{index}"
        assert manifest[f"{P}.bn_prefix"] == tuple(prefixes)
        assert {f"bn.{index}.{p}" for p in PARTS} <= set(manifest.by_name)
        assert "stray" not in manifest.by_name
        assert [t.shape for t in manifest.tensors] == [t.shape for t in plain.tensors]
        same_network(path, manifest)

    def test_a_prefix_that_another_norm_of_the_file_owns_is_not_taken(
        self, edited: Make, manifest_of: Make, same_network: Make
    ) -> None:
        """The file calls its first norm bn.7; the seventh has no name of its own."""

        def change(proto: onnx.ModelProto) -> None:
            rename(proto, f"{prefix_of(proto, 7)}.running_var", "stray")
            first = prefix_of(proto, 0)
            for part in PARTS:
                rename(proto, f"{first}.{part}", f"bn.7.{part}")

        path = edited("campplus_tiny", change)
        same_network(path, manifest_of(path))

    def test_a_prefix_that_a_later_norm_of_the_file_owns_is_not_taken(
        self, edited: Make, manifest_of: Make, same_network: Make
    ) -> None:
        def change(proto: onnx.ModelProto) -> None:
            rename(proto, f"{prefix_of(proto, 7)}.running_var", "stray")
            later = prefix_of(proto, 20)
            for part in PARTS:
                rename(proto, f"{later}.{part}", f"bn.7.{part}")

        path = edited("campplus_tiny", change)
        same_network(path, manifest_of(path))

    def test_names_of_64_bytes_make_way_for_short_ones(
        self, edited: Make, manifest_of: Make, same_network: Make, written: Make, tmp_path: Path
    ) -> None:
        """Or the file is refused with a word about names; it never becomes another network."""
        long = "x" * 70

        def change(proto: onnx.ModelProto) -> None:
            first = prefix_of(proto, 0)
            for part in PARTS:
                rename(proto, f"{first}.{part}", f"{long}.{part}")

        path = edited("campplus_tiny", change)
        told: list[str] = []
        try:
            manifest = manifest_of(path)
            written(manifest, tmp_path / "x.gguf")
        except UnsupportedError as error:
            told.append(str(error))
        else:
            same_network(path, manifest)
        assert all("63 bytes" in text for text in told)


class TestMerged:
    """Exporters write byte-equal tensors once and reach the others through Identity."""

    def test_a_merged_bias_is_written_under_each_identitys_name(
        self, edited: Make, manifest_of: Make, same_network: Make
    ) -> None:
        names: list[str] = []

        def change(proto: onnx.ModelProto) -> None:
            biased = [n for n in proto.graph.node if n.op_type == "Conv" and len(n.input) == 3]
            alike = [n for n in biased if "cam_layer/linear1" in n.output[0]][:3]
            names[:] = [n.input[2] for n in alike]
            first = names[0]
            for other in names[1:]:
                proto.graph.initializer.remove(initializer(proto, other))
                proto.graph.node.insert(0, helper.make_node("Identity", [first], [other]))

        path = edited("campplus_tiny", change)
        manifest = manifest_of(path)
        assert [t.name for t in manifest.tensors] == [t.name for t in manifest_of(TINY).tensors]
        assert set(names) <= set(manifest[f"{P}.conv_bias"])
        values = [manifest.by_name[n].read() for n in names]
        np.testing.assert_array_equal(values[0], values[1])
        np.testing.assert_array_equal(values[0], values[2])
        same_network(path, manifest)

    def test_a_tensor_that_two_places_share_directly_is_written_once(
        self, edited: Make, manifest_of: Make, same_network: Make
    ) -> None:
        def change(proto: onnx.ModelProto) -> None:
            biased = [n for n in proto.graph.node if n.op_type == "Conv" and len(n.input) == 3]
            first, second = [n for n in biased if "cam_layer/linear1" in n.output[0]][:2]
            proto.graph.initializer.remove(initializer(proto, second.input[2]))
            second.input[2] = first.input[2]

        path = edited("campplus_tiny", change)
        manifest = manifest_of(path)
        assert len(manifest.tensors) == len(manifest_of(TINY).tensors) - 1
        same_network(path, manifest)

    @pytest.mark.slow
    def test_a_fresh_network_with_332_identities(
        self, manifest_of: Make, same_network: Make
    ) -> None:
        path = catalog.path("campplus_merged")
        proto = onnx.load(path)
        identities = {n.output[0] for n in proto.graph.node if n.op_type == "Identity"}
        assert len(identities) == 332
        manifest = manifest_of(path)
        same_network(path, manifest)
        listed = {
            *manifest[f"{P}.conv_weight"],
            *manifest[f"{P}.conv_bias"],
            *(f"{p}.{part}" for p in manifest[f"{P}.bn_prefix"] for part in PARTS),
        } - {""}
        assert len(manifest.tensors) == len(listed) + 2
        used = identities & {t.name for t in manifest.tensors}
        assert len(used) > 300
        assert all(p.startswith("xvector.") for p in manifest[f"{P}.bn_prefix"])


class TestLastNorm:
    """The engine applies no scale or bias there: exactly 1 and 0, or refused."""

    @pytest.mark.parametrize(("index", "value"), [(0, 1.5), (0, 1.0000001), (1, 0.1), (1, 1e-30)])
    def test_an_affine_part_is_refused(
        self, edited: Make, tmp_path: Path, index: int, value: float
    ) -> None:
        def change(proto: onnx.ModelProto) -> None:
            name = proto.graph.node[-1].input[1 + index]
            (constant,) = (n for n in proto.graph.node if n.output[0] == name)
            values = numpy_helper.to_array(constant.attribute[0].t).copy()
            values[3] = value
            constant.attribute[0].t.CopyFrom(numpy_helper.from_array(values))

        with pytest.raises(UnsupportedError, match="last batch norm has an affine part") as caught:
            convert(edited("campplus_tiny", change), tmp_path / "x.gguf")
        assert caught.value.expected
        assert not (tmp_path / "x.gguf").exists()

    def test_norms_with_another_epsilon_are_refused(self, edited: Make, tmp_path: Path) -> None:
        """One key stands for all of them."""

        def change(proto: onnx.ModelProto) -> None:
            norm = [n for n in proto.graph.node if n.op_type == "BatchNormalization"][30]
            (eps,) = (a for a in norm.attribute if a.name == "epsilon")
            eps.f = 1e-3

        with pytest.raises(UnsupportedError, match=r"CAM\+\+") as caught:
            convert(edited("campplus_tiny", change), tmp_path / "x.gguf")
        assert "bn.eps" in str(caught.value)

    def test_the_epsilon_is_the_files(self, edited: Make, manifest_of: Make) -> None:
        def change(proto: onnx.ModelProto) -> None:
            for node in proto.graph.node:
                if node.op_type == "BatchNormalization":
                    (eps,) = (a for a in node.attribute if a.name == "epsilon")
                    eps.f = 1e-3

        manifest = manifest_of(edited("campplus_tiny", change))
        assert manifest[f"{P}.bn_eps"] == float(np.float32(1e-3))


def add_pooling_eps(value: float) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        (root,) = (n for n in proto.graph.node if n.op_type == "Sqrt")
        constant = numpy_helper.from_array(np.array(value, np.float32), "pooling_eps")
        proto.graph.initializer.append(constant)
        added = helper.make_node("Add", [root.input[0], "pooling_eps"], ["var_plus_eps"])
        proto.graph.node.insert(list(proto.graph.node).index(root), added)
        root.input[0] = "var_plus_eps"

    return change


def silence_a_channel(proto: onnx.ModelProto) -> None:
    """One channel that the last ReLU before the pooling always cuts, as trained networks have."""
    (out,) = (n for n in proto.graph.node if n.output[0].endswith("/transit3/linear/Conv_output_0"))
    bias = initializer(proto, out.input[2])
    values = numpy_helper.to_array(bias).copy()
    values[5] = -1e4
    bias.CopyFrom(numpy_helper.from_array(values, bias.name))


class TestPoolingEps:
    """The manifest has no key for it, and the engine adds nothing."""

    @pytest.mark.parametrize("eps", [1e-12, 1e-8, 1e-7, 1e-6])
    def test_a_small_one_is_accepted_with_a_note(
        self, edited: Make, tmp_path: Path, eps: float
    ) -> None:
        done = convert(edited("campplus_tiny", add_pooling_eps(eps)), tmp_path / "x.gguf")
        assert done.proof
        assert any("pooling adds" in note and f"{eps:g}" in note for note in done.notes)

    @pytest.mark.parametrize("eps", [1e-3, 1e-5, 1.1e-6])
    def test_a_larger_one_is_refused(self, edited: Make, tmp_path: Path, eps: float) -> None:
        with pytest.raises(UnsupportedError, match="adds more to the variance") as caught:
            convert(edited("campplus_tiny", add_pooling_eps(eps)), tmp_path / "x.gguf")
        assert caught.value.found == f"{eps:g}"
        assert not (tmp_path / "x.gguf").exists()

    def test_a_silent_channel_does_not_make_a_small_one_unprovable(
        self, edited: Make, tmp_path: Path
    ) -> None:
        """Its std is exactly sqrt(eps) in the source and 0 in the engine."""

        def change(proto: onnx.ModelProto) -> None:
            add_pooling_eps(1e-7)(proto)
            silence_a_channel(proto)

        done = convert(edited("campplus_tiny", change), tmp_path / "x.gguf")
        assert done.proof
        assert any("pooling adds" in note for note in done.notes)

    def test_a_silent_channel_alone_is_proven(self, edited: Make, tmp_path: Path) -> None:
        assert convert(edited("campplus_tiny", silence_a_channel), tmp_path / "x.gguf").proof

    @pytest.mark.slow
    def test_wespeakers_own_class(self, tmp_path: Path) -> None:
        from fixtures import upstream
        from fixtures.export import export_legacy

        module = upstream.wespeaker_campplus(
            embed_dim=8, growth_rate=3, init_channels=12, fcm_channels=4
        )
        path = export_legacy(module, tmp_path / "w.onnx", opset=14)
        done = convert(path, tmp_path / "x.gguf")
        assert done.proof
        assert any("pooling adds 1e-07" in note for note in done.notes)


class TestUnfolded:
    def test_the_folded_manifest_comes_out(
        self, unfolded: Make, manifest_of: Make, same_network: Make
    ) -> None:
        plain, path = manifest_of(TINY), unfolded("campplus_tiny")
        manifest = manifest_of(path)
        same_network(path, manifest)
        assert manifest[f"{P}.bn_prefix"] == plain[f"{P}.bn_prefix"]
        biases = manifest[f"{P}.conv_bias"], plain[f"{P}.conv_bias"]
        assert [b == "" for b in biases[0]] == [b == "" for b in biases[1]]
        assert len(manifest.tensors) == len(plain.tensors)
        for ours, theirs in zip(manifest.tensors, plain.tensors, strict=True):
            # torch folds in float32, we in float64: three roundings of a float32.
            np.testing.assert_allclose(ours.read(), theirs.read(), rtol=2e-6, atol=2e-6)

    def test_names_are_those_of_the_modules(self, unfolded: Make, manifest_of: Make) -> None:
        manifest = manifest_of(unfolded("campplus_tiny"))
        weights, biases = manifest[f"{P}.conv_weight"], manifest[f"{P}.conv_bias"]
        assert weights[0] == "head.conv1.weight"
        assert biases[0] == "head.conv1.bias"
        block = weights.index("xvector.block1.tdnnd1.linear1.weight")
        assert biases[block] == "xvector.block1.tdnnd1.linear1.bias"
        assert biases[block + 1] == ""  # linear_local


class TestRestore:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            (f"{P}.conv_weight", ("w",) * 224),
            (f"{P}.conv_bias", ("",) * 226),
            (f"{P}.bn_prefix", ("bn",) * 56),
            (f"{P}.emb_bn_mean", None),
            (f"{P}.emb_bn_var", None),
            (f"{P}.bn_eps", None),
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
            arch_named("campplus").restore(broken)
