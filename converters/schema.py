"""What a metadata key is: name, type, unit, meaning, and what proves its value.

The architectures declare their rows; inspect, lint and docs/schema.md are made from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Proof", "Row", "all_rows"]

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
    """

    key: str
    type: str
    meaning: str
    proof: Proof
    unit: str = ""
    fixed: str | int | float | bool | None = None


def all_rows() -> dict[str, tuple[Row, ...]]:
    """Every schema's rows, by architecture (``voicedetect-baseline`` for goldens)."""
    from converters import goldens
    from converters.archs import ARCHS

    rows = {arch.name: arch.all_rows for arch in ARCHS}
    return rows | {goldens.ARCHITECTURE: goldens.ROWS}
