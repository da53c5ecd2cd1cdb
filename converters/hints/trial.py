"""A golden and what the engine has for it, and when a guess makes the two equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from converters.compare import distance
from converters.gates import Gates, judge
from graphtools.tensors import Array

__all__ = ["Hint", "Others", "Trial", "axis_name"]

# (name, places later in execution order) to the golden of that name, nearest first.
Others = Mapping[tuple[str, int], Callable[[], Array]]

# Elements that are looked at before all are.
_SAMPLE = 4096


@dataclass(frozen=True)
class Trial:
    """A golden and what the engine has for it, and when two arrays are equal.

    Attributes:
        noise: the golden's own, as max|d|.
    """

    golden: Array
    ours: Array
    gates: Gates
    noise: float = 0.0

    @cached_property
    def a(self) -> Array:
        """The golden without axes of size 1, float64."""
        return self.golden.reshape([d for d in self.golden.shape if d != 1]).astype(np.float64)

    @cached_property
    def b(self) -> Array:
        """Ours without axes of size 1, float64."""
        return self.ours.reshape([d for d in self.ours.shape if d != 1]).astype(np.float64)

    @cached_property
    def bound(self) -> float:
        """The largest max|d| that any part of the golden is allowed."""
        return self.gates.bound(self.golden, self.noise)

    def near(self, one: Array, other: Array) -> bool:
        """Whether a sample of two arrays of one shape fits: False means that they differ.

        Twice the bound: what is made of a golden may be larger than the golden.
        """
        at = _sample(one.size)
        return bool((distance(one.flat[at], other.flat[at]) <= 2.0 * self.bound).all())

    def equal(self, one: Array, other: Array) -> bool:
        """Whether ``other`` is ``one`` within the gate; the sample is looked at first."""
        if one.shape != other.shape or not one.size or not self.near(one, other):
            return False
        return not judge(one, other, self.gates, self.noise).problem

    def pointwise(self, one: Array, other: Array, function: Callable[[Array], Array]) -> bool:
        """Whether ``function`` of ``other``, element by element, is ``one``."""
        at = _sample(one.size)
        if one.shape != other.shape or not self.near(one.flat[at], function(other.flat[at])):
            return False
        return self.equal(one, function(other))


# What would make ours the golden, as a line; None where this is not what is wrong.
Hint = Callable[[Trial, Others], str | None]


def axis_name(trial: Trial, axis: int) -> str:
    """The last of several axes is time, as goldens of stages have it; the first are channels."""
    last = trial.a.ndim - 1
    if last > 0 and axis in (0, last):
        return f"axis {axis} ({'time' if axis == last else 'channels'})"
    return f"axis {axis}"


def _sample(size: int) -> Array:
    """Indices all over an array, with no period that its axes might have."""
    if size <= _SAMPLE:
        return np.arange(size)
    return np.random.default_rng(0).integers(0, size, _SAMPLE)
