"""What is read on a screen: the first wrong tensor first, and never more than 40 lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from rich.cells import cell_len

from converters.arrays import open_arrays
from converters.comparison import Comparison, Row, compare
from converters.comparison_text import shortened, summary
from converters.matching import Pairing
from graphtools.text import printable

Array = npt.NDArray[Any]
NAMES = [f"/encoder/layers.{i // 20}/block.{i % 20}/attention/MatMul_output_0" for i in range(500)]


def arrays(names: list[str] = NAMES) -> dict[str, Array]:
    return {name: np.array([i + 1.0, 2.0, 3.0]) for i, name in enumerate(names)}


def lines(golden: Mapping[str, Array], ours: Mapping[str, Array], width: int = 80) -> list[str]:
    """Checked for what holds of every summary."""
    found = summary(compare(golden, ours), width).splitlines()
    assert len(found) <= 40
    assert max(map(cell_len, found)) <= width
    return found


class TestFiveHundredTensors:
    @pytest.mark.parametrize("width", [80, 200])
    def test_of_which_all_are_wrong(self, width: int) -> None:
        found = lines(arrays(), {name: -value for name, value in arrays().items()}, width)
        assert len(found) == 40
        assert found[0] == "0 of 500 tensors are right, 500 wrong"
        assert found[1] == f"first wrong: {NAMES[0]}"
        assert found[-1].startswith(".. and 4")
        columns = 7 if width == 80 else 9
        assert len(found[-2].split()) == columns  # the name gives way, and no number does

    def test_of_which_none_is(self) -> None:
        nearest = arrays()[NAMES[77]] + 5e-4
        found = lines(arrays(), arrays() | {NAMES[77]: nearest})
        assert found[0] == "all 500 tensors are right"
        assert "first wrong" not in "".join(found)
        table = next(i for i, line in enumerate(found) if line.startswith("tensor"))
        assert found[table + 1].split()[1] == "0.0005"  # the one nearest to its bound
        assert "that are further from their bounds" in found[-1]

    def test_of_which_ours_has_one(self) -> None:
        found = lines(arrays(), {NAMES[300]: arrays()[NAMES[300]], "another": np.zeros(3)})
        assert found[0] == "1 of 500 tensors are right, 499 missing"
        assert found[1].startswith("499 goldens have no tensor of ours: /encoder/layer…")
        assert found[1].endswith(" and 498 more")
        assert found[2] == "1 of ours have no golden: another"
        block = next(line.split() for line in found if line.startswith("/encoder/layers.14"))
        assert block[-5:-2] == ["40", "-", "39"]

    def test_which_are_all_on_one_level(self) -> None:
        golden = arrays([f"tensor_{i}" for i in range(500)])
        lines(golden, {name: -value for name, value in golden.items()})


def test_what_is_wrong_comes_first_and_with_it_all_that_is_known() -> None:
    golden = {
        f"layer{i}.{j}": np.random.default_rng(i).normal(size=(4, 50))
        for i in (1, 2)
        for j in (0, 1)
    }
    found = lines(
        golden, golden | {"layer2.0": 2.0 * golden["layer2.0"], "layer2.1": np.ones((4, 49))}
    )
    assert found[:7] == [
        "2 of 4 tensors are right, 2 wrong",
        "first wrong: layer2.0",
        "  number 3 in the goldens' order, in block layer2",
        "  shape [4, 50]: max|d| 2.46 above 0.00246",
        "  max|d| 2.46 at [2, 5], mean|d| 0.777, relative 1",
        "  cosine 1.000000, SNR 0.0 dB",
        "  hint: ours times 0.5 is the golden",
    ]
    table = found.index("tensor    max|d|    bound  mean|d|  relative    cosine  SNR dB")
    assert [line.split()[0] for line in found[table + 1 :]] == ["layer2.0", "layer2.1"]
    assert "shape [4, 49] where [4, 50] should be" in found[-1]


def test_the_blocks_say_where_it_begins() -> None:
    golden = {f"layer{i}.{j}": np.ones(3) for i in (1, 2) for j in (0, 1)}
    found = lines(golden, golden | {"layer2.1": np.array([1.0, 1.0, 2.0])})
    at = next(i for i, line in enumerate(found) if line.startswith("block"))
    assert [line.split()[:4] for line in found[at + 1 : at + 3]] == [
        ["layer1", "2", "-", "0"],
        ["layer2", "2", "1", "1e+03"],
    ]


def test_a_small_comparison_shows_every_tensor() -> None:
    golden = {"a": np.ones(3), "b": np.ones(3)}
    assert [line.split()[0] for line in lines(golden, golden)[3:]] == ["a", "b"]


def test_codes_have_a_word_in_place_of_numbers() -> None:
    codes = {"codes": np.zeros((2, 3), np.int32), "codes_margin": np.ones((2, 3))}
    assert lines(codes, codes)[-1] == "codes   equal"
    wrong = lines(codes, {"codes": np.ones((2, 3), np.int32)})
    assert wrong[3] == "  shape [2, 3]: 3 codes differ, the first of quantizer 0 in frame 0"


def test_more_of_ours_is_said_though_all_are_right() -> None:
    golden = {"a": np.ones(3)}
    found = lines(golden, golden | {"b": np.ones(3)})
    assert found[:2] == ["the tensor is right, but ours has others", "1 of ours have no golden: b"]


def test_names_cannot_steer_a_terminal() -> None:
    name = "a\x1b[31m\n[bold]\udc80"
    golden = {name: np.ones(3)}
    shown = "\n".join(lines(golden, {name: np.zeros(3)}))
    assert "\x1b" not in shown
    assert "first wrong: a\\x1b[31m\\n[bold]\\udc80" in shown
    shown.encode()
    assert printable("ü 模") == "ü 模"


class TestLongNames:
    """What makes names differ is what a table keeps of them."""

    def first_column(self, *names: str) -> list[str]:
        golden = arrays(["stem", *names])
        found = lines(golden, {name: -value for name, value in golden.items()})
        table = next(i for i, line in enumerate(found) if line.startswith("tensor"))
        return [line.split()[0] for line in found[table + 2 :]]

    def test_lose_what_they_all_begin_with(self) -> None:
        scope = "/encoder/encoder.layers/encoder.layers.3"
        assert self.first_column(f"{scope}/norm/out", f"{scope}/ffn/out") == [
            "…norm/out",
            "…ffn/out",
        ]

    def test_then_what_they_all_end_with(self) -> None:
        names = [f"/model/layer{i}/layer{i}.0/conv1/Conv_output_0" for i in (1, 2)]
        assert self.first_column(*names) == [
            "…layer1/layer1.0…",
            "…layer2/layer2.0…",
        ]

    def test_then_their_middle(self) -> None:
        (found, _) = self.first_column("x" * 90, "y" * 90)
        assert re.fullmatch("x+…x+", found)

    def test_a_stage_goes_by_its_name(self) -> None:
        row = Row(
            "/relu/out", "stem", (3,), None, None, "shape [2] where [3] should be", "", "stem"
        )
        pairing = Pairing(open_arrays({}), open_arrays({}), {})
        assert "stem    shape [2]" in summary(Comparison((row,), pairing))


class TestShortened:
    def test_loses_its_middle(self) -> None:
        assert shortened("layer1.0.conv1.weight", 11) == "layer…eight"
        assert shortened("layer1", 6) == "layer1"

    def test_counts_columns_not_letters(self) -> None:
        assert cell_len(shortened("模型模型模型模型", 9)) <= 9
