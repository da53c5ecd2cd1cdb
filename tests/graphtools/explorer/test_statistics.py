"""Statistics are numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from graphtools.explorer.statistics import BINS, statistics
from graphtools.tensors import DType, Held, LazyTensor

SHAPES = [(7,), (5, 3), (200, 4, 3, 3), (1, 9)]


@pytest.mark.parametrize("shape", SHAPES)
def test_figures_are_numpys(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    found = statistics(values, 64)
    assert found is not None
    wide = values.astype(np.float64)
    assert found.minimum == wide.min()
    assert found.maximum == wide.max()
    assert found.mean == pytest.approx(wide.mean(), rel=1e-12)
    assert found.std == pytest.approx(wide.std(), rel=1e-12)
    assert found.strange == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_the_histogram_is_numpys(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    found = statistics(values, 0)
    assert found is not None
    wanted, _ = np.histogram(values.astype(np.float64), BINS)
    assert sum(found.histogram) == values.size
    # A value on the edge of a bin may be rounded to the other side.
    assert np.abs(np.asarray(found.histogram) - wanted).sum() <= 2


def test_the_strip_is_the_range_of_the_channels() -> None:
    values = np.random.default_rng(3).normal(size=(6, 4, 3))
    found = statistics(values, 6)
    assert found is not None
    assert found.strip == tuple((float(c.min()), float(c.max())) for c in values)
    merged = statistics(values, 3)
    assert merged is not None
    pairs = values.reshape(3, -1)
    assert merged.strip == tuple((float(c.min()), float(c.max())) for c in pairs)


def test_one_value_fills_one_bin() -> None:
    found = statistics(np.full(9, 2.5), 4)
    assert found is not None
    assert sorted(found.histogram)[-2:] == [0, 9]


def test_what_is_not_finite_is_counted_apart() -> None:
    found = statistics(np.array([[1.0, np.nan], [np.inf, 3.0]]), 2)
    assert found is not None
    assert (found.minimum, found.maximum, found.strange) == (1.0, 3.0, 2)
    assert found.strip == ((1.0, 1.0), (3.0, 3.0))


@pytest.mark.parametrize("values", [np.array([]), np.array([np.nan]), np.array([np.inf, -np.inf])])
def test_no_finite_number_has_no_statistics(values: np.ndarray) -> None:
    assert statistics(values, 4) is None


def test_a_tensor_that_holds_no_numbers_is_not_read() -> None:
    tensor = LazyTensor("s", (1,), DType.STRING, Held("s", np.array(["x"])))
    assert statistics(tensor, 4) is None
