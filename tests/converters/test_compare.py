"""The measure that proof, goldens and reports share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from converters.compare import cosine, difference, local_error

Array = npt.NDArray[Any]
INF, NAN = float("inf"), float("nan")

FINITE = arrays(
    np.float64,
    array_shapes(max_dims=3, max_side=5),
    elements=st.floats(-1e6, 1e6).map(lambda v: 0.0 if abs(v) < 1e-6 else v),
)


def array(*values: float) -> Array:
    return np.array(values)


class TestLocalError:
    def test_is_relative_to_the_element_plus_the_rms(self) -> None:
        reference = array(3.0, -4.0, 0.0, 0.0)  # rms 2.5
        assert local_error(reference, array(3.0, -4.0, 1.0, 0.0)) == pytest.approx(1 / 2.5)
        assert local_error(reference, array(4.0, -4.0, 0.0, 0.0)) == pytest.approx(1 / 5.5)
        assert local_error(reference, array(4.0, -4.0, 1.0, 0.0)) == pytest.approx(1 / 2.5)

    def test_the_worst_element_decides(self) -> None:
        reference = np.ones(10_000)
        ours = reference.copy()
        ours[1234] += 1e-3
        assert local_error(reference, ours) == pytest.approx(5e-4)

    def test_is_zero_for_the_same_values_in_another_precision(self) -> None:
        values = np.random.default_rng(0).normal(size=50).astype(np.float32)
        assert local_error(values, values.astype(np.float64)) == 0.0

    def test_zeros_against_zeros_are_equal(self) -> None:
        assert local_error(np.zeros(4), np.zeros(4)) == 0.0

    def test_anything_against_zeros_is_infinitely_wrong(self) -> None:
        assert local_error(np.zeros(4), array(0, 0, 1e-30, 0)) == INF

    def test_zeros_against_values_are_wrong_by_a_half_and_more(self) -> None:
        assert local_error(np.ones(4), np.zeros(4)) == 0.5

    @pytest.mark.parametrize("bad", [NAN, INF, -INF])
    def test_a_value_that_is_not_finite_on_one_side_is_infinitely_wrong(self, bad: float) -> None:
        good, broken = array(1, 2, 3), array(1, bad, 3)
        assert local_error(good, broken) == INF
        assert local_error(broken, good) == INF

    @pytest.mark.parametrize("bad", [NAN, INF, -INF])
    def test_the_same_values_that_are_not_finite_are_equal(self, bad: float) -> None:
        assert local_error(array(1, bad), array(1, bad)) == 0.0
        assert local_error(array(1, bad), array(2, bad)) == INF

    def test_other_infinities_differ(self) -> None:
        assert local_error(array(INF), array(-INF)) == INF
        assert local_error(array(INF), array(NAN)) == INF

    def test_empty_arrays_are_equal(self) -> None:
        assert local_error(np.zeros((0, 3)), np.zeros((0, 3))) == 0.0

    def test_huge_values_do_not_overflow(self) -> None:
        huge = np.full(4, np.finfo(np.float32).max, np.float32)
        assert local_error(huge, huge) == 0.0
        assert 0 < local_error(huge, huge * np.float32(0.9)) < 1

    @settings(database=None, deadline=None)
    @given(FINITE, st.sampled_from([2.0**-20, 0.5, 2.0, 1024.0]))
    def test_does_not_depend_on_the_unit(self, values: Array, scale: float) -> None:
        """Powers of two: the arithmetic is the same."""
        ours = values + 0.25 * np.abs(values).max(initial=0.0)
        assert local_error(values * scale, ours * scale) == local_error(values, ours)

    @settings(database=None, deadline=None)
    @given(FINITE, st.floats(1e-9, 1e-3))
    def test_scaling_by_a_little_more_than_one_shows(self, values: Array, by: float) -> None:
        error = local_error(values, values * (1.0 + by))
        largest = np.abs(values).max(initial=0.0)
        assert error == 0.0 if largest == 0 else 0.4 * by <= error <= by


class TestDifference:
    def test_names_the_largest_and_where_it_is(self) -> None:
        golden = np.zeros((2, 3))
        ours = golden.copy()
        ours[1, 2], ours[0, 1] = -0.5, 0.25
        found = difference(golden, ours)
        assert found.max_abs == 0.5
        assert found.at == (1, 2)
        assert found.mean_abs == pytest.approx(0.75 / 6)
        assert found.cosine == 0.0

    def test_equal_arrays(self) -> None:
        values = np.random.default_rng(0).normal(size=(3, 4))
        found = difference(values, values.copy())
        assert found.max_abs == found.mean_abs == 0.0
        assert found.cosine == pytest.approx(1.0, abs=1e-15)
        assert found.snr_db == INF

    def test_snr_is_of_powers_in_decibels(self) -> None:
        golden = np.full(100, 2.0)
        assert difference(golden, golden + 0.02).snr_db == pytest.approx(40.0)
        assert difference(golden, golden * 0.0).snr_db == pytest.approx(0.0)

    def test_relative_is_to_the_largest_of_the_golden(self) -> None:
        golden = array(1.0, -4.0)
        assert difference(golden, golden + 0.5).relative == pytest.approx(0.5 / 4)
        assert difference(np.zeros(2), golden).relative == INF
        assert difference(np.zeros(2), np.zeros(2)).relative == 0.0

    def test_length_is_of_ours_over_the_goldens(self) -> None:
        golden = array(3.0, 4.0)
        assert difference(golden, -2.0 * golden).length == pytest.approx(2.0)
        assert difference(np.zeros(2), golden).length == INF
        assert difference(golden, np.zeros(2)).length == 0.0
        assert difference(np.zeros(2), np.zeros(2)).length == 1.0

    def test_values_whose_squares_overflow(self) -> None:
        golden = array(1e200, 2e200)
        found = difference(golden, 2.0 * golden)
        assert found.cosine == pytest.approx(1.0)
        assert found.length == pytest.approx(2.0)
        assert found.snr_db == pytest.approx(0.0)

    def test_what_both_lack_does_not_turn_the_rest(self) -> None:
        found = difference(array(1, NAN, INF), array(2, NAN, INF))
        assert (found.max_abs, found.cosine, found.length) == (1.0, 1.0, 2.0)

    def test_other_shapes_are_the_callers_matter(self) -> None:
        with pytest.raises(ValueError, match="shapes differ"):
            difference(np.zeros((2, 3)), np.zeros((3, 2)))

    def test_zeros_against_zeros(self) -> None:
        found = difference(np.zeros(3), np.zeros(3))
        assert (found.max_abs, found.cosine, found.snr_db) == (0.0, 1.0, INF)

    def test_empty(self) -> None:
        found = difference(np.zeros((0, 4)), np.zeros((0, 4)))
        assert (found.max_abs, found.at, found.mean_abs) == (0.0, (), 0.0)

    @pytest.mark.parametrize("bad", [NAN, INF, -INF])
    def test_one_side_that_is_not_finite_is_infinitely_far(self, bad: float) -> None:
        found = difference(array(1, 2, 3), array(1, bad, 3))
        assert found.max_abs == INF
        assert found.at == (1,)

    def test_both_nan_is_no_difference(self) -> None:
        assert difference(array(1, NAN), array(1.5, NAN)).max_abs == 0.5

    @pytest.mark.parametrize("sign", [1, -1])
    def test_both_the_same_infinity_is_no_difference(self, sign: int) -> None:
        """As with NaN, and as `local_error` has it; only one side finite is infinite."""
        found = difference(array(1, sign * INF), array(1.5, sign * INF))
        assert found.max_abs == 0.5
        assert found.at == (0,)

    def test_opposite_infinities_are_infinitely_far(self) -> None:
        assert difference(array(INF), array(-INF)).max_abs == INF


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_that_are_one_float64_still_differ(dtype: type) -> None:
    found = difference(np.array([2**53 + 1], dtype), np.array([2**53], np.int64))
    assert found.max_abs == 1.0


class TestCosine:
    def test_known_angles(self) -> None:
        assert cosine(array(1, 0), array(1, 1)) == pytest.approx(np.sqrt(0.5))
        assert cosine(array(1, 0), array(0, 5)) == 0.0
        assert cosine(array(1, 2), array(-2, -4)) == pytest.approx(-1.0)

    def test_zeros(self) -> None:
        assert cosine(np.zeros(3), np.zeros(3)) == 1.0
        assert cosine(np.zeros(3), np.ones(3)) == 0.0
        assert cosine(np.ones(3), np.zeros(3)) == 0.0

    def test_shape_does_not_matter(self) -> None:
        values = np.arange(6.0)
        assert cosine(values.reshape(2, 3), values.reshape(6)) == pytest.approx(1.0)

    def test_float32_sums_are_not_rounded(self) -> None:
        values = np.full(100_000, 0.1, np.float32)
        assert cosine(values, values) == pytest.approx(1.0, abs=1e-12)

    @pytest.mark.parametrize("scale", [1e-40, 1e-20, 1e30])
    def test_tiny_and_huge_vectors_have_a_direction(self, scale: float) -> None:
        values = array(1.0, 2.0, 3.0)
        assert cosine(values, values * scale) == pytest.approx(1.0)
