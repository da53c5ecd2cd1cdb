"""Typed values: what fits a type is stored plainly, what does not is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converters.manifest import Entry, Manifest, require_value
from graphtools.errors import UnsupportedError

F32_MAX = float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("string", "povey"),
        ("string", ""),
        ("string", "名前"),
        ("bool", True),
        ("bool", False),
        ("u8", 0),
        ("u8", 255),
        ("u32", 0),
        ("u32", 2**32 - 1),
        ("u64", 2**64 - 1),
        ("i32", -(2**31)),
        ("i32", 2**31 - 1),
        ("i64", -(2**63)),
        ("i64", 2**63 - 1),
        ("f32", 0.5),
        ("f32", -0.0),
        ("f32", F32_MAX),
        ("f32", -F32_MAX),
    ],
)
def test_a_value_that_fits_is_kept(type: str, value: Any) -> None:
    stored = require_value("k", type, value)
    assert stored == value
    assert stored.__class__ is value.__class__


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("u8", 256),
        ("u8", -1),
        ("u32", 2**32),
        ("u32", -1),
        ("u64", 2**64),
        ("i32", 2**31),
        ("i32", -(2**31) - 1),
        ("i64", 2**63),
        ("i64", -(2**63) - 1),
        ("f32", 3.5e38),
        ("f32", float("inf")),
        ("f32", float("-inf")),
        ("f32", float("nan")),
    ],
)
def test_a_value_out_of_range_is_refused(type: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"the key 'some\.key'") as caught:
        require_value("some.key", type, value)
    assert caught.value.expected == type
    assert caught.value.found == repr(value)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("u32", True),
        ("u32", 1.0),
        ("u32", "1"),
        ("u32", None),
        ("i32", False),
        ("bool", 1),
        ("bool", 0),
        ("bool", "true"),
        ("f32", 20),
        ("f32", "0.5"),
        ("f32", True),
        ("string", 1),
        ("string", b"povey"),
        ("string", None),
        ("string", ("povey",)),
        ("u32", (1,)),
        ("complex", 1),
        ("", 1),
    ],
)
def test_a_value_of_another_type_is_refused(type: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match="does not fit"):
        require_value("k", type, value)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("u32", np.uint32(3)),
        ("i32", np.int32(3)),
        ("i64", np.int64(3)),
        ("f32", np.float32(0.5)),
        ("bool", np.bool_(True)),
        ("[i32]", (1, np.int32(2))),
        ("[f32]", (0.5, np.float32(0.5))),
        ("[i32]", np.array([1, 2])),
    ],
)
def test_numpy_values_are_refused(type: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match="does not fit"):
        require_value("k", type, value)


@pytest.mark.parametrize(
    ("type", "value"), [("f32", np.float64(0.5)), ("string", np.str_("povey"))]
)
def test_a_numpy_subclass_of_a_plain_type_never_gets_through_as_itself(
    type: str, value: Any
) -> None:
    """float64 is a float and str_ a str to Python: refused or made plain, not kept."""
    try:
        stored = require_value("k", type, value)
    except UnsupportedError:
        return
    assert stored == value
    assert stored.__class__ in (float, str)


@pytest.mark.parametrize("type", ["[string]", "[i32]", "[f32]"])
@pytest.mark.parametrize("empty", [(), []])
def test_an_empty_array_is_refused(type: str, empty: Any) -> None:
    with pytest.raises(UnsupportedError, match="does not fit"):
        require_value("k", type, empty)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("[i32]", (1, 2.0)),
        ("[i32]", (1, "2")),
        ("[i32]", (1, True)),
        ("[i32]", (1, 2**31)),
        ("[i32]", (1, None)),
        ("[f32]", (0.5, 1)),
        ("[f32]", (0.5, float("nan"))),
        ("[string]", ("a", 1)),
        ("[string]", "ab"),
        ("[i32]", 1),
        ("[i32]", {1: 2}),
        ("[i32]", range(3)),
        ("[i32]", ((1, 2), (3, 4))),
        ("[[i32]]", ((1, 2), (3, 4))),
    ],
)
def test_a_mixed_or_nested_array_is_refused(type: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match="does not fit"):
        require_value("k", type, value)


def test_lists_become_tuples() -> None:
    assert require_value("k", "[i32]", [1, 2]) == (1, 2)
    assert require_value("k", "[string]", ["", "a"]) == ("", "a")


@settings(database=None, deadline=None)
@given(st.floats(min_value=-F32_MAX, max_value=F32_MAX, allow_nan=False))
def test_f32_is_rounded_once_to_what_is_stored(value: float) -> None:
    stored = require_value("k", "f32", value)
    assert isinstance(stored, float)
    assert stored == float(np.float32(value))
    assert require_value("k", "f32", stored) == stored


def manifest(*entries: Entry) -> Manifest:
    return Manifest("voicedetect", "m", entries, ())


def test_get_gives_the_value_of_a_key_with_exactly_that_type() -> None:
    m = manifest(Entry("a", "u32", 3, "test"), Entry("b", "[string]", ("x",), "test"))
    assert m.get("a", "u32") == 3
    assert m.get("b", "[string]") == ("x",)
    assert m["a"] == 3
    assert list(m.by_key) == ["a", "b"]


@pytest.mark.parametrize(
    ("key", "type", "found"),
    [
        ("absent", "u32", "no such key"),
        ("a", "i32", "u32"),
        ("a", "f32", "u32"),
        ("a", "[u32]", "u32"),
        ("b", "string", "[string]"),
    ],
)
def test_get_refuses_an_absent_key_and_another_type(key: str, type: str, found: str) -> None:
    m = manifest(Entry("a", "u32", 3, "test"), Entry("b", "[string]", ("x",), "test"))
    with pytest.raises(UnsupportedError, match=f"'{key}' is not as the schema says") as caught:
        m.get(key, type)
    assert caught.value.expected == type
    assert caught.value.found == found


def test_repr_says_what_it_holds() -> None:
    assert repr(manifest(Entry("a", "u32", 3, "test"))) == "<Manifest m: 1 keys, 0 tensors>"
