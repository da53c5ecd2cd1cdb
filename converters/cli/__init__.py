"""The command line: one file per command; this one holds the group and the error boundary.

Commands parse, call the library and print. Nothing is imported before its command runs, so that
``graphtools --help`` is as quick as click itself.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import signal
import sys
from dataclasses import dataclass
from types import FrameType

import click

__all__ = ["cli", "main"]

# Command: (what it is for). The module of the same name holds it.
_COMMANDS = {
    "inspect": "Show what a model or a manifest GGUF holds.",
    "view": "Show a model as a page: boxes to unfold, weights, goldens, errors.",
    "shell": "Python with a model's graph, network and manifest at hand.",
    "export": "Write the graph for other programs and viewers.",
    "convert": "Write a proven manifest GGUF of a model.",
    "baseline": "Write golden intermediates of a clip, or any tensors of any ONNX.",
    "replay": "Compute the outputs of a manifest GGUF alone.",
    "compare": "Find the first tensor in which an engine differs from goldens.",
    "diff": "Say whether two ONNX files, or two GGUFs, are the same.",
    "lint": "Check a GGUF against its schema and ggml's limits.",
    "check": "Convert, prove and lint a model: the acceptance check.",
    "frontend": "Find the front end that a known embedding was made with.",
    "tap": "Write a baseline of any torch module's submodules.",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="onnx-manifest", prog_name="graphtools")
def cli() -> None:
    """Port speech models to C++ engines on ggml: look, convert with proof, make goldens.

    \b
    Exit codes: 0 fine, 1 differs or findings, 2 wrong call or missing input,
    3 not supported or refused, 4 a missing optional package, 5 other I/O or
    network, 70 our bug, 77 skipped (check alone). With --json an error is an
    object on stdout as well.
    """


def _stop(number: int, frame: FrameType | None) -> None:
    """End as an error does, so that nothing half-written stays."""
    raise SystemExit(128 + number)


def main() -> None:
    """Run a command; every error of ours ends in a message and its exit code."""
    # Imports and graph building make long-lived objects only: collecting as often as the
    # default does takes a tenth of a short command's time and frees nothing.
    gc.set_threshold(200_000)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # Windows has no SIGHUP
            signal.signal(getattr(signal, name), _stop)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, io.StringIO())
    try:
        code = cli.main(prog_name="graphtools", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except BrokenPipeError:  # the reader of our output went away (`| head`)
        _silence_stdout()
        sys.exit(0)
    except Exception as error:  # the edge: whatever arrives here ends in a message
        failure = _failure(error)
        if failure.code == _BUG and os.environ.get("GRAPHTOOLS_TRACEBACK"):
            raise
        try:
            _tell(failure)
        except OSError:  # nowhere to say it
            _silence_stdout()
        sys.exit(failure.code)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(130)


_BUG = 70


@dataclass(frozen=True)
class _Failure:
    """How a command ends that did not end well: for people, and as data."""

    code: int
    text: str
    fields: dict[str, str]


def _failure(error: Exception) -> _Failure:
    from graphtools.errors import (
        Error,
        MissingDependencyError,
        StorageError,
        UnsupportedError,
        UsageError,
    )

    codes: tuple[tuple[type[Error], int], ...] = (
        (UsageError, 2),
        (UnsupportedError, 3),
        (MissingDependencyError, 4),
        (StorageError, 5),
    )
    kind = {"kind": type(error).__name__}
    if isinstance(error, click.ClickException):
        shown = io.StringIO()
        error.show(file=shown)
        text = shown.getvalue().rstrip("\n")
        return _Failure(error.exit_code, text, kind | {"error": error.format_message()})
    if isinstance(error, click.Abort):
        return _Failure(130, "interrupted", kind | {"error": "interrupted"})
    if isinstance(error, Error):
        code = next(code for of, code in codes if isinstance(error, of))
        return _Failure(code, f"error: {error}", kind | error.fields())
    if isinstance(error, OSError):
        cause = error.strerror or str(error)
        where = {"file": str(error.filename)} if error.filename else {}
        text = f"error: {cause}" + (f" ({error.filename})" if error.filename else "")
        return _Failure(5, text, kind | {"error": cause} | where)
    text = (
        f"internal error: {type(error).__name__}: {error}\n"
        "  This is a bug in graphtools. Set GRAPHTOOLS_TRACEBACK=1 to see where, and "
        "report it with the command."
    )
    return _Failure(_BUG, text, kind | {"error": str(error)})


def _tell(failure: _Failure) -> None:
    """The message on stderr; with ``--json`` an object on stdout as well. Looked for in the
    arguments as they came: a call that cannot be understood has no options yet."""
    click.echo(failure.text, err=True)
    if "--json" in sys.argv[1:]:
        from converters.cli.output import print_json

        print_json({"error": {"code": failure.code, **failure.fields}})


def _silence_stdout() -> None:
    """What is still to be flushed goes nowhere, as there is nobody to take it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
