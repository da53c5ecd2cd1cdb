"""Which front end a known embedding or known features were made with: try them all and rank.

No model file says how its features are made. A clip and what somebody's pipeline made of it do:
of the 144 candidates the right one gives the same again, to float noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from converters.audio import read_audio
from converters.compare import Difference, cosine, difference
from converters.encoder import open_encoder
from converters.frontend import Features, FilterBank, log_mel, mean_subtracted
from converters.replay import read_array
from graphtools.errors import UnsupportedError, UsageError
from graphtools.onnx_edit import SegmentRule
from graphtools.tensors import Array

__all__ = [
    "CANDIDATES",
    "LEAST",
    "MARGIN",
    "SETTINGS",
    "Candidate",
    "FrontendSearch",
    "Scored",
    "frontend_search",
]

MARGIN = 1e-4
"""The best two have to be this far apart for a decision."""
LEAST = 0.9999
"""The best has to score this: the cosine at which `compare` calls a tensor right. On trained CAM++
weights the best wrong candidate scores 0.9988."""

_KALDI = {"hann": "hanning"}


@dataclass(frozen=True)
class Candidate:
    """Settings of a front end; the defaults are the engine's.

    Attributes:
        window: ``povey``, ``hamming`` or ``hann`` (symmetric, Kaldi's ``hanning``).
        scale: what samples in [-1, 1] are multiplied by.
        cmn: each bin's mean over time is subtracted.
        preemph: pre-emphasis coefficient; 0 is none.
        snip_edges: only frames that lie in the clip; else the clip is mirrored at its ends.
        band: edges of the mel bank in Hz; an upper one of 0 is Nyquist.
    """

    window: str = "povey"
    scale: int = 1
    cmn: bool = True
    preemph: float = 0.97
    snip_edges: bool = True
    band: tuple[float, float] = (20.0, 0.0)

    def features(self, samples: Array, n_mels: int = 80) -> Features:
        """[n] samples in [-1, 1] to ``[frames, n_mels]``.

        Raises:
            UnsupportedError: the clip is shorter than one window.
        """
        low, high = self.band
        window = _KALDI.get(self.window, self.window)
        bank = FilterBank(window, self.preemph, self.snip_edges, low, high, n_mels)
        raw = log_mel((samples * np.float32(self.scale)).astype(np.float32), bank)
        return mean_subtracted(raw) if self.cmn else raw

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {name: getattr(self, name) for name in SETTINGS} | {"band": list(self.band)}


SETTINGS = tuple(f.name for f in fields(Candidate))
"""Names of the settings, in the order in which people read them."""

CANDIDATES = tuple(
    Candidate(*settings)
    for settings in itertools.product(
        ("povey", "hamming", "hann"),
        (1, 32768),
        (True, False),
        (0.97, 0.0),
        (True, False),
        ((20.0, 0.0), (0.0, 0.0), (20.0, 7600.0)),
    )
)
"""All that are tried: 144."""

# What settles a setting that a clip leaves open.
_TELLS = {
    "window": "a clip with loud and silent bins in one frame, such as music or vowels",
    "scale": "a clip with digital silence: only the energy floor shows a factor that the mean "
    "subtraction takes out again",
    "cmn": "the features themselves (--features): the model may subtract a mean of its own",
    "preemph": "a clip with strong low frequencies",
    "snip_edges": "a shorter clip, in which two frames more or less weigh more",
    "band": "a clip with sound below 100 Hz and above 7600 Hz",
}


@dataclass(frozen=True)
class Scored:
    """A candidate and how near it comes to what is known.

    Attributes:
        score: 1 is equal. Of an embedding the cosine. Of features 1 - sum(d^2) / sum((f - mean
            f)^2), since a cosine does not see a factor and hardly an offset.
        seg_pool: the rule for the last partial segment with which it comes nearest (CAM++).
        difference: of features: max|d| and cosine too.
    """

    candidate: Candidate
    score: float
    seg_pool: SegmentRule | None = None
    difference: Difference | None = None


@dataclass(frozen=True)
class FrontendSearch:
    """The result; truthy when decided.

    Attributes:
        ranking: nearest first; without those that have another number of frames.
        measure: what the scores are, for people.
    """

    ranking: tuple[Scored, ...]
    measure: str

    def __bool__(self) -> bool:
        return self.decided

    @property
    def best(self) -> Scored:
        return self.ranking[0]

    @property
    def margin(self) -> float:
        """How far the best two are apart."""
        scores = [scored.score for scored in self.ranking[:2]]
        return scores[0] - scores[1] if len(scores) > 1 else float("inf")

    @property
    def reproduced(self) -> bool:
        """Whether the best gives what is known."""
        return self.best.score >= LEAST

    @property
    def decided(self) -> bool:
        """Whether one candidate gives what is known, and no other comes near."""
        return self.reproduced and self.margin >= MARGIN

    @property
    def tied(self) -> tuple[Scored, ...]:
        """The best and all within `MARGIN` of it."""
        return tuple(s for s in self.ranking if self.best.score - s.score < MARGIN)

    @property
    def gap(self) -> float:
        """How far the best is from the first that is not tied with it."""
        rest = self.ranking[len(self.tied) :]
        return self.best.score - rest[0].score if rest else float("inf")

    @property
    def open(self) -> dict[str, tuple[Any, ...]]:
        """Settings in which those that are tied differ, with their values."""
        values = {n: [getattr(s.candidate, n) for s in self.tied] for n in SETTINGS}
        distinct = {name: tuple(dict.fromkeys(listed)) for name, listed in values.items()}
        return {name: listed for name, listed in distinct.items() if len(listed) > 1}

    @property
    def advice(self) -> tuple[str, ...]:
        """For each open setting, what would settle it."""
        return tuple(_TELLS[name] for name in self.open)

    @property
    def differs(self) -> dict[str, tuple[Any, Any]]:
        """Settings in which the best is not the engine's front end: (its value, the engine's)."""
        ours, engine = self.best.candidate, Candidate()
        pairs = {name: (getattr(ours, name), getattr(engine, name)) for name in SETTINGS}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "decided": self.decided,
            "measure": self.measure,
            "margin": self.margin,
            "reproduced": self.reproduced,
            "open": {name: list(values) for name, values in self.open.items()},
            "differs": {name: list(pair) for name, pair in self.differs.items()},
            "ranking": [
                {
                    **s.candidate.to_json(),
                    "score": s.score,
                    "seg_pool": s.seg_pool,
                    **(
                        {}
                        if s.difference is None
                        else {"max_abs": s.difference.max_abs, "cosine": s.difference.cosine}
                    ),
                }
                for s in self.ranking
            ],
        }


def frontend_search(
    audio: Path,
    *,
    model: Path | None = None,
    embedding: Path | None = None,
    features: Path | None = None,
) -> FrontendSearch:
    """Rank all candidates against what is known of one clip.

    Args:
        audio: 16 kHz, mono.
        model: a speaker encoder, as ONNX or as a manifest GGUF; features need none.
        embedding: a ``.npy`` with the known embedding, ``[D]`` or ``[1, D]``, of any length.
        features: a ``.npy`` with known features, ``[T, n_mels]`` or ``[n_mels, T]``.

    Raises:
        UsageError: neither or both of embedding (with a model) and features; a file is not there.
        UnsupportedError: what is known does not fit the clip or the model.
    """
    if model is not None and not model.exists():
        raise UsageError("no such file", file=model, todo="check the path of the model")
    if features is not None and embedding is None:
        scored, measure = _by_features(_sound(audio), features), "R2 of the features"
    elif embedding is not None and features is None and model is not None:
        scored = _by_embedding(_sound(audio), model, embedding)
        measure = "cosine of the embedding"
    else:
        raise UsageError(
            "one thing has to be known of the clip",
            expected="MODEL and --embedding, or --features",
        )
    # Equal scores stay in the order of the candidates, the engine's own first.
    return FrontendSearch(tuple(sorted(scored, key=lambda s: -s.score)), measure)


def _sound(audio: Path) -> Array:
    samples = read_audio(audio)
    if not samples.any():
        raise UnsupportedError(
            "the clip is silent, and all front ends are the same on it",
            file=audio,
            todo="take a clip of speech",
        )
    return samples


def _by_embedding(samples: Array, model: Path, file: Path) -> Iterator[Scored]:
    known = read_array(file)
    if known.size != max(known.shape, default=0) or not known.any():
        raise UnsupportedError(
            "the file holds no embedding",
            file=file,
            expected="[D] or [1, D], not all zero",
            found=f"{list(known.shape)}{'' if known.any() else ', zeros alone'}",
        )
    encoder = open_encoder(model, known.size)
    lengths = set()
    for candidate in CANDIDATES:
        values = candidate.features(samples, encoder.n_mels)
        lengths.add(len(values))
        if encoder.frames is not None and len(values) != encoder.frames:
            continue
        # The known embedding may come from either rule: each candidate has the better one.
        scored = [
            Scored(candidate, cosine(known, encoder.embed(values, rule)), rule)
            for rule in encoder.rules
        ]
        yield max(scored, key=lambda s: s.score)
    if encoder.frames is not None and encoder.frames not in lengths:
        raise UnsupportedError(
            "the model takes one length only, and the clip has another",
            file=model,
            expected=f"{encoder.frames} frames",
            found=" or ".join(map(str, sorted(lengths))),
        )


def _by_features(samples: Array, file: Path) -> Iterator[Scored]:
    known = read_array(file).astype(np.float64)
    while known.ndim > 2 and known.shape[0] == 1:  # a batch of one
        known = known[0]
    lengths = sorted({len(c.features(samples)) for c in (Candidate(), Candidate(snip_edges=False))})
    if known.ndim == 2 and known.shape[0] not in lengths:
        known = known.T
    if known.ndim != 2 or known.shape[0] not in lengths:
        raise UnsupportedError(
            "the features are not of this clip",
            file=file,
            expected=" or ".join(f"[{n}, n_mels]" for n in lengths),
            found=str(list(read_array(file).shape)),
            todo="features have a hop of 10 ms and a window of 25 ms here",
        )
    spread = float(np.square(known - known.mean()).sum())
    if not spread:
        raise UnsupportedError("the features are all one number", file=file)
    for candidate in CANDIDATES:
        ours = candidate.features(samples, known.shape[1])
        if len(ours) == len(known):
            score = 1.0 - float(np.square(known - ours).sum()) / spread
            yield Scored(candidate, score, None, difference(known, ours))
