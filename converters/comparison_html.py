"""A comparison as a page that opens from disk without a network, and as a notebook's table."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from converters.comparison_text import summary
from converters.heat_maps import heat_map
from graphtools.files import replacing
from graphtools.text import printable

if TYPE_CHECKING:
    from converters.arrays import Arrays
    from converters.comparison import Comparison, Row

__all__ = ["fragment", "page", "write_html"]

# Characters of all heat maps together: a page that can be mailed.
_BUDGET = 4_000_000
# Maps of the first wrong tensors have as many cells as there are; the rest share what is left.
_DETAILED, _FULL, _LEAST = 8, 256 * 512, 512
# Characters of a map for each of its cells: two bytes, as base64, which deflate shortens.
_PER_CELL = 2.7
_SHOWN = 30


def write_html(found: Comparison, output: Path) -> None:
    """Write `page`; the same comparison gives the same bytes.

    Raises:
        StorageError: it cannot be written.
        NotAModelError: a file that was compared is damaged by now.
    """
    text = page(found)
    with replacing(output, len(text)) as temp:
        temp.write_text(text, encoding="utf-8", newline="\n")


def page(found: Comparison) -> str:
    """One self-contained HTML file: what is wrong first, every tensor's error as a bar, a heat map
    of |d| over (channel, time) and the error per channel of the chosen one, all as a table.

    The arrays are read again, one pair at a time.
    """
    style, script = _asset("comparison.css"), _asset("comparison.js")
    maps, left_out = _maps(found)
    blocks = {id(row): i for i, block in enumerate(found.blocks) for row in block.rows}
    data = {
        "rows": [
            _plain(row, block=blocks[id(row)], weights=found.weights.get(row.name, ()))
            for row in found.rows
        ],
        "blocks": [block.name for block in found.blocks],
        "first": -1 if found.first is None else found.place(found.first)[0],
        "maps": maps,
        "left_out": left_out,
    }
    verdict = summary(found).splitlines()[0]
    footer = "graphtools compare"
    if skipped := sum(text == _TOO_MUCH for text in left_out.values()):
        footer += f"; {skipped} heat maps are left out to keep the page small"
    return Template(_asset("comparison.html")).substitute(
        title=_text(f"{verdict} - {_source(found.pairing.ours)}"),
        verdict=_text(verdict),
        golden=_text(_source(found.pairing.golden)),
        ours=_text(_source(found.pairing.ours)),
        first=_first(found, link=True),
        summary=_text(summary(found)),
        blocks=_blocks(found),
        extra=_extra(found),
        footer=_text(footer),
        style=style,
        style_hash=_digest(style),
        script=script,
        script_hash=_digest(script),
        # Nothing in a script element ends it but this character.
        data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    )


def fragment(found: Comparison) -> str:
    """What a notebook shows: the verdict, the first wrong tensor, blocks, up to 30 tensors.

    It has no ids, styles or scripts, so that any number of them can stand in one page.
    """
    shown = found.failures or found.rows
    columns = ("tensor", "shape", "max|d|", "bound", "mean|d|", "relative", "cosine", "SNR dB", "")
    rows = [
        (row.name, str(list(row.shape)), *_numbers(row), row.problem or row.note)
        for row in shown[:_SHOWN]
    ]
    more = f"<p>.. and {len(shown) - _SHOWN} more</p>" if len(shown) > _SHOWN else ""
    verdict = f"<p><strong>{_text(summary(found).splitlines()[0])}</strong></p>"
    parts = (
        verdict,
        _first(found),
        _blocks(found),
        _table(columns, rows),
        more,
        _extra(found, _SHOWN),
    )
    return f"<div>{''.join(parts)}</div>"


def _asset(name: str) -> str:
    return (resources.files("converters") / "data" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """As a Content-Security-Policy names what may run: nothing but this."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(text: str) -> str:
    return html.escape(printable(text))


def _source(arrays: Arrays) -> str:
    return "arrays in memory" if arrays.path is None else arrays.path.name or str(arrays.path)


_TOO_MUCH = "Its heat map is left out to keep this page small; compare this tensor alone to see it."


def _maps(found: Comparison) -> tuple[dict[int, Any], dict[int, str]]:
    """Packed heat maps by row, wrong rows first, and why a row has none."""
    fitting = [i for i, row in enumerate(found.rows) if row.difference and all(row.shape)]
    order = sorted(fitting, key=lambda i: not found.rows[i].problem)
    rest = max(1, len(order) - _DETAILED)
    shared = int((_BUDGET / _PER_CELL - _DETAILED * _FULL) / rest)
    maps: dict[int, Any] = {}
    left_out = {
        i: "The shapes do not fit, so there is no difference to show."
        for i, row in enumerate(found.rows)
        if row.ours and row.difference is None
    }
    used = 0
    for place, i in enumerate(order):
        detailed = place < _DETAILED and bool(found.rows[i].problem)
        cells = _FULL if detailed else min(_FULL, max(shared, _LEAST))
        drawn = _map(found, found.rows[i], cells)
        used += len(drawn["data"])
        if used > _BUDGET:
            used -= len(drawn["data"])
            left_out[i] = _TOO_MUCH
        else:
            maps[i] = drawn
    return maps, left_out


def _map(found: Comparison, row: Row, cells: int) -> dict[str, Any]:
    golden, ours = found.pairing.read(row.name)
    drawn = heat_map(golden, ours, cells)
    assert row.difference is not None  # so has every row that a map is made of
    return {
        "size": drawn.size,
        "axes": drawn.axes,
        "folded": drawn.folded,
        "cells": drawn.cells.shape,
        "worst": [_number(float(array[row.difference.at])) for array in (golden, ours)],
        "data": drawn.packed(),
    }


def _plain(row: Row, **more: Any) -> dict[str, Any]:
    """A row for the script; numbers that JSON lacks as the texts that JavaScript reads."""
    return {key: _number(value) for key, value in {**row.to_json(), **more}.items()}


def _number(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _first(found: Comparison, *, link: bool = False) -> str:
    row = found.first
    if row is None or not row.ours:
        return ""
    name = f'<span class="name">{_text(row.name)}</span>'
    if link:
        from urllib.parse import quote

        target = quote(row.name, safe="", errors="surrogatepass")
        name = f'<a class="name" href="#tensor={html.escape(target)}">{_text(row.name)}</a>'
    place, block = found.place(row)
    where = f"number {place + 1} of {len(found.rows)} in {found.order}"
    lines = [f"{where}, in block {block.name}"]
    lines.append(f"shape {list(row.shape)}: {row.problem}")
    if row.stage and row.stage != row.name:
        lines.append(f"the stage {row.stage}")
    if weights := found.weights.get(row.name, ()):
        lines.append(f"weights: {', '.join(weights)}")
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    items += "".join(f'<li class="hint">hint: {_text(line)}</li>' for line in found.hints)
    return f'<section class="first"><h2>First wrong: {name}</h2><ul>{items}</ul></section>'


def _blocks(found: Comparison) -> str:
    rows = [
        (
            block.name,
            str(len(block.rows)),
            f"✗ {block.wrong}" if block.wrong else "0",
            f"? {block.missing}" if block.missing else "0",
            _short(block.excess),
            "-" if block.cosine is None else f"{block.cosine:.6f}",
        )
        for block in found.blocks
    ]
    return _table(("block", "tensors", "wrong", "missing", "max|d| / bound", "cosine"), rows)


def _extra(found: Comparison, most: int | None = None) -> str:
    lists = (
        ("Goldens without a tensor of ours", [row.name for row in found.missing]),
        ("Tensors of ours without a golden", found.extra),
    )
    text = ""
    for title, names in lists:
        more = f" and {len(names) - most} more" if most and len(names) > most else ""
        listed = ", ".join(map(_text, names[:most])) + more
        text += f"<section><h2>{title}</h2><p>{listed}</p></section>" if names else ""
    return text


def _numbers(row: Row) -> tuple[str, ...]:
    apart = row.difference
    if apart is None or row.bound is None:
        return ("-",) * 6
    return (
        *map(_short, (apart.max_abs, row.bound, apart.mean_abs, apart.relative)),
        f"{apart.cosine:.6f}",
        f"{apart.snr_db:.1f}",
    )


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column is a name, the last one of an untitled column a text."""
    kinds = ["t name", *("n" if title else "t note" for title in columns[1:])]
    head = "".join(
        f'<th scope="col" class="{kind}">{_text(title)}</th>'
        for kind, title in zip(kinds, columns, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}">{_text(cell)}</td>' for kind, cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
