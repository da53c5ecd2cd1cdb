"""What a manifest says, as the engine reads it: a family, its configuration, names by slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from converters.manifest import Manifest
from graphtools.errors import UnsupportedError
from graphtools.families import Family
from graphtools.match import Role
from graphtools.shape_ops import Shape
from graphtools.trace import Template

__all__ = ["Network", "axis", "pull"]


@dataclass(frozen=True)
class Network:
    """A manifest understood.

    Attributes:
        names: tensor name by (slot, role).
        strides: per-slot strides, for manifests that list one per convolution.
        constants: scalars by the names that the family gives them.
        keys: constant name to the key that carries it.
        input: shape of what goes in, without a batch axis; None is time.
    """

    family: Family
    config: Any
    names: Mapping[tuple[str, Role], str]
    constants: Mapping[str, float]
    strides: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    input: Shape = (None,)

    @cached_property
    def template(self) -> Template:
        return self.family.template(self.config)

    def stage_weights(self) -> dict[str, tuple[str, ...]]:
        """For every stage the tensors that are read between the stage before it and it."""
        by_slot: dict[str, list[str]] = {}
        for (slot, _), name in self.names.items():
            by_slot.setdefault(slot, []).append(name)
        return {
            stage: tuple(name for slot in slots for name in by_slot.get(slot, ()))
            for stage, slots in self.template.stage_slots().items()
        }


def axis(manifest: Manifest, name: str, index: int = 0) -> int | None:
    """Length of a tensor's axis; None where there is no such tensor or axis."""
    tensor = manifest.by_name.get(name)
    return tensor.shape[index] if tensor is not None and index < len(tensor.shape) else None


def pull(
    manifest: Manifest,
    slots: Sequence[str],
    keys: Mapping[Role, str],
    optional: Iterable[Role] = (),
) -> dict[tuple[str, Role], str]:
    """Names by (slot, role) from flat lists, by a running index, as the engine pulls them.

    Args:
        slots: in pull order.
        keys: the list that carries each role.
        optional: roles for which "" means that there is none.

    Raises:
        UnsupportedError: a list is absent, or has another length than the forward has slots.
    """
    names: dict[tuple[str, Role], str] = {}
    for role, key in keys.items():
        listed = manifest.get(key, "[string]")
        if len(listed) != len(slots):
            raise UnsupportedError(
                f"the list {key!r} does not fit the network",
                expected=f"{len(slots)} names",
                found=f"{len(listed)}",
                todo="convert the model again",
            )
        for slot, name in zip(slots, listed, strict=True):
            if name or role not in optional:
                names[slot, role] = name
    # By slot, then by role: the order in which the engine reads.
    order = {slot: i for i, slot in enumerate(slots)}
    return dict(sorted(names.items(), key=lambda item: order[item[0][0]]))
