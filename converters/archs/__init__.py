"""The architectures with a GGUF schema: one file each."""

from __future__ import annotations

from converters.archs import campplus, ecapa, eres2net, moss, resnet, wav2vec2
from converters.archs.arch import Arch
from converters.archs.speaker import ARCHITECTURE as VOICEDETECT
from converters.manifest import Manifest
from graphtools.errors import UnsupportedError

__all__ = ["ARCHS", "Arch", "arch_named", "arch_of_family", "arch_of_manifest"]

ARCHS: tuple[Arch, ...] = (
    resnet.ARCH,
    eres2net.ARCH,
    campplus.ARCH,
    ecapa.ARCH,
    *wav2vec2.ARCHS,
    moss.ARCH,
)


def arch_named(name: str) -> Arch:
    """The architecture called ``name``.

    Raises:
        UnsupportedError: there is none.
    """
    for arch in ARCHS:
        if arch.name == name:
            return arch
    raise UnsupportedError(
        f"unknown architecture {name!r}", expected=", ".join(a.name for a in ARCHS)
    )


def arch_of_family(family: str) -> Arch | None:
    """The architecture that stores the networks of a family that is recovered from ONNX; None
    where no engine has a schema for them."""
    return next((arch for arch in ARCHS if arch.family == family), None)


def arch_of_manifest(manifest: Manifest) -> Arch:
    """The architecture whose schema a manifest follows.

    Raises:
        UnsupportedError: it follows none.
    """
    for arch in ARCHS:
        if arch.architecture == manifest.architecture != VOICEDETECT:
            return arch
    if manifest.architecture != VOICEDETECT:
        raise UnsupportedError(
            "the file is no manifest of ours",
            expected=", ".join(sorted({a.architecture for a in ARCHS})),
            found=f"general.architecture {manifest.architecture!r}",
        )
    return arch_named(manifest.get("voicedetect.arch", "string"))
