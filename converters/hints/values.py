"""Hints of value: the right places with other numbers in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from converters.hints.trial import Others, Trial, axis_name
from graphtools.tensors import Array

__all__ = ["activation", "elsewhere", "mean_left", "offset", "per_channel", "scaled"]

# Goldens around the wrong one that ours may be instead.
_NEAREST = 32
# What a per-channel factor and offset have to explain, so that two of them are no explanation.
_FEWEST = 8
# Below this a factor makes anything a constant.
_FACTOR = 1e-6
_CONSTANTS = {
    "32768 (samples as integers)": 32768.0,
    "32767 (samples as integers)": 32767.0,
    "ln 10 (log10 in place of ln)": math.log(10.0),
    "ln 2 (log2 in place of ln)": math.log(2.0),
    "10 / ln 10 (decibels in place of ln)": 10.0 / math.log(10.0),
}
# Usual widths of heads and layers, whose roots scale attention scores and embeddings.
_WIDTHS = (32, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024)


def elsewhere(trial: Trial, others: Others) -> str | None:
    """Another golden: the value before or after an operation, or the stage next door."""
    for (name, later), read in list(others.items())[:_NEAREST]:
        other = read()
        if not np.isfinite(other).all():
            continue
        instead = Trial(other, trial.ours, trial.gates, trial.noise)
        if instead.equal(instead.a, instead.b):
            where = f"{abs(later)} {'after' if later > 0 else 'before'} it in execution order"
            return f"ours is the golden {name!r}, {where}"
    return None


def scaled(trial: Trial, others: Others) -> str | None:
    """One factor, by its name where it is a usual one."""
    a, b = trial.a, trial.b
    power = float(np.square(b).sum())
    factor = float((a * b).sum()) / power if a.shape == b.shape and power else 0.0
    if not factor or not trial.pointwise(a, b, lambda x: factor * x):
        return None
    known = dict(_CONSTANTS)
    known |= {f"the root of {d}": math.sqrt(d) for d in (*_WIDTHS, *a.shape) if d >= 16}
    for sign, value in (("too large", 1.0 / factor), ("too small", factor)):
        name = min(known, key=lambda n: abs(math.log(known[n] / abs(value))))
        if math.isclose(known[name], value, rel_tol=1e-4):
            return f"ours is {sign} by {name}"
    return f"ours times {factor:.6g} is the golden"


def offset(trial: Trial, others: Others) -> str | None:
    """One number added everywhere."""
    a, b = trial.a, trial.b
    by = float(a.mean() - b.mean()) if a.shape == b.shape else 0.0
    if not by or not trial.pointwise(a, b, lambda x: x + by):
        return None
    why = ""
    if math.isclose(abs(by), 2.0 * math.log(32768.0), rel_tol=1e-4):
        why = f": 2 ln 32768, log energies of samples that are too {'small' if by > 0 else 'large'}"
    return f"ours plus {by:.6g} is the golden{why}"


def mean_left(trial: Trial, others: Others) -> str | None:
    """A mean over one axis that one side has subtracted."""
    a, b = trial.a, trial.b
    for axis in reversed(range(a.ndim)) if a.shape == b.shape else ():
        if trial.equal(a, b - b.mean(axis, keepdims=True)):
            return f"the mean over {axis_name(trial, axis)} is not subtracted from ours"
        if trial.equal(a - a.mean(axis, keepdims=True), b):
            where = axis_name(trial, axis)
            return f"the mean over {where} is subtracted from ours, not from the golden"
    return None


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


_ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "ReLU": lambda x: np.maximum(x, 0.0),
    "SiLU": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
}


def activation(trial: Trial, others: Others) -> str | None:
    """An activation that one side has gone through."""
    a, b = trial.a, trial.b
    for name, function in _ACTIVATIONS.items() if a.shape == b.shape else ():
        if trial.pointwise(a, b, function):
            return f"ours is the value before the {name}"
        if trial.pointwise(b, a, function):
            return f"ours has gone through a {name}, and the golden has not"
    return None


def per_channel(trial: Trial, others: Others) -> str | None:
    """A factor and an offset for each channel, as a norm's weights are."""
    a, b = trial.a, trial.b
    if a.ndim < 2 or a.shape != b.shape or a[0].size < _FEWEST:
        return None
    if any(simpler(trial, others) for simpler in (scaled, offset, mean_left)):
        return None
    one, other = a.reshape(len(a), -1), b.reshape(len(b), -1)
    means = one.mean(1, keepdims=True), other.mean(1, keepdims=True)
    spread = np.square(other - means[1]).sum(1, keepdims=True)
    both = ((one - means[0]) * (other - means[1])).sum(1, keepdims=True)
    factor = np.divide(both, spread, out=np.ones_like(both), where=spread > 0.0)
    if np.abs(factor).min() <= _FACTOR or not trial.equal(
        one, factor * (other - means[1]) + means[0]
    ):
        return None
    return (
        f"ours differs by a factor and an offset for each of {axis_name(trial, 0)}: a norm's or a "
        f"bias's values (factors {factor.min():.4g} to {factor.max():.4g})"
    )
