"""wav2vec 2.0 with a head: its stages and slots for every configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphtools.families import FAMILIES
from graphtools.families.wav2vec2 import Config

CONFIG = Config(
    head="emotion",
    kernels=(10, 3, 2),
    strides=(5, 2, 2),
    group_norm=True,
    n_layers=4,
    n_heads=2,
    pos_kernel=8,
    pos_groups=2,
    stable=False,
    normalize=True,
    weighted_layers=True,
    eps=1e-5,
)
LAYER = [
    *(f"attention.{part}_proj" for part in ("q", "k", "v", "out")),
    "layer_norm",
    "feed_forward.intermediate_dense",
    "feed_forward.output_dense",
    "final_layer_norm",
]


def slots(config: Config, *kinds: str) -> list[str]:
    return [s.slot for s in FAMILIES["wav2vec2"].template(config).slots(*kinds)]


@pytest.mark.parametrize(
    ("layers", "head", "stages"),
    [
        (4, "emotion", ["enc_layer_0", "enc_layer_mid", "enc_layer_last"]),
        (1, "emotion", ["enc_layer_mid", "enc_layer_0", "enc_layer_last"]),
        (2, "emotion", ["enc_layer_0", "enc_layer_mid", "enc_layer_last"]),
    ],
)
def test_hidden_states_of_an_emotion_head_are_tapped(
    layers: int, head: str, stages: list[str]
) -> None:
    """The first layer's output, the middle one, the last: hidden states 1, n // 2 and n."""
    template = FAMILIES["wav2vec2"].template(replace(CONFIG, n_layers=layers, head=head))
    heads = ["emotion_logits", "emotion_probs"]
    assert list(template.stages()) == ["feat_extract_out", *stages, *heads]


def test_the_middle_is_hidden_state_half_the_layers() -> None:
    template = FAMILIES["wav2vec2"].template(CONFIG)
    read = template.stage_slots()
    assert read["enc_layer_0"][-1] == "w2v2.encoder.layers.0.final_layer_norm"
    assert read["enc_layer_mid"][-1] == "w2v2.encoder.layers.1.final_layer_norm"
    assert read["enc_layer_last"][-1] == "w2v2.encoder.layers.3.final_layer_norm"


def test_stages_of_an_age_and_gender_head() -> None:
    template = FAMILIES["wav2vec2"].template(replace(CONFIG, head="age_gender"))
    assert list(template.stages()) == [
        *("feat_extract_out", "enc_layer_last"),
        *("age_raw", "gender_logits", "gender_probs"),
    ]


@pytest.mark.parametrize("stable", [False, True])
def test_every_layer_has_the_same_slots_wherever_its_norms_stand(stable: bool) -> None:
    found = slots(replace(CONFIG, stable=stable))
    for layer in range(CONFIG.n_layers):
        prefix = f"w2v2.encoder.layers.{layer}."
        own = [s.removeprefix(prefix) for s in found if s.startswith(prefix)]
        assert sorted(own) == sorted(LAYER)
        assert own == LAYER or stable
    assert found.count("w2v2.encoder.layer_norm") == 1


@pytest.mark.parametrize(("group_norm", "norms"), [(True, [0]), (False, [0, 1, 2])])
def test_norms_of_the_convolutions(group_norm: bool, norms: list[int]) -> None:
    config = replace(CONFIG, group_norm=group_norm)
    stack = "w2v2.feature_extractor.conv_layers"
    kind = "instance_norm" if group_norm else "layer_norm"
    found = [s for s in slots(config, kind) if s.startswith(stack)]
    assert found == [f"{stack}.{i}.layer_norm" for i in norms]
    convs = [s for s in slots(config, "conv") if s.startswith(stack)]
    assert convs == [f"{stack}.{i}.conv" for i in range(3)]


@pytest.mark.parametrize("weighted", [True, False])
def test_weights_of_layers_are_a_slot_where_the_config_says_so(weighted: bool) -> None:
    found = slots(replace(CONFIG, weighted_layers=weighted), "weighted_sum")
    assert found == (["layer_weights"] if weighted else [])


@pytest.mark.parametrize(("kernel", "drops"), [(8, 1), (7, 0)])
def test_an_even_positional_kernel_gives_one_frame_too_many(kernel: int, drops: int) -> None:
    template = FAMILIES["wav2vec2"].template(replace(CONFIG, pos_kernel=kernel))
    assert sum(step.kind == "drop_last" for step in template.steps) == drops
    (conv,) = [s for s in template.slots("conv") if "pos_conv_embed" in s.slot]
    assert (conv.kernel, conv.pad, conv.groups) == ((kernel,), (kernel // 2,), 2)


def test_samples_are_normalized_only_where_the_config_says_so() -> None:
    for normalize in (True, False):
        steps = FAMILIES["wav2vec2"].template(replace(CONFIG, normalize=normalize)).steps
        assert [s.kind for s in steps if s.kind == "standardize"] == ["standardize"] * normalize
