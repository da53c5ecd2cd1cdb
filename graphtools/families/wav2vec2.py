"""wav2vec 2.0 with a classification head: emotion, or age and gender.

The semantics are those of ``transformers``' Wav2Vec2Model in inference. Slots are the stored names:
the checkpoint's module paths with ``wav2vec2.`` shortened to ``w2v2.``.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphtools.ops import Ops, X

__all__ = ["NAME", "TAKES", "TITLE", "Config", "forward"]

NAME = "wav2vec2"
TITLE = "wav2vec 2.0 with a head"
TAKES = "samples"

# torch's defaults, which the conv stack's norms use whatever the config says.
_CONV_NORM_EPS = 1e-5
# transformers' feature extractor: (x - mean) / sqrt(var + 1e-7).
_WAVE_EPS = 1e-7

_ENCODER = "w2v2.encoder"


@dataclass(frozen=True)
class Config:
    """What the checkpoint's config says.

    Attributes:
        head: ``emotion`` or ``age_gender``.
        group_norm: a norm on the first convolution alone, per channel over time; else every
            convolution has a layer norm over channels.
        stable: norms before each sublayer (True) or after it.
        weighted_layers: emotion: softmax-weighted sum of all hidden states.
    """

    head: str
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    group_norm: bool
    n_layers: int
    n_heads: int
    pos_kernel: int
    pos_groups: int
    stable: bool
    normalize: bool
    weighted_layers: bool
    eps: float


def forward(o: Ops[X], x: X, cfg: Config) -> X:
    """Samples [n] at 16 kHz to the head's last output."""
    x = o.standardize(x, _WAVE_EPS) if cfg.normalize else x
    x = o.stage(_conv_stack(o, o.channel(x), cfg), "feat_extract_out")
    x = o.layer_norm(x, "w2v2.feature_projection.layer_norm", cfg.eps)
    x = o.linear(x, "w2v2.feature_projection.projection")
    x = o.add(x, _positions(o, x, cfg))
    if not cfg.stable:
        x = o.layer_norm(x, f"{_ENCODER}.layer_norm", cfg.eps)
    hidden = [_hidden_stages(o, x, 0, cfg)]
    for i in range(cfg.n_layers):
        x = _layer(o, hidden[-1], f"{_ENCODER}.layers.{i}", cfg)
        hidden.append(_hidden_stages(o, x, i + 1, cfg))
    x = hidden[-1]
    if cfg.stable:  # of the last state alone, and after what is tapped as a hidden state
        x = o.layer_norm(x, f"{_ENCODER}.layer_norm", cfg.eps)
    hidden[-1] = x = o.stage(x, "enc_layer_last")
    return _emotion(o, hidden, cfg) if cfg.head == "emotion" else _age_gender(o, x)


def _conv_stack(o: Ops[X], x: X, cfg: Config) -> X:
    for i, (kernel, stride) in enumerate(zip(cfg.kernels, cfg.strides, strict=True)):
        name = f"w2v2.feature_extractor.conv_layers.{i}"
        x = o.conv(x, f"{name}.conv", kernel=(kernel,), stride=stride, pad=0)
        if not cfg.group_norm:
            x = o.layer_norm(x, f"{name}.layer_norm", _CONV_NORM_EPS)
        elif i == 0:
            x = o.instance_norm(x, f"{name}.layer_norm", _CONV_NORM_EPS)
        x = o.gelu(x)
    return x


def _positions(o: Ops[X], x: X, cfg: Config) -> X:
    """Grouped convolution, weight-normed over its kernel axis; an even kernel gives one too many
    frames, and the last is dropped."""
    x = o.conv(
        x,
        f"{_ENCODER}.pos_conv_embed.conv",
        kernel=(cfg.pos_kernel,),
        pad=cfg.pos_kernel // 2,
        groups=cfg.pos_groups,
    )
    return o.gelu(o.drop_last(x, 1) if cfg.pos_kernel % 2 == 0 else x)


def _layer(o: Ops[X], x: X, name: str, cfg: Config) -> X:
    """Norms are called after their place in the post-norm layer; pre-norm uses the same two."""
    first, second = f"{name}.layer_norm", f"{name}.final_layer_norm"
    if cfg.stable:
        x = o.add(x, _attention(o, o.layer_norm(x, first, cfg.eps), name, cfg))
        return o.add(x, _feed_forward(o, o.layer_norm(x, second, cfg.eps), name))
    x = o.layer_norm(o.add(x, _attention(o, x, name, cfg)), first, cfg.eps)
    return o.layer_norm(o.add(x, _feed_forward(o, x, name)), second, cfg.eps)


def _attention(o: Ops[X], x: X, name: str, cfg: Config) -> X:
    q, k, v = (o.linear(x, f"{name}.attention.{part}_proj") for part in "qkv")
    return o.linear(o.attention(q, k, v, cfg.n_heads), f"{name}.attention.out_proj")


def _feed_forward(o: Ops[X], x: X, name: str) -> X:
    h = o.gelu(o.linear(x, f"{name}.feed_forward.intermediate_dense"))
    return o.linear(h, f"{name}.feed_forward.output_dense")


def _hidden_stages(o: Ops[X], x: X, index: int, cfg: Config) -> X:
    """Goldens of hidden state ``index`` (0 goes into the first layer)."""
    if cfg.head == "emotion":
        if index == 1:
            x = o.stage(x, "enc_layer_0")
        if index == cfg.n_layers // 2:
            x = o.stage(x, "enc_layer_mid")
    return x


def _emotion(o: Ops[X], hidden: list[X], cfg: Config) -> X:
    x = o.weighted_sum(hidden, "layer_weights") if cfg.weighted_layers else hidden[-1]
    x = o.mean(o.linear(x, "projector"))
    return o.stage(o.softmax(o.stage(o.linear(x, "classifier"), "emotion_logits")), "emotion_probs")


def _age_gender(o: Ops[X], x: X) -> X:
    """Two heads on the mean of the last hidden state: years / 100, and class logits."""
    x = o.mean(x)
    o.stage(_head(o, x, "age"), "age_raw")
    return o.stage(o.softmax(o.stage(_head(o, x, "gender"), "gender_logits")), "gender_probs")


def _head(o: Ops[X], x: X, name: str) -> X:
    return o.linear(o.tanh(o.linear(x, f"{name}.dense")), f"{name}.out_proj")
