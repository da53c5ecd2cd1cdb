"""What an architecture's file declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from converters.archs.building import Builder
from converters.archs.checkpoint import CheckpointBuilder
from converters.manifest import Manifest
from converters.network import Network
from converters.schema import Counts, Row, Schema

__all__ = ["Arch", "StageRow"]


@dataclass(frozen=True)
class StageRow:
    """A stage of a network for people: what its keys say of it, by column."""

    name: str
    values: Mapping[str, int | float | str]
    parameters: int


@dataclass(frozen=True)
class Arch:
    """One kind of manifest.

    Attributes:
        family: name of the family in `graphtools.families` that it stores.
        rows: its keys, in the order they are written.
        restore: configuration and names from the keys (and tensor names) alone.
        outputs: the stages that are the network's results.
        describe: sets every key of a network recovered from ONNX; None where there is none.
        describe_checkpoint: the same of a state dict.
        claims: whether names and shapes of a state dict are this architecture's.
        model: the hub id that stands for a left out ``--model``.
        licence: what a user of that model has to know; "" for nothing special.
        tested: library and version that the tests compare the forward with (state dicts).
        space: the configurations that they cover, for people.
        architecture: ``general.architecture`` of the file.
        optional_rows: keys that only some models have; all of them or none.
        forbidden: how keys begin that would be taken for another model's.
        counts: numbers among the keys, as the tensors have them.
        whole: the state dict is kept whole, tensors that no layer reads included.
        quantised: weights may be quantised after the conversion; norms and biases never.
        inverse: the way back from outputs to inputs, for codecs.
        stages: the table that ``inspect`` shows of a network whose stages are keys.
    """

    name: str
    family: str
    rows: tuple[Row, ...]
    restore: Callable[[Manifest], Network]
    outputs: tuple[str, ...]
    describe: Callable[[Builder], None] | None = None
    describe_checkpoint: Callable[[CheckpointBuilder], None] | None = None
    claims: Callable[[Mapping[str, tuple[int, ...]]], bool] | None = None
    model: str = ""
    licence: str = ""
    tested: str = ""
    space: str = ""
    architecture: str = "voicedetect"
    optional_rows: tuple[Row, ...] = ()
    forbidden: tuple[str, ...] = ()
    counts: Counts = lambda manifest: {}
    whole: bool = False
    quantised: bool = False
    inverse: Callable[[Manifest], Network] | None = None
    stages: Callable[[Manifest], list[StageRow]] | None = None

    @property
    def all_rows(self) -> tuple[Row, ...]:
        """Every key that a manifest of this architecture may have."""
        return self.rows + self.optional_rows

    @property
    def schema(self) -> Schema:
        """What its files have to hold."""
        sets = (self.optional_rows,) if self.optional_rows else ()
        return Schema(self.name, self.rows, sets, self.forbidden, self.counts)
