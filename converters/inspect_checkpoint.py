"""What a checkpoint is and what would become of each of its tensors; headers only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from converters.archs.arch import StageRow
from converters.archs.checkpoint import BY_USER, Options
from converters.checkpoint import describe_checkpoint
from converters.sources.source import Source
from graphtools.errors import Error

__all__ = ["CheckpointReport", "TensorRow", "inspect_checkpoint"]


@dataclass(frozen=True)
class TensorRow:
    """A tensor: the module it belongs to, and its name in the GGUF or why it is left out."""

    module: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    fate: str


@dataclass(frozen=True)
class CheckpointReport:
    """What ``inspect`` shows of a checkpoint.

    Attributes:
        arch: None when it is of no known architecture.
        stages: of a network whose stages are keys.
        facts: what is known of it, by label; the reason where it cannot be converted.
    """

    model: str
    arch: str | None
    facts: dict[str, str]
    tensors: tuple[TensorRow, ...]
    stages: tuple[StageRow, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def inspect_checkpoint(source: Source, model: str) -> CheckpointReport:
    """Describe a checkpoint without reading its weights."""
    facts = {
        "files": ", ".join(file.name for file in source.files),
        "parameters": f"{sum(t.size for t in source.tensors.values() if t.dtype.is_float):,}",
    }
    arch: str | None = None
    stored: dict[str, str] = {}
    left_out: dict[str, str] = {}
    try:
        # What only the user can say is not needed to look at a model.
        described = describe_checkpoint(source, model, options=Options(do_normalize=None))
    except Error as error:
        try:
            described = describe_checkpoint(source, model, options=Options(do_normalize=True))
            facts["to convert"] = f"{error.cause}: {error.todo}"
        except Error:
            described = None
            facts |= {label: text for label, text in error.fields().items() if label != "file"}
    if described is not None:
        arch, stored, left_out = described.arch.name, described.stored, described.left_out
        for entry in described.manifest.entries:
            # Nobody was asked here: what the user would say is not known.
            if ".fbank." not in entry.key and entry.origin != BY_USER:
                facts[entry.key] = f"{entry.value!r}  ({entry.origin})"
    rows = []
    for name, tensor in source.tensors.items():
        fate = stored.get(name, f"left out: {left_out.get(name, '?')}") if arch else "-"
        module = name.rpartition(".")[0]
        rows.append(TensorRow(module, name, tensor.shape, tensor.dtype.label, fate))
    for name, what in source.skipped.items():
        rows.append(TensorRow("", name, (), what, "left out: not a tensor"))
    stages: tuple[StageRow, ...] = ()
    if described is not None and described.arch.stages is not None:
        stages = tuple(described.arch.stages(described.manifest))
    return CheckpointReport(model, arch, facts, tuple(rows), stages)
