"""Tables for notebooks: every cell is escaped, and nothing else is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["html_table"]

_MOST = 200


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML fragment; of more than 200 rows the rest is counted."""
    listed = [tuple(row) for row in rows]
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_visible(str(cell)))}</td>" for cell in row) + "</tr>"
        for row in listed[:_MOST]
    )
    more = f"<p>.. and {len(listed) - _MOST} more</p>" if len(listed) > _MOST else ""
    return (
        f"<p><b>{escape(_visible(title))}</b></p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
    )


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
