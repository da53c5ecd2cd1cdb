"""Write the pages that are made from the code: ``python docs/generate.py``."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from converters.archs import ARCHS
from converters.cli import cli
from converters.goldens import ARCHITECTURE
from converters.lint_codes import Code
from converters.schema import Row, all_rows
from graphtools import errors

__all__ = ["pages"]

_PROOFS = {
    "replay": "takes part in the replay",
    "source": "equals the source, read again",
    "measured": "equals what the source's pooling was measured to use",
    "schema": "fixed by the schema",
}


def pages() -> dict[Path, str]:
    """Path to text of every generated page."""
    folder = Path(__file__).parent
    return {
        folder / "schema.md": _schema(),
        folder / "cli.md": _cli(),
        folder / "refusals.md": _refusals(),
        folder / "lint.md": _lint(),
    }


def _schema() -> str:
    lines = [
        "# Metadata keys",
        "",
        "Made by `docs/generate.py` from the rows that the architectures declare.",
        "An absent scalar becomes a default in the engine and one of another type stops it, so the",
        "types are part of the contract: `[x]` is a GGUF array, `u32` UINT32, `f32` FLOAT32,",
        "`i32` INT32.",
    ]
    for arch in ARCHS:
        lines += ["", f"## `{arch.name}`", "", *_table(arch.all_rows)]
    lines += ["", f"## `{ARCHITECTURE}` (goldens)", "", *_table(all_rows()[ARCHITECTURE])]
    return "\n".join(lines) + "\n"


def _table(rows: tuple[Row, ...]) -> Iterator[str]:
    yield "| key | type | unit | meaning | how its value is shown to be right |"
    yield "|---|---|---|---|---|"
    for row in rows:
        fixed = "" if row.fixed is None else f": {row.fixed!r}".replace("'", "`")
        yield (
            f"| `{row.key}` | {row.type} | {row.unit} | {row.meaning.replace('|', '&#124;')} "
            f"| {_PROOFS[row.proof]}{fixed} |"
        )


def _cli() -> str:
    context = click.Context(
        cli, info_name="graphtools", max_content_width=88, **cli.context_settings
    )
    lines = ["# Commands", "", "Made by `docs/generate.py` from the commands' own help.", ""]
    lines += ["```", cli.get_help(context), "```"]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, max_content_width=88)
        lines += ["", f"## {name}", "", "```", command.get_help(inner), "```"]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


_LINT = """# Lint

`graphtools lint X.gguf` checks a file and prints one finding a line: code, title, the key or
tensor, what was found, and what to do. It exits with 1 when there is one. `--json` has the same as
data; in Python it is `converters.lint.lint`.

- Any GGUF is held against ggml's limits (F) and its values are read (V). Every tensor is read
  once, a piece at a time; quantised ones are dequantised where the gguf package can.
- A file of ours is held against its schema (K, T): the keys of [schema.md](schema.md), the names in
  them, the numbers that the tensors have as well, and the shape of every tensor at the place where
  the engine pulls it. Goldens are held against their keys alone.
- Where `general.architecture` is none of ours, a line says that only ggml's limits were checked.
- What builds on a fault is not checked until it is mended; a line says what that is.
- A file that ends too early is no finding but an error, exit 3: it says how many bytes are missing.

`graphtools check --model MODEL` converts to a temporary file, proves and lints it: exit 0 pass,
1 fail, 77 skipped (a package is not installed, or the checkpoint cannot be reached).

This page is made by `docs/generate.py` from the codes in `converters/lint_codes.py`.
"""

_GROUPS = {
    "F": "The format, and ggml's limits",
    "K": "Keys",
    "T": "Tensors",
    "V": "Values",
}


def _lint() -> str:
    lines = [_LINT]
    for letter, title in _GROUPS.items():
        lines += [f"## {title}", "", "| code | title | meaning | what to do |", "|---|---|---|---|"]
        lines += [
            f"| {code.id} | {code.title} | {code.meaning} | {code.fix} |"
            for code in Code
            if code.id.startswith(letter)
        ]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


_EXITS = {"UsageError": 2, "UnsupportedError": 3, "MissingDependencyError": 4, "StorageError": 5}


def _refusals() -> str:
    """Every error that is raised on purpose, read off the code: by class, with what to do."""
    rows: dict[str, set[tuple[str, str]]] = {name: set() for name in errors.__all__[1:]}
    root = Path(__file__).parents[1]
    files = sorted(p for top in ("graphtools", "converters") for p in (root / top).rglob("*.py"))
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in files)
    for call in (n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        cause = _text(call.args[0]) if name in rows and call.args else ""
        if cause:
            todo = next((_text(k.value) for k in call.keywords if k.arg == "todo"), "")
            rows[name].add((cause, todo))
    lines = ["# Refusals", "", "Made by `docs/generate.py` from the errors that the code raises."]
    lines += ["`…` stands for what a message fills in: a file, a node, a tensor, a number."]
    lines += ["Messages that are put together at run time are not on this page."]
    for name, listed in rows.items():
        kind = getattr(errors, name)
        code = next(_EXITS[base.__name__] for base in kind.__mro__ if base.__name__ in _EXITS)
        lines += ["", f"## {name} (exit {code})", "", (kind.__doc__ or "").splitlines()[0], ""]
        lines += ["| what is said | what to do |", "|---|---|"]
        lines += [f"| {cause} | {todo} |" for cause, todo in sorted(listed)]
    return "\n".join(lines) + "\n"


def _text(node: ast.expr) -> str:
    """The words of a string, or of an f-string with its gaps; "" for anything else."""
    if isinstance(node, ast.JoinedStr):
        parts = (p.value if isinstance(p, ast.Constant) else "…" for p in node.values)
        return " ".join("".join(map(str, parts)).split()).replace("|", "\\|")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return " ".join(node.value.split()).replace("|", "\\|")
    return ""


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
        print(f"wrote {path}")
