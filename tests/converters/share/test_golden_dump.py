"""The C++ header against the real ggml: what it dumps is what `compare` reads, or an error."""

from __future__ import annotations

import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from converters.arrays import open_arrays
from converters.baseline import baseline
from converters.comparison import Comparison, compare
from converters.convert import convert
from converters.emit import emit_goldens
from converters.goldens import golden_entries, golden_tensor, safe_names
from converters.manifest import Manifest
from fixtures import catalog

Array = npt.NDArray[Any]
Ran = subprocess.CompletedProcess[str]
Engine = Callable[..., Path]

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SHARE = ROOT / "converters" / "share"
PAGE = (ROOT / "docs" / "engine.md").read_text()

COMPILER = next((c for c in ("g++", "c++", "clang++") if shutil.which(c)), None)
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler is installed")

_CONV = """    ggml_tensor * y = ggml_conv_2d(ctx, w, x, stride, stride, pad, pad, 1, 1);
"""


def build(source: Path, target: Path) -> Path:
    """Compile a program against the header and PyPI's ggml; a warning is an error."""
    import libggml

    ggml = Path(libggml.__file__).parent
    library = ggml / "lib64"
    strict = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"]
    found = [f"-I{SHARE}", f"-I{ggml / 'include'}", f"-L{library}", f"-Wl,-rpath,{library}"]
    command = [str(COMPILER), *strict, str(source), "-o", str(target), *found]
    done = run([*command, "-lggml-cpu", "-lggml-base"])
    assert done.returncode == 0, done.stderr
    return target


def run(command: list[str], **popen: Any) -> Ran:
    return subprocess.run(command, capture_output=True, text=True, check=False, **popen)


def written(path: Path) -> dict[str, Array]:
    arrays = open_arrays(path)
    return {name: arrays.read(name) for name in arrays.readers}


class TestTheEngineOfTheDocs:
    """The program of docs/engine.md computes the tiny ResNet from its manifest."""

    def test_is_right_end_to_end_and_stage_by_stage(self, engine: Engine, golden: Path) -> None:
        dump = engine()
        found = compare(golden, dump)
        assert found, found.first
        assert len(found.rows) == 22
        assert worst(found) < 1e-3
        alone = compare(golden, engine("--local", to="local.gguf"))
        assert alone
        assert worst(alone) < worst(found)  # no stage inherits the error of another

    def test_whose_weights_are_exchanged_is_wrong_from_there_on(
        self, engine: Engine, golden: Path, exchanged: Path
    ) -> None:
        found = compare(golden, engine(model=exchanged))
        assert found.first is not None
        assert found.first.name == "layer3.2"
        assert len(found.failures) > 5

    def test_and_wrong_there_alone_where_each_stage_is_fed_its_golden(
        self, engine: Engine, golden: Path, exchanged: Path
    ) -> None:
        found = compare(golden, engine("--local", model=exchanged))
        assert [row.name for row in found.failures] == ["layer3.2"]

    def test_is_found_wrong_by_the_command(
        self, engine: Engine, golden: Path, exchanged: Path, graphtools: Callable[..., Any]
    ) -> None:
        ran = graphtools("compare", golden, engine(model=exchanged), code=1)
        assert "first wrong: layer3.2" in ran.out

    @pytest.mark.slow
    def test_without_an_activation_is_told_so(
        self, variant: Callable[..., Path], engine: Engine, golden: Path
    ) -> None:
        program = variant('stage(ggml_relu(ctx, x), "stem")', 'stage(x, "stem")')
        found = compare(golden, engine("--local", program=program))
        assert [row.name for row in found.failures] == ["stem"]
        assert "ours is the value before the ReLU" in found.hints

    @pytest.mark.slow
    def test_explicit_im2col_is_more_exact_than_that_of_conv_2d(
        self,
        variant: Callable[..., Path],
        engine: Engine,
        golden: Path,
        record_property: Callable[[str, object], None],
    ) -> None:
        explicit = re.search(r"    ggml_tensor \* cols.*?w->ne\[3\]\);\n(?=    return)", PAGE, re.S)
        assert explicit is not None
        half = compare(golden, engine(program=variant(explicit[0], _CONV), to="half.gguf"))
        full = compare(golden, engine())
        rows = {row.name: (row, other) for row, other in zip(half.rows, full.rows, strict=True)}
        for ours, theirs in (rows["layer4.2"], rows["embedding"]):
            assert ours.difference is not None
            assert theirs.difference is not None
            record_property(
                f"{ours.name}: cosine with f16 im2col, with f32",
                (ours.difference.cosine, theirs.difference.cosine),
            )
            assert ours.difference.cosine < theirs.difference.cosine
            assert ours.difference.max_abs > 10 * theirs.difference.max_abs
        assert full
        assert not half

    def test_stops_where_a_key_is_absent(self, program: Path, golden: Path, tmp_path: Path) -> None:
        done = run([str(program), str(golden), str(golden), str(tmp_path / "out.gguf")])
        assert done.returncode == 1
        assert "voicedetect.arch is absent" in done.stderr
        assert list(tmp_path.iterdir()) == []


class TestWriter:
    def test_widens_every_type(self, dumped: Callable[..., Path]) -> None:
        found = written(dumped("types"))
        counted = 0.25 * np.arange(96, dtype=np.float32).reshape(3, 32)
        np.testing.assert_array_equal(found["f16"], counted)  # which has all of these
        np.testing.assert_allclose(found["bf16"], counted, rtol=2**-8)
        np.testing.assert_allclose(found["q8_0"], counted, atol=counted.max() / 127)
        np.testing.assert_array_equal(found["i32"], [31, 31, 31])

    def test_reads_views_through_their_strides(self, dumped: Callable[..., Path]) -> None:
        found = written(dumped("views"))
        source = 2.0 * np.arange(60, dtype=np.float32).reshape(3, 4, 5)
        np.testing.assert_array_equal(found["transposed"], source.transpose(0, 2, 1))
        # ggml's axis i goes to place 2, 0, 1: {5, 4, 3} becomes {4, 3, 5}.
        np.testing.assert_array_equal(found["permuted"], source.transpose(2, 0, 1))
        np.testing.assert_array_equal(found["strided"], source[:, 1, :2])
        np.testing.assert_array_equal(found["half"], source.transpose(0, 2, 1))

    def test_finds_tensors_by_the_engines_names(self, dumped: Callable[..., Path]) -> None:
        path = dumped("named", out="missing nowhere\n")
        np.testing.assert_array_equal(written(path)["stem"], [0, 3, 6, 9])

    def test_reads_memory_that_no_backend_has(self, dumped: Callable[..., Path]) -> None:
        found = written(dumped("without_a_backend"))["y"]
        np.testing.assert_array_equal(found, [[0, 6], [2, 8], [4, 10]])

    def test_takes_several_graphs(self, dumped: Callable[..., Path]) -> None:
        found = written(dumped("two_graphs"))
        np.testing.assert_array_equal(found["first"], [0, 2, 4, 6])
        np.testing.assert_array_equal(found["second"], [0, 3, 6, 9])

    def test_keeps_names_shapes_and_bits(self, dumped: Callable[..., Path]) -> None:
        found = written(dumped("host"))
        long = "a" * 200
        assert [*found] == ["odd", "scalar", "five", "~0", long, f"{long}b"]
        odd = np.array([[np.nan, np.inf], [-0.0, 1e-45]], dtype=np.float32)
        assert found["odd"].tobytes() == odd.tobytes()
        shapes = [value.shape for value in found.values()]
        assert shapes == [(2, 2), (), (2, 1, 2, 3, 4), (2,), (1, 3), (4, 1)]
        np.testing.assert_array_equal(found["five"].ravel(), np.arange(48))
        np.testing.assert_array_equal(found["~0"], [0, 1])

    def test_writes_the_same_bytes_again(self, dumped: Callable[..., Path]) -> None:
        first = dumped("views").read_bytes()
        assert dumped("views").read_bytes() == first

    @pytest.mark.parametrize(
        ("case", "says"),
        [
            ("twice", "'x' is dumped twice"),
            ("no_name", "'' cannot be a tensor's name"),
            ("no_tensor", "'x' is marked, but is no tensor"),
            ("nothing", "nothing was marked or added"),
            ("empty", "'x' is empty"),
            ("late", "'y' is marked after its graph was allocated"),
            ("elsewhere", "'forgotten' was marked but not captured"),
            ("overwritten", "'y' is overwritten in place by RELU"),
            ("unallocated", "'y' has no memory"),
            ("same_name", "two tensors of the graph have the name 'y'"),
            ("large_integer", "'ids' holds the integer 16777217"),
        ],
    )
    def test_refuses(self, refused: Callable[..., str], case: str, says: str) -> None:
        assert says in refused(case)

    def test_leaves_the_old_file_where_the_new_one_cannot_be_written(
        self, cases: Path, tmp_path: Path
    ) -> None:
        def small() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a full disk, as far as fwrite knows
            resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))

        out = tmp_path / "out.gguf"
        out.write_text("an earlier run's")
        done = run([str(cases), "host", str(out)], preexec_fn=small)
        assert done.returncode == 1
        assert "out.gguf: cannot be written" in done.stderr
        assert out.read_text() == "an earlier run's"
        assert list(tmp_path.iterdir()) == [out]

    @pytest.mark.parametrize("place", ["absent/out.gguf", "."])
    def test_says_where_a_file_cannot_be(self, cases: Path, tmp_path: Path, place: str) -> None:
        done = run([str(cases), "host", str(tmp_path / place)])
        assert done.returncode == 1
        assert "cannot be" in done.stderr
        assert list(tmp_path.rglob("*")) == []


class TestGoldens:
    @pytest.fixture
    def goldens(self, tmp_path: Path) -> Path:
        """What `tap` writes: any names, any number of axes."""
        values = {
            "grid": np.arange(6.0).reshape(2, 3),
            "scalar": np.array(1.5),
            "five": np.arange(24.0).reshape(2, 1, 3, 2, 2),
            "module." * 20 + "weight": np.array([[[np.nan, -np.inf]]]),
        }
        safe = safe_names(values)
        tensors = tuple(golden_tensor(n, v).named(safe[n]) for n, v in values.items())
        path = tmp_path / "goldens.gguf"
        emit_goldens(
            Manifest(
                "test", "test", golden_entries({n: v.shape for n, v in values.items()}), tensors
            ),
            path,
        )
        return path

    def test_are_read_under_their_names_and_shapes(
        self, dumped: Callable[..., Path], goldens: Path
    ) -> None:
        found, wanted = written(dumped("copy", goldens)), written(goldens)
        assert [*found] == [*wanted]
        for name, value in wanted.items():
            assert found[name].shape == value.shape
            assert found[name].tobytes() == value.tobytes()

    def test_are_fed_to_inputs_of_their_shape(
        self, dumped: Callable[..., Path], goldens: Path
    ) -> None:
        found, wanted = written(dumped("feed", goldens)), written(goldens)
        assert {name: value.tobytes() for name, value in found.items()} == {
            name: value.tobytes() for name, value in wanted.items()
        }

    def test_are_read_from_quantised_files(
        self, dumped: Callable[..., Path], tmp_path: Path
    ) -> None:
        import gguf

        values = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
        writer = gguf.GGUFWriter(tmp_path / "q.gguf", "test")
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor("w", gguf.quantize(values, kind), raw_dtype=kind)
        writer.add_tensor("half", values.astype(np.float16))
        for step in ("header", "kv_data", "tensors"):
            getattr(writer, f"write_{step}_to_file")()
        writer.close()
        found, wanted = written(dumped("copy", tmp_path / "q.gguf")), written(tmp_path / "q.gguf")
        np.testing.assert_array_equal(found["w"], wanted["w"])
        np.testing.assert_array_equal(found["half"], values.astype(np.float16))

    @pytest.mark.parametrize(
        ("case", "says"),
        [
            ("unknown", "goldens.gguf: has no tensor 'nowhere'"),
            ("other_shape", "'grid' is [2,3], and the tensor to be fed [3,2]"),
            ("fed_too_early", "'grid' can be fed to a contiguous f32 tensor with memory only"),
        ],
    )
    def test_refuse(self, refused: Callable[..., str], goldens: Path, case: str, says: str) -> None:
        assert says in refused(case, goldens)

    def test_are_refused_where_the_file_is_cut_off(
        self, refused: Callable[..., str], goldens: Path
    ) -> None:
        goldens.write_bytes(goldens.read_bytes()[:-40])
        assert "goldens.gguf" in refused("copy", goldens)

    def test_are_refused_where_there_is_no_file(
        self, refused: Callable[..., str], tmp_path: Path
    ) -> None:
        assert "absent.gguf: is not there" in refused("copy", tmp_path / "absent.gguf")


def test_the_documented_commands_find_and_compile_it(tmp_path: Path) -> None:
    """The lines of docs/engine.md as they stand, but for the installation."""
    block = next(b for b in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S) if "g++" in b)
    lines = [line for line in block.splitlines(keepends=True) if not line.startswith("pip ")]
    (tmp_path / "engine.cpp").write_text('#include "golden_dump.h"\nint main() {}\n')
    bin = Path(sys.executable).parent
    if shutil.which("g++") is None:
        pytest.skip("no g++ is installed")
    script = f'export PATH="{bin}:$PATH" PYTHONPATH="{ROOT}"\n' + "".join(lines)
    done = run(["sh", "-ec", script], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "engine").exists()
    show = PAGE.split("```sh\n", 1)[1].split("```", 1)[0]
    assert run(["sh", "-ec", script.split("\n", 1)[0] + "\n" + show]).stdout == f"{SHARE}\n"


# --- how it is run --------------------------------------------------------------------------


def worst(found: Comparison) -> float:
    return max(row.difference.max_abs for row in found.rows if row.difference is not None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine")


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    """The docs' engine."""
    (folder / "engine.cpp").write_text(source())
    return build(folder / "engine.cpp", folder / "engine")


def source() -> str:
    (found,) = re.findall(r"^```cpp\n(.*?)^```", PAGE, re.M | re.S)
    return str(found)


@pytest.fixture
def variant(tmp_path: Path) -> Callable[..., Path]:
    """The docs' engine with one piece of text replaced."""

    def make(old: str, new: str) -> Path:
        assert source().count(old) == 1
        (tmp_path / "variant.cpp").write_text(source().replace(old, new))
        return build(tmp_path / "variant.cpp", tmp_path / "variant")

    return make


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    convert(catalog.path("resnet34_tiny"), folder / "model.gguf", verify="none")
    return folder / "model.gguf"


@pytest.fixture(scope="module")
def golden(folder: Path) -> Path:
    baseline(catalog.path("resnet34_tiny"), catalog.SPEECH, folder / "baseline.gguf")
    return folder / "baseline.gguf"


@pytest.fixture
def exchanged(model: Path, tmp_path: Path) -> Path:
    """The manifest with the two biases of the block layer3.2 exchanged."""
    from dataclasses import replace

    from converters import gguf_file

    manifest = gguf_file.read(model)
    at = 3 + 4 + 2
    keys = [f"voicedetect.resnet.conv{i}_bias" for i in (1, 2)]
    first, second = (list(manifest.get(key, "[string]")) for key in keys)
    first[at], second[at] = second[at], first[at]
    changed = dict(zip(keys, (tuple(first), tuple(second)), strict=True))
    entries = tuple(replace(e, value=changed.get(e.key, e.value)) for e in manifest.entries)
    emit_goldens(replace(manifest, entries=entries), tmp_path / "exchanged.gguf")
    return tmp_path / "exchanged.gguf"


@pytest.fixture
def engine(program: Path, model: Path, golden: Path, tmp_path: Path) -> Engine:
    """Run the engine; what it has dumped."""
    default, own = program, model

    def dump(
        *options: str,
        program: Path = default,
        model: Path = own,
        to: str = "engine.gguf",
    ) -> Path:
        done = run([str(program), str(model), str(golden), str(tmp_path / to), *options])
        assert done.returncode == 0, done.stderr
        return tmp_path / to

    return dump


@pytest.fixture(scope="module")
def cases(folder: Path) -> Path:
    return build(HERE / "golden_dump_cases.cpp", folder / "cases")


@pytest.fixture
def dumped(cases: Path, tmp_path: Path) -> Callable[..., Path]:
    """The file that a case writes."""

    def make(case: str, *goldens: Path, out: str = "") -> Path:
        path = tmp_path / f"{case}.gguf"
        done = run([str(cases), case, str(path), *map(str, goldens)])
        assert done.returncode == 0, done.stderr
        assert done.stdout == out
        return path

    return make


@pytest.fixture
def refused(cases: Path, tmp_path: Path) -> Callable[..., str]:
    """What a case says that throws; nothing is written then."""

    def make(case: str, *goldens: Path) -> str:
        path = tmp_path / "refused.gguf"
        done = run([str(cases), case, str(path), *map(str, goldens)])
        assert done.returncode == 1, done.stderr
        assert not path.exists()
        return str(done.stderr)

    return make
