"""Which of the engine's tensors is which golden."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from converters.arrays import open_arrays
from converters.comparison import compare
from converters.emit import emit_goldens
from converters.goldens import golden_entries, golden_tensor, safe_names
from converters.manifest import Entry, Manifest
from converters.matching import pair, read_map, stages_of
from graphtools.errors import NotAModelError, UsageError

Array = npt.NDArray[Any]
LONG = f"/encoder/{'layers.0/' * 9}MatMul_output_0"


def values(*names: str) -> dict[str, Array]:
    """A small array for each name, all different."""
    return {name: np.full((2, 3), float(i + 1), np.float32) for i, name in enumerate(names)}


@pytest.fixture
def tapped(tmp_path: Path) -> Callable[..., Path]:
    """A baseline of an ONNX file's tensors; the stages that some of them are stand beside them."""

    def make(stages: Mapping[str, str], file: str = "tapped.gguf") -> Path:
        arrays = values(*stages)
        short = safe_names(arrays)
        tensors = tuple(golden_tensor(short[name], array) for name, array in arrays.items())
        taps = Entry("baseline.tap_stages", "[string]", tuple(stages.values()), "run")
        manifest = Manifest(
            "test", "m", (*golden_entries({n: a.shape for n, a in arrays.items()}), taps), tensors
        )
        emit_goldens(manifest, tmp_path / file)
        return tmp_path / file

    return make


def pairs(golden: Any, ours: Any, names: Mapping[str, str] | None = None) -> dict[str, str]:
    return dict(pair(open_arrays(golden), open_arrays(ours), names).pairs)


class TestByName:
    def test_tensors_that_a_tool_moved_are_refused(self, tmp_path: Path) -> None:
        """Names are by place: in another order each would have another's values."""
        arrays = values("a", "b", LONG)
        short = safe_names(arrays)
        tensors = [golden_tensor(short[name], array) for name, array in arrays.items()]
        entries = golden_entries({n: a.shape for n, a in arrays.items()})
        emit_goldens(Manifest("test", "m", entries, tuple(tensors[::-1])), tmp_path / "m.gguf")
        with pytest.raises(NotAModelError, match="not in the order"):
            open_arrays(tmp_path / "m.gguf")

    def test_what_has_no_counterpart_is_listed(self) -> None:
        found = pair(open_arrays(values("a", "b")), open_arrays(values("b", "c")))
        assert found.pairs == {"a": "", "b": "b"}
        assert found.extra == ("c",)

    def test_nothing_in_common_is_a_wrong_call(self) -> None:
        with pytest.raises(UsageError, match="same name") as caught:
            pairs(values("a"), values("b"))
        assert (caught.value.expected, caught.value.found) == ("a", "b")
        assert "--map" in str(caught.value.todo)

    def test_a_folder_has_no_leading_slash(self, tmp_path: Path) -> None:
        (tmp_path / "ours" / "encoder").mkdir(parents=True)
        np.save(tmp_path / "ours" / "encoder" / "out.npy", np.zeros(2))
        assert pairs(values("/encoder/out"), tmp_path / "ours") == {"/encoder/out": "encoder/out"}

    def test_two_files_of_one_array_are_a_pair(self, tmp_path: Path) -> None:
        np.save(tmp_path / "golden.npy", np.arange(6.0).reshape(2, 3))
        np.arange(6, dtype="<f4").tofile(tmp_path / "ours.bin")
        assert pairs(tmp_path / "golden.npy", tmp_path / "ours.bin") == {"golden": "ours"}
        assert compare(tmp_path / "golden.npy", tmp_path / "ours.bin")

    def test_the_name_in_the_file_is_as_good_as_the_full_one(
        self, tapped: Callable[..., Path]
    ) -> None:
        """An engine that reads the names off the GGUF knows only those."""
        golden = tapped({LONG: ""})
        (short,) = safe_names([LONG]).values()
        assert short != LONG
        assert pairs(golden, values(short)) == {LONG: short}
        assert pairs(golden, values(LONG)) == {LONG: LONG}


class TestByMap:
    def test_gives_the_engines_names(self, tmp_path: Path) -> None:
        (tmp_path / "map.txt").write_text("# golden ours\na t0\nb t1  # a comment\n")
        names = read_map(tmp_path / "map.txt")
        assert pairs(values("a", "b", "c"), values("t0", "t1", "c"), names) == {
            "a": "t0",
            "b": "t1",
            "c": "c",
        }

    @pytest.mark.parametrize("text", ["one", "a b c", "a b\na c"])
    def test_a_line_that_is_no_pair_is_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "map.txt").write_text(text)
        with pytest.raises(UsageError, match="not one golden name"):
            read_map(tmp_path / "map.txt")

    @pytest.mark.parametrize("names", [{"a": "absent"}, {"absent": "b"}])
    def test_of_absent_names_is_refused(self, names: dict[str, str]) -> None:
        with pytest.raises(UsageError, match="not there") as caught:
            pairs(values("a"), values("b"), names)
        assert caught.value.found == "absent"


class TestByStage:
    STAGES: Mapping[str, str] = {"/conv/out": "", "/relu/out": "stem", "/add/out": "layer1.0"}

    def test_the_engine_calls_a_tensor_by_its_stage(self, tapped: Callable[..., Path]) -> None:
        found = pairs(tapped(self.STAGES), values("stem", "layer1.0"))
        assert found == {"/conv/out": "", "/relu/out": "stem", "/add/out": "layer1.0"}

    def test_the_exact_name_goes_first(self, tapped: Callable[..., Path]) -> None:
        found = pairs(tapped({"stem": "layer1.0", "/relu/out": "stem"}), values("stem"))
        assert found == {"stem": "stem", "/relu/out": ""}

    def test_two_exports_of_a_network_share_their_stages(self, tapped: Callable[..., Path]) -> None:
        golden = tapped(self.STAGES)
        ours = tapped({"12": "", "13": "stem", "15": "layer1.0"}, "other.gguf")
        assert pairs(golden, ours) == {"/conv/out": "", "/relu/out": "13", "/add/out": "15"}
        assert pairs(values("stem", "layer1.0"), ours) == {"stem": "13", "layer1.0": "15"}

    def test_a_stage_that_two_tensors_claim_is_no_name(self, tapped: Callable[..., Path]) -> None:
        golden = open_arrays(tapped({"a": "stem", "b": "stem", "c": "layer1.0"}))
        assert stages_of(golden) == {"c": "layer1.0"}
        found = pair(golden, open_arrays(values("stem", "layer1.0")))
        assert found.pairs == {"a": "", "b": "", "c": "layer1.0"}
        assert found.extra == ("stem",)

    def test_the_rows_say_their_stage_in_the_files_order(self, tapped: Callable[..., Path]) -> None:
        golden = tapped(self.STAGES)
        rows = compare(golden, golden).rows
        assert {row.name: row.stage for row in rows} == self.STAGES
        assert [row.name for row in rows] == [*self.STAGES]


def test_integers_of_a_baseline_are_integers_again(tmp_path: Path) -> None:
    """GGUF has them as float32, of which 1000 and 1001 are nearly one."""
    golden = {"tokens": np.array([1000, 1001, 7])}
    types = Entry("baseline.dtypes", "[string]", ("i64",), "run")
    entries = (*golden_entries({"tokens": (3,)}), types)
    tensors = (golden_tensor("tokens", golden["tokens"]),)
    emit_goldens(Manifest("test", "m", entries, tensors), tmp_path / "tokens.gguf")
    assert open_arrays(tmp_path / "tokens.gguf").read("tokens").dtype == np.int64
    assert compare(tmp_path / "tokens.gguf", golden)
    assert not compare(tmp_path / "tokens.gguf", {"tokens": np.array([1000, 1000, 7])})


class TestMargins:
    def test_of_codes_are_no_tensors_of_their_own(self) -> None:
        golden = {"codes": np.zeros((2, 3), np.int32), "codes_margin": np.ones((2, 3))}
        assert pairs(golden, golden) == {"codes": "codes"}
        assert compare(golden, golden)

    def test_of_anything_else_are(self) -> None:
        """A name that ends so is not passed over."""
        golden = {"loss": np.zeros(3), "loss_margin": np.ones(3)}
        assert not compare(golden, {"loss": np.zeros(3), "loss_margin": np.zeros(3)})
