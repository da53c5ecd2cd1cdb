"""The stages of the wav2vec 2.0 heads, by ``transformers``' own classes.

The state dict is loaded as it is, strictly; no auto class gets to re-initialise a head.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from converters.archs.wav2vec2 import stored_name
from converters.sources.source import Source
from graphtools.errors import MissingDependencyError, UnsupportedError
from graphtools.tensors import Array, widened

__all__ = ["age_gender_module", "library", "stages"]


def library() -> str:
    """``transformers`` and its version."""
    _require()
    from importlib.metadata import version

    return f"transformers {version('transformers')}"


def age_gender_module(config: Any) -> Any:
    """Audeering's model as its card gives it: two heads on the mean of the last hidden state.

    Its custom head is in no library; the published description is
    ``out_proj(tanh(dense(mean)))`` for each of ``age`` (1) and ``gender`` (3).
    """
    import torch
    from transformers import Wav2Vec2Model

    class ModelHead(torch.nn.Module):
        def __init__(self, labels: int) -> None:
            super().__init__()
            self.dense = torch.nn.Linear(config.hidden_size, config.hidden_size)
            self.out_proj = torch.nn.Linear(config.hidden_size, labels)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.out_proj(torch.tanh(self.dense(x)))
            return out

    class AgeGenderModel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wav2vec2 = Wav2Vec2Model(config)
            self.age = ModelHead(1)
            self.gender = ModelHead(3)

    return AgeGenderModel()


def stages(source: Source, arch: str, normalize: bool) -> Callable[[Array], dict[str, Array]]:
    """Samples ``[n]`` to the stages."""
    _require()
    import torch
    from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification

    given = source.json("config.json") or {}
    # The class wants a float where JSON may have an integer.
    config = Wav2Vec2Config(**{**given, "layer_norm_eps": float(given["layer_norm_eps"])})
    emotion = arch == "wav2vec2_emotion"
    module: Any = (
        Wav2Vec2ForSequenceClassification(config) if emotion else age_gender_module(config)
    )
    _load(module.eval(), source)

    def run(samples: Array) -> dict[str, Array]:
        wave = torch.from_numpy(np.array(samples, np.float32))
        if normalize:  # as transformers' feature extractor does
            wave = (wave - wave.mean()) / torch.sqrt(wave.var(correction=0) + 1e-7)
        with torch.no_grad():
            found = module.wav2vec2(wave[None], output_hidden_states=True)
            features = module.wav2vec2.feature_extractor(wave[None])[0]
        hidden = [h[0].T.numpy() for h in found.hidden_states]
        # transformers 5 leaves the last norm of pre-norm encoders out of its hidden states.
        last = found.last_hidden_state[0].T.numpy()
        out = {"feat_extract_out": features.numpy(), "enc_layer_last": last}
        with torch.no_grad():
            if emotion:
                out["enc_layer_0"] = hidden[1]
                out["enc_layer_mid"] = hidden[config.num_hidden_layers // 2]
                logits = module(wave[None]).logits[0]
                out["emotion_logits"] = logits.numpy()
                out["emotion_probs"] = logits.softmax(-1).numpy()
            else:
                mean = found.last_hidden_state.mean(dim=1)
                out["age_raw"] = module.age(mean)[0].numpy()
                logits = module.gender(mean)[0]
                out["gender_logits"] = logits.numpy()
                out["gender_probs"] = logits.softmax(-1).numpy()
        return out

    return run


def _load(module: Any, source: Source) -> None:
    """Every parameter from the checkpoint, whichever way its weight norm is spelled."""
    import torch

    ours = {stored_name(name): tensor for name, tensor in source.tensors.items()}
    state = module.state_dict()
    for name in state:
        found = ours.get(stored_name(name))
        if found is None:
            raise UnsupportedError(f"the checkpoint has no tensor {name!r}", file=source.path)
        state[name] = torch.from_numpy(np.array(widened(found).read()))
    module.load_state_dict(state)


def _require() -> None:
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            raise MissingDependencyError(
                f"the goldens of wav2vec 2.0 are made with {name}, which is not installed",
                todo="pip install torch transformers",
            )
