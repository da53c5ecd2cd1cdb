"""Inputs as a model declares them: cast without loss or refused; lengths agree; random by seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphtools.errors import UnsupportedError, UsageError
from graphtools.feeds import feeds
from graphtools.graph import Graph

Parse = Callable[..., Graph]

TWO = """
two (float[B, T, 3] x, int64[B, T] ids, float gain) => (float[B, T, 3] y)
{
    y = Mul (x, gain)
}
"""


@pytest.fixture
def two(parse: Parse) -> Graph:
    return parse(TWO)


def one(parse: Parse, declared: str) -> Graph:
    return parse(f"one ({declared} x) => ({declared} y) {{ y = Identity (x) }}")


def given(**changes: Any) -> dict[str, Any]:
    whole = {"x": np.ones((1, 4, 3)), "ids": np.ones((1, 4), np.int32), "gain": np.array(2)}
    return {k: v for k, v in (whole | changes).items() if v is not None}


class TestGiven:
    def test_is_cast_to_the_declared_types(self, two: Graph) -> None:
        found = feeds(two, given())
        assert [*found] == ["x", "ids", "gain"]
        assert [str(a.dtype) for a in found.values()] == ["float32", "int64", "float32"]
        assert found["gain"].shape == ()

    @pytest.mark.parametrize(
        ("declared", "array"),
        [
            ("int64[2]", np.array([1.0, 2.5])),
            ("int64[2]", np.array([1.0, np.nan])),
            ("int8[2]", np.array([1, 200])),
            ("uint8[2]", np.array([-1, 2])),
            ("float[2]", np.array([1, 2**24 + 1])),
            ("float[2]", np.array([1.0, 1e300])),
            ("bool[2]", np.array([0, 2])),
            ("float[2]", np.array(["a", "b"])),
            ("float[2]", np.array([1j, 2j])),
        ],
    )
    def test_what_would_change_is_refused(self, parse: Parse, declared: str, array: Any) -> None:
        with pytest.raises(UnsupportedError, match="cast without loss"):
            feeds(one(parse, declared), {"x": array})

    @pytest.mark.parametrize(
        ("declared", "array"),
        [
            ("int64[2]", np.array([1.0, -2.0])),
            ("float[2]", np.array([0.1, np.inf])),
            ("float[2]", np.array([np.nan, -np.inf], np.float32)),
            ("bool[2]", np.array([0, 1])),
            ("double[2]", np.array([0.1, 2.0], np.float32)),
            ("float16[2]", np.array([0.1, 7.0])),  # widened in the copy that is run
        ],
    )
    def test_what_stays_the_same_is_cast(self, parse: Parse, declared: str, array: Any) -> None:
        found = feeds(one(parse, declared), {"x": array})["x"]
        np.testing.assert_allclose(found.astype(np.float64), array.astype(np.float64), rtol=1e-7)

    @pytest.mark.parametrize(
        "change",
        [
            {"x": np.ones((1, 4))},
            {"x": np.ones((1, 4, 2))},
            {"x": np.ones((1, 5, 3))},  # T is 4 in ids
            {"gain": np.ones(1)},
        ],
    )
    def test_another_shape_is_refused(self, two: Graph, change: dict[str, Any]) -> None:
        with pytest.raises(UnsupportedError, match="another shape") as caught:
            feeds(two, given(**change))
        assert str(list(next(iter(change.values())).shape)) in str(caught.value) or "ids" in str(
            caught.value
        )

    def test_a_length_that_is_also_said_has_to_agree(self, two: Graph) -> None:
        with pytest.raises(UnsupportedError, match="another shape"):
            feeds(two, given(), dims={"T": 5})

    def test_an_input_that_is_not_there_is_named_with_the_closest(self, two: Graph) -> None:
        with pytest.raises(UsageError, match="no input 'gian'") as caught:
            feeds(two, given(gian=np.array(1)))
        assert "gain" in (caught.value.found or "")

    def test_a_missing_one_is_named(self, two: Graph) -> None:
        with pytest.raises(UsageError, match="not given") as caught:
            feeds(two, given(ids=None))
        assert "ids: i64 [B, T]" in (caught.value.found or "")


class TestRandom:
    def test_the_same_seed_gives_the_same(self, two: Graph) -> None:
        first, again, other = (feeds(two, {}, dims={"T": 7}, seed=s) for s in (3, 3, 4))
        for name in first:
            np.testing.assert_array_equal(first[name], again[name])
        assert not np.array_equal(first["x"], other["x"])
        assert first["ids"].min() >= 0
        assert first["ids"].max() <= 9

    def test_an_input_does_not_depend_on_which_others_are_given(self, two: Graph) -> None:
        alone = feeds(two, {}, dims={"T": 4}, seed=3)
        beside = feeds(two, given(x=None, gain=None), dims={"T": 4}, seed=3)
        np.testing.assert_array_equal(alone["x"], beside["x"])

    def test_lengths_are_known_from_what_is_given(self, two: Graph) -> None:
        found = feeds(two, given(x=None, gain=None), seed=0)
        assert found["x"].shape == (1, 4, 3)

    def test_the_first_of_several_axes_is_a_batch_of_one(self, two: Graph) -> None:
        assert feeds(two, {}, dims={"T": 7}, seed=0)["x"].shape == (1, 7, 3)
        assert feeds(two, {}, dims={"T": 7, "B": 2}, seed=0)["x"].shape == (2, 7, 3)

    def test_a_length_that_nothing_says_is_asked_for(self, two: Graph, parse: Parse) -> None:
        with pytest.raises(UsageError, match="length of a dynamic axis") as caught:
            feeds(two, {}, seed=0)
        assert "--dim T=LENGTH" in (caught.value.todo or "")
        with pytest.raises(UsageError, match="length of a dynamic axis"):
            feeds(one(parse, "float[N]"), {}, seed=0)

    def test_an_axis_without_a_name_is_called_by_its_place(self, parse: Parse) -> None:
        graph = one(parse, "float[2, ?]")
        assert feeds(graph, {}, dims={"x.1": 6}, seed=0)["x"].shape == (2, 6)
        with pytest.raises(UsageError, match=r"no dynamic axis 'x\.0'"):
            feeds(graph, {}, dims={"x.0": 6}, seed=0)

    def test_text_has_no_random_values(self, parse: Parse) -> None:
        with pytest.raises(UsageError, match="nothing random"):
            feeds(one(parse, "string[2]"), {}, seed=0)
