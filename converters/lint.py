"""Whether a GGUF is what an engine can load: ggml's limits for any, the schema for ours.

The rules stand in `lint_format`, `lint_schema`, `lint_network` and `lint_values`; what an
architecture asks for, its own file declares. What a rule builds on is checked before it: where keys
are wrong, nothing is said about the network that they would make up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters import goldens
from converters.archs import Arch, arch_of_manifest
from converters.archs.speaker import ARCHITECTURE as VOICEDETECT
from converters.gguf_file import manifest_of
from converters.gguf_header import Header
from converters.goldens import safe_names
from converters.lint_codes import Code, Finding
from converters.lint_format import FORMAT_RULES
from converters.lint_network import tensor_findings
from converters.lint_schema import KEY_RULES, Subject, counts, names, told
from converters.lint_values import value_findings
from converters.manifest import Manifest
from converters.schema import Schema
from graphtools.errors import UnsupportedError

__all__ = ["Lint", "lint"]


@dataclass(frozen=True)
class Lint:
    """The result; truthy when nothing was found.

    Attributes:
        schema: the architecture whose schema the file was held against; "" where its
            ``general.architecture`` is none of ours, and only ggml's limits were checked.
        notes: what was not checked, and why.
    """

    path: Path
    schema: str
    keys: int
    tensors: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "clean": bool(self),
            "file": str(self.path),
            "schema": self.schema or None,
            "keys": self.keys,
            "tensors": self.tensors,
            "findings": [finding.to_json() for finding in self.findings],
            "notes": list(self.notes),
        }


def lint(path: Path | str) -> Lint:
    """Check a GGUF; every tensor is read once, a piece at a time.

    Raises:
        UsageError: there is no such file.
        NotAModelError: it is no GGUF file, or ends too early: the bytes that are missing are
            counted.
        StorageError: it cannot be read.
    """
    header = Header.read(path)
    header.require_complete()
    findings = [finding for rule in FORMAT_RULES for finding in rule(header)]
    manifest = manifest_of(header)
    notes: list[str] = []
    schema, arch = _schema_of(manifest, findings, notes)
    may_be_zero: set[str] = set()
    if schema is not None:
        subject = Subject(header, manifest, schema)
        findings += _against_schema(subject, arch, notes)
        may_be_zero = _may_be_zero(subject)
    findings += value_findings(header, may_be_zero)
    return Lint(
        header.path,
        "" if schema is None else schema.name,
        len(header.keys),
        len(header.tensors),
        tuple(findings),
        tuple(notes),
    )


def _schema_of(
    manifest: Manifest, findings: list[Finding], notes: list[str]
) -> tuple[Schema | None, Arch | None]:
    if manifest.architecture == goldens.ARCHITECTURE:
        return goldens.SCHEMA, None
    try:
        arch = arch_of_manifest(manifest)
    except UnsupportedError as error:
        if manifest.architecture == VOICEDETECT:
            findings.append(Finding(Code.NO_SCHEMA, "voicedetect.arch", told(error)))
            notes.append("only ggml's limits and the values were checked")
        else:
            notes.append(
                f"general.architecture {manifest.architecture!r} is none of ours: only ggml's "
                "limits and the values were checked"
            )
        return None, None
    return arch.schema, arch


def _against_schema(subject: Subject, arch: Arch | None, notes: list[str]) -> list[Finding]:
    """Keys, then the names in them, then numbers and shapes, as far as what they build on holds."""

    def keys() -> Iterator[Finding]:
        for rule in KEY_RULES:
            yield from rule(subject)

    def tensors() -> Iterator[Finding]:
        if arch is not None:
            yield from tensor_findings(arch, subject.manifest)

    stages: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("keys", keys),
        ("names", lambda: names(subject)),
        ("counts", lambda: counts(subject)),
        ("shapes and types of tensors", tensors),
    )
    for i, (_, stage) in enumerate(stages):
        try:
            found = list(stage())
        except UnsupportedError as error:
            found = [Finding(Code.NO_NETWORK, subject.schema.name, told(error))]
        if found:
            left = [name for name, _ in stages[i + 1 :]]
            if left:
                notes.append(f"not checked until this is mended: {', '.join(left)}")
            return found
    return []


def _may_be_zero(subject: Subject) -> set[str]:
    keys = {row.key for row in subject.schema.all_rows if row.zero}
    values = (e.value for e in subject.manifest.entries if e.key in keys)
    named = (v for value in values for v in (value if isinstance(value, tuple) else (value,)))
    return set(safe_names(map(str, named)).values())  # as a file has them
