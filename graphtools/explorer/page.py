"""The page: template, style, scripts and data in one file without a reference to anything else.

Nothing of the model is ever part of the markup: the data is deflated JSON, which the scripts put
on the page as text. A content security policy lets the page's own scripts run, by their hashes, and
nothing else; it allows no network at all.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Mapping
from importlib.resources import files

from graphtools.boxes import Box
from graphtools.explorer.data import page_data
from graphtools.explorer.overlays import Overlays
from graphtools.graph import Graph
from graphtools.model import Value

__all__ = ["inline", "page"]

_STYLES = ("page.css", "graph.css", "panel.css")
_SCRIPTS = (
    *("model.js", "text.js", "layout.js", "routes.js", "draw.js", "weights.js", "panel.js"),
    *("details.js", "search.js", "view.js", "keys.js", "frame.js", "main.js"),
)


def page(
    graph: Graph,
    tree: Box,
    overlays: Overlays | None = None,
    shapes: Mapping[str, Value] | None = None,
) -> str:
    """The whole HTML page; the same arguments give the same text.

    Args:
        graph: what is shown; its weights are read one at a time.
        tree: its boxes (`graphtools.hierarchy.hierarchy`).
        overlays: what is known beyond the graph.
        shapes: of its tensors; what the file and inference say by default
            (`graphtools.shapes.shapes`, which may also run the model).
    """
    overlays = overlays or Overlays()
    data = page_data(graph, tree, overlays, shapes)
    packed = zlib.compress(json.dumps(data, separators=(",", ":"), allow_nan=False).encode(), 9)
    scripts = [_library(), *(_asset(name) for name in _SCRIPTS)]
    parts = {
        "title": html.escape(f"{graph.model.path.name} - graphtools"),
        "css": "\n".join(_asset(name) for name in _STYLES),
        "data": base64.b64encode(packed).decode(),
        "script-hashes": " ".join(f"'sha256-{_digest(script)}'" for script in scripts),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return re.sub(r"\{\{([\w-]+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def inline(
    graph: Graph,
    tree: Box,
    overlays: Overlays | None = None,
    shapes: Mapping[str, Value] | None = None,
    height: int = 640,
) -> str:
    """The page in a frame of its own, as a fragment for a notebook; arguments as for `page`.

    Args:
        height: of the frame, in pixels.
    """
    whole = html.escape(page(graph, tree, overlays, shapes))
    return (
        '<iframe sandbox="allow-scripts" allow="clipboard-write *" '
        f'style="width:100%;height:{height}px;border:0" '
        f'srcdoc="{whole}"></iframe>'
    )


def _asset(name: str) -> str:
    return (files("graphtools.explorer") / "assets" / name).read_text("utf-8")


def _library() -> str:
    """The library as npm has it, its licences before it, without the name of its source map."""
    vendor = files("graphtools.explorer") / "vendor"
    licences = "\n".join(
        (vendor / name).read_text("utf-8") for name in ("dagre.LICENSE", "graphlib.LICENSE")
    )
    code = (vendor / "dagre.min.js").read_text("utf-8").split("//# sourceMappingURL")[0]
    return f"/*! @dagrejs/dagre and @dagrejs/graphlib\n{licences}*/\n{code}"


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
