"""Slots bound by name: for networks whose weights come as a state dict.

A slot is a module path there, and each role of its kind has the suffix that torch gives it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from graphtools.errors import UnsupportedError
from graphtools.match import Role
from graphtools.trace import Template

__all__ = ["SUFFIXES", "bind_names", "require_ranks"]

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
# Missing tensors that a message lists.
_SHOWN = 5
# Kinds that may go without a bias, and how many axes a kind's first tensor has (others have 1).
_BIAS_IS_OPTIONAL = frozenset({"conv", "linear"})
_AXES: Mapping[str, int] = {"linear": 2, "nearest": 2, "lookup": 2}


def bind_names(
    template: Template, names: Collection[str], *, without_bias: Collection[str] | None = None
) -> dict[tuple[str, Role], str]:
    """Tensor name by (slot, role), in pull order.

    Args:
        without_bias: the slots whose layer has no bias; a bias that another slot lacks was lost.
            None where nothing says which have one: then any may go without.

    Raises:
        UnsupportedError: a tensor that the network needs is not there.
    """
    bound: dict[tuple[str, Role], str] = {}
    missing: list[tuple[str, str]] = []
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
            elif not (
                role == "bias"
                and step.kind in _BIAS_IS_OPTIONAL
                and (without_bias is None or step.slot in without_bias)
            ):
                missing.append((name, f"{role} of {step.slot} ({step.kind})"))
    if missing:
        name, where = missing[0]
        listed = ", ".join(one for one, _ in missing[:_SHOWN])
        more = f" .. {len(missing)} in all" if len(missing) > _SHOWN else ""
        raise UnsupportedError(
            f"the checkpoint has no tensor {name!r}",
            where=where,
            found=f"without a tensor: {listed}{more}" if len(missing) > 1 else None,
            todo="check that this is the whole checkpoint of that architecture",
        )
    return bound


def require_ranks(
    template: Template,
    bound: Mapping[tuple[str, Role], str],
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    """Check that every bound tensor has as many axes as its place in the network.

    Raises:
        UnsupportedError: one has more or fewer; it is named.
    """
    steps = {step.slot: step for step in template.slots()}
    for (slot, role), name in bound.items():
        step = steps[slot]
        axes = 1
        if role in ("weight", "weight_g", "weight_v", "value"):
            axes = 2 + len(step.kernel) if step.kind == "conv" else _AXES.get(step.kind, 1)
        if len(shapes[name]) != axes:
            raise UnsupportedError(
                f"the tensor {name!r} has another number of axes than its place",
                where=f"{role} of {slot} ({step.kind})",
                expected=f"{axes} axes",
                found=f"shape {list(shapes[name])}",
                todo="check that this is the checkpoint as it was published",
            )
