"""Slots bound by name: for networks whose weights come as a state dict.

A slot is a module path there, and each role of its kind has the suffix that torch gives it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from graphtools.errors import UnsupportedError
from graphtools.match import Role
from graphtools.trace import Template

__all__ = ["SUFFIXES", "bind_names"]

# Kind of step: role to suffix. A convolution may have a weight-norm pair in its weight's place.
SUFFIXES: Mapping[str, Mapping[Role, str]] = {
    "conv": {
        "weight": ".weight",
        "weight_g": ".weight_g",
        "weight_v": ".weight_v",
        "bias": ".bias",
    },
    "linear": {"weight": ".weight", "bias": ".bias"},
    "bn": {"scale": ".weight", "bias": ".bias", "mean": ".running_mean", "var": ".running_var"},
    "layer_norm": {"weight": ".weight", "bias": ".bias"},
    "instance_norm": {"weight": ".weight", "bias": ".bias"},
    "weighted_sum": {"value": ""},
    "scale": {"value": ""},
    "nearest": {"value": ".weight"},
    "lookup": {"value": ".weight"},
}
_OPTIONAL: Mapping[str, frozenset[Role]] = {
    "conv": frozenset({"bias"}),
    "linear": frozenset({"bias"}),
}


def bind_names(template: Template, names: Collection[str]) -> dict[tuple[str, Role], str]:
    """Tensor name by (slot, role), in pull order.

    Raises:
        UnsupportedError: a tensor that the network needs is not there.
    """
    bound: dict[tuple[str, Role], str] = {}
    for step in template.slots():
        roles = dict(SUFFIXES[step.kind])
        if step.kind == "conv":
            pair = f"{step.slot}.weight_g" in names or f"{step.slot}.weight_v" in names
            for role in ("weight",) if pair else ("weight_g", "weight_v"):
                del roles[role]  # type: ignore[arg-type]
        for role, suffix in roles.items():
            name = f"{step.slot}{suffix}"
            if name in names:
                bound[step.slot, role] = name
            elif role not in _OPTIONAL.get(step.kind, ()):
                raise UnsupportedError(
                    f"the checkpoint has no tensor {name!r}",
                    where=f"{role} of {step.slot} ({step.kind})",
                    todo="check that this is the whole checkpoint of that architecture",
                )
    return bound
