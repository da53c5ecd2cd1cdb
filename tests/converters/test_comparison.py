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
from converters.comparison import Comparison, Gates, compare, read_map
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

    def test_a_map_gives_the_engines_names(
        self, golden: Path, right: dict[str, Array], tmp_path: Path
    ) -> None:
        np.savez(tmp_path / "o.npz", **{f"t{i}": v for i, v in enumerate(right.values())})
        lines = [f"{name} t{i}  # ours" for i, name in enumerate(right)]
        (tmp_path / "map.txt").write_text("# golden ours\n" + "\n".join(lines))
        assert compare(golden, tmp_path / "o.npz", names=read_map(tmp_path / "map.txt"))
        with pytest.raises(UsageError, match="same name") as caught:
            compare(golden, tmp_path / "o.npz")
        assert "--map" in str(caught.value.todo)

    @pytest.mark.parametrize("text", ["one", "a b c", "a b\na c"])
    def test_a_line_that_is_no_pair_is_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "map.txt").write_text(text)
        with pytest.raises(UsageError, match="not one golden name"):
            read_map(tmp_path / "map.txt")

    def test_a_map_of_absent_names_is_refused(self, golden: Path, tmp_path: Path) -> None:
        np.savez(tmp_path / "o.npz", a=np.zeros(2))
        with pytest.raises(UsageError, match="not there"):
            compare(golden, tmp_path / "o.npz", names={"stem": "b"})

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
            assert "1 values that are not numbers" in found.first.problem

    @pytest.mark.parametrize("level", [1.0, 1e-4])
    def test_a_tensor_twice_as_large_fails(self, tmp_path: Path, level: float) -> None:
        """Its cosine is 1, and of small values the absolute bound sees nothing."""
        values = level * np.random.default_rng(0).normal(size=(4, 50))
        np.savez(tmp_path / "a.npz", x=values)
        np.savez(tmp_path / "b.npz", x=2 * values)
        found = compare(tmp_path / "a.npz", tmp_path / "b.npz")
        assert not found
        assert found.hints == ("ours times 0.5 is the golden",)

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
        assert row.problem == "1 codes differ, first of quantizer 1 in frame 3"

    def test_a_near_tie_passes_with_what_follows_from_it(self, tmp_path: Path) -> None:
        margin = np.full((4, 6), 0.1)
        margin[1, 3] = 1e-5
        found = self.compared(tmp_path, [(1, 3), (2, 3), (3, 3)], margin)
        assert found
        assert found.rows[0].note == "1 near ties"


def halves(x: Array) -> Array:
    first, second = np.split(x, 2)
    return np.concatenate([second, first])


@pytest.mark.parametrize(
    ("fault", "hint"),
    [
        (lambda x: x[..., ::-1], "time reversed"),
        (lambda x: x[::-1], "axis 0 reversed"),
        (lambda x: np.roll(x, 1, -1), "1 frames later"),
        (lambda x: np.roll(x, -3, -1), "3 frames earlier"),
        (lambda x: 32768.0 * x, "too large by 32768"),
        (lambda x: x / np.log(10.0), "too small by ln 10"),
        (lambda x: x / np.sqrt(80.0), "too small by the root of 80"),
        (lambda x: x[..., :-1], "the golden has 0 frames more before and 1 after"),
        (lambda x: np.pad(x, ((0, 0), (2, 1))), "ours has 2 frames more before and 1 after"),
        (lambda x: np.ascontiguousarray(x.T).reshape(x.shape), "axes in the order [1, 0]"),
        (halves, "2 parts of ours are concatenated in another order: [1, 0]"),
        (lambda x: x + np.arange(8.0)[:, None], "the mean over time is not subtracted"),
    ],
)
def test_a_planted_fault_is_explained(
    tmp_path: Path, fault: Callable[[Array], Array], hint: str
) -> None:
    x = np.random.default_rng(0).normal(size=(8, 30))
    x -= x.mean(axis=-1, keepdims=True)
    np.savez(tmp_path / "a.npz", x=x)
    np.savez(tmp_path / "b.npz", x=fault(x))
    found = compare(tmp_path / "a.npz", tmp_path / "b.npz")
    assert not found
    assert any(hint in line for line in found.hints), found.hints


def test_the_value_before_an_activation_is_explained(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(8, 30))
    np.savez(tmp_path / "a.npz", before=x, after=np.maximum(x, 0))
    np.savez(tmp_path / "b.npz", before=x, after=x)
    found = compare(tmp_path / "a.npz", tmp_path / "b.npz")
    assert found.hints == ("ours is the golden 'before'", "ours is the value before the ReLU")


def test_a_hint_is_given_only_when_it_explains_all(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", x=rng.normal(size=(8, 30)))
    np.savez(tmp_path / "b.npz", x=rng.normal(size=(8, 30)))
    assert compare(tmp_path / "a.npz", tmp_path / "b.npz").hints == ()


class TestCommand:
    def test_says_which_stage_and_weights_and_why(
        self, graphtools: Make, golden: Path, right: Any, tmp_path: Path
    ) -> None:
        late = {STAGE: np.roll(right[STAGE], 1, -1), "pooled": right["pooled"] + 1}
        np.savez(tmp_path / "ours.npz", **(right | late))
        ran = graphtools("compare", golden, "ours.npz", code=1)
        assert "20 of 22 tensors are right" in ran.out
        assert f"first: {STAGE}: max|d|" in ran.out
        assert "its weights: onnx::Conv" in ran.out
        assert "hint: ours is the golden 1 frames later" in ran.out
        shown = graphtools("compare", golden, "ours.npz", "--json", code=1).json
        assert (shown["first"], shown["failed"]) == (STAGE, 2)
        graphtools("compare", golden, golden, code=0)
        graphtools("compare", golden, "absent.npz", code=2)

    def test_500_tensors_fit_on_a_screen(self, graphtools: Make, tmp_path: Path) -> None:
        values = {f"t{i:03}": np.full(3, float(i + 1)) for i in range(500)}
        np.savez(tmp_path / "a.npz", **values)
        np.savez(tmp_path / "b.npz", **{n: -v for n, v in values.items()})
        ran = graphtools("compare", "a.npz", "b.npz", code=1)
        assert len(ran.out.splitlines()) <= 40
        assert ".. and 470 more" in ran.out
