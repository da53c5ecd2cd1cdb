"""The architectures with a GGUF schema: one file each."""

from __future__ import annotations

from converters.archs import campplus, ecapa, eres2net, resnet, wav2vec2
from converters.archs.arch import Arch
from graphtools.errors import UnsupportedError

__all__ = ["ARCHS", "Arch", "arch_named", "arch_of_family"]

ARCHS: tuple[Arch, ...] = (
    resnet.ARCH,
    eres2net.ARCH,
    campplus.ARCH,
    ecapa.ARCH,
    *wav2vec2.ARCHS,
)


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
    """The architecture that stores the networks of a family that is recovered from ONNX."""
    return next(arch for arch in ARCHS if arch.family == family)
