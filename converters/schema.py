"""What a metadata key is: name, type, unit, meaning, and what proves its value.

The architectures declare their rows; inspect, lint and docs/schema.md are made from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from converters.manifest import Manifest

__all__ = ["TENSOR", "Counts", "Proof", "Row", "Schema", "all_rows", "tensor_row"]

# Of `Row.names`: the value is a tensor's name as it stands.
TENSOR = ("",)

# What the tensors say that the value of a key is; of an array its length, or all of it.
Counts = Callable[[Manifest], Mapping[str, object]]

# What shows that a value is right:
#   replay    it takes part in the replay, which is compared with onnxruntime
#   source    it equals the same value read from the source again
#   measured  it equals what the source's own region was measured to use
#   schema    it equals the value that the schema fixes
Proof = Literal["replay", "source", "measured", "schema"]


@dataclass(frozen=True)
class Row:
    """One key of a manifest.

    Attributes:
        type: as in `converters.manifest.Entry`.
        meaning: one line.
        proof: what shows that a value is right.
        unit: of the value; "" for names and plain numbers.
        fixed: the value, where the schema fixes one.
        names: endings with which the value (or each of an array) names a tensor; () for none.
        optional: of a key that names tensors: "" stands for no tensor.
        group: arrays of one group are parallel.
        zero: a tensor that is named here may hold zeros alone.
    """

    key: str
    type: str
    meaning: str
    proof: Proof
    unit: str = ""
    fixed: str | int | float | bool | None = None
    names: tuple[str, ...] = ()
    optional: bool = False
    group: str = ""
    zero: bool = False


def tensor_row(
    key: str, meaning: str, *, group: str = "", optional: bool = False, zero: bool = False
) -> Row:
    """A key that names a tensor, or with ``group`` one in each of its places; the replay reads
    what is named. Other arguments as of `Row`."""
    type = "[string]" if group else "string"
    return Row(key, type, meaning, "replay", "", None, TENSOR, optional, group, zero)


@dataclass(frozen=True)
class Schema:
    """What one kind of file has to hold, may hold and must not hold.

    Attributes:
        name: as `all_rows` has it.
        rows: the keys that have to be there.
        optional: sets of keys; each is there as a whole or not at all.
        forbidden: how keys begin that would be taken for another model's.
        counts: numbers among the keys, as the tensors have them.
    """

    name: str
    rows: tuple[Row, ...]
    optional: tuple[tuple[Row, ...], ...] = ()
    forbidden: tuple[str, ...] = ()
    counts: Counts = lambda manifest: {}

    @property
    def all_rows(self) -> tuple[Row, ...]:
        """Every key that a file may have."""
        return (*self.rows, *(row for some in self.optional for row in some))


def all_rows() -> dict[str, tuple[Row, ...]]:
    """Every schema's rows, by architecture (``voicedetect-baseline`` for goldens)."""
    from converters import goldens
    from converters.archs import ARCHS

    rows = {arch.name: arch.all_rows for arch in ARCHS}
    return rows | {goldens.ARCHITECTURE: goldens.SCHEMA.all_rows}
