"""wav2vec 2.0 with a head: the GGUF alone computes what transformers' classes compute."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.convert import convert

Make = Callable[..., Any]

EMOTION = [
    "feat_extract_out",
    "enc_layer_0",
    "enc_layer_mid",
    "enc_layer_last",
    "emotion_logits",
    "emotion_probs",
]
AGE_GENDER = ["feat_extract_out", "enc_layer_last", "age_raw", "gender_logits", "gender_probs"]

# Samples; neither is a multiple of the hop, and the second is not half of the first.
LENGTHS = [9001, 5333]


def short(value: object) -> str:
    return str(value).lower()


# Norm of the conv stack, its bias, pre-norm layers, heads, weighted sum over all hidden states.
SPACE = [
    pytest.param(*case, id="-".join(map(short, case)))
    for case in itertools.product(
        ("group", "layer"), (False, True), (False, True), (2, 6), (False, True)
    )
    if not (case[2] and case[4])  # refused: it has no one meaning
]


@pytest.mark.parametrize(("norm", "bias", "stable", "heads", "weighted"), SPACE)
@pytest.mark.parametrize("samples", LENGTHS)
def test_every_stage_of_emotion_is_the_librarys(
    norm: str,
    bias: bool,
    stable: bool,
    heads: int,
    weighted: bool,
    samples: int,
    made: Any,
    clip: Make,
    gguf_of: Make,
    replayed: Make,
    by_library: Make,
    assert_same: Make,
) -> None:
    network = made.wav2vec2(
        "emotion",
        feat_extract_norm=norm,
        conv_bias=bias,
        do_stable_layer_norm=stable,
        num_attention_heads=heads,
        use_weighted_layer_sum=weighted,
        num_hidden_layers=3,
    )
    ours = replayed(gguf_of(network.folder), clip(samples))
    assert_same(ours, by_library(network, clip(samples)))
    assert sorted(ours) == sorted(EMOTION)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("norm", ["group", "layer"])
@pytest.mark.parametrize("samples", LENGTHS)
def test_every_stage_of_age_and_gender_is_the_librarys(
    norm: str,
    stable: bool,
    samples: int,
    made: Any,
    clip: Make,
    gguf_of: Make,
    replayed: Make,
    by_library: Make,
    assert_same: Make,
) -> None:
    network = made.wav2vec2(
        "age_gender", feat_extract_norm=norm, conv_bias=stable, do_stable_layer_norm=stable
    )
    ours = replayed(gguf_of(network.folder), clip(samples))
    assert_same(ours, by_library(network, clip(samples)))
    assert list(ours) == AGE_GENDER


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_conv_pos_embeddings": 2, "num_conv_pos_embedding_groups": 1},
        {"num_conv_pos_embeddings": 128, "num_conv_pos_embedding_groups": 16},
        {"num_conv_pos_embeddings": 10, "num_conv_pos_embedding_groups": 48},
        {"conv_dim": [24, 16, 8, 40], "conv_kernel": [10, 3, 3, 2], "conv_stride": [5, 2, 2, 2]},
        {"conv_dim": [32], "conv_kernel": [400], "conv_stride": [320]},
        {"layer_norm_eps": 0.1},
        {"num_attention_heads": 1},
        {"num_attention_heads": 48, "intermediate_size": 7},
        {"classifier_proj_size": 3, "id2label": {"0": "a", "1": "b"}},
    ],
    ids=lambda sizes: "-".join(f"{k}-{v}" for k, v in sizes.items()),
)
def test_every_size_is_the_librarys(
    sizes: dict[str, Any],
    made: Any,
    clip: Make,
    gguf_of: Make,
    replayed: Make,
    by_library: Make,
    assert_same: Make,
) -> None:
    if "id2label" in sizes:
        sizes |= {"label2id": {"a": 0, "b": 1}}
    network = made.wav2vec2("emotion", **sizes)
    samples = clip(LENGTHS[0])
    assert_same(replayed(gguf_of(network.folder), samples), by_library(network, samples))


class TestHiddenStates:
    @pytest.mark.parametrize("layers", [1, 2, 3, 4, 5])
    @pytest.mark.parametrize("stable", [False, True])
    def test_the_tapped_ones_are_the_first_the_middle_and_the_last(
        self,
        layers: int,
        stable: bool,
        made: Any,
        clip: Make,
        gguf_of: Make,
        replayed: Make,
        by_library: Make,
        assert_same: Make,
    ) -> None:
        """hidden_states[1], [n // 2] (of one layer: what goes into it) and [n]."""
        network = made.wav2vec2(
            "emotion",
            num_hidden_layers=layers,
            do_stable_layer_norm=stable,
            use_weighted_layer_sum=not stable,
        )
        samples = clip(LENGTHS[1])
        goldens = by_library(network, samples)
        assert_same(replayed(gguf_of(network.folder), samples), goldens)

    def test_neighbours_of_the_middle_are_far_from_it(
        self, made: Any, clip: Make, by_library: Make
    ) -> None:
        """Else an index that is off by one would pass."""
        import torch

        network = made.wav2vec2("emotion")
        goldens = by_library(network, clip(LENGTHS[1]))
        with torch.no_grad():
            wave = torch.from_numpy(np.array(clip(LENGTHS[1])))
            wave = (wave - wave.mean()) / torch.sqrt(wave.var(correction=0) + 1e-7)
            states = network.module.wav2vec2(wave[None], output_hidden_states=True).hidden_states
        apart = [float(np.abs(s[0].T.numpy() - goldens["enc_layer_mid"]).max()) for s in states]
        assert apart[2] < 1e-4
        assert min(apart[:2] + apart[3:]) > 0.5


class TestForms:
    """The same weights in every form that such models are published in."""

    @pytest.mark.parametrize("old", [False, True], ids=["parametrizations", "weight_g"])
    @pytest.mark.parametrize("torch_bin", [False, True], ids=["safetensors", "bin"])
    @pytest.mark.parametrize("shards", [1, 3])
    @pytest.mark.parametrize("head", ["emotion", "age_gender"])
    def test_all_become_the_same_tensors_and_keys(
        self,
        old: bool,
        torch_bin: bool,
        shards: int,
        head: str,
        made: Any,
        gguf_of: Make,
        raw: Make,
    ) -> None:
        form = {"old_weight_norm": old, "torch_bin": torch_bin, "shards": shards}
        found = raw(gguf_of(made.wav2vec2(head, form).folder))
        plain = raw(gguf_of(made.wav2vec2(head).folder))
        assert found.types == plain.types
        assert found.values == plain.values
        assert set(found.tensors) == set(plain.tensors)
        for name, values in plain.tensors.items():
            np.testing.assert_array_equal(found.tensors[name], values, err_msg=name)

    def test_the_file_of_a_folder_may_be_named_itself(
        self, made: Any, gguf_of: Make, invoke: Make, tmp_path: Path
    ) -> None:
        folder = made.wav2vec2("emotion").folder
        invoke(
            "convert", "--model", folder / "model.safetensors", "--output", "x.gguf",
            "--verify", "none", code=0,
        )  # fmt: skip
        whole = gguf_of(folder).read_bytes()
        written = (tmp_path / "x.gguf").read_bytes()
        assert len(written) > 0.99 * len(whole)
        assert written[-100_000:] == whole[-100_000:]

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
    def test_other_floats_are_widened_before_anything_is_computed(
        self, dtype: str, made: Any, clip: Make, gguf_of: Make, raw: Make
    ) -> None:
        import torch

        network = made.wav2vec2("emotion", {"dtype": getattr(torch, dtype)})
        found = raw(gguf_of(network.folder))
        assert set(found.kinds.values()) == {"F32"}
        for name, value in network.module.state_dict().items():
            stored = name.replace("wav2vec2.", "w2v2.")
            for new, old in (("original0", "weight_g"), ("original1", "weight_v")):
                stored = stored.replace(f"parametrizations.weight.{new}", old)
            exact = value.to(getattr(torch, dtype)).to(torch.float32).numpy()
            np.testing.assert_array_equal(found.tensors[stored], exact, err_msg=name)

    def test_the_same_checkpoint_gives_the_same_bytes(self, made: Any, tmp_path: Path) -> None:
        folder = made.wav2vec2("emotion").folder
        for name in ("a.gguf", "b.gguf"):
            convert(folder, tmp_path / name, name="model")
        assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
        proofs = [(tmp_path / f"{n}.gguf.proof.json").read_bytes() for n in "ab"]
        assert proofs[0] == proofs[1]


class TestWaveform:
    def test_is_standardised_when_the_checkpoint_says_so(
        self, made: Any, gguf_of: Make, replayed: Make, clip: Make
    ) -> None:
        """Then a louder clip with an offset is the same clip.

        Of layer norms, that is: a group norm after the first convolution takes both out itself.
        """
        samples = clip(LENGTHS[1]).astype(np.float64)
        outputs = {}
        for normalize in (True, False):
            save = {"do_normalize": normalize}
            network = made.wav2vec2("emotion", save, feat_extract_norm="layer", conv_bias=True)
            gguf = gguf_of(network.folder)
            outputs[normalize] = [
                replayed(gguf, x)["emotion_logits"] for x in (samples, 3.0 * samples + 0.5)
            ]
        # Not exact: the epsilon 1e-7 beside the clip's variance of some 1e-3.
        assert np.abs(outputs[True][0] - outputs[True][1]).max() < 5e-3
        assert np.abs(outputs[False][0] - outputs[False][1]).max() > 0.1

    @pytest.mark.parametrize("normalize", [True, False])
    @pytest.mark.parametrize("level", [1.0, 1e-3])
    def test_is_taken_as_the_librarys_feature_extractor_takes_it(
        self,
        normalize: bool,
        level: float,
        made: Any,
        gguf_of: Make,
        replayed: Make,
        by_library: Make,
        assert_same: Make,
        clip: Make,
    ) -> None:
        """A faint clip shows the epsilon under the root."""
        network = made.wav2vec2("emotion", {"do_normalize": normalize})
        samples = (level * clip(LENGTHS[1])).astype(np.float32)
        assert_same(replayed(gguf_of(network.folder), samples), by_library(network, samples))

    def test_of_silence_gives_numbers(self, made: Any, gguf_of: Make, replayed: Make) -> None:
        found = replayed(gguf_of(made.wav2vec2("emotion").folder), np.zeros(5000))
        assert all(np.isfinite(x).all() for x in found.values())

    def test_that_is_too_short_for_the_convolutions_is_refused(
        self, made: Any, gguf_of: Make, invoke: Make, tmp_path: Path
    ) -> None:
        np.save(tmp_path / "x.npy", np.ones(9, np.float32))
        gguf = gguf_of(made.wav2vec2("emotion").folder)
        ran = invoke("replay", gguf, "--input", tmp_path / "x.npy", code=3)
        assert "conv_layers.0" in ran.err

    def test_with_two_axes_is_refused(
        self, made: Any, gguf_of: Make, invoke: Make, tmp_path: Path
    ) -> None:
        np.save(tmp_path / "x.npy", np.ones((50, 80), np.float32))
        gguf = gguf_of(made.wav2vec2("emotion").folder)
        ran = invoke("replay", gguf, "--input", tmp_path / "x.npy", code=3)
        assert "[samples]" in ran.err


@pytest.mark.slow
def test_the_base_size_is_proven_now(made: Any, tmp_path: Path) -> None:
    from transformers import Wav2Vec2Config

    base = Wav2Vec2Config().to_dict()
    sizes = {
        k: base[k]
        for k in (
            *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
            *("conv_dim", "conv_kernel", "conv_stride", "num_feat_extract_layers"),
            *("num_conv_pos_embeddings", "num_conv_pos_embedding_groups", "classifier_proj_size"),
        )
    }
    network = made.wav2vec2("emotion", **sizes)
    # 94,371,712 of the backbone, 197,905 of the head.
    assert sum(p.numel() for p in network.module.parameters()) == 94_569_617
    done = convert(network.folder, tmp_path / "x.gguf")
    assert done.proof is not None
    assert done.proof.level == "full"
    assert sorted(done.proof.stages) == sorted(EMOTION)
    assert min(d.cosine for d in done.proof.stages.values()) > 0.999999
    assert max(d.max_abs for d in done.proof.stages.values()) < 1e-3
