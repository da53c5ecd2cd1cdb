"""`assert_parity`: what ``graphtools compare`` prints, as an AssertionError."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from converters.parity import assert_parity
from graphtools.errors import UsageError


def test_what_is_equal_passes_and_is_returned() -> None:
    golden = {"x": np.arange(6.0).reshape(2, 3)}
    found = assert_parity(golden, {"x": torch.arange(6.0).reshape(1, 2, 3)})
    assert found
    assert found.rows[0].shape == (2, 3)


def test_what_differs_fails_with_the_summary() -> None:
    golden = {"stem": np.ones(3), "layer1.0": np.ones(3)}
    with pytest.raises(AssertionError) as caught:
        assert_parity(golden, {"stem": [1.0, 1.0, 1.0], "layer1.0": [1.0, 1.0, 1.5]})
    said = str(caught.value).splitlines()
    assert said[:2] == ["1 of 2 tensors are right, 1 wrong", "first wrong: layer1.0"]
    assert len(said) <= 40


def test_paths_and_arrays_mix(tmp_path: Path) -> None:
    np.savez(tmp_path / "golden.npz", x=np.ones(3))
    assert_parity(str(tmp_path / "golden.npz"), {"y": np.ones(3)}, names={"x": "y"})
    with pytest.raises(UsageError, match="no such file"):
        assert_parity(tmp_path / "absent.npz", {"x": np.ones(3)})


def test_the_gates_are_those_of_the_command() -> None:
    golden, ours = {"x": np.ones(3)}, {"x": np.array([1.0, 1.0, 1.005])}
    with pytest.raises(AssertionError):
        assert_parity(golden, ours)
    assert_parity(golden, ours, atol=0.01)
    assert_parity(golden, ours, tol=0.01)
    with pytest.raises(AssertionError, match=r"cosine 0.99999. below 0.9999999"):
        assert_parity(golden, ours, atol=0.01, cos=0.9999999)


def test_what_only_one_side_has_fails() -> None:
    one, two = {"x": np.ones(3)}, {"x": np.ones(3), "y": np.ones(3)}
    with pytest.raises(AssertionError, match="1 goldens have no tensor of ours: y"):
        assert_parity(two, one)
    with pytest.raises(AssertionError, match="1 of ours have no golden: y"):
        assert_parity(one, two)
