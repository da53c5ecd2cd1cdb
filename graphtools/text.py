"""Names of a file where people see them: no character acts, each can be seen."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """One line that moves no cursor: what is not printable is escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
