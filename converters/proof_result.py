"""What a proof says: worst errors, what shows each value right, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from converters.compare import Difference
from graphtools.errors import Error, UnprovenError
from graphtools.onnx_edit import SegmentRule

__all__ = ["EPS_GATE", "GATE", "MIN_COSINE", "Proof", "WorstError"]

# A stage is right when |d| <= GATE * (|ref| + rms) for every element. A correct float64 forward
# stays below 2.1e-5 on real networks (float32 noise of one block); a wrong one is far above.
GATE = 1e-4
# End to end, the embedding of a correct file is nearer than this; float32 noise adds up over
# the whole network, so that an absolute bound would fail correct files.
MIN_COSINE = 0.99999
# The epsilon measured on an all-zero map through the pooling, relative.
EPS_GATE = 1e-3


@dataclass(frozen=True)
class WorstError:
    """The worst local error of a stage: which probe, and under which segment rule."""

    stage: str
    error: float
    probe: str
    rule: SegmentRule | None


@dataclass
class Proof:
    """The result; truthy when the file is proven.

    Attributes:
        stages: worst local error of every stage, in execution order.
        islands: worst local error of each kind of island run alone.
        end_to_end: embedding of the whole replay against onnxruntime, by segment rule.
        rule_distance: 1 - cosine between the embeddings under the two segment rules.
        runtime_rule: the rule that the installed onnxruntime itself follows.
        values: key to what shows that it is right.
        failures: what is wrong, the first difference first.
        unproven: keys that nothing exercised.
    """

    onnxruntime: str
    stages: dict[str, WorstError] = field(default_factory=dict)
    islands: dict[str, float] = field(default_factory=dict)
    end_to_end: dict[str, Difference] = field(default_factory=dict)
    rule_distance: float | None = None
    runtime_rule: str | None = None
    values: dict[str, str] = field(default_factory=dict)
    failures: list[Error] = field(default_factory=list)
    unproven: dict[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.failures and not set(self.unproven) - set(self.allowed)

    @property
    def worst(self) -> WorstError | None:
        """The stage with the largest local error."""
        return max(self.stages.values(), key=lambda s: s.error, default=None)

    def require(self) -> None:
        """Raise the first failure, or the first unproven value."""
        if self.failures:
            raise self.failures[0]
        for key in sorted(set(self.unproven) - set(self.allowed)):
            raise UnprovenError(
                f"nothing shows that the value of {key!r} is right",
                found=self.unproven[key],
                todo=f"check it by hand, then pass --allow-unproven {key}",
            )

    def summary(self) -> list[str]:
        """The result in lines for people."""
        lines = [f"proven against onnxruntime {self.onnxruntime}:"]
        if (worst := self.worst) is not None:
            lines.append(
                f"  {len(self.stages)} stages, worst local error {worst.error:.2g} at "
                f"{worst.stage} ({worst.probe}), gate {GATE:g}"
            )
        for rule, apart in self.end_to_end.items():
            label = "" if rule == "plain" else f" (segment rule {rule})"
            lines.append(
                f"  embedding on speech{label}: cosine {apart.cosine:.8f}, "
                f"max|d| {apart.max_abs:.2g} (float32 noise of the source included)"
            )
        if self.rule_distance is not None:
            lines.append(
                f"  the two segment rules are 1 - cosine = {self.rule_distance:.3g} apart; "
                f"this onnxruntime follows: {self.runtime_rule or 'neither'}"
            )
        return lines + [f"  unproven, allowed by you: {key}" for key in self.unproven]

    def to_json(self) -> dict[str, Any]:
        """Plain data, the same for the same input."""
        return {
            "proven": bool(self),
            "onnxruntime": self.onnxruntime,
            "gate": GATE,
            "stages": {
                s.stage: {"error": s.error, "probe": s.probe, "segment_rule": s.rule}
                for s in self.stages.values()
            },
            "islands": self.islands,
            "end_to_end": {
                rule: {"cosine": d.cosine, "max_abs": d.max_abs}
                for rule, d in self.end_to_end.items()
            },
            "segment_rule_distance": self.rule_distance,
            "segment_rule_of_onnxruntime": self.runtime_rule,
            "values": self.values,
            "unproven": self.unproven,
            "allowed_unproven": list(self.allowed),
            "failures": [e.fields() for e in self.failures],
            "notes": self.notes,
        }
