"""What an ONNX file's ``metadata_props`` say about its front end, held against the manifest.

sherpa-onnx releases of these models carry such properties. A contradiction is refused, an
absent property is not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from converters.archs.speaker import WESPEAKER_WINDOW
from converters.manifest import Manifest
from graphtools.errors import UnsupportedError

__all__ = ["check"]

# Property: the manifest key that it speaks of.
_KEYS = {
    "sample_rate": "voicedetect.fbank.sample_rate",
    "output_dim": "voicedetect.embedding_dim",
    "feat_dim": "voicedetect.fbank.n_mels",
    "n_mels": "voicedetect.fbank.n_mels",
    "num_mel_bins": "voicedetect.fbank.n_mels",
    "preemph": "voicedetect.fbank.preemph",
    "low_freq": "voicedetect.fbank.low_freq",
    "use_energy": "voicedetect.fbank.use_energy",
    "window_type": "voicedetect.fbank.window",
}
_FLAGS = {"false": 0.0, "true": 1.0}


def check(metadata: Mapping[str, str], manifest: Manifest, path: Path) -> list[str]:
    """Notes for the user.

    Raises:
        UnsupportedError: a property contradicts a key.
    """
    said = {name: text.strip() for name, text in metadata.items() if text.strip()}
    for name, key in _KEYS.items():
        if name in said and _number(said[name]) != _number(str(manifest[key])):
            raise _contradiction(name, said[name], key, manifest[key], path)
    normalize = said.get("feature_normalize_type", "global-mean")
    if normalize != "global-mean":
        key = "voicedetect.fbank.cmn"
        raise _contradiction("feature_normalize_type", normalize, key, manifest[key], path)
    notes = []
    scale = said.get("normalize_samples", "1")
    if _number(scale) not in (0.0, 1.0):
        key = "voicedetect.fbank.*"
        raise _contradiction("normalize_samples", scale, key, "samples in [-1, 1]", path)
    if _number(scale) == 0.0:
        notes.append(
            f"normalize_samples is {scale}: the model was trained on samples times 32768. The "
            "mean subtraction cancels that except in digital silence; the engine feeds [-1, 1]."
        )
    if said.get("framework", "").lower() == "wespeaker":
        notes.append(WESPEAKER_WINDOW)
    return notes


def _number(text: str) -> float | str:
    """What a property means, however it is spelled: 16000, 16000.0, False; else the text.

    Numbers are rounded to float32, as the manifest's are.
    """
    try:
        return float(np.float32(text))
    except ValueError:
        return _FLAGS.get(text.lower(), text.lower())


def _contradiction(name: str, said: str, key: str, stored: object, path: Path) -> UnsupportedError:
    return UnsupportedError(
        f"the file's metadata contradicts the manifest: {name}",
        file=path,
        expected=f"{key} = {stored!r}",
        found=f"{name} = {said!r}",
        todo="this model wants another front end than the schema stores",
    )
