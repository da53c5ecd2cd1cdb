"""|d| in few cells: the worst element is never averaged away."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from converters.heat_maps import HeatMap, heat_map

Array = npt.NDArray[Any]


def apart(shape: tuple[int, ...], *at: tuple[int, ...]) -> tuple[Array, Array]:
    golden = np.zeros(shape)
    ours = golden.copy()
    for index in at:
        ours[index] = 1.0
    return golden, ours


def test_channels_and_time_are_the_first_and_the_last_axis() -> None:
    drawn = heat_map(*apart((3, 5), (1, 4)))
    assert (drawn.size, drawn.axes, drawn.folded) == ((3, 5), (0, 1), ())
    assert np.argwhere(drawn.cells).tolist() == [[1, 4]]
    assert drawn.channels.tolist() == [[0, 1, 0], [0, pytest.approx(0.2), 0]]


def test_axes_between_are_folded_by_their_largest() -> None:
    drawn = heat_map(*apart((3, 7, 5), (1, 6, 4), (2, 0, 0)))
    assert (drawn.axes, drawn.folded) == ((0, 2), (1,))
    assert np.argwhere(drawn.cells == 1.0).tolist() == [[1, 4], [2, 0]]


def test_axes_of_size_1_are_neither() -> None:
    drawn = heat_map(*apart((1, 3, 1, 5), (0, 1, 0, 4)))
    assert (drawn.size, drawn.axes, drawn.folded) == ((3, 5), (1, 3), ())


@pytest.mark.parametrize("shape", [(6,), (1, 6), ()])
def test_a_vector_is_one_row(shape: tuple[int, ...]) -> None:
    drawn = heat_map(*apart(shape))
    assert drawn.size == (1, max(1, int(np.prod(shape))))
    assert drawn.axes == (-1, max(len(shape) - 1, 0))
    assert drawn.channels.shape == (2, drawn.size[1])


@pytest.mark.parametrize("cells", [256 * 512, 5000, 100, 1])
@pytest.mark.parametrize("shape", [(1000, 3001), (3, 100_000), (5000, 2), (20_000,)])
def test_a_lone_wrong_element_stays_in_any_size(shape: tuple[int, ...], cells: int) -> None:
    at = tuple(d - 2 for d in shape)
    drawn = heat_map(*apart(shape, at), cells)
    rows, columns = drawn.cells.shape
    assert rows <= 256
    assert columns <= 512
    assert drawn.cells.size <= max(cells, min(rows, columns))
    assert np.count_nonzero(drawn.cells) == 1
    assert drawn.cells.max() == 1.0
    row, column = (int(i) for i in np.argwhere(drawn.cells)[0])
    size = drawn.size
    wanted = at if len(at) == 2 else (0, *at)
    assert row * size[0] // rows <= wanted[0] < (row + 1) * size[0] // rows
    assert column * size[1] // columns <= wanted[1] < (column + 1) * size[1] // columns
    assert drawn.channels[0].max() == 1.0


def unpacked(drawn: HeatMap) -> Array:
    planes = np.frombuffer(zlib.decompress(base64.b64decode(drawn.packed())), np.uint8)
    low, high = planes.reshape(2, -1).astype(np.uint32)
    return ((high << 8 | low) << 15).view(np.float32)


def test_packing_keeps_size_and_infinity() -> None:
    golden = np.zeros((2, 3))
    ours = np.array([[0.0, 1e-30, 3.14159], [np.inf, np.nan, 1e38]])
    drawn = heat_map(golden, ours)
    found = unpacked(drawn)
    assert found[:6] == pytest.approx([0.0, 1e-30, 3.14159, np.inf, np.inf, 1e38], rel=2**-9)
    assert len(found) == drawn.cells.size + drawn.channels.size


def test_the_same_arrays_give_the_same_bytes() -> None:
    golden, ours = np.random.default_rng(0).normal(size=(2, 40, 50))
    assert heat_map(golden, ours).packed() == heat_map(golden, ours).packed()
