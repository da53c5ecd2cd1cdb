"""What one array would have to undergo to be another: guesses at why an engine differs.

Each hint is a function of a `Trial` and the other goldens that returns a line, or nothing. A line
is returned only when what it says makes the arrays equal within the gate.
"""

from __future__ import annotations

import numpy as np

from converters.hints.order import concatenated, flipped, padded, shifted, transposed
from converters.hints.trial import Hint, Others, Trial
from converters.hints.values import activation, elsewhere, mean_left, offset, per_channel, scaled

__all__ = ["HINTS", "Trial", "hints"]

HINTS: tuple[Hint, ...] = (
    elsewhere,
    transposed,
    flipped,
    shifted,
    padded,
    scaled,
    offset,
    mean_left,
    activation,
    per_channel,
    concatenated,
)


def hints(trial: Trial, others: Others) -> tuple[str, ...]:
    """The lines of all hints that explain why ours is not the golden."""
    if not trial.golden.size or not trial.ours.size:
        return ()
    if not np.isfinite(trial.golden).all() or not np.isfinite(trial.ours).all():
        return ()
    found = (hint(trial, others) for hint in HINTS)
    return tuple(line for line in found if line)
