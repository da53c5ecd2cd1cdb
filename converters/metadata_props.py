"""What an ONNX file's ``metadata_props`` say about its front end, held against the manifest.

sherpa-onnx releases of these models carry such properties. A contradiction is refused, an
absent property is not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from converters.manifest import Manifest
from graphtools.errors import UnsupportedError

__all__ = ["check"]

# property: (manifest key, what the manifest's value must be in the property's words)
_NUMBERS = {
    "sample_rate": "voicedetect.fbank.sample_rate",
    "output_dim": "voicedetect.embedding_dim",
    "feat_dim": "voicedetect.fbank.n_mels",
}


def check(metadata: Mapping[str, str], manifest: Manifest, path: Path) -> list[str]:
    """Notes for the user.

    Raises:
        UnsupportedError: a property contradicts a key.
    """
    for name, key in _NUMBERS.items():
        said = metadata.get(name, "").strip()
        if said and said != str(manifest[key]):
            raise _contradiction(name, said, key, manifest[key], path)
    normalize = metadata.get("feature_normalize_type", "").strip()
    if normalize not in ("", "global-mean"):
        key = "voicedetect.fbank.cmn"
        raise _contradiction("feature_normalize_type", normalize, key, manifest[key], path)
    notes = []
    scale = metadata.get("normalize_samples", "").strip()
    if scale not in ("", "0", "1"):
        key = "voicedetect.fbank.*"
        raise _contradiction("normalize_samples", scale, key, "samples in [-1, 1]", path)
    if scale == "0":
        notes.append(
            "normalize_samples is 0: the model was trained on samples times 32768. The mean "
            "subtraction cancels that except in digital silence; the engine feeds [-1, 1]."
        )
    framework = metadata.get("framework", "").strip()
    if framework.lower() == "wespeaker":
        notes.append(
            "WeSpeaker trains with a hamming window; the schema's front end is povey for all."
        )
    return notes


def _contradiction(name: str, said: str, key: str, stored: object, path: Path) -> UnsupportedError:
    return UnsupportedError(
        f"the file's metadata contradicts the manifest: {name}",
        file=path,
        expected=f"{key} = {stored!r}",
        found=f"{name} = {said!r}",
        todo="this model wants another front end than the schema stores",
    )
