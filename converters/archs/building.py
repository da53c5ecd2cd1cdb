"""Builds a manifest from a binding: looks rows up by key, names tensors, keeps pull order.

Names are the source's own. Where the file offers none, or one that is taken, the closed list of
exceptions applies: a folded bias is ``<weight without .weight>.bias`` when that is free and else
``conv.<pull index>.bias``; a weight whose name stands for other values already is
``conv.<pull index>.weight``; a kept batch norm whose four tensors do not share a prefix is
written under ``bn.<pull index>.``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from converters.emit import MAX_NAME_BYTES
from converters.manifest import Entry, require_value
from converters.schema import Row
from graphtools.match import Layer, Role
from graphtools.recover import Recovered
from graphtools.tensors import FoldBias, LazyTensor, widened

__all__ = ["BN_PARTS", "Builder"]

# Suffix of each role of a kept batch norm.
BN_PARTS: Mapping[Role, str] = {
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}


class Builder:
    """Collects the entries and tensors of one manifest, in the order they are set."""

    def __init__(self, net: Recovered, rows: Iterable[Row]) -> None:
        self.net = net
        self.rows: Mapping[str, Row] = {row.key: row for row in rows}
        self.entries: list[Entry] = []
        self.tensors: dict[str, LazyTensor] = {}
        self.notes: list[str] = []
        self._convs = 0
        self._norms = 0
        # Names of the source belong to the source: a made-up name must not take one.
        self._source_names = frozenset(net.graph.model.constants) | frozenset(net.graph.producers)

    def set(self, key: str, value: object, origin: str) -> None:
        """Add a key; its type is the row's."""
        type = self.rows[key].type
        self.entries.append(Entry(key, type, require_value(key, type, value), origin))

    def fixed(self, key: str, origin: str) -> None:
        """Add a key with the value that the schema fixes."""
        self.set(key, self.rows[key].fixed, origin)

    def conv(self, slot: str) -> tuple[str, str]:
        """Add the next convolution or linear layer in pull order; its weight and bias names,
        "" for no bias.
        """
        layer = self.layer(slot)
        index, self._convs = self._convs, self._convs + 1
        weight = self.add(layer.tensors["weight"], f"conv.{index}.weight")
        bias = layer.tensors.get("bias")
        return weight, "" if bias is None else self.add(bias, f"conv.{index}.bias")

    def norm(self, slot: str) -> str:
        """Add the next kept batch norm in pull order; the prefix of its four tensors."""
        tensors = self.layer(slot).tensors
        index, self._norms = self._norms, self._norms + 1
        stem = tensors["scale"].name.removesuffix("weight")
        shared = stem.endswith(".") and all(
            tensors[role].name == f"{stem}{part}" and self._is_free(f"{stem}{part}", tensors[role])
            for role, part in BN_PARTS.items()
        )
        prefix = stem[:-1] if shared else self._free_prefix(f"bn.{index}")
        for role, part in BN_PARTS.items():
            name = f"{prefix}.{part}"
            self.tensors.setdefault(name, widened(tensors[role]).named(name))
        return prefix

    def _free_prefix(self, prefix: str) -> str:
        """The prefix itself, or lengthened until none of its four names is taken."""
        taken = self._source_names | self.tensors.keys()
        while any(f"{prefix}.{part}" in taken for part in BN_PARTS.values()):
            prefix += "_"
        return prefix

    def add(self, tensor: LazyTensor, fallback: str) -> str:
        """Add a tensor under its own name, or ``fallback`` where that is not to be had."""
        tensor = widened(tensor)
        name = tensor.name
        if not self._is_free(name, tensor):
            name = fallback
            while name in self._source_names or not self._is_free(name, tensor):
                name += "_"
        self.tensors.setdefault(name, tensor.named(name))
        return name

    def layer(self, slot: str) -> Layer:
        return self.net.binding.layers[slot]

    def left_out(self) -> tuple[str, ...]:
        """Float initializers that no slot reads (shape arithmetic, scalars, dead weights)."""
        used: set[str] = set()
        pending = list(self.tensors.values())
        while pending:
            tensor = pending.pop()
            used |= {tensor.name, tensor.origin()}
            pending += tensor.recipe.sources()
        model = self.net.graph.model
        return tuple(
            name
            for name, tensor in sorted(model.constants.items())
            if name not in used and tensor.dtype.is_float and tensor.size > 1
        )

    def _is_free(self, name: str, tensor: LazyTensor) -> bool:
        if len(name.encode()) > MAX_NAME_BYTES and name not in self.net.graph.model.constants:
            return False
        taken = self.tensors.get(name)
        if taken is not None:
            return taken.origin() == widened(tensor).origin()
        made_up = isinstance(tensor.recipe, FoldBias)
        return not (made_up and name in self._source_names and not self._own(name, tensor))

    def _own(self, name: str, tensor: LazyTensor) -> bool:
        """Whether a folded bias takes the name of the very bias that it replaces."""
        recipe = tensor.recipe
        return isinstance(recipe, FoldBias) and recipe.bias is not None and recipe.bias.name == name
