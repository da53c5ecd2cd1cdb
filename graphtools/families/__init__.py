"""The known networks: one file each, with its configuration, its guess and its forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from graphtools.families import campplus, eres2net, resnet
from graphtools.graph import Graph

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True)
class Family:
    """A network that can be recovered.

    Attributes:
        name: the family's name, e.g. ``resnet``.
        title: what people call it.
        guess: configurations that a graph might have; may be wrong, unification decides.
        forward: (ops, features [n_mels, T], configuration) to the embedding.
    """

    name: str
    title: str
    guess: Callable[[Graph], Iterable[Any]]
    forward: Callable[..., Any]


FAMILIES: Mapping[str, Family] = {
    module.NAME: Family(module.NAME, module.TITLE, module.guess, module.forward)
    for module in (resnet, eres2net, campplus)
}
