"""Text of a file on a terminal."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """One line that moves no cursor: what is not printable is escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
