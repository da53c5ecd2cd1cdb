"""What the commands share: options, JSON, tables."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "json_option", "output_option", "print_json", "progress_bar", "table"]

_F = TypeVar("_F", bound=Callable[..., Any])


def json_option(function: _F) -> _F:
    """``--json``: the result object on stdout."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(
        function
    )


def output_option(metavar: str, help: str, *, required: bool = True) -> Callable[[_F], _F]:
    """``--output``, by the same three names in every command that writes."""
    return click.option(
        "-o",
        "--output",
        "--out",
        "output",
        required=required,
        metavar=metavar,
        type=click.Path(path_type=Path),
        help=help,
    )


def print_json(value: Any) -> None:
    """One JSON document; numbers that JSON lacks become null."""
    click.echo(json.dumps(_finite(value), indent=1))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and value - value != 0.0:
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def console() -> Console:
    """Stdout; wide when it is not a terminal, so that nothing a script greps for is cut."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process with an error of its own

    width = None if sys.stdout.isatty() else 400
    return Quiet(width=width, highlight=False, emoji=False, markup=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A plain table under a title; on a narrow terminal the names in front wrap last."""
    from rich.table import Table
    from rich.text import Text

    from graphtools.text import printable

    shown = Table(box=None, pad_edge=False)
    for place, column in enumerate(columns):
        shown.add_column(column, overflow="fold", no_wrap=place == 0)
    for row in rows:
        shown.add_row(*(Text(printable(str(cell))) for cell in row))
    out = console()
    out.print(Text(title))
    out.print(shown)


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Bytes, rate and time left on stderr while the block runs; None where it is no terminal.

    The bar appears with the first bytes: most work is over before one could be seen.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
