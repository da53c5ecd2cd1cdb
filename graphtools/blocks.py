"""A recovered network by hand: its blocks, and their weights by the names of the family's slots.

``net.blocks[7].conv2.weight`` is the lazy tensor that the manifest would store: folded, widened
and transposed as the engine reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphtools.errors import UsageError
from graphtools.tensors import LazyTensor

if TYPE_CHECKING:
    from graphtools.match import Layer

__all__ = ["BlockView", "blocks_of", "stages_of"]


@dataclass(frozen=True)
class BlockView:
    """Slots with a common beginning: a block, a part of one, or a single layer.

    Attributes:
        name: what the slots begin with; attributes and ``[...]`` go on from there.
        slots: layers by what follows; ``""`` is the layer of this name itself.
    """

    name: str
    slots: Mapping[str, Layer]

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{'.'.join(filter(None, (slot, role)))} {list(tensor.shape)}"
            for slot, layer in [*self.slots.items()][:6]
            for role, tensor in layer.tensors.items()
        )
        more = " .." if len(self.slots) > 6 else ""
        return f"<block {self.name}: {shapes}{more}>"

    def __dir__(self) -> list[str]:
        own = self.slots[""].tensors if "" in self.slots else {}
        return [*own, *{slot.split(".")[0]: None for slot in self.slots if slot}]

    def __getattr__(self, name: str) -> BlockView | LazyTensor:
        if name.startswith("__") or "slots" not in self.__dict__:
            raise AttributeError(name)
        try:
            return self[name]
        except UsageError as error:
            raise AttributeError(f"{error.cause}; {error.found}") from None

    def __getitem__(self, key: str | int) -> BlockView | LazyTensor:
        """A part, or a weight by its role (``weight``, ``bias``, ``scale``, ..).

        Raises:
            UsageError: there is none; what there is is listed.
        """
        own = self.slots[""].tensors if "" in self.slots else {}
        if key in own:
            return own[key]  # type: ignore[index]
        found = _part(self.slots, str(key))
        if not found:
            raise UsageError(f"{self.name} has no {key!r}", found=f"it has {', '.join(dir(self))}")
        return BlockView(f"{self.name}.{key}", found)

    def __iter__(self) -> Iterator[LazyTensor]:
        """Its weights in pull order."""
        return (tensor for layer in self.slots.values() for tensor in layer.tensors.values())


def stages_of(
    stage_slots: Mapping[str, tuple[str, ...]], layers: Mapping[str, Layer]
) -> tuple[BlockView, ...]:
    """A view for every stage that has weights, in execution order."""
    found = []
    for stage, slots in stage_slots.items():
        inside = {slot.removeprefix(f"{stage}.") if slot != stage else "": slot for slot in slots}
        if inside:
            found.append(BlockView(stage, {short: layers[slot] for short, slot in inside.items()}))
    return tuple(found)


def blocks_of(stages: tuple[BlockView, ...]) -> tuple[BlockView, ...]:
    """The stages that repeat: ``layer2.0``, not ``stem``."""
    return tuple(stage for stage in stages if stage.name.rpartition(".")[2].isdecimal())


def _part(slots: Mapping[str, Layer], key: str) -> dict[str, Layer]:
    return {
        slot.removeprefix(key).removeprefix("."): layer
        for slot, layer in slots.items()
        if slot == key or slot.startswith(f"{key}.")
    }
