"""A file is a complete, consistent model, or it is refused with a reason."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from fixtures import catalog
from graphtools.errors import NotAModelError, UnsupportedError, UsageError
from graphtools.graph import Graph, build
from graphtools.model import Model, Value, subgraphs
from graphtools.onnx_file import load
from graphtools.tensors import DType

Save = Callable[..., Path]
Parse = Callable[..., Graph]

SMALL = """
small (float[1, 3, T] x) => (float[1, 2, U] y)
<float[2, 3, 3] w, float[2] b>
{
    h = Conv <pads = [1, 1], kernel_shape = [3]> (x, w, b)
    y = Relu (h)
}
"""


def small(save: Save) -> onnx.ModelProto:
    proto = onnx.load(save(SMALL))
    proto.producer_name, proto.producer_version = "by hand", "1"
    helper.set_model_props(proto, {"sample_rate": "16000"})
    return proto


def signature(model: Model) -> tuple[object, ...]:
    """Everything that a computation depends on."""
    constants = {n: (t.dtype, t.shape, t.read().tobytes()) for n, t in model.constants.items()}
    return model.nodes, constants, model.inputs, model.outputs, model.opset, model.ir_version


class TestLoad:
    def test_reads_what_the_file_says(self, save: Save) -> None:
        path = save(small(save))
        model = load(str(path))
        conv, relu = model.nodes
        assert model.path == path
        assert (conv.index, conv.op, conv.inputs, conv.outputs) == (
            0,
            "Conv",
            ("x", "w", "b"),
            ("h",),
        )
        assert conv.attributes == {"pads": (1, 1), "kernel_shape": (3,)}
        assert (relu.index, relu.op, relu.attributes) == (1, "Relu", {})
        assert model.inputs == (Value("x", DType.F32, (1, 3, "T")),)
        assert model.outputs == (Value("y", DType.F32, (1, 2, "U")),)
        assert {n: (t.shape, t.dtype) for n, t in model.constants.items()} == {
            "w": ((2, 3, 3), DType.F32),
            "b": ((2,), DType.F32),
        }
        assert (model.opset, model.ir_version) == ({"": 17}, 8)
        assert (model.producer, model.metadata) == ("by hand 1", {"sample_rate": "16000"})

    def test_the_standard_domain_has_two_spellings_and_others_are_kept(self, save: Save) -> None:
        proto = small(save)
        proto.opset_import[0].domain = proto.graph.node[0].domain = "ai.onnx"
        proto.graph.node[1].domain = "com.microsoft"
        proto.opset_import.add(domain="com.microsoft", version=1)
        model = load(save(proto))
        assert model.opset == {"": 17, "com.microsoft": 1}
        assert [node.op for node in model.nodes] == ["Conv", "com.microsoft.Relu"]

    def test_an_input_may_have_no_shape_and_an_axis_no_name(self, save: Save) -> None:
        proto = small(save)
        proto.graph.input[0].type.tensor_type.shape.dim[0].Clear()
        proto.graph.output[0].type.tensor_type.ClearField("shape")
        model = load(save(proto))
        assert model.inputs[0].shape == ("?", 3, "T")
        assert model.outputs[0].shape is None

    def test_an_axis_of_minus_one_may_have_any_length(self, save: Save) -> None:
        proto = small(save)
        proto.graph.input[0].type.tensor_type.shape.dim[2].dim_value = -1
        (value,) = load(save(proto)).inputs
        assert value.shape == (1, 3, "?")

    def test_initializers_that_are_graph_inputs_too_are_no_inputs(self, save: Save) -> None:
        proto = small(save)
        for name, shape in (("w", [2, 3, 3]), ("b", [2])):
            proto.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        model = load(save(proto))
        assert [value.name for value in model.inputs] == ["x"]
        assert sorted(model.constants) == ["b", "w"]

    @pytest.mark.parametrize("suffix", [".pb", ".bin", "", ".json", ".textproto", ".onnxtxt"])
    def test_the_name_of_the_file_decides_nothing(self, save: Save, suffix: str) -> None:
        path = save(SMALL)
        renamed = path.rename(path.with_suffix(suffix))
        assert len(load(renamed).nodes) == 2

    def test_a_missing_file_is_a_wrong_call(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no such file"):
            load(tmp_path / "model.onnx")


class TestCut:
    def test_every_cut_of_a_small_model_is_refused_or_still_complete(self, save: Save) -> None:
        whole = small(save).SerializeToString()
        expected = signature(load(save(onnx.ModelProto.FromString(whole))))
        path = save(SMALL)
        complete, refusals = [], []
        for length in range(len(whole)):
            path.write_bytes(whole[:length])
            try:
                model = load(path)
            except NotAModelError as error:
                refusals.append(error)
            else:
                assert signature(model) == expected, length
                complete.append(length)
        assert all(error.file == str(path) and error.todo for error in refusals)
        # Only the properties, which stand behind everything else, can be lost unnoticed.
        assert len(complete) == 1

    @settings(max_examples=60, deadline=None)  # the first example loads a file of 0.4 MB
    @given(share=st.floats(0, 1, exclude_max=True))
    def test_every_cut_of_an_export_is_refused(
        self, tmp_path_factory: pytest.TempPathFactory, share: float
    ) -> None:
        whole = catalog.path("resnet34_tiny").read_bytes()
        path = tmp_path_factory.getbasetemp() / "cut.onnx"
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(NotAModelError):
            load(path)

    def test_a_cut_file_is_called_cut_and_has_its_size_named(self, tmp_path: Path) -> None:
        path = tmp_path / "cut.onnx"
        path.write_bytes(catalog.path("resnet34_tiny").read_bytes()[:10_000])
        with pytest.raises(NotAModelError, match="not a complete ONNX protobuf") as caught:
            load(path)
        assert "10000 bytes" in (caught.value.found or "")
        assert "cut off" in (caught.value.todo or "")

    @pytest.mark.parametrize(
        "damage",
        [
            lambda proto: proto.ClearField("graph"),
            lambda proto: proto.ClearField("opset_import"),
            lambda proto: proto.graph.ClearField("node"),
        ],
    )
    def test_a_model_without_nodes_or_opset_is_refused(
        self, save: Save, damage: Callable[[onnx.ModelProto], None]
    ) -> None:
        proto = small(save)
        damage(proto)
        with pytest.raises(NotAModelError, match="holds no ONNX graph"):
            load(save(proto))


class TestConsistency:
    def test_two_producers_of_a_tensor_are_both_named(self, save: Save) -> None:
        text = "g (float[2] x) => (float[2] y) { h = Relu (x) h = Tanh (x) y = Relu (h) }"
        with pytest.raises(NotAModelError, match="the tensor 'h' is produced twice") as caught:
            load(save(text))
        assert caught.value.where == 'node 0 (Relu) -> "h" and node 1 (Tanh) -> "h"'

    @pytest.mark.parametrize("taken", ["x", "c"])
    def test_a_node_may_not_produce_an_input_or_an_initializer(
        self, save: Save, taken: str
    ) -> None:
        text = f"""
        g (float[2] x) => (float[2] y) <float[2] c = {{1, 2}}> {{
            {taken} = Relu (x)
            y = Add (x, c)
        }}
        """
        with pytest.raises(NotAModelError, match=f"'{taken}'"):
            load(save(text))

    def test_an_input_that_nothing_produces_is_named(self, save: Save) -> None:
        text = "g (float[2] x) => (float[2] y) { y = Add (x, gone) }"
        with pytest.raises(NotAModelError, match="nothing produces the tensor 'gone'") as caught:
            load(save(text))
        assert caught.value.where == 'node 0 (Add) -> "y"'

    def test_an_output_that_nothing_produces_is_named(self, save: Save) -> None:
        text = "g (float[2] x) => (float[2] z) { y = Relu (x) }"
        with pytest.raises(NotAModelError, match="nothing produces the output 'z'"):
            load(save(text))

    @pytest.mark.parametrize(
        "line", ["y = Relu ()", "y = Add (x)", 'y = Add (x, "")', "y = Conv (x)", "y = Conv (, x)"]
    )
    def test_a_node_without_the_inputs_that_it_needs_is_refused(
        self, save: Save, line: str
    ) -> None:
        text = f"g (float[2] x) => (float[2] y) {{ {line.replace(chr(34) * 2, '')} }}"
        with pytest.raises(
            NotAModelError, match="not the inputs and outputs of its kind"
        ) as caught:
            load(save(text))
        assert caught.value.where == f'node 0 ({line.split()[2]}) -> "y"'
        assert "inputs and an output" in (caught.value.expected or "")

    def test_a_node_with_more_inputs_than_it_takes_is_refused(self, save: Save) -> None:
        text = "g (float[2] x) => (float[2] y) { y = Add (x, x, x) }"
        with pytest.raises(NotAModelError, match="inputs"):
            load(save(text))

    def test_a_node_without_outputs_is_refused(self, save: Save) -> None:
        proto = small(save)
        proto.graph.node.append(onnx.NodeProto(op_type="Relu", input=["x"]))
        with pytest.raises(NotAModelError, match="inputs and outputs"):
            load(save(proto))

    @pytest.mark.parametrize("op", ["NoSuchOperator", "com.microsoft.Gelu"])
    def test_of_unknown_ops_nothing_is_asked(self, save: Save, op: str) -> None:
        text = f"g (float[2] x) => (float[2] y) {{ y = {op} () }}"
        assert load(save(text)).nodes[0].op == op

    def test_a_model_without_outputs_is_refused(self, save: Save) -> None:
        proto = small(save)
        del proto.graph.output[:]
        with pytest.raises(NotAModelError, match="has no outputs"):
            load(save(proto))

    def test_nodes_may_stand_in_any_order(self, save: Save) -> None:
        text = "g (float[2] x) => (float[2] y) { y = Relu (h) h = Tanh (x) }"
        assert [node.op for node in load(save(text)).nodes] == ["Relu", "Tanh"]

    def test_an_absent_optional_input_is_no_missing_tensor(self, save: Save) -> None:
        proto = small(save)
        proto.graph.node[1].op_type = "Clip"
        proto.graph.node[1].input.extend(["", ""])
        assert load(save(proto)).nodes[1].inputs == ("h", "", "")


class TestInitializers:
    def test_two_of_one_name_are_refused(self, save: Save) -> None:
        proto = small(save)
        proto.graph.initializer.append(proto.graph.initializer[0])
        with pytest.raises(NotAModelError, match="two initializers are called 'w'"):
            load(save(proto))

    def test_a_negative_axis_is_refused(self, save: Save) -> None:
        proto = small(save)
        proto.graph.initializer[1].dims[0] = -2
        with pytest.raises(NotAModelError, match="'b' has a negative axis") as caught:
            load(save(proto))
        assert caught.value.found == "shape [-2]"

    @pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
    @pytest.mark.parametrize(
        "kind", ["FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "INT64", "INT8", "BOOL"]
    )
    def test_values_are_the_same_in_both_encodings(self, save: Save, kind: str, raw: bool) -> None:
        values = np.array([0, 1, 1, 0, 1, 0] if kind == "BOOL" else [0, 1.5, -2, 3, 4, -5])
        typed = helper.make_tensor("w", getattr(TensorProto, kind), [2, 3], values.tolist())
        if raw:
            array = numpy_helper.to_array(typed)
            typed.CopyFrom(TensorProto(name="w", data_type=typed.data_type, dims=[2, 3]))
            typed.raw_data = array.tobytes()
        proto = small(save)
        proto.graph.initializer[0].CopyFrom(typed)
        found = load(save(proto)).constants["w"].read()
        assert found.shape == (2, 3)
        expected = values.astype(np.int64) if kind.startswith("INT") else values
        np.testing.assert_array_equal(found.reshape(-1).astype(np.float64), expected)

    @pytest.mark.parametrize("kind", ["FLOAT", "FLOAT16", "BFLOAT16", "INT64"])
    @pytest.mark.parametrize("extra", [-4, -1, 1, 8])
    def test_raw_bytes_that_do_not_fit_the_shape_are_refused(
        self, save: Save, kind: str, extra: int
    ) -> None:
        proto = small(save)
        tensor = proto.graph.initializer[0]
        tensor.data_type = getattr(TensorProto, kind)
        size = 18 * (onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
        tensor.raw_data = b"\0" * (size + extra)
        with pytest.raises(NotAModelError, match="'w' does not have the bytes") as caught:
            load(save(proto)).constants["w"].read()
        assert "[2, 3, 3]" in (caught.value.expected or "")
        assert "damaged" in (caught.value.todo or "")

    @pytest.mark.parametrize("kind", ["FLOAT", "BFLOAT16"])
    @pytest.mark.parametrize("count", [0, 3, 19])
    def test_typed_values_that_do_not_fit_the_shape_are_refused(
        self, save: Save, kind: str, count: int
    ) -> None:
        proto = small(save)
        tensor = TensorProto(name="w", data_type=getattr(TensorProto, kind), dims=[2, 3, 3])
        (tensor.float_data if kind == "FLOAT" else tensor.int32_data).extend([1] * count)
        proto.graph.initializer[0].CopyFrom(tensor)
        with pytest.raises(NotAModelError, match="'w' does not have the bytes"):
            load(save(proto)).constants["w"].read()

    def test_a_type_that_we_cannot_read_is_other(self, save: Save) -> None:
        proto = small(save)
        proto.graph.initializer[0].data_type = TensorProto.FLOAT8E4M3FN
        assert load(save(proto)).constants["w"].dtype is DType.OTHER

    def test_sparse_initializers_are_refused(self, save: Save) -> None:
        proto = small(save)
        values = numpy_helper.from_array(np.array([1.0], np.float32), "sparse_w")
        indices = numpy_helper.from_array(np.array([0], np.int64), "at")
        proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
        with pytest.raises(UnsupportedError, match="sparse") as caught:
            load(save(proto))
        assert caught.value.found == "sparse_w"


class TestConstantNodes:
    @pytest.mark.parametrize(
        ("attribute", "dtype", "expected"),
        [
            ({"value": numpy_helper.from_array(np.array([[1, 2]], np.int32))}, DType.I32, [[1, 2]]),
            ({"value_float": 0.1}, DType.F32, np.float32(0.1)),
            ({"value_floats": [0.5, 0.1]}, DType.F32, np.array([0.5, 0.1], np.float32)),
            ({"value_int": 1 << 40}, DType.I64, 1 << 40),
            ({"value_ints": [-1, 0, 3]}, DType.I64, [-1, 0, 3]),
            ({"value_string": "a"}, DType.STRING, "a"),
            ({"value_strings": ["a", "bc"]}, DType.STRING, ["a", "bc"]),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_every_spelling_is_a_constant(
        self, save: Save, attribute: dict[str, object], dtype: DType, expected: object
    ) -> None:
        found = self.constant(save, **attribute)
        assert (found.name, found.dtype, found.shape) == ("c", dtype, np.shape(expected))
        np.testing.assert_array_equal(found.read(), expected)

    def test_an_empty_list_of_integers_holds_integers(self, save: Save) -> None:
        proto = small(save)
        empty = onnx.AttributeProto(name="value_ints", type=onnx.AttributeProto.INTS)
        proto.graph.node.append(onnx.NodeProto(op_type="Constant", output=["c"], attribute=[empty]))
        found = load(save(proto)).constants["c"]
        assert (found.dtype, found.shape) == (DType.I64, (0,))

    def test_a_sparse_value_is_refused(self, save: Save) -> None:
        values = numpy_helper.from_array(np.array([1.0], np.float32), "v")
        indices = numpy_helper.from_array(np.array([0], np.int64), "at")
        with pytest.raises(UnsupportedError, match="without a dense value"):
            self.constant(save, sparse_value=helper.make_sparse_tensor(values, indices, [4]))

    @staticmethod
    def constant(save: Save, **attribute: object):  # type: ignore[no-untyped-def]
        proto = small(save)
        proto.graph.node.append(helper.make_node("Constant", [], ["c"], **attribute))
        return load(save(proto)).constants["c"]


class TestSubgraphs:
    TEXT = """
    g (float[2] x, bool c) => (float[2] y)
    <float[2] w = {1, 2}>
    {
        h = Relu (x)
        y = If (c) <
            then_branch = then () => (float[2] a) { t = Add (h, w) a = Relu (t) },
            else_branch = other () => (float[2] e) {
                e = If (c) <
                    then_branch = inner () => (float[2] i) { i = Mul (x, w) },
                    else_branch = plain () => (float[2] j) { j = Identity (h) }
                >
            }
        >
    }
    """

    def test_what_they_take_from_outside_and_their_nodes_are_kept(self, save: Save) -> None:
        found = dict(subgraphs(load(save(self.TEXT)).nodes[1]))
        assert {name: inner.reads for name, inner in found.items()} == {
            "then_branch": ("h", "w"),
            "else_branch": ("c", "x", "w", "h"),
        }
        ops = {name: [node.op for node in inner.nodes] for name, inner in found.items()}
        assert ops == {"then_branch": ["Add", "Relu"], "else_branch": ["If"]}
        inside = [
            [node.op for node in g.nodes] for _, g in subgraphs(found["else_branch"].nodes[0])
        ]
        assert inside == [["Mul"], ["Identity"]]

    def test_an_output_taken_directly_from_outside_is_a_read(self, save: Save) -> None:
        proto = onnx.load(save(self.TEXT))
        branch = next(a.g for a in proto.graph.node[1].attribute if a.name == "then_branch")
        del branch.node[:]
        branch.output[0].name = "h"
        found = dict(subgraphs(load(save(proto)).nodes[1]))
        assert (found["then_branch"].reads, found["then_branch"].nodes) == (("h",), ())

    def test_they_have_nodes_and_constants_as_a_model_has(self, save: Save) -> None:
        text = """
        g (float[2] x, int64 n, bool yes) => (float[2] y) {
            y = Loop (n, yes, x) <
                body = b (int64 i, bool go, float[2] a) => (bool on, float[2] z)
                <float[2] w = {1, 2}> {
                    half = Constant <value_float = 0.5> ()
                    on = Identity (go)
                    s = Mul (a, half)
                    z = Add (s, w)
                }
            >
        }
        """
        ((name, body),) = subgraphs(load(save(text)).nodes[0])
        assert (name, body.inputs, body.outputs) == ("body", ("i", "go", "a"), ("on", "z"))
        assert [node.op for node in body.nodes] == ["Constant", "Identity", "Mul", "Add"]
        assert {n: t.shape for n, t in body.constants.items()} == {"w": (2,), "half": ()}
        assert body.reads == ()

    @pytest.mark.parametrize(
        ("old", "new", "cause"),
        [
            ("Add (h, w)", "Add (h, nowhere)", "nothing produces the tensor 'nowhere'"),
            ("Add (h, w)", "Add (h)", "a node has not the inputs and outputs of its kind: Add"),
            ("a = Relu (t)", "t = Relu (t)", "the tensor 't' is produced twice"),
            ("a = Relu (t)", "s = Relu (t)", "nothing produces the output 'a'"),
        ],
    )
    def test_what_is_broken_in_one_is_refused(
        self, old: str, new: str, cause: str, save: Save
    ) -> None:
        with pytest.raises(NotAModelError) as caught:
            load(save(self.TEXT.replace(old, new)))
        assert cause in str(caught.value)
        assert "then_branch of node 1" in (caught.value.where or "")

    def test_what_cannot_be_read_in_one_is_told_with_its_place(self, save: Save) -> None:
        values = numpy_helper.from_array(np.ones(1, np.float32), "sparse")
        sparse = helper.make_sparse_tensor(
            values, numpy_helper.from_array(np.ones(1, np.int64), "places"), [2]
        )

        def refused(change: str) -> str:
            proto = onnx.load(save(self.TEXT))
            branch = next(a.g for a in proto.graph.node[1].attribute if a.name == "then_branch")
            if change == "initializers":
                for _ in range(2):
                    branch.initializer.add(name="n", data_type=1)
            elif change == "sparse":
                branch.sparse_initializer.append(sparse)
            else:
                constant = helper.make_node("Constant", [], ["n"], sparse_value=sparse)
                branch.node.append(constant)
            with pytest.raises((NotAModelError, UnsupportedError)) as caught:
                load(save(proto))
            return caught.value.where or ""

        assert refused("initializers") == "then_branch of node 1"
        assert refused("sparse") == "then_branch of node 1"
        assert refused("constant") == 'node 2 (Constant) -> "n", in then_branch of node 1'


class TestExternalData:
    @pytest.fixture
    def split(self, save: Save, tmp_path: Path) -> Path:
        """A model in a folder of its own, all initializers in ``model.onnx.data``."""
        (tmp_path / "split").mkdir()
        path = tmp_path / "split" / "model.onnx"
        onnx.save(
            small(save),
            path,
            save_as_external_data=True,
            location="model.onnx.data",
            size_threshold=0,
        )
        return path

    @staticmethod
    def edit(path: Path, **entries: str) -> None:
        """Change where the first initializer says that its bytes are."""
        proto = onnx.load(path, load_external_data=False)
        for entry in proto.graph.initializer[0].external_data:
            entry.value = entries.pop(entry.key, entry.value)
        for key, value in entries.items():
            proto.graph.initializer[0].external_data.add(key=key, value=value)
        path.write_bytes(proto.SerializeToString())

    def test_gives_the_same_values_as_one_file(self, save: Save, split: Path) -> None:
        together = load(save(small(save)))
        assert not any(t.external_data for t in together.proto.graph.initializer)
        assert signature(load(split)) == signature(together)

    def test_is_a_span_of_the_data_file(self, split: Path) -> None:
        tensor = load(split).constants["w"]
        span = tensor.span()
        assert span is not None
        assert span.path == split.with_name("model.onnx.data")
        assert span.path.read_bytes()[span.offset :][: span.length] == tensor.read().tobytes()

    def test_is_not_read_before_it_is_asked_for(self, split: Path) -> None:
        model = load(split)
        data = split.with_name("model.onnx.data")
        data.write_bytes(b"\0" * data.stat().st_size)
        assert not model.constants["w"].read().any()

    def test_offset_and_length_may_be_left_out(self, split: Path) -> None:
        expected = load(split).constants["w"].read()
        proto = onnx.load(split, load_external_data=False)
        entries = proto.graph.initializer[0].external_data
        kept = [entry for entry in entries if entry.key == "location"]
        del entries[:]
        entries.extend(kept)
        split.write_bytes(proto.SerializeToString())
        data = split.with_name("model.onnx.data")
        data.write_bytes(expected.tobytes() + data.read_bytes())
        np.testing.assert_array_equal(load(split).constants["w"].read(), expected)

    def test_is_found_in_a_cache_of_links(self, split: Path, tmp_path: Path) -> None:
        # The layout of a Hugging Face cache: links in snapshots/, hash-named files in blobs/.
        expected = signature(load(split))
        blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0a1b"
        blobs.mkdir()
        snapshot.mkdir(parents=True)
        for name, digest in (("model.onnx", "c0ffee"), ("model.onnx.data", "decade")):
            shutil.move(split.with_name(name), blobs / digest)
            (snapshot / name).symlink_to(Path("../../blobs", digest))
        assert signature(load(snapshot / "model.onnx")) == expected

    def test_is_found_beside_the_file_that_a_link_leads_to(
        self, split: Path, tmp_path: Path
    ) -> None:
        link = tmp_path / "current.onnx"
        link.symlink_to(split)
        assert signature(load(link)) == signature(load(split))

    def test_missing_data_is_named_with_the_place_it_should_have(self, split: Path) -> None:
        split.with_name("model.onnx.data").unlink()
        with pytest.raises(NotAModelError, match="external weights are missing") as caught:
            load(split)
        assert caught.value.file == str(split.with_name("model.onnx.data"))
        assert caught.value.where == "initializer 'w'"
        assert caught.value.todo == "put model.onnx.data beside the model"

    def test_cut_data_is_refused_before_it_is_read(self, split: Path) -> None:
        data = split.with_name("model.onnx.data")
        last = max(
            int(entry.value)
            for tensor in onnx.load(split, load_external_data=False).graph.initializer
            for entry in tensor.external_data
            if entry.key == "offset"
        )
        data.write_bytes(data.read_bytes()[: last + 4])
        with pytest.raises(NotAModelError, match="do not fit") as caught:
            load(split)
        assert caught.value.file == str(data)
        assert f"file of {last + 4}" in (caught.value.found or "")
        assert "cut" in (caught.value.todo or "")

    @pytest.mark.parametrize(
        "entries",
        [
            {"length": "68"},
            {"length": "76"},
            {"offset": "-4"},
            {"offset": "100000"},
            {"offset": "four"},
            {"length": "all"},
        ],
        ids=str,
    )
    def test_a_place_that_does_not_fit_the_shape_is_refused(
        self, split: Path, entries: dict[str, str]
    ) -> None:
        self.edit(split, **entries)
        with pytest.raises(NotAModelError, match="initializer 'w'"):
            load(split)

    @pytest.mark.parametrize("outside", ["../secret.bin", "a/../../secret.bin", "/etc/passwd", ""])
    def test_a_path_outside_the_folder_is_refused(
        self, split: Path, tmp_path: Path, outside: str
    ) -> None:
        (tmp_path / "secret.bin").write_bytes(b"\0" * 1000)
        (split.parent / "a").mkdir()
        self.edit(split, location=outside, offset="0")
        with pytest.raises(NotAModelError, match="outside the model's folder") as caught:
            load(split)
        assert caught.value.found == (outside or "no location")

    def test_the_value_of_a_constant_node_may_be_outside(self, split: Path) -> None:
        expected = load(split).constants["w"].read()
        proto = onnx.load(split, load_external_data=False)
        moved = proto.graph.initializer.pop(0)
        proto.graph.node.append(helper.make_node("Constant", [], ["w"], value=moved))
        split.write_bytes(proto.SerializeToString())
        np.testing.assert_array_equal(load(split).constants["w"].read(), expected)


@pytest.mark.parametrize("name", catalog.names(committed=True))
def test_values_are_those_that_the_onnx_package_reads(name: str) -> None:
    model = load(catalog.path(name))
    for tensor in onnx.load(catalog.path(name)).graph.initializer:
        found = model.constants[tensor.name]
        expected = numpy_helper.to_array(tensor)
        assert found.shape == expected.shape
        assert found.read().tobytes() == expected.tobytes()


def test_a_loaded_model_makes_a_graph(save: Save) -> None:
    assert len(build(load(save(SMALL))).net) == 2
