"""The proof's inputs do what each is there for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from converters.probes import probes

Array = npt.NDArray[Any]


def by_name(frames: int | None = None) -> dict[str, Array]:
    return {p.name: p.features for p in probes(frames)}


def test_names_and_kinds() -> None:
    found = by_name()
    assert list(found) == ["speech", "4 x speech", "constant", "short"]
    assert all(f.dtype == np.float32 and f.shape[1] == 80 for f in found.values())
    assert all(np.isfinite(f).all() for f in found.values())


def test_speech_is_the_shipped_clip(speech: Array) -> None:
    np.testing.assert_array_equal(by_name()["speech"], speech)


def test_one_is_loud() -> None:
    found = by_name()
    assert found["4 x speech"].std() > 2.5 * found["speech"].std()


def test_one_is_constant_in_time() -> None:
    constant = by_name()["constant"]
    assert (constant == constant[0]).all()
    assert constant[0].std() > 1


def test_no_length_hides_the_partial_segment() -> None:
    """A multiple of 100 frames after the stride of 2 would."""
    lengths = [len(f) for f in by_name().values()]
    assert len(set(lengths)) >= 2
    assert all((n - 1) // 2 + 1 for n in lengths)
    assert all(((n - 1) // 2 + 1) % 100 for n in lengths)


@pytest.mark.parametrize("frames", [50, 198, 200, 298, 700])
def test_a_fixed_length_export_gets_its_own_length_only(frames: int) -> None:
    found = by_name(frames)
    assert {f.shape for f in found.values()} == {(frames, 80)}
    assert list(found) == ["speech", "4 x speech", "constant"]
    assert all(np.isfinite(f).all() for f in found.values())


def test_they_are_the_same_every_time() -> None:
    for one, two in zip(probes(), probes(), strict=True):
        np.testing.assert_array_equal(one.features, two.features)
