"""An engine against goldens: the first wrong stage is named, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from converters.arrays import open_arrays
from converters.baseline import baseline
from converters.comparison import Comparison, compare
from converters.gates import Gates
from fixtures import catalog
from graphtools.errors import NotAModelError, UnsupportedError, UsageError

Array = npt.NDArray[Any]
Make = Callable[..., Any]
STAGE = "layer2.1"


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("golden") / "b.gguf"
    baseline(catalog.path("resnet34_tiny"), catalog.SPEECH, path)
    return path


@pytest.fixture(scope="module")
def right(golden: Path) -> dict[str, Array]:
    """What an engine without a fault would write."""
    arrays = open_arrays(golden)
    return {name: arrays.read(name) for name in arrays.readers}


@pytest.fixture
def engine(golden: Path, right: dict[str, Array], tmp_path: Path) -> Callable[..., Comparison]:
    """The comparison with an engine that has other arrays in some places."""

    def make(changes: dict[str, Array] | None = None, **options: Any) -> Comparison:
        np.savez(tmp_path / "ours.npz", **(right | (changes or {})))
        return compare(golden, tmp_path / "ours.npz", **options)

    return make


class TestForms:
    """Whatever the engine writes is read."""

    @pytest.mark.parametrize("form", ["npz", "npy", "bin", "gguf"])
    def test_of_what_the_engine_wrote(
        self, golden: Path, right: dict[str, Array], tmp_path: Path, form: str
    ) -> None:
        ours = tmp_path / "ours"
        if form == "npz":
            ours = tmp_path / "ours.npz"
            np.savez(ours, **right)
        elif form == "gguf":
            writer = gguf.GGUFWriter(tmp_path / "ours.gguf", "engine")
            for name, value in right.items():
                writer.add_tensor(name, np.ascontiguousarray(value))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            ours = tmp_path / "ours.gguf"
        else:
            ours.mkdir()
            for name, value in right.items():
                if form == "npy":
                    np.save(ours / f"{name}.npy", value)
                else:
                    value.astype("<f4").tofile(ours / f"{name}.bin")
        found = compare(golden, ours)
        assert found
        assert len(found.rows) == len(right)

    def test_one_array_alone(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.arange(6.0).reshape(2, 3))
        np.arange(6, dtype="<f4").tofile(tmp_path / "x.bin")
        assert compare(tmp_path / "x.npy", tmp_path / "x.bin")

    @pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0"])
    def test_quantised_tensors_are_dequantised(self, tmp_path: Path, kind: str) -> None:
        values = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
        np.savez(tmp_path / "golden.npz", w=values)
        writer = gguf.GGUFWriter(tmp_path / "ours.gguf", "engine")
        type_ = gguf.GGMLQuantizationType[kind]
        writer.add_tensor("w", gguf.quantize(values, type_), raw_dtype=type_)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        found = compare(tmp_path / "golden.npz", tmp_path / "ours.gguf", gates=Gates(relative=0.05))
        assert found
        assert found.rows[0].difference is not None
        assert found.rows[0].difference.max_abs > 0  # it was quantised

    def test_a_raw_file_of_another_length_does_not_fit(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.zeros((2, 3)))
        np.zeros(7, "<f4").tofile(tmp_path / "x.bin")
        (row,) = compare(tmp_path / "x.npy", tmp_path / "x.bin").failures
        assert row.problem == "shape [7] where [2, 3] should be"
        (tmp_path / "x.bin").write_bytes(b"12345")
        with pytest.raises(NotAModelError, match="'x' cannot be read") as caught:
            compare(tmp_path / "x.npy", tmp_path / "x.bin")
        assert caught.value.found == "5 bytes are no whole number of float32"

    @pytest.mark.parametrize("values", [np.array(["a"]), np.array([1j])])
    def test_what_is_no_real_number_is_refused(self, values: Array) -> None:
        with pytest.raises(UnsupportedError, match="'x' cannot be compared"):
            compare({"x": np.zeros(1)}, {"x": values})

    def test_what_is_none_of_these_is_refused(self, tmp_path: Path, golden: Path) -> None:
        (tmp_path / "text").write_text("not arrays")
        (tmp_path / "folder").mkdir()
        with pytest.raises(UnsupportedError, match="holds no arrays"):
            compare(golden, tmp_path / "text")
        with pytest.raises(UsageError, match="holds no arrays"):
            compare(golden, tmp_path / "folder")
        with pytest.raises(UsageError, match="no such file"):
            compare(golden, tmp_path / "absent")
        (tmp_path / "folder" / "stem.npy").write_bytes(b"\x93NUMPY damaged")
        with pytest.raises(NotAModelError, match="'stem' cannot be read"):
            compare(golden, tmp_path / "folder")


class TestNames:
    def test_what_is_missing_and_what_is_too_much_fails(
        self, golden: Path, right: dict[str, Array], tmp_path: Path
    ) -> None:
        kept = {name: value for name, value in right.items() if name != STAGE}
        np.savez(tmp_path / "less.npz", **kept)
        found = compare(golden, tmp_path / "less.npz")
        assert [row.name for row in found.failures] == [STAGE]
        assert "no such tensor" in found.failures[0].problem
        np.savez(tmp_path / "more.npz", **right, scratch=np.zeros(3))
        more = compare(golden, tmp_path / "more.npz")
        assert not more
        assert more.extra == ("scratch",)
        assert more.first is None

    def test_rows_are_in_execution_order(self, engine: Make) -> None:
        names = [row.name for row in engine().rows]
        assert names[:4] == ["fbank_raw", "fbank", "stem", "layer1.0"]
        assert names[-2:] == ["encoder_out", "embedding"]


class TestGates:
    def test_noise_of_the_size_of_float32_passes(self, engine: Make, right: Any) -> None:
        rng = np.random.default_rng(0)
        noisy = {n: v + 1e-5 * rng.normal(size=v.shape) for n, v in right.items()}
        assert engine(noisy)

    def test_nan_and_infinity_on_one_side_fail(self, engine: Make, right: Any) -> None:
        for value in (np.nan, np.inf):
            wrong = right[STAGE].copy()
            wrong.flat[7] = value
            found = engine({STAGE: wrong})
            assert found.first is not None
            assert found.first.name == STAGE
            assert "1 value is NaN or infinite" in found.first.problem

    @pytest.mark.parametrize("level", [1.0, 1e-4])
    def test_a_tensor_twice_as_large_fails(self, tmp_path: Path, level: float) -> None:
        """Its cosine is 1, and of small values the absolute bound sees nothing."""
        values = level * np.random.default_rng(0).normal(size=(4, 50))
        np.savez(tmp_path / "a.npz", x=values)
        np.savez(tmp_path / "b.npz", x=2 * values)
        found = compare(tmp_path / "a.npz", tmp_path / "b.npz")
        assert not found
        assert found.hints[0] == "ours times 0.5 is the golden"

    @pytest.mark.parametrize(
        "gates", [{"cosine": 2.0}, {"cosine": np.nan}, {"relative": -1.0}, {"absolute": -5.0}]
    )
    def test_numbers_that_are_no_gates_are_refused(self, gates: dict[str, float]) -> None:
        with pytest.raises(UsageError, match="no gates"):
            Gates(**gates)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_no_gate_lets_a_lone_nan_pass(self, value: float) -> None:
        one, other = np.ones(4), np.array([1.0, value, 1.0, 1.0])
        anything = Gates(cosine=-1.0, relative=np.inf, absolute=np.inf)
        assert not compare({"x": one}, {"x": other}, gates=anything)
        assert not compare({"x": other}, {"x": one}, gates=anything)
        assert not compare({"x": other}, {"x": -other}, gates=anything) or value != np.inf

    def test_the_same_infinities_on_both_sides_are_right(self) -> None:
        """As in an attention mask."""
        mask = np.array([0.0, -np.inf, np.nan, 1.0])
        assert compare({"x": mask}, {"x": mask + 1e-5})
        assert not compare({"x": mask}, {"x": mask[::-1]})

    def test_integers_are_right_when_they_are_equal(self) -> None:
        """Of 1000 and 1001 a relative bound and a cosine would make one token."""
        tokens = {"x": np.array([1000, 1000, 7])}
        assert compare(tokens, {"x": np.array([1000.0, 1000.0, 7.0], np.float32)})
        off = {"x": np.array([1000, 1001, 7])}
        assert not compare(tokens, off)
        assert compare(tokens, off, gates=Gates(absolute=1.0))

    def test_two_tensors_of_zeros_are_equal(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", x=np.zeros((2, 3)), y=np.zeros(3))
        np.savez(tmp_path / "b.npz", x=np.zeros((2, 3)), y=np.full(3, 1.0))
        assert [r.name for r in compare(tmp_path / "a.npz", tmp_path / "b.npz").failures] == ["y"]

    def test_axes_of_size_1_say_nothing_and_another_count_fails(
        self, engine: Make, right: Any
    ) -> None:
        assert engine({STAGE: right[STAGE][None]})
        found = engine({STAGE: right[STAGE][..., :-1]})
        assert "shape" in found.first.problem
        turned = engine({STAGE: right[STAGE].transpose(0, 2, 1)})
        assert "shape" in turned.first.problem
        assert any("axes in the order [0, 2, 1]" in hint for hint in turned.hints)

    def test_the_baselines_own_noise_counts(self, golden: Path, engine: Make, right: Any) -> None:
        noise = open_arrays(golden).manifest
        assert noise is not None
        stages = list(noise["baseline.stages"])  # type: ignore[arg-type]
        own = float(noise["baseline.noise"][stages.index(STAGE)])  # type: ignore[index,arg-type]
        shifted = {STAGE: right[STAGE] + 9 * own}
        assert engine(shifted, gates=Gates(relative=0.0))
        assert not engine(shifted, gates=Gates(relative=0.0, noise=5.0))
        assert not engine(shifted, gates=Gates(absolute=0.0))

    def test_within_the_noise_the_cosine_still_counts(self, engine: Make, right: Any) -> None:
        """Noise excuses a distance, and not another direction."""
        found = engine({STAGE: -right[STAGE]}, gates=Gates(noise=1e9))
        assert found.first is not None
        assert found.first.problem.startswith("cosine -1.0")


class TestCodes:
    """Each code is judged where those before it are the same; a near tie is no fault."""

    def compared(self, tmp_path: Path, changes: list[tuple[int, int]], margin: Array) -> Comparison:
        rng = np.random.default_rng(0)
        codes = rng.integers(0, 64, (4, 6)).astype(np.int32)
        ours = codes.copy()
        for at in changes:
            ours[at] += 1
        np.savez(tmp_path / "a.npz", codes=codes, codes_margin=margin)
        np.savez(tmp_path / "b.npz", codes=ours)
        return compare(tmp_path / "a.npz", tmp_path / "b.npz")

    def test_a_wrong_code_is_named(self, tmp_path: Path) -> None:
        found = self.compared(tmp_path, [(1, 3), (2, 3), (3, 3)], np.full((4, 6), 0.1))
        (row,) = found.failures
        assert row.problem == "1 code differs, the first of quantizer 1 in frame 3"

    def test_a_near_tie_passes_with_what_follows_from_it(self, tmp_path: Path) -> None:
        margin = np.full((4, 6), 0.1)
        margin[1, 3] = 1e-5
        found = self.compared(tmp_path, [(1, 3), (2, 3), (3, 3)], margin)
        assert found
        assert found.rows[0].note == "1 near tie"

    @pytest.mark.parametrize("bad", [np.nan, np.inf, 2.5, -1.0])
    def test_what_is_no_code_is_no_near_tie(self, bad: float) -> None:
        golden = {"codes": np.ones((2, 3), np.int32), "codes_margin": np.full((2, 3), 1e-6)}
        ours = golden["codes"].astype(np.float32)
        ours[0, 0] = bad
        (row,) = compare(golden, {"codes": ours}).failures
        assert "1 code differs" in row.problem

    def test_a_batch_axis_is_no_quantizer(self) -> None:
        codes, margin = np.ones((1, 2, 3), np.int32), np.ones((1, 2, 3))
        margin[0, 0, 0] = 1e-6
        ours = codes.copy()
        ours[0, :, 0] = 5  # a near tie, and what follows from it
        golden = {"codes": codes, "codes_margin": margin}
        assert compare(golden, {"codes": ours})
        ours[0, 1, 2] = 5
        (row,) = compare(golden, {"codes": ours}).failures
        assert "quantizer 1 in frame 2" in row.problem

    def test_frames_of_one_quantizer_do_not_depend_on_each_other(self) -> None:
        margin = np.array([1e-6, 1.0, 1.0])
        golden = {"codes": np.ones(3, np.int32), "codes_margin": margin}
        assert compare(golden, {"codes": np.array([7, 1, 1])})
        assert not compare(golden, {"codes": np.array([7, 1, 7])})

    def test_margins_of_another_shape_excuse_nothing(self) -> None:
        golden = {"codes": np.ones((2, 3), np.int32), "codes_margin": np.zeros((3, 2))}
        ours = {"codes": np.zeros((2, 3)), "codes_margin": np.zeros((3, 2))}
        assert not compare(golden, ours)


class TestCommand:
    def test_says_which_stage_and_weights_and_why(
        self, graphtools: Make, golden: Path, right: Any, tmp_path: Path
    ) -> None:
        late = {STAGE: np.roll(right[STAGE], 1, -1), "pooled": right["pooled"] + 1}
        np.savez(tmp_path / "ours.npz", **(right | late))
        ran = graphtools("compare", golden, "ours.npz", code=1)
        lines = ran.out.splitlines()
        assert lines[:2] == ["20 of 22 tensors are right, 2 wrong", f"first wrong: {STAGE}"]
        assert "  weights: onnx::Conv" in ran.out
        assert "  hint: ours is the golden 1 frame later" in ran.out
        shown = graphtools("compare", golden, "ours.npz", "--json", code=1).json
        assert (shown["first"], shown["failed"]) == (STAGE, 2)
        assert shown["weights"][0].startswith("onnx::Conv")
        graphtools("compare", golden, golden, code=0)
        graphtools("compare", golden, "absent.npz", code=2)

    @pytest.mark.parametrize("bound", [("--cos", "2"), ("--tol", "-1"), ("--atol", "-1")])
    def test_a_bound_that_nothing_meets_is_a_wrong_call(
        self, bound: tuple[str, str], golden: Path, invoke: Make
    ) -> None:
        ran = invoke("compare", str(golden), str(golden), *bound, code=2)
        assert bound[0] in ran.err

    def test_everything_of_a_tensor_is_in_the_json(self, engine: Make) -> None:
        shown = {row["name"]: row for row in engine().to_json()["rows"]}[STAGE]
        assert shown == {
            "name": STAGE,
            "ours": STAGE,
            "stage": STAGE,
            "shape": [8, 40, 149],
            "bound": pytest.approx(0.0159, abs=1e-4),
            "problem": "",
            "note": "",
            "max_abs": 0.0,
            "at": (0, 0, 0),
            "mean_abs": 0.0,
            "relative": 0.0,
            "cosine": pytest.approx(1.0),
            "snr_db": np.inf,
            "length": pytest.approx(1.0),
        }


def test_goldens_are_named_first(tmp_path: Path) -> None:
    baseline(catalog.path("resnet34_tiny"), catalog.SPEECH, tmp_path / "b.gguf")
    with pytest.raises(UsageError, match="second of the two is a baseline"):
        compare({"stem": np.ones(3)}, tmp_path / "b.gguf")


@pytest.mark.parametrize("form", ["b.npz", "folder"])
def test_the_goldens_of_a_clip_in_another_form(form: str, tmp_path: Path) -> None:
    """Keys, stages and noise are in each of them."""
    for output in ("b.gguf", form):
        baseline(catalog.path("resnet34_tiny"), catalog.SPEECH, tmp_path / output, name="m")
    one, other = (open_arrays(tmp_path / output) for output in ("b.gguf", form))
    assert one.manifest is not None
    assert other.manifest is not None
    assert {e.key: e.value for e in one.manifest.entries} == {
        e.key: e.value for e in other.manifest.entries
    }
    assert compare(tmp_path / form, tmp_path / "b.gguf")
    assert [*one.readers] == [*other.readers]


def test_only_a_baseline_has_an_execution_order(tmp_path: Path) -> None:
    baseline(catalog.path("resnet34_tiny"), catalog.SPEECH, tmp_path / "b.gguf")
    golden = open_arrays(tmp_path / "b.gguf")
    values = {name: golden.read(name) for name in golden.readers}
    assert compare(tmp_path / "b.gguf", values).order == "execution order"
    assert compare(values, values).order == "the goldens' order"
