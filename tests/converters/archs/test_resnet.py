"""``wespeaker_resnet34``: every key of its table, and what may vary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from converters.archs import arch_named
from converters.manifest import Entry, Manifest
from converters.proof import prove
from fixtures import catalog
from graphtools.errors import UnsupportedError

Make = Callable[..., Any]

TINY = catalog.path("resnet34_tiny")
P = "voicedetect.resnet"
DEPTHS = (3, 4, 6, 3)
STRIDES = (1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1)


def expected_lists(convs: list[Any]) -> dict[str, tuple[str, Any]]:
    """The block table, written out from the order of nodes: conv1, conv2, then any 1x1."""
    table: dict[str, list[str]] = {
        f"{k}_{part}": [] for k in ("conv1", "conv2", "down") for part in ("weight", "bias")
    }
    queue = list(convs)
    stem = queue.pop(0)
    for layer, depth in enumerate(DEPTHS):
        for block in range(depth):
            for key in ("conv1", "conv2", "down"):
                if key == "down" and (layer == 0 or block > 0):
                    weight = bias = ""
                else:
                    conv = queue.pop(0)
                    assert conv.kernel == ((1, 1) if key == "down" else (3, 3))
                    weight, bias = conv.weight, conv.bias
                table[f"{key}_weight"].append(weight)
                table[f"{key}_bias"].append(bias)
    assert queue == []
    lists = {f"{P}.{key}": ("[string]", tuple(found)) for key, found in table.items()}
    return {
        f"{P}.stem_weight": ("string", stem.weight),
        f"{P}.stem_bias": ("string", stem.bias),
        **lists,
    }


def test_every_key_has_its_type_and_value(
    manifest_of: Make, oracle: Make, typed: Make, common: Any
) -> None:
    assert typed(manifest_of(TINY)) == {
        "voicedetect.arch": ("string", "wespeaker_resnet34"),
        **common,
        **expected_lists(oracle(TINY).convs),
        f"{P}.stride": ("[i32]", STRIDES),
        f"{P}.seg_weight": ("string", "model.seg_1.weight"),
        f"{P}.seg_bias": ("string", "model.seg_1.bias"),
        f"{P}.mean_vec": ("string", "mean_vec"),
        f"{P}.var_eps": ("f32", float(np.float32(1e-7))),
    }


def test_tensors_are_verbatim_in_the_order_of_first_use(manifest_of: Make, oracle: Make) -> None:
    manifest, source = manifest_of(TINY), oracle(TINY)
    wanted = [*(name for names in source.sequence for name in names), "mean_vec"]
    assert [t.name for t in manifest.tensors] == wanted
    for tensor in manifest.tensors:
        np.testing.assert_array_equal(tensor.read(), source.values[tensor.name])
        assert tensor.shape == source.values[tensor.name].shape
    assert manifest.by_name["model.seg_1.weight"].shape == (32, 640)
    assert manifest.left_out == ()


def test_every_value_says_where_it_is_from(manifest_of: Make) -> None:
    origins = {e.key: e.origin for e in manifest_of(TINY).entries}
    assert all(origins.values())
    assert all("assumed" in o for k, o in origins.items() if ".fbank." in k)
    assert "Add" in origins[f"{P}.var_eps"]


def test_the_manifest_alone_gives_the_network_back(manifest_of: Make, same_network: Make) -> None:
    same_network(TINY, manifest_of(TINY))


class TestMeanVector:
    def test_zeros_are_kept(self, edited: Make, manifest_of: Make) -> None:
        def zero(proto: onnx.ModelProto) -> None:
            (mean,) = (t for t in proto.graph.initializer if t.name == "mean_vec")
            mean.CopyFrom(numpy_helper.from_array(np.zeros(32, np.float32), "mean_vec"))

        manifest = manifest_of(edited("resnet34_tiny", zero))
        assert manifest[f"{P}.mean_vec"] == "mean_vec"
        assert not manifest.by_name["mean_vec"].read().any()

    def test_without_one_the_key_is_an_empty_string(
        self, edited: Make, manifest_of: Make, same_network: Make, written: Make, raw: Make,
        tmp_path: Path, recovered: Make,
    ) -> None:  # fmt: skip
        path = edited("resnet34_tiny", without_mean)
        manifest = manifest_of(path)
        assert manifest[f"{P}.mean_vec"] == ""
        assert len(manifest.tensors) == 74
        same_network(path, manifest)
        file = written(manifest, tmp_path / "x.gguf")
        assert raw(file).types[f"{P}.mean_vec"] == ["STRING"]
        assert raw(file).values[f"{P}.mean_vec"] == ""
        assert prove(file, recovered(path))


def without_mean(proto: onnx.ModelProto) -> None:
    last = proto.graph.node.pop()
    assert last.op_type == "Sub"
    proto.graph.node[-1].output[0] = "embs"


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [(2, 2, 2, 2), (1, 1, 1, 1), (1, 3, 1, 2)])
def test_any_depth_of_basic_blocks(
    blocks: tuple[int, ...], manifest_of: Make, same_network: Make, written: Make,
    recovered: Make, tmp_path: Path,
) -> None:  # fmt: skip
    from fixtures import upstream
    from fixtures.export import export_legacy

    module = upstream.resnet(blocks, m_channels=4, embed_dim=8)
    path = export_legacy(module, tmp_path / "any.onnx", opset=14)
    manifest = manifest_of(path)
    strides = [2 if layer and not i else 1 for layer, n in enumerate(blocks) for i in range(n)]
    assert manifest["voicedetect.arch"] == "wespeaker_resnet34"
    assert manifest["voicedetect.embedding_dim"] == 8
    assert manifest[f"{P}.stride"] == tuple(strides)
    assert manifest[f"{P}.mean_vec"] == ""
    same_network(path, manifest)
    assert prove(written(manifest, tmp_path / "x.gguf"), recovered(path))


class TestUnfolded:
    def test_the_folded_manifest_comes_out(
        self, unfolded: Make, manifest_of: Make, same_network: Make
    ) -> None:
        """Same keys, same places, same values to float32 noise; only names may differ."""
        plain, path = manifest_of(TINY), unfolded("resnet34_tiny")
        manifest = manifest_of(path)
        same_network(path, manifest)
        assert [e.key for e in manifest.entries] == [e.key for e in plain.entries]
        assert manifest[f"{P}.stride"] == plain[f"{P}.stride"]
        assert [t.shape for t in manifest.tensors] == [t.shape for t in plain.tensors]
        for ours, theirs in zip(manifest.tensors, plain.tensors, strict=True):
            # torch folds in float32, we in float64: three roundings of a float32.
            np.testing.assert_allclose(ours.read(), theirs.read(), rtol=1e-6, atol=1e-6)

    def test_a_folded_bias_is_named_after_its_weight(
        self, unfolded: Make, manifest_of: Make
    ) -> None:
        manifest = manifest_of(unfolded("resnet34_tiny"))
        assert manifest[f"{P}.stem_weight"] == "model.conv1.weight"
        assert manifest[f"{P}.stem_bias"] == "model.conv1.bias"
        for key in ("conv1", "conv2", "down"):
            weights, biases = manifest[f"{P}.{key}_weight"], manifest[f"{P}.{key}_bias"]
            for weight, bias in zip(weights, biases, strict=True):
                assert bias == (f"{weight.removesuffix('.weight')}.bias" if weight else "")
        assert manifest[f"{P}.conv1_weight"][3] == "model.layer2.0.conv1.weight"
        assert manifest[f"{P}.down_bias"][3] == "model.layer2.0.shortcut.0.bias"


class TestRestore:
    """A manifest that cannot be a network is refused, not computed."""

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            (f"{P}.stride", (1,) * 15),
            (f"{P}.stride", (0,) * 16),
            (f"{P}.stride", (-1,) * 16),
            (f"{P}.conv1_weight", ("a",)),
            (f"{P}.conv2_bias", ("a",) * 17),
            (f"{P}.down_bias", ("",)),
            (f"{P}.stem_weight", None),
            (f"{P}.mean_vec", None),
            (f"{P}.var_eps", None),
        ],
    )
    def test_lists_of_other_lengths_and_absent_keys(
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
            arch_named("wespeaker_resnet34").restore(broken)
