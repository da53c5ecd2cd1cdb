"""``graphtools shell``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from converters.cli.output import json_option, print_json

if TYPE_CHECKING:
    from converters.shell import Session

__all__ = ["command"]


@click.command()
@click.argument("model")
@click.option("--file", "file", metavar="NAME", help="Which file of a folder or hub repository.")
@json_option
def command(model: str, file: str | None, as_json: bool) -> None:
    """Python with MODEL at hand: g (graph), net (recovered network, or where the nearest one
    differs) and m (manifest). In IPython where it is installed. With --json the names alone.

    \b
    Example:
      graphtools shell model.onnx
    """
    from converters.shell import session
    from converters.sources.locate import locate

    found = session(locate(model, file), model)
    if as_json:
        print_json(found.to_json())
        return
    try:
        from IPython.terminal.ipapp import TerminalIPythonApp
    except ModuleNotFoundError:
        application = None
    else:
        application = TerminalIPythonApp.instance()
    # Not inside the except: what a person raises there would be said to follow from it.
    if application is None:
        _plain(found)
    else:
        _ipython(application, found)


def _ipython(app: Any, found: Session) -> None:
    from traitlets.config import Config

    from converters.display import SHOWN

    config = Config()
    config.TerminalInteractiveShell.banner1 = f"{found.banner}\n"
    config.TerminalInteractiveShell.confirm_exit = False
    app.update_config(config)
    app.initialize(argv=[])
    app.shell.user_ns.update(found.names)
    plain = app.shell.display_formatter.formatters["text/plain"]
    for kind in SHOWN:
        plain.for_type(kind, _print)
    app.start()


def _print(value: object, printer: Any, cycle: bool) -> None:
    """A screenful of what was asked for; in a list or another object one line of each."""
    alone = len(printer.stack) == 1
    printer.text(_screen(value) if alone else repr(value))


def _screen(value: object) -> str:
    import shutil
    import sys

    from converters.display import shown

    columns = shutil.get_terminal_size().columns
    return shown(value, columns, color=sys.stdout.isatty())


def _plain(found: Session) -> None:
    """The standard library's console, which has no completion but shows the same."""
    import builtins
    import code
    import sys

    from converters.display import SHOWN

    def hook(value: object) -> None:
        if value is None:
            return
        click.echo(_screen(value) if isinstance(value, SHOWN) else repr(value))
        vars(builtins)["_"] = value  # as everywhere in Python: the last value

    before, sys.displayhook = sys.displayhook, hook
    try:
        code.interact(found.banner, local=dict(found.names), exitmsg="")
    finally:
        sys.displayhook = before
