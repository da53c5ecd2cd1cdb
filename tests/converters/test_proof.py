"""The proof: what is right passes, the first wrong stage is named, what nothing shows is not."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import numpy_helper

from converters.convert import convert, require_recovered
from converters.manifest import Entry, Manifest
from converters.proof import prove
from converters.proof_result import GATE, MIN_COSINE, Proof
from fixtures import catalog
from graphtools.errors import UnprovenError, UnsupportedError
from graphtools.graph import build
from graphtools.onnx_file import load
from graphtools.tensors import DType, Held, LazyTensor

Make = Callable[..., Any]
Array = npt.NDArray[Any]

TINY = catalog.names(committed=True)
STAGES = {"resnet34_tiny": 19, "eres2net_tiny": 22, "campplus_tiny": 59}


def with_value(manifest: Manifest, key: str, value: Any) -> Manifest:
    entries = tuple(replace(e, value=value) if e.key == key else e for e in manifest.entries)
    assert entries != manifest.entries
    return replace(manifest, entries=entries)


def with_tensor(manifest: Manifest, name: str, change: Callable[[Array], Array]) -> Manifest:
    tensors = []
    for tensor in manifest.tensors:
        if tensor.name == name:
            values = change(tensor.read().copy()).astype(np.float32)
            tensor = LazyTensor(name, values.shape, DType.F32, Held(name, values))
        tensors.append(tensor)
    return replace(manifest, tensors=tuple(tensors))


@pytest.fixture
def proven(
    manifest_of: Make, recovered: Make, written: Make, tmp_path: Path
) -> Callable[..., Proof]:
    """The proof of a tiny export's manifest, changed or not, against the export."""

    def run(
        name: str | Path,
        change: Callable[[Manifest], Manifest] = lambda m: m,
        **options: Any,
    ) -> Proof:
        path = name if isinstance(name, Path) else catalog.path(name)
        file = written(change(manifest_of(path)), tmp_path / "proven.gguf")
        return prove(file, recovered(path), **options)

    return run


@pytest.fixture(scope="module")
def right(
    manifest_of: Make, recovered: Make, written: Make, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Proof]:
    """The proofs of the three tiny exports as they are."""
    folder = tmp_path_factory.mktemp("right")
    return {
        name: prove(
            written(manifest_of(catalog.path(name)), folder / name), recovered(catalog.path(name))
        )
        for name in TINY
    }


class TestRight:
    @pytest.mark.parametrize("name", TINY)
    def test_a_right_file_is_proven(self, name: str, right: Mapping[str, Proof]) -> None:
        proof = right[name]
        assert proof
        assert proof.failures == []
        assert proof.unproven == {}
        proof.require()

    @pytest.mark.parametrize("name", TINY)
    def test_every_stage_is_far_below_the_gate(self, name: str, right: Mapping[str, Proof]) -> None:
        """2.1e-5 is the largest float32 noise of one block on real networks; a gate of 1e-4."""
        proof = right[name]
        assert len(proof.stages) == STAGES[name]
        assert list(proof.stages)[-1] == "encoder_out"
        assert all(0 <= s.error < 3e-5 for s in proof.stages.values())
        assert GATE == 1e-4
        worst = proof.worst
        assert worst is not None
        assert worst.error == max(s.error for s in proof.stages.values())
        assert proof.stages[worst.stage] is worst

    @pytest.mark.parametrize("name", TINY)
    def test_islands_and_the_whole_are_compared(
        self, name: str, right: Mapping[str, Proof]
    ) -> None:
        proof = right[name]
        islands = {"stats", "cam"} if name == "campplus_tiny" else {"tstp"}
        assert set(proof.islands) == islands
        assert all(error < 3e-5 for error in proof.islands.values())
        rules = {"kernel", "valid"} if name == "campplus_tiny" else {"plain"}
        assert set(proof.end_to_end) == rules
        assert all(d.cosine >= MIN_COSINE for d in proof.end_to_end.values())

    @pytest.mark.parametrize("name", TINY)
    def test_every_key_says_what_shows_it(
        self, name: str, right: Mapping[str, Proof], manifest_of: Make
    ) -> None:
        keys = {e.key for e in manifest_of(catalog.path(name)).entries}
        assert set(right[name].values) == keys
        assert all(right[name].values.values())

    def test_the_pooling_eps_is_measured_on_the_source(self, right: Mapping[str, Proof]) -> None:
        assert right["resnet34_tiny"].values["voicedetect.resnet.var_eps"].endswith(": 1e-07")
        assert right["eres2net_tiny"].values["voicedetect.eres2net.var_eps"].endswith(": 1e-08")

    def test_both_segment_rules_are_proven_and_their_distance_is_kept(
        self, right: Mapping[str, Proof]
    ) -> None:
        proof = right["campplus_tiny"]
        assert proof.rule_distance is not None
        assert 1e-3 < proof.rule_distance < 0.5
        assert proof.runtime_rule in ("kernel", "valid")
        for name in ("resnet34_tiny", "eres2net_tiny"):
            assert right[name].rule_distance is None
            assert right[name].runtime_rule is None

    @pytest.mark.parametrize("name", TINY)
    def test_json_is_plain_and_the_same_every_time(
        self, name: str, right: Mapping[str, Proof], proven: Make
    ) -> None:
        one, two = right[name].to_json(), proven(name).to_json()
        assert json.dumps(one) == json.dumps(two)
        back = json.loads(json.dumps(one, allow_nan=False))
        assert back == one
        assert back["proven"] is True
        assert back["gate"] == GATE
        assert back["failures"] == []
        assert list(back["stages"]) == list(right[name].stages)

    @pytest.mark.parametrize("name", TINY)
    def test_no_value_depends_on_the_path(
        self, name: str, right: Mapping[str, Proof], tmp_path: Path
    ) -> None:
        assert str(tmp_path.parent) not in json.dumps(right[name].to_json())


class TestWrong:
    def test_the_first_wrong_stage_is_named(self, proven: Make, manifest_of: Make) -> None:
        """conv2 of layer2.1: block 3 + 1 of the lists."""
        manifest = manifest_of(catalog.path("resnet34_tiny"))
        name = manifest["voicedetect.resnet.conv2_weight"][4]
        proof = proven("resnet34_tiny", lambda m: with_tensor(m, name, lambda w: w * 1.01))
        assert not proof
        (failure,) = proof.failures
        assert "the stage layer2.1 does not compute" in str(failure)
        assert "probe 'speech'" in str(failure)
        with pytest.raises(UnprovenError, match=r"layer2\.1"):
            proof.require()
        assert proof.worst is not None
        assert proof.worst.stage == "layer2.1"
        assert proof.to_json()["proven"] is False
        assert proof.to_json()["failures"][0]["error"] == failure.cause

    @pytest.mark.parametrize(
        ("name", "list_key", "index", "stage"),
        [
            ("resnet34_tiny", "resnet.stem_weight", None, "stem"),
            ("resnet34_tiny", "resnet.conv1_weight", 0, "layer1.0"),
            ("resnet34_tiny", "resnet.down_weight", 13, "layer4.0"),
            ("resnet34_tiny", "resnet.seg_bias", None, "encoder_out"),
            ("resnet34_tiny", "resnet.mean_vec", None, "encoder_out"),
            ("eres2net_tiny", "eres2net.conv_weight", 0, "stem"),
            ("eres2net_tiny", "eres2net.conv_weight", 1, "layer1.0"),
            ("eres2net_tiny", "eres2net.conv_weight", 30, "layer2.3"),
            ("eres2net_tiny", "eres2net.conv_weight", 31, "fuse1"),
            ("eres2net_tiny", "eres2net.conv_bias", 32, "fuse1"),
            ("eres2net_tiny", "eres2net.conv_weight", 95, "fuse3"),
            ("eres2net_tiny", "eres2net.seg_weight", None, "encoder_out"),
            ("campplus_tiny", "campplus.conv_weight", 0, "fcm"),
            ("campplus_tiny", "campplus.conv_weight", 11, "fcm"),
            ("campplus_tiny", "campplus.conv_weight", 12, "tdnn"),
            ("campplus_tiny", "campplus.conv_weight", 13, "block1.0"),
            ("campplus_tiny", "campplus.conv_weight", 61, "transit1"),
            ("campplus_tiny", "campplus.conv_weight", 223, "transit3"),
            ("campplus_tiny", "campplus.conv_weight", 224, "encoder_out"),
            ("campplus_tiny", "campplus.emb_bn_var", None, "encoder_out"),
        ],
    )
    def test_each_tensor_is_charged_to_its_stage(
        self, proven: Make, manifest_of: Make, name: str, list_key: str, index: int | None,
        stage: str,
    ) -> None:  # fmt: skip
        value = manifest_of(catalog.path(name))[f"voicedetect.{list_key}"]
        tensor = value if index is None else value[index]
        proof = proven(name, lambda m: with_tensor(m, tensor, lambda w: w * 1.05))
        (failure,) = proof.failures
        assert f"the stage {stage} does not" in failure.cause

    def test_a_batch_norm_is_charged_to_its_stage(self, proven: Make, manifest_of: Make) -> None:
        manifest = manifest_of(catalog.path("campplus_tiny"))
        prefix = manifest["voicedetect.campplus.bn_prefix"][12 + 1 + 24]  # transit2's
        tensor = f"{prefix}.running_mean"
        proof = proven("campplus_tiny", lambda m: with_tensor(m, tensor, lambda w: w + 0.1))
        assert "the stage transit2 does not" in proof.failures[0].cause

    @pytest.mark.parametrize(
        ("name", "key", "value", "cause"),
        [
            ("resnet34_tiny", "resnet.var_eps", 1e-8, "pool"),
            ("resnet34_tiny", "resnet.var_eps", 1.01e-7, "not what the pooling adds"),
            ("resnet34_tiny", "resnet.mean_vec", "", "encoder_out does not compute"),
            ("eres2net_tiny", "eres2net.var_eps", 1e-7, "not what the pooling adds"),
            ("eres2net_tiny", "eres2net.var_eps", 0.0, "not what the pooling adds"),
            ("eres2net_tiny", "eres2net.relu_clamp", 6.0, "the stage layer1.0"),
            ("eres2net_tiny", "eres2net.relu_clamp", 22.0, "does not compute"),
            ("campplus_tiny", "campplus.bn_eps", 1.1e-5, "not the source's"),
            ("campplus_tiny", "fbank.preemph", 0.5, "not the schema's"),
            ("campplus_tiny", "fbank.window", "hamming", "not the schema's"),
            ("campplus_tiny", "l2_normalize", False, "not the schema's"),
        ],
    )
    def test_a_wrong_scalar_is_named(
        self, proven: Make, name: str, key: str, value: Any, cause: str
    ) -> None:
        if isinstance(value, float):
            value = float(np.float32(value))
        proof = proven(name, lambda m: with_value(m, f"voicedetect.{key}", value))
        assert not proof
        assert cause in str(proof.failures[0])

    def test_a_wrong_embedding_length_is_caught(self, proven: Make) -> None:
        key = "voicedetect.embedding_dim"
        assert not proven("resnet34_tiny", lambda m: with_value(m, key, 33))

    @pytest.mark.parametrize(
        ("file", "source"), [("resnet34_tiny", "eres2net_tiny"), ("campplus_tiny", "resnet34_tiny")]
    )
    def test_the_file_of_another_network_is_not_proven(
        self, file: str, source: str, manifest_of: Make, recovered: Make, written: Make,
        tmp_path: Path,
    ) -> None:  # fmt: skip
        path = written(manifest_of(catalog.path(file)), tmp_path / "x.gguf")
        proof = prove(path, recovered(catalog.path(source)))
        assert not proof
        assert "another architecture" in proof.failures[0].cause

    @pytest.mark.parametrize("name", TINY)
    def test_a_tensor_that_is_not_there_is_an_answer_and_no_crash(
        self, name: str, proven: Make
    ) -> None:
        proof = proven(name, lambda m: replace(m, tensors=m.tensors[:-1]))
        assert not proof
        assert "does not have" in proof.failures[0].cause

    @pytest.mark.parametrize("name", TINY)
    def test_a_tensor_that_no_key_names_is_not_proven(
        self, name: str, proven: Make, held: Make
    ) -> None:
        proof = proven(name, lambda m: replace(m, tensors=(*m.tensors, held("stray.weight"))))
        assert not proof
        assert "no key names" in proof.failures[0].cause
        assert proof.failures[0].found == "stray.weight"

    def test_a_key_that_the_schema_does_not_know_is_not_proven(self, proven: Make) -> None:
        extra = Entry("voicedetect.resnet.dropout", "f32", 0.5, "test")
        proof = proven("resnet34_tiny", lambda m: replace(m, entries=(*m.entries, extra)))
        assert "'voicedetect.resnet.dropout' is not in the schema" in proof.failures[0].cause

    @pytest.mark.parametrize("name", TINY)
    def test_a_key_that_is_absent_is_not_proven(
        self, name: str, proven: Make, manifest_of: Make
    ) -> None:
        for entry in manifest_of(catalog.path(name)).entries:
            proof = proven(
                name,
                lambda m, key=entry.key: replace(
                    m, entries=tuple(e for e in m.entries if e.key != key)
                ),
            )
            assert not proof, entry.key
            assert entry.key in str(proof.failures[0])

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_a_weight_that_is_not_finite_is_not_proven(self, proven: Make, value: float) -> None:
        def change(manifest: Manifest) -> Manifest:
            def poison(weights: Array) -> Array:
                weights.reshape(-1)[0] = value
                return weights

            return with_tensor(manifest, manifest["voicedetect.resnet.conv1_weight"][2], poison)

        proof = proven("resnet34_tiny", change)
        assert not proof
        assert "layer1.2" in proof.failures[0].cause

    def test_a_shape_that_does_not_fit_is_an_answer_and_no_crash(self, proven: Make) -> None:
        name = "model.seg_1.weight"
        proof = proven("resnet34_tiny", lambda m: with_tensor(m, name, lambda w: w.T))
        assert not proof
        assert "seg" in str(proof.failures[0])


class TestUnproven:
    """A clamp that no probe reaches: nothing shows that its value is right."""

    KEY = "voicedetect.eres2net.relu_clamp"

    @pytest.fixture
    def loose(self, edited: Make) -> Path:
        def change(proto: onnx.ModelProto) -> None:
            bounds = {n.input[2] for n in proto.graph.node if n.op_type == "Clip"}
            for node in proto.graph.node:
                if node.op_type == "Constant" and node.output[0] in bounds:
                    node.attribute[0].t.CopyFrom(numpy_helper.from_array(np.float32(1e6)))

        path: Path = edited("eres2net_tiny", change)
        return path

    def test_is_refused_by_name(self, loose: Path, proven: Make) -> None:
        proof = proven(loose)
        assert not proof
        assert proof.failures == []
        assert set(proof.unproven) == {self.KEY}
        with pytest.raises(UnprovenError, match="relu_clamp") as caught:
            proof.require()
        assert f"--allow-unproven {self.KEY}" in str(caught.value.todo)
        assert proof.to_json()["proven"] is False
        assert self.KEY in proof.to_json()["unproven"]

    def test_nothing_is_written(self, loose: Path, tmp_path: Path) -> None:
        before = sorted(p.name for p in tmp_path.iterdir())
        with pytest.raises(UnprovenError, match="relu_clamp"):
            convert(loose, tmp_path / "x.gguf")
        assert sorted(p.name for p in tmp_path.iterdir()) == before

    def test_passes_where_it_is_allowed(self, loose: Path, proven: Make, tmp_path: Path) -> None:
        proof = proven(loose, allow_unproven=[self.KEY])
        assert proof
        proof.require()
        assert proof.allowed == (self.KEY,)
        assert proof.to_json()["allowed_unproven"] == [self.KEY]
        done = convert(loose, tmp_path / "x.gguf", allow_unproven=[self.KEY])
        assert done.proof
        assert done.manifest[self.KEY] == 1e6

    def test_allowing_another_key_does_not_help(self, loose: Path, proven: Make) -> None:
        assert not proven(loose, allow_unproven=["voicedetect.eres2net.var_eps"])

    def test_allowing_does_not_excuse_what_is_wrong(self, proven: Make) -> None:
        value = float(np.float32(22.0))
        proof = proven(
            "eres2net_tiny",
            lambda m: with_value(m, self.KEY, value),
            allow_unproven=[self.KEY],
        )
        assert not proof
        assert proof.failures

    def test_the_clamp_of_the_fixture_is_reached(self, right: Mapping[str, Proof]) -> None:
        assert "changed values" in right["eres2net_tiny"].values[self.KEY]


class TestSource:
    """What is wrong with the source is the source's, not the file's."""

    def test_a_source_that_onnxruntime_cannot_load_is_refused(
        self, edited: Make, tmp_path: Path
    ) -> None:
        def change(proto: onnx.ModelProto) -> None:
            proto.opset_import[0].version = 9999

        with pytest.raises(UnsupportedError, match="onnxruntime cannot") as caught:
            convert(edited("resnet34_tiny", change), tmp_path / "x.gguf")
        assert not isinstance(caught.value, UnprovenError)
        assert not (tmp_path / "x.gguf").exists()

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_a_source_that_computes_no_numbers_proves_nothing(
        self, edited: Make, proven: Make, value: float
    ) -> None:
        """Two NaNs are equal, so that everything behind one would pass unseen."""

        def poison(proto: onnx.ModelProto) -> None:
            (stem,) = (n for n in proto.graph.node if n.output[0] == "/model/conv1/Conv_output_0")
            for tensor in proto.graph.initializer:
                if tensor.name == stem.input[2]:
                    values = np.full(4, value, np.float32)
                    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))

        def exchange(manifest: Manifest) -> Manifest:
            key = "voicedetect.resnet.conv1_weight"
            first, second, *rest = manifest[key]
            return with_value(manifest, key, (second, first, *rest))

        path = edited("resnet34_tiny", poison)
        for change in (lambda m: m, exchange):
            try:
                proof = proven(path, change)
            except UnsupportedError:
                continue
            assert not proof

    @pytest.mark.parametrize("float32_ends", [True, False])
    @pytest.mark.parametrize("name", TINY)
    def test_a_half_precision_source_is_proven_against_its_widened_copy(
        self, name: str, float32_ends: bool, tmp_path: Path
    ) -> None:
        """Its weights are what they are; only the runtime's half-precision arithmetic is not."""
        from onnxruntime.transformers import float16

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # values that f16 rounds are told one by one
            half = float16.convert_float_to_float16(
                onnx.load(catalog.path(name)), keep_io_types=float32_ends
            )
        onnx.save(half, tmp_path / "half.onnx")
        done = convert(tmp_path / "half.onnx", tmp_path / "x.gguf")
        assert done.proof
        values = {t.name: numpy_helper.to_array(t) for t in half.graph.initializer}
        assert len(done.manifest.tensors) > 70
        for tensor in done.manifest.tensors:
            assert values[tensor.name].dtype == np.float16
            np.testing.assert_array_equal(tensor.read(), values[tensor.name].astype(np.float32))

    def test_a_source_with_other_features_is_refused(self, edited: Make, tmp_path: Path) -> None:
        """The schema's front end has 80 bins."""

        def change(proto: onnx.ModelProto) -> None:
            proto.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 60

        with pytest.raises(UnsupportedError):
            convert(edited("resnet34_tiny", change), tmp_path / "x.gguf")
        assert not (tmp_path / "x.gguf").exists()


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """A tiny network exported for one number of frames."""
    folder = tmp_path_factory.mktemp("fixed")

    def make(name: str, frames: int) -> Path:
        from fixtures.export import export_legacy

        export, path = catalog.EXPORTS[name], folder / f"{name}-{frames}.onnx"
        if not path.exists():
            export_legacy(export.module(), path, opset=export.opset, frames=frames)
        return path

    return make


@pytest.mark.slow
class TestFixedLength:
    """An export for one length has that length only."""

    @pytest.mark.parametrize("frames", [198, 200])
    @pytest.mark.parametrize("name", TINY)
    def test_is_proven_on_its_own_length(
        self, name: str, frames: int, fixed: Make, tmp_path: Path, manifest_of: Make
    ) -> None:
        path = fixed(name, frames)
        done = convert(path, tmp_path / "x.gguf")
        assert done.proof
        told = [n for n in done.proof.notes if "do not exercise the segment rule" in n]
        hides = name == "campplus_tiny" and frames == 200  # 100 after the stride: no partial one
        assert len(told) == hides
        assert set(told) <= set(done.notes)
        if name == "campplus_tiny":
            assert set(done.proof.end_to_end) == {"kernel", "valid"}
            assert (done.proof.runtime_rule is None) == hides
        plain = manifest_of(catalog.path(name))
        assert [(e.key, e.type) for e in done.manifest.entries] == [
            (e.key, e.type) for e in plain.entries
        ]
        for ours, theirs in zip(done.manifest.tensors, plain.tensors, strict=True):
            np.testing.assert_array_equal(ours.read(), theirs.read())


class TestSameNetwork:
    """Neither the order of nodes nor the names of tensors say anything."""

    @pytest.mark.parametrize("name", TINY)
    @pytest.mark.parametrize("seed", [1, 2])
    def test_a_shuffled_node_list_gives_the_same_bytes(
        self, name: str, seed: int, edited: Make, tmp_path: Path
    ) -> None:
        def shuffle(proto: onnx.ModelProto) -> None:
            nodes = list(proto.graph.node)
            random.Random(seed).shuffle(nodes)
            del proto.graph.node[:]
            proto.graph.node.extend(nodes)
            weights = list(proto.graph.initializer)
            random.Random(seed).shuffle(weights)
            del proto.graph.initializer[:]
            proto.graph.initializer.extend(weights)

        outputs = []
        for path in (catalog.path(name), edited(name, shuffle)):
            done = convert(path, tmp_path / "x.gguf", name="model")
            assert done.proof
            outputs.append((tmp_path / "x.gguf").read_bytes())
        assert outputs[0] == outputs[1]

    @pytest.mark.parametrize("name", TINY)
    def test_renamed_tensors_give_the_same_values_in_pull_order(
        self, name: str, edited: Make, manifest_of: Make, tmp_path: Path
    ) -> None:
        def rename(proto: onnx.ModelProto) -> None:
            names = sorted(
                {t.name for t in proto.graph.initializer}
                | {o for n in proto.graph.node for o in n.output}
                | {v.name for v in (*proto.graph.input, *proto.graph.output)}
            )
            fresh = list(range(len(names)))
            random.Random(3).shuffle(fresh)
            new = {old: f"t{number}" for old, number in zip(names, fresh, strict=True)}
            for node in proto.graph.node:
                node.name = ""
                node.input[:] = [new.get(n, n) for n in node.input]
                node.output[:] = [new.get(n, n) for n in node.output]
            for one in (*proto.graph.initializer, *proto.graph.input, *proto.graph.output):
                one.name = new[one.name]
            del proto.graph.value_info[:]

        done = convert(edited(name, rename), tmp_path / "x.gguf", name="model")
        assert done.proof
        plain = manifest_of(catalog.path(name))
        names = dict(
            zip(
                [t.name for t in done.manifest.tensors],
                [t.name for t in plain.tensors],
                strict=True,
            )
        )
        for ours, theirs in zip(done.manifest.tensors, plain.tensors, strict=True):
            np.testing.assert_array_equal(ours.read(), theirs.read())
        for ours, theirs in zip(done.manifest.entries, plain.entries, strict=True):
            assert (ours.key, ours.type) == (theirs.key, theirs.type)
            if ours.type == "[string]" and not ours.key.endswith("bn_prefix"):
                assert tuple(names.get(n, n) for n in ours.value) == theirs.value
            elif ours.value in names:
                assert names[ours.value] == theirs.value
            elif not ours.key.endswith("bn_prefix"):
                assert ours.value == theirs.value


class TestLength:
    """What shows on long inputs only."""

    @pytest.mark.parametrize("name", ["resnet34_tiny", "campplus_tiny"])
    def test_a_region_that_is_cut_off_beyond_a_clip_is_refused(
        self, name: str, tmp_path: Path
    ) -> None:
        """The pooling takes no more than 400 positions; a clip of three seconds has fewer."""
        net = require_recovered(build(load(catalog.path(name))))
        (*_, (_, region)) = net.binding.regions
        proto = onnx.load(catalog.path(name))
        for label, value in (("start", 0), ("end", 400), ("axis", -1)):
            proto.graph.initializer.append(
                numpy_helper.from_array(np.array([value], np.int64), label)
            )
        for index in region.nodes:
            node = proto.graph.node[index]
            for slot, read in enumerate(node.input):
                if read == region.entry:
                    node.input[slot] = "cut"
        proto.graph.node.append(
            onnx.helper.make_node("Slice", [region.entry, "start", "end", "axis"], ["cut"])
        )
        onnx.save(proto, tmp_path / "cut.onnx")
        with pytest.raises(UnprovenError, match="does not compute"):
            convert(tmp_path / "cut.onnx", tmp_path / "x.gguf")
        assert not (tmp_path / "x.gguf").exists()

    @pytest.mark.parametrize("op", ["Clip", "Slice"])
    def test_a_bound_that_no_probe_reaches_is_refused(
        self, op: str, edited: Make, tmp_path: Path
    ) -> None:
        """A clip of half a minute, or an activation of ten thousand, would be the first to show."""
        net = require_recovered(build(load(catalog.path("campplus_tiny"))))
        (*_, (_, region)) = net.binding.regions

        def change(proto: onnx.ModelProto) -> None:
            values = {
                "low": np.float32(-1e4),
                "high": np.float32(1e4),
                "start": np.array([0]),
                "end": np.array([3000]),
                "axis": np.array([-1]),
            }
            for label, value in values.items():
                proto.graph.initializer.append(numpy_helper.from_array(value, label))
            for index in region.nodes:
                node = proto.graph.node[index]
                node.input[:] = ["held" if n == region.entry else n for n in node.input]
            names = ["low", "high"] if op == "Clip" else ["start", "end", "axis"]
            proto.graph.node.append(onnx.helper.make_node(op, [region.entry, *names], ["held"]))

        with pytest.raises(UnsupportedError, match="a number that no probe reaches") as caught:
            convert(edited("campplus_tiny", change), tmp_path / "x.gguf")
        assert f"({op})" in str(caught.value.where)

    def test_a_number_in_an_attribute_counts_too(self, edited: Make, tmp_path: Path) -> None:
        """Before opset 11 the bounds of Clip and Slice are attributes."""
        net = require_recovered(build(load(catalog.path("campplus_tiny"))))
        (*_, (_, region)) = net.binding.regions

        def change(proto: onnx.ModelProto) -> None:
            for index in region.nodes:
                node = proto.graph.node[index]
                node.input[:] = ["held" if n == region.entry else n for n in node.input]
            proto.graph.node.append(
                onnx.helper.make_node("Elu", [region.entry], ["held"], alpha=5000.0)
            )

        with pytest.raises(UnsupportedError, match="a number that no probe reaches") as caught:
            convert(edited("campplus_tiny", change), tmp_path / "x.gguf")
        assert "attribute alpha" in str(caught.value.where)

    def test_a_bound_on_values_that_no_clip_reaches_is_found(
        self, edited: Make, tmp_path: Path
    ) -> None:
        net = require_recovered(build(load(catalog.path("resnet34_tiny"))))
        (*_, (_, region)) = net.binding.regions

        def change(proto: onnx.ModelProto) -> None:
            for label, value in (("low", -500.0), ("high", 500.0)):
                proto.graph.initializer.append(numpy_helper.from_array(np.float32(value), label))
            for index in region.nodes:
                node = proto.graph.node[index]
                node.input[:] = ["held" if n == region.entry else n for n in node.input]
            proto.graph.node.append(
                onnx.helper.make_node("Clip", [region.entry, "low", "high"], ["held"])
            )

        with pytest.raises(UnprovenError, match="the region tstp does not compute"):
            convert(edited("resnet34_tiny", change), tmp_path / "x.gguf")


def _second_input(proto: onnx.ModelProto) -> None:
    proto.graph.input.append(onnx.helper.make_tensor_value_info("other", 1, [1]))


def _axis(number: int, length: int) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.input[0].type.tensor_type.shape.dim[number].dim_value = length

    return change


def _one_axis(proto: onnx.ModelProto) -> None:
    del proto.graph.input[0].type.tensor_type.shape.dim[1:]


@pytest.mark.parametrize(
    "change",
    [
        _second_input,
        _one_axis,
        _axis(0, 2),
        _axis(1, 0),
        _axis(1, 2**40),
        _axis(2, 40),
    ],
    ids=["second input", "one axis", "batch 2", "no frames", "2^40 frames", "40 bins"],
)
def test_an_input_that_the_front_end_does_not_make_is_refused(
    change: Callable[[onnx.ModelProto], None], edited: Make, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match="the model's input is not the features") as caught:
        convert(edited("resnet34_tiny", change), tmp_path / "x.gguf")
    assert "feats" in str(caught.value.found)
    assert "[1, T, 80]" in str(caught.value.expected)
    assert not (tmp_path / "x.gguf").exists()


@pytest.mark.parametrize("name", ["eres2net_tiny", "campplus_tiny"])
def test_a_subtraction_of_zeros_at_the_end_is_looked_past(
    name: str, edited: Make, tmp_path: Path
) -> None:
    """WeSpeaker exports its mean vector with every model; without statistics it is zeros."""

    def change(proto: onnx.ModelProto) -> None:
        (output,) = proto.graph.output
        for node in proto.graph.node:
            node.output[:] = ["raw" if n == output.name else n for n in node.output]
        size = output.type.tensor_type.shape.dim[1].dim_value
        zeros = np.zeros(size, np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(zeros, "mean_vec"))
        proto.graph.node.append(onnx.helper.make_node("Sub", ["raw", "mean_vec"], [output.name]))

    plain = convert(catalog.path(name), tmp_path / "a.gguf", name="m")
    done = convert(edited(name, change), tmp_path / "b.gguf", name="m")
    assert done.proof
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    assert not [note for note in done.notes if "outputs" in note]
    assert set(done.manifest.left_out) - set(plain.manifest.left_out) == {"mean_vec"}


def test_a_pooling_that_is_spelled_out_with_a_pad_is_proven(edited: Make, tmp_path: Path) -> None:
    """The kernel's rule, as tools write it that know no ceil_mode."""

    def change(proto: onnx.ModelProto) -> None:
        pads = numpy_helper.from_array(np.array([0, 0, 0, 0, 0, 99], np.int64), "appended")
        proto.graph.initializer.append(pads)
        for node in list(proto.graph.node):
            if node.op_type == "AveragePool":
                (ceil,) = (a for a in node.attribute if a.name == "ceil_mode")
                ceil.i = 0
                padded = f"{node.output[0]}/padded"
                pad = onnx.helper.make_node("Pad", [node.input[0], "appended"], [padded])
                proto.graph.node.insert(list(proto.graph.node).index(node), pad)
                node.input[0] = padded

    done = convert(edited("campplus_tiny", change), tmp_path / "x.gguf")
    assert done.proof
    whole = convert(catalog.path("campplus_tiny"), tmp_path / "y.gguf")
    assert done.manifest.entries == whole.manifest.entries
