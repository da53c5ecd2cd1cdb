"""Tables for notebooks: every cell is escaped, and nothing else is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from graphtools.text import printable

__all__ = ["html_table"]

_MOST = 200


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML fragment; of more than 200 rows the rest is counted."""
    listed = [tuple(row) for row in rows]
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(printable(str(cell)))}</td>" for cell in row) + "</tr>"
        for row in listed[:_MOST]
    )
    more = f"<p>.. and {len(listed) - _MOST} more</p>" if len(listed) > _MOST else ""
    return (
        f"<p><b>{escape(printable(title))}</b></p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
    )
