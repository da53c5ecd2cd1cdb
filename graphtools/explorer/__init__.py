"""A network as one HTML page that works from disk: boxes to unfold, and what is known of each."""

from __future__ import annotations

from graphtools.explorer.overlays import Carried, Error, Fact, Golden, Mark, Overlays
from graphtools.explorer.page import inline, page

__all__ = ["Carried", "Error", "Fact", "Golden", "Mark", "Overlays", "inline", "page"]
