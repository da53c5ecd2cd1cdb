"""The architectures with a GGUF schema: one file each."""

from __future__ import annotations

from converters.archs import campplus, eres2net, resnet
from converters.archs.arch import Arch
from graphtools.errors import UnsupportedError

__all__ = ["ARCHS", "Arch", "arch_named", "arch_of_family"]

ARCHS: tuple[Arch, ...] = (resnet.ARCH, eres2net.ARCH, campplus.ARCH)


def arch_named(name: str) -> Arch:
    """The architecture whose ``voicedetect.arch`` is ``name``.

    Raises:
        UnsupportedError: there is none.
    """
    for arch in ARCHS:
        if arch.name == name:
            return arch
    raise UnsupportedError(
        f"unknown architecture {name!r}", expected=", ".join(a.name for a in ARCHS)
    )


def arch_of_family(family: str) -> Arch:
    """The architecture that stores a family's networks."""
    return next(arch for arch in ARCHS if family == arch.family.NAME)
