"""What a page shows beyond the graph: plain data from the caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Carried", "Error", "Fact", "Golden", "Mark", "Overlays"]


@dataclass(frozen=True)
class Carried:
    """Where a constant of the graph went.

    Attributes:
        key: of the file that carries it; "" where no key names it.
        index: place in the key's list; None where the key has one value.
        tensor: its name in that file.
        origin: what was done to it on the way.
    """

    key: str
    index: int | None
    tensor: str
    origin: str


@dataclass(frozen=True)
class Fact:
    """One value that is known of the model.

    Attributes:
        origin: where the value came from.
        meaning: one line, for people.
    """

    name: str
    value: str
    origin: str = ""
    meaning: str = ""


@dataclass(frozen=True)
class Golden:
    """A reference tensor's figures; ``noise`` is how well it is known itself."""

    shape: tuple[int, ...]
    minimum: float
    maximum: float
    mean: float
    std: float
    noise: float | None = None


@dataclass(frozen=True)
class Error:
    """An engine's tensor against its golden.

    Attributes:
        max_abs: largest absolute difference; None where nothing could be compared.
        bound: what is right; None where there is no bound.
        cosine: None where nothing could be compared.
        problem: why it is wrong; "" where it is right.
        note: what is worth knowing of one that is right.
        missing: the engine has no such tensor.
    """

    max_abs: float | None
    bound: float | None
    cosine: float | None
    problem: str
    note: str = ""
    missing: bool = False


@dataclass(frozen=True)
class Mark:
    """A node that people should see first, and why."""

    node: int
    reason: str


@dataclass(frozen=True)
class Overlays:
    """Everything beyond the graph.

    Attributes:
        title: what the network is.
        facts: about the whole model, in the order they are shown.
        labels: what a node is called in its family, by node index (a slot).
        carried: where constants went, by name in the graph.
        goldens, errors: by stage.
        first_wrong: the stage that is marked and scrolled to; "" for none.
        mark: the node that is marked and scrolled to.
        notes: whole sentences, shown above the facts.
    """

    title: str = ""
    facts: tuple[Fact, ...] = ()
    labels: Mapping[int, str] = field(default_factory=dict)
    carried: Mapping[str, tuple[Carried, ...]] = field(default_factory=dict)
    goldens: Mapping[str, Golden] = field(default_factory=dict)
    errors: Mapping[str, Error] = field(default_factory=dict)
    first_wrong: str = ""
    mark: Mark | None = None
    notes: tuple[str, ...] = ()
