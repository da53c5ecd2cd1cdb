"""An error reads as what was found, what was expected and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphtools import errors
from graphtools.errors import Error, UsageError


def test_the_tree_drawn_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn: dict[str, str] = {}
    above: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        name = line.lstrip(" │├└─").split(" ")[0]
        if name not in errors.__all__:
            continue
        depth = line.index(name)
        drawn[name] = next((above[d] for d in sorted(above, reverse=True) if d < depth), "")
        above = {d: n for d, n in above.items() if d < depth} | {depth: name}
    classes = {name: getattr(errors, name) for name in errors.__all__}
    parents = {name: cls.__bases__[0].__name__ for name, cls in classes.items()}
    assert drawn == parents | {"Error": ""}
    assert parents["Error"] == "Exception"


def test_every_class_has_a_one_line_cause() -> None:
    for name in errors.__all__:
        text = getattr(errors, name).__doc__
        assert text, name
        assert text.splitlines()[0].strip().endswith("."), name


def test_fields_come_in_reading_order_and_empty_ones_are_left_out() -> None:
    error = Error("broken", todo="mend it", found="2", expected="1", file=Path("a") / "b.onnx")
    assert list(error.fields().items()) == [
        ("error", "broken"),
        ("file", "a/b.onnx"),
        ("expected", "1"),
        ("found", "2"),
        ("to do", "mend it"),
    ]


def test_as_text_the_cause_comes_first_and_every_field_has_a_line() -> None:
    error = Error("broken", where='node 3 (Conv) -> "x"', todo="mend it")
    assert str(error) == 'broken\n  where: node 3 (Conv) -> "x"\n  to do: mend it'
    assert str(Error("broken")) == "broken"


def test_the_file_is_added_where_an_error_names_none() -> None:
    with pytest.raises(UsageError) as caught, Error.about(Path("outer")), Error.about("inner"):
        raise UsageError("wrong")
    assert caught.value.file == "inner"
    assert "file: inner" in str(caught.value)
    with pytest.raises(UsageError) as caught, Error.about("outer"):
        raise UsageError("wrong", file="its own")
    assert caught.value.file == "its own"
