"""Goldens of any ONNX model: what was asked for, as onnxruntime has it, in three forms."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from converters import gguf_file
from converters.arrays import Arrays, open_arrays
from converters.baseline import baseline
from converters.comparison import compare
from converters.emit import emit_goldens
from converters.golden_taps import Plan, golden_taps
from converters.goldens import ARCHITECTURE, golden_array, golden_entries
from converters.manifest import Entry, Manifest
from fixtures import catalog
from graphtools.errors import NotAModelError, UnsupportedError, UsageError
from graphtools.tensors import DType, Held, LazyTensor

FORMS = ["gguf", "npz", "folder"]
LONG = "/encoder/" + "x" * 80


def output(folder: Path, form: str) -> Path:
    return folder / ("goldens" if form == "folder" else f"goldens.{form}")


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """Names as files may not have them, a scalar, five axes, integers that float32 lacks, NaN."""
    made = {
        f"{LONG}/a": ("Relu", ["x"]),
        f"{LONG}/b": ("Neg", ["x"]),
        "../up": ("Abs", ["x"]),
        "a\tb": ("Exp", ["x"]),
        "a%09b": ("Sin", ["x"]),
        "five": ("Reshape", ["x", "axes"]),
        "kept": ("Identity", ["big"]),
        "strange": ("Log", ["x"]),
        "y": ("Identity", ["x"]),
    }
    nodes = [helper.make_node(op, ins, [name]) for name, (op, ins) in made.items()]
    nodes.append(helper.make_node("ReduceSum", ["x"], ["scalar"], keepdims=0))
    axes = helper.make_tensor("axes", onnx.TensorProto.INT64, [5], [1, 1, 1, 1, -1])
    big = helper.make_tensor("big", onnx.TensorProto.INT64, [], [2**24 + 1])
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, "N"]) for n in "xy"]
    graph = helper.make_graph(nodes, "strange", values[:1], values[1:], [axes, big])
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path / "strange.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    np.save(tmp_path / "x.npy", np.array([[-1.0, 0.0, 1.0, 2.0]]))
    return path


def strange_taps(model: Path, form: str, **options: Any) -> Arrays:
    folder = model.parent
    done = golden_taps(
        model, output(folder, form), inputs={"x": folder / "x.npy"}, taps=["all"], **options
    )
    assert {*done.omitted} == ({"kept"} if form == "gguf" else set())
    assert bool(done) == (form != "gguf")
    return open_arrays(done.output)


@pytest.mark.parametrize("form", FORMS)
class TestForms:
    def test_names_and_shapes_come_back_as_they_were(self, strange: Path, form: str) -> None:
        arrays = strange_taps(strange, form)
        x = np.array([[-1.0, 0.0, 1.0, 2.0]], np.float32)
        wanted = {
            "x": x,
            f"{LONG}/a": np.maximum(x, 0.0),
            f"{LONG}/b": -x,
            "../up": np.abs(x),
            "a\tb": np.exp(x),
            "a%09b": np.sin(x),
            "scalar": np.float32(2.0),
            "five": x.reshape(1, 1, 1, 1, 4),
            "y": x,
        }
        for name, value in wanted.items():
            found = arrays.read(name)
            assert found.shape == np.shape(value), name
            np.testing.assert_allclose(found, value, rtol=1e-6)
        assert arrays.read("five").dtype == np.float32
        if form != "gguf":
            assert arrays.read("kept").dtype == np.int64
            assert arrays.read("kept") == 2**24 + 1

    def test_keys_say_where_it_all_came_from(self, strange: Path, form: str) -> None:
        manifest = strange_taps(strange, form).manifest
        assert manifest is not None
        assert manifest.architecture == "voicedetect-baseline"
        get = manifest.get
        assert get("baseline.model_sha256", "string") == digest(strange.read_bytes())
        assert get("baseline.reference", "string") == f"onnxruntime {onnxruntime.__version__}"
        assert get("baseline.provider", "string") == "CPUExecutionProvider"
        assert f"numpy {np.__version__}" in get("baseline.versions", "[string]")
        assert get("baseline.inputs", "[string]") == ("x",)
        assert get("baseline.input_sources", "[string]") == ("x.npy",)
        fed = np.array([[-1.0, 0.0, 1.0, 2.0]], "<f4").tobytes()
        assert get("baseline.input_sha256", "[string]") == (digest(fed),)
        names = get("baseline.tensors", "[string]")
        nans = dict(zip(names, get("baseline.nan_counts", "[u64]"), strict=True))
        infinite = dict(zip(names, get("baseline.inf_counts", "[u64]"), strict=True))
        assert (nans["strange"], infinite["strange"]) == (1, 1)  # the logarithms of -1 and 0
        assert sum(nans.values()) == sum(infinite.values()) == 1
        if form == "gguf":
            (line,) = get("baseline.omitted", "[string]")
            assert line.startswith("kept: integers")
        else:
            assert "baseline.omitted" not in manifest.by_key

    def test_the_same_input_gives_the_same_bytes(
        self, strange: Path, form: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def files() -> dict[str, str]:
            there = output(strange.parent, form)
            listed = there.rglob("*") if there.is_dir() else [there]
            return {p.name: digest(p.read_bytes()) for p in listed}

        strange_taps(strange, form, name="model")
        first = files()
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
        strange_taps(strange, form, name="model")
        assert files() == first

    def test_nothing_stays_of_a_run_that_failed(self, strange: Path, form: str) -> None:
        before = {*strange.parent.iterdir()}
        with pytest.raises(UnsupportedError):
            golden_taps(
                strange,
                output(strange.parent, form),
                seed=0,
                dims={"N": 10**6},
                taps=["all"],
                max_memory=2**20,
            )
        assert {*strange.parent.iterdir()} == before

    def test_goldens_are_compared_with_those_of_another_form(
        self, strange: Path, form: str
    ) -> None:
        strange_taps(strange, form)
        ours = output(strange.parent, "npz" if form == "gguf" else "gguf")
        strange_taps(strange, "npz" if form == "gguf" else "gguf")
        found = compare(output(strange.parent, form), ours)
        assert [row.name for row in found.rows if row.problem] in ([], ["kept"])


class TestGguf:
    def test_names_are_safe_for_ggml(self, strange: Path) -> None:
        strange_taps(strange, "gguf")
        names = [t.name for t in gguf_file.read(output(strange.parent, "gguf")).tensors]
        assert len({*names}) == len(names)
        assert max(len(name.encode()) for name in names) < 64
        assert all(name.isprintable() for name in names)

    def test_a_scalar_has_one_axis_and_five_axes_become_four(self, strange: Path) -> None:
        strange_taps(strange, "gguf")
        stored = gguf_file.read(output(strange.parent, "gguf")).by_name
        assert stored["scalar"].shape == (1,)
        assert stored["five"].shape == (1, 1, 1, 4)


def test_a_comparison_names_the_weights_of_the_first_wrong_tensor(tmp_path: Path) -> None:
    model, rng = catalog.path("resnet34_tiny"), np.random.default_rng(0)
    golden_taps(model, tmp_path / "g.npz", seed=0, dims={"T": 50}, taps=["layer*"])
    arrays = open_arrays(tmp_path / "g.npz")
    ours = {name: arrays.read(name) for name in arrays.readers}
    assert arrays.manifest is not None
    names = arrays.manifest.get("baseline.tensors", "[string]")
    stages = arrays.manifest.get("baseline.tap_stages", "[string]")
    wrong = names[stages.index("layer2.0")]
    ours[wrong] = rng.normal(size=ours[wrong].shape)
    found = compare(tmp_path / "g.npz", ours)
    assert found.first is not None
    assert found.first.stage == "layer2.0"
    # conv1, conv2 and the shortcut, each folded with its batch norm.
    assert len(found.weights[wrong]) == 6
    assert "onnx::Conv_" in found.weights[wrong][0]


class TestFolder:
    def test_files_have_plain_names_in_one_folder(self, strange: Path) -> None:
        strange_taps(strange, "folder")
        names = sorted(p.name for p in output(strange.parent, "folder").iterdir())
        assert "baseline.json" in names
        assert "...up.npy" in names
        assert len(names) == 12

    def test_another_folder_is_not_replaced(self, strange: Path) -> None:
        there = output(strange.parent, "folder")
        there.mkdir()
        (there / "thesis.txt").write_text("mine")
        with pytest.raises(UsageError, match="holds other things"):
            strange_taps(strange, "folder")
        assert (there / "thesis.txt").read_text() == "mine"

    def test_another_file_in_the_folder_is_kept(self, strange: Path) -> None:
        strange_taps(strange, "folder")
        mine = output(strange.parent, "folder") / "mine.npy"
        mine.write_bytes(b"mine")
        with pytest.raises(UsageError, match="holds other things than goldens"):
            strange_taps(strange, "folder")
        assert mine.read_bytes() == b"mine"

    def test_what_is_no_folder_is_kept(self, strange: Path) -> None:
        there = output(strange.parent, "folder")
        os.mkfifo(there)
        with pytest.raises(UsageError, match="is no folder"):
            strange_taps(strange, "folder")
        assert there.is_fifo()

    def test_behind_a_link_stays_there(self, strange: Path) -> None:
        there = output(strange.parent, "folder")
        (strange.parent / "real").mkdir()
        there.symlink_to("real")
        strange_taps(strange, "folder")
        assert there.is_symlink()
        assert (strange.parent / "real" / "baseline.json").is_file()
        assert not [p.name for p in strange.parent.iterdir() if p.name.startswith(".")]

    def test_a_tensor_that_was_removed_is_missed(self, strange: Path) -> None:
        strange_taps(strange, "folder")
        (output(strange.parent, "folder") / "y.npy").unlink()
        with pytest.raises(NotAModelError, match="missing"):
            open_arrays(output(strange.parent, "folder"))

    @pytest.mark.parametrize(
        "text",
        ["", "[]", "{}", "null", '{"keys": {}, "files": [], "name": "", "architecture": ""}'],
    )
    def test_damaged_keys_are_refused(self, strange: Path, text: str) -> None:
        strange_taps(strange, "folder")
        (output(strange.parent, "folder") / "baseline.json").write_text(text)
        with pytest.raises(NotAModelError, match=r"baseline\.json"):
            open_arrays(output(strange.parent, "folder"))

    def test_a_file_outside_is_not_read(self, strange: Path) -> None:
        strange_taps(strange, "folder")
        keys = output(strange.parent, "folder") / "baseline.json"
        document = json.loads(keys.read_text())
        document["files"]["y"] = "../x.npy"
        keys.write_text(json.dumps(document))
        with pytest.raises(NotAModelError, match="missing"):
            open_arrays(output(strange.parent, "folder"))


class TestNetworks:
    def test_stages_by_default_where_a_network_is_recovered(self, tmp_path: Path) -> None:
        """The same values as the baseline of a clip has at its stages, and their names."""
        model = catalog.path("eres2net_tiny")
        done = golden_taps(model, tmp_path / "taps.gguf", audio=catalog.SPEECH)
        assert done.network.startswith("ERes2Net")
        baseline(model, catalog.SPEECH, tmp_path / "baseline.gguf")
        stages = open_arrays(tmp_path / "baseline.gguf")
        taps = open_arrays(tmp_path / "taps.gguf")
        assert stages.manifest is not None
        named = {row.stage: row for row in done.tensors if row.stage}
        assert {*named} == {*stages.manifest.get("baseline.stages", "[string]")}
        for stage, row in named.items():
            golden = stages.read(stage)
            np.testing.assert_array_equal(taps.read(row.name).reshape(golden.shape), golden)

    def test_the_segment_rule_is_pinned_in_a_recovered_network(self, tmp_path: Path) -> None:
        model = catalog.path("campplus_tiny")
        found = {}
        for rule in ("kernel", "valid"):
            path = tmp_path / f"{rule}.npz"
            golden_taps(model, path, audio=catalog.SPEECH, taps=["block1.0"], seg_pool=rule)  # type: ignore[arg-type]
            arrays = open_arrays(path)
            assert arrays.manifest is not None
            assert arrays.manifest.get("baseline.seg_pool", "string") == rule
            found[rule] = arrays.read([*arrays.readers][-1])
        assert np.abs(found["kernel"] - found["valid"]).max() > 1e-4

    def test_outputs_by_default_where_none_is(self, strange: Path) -> None:
        done = golden_taps(
            strange, strange.parent / "o.npz", inputs={"x": strange.parent / "x.npy"}
        )
        assert done.network == ""
        assert [row.name for row in done.tensors] == ["x", "y"]

    def test_a_clip_is_no_input_of_an_unknown_network(self, strange: Path) -> None:
        with pytest.raises(UsageError, match="recovered network"):
            golden_taps(strange, strange.parent / "o.npz", audio=catalog.SPEECH)

    def test_weights_in_other_files_are_part_of_the_digest(self, tmp_path: Path) -> None:
        proto = onnx.load(catalog.path("resnet34_tiny"))
        model = tmp_path / "external.onnx"
        onnx.save(
            proto, model, save_as_external_data=True, location="weights.bin", size_threshold=0
        )
        golden_taps(model, tmp_path / "o.npz", seed=0, dims={"T": 50}, taps=["stem"])
        arrays = open_arrays(tmp_path / "o.npz")
        assert arrays.manifest is not None
        wanted = [digest(p.read_bytes()) for p in (model, tmp_path / "weights.bin")]
        assert arrays.manifest.get("baseline.model_sha256", "string") == ",".join(wanted)
        onnx.save(
            onnx.load(catalog.path("resnet34_tiny")),
            tmp_path / "named.onnx",
            save_as_external_data=True,
            location="w.npz",
            size_threshold=0,
        )
        golden_taps(
            catalog.path("resnet34_tiny"), tmp_path / "i.npz", seed=0, dims={"T": 50}, taps=["stem"]
        )
        with pytest.raises(UsageError, match="replace an input"):
            golden_taps(tmp_path / "named.onnx", tmp_path / "w.npz", seed=0, dims={"T": 50})
        inside = open_arrays(tmp_path / "i.npz")
        for name in inside.readers:
            np.testing.assert_array_equal(arrays.read(name), inside.read(name))


class TestMemory:
    def test_the_plan_is_told_before_anything_is_computed(self, tmp_path: Path) -> None:
        plans: list[Plan] = []
        done = golden_taps(
            catalog.path("resnet34_tiny"),
            tmp_path / "o.npz",
            seed=0,
            dims={"T": 50},
            taps=["all"],
            planned=plans.append,
        )
        (plan,) = plans
        assert plan.tensors + 1 == len(done.tensors)
        arrays = open_arrays(done.output)
        assert plan.size == sum(arrays.read(name).nbytes for name in arrays.readers)

    @pytest.mark.slow
    def test_the_process_stays_under_what_it_may_take(self, tmp_path: Path) -> None:
        """200 MB of tensors in slices: less is held than in one run, and less than was said."""
        source = (
            "import re, sys; from pathlib import Path\n"
            "from converters.golden_taps import golden_taps\n"
            "runs = []\n"
            "golden_taps(Path(sys.argv[1]), Path(sys.argv[2]), seed=0, dims={'T': 4000},"
            " taps=['all'], max_memory=int(sys.argv[3]), planned=lambda p: runs.append(p.runs))\n"
            "status = Path('/proc/self/status').read_text()\n"
            "print(1024 * int(re.search(r'VmHWM:\\s*(\\d+)', status)[1]), *runs)\n"
        )
        peaks = {}
        for limit in (330 << 20, 4 << 30):
            arguments = (catalog.path("resnet34_tiny"), tmp_path / "o.gguf", str(limit))
            done = run_source(source, *arguments)
            peak, runs = map(int, done.split())
            peaks[runs] = peak
            assert peak < limit
        assert {*peaks} > {1}
        assert max(peaks) > 1
        assert peaks[max(peaks)] < peaks[1]

    @pytest.mark.slow
    def test_nothing_of_one_run_is_held_in_the_next(self, tmp_path: Path) -> None:
        """Three tensors as large as the memory allows, each in a run of its own.

        They are so large that malloc gives each freed one back at once: what the process takes
        is what it holds. That is the census of NaNs, a quarter of one tensor.
        """
        text = """
            <ir_version: 8, opset_import: ["" : 17]>
            g (float[N] x) => (float[N] y)
            { a = Neg (x) b = Abs (x) y = Add (a, b) }
        """
        onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
        source = (
            "import re, sys; from pathlib import Path\n"
            "from converters.golden_taps import golden_taps\n"
            "def peak(): return 1024 * int(re.search(r'VmHWM:\\s*(\\d+)',"
            " Path('/proc/self/status').read_text())[1])\n"
            "def planned(plan): print(peak(), plan.runs)\n"
            "golden_taps(Path(sys.argv[1]), Path(sys.argv[2]), seed=0, dims={'N': 15_000_000},"
            " taps=['all'], max_memory=int(sys.argv[3]), planned=planned)\n"
            "print(peak())\n"
        )
        paths = tmp_path / "m.onnx", tmp_path / "o.npz"
        model, *_ = map(int, run_source(source, *paths, str(4 << 30)).split())
        limit = model + 200_000_000  # each is 60 MB, and is held twice for a moment
        model, runs, peak = map(int, run_source(source, *paths, str(limit)).split())
        assert runs == 3
        assert peak < model + 30_000_000


class TestCommand:
    def test_what_was_written_is_shown(self, strange: Path, invoke: Callable[..., Any]) -> None:
        shown = invoke(
            *("baseline", "--model", "strange.onnx", "--input", "x=x.npy", "--tap", "all"),
            *("--output", "o.gguf"),
            code=0,
        )
        assert "10 tensors" in shown.out
        assert "left out: kept: integers" in shown.out
        assert "10 tensors, 0.0 MB, in 1 run" in shown.err
        # Tensors with values that are not finite come first.
        assert shown.out.splitlines()[2].startswith("strange")

    def test_json_holds_all_of_it(self, strange: Path, invoke: Callable[..., Any]) -> None:
        shown = invoke(
            *("baseline", "--model", "strange.onnx", "--random", "1", "--dim", "N=3", "--json"),
            *("--output", "o.npz"),
            code=0,
        )
        assert [t["name"] for t in shown.json["tensors"]] == ["x", "y"]
        assert shown.json["tensors"][0]["shape"] == [1, 3]

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ((), "--audio"),
            (("--random", "0"), "--dim N=LENGTH"),
            (("--random", "0", "--dim", "N"), "AXIS=LENGTH"),
            (("--random", "0", "--dim", "N=0"), "1 or more"),
            (("--random", "0", "--dim", "N=2", "--max-memory", "much"), "2G or 500M"),
            (("--random", "0", "--dim", "N=2", "--tap", "strnge"), "strange"),
            (("--random", "0", "--arch", "campplus"), "of known networks"),
            (("--input", "x=no.npy"), "no such file"),
            (("--input", "x=strange.onnx"), ".npy"),
            (("--input", "x=x.npy", "--input", "x=x.npy"), "each name once"),
            (("--input", "x=x.npy", "--output", "x.npy"), "name does not say"),
            (("--input", "x=x.npy", "--onnx", "strange.onnx"), "--onnx"),
        ],
    )
    def test_a_wrong_call_says_what_to_do(
        self, strange: Path, invoke: Callable[..., Any], arguments: tuple[str, ...], says: str
    ) -> None:
        ran = invoke("baseline", "--model", "strange.onnx", "--output", "o.npz", *arguments, code=2)
        assert says in ran.err
        assert not (strange.parent / "o.npz").exists()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def run_source(source: str, *arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_types_are_those_of_what_was_computed(tmp_path: Path) -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float16[2] x, bool[2] b) => (float16[2] y) { y = Where (b, x, x) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    done = golden_taps(tmp_path / "m.onnx", tmp_path / "o.npz", seed=0)
    stored = open_arrays(done.output)
    assert [t.dtype for t in done.tensors] == ["f32", "bool", "f32"]
    assert [stored.read(n).dtype for n in "xby"] == [np.float32, np.bool_, np.float32]


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63) + 1, 2**24 + 1])
def test_integers_that_float32_rounds_are_not_stored(value: int) -> None:
    with pytest.raises(UnsupportedError, match="cannot be stored as a golden"):
        golden_array("ends", np.array([value]))


@pytest.mark.parametrize("value", [2.5, np.nan, 1e30])
def test_values_that_are_none_of_their_integer_type_stay(tmp_path: Path, value: float) -> None:
    """An engine may copy the keys of the baseline."""
    codes = LazyTensor("codes", (1,), DType.F32, Held("codes", np.array([value], np.float32)))
    entries = (
        *golden_entries({"codes": (1,)}),
        Entry("baseline.dtypes", "[string]", ("i64",), "run"),
    )
    emit_goldens(Manifest(ARCHITECTURE, "engine", entries, (codes,)), tmp_path / "ours.gguf")
    found = open_arrays(tmp_path / "ours.gguf").read("codes")
    np.testing.assert_array_equal(found, np.float32(value))
