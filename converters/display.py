"""What a shell shows of our objects: a screenful each, as rich tables."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from converters.comparison import Comparison
from converters.comparison_text import shortened, summary
from converters.manifest import Manifest
from graphtools.graph import Graph
from graphtools.navigate import NodeView
from graphtools.recover import NearMiss, Recovered
from graphtools.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["SHOWN", "shown"]

# Classes that have more to show than their repr.
SHOWN = (Graph, Recovered, NearMiss, NodeView, Manifest, Comparison)
_ROWS = 30
_CELL = 60


def shown(value: object, width: int = 80, *, color: bool = False) -> str:
    """A value of one of `SHOWN` as text of at most ``width`` columns and about 40 lines."""
    from rich.console import Console, Group

    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=color, highlight=False, emoji=False, markup=False
    )
    console.print(Group(*_parts(value, width)))
    return out.getvalue().rstrip("\n")


def _parts(value: object, width: int) -> list[RenderableType]:
    if isinstance(value, Graph):
        return _graph(value)
    if isinstance(value, Recovered):
        return _recovered(value)
    if isinstance(value, NearMiss):
        fields = value.error(value.miss.graph).fields()
        return [_table("Not recovered", ("", ""), fields.items())]
    if isinstance(value, NodeView):
        return _node(value)
    if isinstance(value, Manifest):
        return _manifest(value)
    if isinstance(value, Comparison):
        return [_text(summary(value, width))]
    return [_text(repr(value))]


def _graph(graph: Graph) -> list[RenderableType]:
    model = graph.model
    ops = Counter(node.op for node in model.nodes).most_common(8)
    facts = [
        *(("input", str(value)) for value in graph.inputs),
        *(("output", str(value)) for value in graph.outputs),
        ("opset", ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in sorted(model.opset.items()))),
        ("nodes", str(len(model.nodes))),
        ("ops", ", ".join(f"{op} {count}" for op, count in ops)),
    ]
    return [_table(model.path.name, ("", ""), facts)]


def _recovered(net: Recovered) -> list[RenderableType]:
    rows = [
        (
            stage.name,
            ", ".join(slot or "." for slot in stage.slots),
            f"{sum(tensor.size for tensor in stage):,}",
        )
        for stage in net.stages
    ]
    return [_table(net.family.title, ("stage", "slots", "parameters"), rows)]


def _node(view: NodeView) -> list[RenderableType]:
    rows = [
        *((f"attribute {key}", str(value)) for key, value in sorted(view.attributes.items())),
        *((f"input {i}", str(tensor)) for i, tensor in enumerate(view.inputs)),
        *((f"output {i}", str(tensor)) for i, tensor in enumerate(view.outputs)),
    ]
    return [_table(f"node {view.index}: {view.op} {view.name}".rstrip(), ("", ""), rows)]


def _manifest(manifest: Manifest) -> list[RenderableType]:
    rows = [(e.key, e.type, _value(e.value)) for e in manifest.entries]
    title = f"{manifest.name}: {manifest.architecture}, {len(manifest.tensors)} tensors"
    return [_table(title, ("key", "type", "value"), rows)]


def _value(value: object) -> str:
    if isinstance(value, tuple):
        head = ", ".join(str(item) or '""' for item in value[:3])
        return f"[{head}{f', .. {len(value)} in all' if len(value) > 3 else ''}]"
    return str(value)


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    listed = list(rows)
    table = Table(box=None, pad_edge=False, show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in listed[:_ROWS]:
        table.add_row(*(_text(shortened(printable(cell), _CELL)) for cell in row))
    more = [_text(f".. and {len(listed) - _ROWS} more")] if len(listed) > _ROWS else []
    return Group(_text(printable(title), style="bold"), table, *more)


def _text(text: str, style: str = "") -> RenderableType:
    from rich.text import Text

    return Text(text, style=style)
