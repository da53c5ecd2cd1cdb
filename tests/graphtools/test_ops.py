"""The protocol that forwards are written in."""

from __future__ import annotations

import inspect

import pytest

from graphtools.numpy_ops import NumpyOps
from graphtools.ops import LAYOUT, Ops, per_axis
from graphtools.trace import trace


@pytest.mark.parametrize(
    ("value", "axes", "expected"), [(2, 1, (2,)), (2, 2, (2, 2)), ((2, 1), 2, (2, 1))]
)
def test_one_number_stands_for_every_axis(
    value: int | tuple[int, ...], axes: int, expected: tuple[int, ...]
) -> None:
    assert per_axis(value, axes) == expected


def test_the_layout_steps_are_methods_that_change_no_value() -> None:
    assert sorted(LAYOUT) == ["channel", "merge_frequency", "stage"]
    assert all(hasattr(Ops, name) for name in LAYOUT)


def test_every_method_means_the_same_call_in_every_reading() -> None:
    """A forward must not see who reads it: names, order and defaults of arguments agree."""
    readers: list[type] = [NumpyOps]
    trace(lambda o, x: readers.append(type(o)) or o.relu(x))  # type: ignore[func-returns-value]
    methods = [n for n, f in vars(Ops).items() if inspect.isfunction(f) and not n.startswith("_")]
    assert len(methods) > 15
    for reader in readers:
        for name in methods:
            theirs, ours = (
                [(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()]
                for f in (getattr(reader, name), getattr(Ops, name))
            )
            assert theirs == ours, f"{reader.__name__}.{name}"
            assert name in vars(reader), f"{reader.__name__} does not read {name}"
