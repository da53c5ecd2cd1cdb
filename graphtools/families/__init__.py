"""The known networks: one file each, with its configuration, its guess and its forward."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from graphtools.graph import Graph
from graphtools.trace import Template, trace

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True)
class Family:
    """A network whose forward is known.

    Attributes:
        name: the family's name, e.g. ``resnet``.
        title: what people call it.
        takes: what goes in: features ``[n_mels, T]``, or samples ``[n]``.
        forward: (ops, input, configuration) to the output.
        guess: configurations that a graph might have; may be wrong, unification decides. None
            for families that come as a state dict, whose slots bind by name.
    """

    name: str
    title: str
    takes: Literal["features", "samples"]
    forward: Callable[..., Any]
    guess: Callable[[Graph], Iterable[Any]] | None = None

    def template(self, config: Any) -> Template:
        """The forward with a configuration, recorded."""
        rank = 3 if self.takes == "features" else 2
        return trace(lambda o, x: self.forward(o, x, config), rank)


def _family(name: str) -> Family:
    module = importlib.import_module(f"{__name__}.{name}")
    return Family(
        module.NAME,
        module.TITLE,
        getattr(module, "TAKES", "features"),
        module.forward,
        getattr(module, "guess", None),
    )


# Every module of this package is a family: adding a file is adding one.
FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (_family(m.name) for m in sorted(pkgutil.iter_modules(__path__)))
}
