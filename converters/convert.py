"""From a model file to a proven manifest GGUF."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from converters import metadata_props
from converters.archs import ARCHS, Arch, arch_of_family
from converters.archs.building import Builder
from converters.archs.speaker import ARCHITECTURE
from converters.emit import emit, proof_path
from converters.manifest import Manifest
from converters.sources.locate import is_checkpoint
from graphtools.errors import UnsupportedError, UsageError
from graphtools.files import replacing, require_other
from graphtools.graph import Graph, build, ends, see
from graphtools.onnx_file import load
from graphtools.recover import NearMiss, Recovered, recover

if TYPE_CHECKING:
    from converters.archs.checkpoint import Options
    from converters.checkpoint import CheckpointProof
    from converters.proof_result import Proof

__all__ = [
    "Conversion",
    "Verify",
    "convert",
    "describe",
    "require_arch",
    "require_recovered",
    "require_schema",
]

Verify = Literal["full", "sample", "none"]

# Above this many bytes of tensors, reading every one back would take as long as writing them.
_SAMPLE_ABOVE = 1_000_000_000


@dataclass(frozen=True)
class Conversion:
    """What a conversion wrote.

    Attributes:
        proof: None when it was not asked for.
        files: the GGUF, then the proof beside it.
    """

    arch: str
    manifest: Manifest
    proof: Proof | CheckpointProof | None
    files: tuple[Path, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "arch": self.arch,
            "output": str(self.files[0]),
            "keys": len(self.manifest.entries),
            "tensors": len(self.manifest.tensors),
            "left_out": list(self.manifest.left_out),
            "notes": list(self.notes),
            "proof": None if self.proof is None else self.proof.to_json(),
        }


def convert(
    path: Path,
    output: Path,
    *,
    name: str | None = None,
    arch: str | None = None,
    verify: Verify | None = None,
    allow_unproven: Collection[str] = (),
    options: Options | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Conversion:
    """Write the manifest GGUF of a model, and ``OUTPUT.proof.json`` beside it.

    Args:
        path: an ONNX file, or the folder or file of a checkpoint.
        output: the GGUF to write.
        name: stored as ``general.name``; the path by default.
        arch: the architecture that the model is asserted to be.
        verify: ``full`` reads every byte back, ``sample`` the first, a middle and the last block
            of every tensor; ``none`` reads every byte back and skips the proof. By default
            ``sample`` for a checkpoint above 1 GB and else ``full``.
        allow_unproven: keys that may stay unproven.
        options: what the user says where a checkpoint is silent.
        progress: told the bytes of tensors that are written, and of how many.

    Raises:
        UsageError: a path or a key that does not exist.
        MissError: the network is none of the known families.
        UnprovenError: the written file does not compute what the source computes; nothing
            is left of it.
    """
    require_other(output, path)
    if is_checkpoint(path):
        return _convert_checkpoint(path, output, name or str(path), arch, verify, options, progress)
    if options is not None and options != type(options)():
        raise UsageError(
            "an ONNX file has nothing that --strict, --strip-prefix or --do-normalize could mean",
            file=path,
            todo="leave them out; they go with a checkpoint",
        )
    net = require_recovered(build(load(path)))
    spans = (tensor.span() for tensor in net.graph.model.constants.values())
    require_other(output, *{span.path for span in spans if span is not None})
    found = require_schema(net)
    require_arch(arch, found.name, net)
    strange = sorted(set(allow_unproven) - {row.key for row in found.rows})
    if strange:
        raise UsageError(
            f"{found.name} has no key {strange[0]!r} that could stay unproven",
            todo="see docs/schema.md for its keys",
        )
    manifest = describe(net, found, name or str(path))
    notes = [*manifest.notes, *metadata_props.check(net.graph.model.metadata, manifest, path)]

    def prove(temp: Path) -> Proof:
        from converters.proof import prove

        return prove(temp, net, allow_unproven=allow_unproven)

    return _written(found.name, manifest, output, notes, verify or "full", prove, progress)


def _convert_checkpoint(
    path: Path,
    output: Path,
    name: str,
    arch: str | None,
    verify: Verify | None,
    options: Options | None,
    progress: Callable[[int, int], None] | None,
) -> Conversion:
    from converters.checkpoint import describe_checkpoint, prove
    from converters.sources.source import open_source

    described = describe_checkpoint(open_source(path), name, arch=arch, options=options)
    manifest = described.manifest
    large = manifest.size > _SAMPLE_ABOVE
    chosen = verify or ("sample" if large else "full")
    return _written(
        described.arch.name,
        manifest,
        output,
        list(manifest.notes),
        chosen,
        lambda temp: prove(temp, described, sample=chosen == "sample"),
        progress,
    )


def _written(
    arch: str,
    manifest: Manifest,
    output: Path,
    notes: list[str],
    verify: Verify,
    prove: Callable[[Path], Proof | CheckpointProof],
    progress: Callable[[int, int], None] | None,
) -> Conversion:
    """Emit, prove, and write the proof beside the file before it gets its name; the proof of a
    file that was there before is removed."""
    files = [output]
    written = 0

    def told(number: int) -> None:
        nonlocal written
        written += number
        if progress is not None:
            progress(written, manifest.size)

    with emit(manifest, output, sample=verify == "sample", progress=told) as temp:
        report = proof_path(output)
        proof = None if verify == "none" else prove(temp)
        if proof is None:
            report.unlink(missing_ok=True)
        else:
            proof.require()
            with replacing(report) as other:
                other.write_text(json.dumps(proof.to_json(), indent=1) + "\n")
            files.append(report)
            notes += proof.notes
    return Conversion(arch, manifest, proof, tuple(files), tuple(dict.fromkeys(notes)))


def describe(net: Recovered, arch: Arch, name: str) -> Manifest:
    """The manifest of a recovered network; nothing is read but what decides a key."""
    builder = Builder(net, arch.rows)
    bound = see(net.graph, net.binding.output)
    others = [
        value.name
        for value in net.graph.outputs
        if bound not in {see(net.graph, end) for end in ends(net.graph, value.name)}
    ]
    if others:
        builder.notes.append(
            f"the model has {len(others) + 1} outputs; this is the manifest of "
            f"{net.binding.output!r}, not of {', '.join(map(repr, others))}"
        )
    if arch.describe is None:
        raise UnsupportedError(f"{arch.name} is not made from ONNX", file=net.graph.model.path)
    arch.describe(builder)
    order = {row.key: i for i, row in enumerate(arch.rows)}
    return Manifest(
        architecture=ARCHITECTURE,
        name=name,
        entries=tuple(sorted(builder.entries, key=lambda e: order[e.key])),
        tensors=tuple(builder.tensors.values()),
        left_out=builder.left_out(),
        notes=tuple(builder.notes),
    )


def require_schema(net: Recovered) -> Arch:
    """The architecture that stores a recovered network.

    Raises:
        UnsupportedError: no engine has a schema for it.
    """
    arch = arch_of_family(net.family.name)
    if arch is None:
        raise UnsupportedError(
            f"recovered as {net.family.title}, but no engine schema stores it",
            file=net.graph.model.path,
            expected=", ".join(a.name for a in ARCHS if a.describe is not None),
            found=net.family.name,
            todo="`graphtools inspect` shows it, and `graphtools baseline` makes its goldens",
        )
    return arch


def require_arch(asserted: str | None, found: str, net: Recovered) -> None:
    """Check what the user says about the architecture.

    Raises:
        UnsupportedError: the network is another one.
    """
    if asserted is not None and asserted != found:
        raise UnsupportedError(
            f"the network is not {asserted}",
            file=net.graph.model.path,
            expected=asserted,
            found=f"{found} ({net.family.title}), by its structure",
            todo=f"leave --arch out, or pass --arch {found}",
        )


def require_recovered(graph: Graph) -> Recovered:
    """The recovered network.

    Raises:
        MissError: it is none of the known families; the nearest one is named.
    """
    found = recover(graph)
    if isinstance(found, NearMiss):
        raise found.error(graph)
    return found
