"""When an engine's tensor is right: the gates, and the verdict on one pair of arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from converters.compare import Difference, difference
from graphtools.errors import UsageError
from graphtools.tensors import Array

__all__ = ["Gates", "Verdict", "are_codes", "judge", "judge_codes"]

# Squared distances of unit vectors that two float32 engines may see exchanged: latents differ by
# up to 1e-4 of their length, and the distance by twice that.
_NEAR_TIE = 1e-3
# A tensor that is right up to noise has the golden's length; cosine and an absolute bound alone
# would let a scaled tensor of small values pass.
_LENGTH = 0.01


@dataclass(frozen=True)
class Gates:
    """When a tensor is right.

    Attributes:
        cosine: at least this.
        relative: max|d| at most this times the larger of 1 and max|golden| ...
        noise: ... or this times the golden's own noise, where the baseline carries it.
        absolute: max|d| at most this, in place of both.
    """

    cosine: float = 0.9999
    relative: float = 1e-3
    noise: float = 10.0
    absolute: float | None = None

    def __post_init__(self) -> None:
        """Check that the numbers are gates.

        Raises:
            UsageError: a cosine outside -1 to 1, or a distance below 0.
        """
        distances = [self.relative, self.noise, *([] if self.absolute is None else [self.absolute])]
        if not -1.0 <= self.cosine <= 1.0 or not all(value >= 0.0 for value in distances):
            raise UsageError(
                "these numbers are no gates",
                expected="a cosine of -1 to 1, distances of 0 or more",
                found=f"cosine {self.cosine:g}, distances {', '.join(map(repr, distances))}",
            )

    def bound(self, golden: Array, noise: float = 0.0) -> float:
        """The largest max|d| that is right; integers and booleans are right when they are equal."""
        if self.absolute is not None:
            return self.absolute
        if golden.dtype.kind in "iub":
            return 0.0
        peak = float(np.abs(golden).max(initial=0.0))
        if not np.isfinite(peak):
            peak = float(np.abs(golden[np.isfinite(golden)]).max(initial=0.0))
        return max(self.relative * max(1.0, peak), self.noise * noise)


@dataclass(frozen=True)
class Verdict:
    """What was found of one pair.

    Attributes:
        bound: the largest max|d| that is right; None for codes, which are equal or not.
        problem: why it is wrong; "" where it is right.
        note: what is worth knowing of one that is right.
    """

    difference: Difference
    bound: float | None
    problem: str
    note: str = ""


def judge(golden: Array, ours: Array, gates: Gates, noise: float = 0.0) -> Verdict:
    """Judge two arrays of one shape; ``noise`` is the golden's own, as max|d|."""
    apart, bound = difference(golden, ours), gates.bound(golden, noise)
    return Verdict(apart, bound, _problem(golden, ours, apart, bound, gates, noise))


def _problem(
    golden: Array, ours: Array, apart: Difference, bound: float, gates: Gates, noise: float
) -> str:
    if apart.max_abs == np.inf:
        return _strange(golden, ours)
    if not apart.max_abs <= bound:
        return f"max|d| {apart.max_abs:.3g} above {bound:.3g}"
    if not apart.cosine >= gates.cosine:
        return f"cosine {apart.cosine:.6f} below {gates.cosine}"
    if apart.max_abs <= gates.noise * noise:  # the golden's own length is no better known
        return ""
    if apart.length != np.inf and abs(apart.length - 1.0) > _LENGTH:
        return f"{apart.length:.4g} times as long as the golden"
    return ""


def _strange(golden: Array, ours: Array) -> str:
    """What of the two is not finite where the other is, or is another infinity."""
    of_ours = int((~np.isfinite(ours) & (np.isfinite(golden))).sum())
    if of_ours:
        return f"{of_ours} {'value is' if of_ours == 1 else 'values are'} NaN or infinite"
    of_golden = int((np.isfinite(ours) & ~np.isfinite(golden)).sum())
    if of_golden:
        return f"finite where {of_golden} of the golden are NaN or infinite"
    return "not the golden's infinities"


def judge_codes(golden: Array, ours: Array, margin: Array) -> Verdict:
    """Judge codes ``[quantizers, frames]``, or ``[frames]`` of one quantizer.

    Each is judged where those before it are the same, since a quantizer codes what the ones
    before it left. One whose margin (how much farther the second nearest code was) is below what
    two float32 engines differ by is a near tie and no failure, if it is a code at all.
    """
    apart = difference(golden, ours)
    golden, ours, margin = (np.atleast_2d(_squeezed(v)) for v in (golden, ours, margin))
    wrong = golden != ours
    judged = np.cumsum(wrong, axis=0) - wrong == 0
    first = wrong & judged
    is_code = np.isfinite(ours) & (ours == np.trunc(ours)) & (ours >= 0)
    ties = first & is_code & (margin <= _NEAR_TIE)
    real = first & ~ties
    count = int(ties.sum())
    note = f"{count} near {'tie' if count == 1 else 'ties'}" if count else ""
    problem = ""
    if real.any():
        quantizer, frame = (int(i) for i in np.argwhere(real)[0])
        many = int(real.sum())
        problem = f"{many} {'code differs' if many == 1 else 'codes differ'}"
        problem += f", the first of quantizer {quantizer} in frame {frame}"
    return Verdict(apart, None, problem, note)


def are_codes(codes: Array, margin: Array) -> bool:
    """Whether an array can be the codes of one clip, with a margin for each."""
    return codes.dtype.kind in "iu" and codes.shape == margin.shape and _squeezed(codes).ndim <= 2


def _squeezed(codes: Array) -> Array:
    return codes.squeeze() if codes.ndim > 2 else codes
