"""A comparison as plain text: what is wrong first, then the blocks, then the tensors.

It never has more than 40 lines and, unless asked, 80 columns; names are cut in their middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphtools.text import printable

if TYPE_CHECKING:
    from converters.blocks import Block
    from converters.comparison import Comparison, Row

__all__ = ["shortened", "summary"]

_LINES = 40
_HINTS = 5
# Columns of a name among others in one line.
_NAME = 36
# From this width on a table has room for shapes and places too.
_WIDE = 120


def summary(found: Comparison, width: int = 80) -> str:
    """At most 40 lines of at most ``width`` (80 or more) columns."""
    width = max(width, 80)
    head = [*_title(found), *_first(found, width), *_unmatched(found, width)]
    grouped = any(len(block.rows) > 1 for block in found.blocks)
    if grouped:
        head += ["", *_blocks(found.blocks, width)]
    return "\n".join([*head, "", *_rows(found, _LINES - len(head) - 1, width)])


def shortened(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns: what is too long loses its middle."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return text
    head, tail = (width - 1) // 2, width - 1 - (width - 1) // 2
    start, end = "", ""
    for letter in text:
        if cell_len(start + letter) > head:
            break
        start += letter
    for letter in reversed(text):
        if cell_len(letter + end) > tail:
            break
        end = letter + end
    return f"{start}…{end}"


def _title(found: Comparison) -> list[str]:
    every, missing = len(found.rows), len(found.missing)
    right, wrong = every - len(found.failures), len(found.failures) - missing
    if right == every:
        said = f"all {every} tensors are right" if every > 1 else "the tensor is right"
        return [f"{said}, but ours has others" if found.extra else said]
    parts = [(f"{wrong} wrong", wrong), (f"{missing} missing", missing)]
    return [", ".join([f"{right} of {every} tensors are right", *(s for s, n in parts if n)])]


def _first(found: Comparison, width: int) -> list[str]:
    row = found.first
    if row is None or not row.ours:
        return []
    place, block = found.place(row)
    lines = [f"first wrong: {printable(row.name)}"]
    if row.stage and row.stage != row.name:
        lines.append(f"  the stage {printable(row.stage)}")
    lines.append(f"  number {place + 1} in {found.order}, in block {printable(block.name)}")
    lines.append(f"  shape {list(row.shape)}: {row.problem}")
    apart = row.difference
    if apart is not None and row.bound is not None:
        lines += [
            f"  max|d| {apart.max_abs:.3g} at {list(apart.at)}, mean|d| {apart.mean_abs:.3g}, "
            f"relative {apart.relative:.3g}",
            f"  cosine {apart.cosine:.6f}, SNR {apart.snr_db:.1f} dB",
        ]
    weights = found.weights.get(row.name, ())
    if weights:
        lines.append(_listed("  weights: ", weights, width))
    lines += [f"  hint: {printable(line)}" for line in found.hints[:_HINTS]]
    return [shortened(line, width) for line in lines]


def _unmatched(found: Comparison, width: int) -> list[str]:
    missing, extra = tuple(row.name for row in found.missing), found.extra
    lines = []
    if missing:
        lines.append(_listed(f"{len(missing)} goldens have no tensor of ours: ", missing, width))
    if extra:
        lines.append(_listed(f"{len(extra)} of ours have no golden: ", extra, width))
    return lines


def _listed(title: str, names: Sequence[str], width: int) -> str:
    """As many of the names as one line has room for."""
    line = title
    for count, name in enumerate(names, start=1):
        more = f" and {len(names) - count} more" if count < len(names) else ""
        room = width - len(f"{line}, {more}")
        if count > 1 and room < min(len(name), _NAME):
            return f"{line} and {len(names) - count + 1} more"
        line += (", " if count > 1 else "") + shortened(printable(name), min(room, _NAME))
    return line


def _blocks(found: Sequence[Block], width: int) -> list[str]:
    missing = any(block.missing for block in found)
    columns = ("block", "tensors", "wrong", *(("missing",) if missing else ()))
    rows = [
        (
            block.name,
            str(len(block.rows)),
            str(block.wrong or "-"),
            *((str(block.missing or "-"),) if missing else ()),
            _number(block.excess),
            "-" if block.cosine is None else f"{block.cosine:.6f}",
        )
        for block in found
    ]
    return _table((*columns, "max|d|/bound", "cosine"), rows, width)


def _rows(found: Comparison, room: int, width: int) -> list[str]:
    """The wrong ones in execution order; where none is, all of them or those nearest to wrong."""
    shown: Sequence[Row] = [row for row in found.failures if row.ours]
    what = "wrong"
    if not shown and not found.failures:
        shown, what = found.rows, "right"
        if len(shown) > room - 1:
            shown = sorted(shown, key=lambda row: -(row.excess or 0.0))
            what = "further from their bounds"
    if not shown:
        return []
    fit = room - 1 if len(shown) <= room - 1 else room - 2
    wide = width >= _WIDE
    columns = ("tensor", *(("shape",) if wide else ()), "max|d|", *(("at",) if wide else ()))
    columns += ("bound", "mean|d|", "relative", "cosine", "SNR dB")
    lines = _table(columns, [_cells(row, wide) for row in shown[:fit]], width)
    if fit < len(shown):
        lines.append(f".. and {len(shown) - fit} that are {what} (--json, --html: all)")
    return lines


def _cells(row: Row, wide: bool) -> tuple[str, ...]:
    apart, shape = row.difference, (str(list(row.shape)),) if wide else ()
    name = row.stage or row.name
    if apart is None or row.bound is None:  # codes, or shapes that do not fit
        return name, *shape, row.problem or row.note or "equal"
    return (
        name,
        *shape,
        f"{apart.max_abs:.3g}",
        *((str(list(apart.at)),) if wide else ()),
        _number(row.bound),
        f"{apart.mean_abs:.3g}",
        f"{apart.relative:.3g}",
        f"{apart.cosine:.6f}",
        f"{apart.snr_db:.1f}",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lines of a table whose first column gives way; a row of fewer cells ends in a text."""
    from rich.cells import cell_len, set_cell_size

    whole = [row for row in rows if len(row) == len(columns)]
    sizes = [max(map(len, cells)) for cells in zip(columns, *whole, strict=True)][1:]
    room = width - sum(sizes) - 2 * len(sizes)
    names = [columns[0], *_fitted([printable(row[0]) for row in rows], room)]
    room = max(map(cell_len, names))
    lines = []
    for name, (_, *cells) in zip(names, (columns, *rows), strict=True):
        numbers = len(cells) if len(cells) == len(sizes) else len(cells) - 1
        aligned = [cell.rjust(size) for cell, size in zip(cells[:numbers], sizes, strict=False)]
        line = "  ".join((set_cell_size(name, room), *aligned, *cells[numbers:]))
        lines.append(shortened(line.rstrip(), width))
    return lines


def _fitted(names: Sequence[str], room: int) -> list[str]:
    """Names in ``room`` columns: those that are too long lose what they all begin with, then what
    they all end with, then their middle."""
    from rich.cells import cell_len

    def long() -> list[str]:
        return [name for name in found if cell_len(name) > room]

    found = list(names)
    if head := _shared(long()):
        found = [f"…{n[len(head) :]}" if cell_len(n) > room else n for n in found]
    if tail := _shared([name[::-1] for name in long()]):
        found = [f"{n[: -len(tail)]}…" if cell_len(n) > room else n for n in found]
    return [shortened(name, room) for name in found]


def _shared(names: Sequence[str]) -> str:
    """What several names begin with, up to a separator; "" where an ellipsis is no shorter."""
    if len(names) < 2:
        return ""
    low, high = min(names), max(names)
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    ends = (low.rfind(separator, 0, same) + 1 for separator in "/._")
    return next((low[:end] for end in ends if end > 1), "")
