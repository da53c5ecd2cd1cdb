"""``campplus``: 3D-Speaker's CAM++, flat lists of convolutions and batch norms."""

from __future__ import annotations

import numpy as np

from converters.archs import speaker
from converters.archs.arch import Arch
from converters.archs.building import BN_PARTS, Builder
from converters.manifest import Manifest
from converters.network import Network, axis, pull
from converters.schema import Row, tensor_row
from graphtools.errors import UnsupportedError
from graphtools.families import FAMILIES, campplus
from graphtools.match import Role
from graphtools.tensors import Array

__all__ = ["ARCH"]

_P = "voicedetect.campplus"

# The engine adds nothing to the variance in the statistics pooling; an export may, this much
# (WeSpeaker's class has 1e-7). It moves no standard deviation above 1e-3 by more than 5e-4.
_MAX_POOLING_EPS = 1e-6

# Endings of a kept batch norm's four tensors.
_NORM = tuple(f".{part}" for part in BN_PARTS.values())

_ROWS = (
    *speaker.rows("campplus"),
    tensor_row(f"{_P}.conv_weight", "convolutions in pull order", group="convs"),
    tensor_row(
        f"{_P}.conv_bias", 'their biases; "" where there is none', optional=True, group="convs"
    ),
    Row(
        f"{_P}.bn_prefix",
        "[string]",
        "kept batch norms in pull order, as prefixes",
        "replay",
        names=_NORM,
    ),
    tensor_row(f"{_P}.emb_bn_mean", "running mean of the last batch norm"),
    tensor_row(f"{_P}.emb_bn_var", "its running variance"),
    Row(f"{_P}.bn_eps", "f32", "epsilon of every batch norm", "source"),
)


def _describe(b: Builder) -> None:
    """Convolutions and kept batch norms, tensors in the order of first use."""
    binding = b.net.binding
    speaker.describe(b, "emb_bn")
    convs: list[tuple[str, str]] = []
    norms: list[str] = []
    for step in binding.template.slots():
        if step.slot == "emb_bn":
            continue
        if step.kind == "conv":
            convs.append(b.conv(step.slot))
        else:
            norms.append(b.norm(step.slot))
    last = b.layer("emb_bn").tensors
    _require_plain(last["scale"].read(), 1.0, last["scale"].name, b)
    _require_plain(last["bias"].read(), 0.0, last["bias"].name, b)
    eps = binding.constants["stats.eps"]
    if eps.value > _MAX_POOLING_EPS:
        raise UnsupportedError(
            "the statistics pooling adds more to the variance than the engine's",
            file=b.net.graph.model.path,
            where=eps.origin,
            expected=f"at most {_MAX_POOLING_EPS:g}",
            found=f"{eps.value:g}",
            todo="this network cannot be stored: there is no key for it",
        )
    if eps.value:
        b.notes.append(
            f"the statistics pooling adds {eps.value:g} to the variance ({eps.origin}); the "
            "engine adds nothing, which is within the proof's gate"
        )
    bn_eps = binding.constants["bn.eps"]
    b.set(f"{_P}.conv_weight", tuple(w for w, _ in convs), "graph: pull order")
    b.set(f"{_P}.conv_bias", tuple(bias for _, bias in convs), "graph: pull order")
    b.set(f"{_P}.bn_prefix", tuple(norms), "graph: pull order")
    mean, var = b.add(last["mean"], "emb_bn.running_mean"), b.add(last["var"], "emb_bn.running_var")
    b.set(f"{_P}.emb_bn_mean", mean, "graph: last BatchNormalization")
    b.set(f"{_P}.emb_bn_var", var, "graph: last BatchNormalization")
    b.set(f"{_P}.bn_eps", bn_eps.value, bn_eps.origin)


def _require_plain(values: Array, wanted: float, name: str, b: Builder) -> None:
    if not np.all(values == wanted):
        raise UnsupportedError(
            "the last batch norm has an affine part, which the manifest cannot carry",
            file=b.net.graph.model.path,
            where=f"tensor {name!r}",
            expected=f"exactly {wanted:g} everywhere",
            found=f"values from {values.min():g} to {values.max():g}",
            todo="this network cannot be stored: the engine applies no scale or bias there",
        )


def _restore(m: Manifest) -> Network:
    """Configuration and names from the keys, by two running indices."""
    family, cfg = FAMILIES[campplus.NAME], campplus.Config()
    template = family.template(cfg)
    lists: dict[Role, str] = {"weight": f"{_P}.conv_weight", "bias": f"{_P}.conv_bias"}
    convs = pull(m, [s.slot for s in template.slots("conv")], lists, optional=("bias",))
    norms = [s.slot for s in template.slots("bn") if s.slot != "emb_bn"]
    prefixes = pull(m, norms, {"scale": f"{_P}.bn_prefix"})
    names: dict[tuple[str, Role], str] = {}
    for step in template.slots():
        if step.kind == "conv":
            roles: tuple[Role, ...] = ("weight", "bias")
            names |= {(step.slot, r): convs[step.slot, r] for r in roles if (step.slot, r) in convs}
        elif step.slot != "emb_bn":
            prefix = prefixes[step.slot, "scale"]
            names |= {(step.slot, r): f"{prefix}.{part}" for r, part in BN_PARTS.items()}
    names["emb_bn", "mean"] = m.get(f"{_P}.emb_bn_mean", "string")
    names["emb_bn", "var"] = m.get(f"{_P}.emb_bn_var", "string")
    return Network(
        family=family,
        config=cfg,
        names=names,
        constants={
            "bn.eps": m.get(f"{_P}.bn_eps", "f32"),
            "stats.eps": 0.0,
            "cam.segment": 100.0,
            "cam.valid": 0.0,
        },
        keys={"bn.eps": f"{_P}.bn_eps"},
        input=speaker.features(m),
    )


def _counts(m: Manifest) -> dict[str, object]:
    return {"voicedetect.embedding_dim": axis(m, m.get(f"{_P}.emb_bn_mean", "string"))}


ARCH = Arch(
    "campplus",
    campplus.NAME,
    _ROWS,
    _restore,
    outputs=("encoder_out",),
    describe=_describe,
    forbidden=speaker.FORBIDDEN,
    counts=_counts,
)
