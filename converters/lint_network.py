"""Tensors against the network that the keys describe: shapes in pull order, types, strays."""

from __future__ import annotations

from collections.abc import Iterator

from converters.archs import Arch
from converters.lint_codes import Code, Finding
from converters.manifest import Manifest
from converters.network import Network
from graphtools.match import Role
from graphtools.shape_ops import Misfit, ShapeOps
from graphtools.tensors import DType

__all__ = ["networks", "tensor_findings"]

# What ggml adds to or multiplies with an activation, which it does in f32 alone.
_PLAIN_ROLES: frozenset[Role] = frozenset(("bias", "scale", "mean", "var", "offset", "weight_g"))
_PLAIN_KINDS = frozenset(("layer_norm", "instance_norm", "scale", "weighted_sum"))


def networks(arch: Arch, manifest: Manifest) -> tuple[Network, ...]:
    """The network of a manifest; of a codec both directions.

    Raises:
        UnsupportedError: the keys and tensors make up none.
    """
    ways = [arch.restore] if arch.inverse is None else [arch.restore, arch.inverse]
    return tuple(restore(manifest) for restore in ways)


def tensor_findings(arch: Arch, manifest: Manifest) -> Iterator[Finding]:
    """Every tensor has the shape and the type of its place, and every tensor has a place.

    Raises:
        UnsupportedError: as `networks`.
    """
    found = networks(arch, manifest)
    shapes = [_misfits(network, manifest) for network in found]
    yield from dict.fromkeys(finding for findings in shapes for finding in findings)
    places = {name: place for n in found for place, name in n.names.items()}
    kinds = {step.slot: step.kind for n in found for step in n.template.slots()}
    for tensor in manifest.tensors:
        place = places.get(tensor.name)
        if place is None and not arch.whole:
            yield Finding(Code.STRAY, tensor.name, f"shape {list(tensor.shape)}")
        plain = place is None or place[1] in _PLAIN_ROLES or kinds[place[0]] in _PLAIN_KINDS
        if tensor.dtype is not DType.F32 and (plain or not arch.quantised):
            what = f"{place[1]} of {place[0]}" if place else "no layer's"
            yield Finding(Code.NOT_F32, tensor.name, f"{what}, found {tensor.dtype.label}")


def _misfits(network: Network, manifest: Manifest) -> Iterator[Finding]:
    by_name = manifest.by_name
    shapes = {
        place: by_name[name].shape for place, name in network.names.items() if name in by_name
    }
    ops = ShapeOps(shapes, network.strides)
    network.family.forward(ops, network.input, network.config)
    for misfit in ops.misfits:
        yield Finding(
            Code.MISFIT,
            _place(network, misfit),
            f"expected {misfit.expected}, found {misfit.found}",
        )


def _place(network: Network, misfit: Misfit) -> str:
    if misfit.role is None:
        return f"what comes out of {misfit.slot}"
    name = network.names.get((misfit.slot, misfit.role), "")
    return f"{name} ({misfit.role} of {misfit.slot})"
