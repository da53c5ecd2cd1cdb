"""What is written is the same model: its bytes, its weights in one file or two, whole or not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from fixtures import catalog
from graphtools.errors import NotAModelError, StorageError, UnsupportedError, UsageError
from graphtools.graph import Graph, build
from graphtools.onnx_file import load
from graphtools.onnx_save import data_path, save_annotated, save_part
from graphtools.tensors import Array

Parse = Callable[..., Graph]
Save = Callable[..., Path]

TWO = """
g (float[1, 40] x) => (float[1, 40] y) <float[40, 40] w, float[40, 40] v, float half = {0.5}>
{
    [one] a = MatMul (x, w)
    b = Mul (a, half)
    y = MatMul (b, v)
}
"""


def run(path: Path, **feeds: Array) -> list[Array]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, feeds)
    return found


def x(seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(1, 40)).astype(np.float32)


@pytest.fixture
def split(save: Save, tmp_path: Path) -> Path:
    """The model with its weights, all of them, in another file."""
    proto = onnx.load(save(TWO))
    (tmp_path / "source").mkdir()
    path = tmp_path / "source" / "split.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="split.bin", size_threshold=0)
    return path


class TestParts:
    def test_declares_what_it_takes_and_gives(self, parse: Parse, tmp_path: Path) -> None:
        graph = parse(TWO.replace("[1, 40] x", "[N, 40] x").replace("[1, 40] y", "[N, 40] y"))
        proto = onnx.load(save_part(graph, ["a"], ["b"], tmp_path / "part.onnx")[0])
        for value in (proto.graph.input[0], proto.graph.output[0]):
            kind = value.type.tensor_type
            assert kind.elem_type == TensorProto.FLOAT
            assert [d.dim_param or d.dim_value for d in kind.shape.dim] == ["N", 40]
        assert [t.name for t in proto.graph.initializer] == ["half"]
        assert proto.opset_import == graph.model.proto.opset_import
        assert proto.ir_version == graph.model.ir_version

    def test_what_an_unknown_operator_gives_is_asked_of_onnxruntime(
        self, parse: Parse, tmp_path: Path
    ) -> None:
        graph = parse(
            """
            g (int64[2, 3] x) => (double[2, 3] y)
            { a = Cast <to = 11> (x) b = com.microsoft.Trilu (a) y = Neg (b) }
            """
        )
        proto = onnx.load(save_part(graph, ["b"], ["y"], tmp_path / "part.onnx")[0])
        assert proto.graph.input[0].type.tensor_type.elem_type == TensorProto.DOUBLE

    def test_functions_come_along(self, tmp_path: Path) -> None:
        path = tmp_path / "functions.onnx"
        proto = onnx.parser.parse_model(
            """
            <ir_version: 10, opset_import: ["" : 17, "local" : 1]>
            g (float[2] x) => (float[2] y) { a = Neg (x) y = local.twice (a) }
            <domain: "local", opset_import: ["" : 17]>
            twice (v) => (w) { w = Add (v, v) }
            """
        )
        path.write_bytes(proto.SerializeToString())
        part, *_ = save_part(build(load(path)), ["a"], ["y"], tmp_path / "part.onnx")
        assert run(part, a=np.ones(2, np.float32))[0].tolist() == [2, 2]

    def test_a_type_that_nobody_knows_is_refused(self, parse: Parse, tmp_path: Path) -> None:
        graph = parse(
            "g (float[2] x) => (float[2] y) { a = nobody.Op (x) y = Neg (a) }".replace(
                "nobody.", "com.microsoft."
            )
        )
        with pytest.raises(UnsupportedError):
            save_part(graph, ["a"], ["y"], tmp_path / "part.onnx")
        assert [p.name for p in tmp_path.iterdir()] == ["hand_made_0.onnx"]

    def test_a_model_of_halves_is_not_asked(self, save: Save, tmp_path: Path) -> None:
        """It would be run widened, and tell the wrong type."""
        text = """
            g (float16[1, 3] x) => (float16[1, 3] y) <float16[3] w>
            { a = Add (x, w) b = com.microsoft.Trilu (a) y = Neg (b) }
            """
        graph = build(load(save(text)))
        with pytest.raises(UnsupportedError, match="element type of the tensor 'b'"):
            save_part(graph, ["b"], ["y"], tmp_path / "part.onnx")

    def test_no_shape_is_worth_reading_all_weights(self, split: Path, tmp_path: Path) -> None:
        graph = build(load(split))
        save_part(graph, ["a"], ["y"], tmp_path / "part.onnx")
        assert "values" not in vars(graph)  # for which a model with unknown shapes is run


class TestNotes:
    def test_are_at_the_nodes(self, parse: Parse, tmp_path: Path) -> None:
        model = parse(TWO, ir_version=8).model
        notes = {0: {"namespace": "a/b"}, 2: {"namespace": 'c "<&\n'}}
        path, *_ = save_annotated(model, notes, tmp_path / "out.onnx")
        proto = onnx.load(path)
        found = [{p.key: p.value for p in node.metadata_props} for node in proto.graph.node]
        assert found == [notes[0], {}, notes[2]]
        assert proto.ir_version == 10
        assert load(path).ir_version == 10

    def test_nothing_else_changes(self, parse: Parse, tmp_path: Path) -> None:
        model = parse(TWO, ir_version=10).model
        path, *_ = save_annotated(model, {0: {"k": "v"}}, tmp_path / "out.onnx")
        proto = onnx.load(path)
        assert not model.proto.graph.node[0].metadata_props  # the loaded model stays as it is
        del proto.graph.node[0].metadata_props[:]
        assert proto == model.proto

    def test_a_key_that_is_there_is_replaced_and_others_stay(
        self, save: Save, tmp_path: Path
    ) -> None:
        proto = onnx.load(save(TWO, ir_version=11))
        for key in ("namespace", "pkg.torch.onnx.stack_trace"):
            proto.graph.node[0].metadata_props.add(key=key, value="old")
        model = load(save(proto))
        path, *_ = save_annotated(model, {0: {"namespace": "new"}}, tmp_path / "out.onnx")
        found = onnx.load(path)
        assert {p.key: p.value for p in found.graph.node[0].metadata_props} == {
            "namespace": "new",
            "pkg.torch.onnx.stack_trace": "old",
        }
        assert found.ir_version == 11

    def test_before_ir_4_initializers_were_constants_and_stay_that(
        self, save: Save, tmp_path: Path
    ) -> None:
        proto = onnx.load(save(TWO, ir_version=3))
        for tensor in proto.graph.initializer:
            proto.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
        source = save(proto)
        path, *_ = save_annotated(load(source), {0: {"k": "v"}}, tmp_path / "out.onnx")
        assert [v.name for v in onnx.load(path).graph.input] == ["x"]
        np.testing.assert_array_equal(run(path, x=x())[0], run(source, x=x())[0])

    def test_the_same_call_gives_the_same_bytes(self, split: Path, tmp_path: Path) -> None:
        model = load(split)
        paths = [
            save_annotated(model, {}, tmp_path / name / "o.onnx")[0] for name in folders(tmp_path)
        ]
        assert paths[0].read_bytes() == paths[1].read_bytes()
        assert data_path(paths[0]).read_bytes() == data_path(paths[1]).read_bytes()


def folders(parent: Path) -> tuple[str, str]:
    for name in ("one", "two"):
        (parent / name).mkdir()
    return "one", "two"


class TestTwoFiles:
    def test_weights_in_another_file_are_copied_to_one_beside_it(
        self, split: Path, tmp_path: Path
    ) -> None:
        path, *_ = save_annotated(load(split), {0: {"k": "v"}}, tmp_path / "out.onnx")
        proto = onnx.load(path, load_external_data=False)
        places = {
            t.name: {e.key: e.value for e in t.external_data} for t in proto.graph.initializer
        }
        assert places == {
            "w": {"location": "out.onnx.data", "offset": "0", "length": "6400"},
            "v": {"location": "out.onnx.data", "offset": "8192", "length": "6400"},
            "half": {},  # small ones are in the model, which shape inference needs
        }
        whole, found = onnx.load(split), onnx.load(path)
        for a, b in zip(whole.graph.initializer, found.graph.initializer, strict=True):
            np.testing.assert_array_equal(numpy_helper.to_array(a), numpy_helper.to_array(b))
        np.testing.assert_array_equal(run(path, x=x())[0], run(split, x=x())[0])

    def test_a_part_has_its_own_weights_alone(self, split: Path, tmp_path: Path) -> None:
        path = build(load(split)).subgraph("b", "y").save(tmp_path / "part.onnx")
        assert data_path(path).stat().st_size == 6400
        w = load(path).constants["v"].read()
        np.testing.assert_array_equal(w, load(split).constants["v"].read())
        np.testing.assert_allclose(run(path, b=x())[0], x() @ w, rtol=1e-4, atol=1e-5)

    def test_a_part_without_weights_is_one_file(self, split: Path, tmp_path: Path) -> None:
        path = build(load(split)).subgraph("a", "b").save(tmp_path / "part.onnx")
        assert run(path, a=x())[0].tolist() == (x() * np.float32(0.5)).tolist()

    @pytest.mark.parametrize(
        ("kind", "raw"),
        [
            (TensorProto.FLOAT, True),
            (TensorProto.FLOAT, False),
            (TensorProto.FLOAT16, True),
            (TensorProto.FLOAT16, False),
            (TensorProto.BFLOAT16, True),
        ],
    )
    def test_weights_that_pass_the_limit_go_out(self, tmp_path: Path, kind: int, raw: bool) -> None:
        """Whether the source has them as plain bytes or in fields by type."""
        values = np.random.default_rng(0).normal(size=1600)
        weight = helper.make_tensor("w", kind, [40, 40], values.tolist())
        width = 4 if kind == TensorProto.FLOAT else 2
        plain = numpy_helper.to_array(weight).view(f"u{width}").astype(f"<u{width}").tobytes()
        if raw:
            weight = helper.make_tensor("w", kind, [40, 40], plain, raw=True)
        ends = [helper.make_tensor_value_info(n, kind, [1, 40]) for n in "xy"]
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight]
        )
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset), tmp_path / "source.onnx")
        model = load(tmp_path / "source.onnx")
        inside = save_annotated(model, {}, tmp_path / "inside.onnx", limit=7000)
        assert inside == (tmp_path / "inside.onnx",)
        path, data = save_annotated(model, {}, tmp_path / "outside.onnx", limit=3000)
        assert data.read_bytes() == plain
        np.testing.assert_array_equal(load(path).constants["w"], model.constants["w"])

    def test_what_a_subgraph_has_in_another_file_comes_along(
        self, save: Save, tmp_path: Path
    ) -> None:
        branch = "(float[1, 40] {0}) <float[40, 40] {1}> {{ {0} = MatMul (h, {1}) }}"
        text = f"""
            g (float[1, 40] x) => (float[1, 40] y) <bool yes = {{1}}>
            {{
                h = Neg (x)
                y = If (yes) <
                    then_branch = a () => {branch.format("p", "pw")},
                    else_branch = b () => {branch.format("q", "qw")}
                >
            }}
            """
        proto = onnx.load(save(text))
        values = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
        for attribute in proto.graph.node[1].attribute:
            name = "pw" if attribute.name == "then_branch" else "qw"
            del attribute.g.value_info[:]
            attribute.g.initializer.append(numpy_helper.from_array(values, name))
            onnx.external_data_helper.set_external_data(
                attribute.g.initializer[0], "branches.bin", offset=0, length=6400
            )
            attribute.g.initializer[0].ClearField("raw_data")
        source = save(proto)
        (tmp_path / "branches.bin").write_bytes(values.tobytes())
        (tmp_path / "elsewhere").mkdir()
        path, *_ = save_annotated(load(source), {}, tmp_path / "elsewhere" / "out.onnx")
        assert data_path(path).stat().st_size == 4096 * 2 + 6400
        found = onnx.load(path)
        for attribute in found.graph.node[1].attribute:
            array = numpy_helper.to_array(attribute.g.initializer[0])
            np.testing.assert_array_equal(array, values)

    def test_so_does_what_an_attribute_has(self, tmp_path: Path) -> None:
        values = np.random.default_rng(0).normal(size=1600).astype(np.float32)
        (tmp_path / "table.bin").write_bytes(values.tobytes())
        proto = onnx.parser.parse_model(
            """
            <ir_version: 10, opset_import: ["" : 17, "other" : 1]>
            g (float[2] x) => (float[2] y) { y = other.Lookup (x) }
            """
        )
        table = numpy_helper.from_array(values, "table")
        onnx.external_data_helper.set_external_data(table, "table.bin")
        table.ClearField("raw_data")
        proto.graph.node[0].attribute.append(helper.make_attribute("tables", [table]))
        (tmp_path / "source.onnx").write_bytes(proto.SerializeToString())
        (tmp_path / "elsewhere").mkdir()
        _, data = save_annotated(load(tmp_path / "source.onnx"), {}, tmp_path / "elsewhere" / "o")
        assert data.read_bytes() == values.tobytes()


class TestWholeOrNotAtAll:
    def test_the_source_is_never_replaced(self, split: Path, tmp_path: Path) -> None:
        model = load(split)
        for output in (split, split.with_name("split.bin")):
            with pytest.raises(UsageError, match="would replace an input"):
                save_annotated(model, {}, output)
        (tmp_path / "link.onnx.data").symlink_to(split.with_name("split.bin"))
        with pytest.raises(UsageError, match="would replace an input"):
            save_annotated(model, {}, tmp_path / "link.onnx")
        run(split, x=x())

    def test_a_source_that_ends_early_leaves_what_was_there(
        self, split: Path, tmp_path: Path
    ) -> None:
        model = load(split)
        out = tmp_path / "out.onnx"
        save_annotated(model, {}, out)
        before = out.read_bytes(), data_path(out).read_bytes()
        os.truncate(split.with_name("split.bin"), 7000)
        with pytest.raises(NotAModelError):
            save_annotated(model, {0: {"k": "v"}}, out)
        assert (out.read_bytes(), data_path(out).read_bytes()) == before
        assert sorted(p.name for p in tmp_path.glob("*out*")) == ["out.onnx", "out.onnx.data"]

    def test_a_folder_that_is_not_there(self, split: Path, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="cannot write"):
            save_annotated(load(split), {}, tmp_path / "no" / "out.onnx")

    def test_a_name_that_no_model_can_hold(self, split: Path, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="not UTF-8"):
            save_annotated(load(split), {}, tmp_path / "out\udcff.onnx")


LARGE, SIDE = 8, 8200  # weights of 269 MB
MEASURED = """
import re, sys
from pathlib import Path
from graphtools.graph import build
from graphtools.onnx_file import load
part = build(load(sys.argv[1])).subgraph("t0", sys.argv[3])
part.save(sys.argv[2])
# Not ru_maxrss, which begins at what the process that started this one takes.
print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    """2.4 GB of weights that no disk has to hold: the data file is sparse."""
    size = SIDE * SIDE * 4
    weights = []
    for i in range(LARGE + 1):
        weight = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE])
        weight.data_location = TensorProto.EXTERNAL
        places = {"location": "large.bin", "offset": i * size, "length": size}
        for key, value in places.items():
            weight.external_data.add(key=key, value=str(value))
        weights.append(weight)
    names = ["x", *(f"t{i}" for i in range(LARGE + 1))]
    nodes = [
        helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(LARGE + 1)
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, SIDE]) for n in names]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[-1:], weights)
    opset = [helper.make_opsetid("", 17)]
    proto = helper.make_model(graph, opset_imports=opset, ir_version=8)
    onnx.save(proto, tmp_path / "large.onnx")
    with (tmp_path / "large.bin").open("wb") as stream:
        for i in range(LARGE + 1):
            stream.seek(i * size + 4 * i)
            stream.write(np.float32(i + 1).tobytes())
        stream.truncate((LARGE + 1) * size)
    yield tmp_path / "large.onnx"
    data_path(tmp_path / "part.onnx").unlink()  # what is written is not sparse


@pytest.mark.slow
def test_above_2_gb_in_little_memory(large: Path, tmp_path: Path) -> None:
    output = tmp_path / "part.onnx"
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, large, output, f"t{LARGE}"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(catalog.HERE.parent)},
    )
    assert int(done.stdout) < 150_000  # KiB; measured: 72_000, most of it imports
    assert data_path(output).stat().st_size > 2**31
    model = load(output)
    assert [node.op for node in model.nodes] == ["MatMul"] * LARGE
    for i in range(1, LARGE + 1):
        span = model.constants[f"w{i}"].span()
        assert span is not None
        assert span.path == data_path(output)
        first = np.fromfile(span.path, "<f4", LARGE + 2, offset=span.offset)
        assert first.tolist() == [i + 1.0 if at == i else 0.0 for at in range(LARGE + 2)]
