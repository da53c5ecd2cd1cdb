"""A hint is a line that would make ours the golden, and is given only when it would."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from converters.comparison import compare
from converters.gates import Gates
from converters.hints import HINTS, Trial, hints

Array = npt.NDArray[Any]
Fault = Callable[[Array], Array]


def normal(*shape: int, seed: int = 0) -> Array:
    """Values whose mean over the last axis is zero."""
    x = np.random.default_rng(seed).normal(size=shape)
    centred: Array = x - x.mean(axis=-1, keepdims=True)
    return centred


def given(golden: Array, ours: Array, **others: Array) -> tuple[str, ...]:
    """The hints on ``x``; the other goldens come before it and are right."""
    return compare({**others, "x": golden}, {**others, "x": ours}).hints


def padded(x: Array) -> Array:
    return np.pad(x, ((0, 0), (2, 1)))


@pytest.mark.parametrize(
    ("fault", "hint"),
    [
        (lambda x: x.T, "ours is the golden with its axes in the order [1, 0]"),
        (
            lambda x: np.ascontiguousarray(x.T).reshape(x.shape),
            "ours is the golden with its axes in the order [1, 0]",
        ),
        (
            lambda x: x.reshape(4, 60),
            "ours holds the golden's values in their order, under another shape",
        ),
        (lambda x: x[:, ::-1], "ours is the golden with axis 1 (time) reversed"),
        (lambda x: x[::-1], "ours is the golden with axis 0 (channels) reversed"),
        (lambda x: np.roll(x, 1, 1), "ours is the golden 1 frame later, along axis 1 (time)"),
        (lambda x: np.roll(x, -3, 1), "ours is the golden 3 frames earlier, along axis 1 (time)"),
        (lambda x: 32768 * x, "ours is too large by 32768 (samples as integers)"),
        (lambda x: x / 32768, "ours is too small by 32768 (samples as integers)"),
        (lambda x: x / np.log(10), "ours is too small by ln 10 (log10 in place of ln)"),
        (lambda x: x / np.log(2) * 10, "ours times 0.0693147 is the golden"),
        (lambda x: x / np.sqrt(80), "ours is too small by the root of 80"),
        (lambda x: np.sqrt(512) * x, "ours is too large by the root of 512"),
        (lambda x: -x, "ours times -1 is the golden"),
        (
            lambda x: x[:, :-1],
            "ours lacks 0 frames at the start and 1 at the end, along axis 1 (time)",
        ),
        (padded, "ours has 2 frames at the start and 1 more at the end, along axis 1 (time)"),
        (
            lambda x: x + np.arange(8.0)[:, None],
            "the mean over axis 1 (time) is not subtracted from ours",
        ),
        (
            lambda x: np.concatenate([x[4:], x[:4]]),
            "ours is concatenated in another order: the golden's 4:8, 0:4 of axis 0 (channels)",
        ),
        (
            lambda x: np.concatenate([x[5:], x[2:5], x[:2]]),
            "ours is concatenated in another order: "
            "the golden's 5:8, 2:5, 0:2 of axis 0 (channels)",
        ),
        (
            lambda x: np.concatenate([x[:, 20:], x[:, :20]], 1),
            "ours is concatenated in another order: the golden's 20:30, 0:20 of axis 1 (time)",
        ),
        (np.tanh, "ours has gone through a tanh, and the golden has not"),
    ],
)
def test_a_fault_of_the_list_is_explained_and_nothing_else_is_said(fault: Fault, hint: str) -> None:
    x = normal(8, 30)
    assert given(x, fault(x)) == (hint,)


@pytest.mark.parametrize(("by", "word"), [(-20.7944, "small"), (20.7944, "large")])
def test_log_energies_of_scaled_samples(by: float, word: str) -> None:
    x = normal(8, 30) + np.arange(8.0)[:, None]
    (found,) = given(x, x + by)
    assert found.startswith(f"ours plus {-by} is the golden: 2 ln 32768")
    assert found.endswith(f"samples that are too {word}")


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_axes_in_any_order(order: tuple[int, ...]) -> None:
    x = normal(4, 5, 6)
    said = f"ours is the golden with its axes in the order {list(order)}"
    assert said in given(x, x.transpose(order))


def test_axes_of_size_1_do_not_count() -> None:
    x = normal(1, 4, 1, 6)
    assert given(x, x[0, :, 0].T) == ("ours is the golden with its axes in the order [1, 0]",)


def test_a_mean_that_is_subtracted_once_too_often() -> None:
    x = normal(8, 30) + np.arange(8.0)[:, None]
    said = "the mean over axis 1 (time) is subtracted from ours, not from the golden"
    assert given(x, x - x.mean(axis=1, keepdims=True)) == (said,)


class TestBeforeAndAfter:
    def test_the_golden_of_an_operation_before(self) -> None:
        """A norm has weights of its own: only the golden before it can tell."""
        before = normal(8, 30)
        weights = np.linspace(0.5, 2.0, 8)[:, None]
        found = given(weights * before + 1.0, before, conv=before, earlier=normal(8, 30, seed=1))
        assert found[0] == "ours is the golden 'conv', 2 before it in execution order"

    def test_the_golden_of_an_operation_after(self) -> None:
        golden = {"conv": normal(8, 30), "relu": np.maximum(normal(8, 30), 0.0)}
        found = compare(golden, {"conv": golden["relu"], "relu": golden["relu"]})
        assert found.hints[0] == "ours is the golden 'relu', 1 after it in execution order"

    def test_a_relu_needs_no_golden(self) -> None:
        x = normal(8, 30)
        assert given(np.maximum(x, 0.0), x) == ("ours is the value before the ReLU",)
        assert given(x, np.maximum(x, 0.0)) == (
            "ours has gone through a ReLU, and the golden has not",
        )


class TestPerChannel:
    def test_a_norm_with_other_values_is_told_by_its_factors(self) -> None:
        x = normal(8, 30)
        (found,) = given(x, x / np.linspace(1.0, 2.0, 8)[:, None] + 0.5)
        assert "a factor and an offset for each of axis 0 (channels)" in found
        assert "(factors 1 to 2)" in found

    def test_two_numbers_explain_nothing_of_a_few_values(self) -> None:
        assert given(normal(8, 2), normal(8, 2, seed=1)) == ()


class TestOnlyWhatExplainsAll:
    def test_other_values_have_no_hint(self) -> None:
        assert given(normal(8, 30), normal(8, 30, seed=1)) == ()

    @pytest.mark.parametrize(
        "fault",
        [lambda x: x[:, ::-1], lambda x: np.roll(x, 1, 1), lambda x: 2 * x, lambda x: x + 1],
    )
    def test_one_element_that_is_not_explained_forbids_the_hint(self, fault: Fault) -> None:
        """Beyond the sample that is looked at first, too."""
        x = normal(64, 500)
        ours = fault(x).copy()
        assert given(x, ours) != ()
        ours[17, 123] += 1.0
        assert given(x, ours) == ()

    @pytest.mark.parametrize("level", [0.0, 0.1])
    def test_of_a_constant_nothing_is_moved_or_scaled(self, level: float) -> None:
        golden = np.full((4, 30), level)
        ours = golden.copy()
        ours[1, 2] = 3.0
        assert given(golden, ours) == ()

    def test_values_that_are_not_finite_have_none(self) -> None:
        x = normal(8, 30)
        x[0, 0] = np.nan
        assert given(np.zeros((8, 30)), x) == ()

    def test_integers_are_explained_exactly(self) -> None:
        """A code that is nearly right is wrong."""
        codes = np.random.default_rng(0).integers(0, 1024, (8, 3000))
        late = np.roll(codes, 1, 1)
        assert given(codes, late) == ("ours is the golden 1 frame later, along axis 1 (time)",)
        late[3, 3] += 1
        assert given(codes, late) == ()

    def test_channels_that_are_all_zero_do_not_confuse_a_concatenation(self) -> None:
        x = normal(12, 30)
        x[[0, 3, 4, 9]] = 0.0
        ours = np.concatenate([x[4:], x[:4]])
        (found,) = given(x, ours)
        assert "the golden's 4:12, 0:4 of axis 0" in found

    def test_five_parts_are_too_many(self) -> None:
        x = normal(10, 30)
        parts = [x[i : i + 2] for i in (8, 6, 4, 2, 0)]
        assert given(x, np.concatenate(parts)) == ()


def test_large_arrays_are_ruled_out_by_a_sample() -> None:
    """All hints on a pair of 16 MB arrays take no longer than judging a few pairs does."""
    golden, ours = (normal(64, 250, 250, seed=seed).astype(np.float32) for seed in (0, 1))
    began = time.perf_counter()
    compare({"x": golden}, {"x": golden})
    once = time.perf_counter() - began
    began = time.perf_counter()
    assert hints(Trial(golden, ours, Gates()), {}) == ()
    assert time.perf_counter() - began < 10 * once


def test_many_slices_that_are_alike_take_no_time() -> None:
    golden, ours = np.zeros(200_000), np.zeros(200_000)
    golden[10], ours[-10] = 1.0, 2.0
    begin = time.perf_counter()
    assert given(golden, ours) == ()
    assert time.perf_counter() - begin < 5.0


def test_there_is_one_function_for_each() -> None:
    assert len({hint.__name__ for hint in HINTS}) == len(HINTS)
