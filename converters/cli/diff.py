"""``graphtools diff``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from converters.cli.output import json_option, print_json, table

if TYPE_CHECKING:
    from converters.gguf_diff import GgufDiff, TensorDiff
    from converters.network_diff import NetworkDiff

__all__ = ["command"]

# Rows on the screen, of keys and tensors together; --json has all.
_ROWS = 32


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option(
    "--atol",
    type=click.FloatRange(min=0.0),
    help="Values this near are the same; without it they have to be equal, of a GGUF bit by bit.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, first: str, second: str, atol: float | None, as_json: bool) -> None:
    """Say what differs between A and B; exit 1 when something does. Two ONNX files: whether they
    hold the same network, whatever the names and the order of their nodes. Two GGUFs: keys,
    tensors and their values, by name.

    \b
    Example:
      graphtools diff model.onnx other_export.onnx
      graphtools diff model.gguf other.gguf --atol 1e-6
    """
    found = _gguf_diff(first, second, atol) if _are_ggufs(first, second) else None
    if found is not None:
        if as_json:
            print_json(found.to_json())
        else:
            _print_gguf(found)
        ctx.exit(0 if found else 1)
    from converters.network_diff import network_diff
    from graphtools.graph import build
    from graphtools.onnx_file import load

    networks = network_diff(build(load(first)), build(load(second)), atol=atol or 0.0)
    if as_json:
        print_json(networks.to_json())
    else:
        _print_networks(networks)
    ctx.exit(0 if networks else 1)


def _are_ggufs(first: str, second: str) -> bool:
    from converters.gguf_file import is_gguf
    from graphtools.errors import UsageError

    kinds = [is_gguf(Path(path)) for path in (first, second)]
    if any(kinds) and not all(kinds):
        gguf, other = (first, second) if kinds[0] else (second, first)
        if not Path(other).is_file():
            raise UsageError("no such file", file=other, todo="check the path")
        raise UsageError(
            "a GGUF can be compared with a GGUF only",
            file=other,
            expected=f"a GGUF, as {gguf} is",
            found="a file without the magic GGUF",
            todo=f"convert it first: graphtools convert --model {other} --output OTHER.gguf",
        )
    return all(kinds)


def _gguf_diff(first: str, second: str, atol: float | None) -> GgufDiff:
    from converters.gguf_diff import gguf_diff

    return gguf_diff(first, second, atol=atol)


def _print_gguf(found: GgufDiff) -> None:
    keys, tensors = found.compared
    same = f"{keys} keys and {tensors} tensors in both"
    if found.near:
        largest = max(found.near, key=lambda t: t.difference.max_abs if t.difference else 0.0)
        apart = largest.difference.max_abs if largest.difference else 0.0
        what = "tensor differs" if len(found.near) == 1 else "tensors differ"
        within = f"{len(found.near)} {what} within {found.atol:g}"
        click.echo(f"{within}; largest max|d| {apart:.3g} at {largest.name}")
    if found:
        how = "bit by bit" if found.atol is None else f"within {found.atol:g}"
        click.echo(f"the same: {same}, values {how}")
        return
    room = _ROWS
    if found.keys:
        shown = found.keys[: room // 2 if found.tensors else room]
        room -= len(shown)
        title = f"keys that differ: {len(found.keys)}"
        table(title, ("key", "first", "second"), [(k.name, *k.told()) for k in shown])
        _more(len(found.keys) - len(shown))
    if found.tensors:
        cells = [_cells(t) for t in found.tensors[:room]]
        title = f"tensors that differ: {len(found.tensors)}"
        table(title, ("tensor", "first", "second", "max|d|", "cosine"), cells)
        _more(len(found.tensors) - len(cells))
    click.echo(f"different: {same}")


def _more(left: int) -> None:
    if left > 0:
        click.echo(f".. and {left} more")


def _cells(t: TensorDiff) -> tuple[str, ...]:
    apart = t.difference
    numbers = ("-", "-") if apart is None else (f"{apart.max_abs:.3g}", f"{apart.cosine:.6f}")
    return (t.name, *t.told(), *numbers)


def _print_networks(found: NetworkDiff) -> None:
    if found:
        click.echo(f"the same network (compared {found.how})")
        return
    if found.structure:
        click.echo(f"different networks (compared {found.how}): {found.structure}")
        return
    rows = [
        (t.place, t.first, t.second, f"{t.difference.max_abs:.3g}", f"{t.difference.cosine:.6f}")
        for t in found.tensors
    ]
    differ = "1 weight differs" if len(rows) == 1 else f"{len(rows)} weights differ"
    title = f"the same structure (compared {found.how}), but {differ}"
    table(title, ("place", "first", "second", "max|d|", "cosine"), rows)
