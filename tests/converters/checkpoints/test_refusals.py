"""What lies outside the space that the forwards are proven on is refused, and says why."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from converters.archs.wav2vec2 import stored_name
from converters.checkpoint import describe_checkpoint
from converters.emit import emit
from converters.replay import Replay, replay
from converters.sources.source import Source
from fixtures import catalog
from graphtools.errors import UnsupportedError

Make = Callable[..., Any]
State = dict[str, Any]

POS = "wav2vec2.encoder.pos_conv_embed.conv"
G = f"{POS}.parametrizations.weight.original0"
V = f"{POS}.parametrizations.weight.original1"


@pytest.fixture
def refused(invoke: Make, tmp_path: Path) -> Make:
    """Convert a folder: exit 3 (or ``code``), ``message`` on screen and no file."""

    def check(folder: Path, message: str, *more: str, code: int = 3) -> str:
        output = tmp_path / "refused.gguf"
        ran = invoke("convert", "--model", folder, "--output", output, *more, code=code)
        err: str = ran.err
        assert err.startswith("error: ")
        assert message in err
        assert not output.exists()
        return err

    return check


class TestConfig:
    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("hidden_act", "gelu_new", "config.json: hidden_act"),
            ("hidden_act", "relu", "'relu'"),
            ("feat_extract_activation", "swish", "config.json: feat_extract_activation"),
            ("feat_extract_norm", "batch", "'group' or 'layer'"),
            ("model_type", "wavlm", "config.json: model_type"),
            ("model_type", ..., "config.json: model_type"),
            ("add_adapter", True, "config.json: add_adapter"),
            ("adapter_attn_dim", 16, "config.json: adapter_attn_dim"),
        ],
    )
    def test_outside_the_space(
        self, key: str, value: Any, message: str, made: Any, reconfigured: Make, refused: Make
    ) -> None:
        folder = reconfigured(made.wav2vec2("emotion"), **{key: value})
        err = refused(folder, "the configuration lies outside what the forward was proven on")
        assert message in err
        assert "expected: " in err

    def test_an_odd_positional_kernel(self, made: Any, refused: Make) -> None:
        network = made.wav2vec2("emotion", num_conv_pos_embeddings=15)
        err = refused(network.folder, "outside what the forward was proven on")
        assert "an even positional kernel" in err
        assert "kernel 15" in err

    def test_heads_that_do_not_divide_the_width(
        self, made: Any, reconfigured: Make, refused: Make
    ) -> None:
        folder = reconfigured(made.wav2vec2("emotion"), num_attention_heads=7)
        assert "a width that the heads divide" in refused(folder, "outside")

    def test_a_weighted_sum_over_a_pre_norm_encoder(self, made: Any, refused: Make) -> None:
        network = made.wav2vec2("emotion", do_stable_layer_norm=True)
        err = refused(network.folder, "a weighted layer sum over a pre-norm encoder")
        assert "transformers 4 sums the last state after its norm, 5 before it" in err

    REQUIRED = (
        *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
        *("conv_dim", "conv_kernel", "conv_stride", "conv_bias", "feat_extract_norm"),
        *("feat_extract_activation", "hidden_act", "do_stable_layer_norm", "layer_norm_eps"),
        *("num_conv_pos_embeddings", "num_conv_pos_embedding_groups"),
        *("use_weighted_layer_sum", "classifier_proj_size"),
    )

    @pytest.mark.parametrize("key", REQUIRED)
    def test_a_missing_key_is_named_and_nothing_is_guessed(
        self, key: str, made: Any, reconfigured: Make, refused: Make
    ) -> None:
        folder = reconfigured(made.wav2vec2("emotion"), **{key: ...})
        err = refused(folder, f"config.json does not say {key!r}")
        assert "no such key" in err

    @pytest.mark.parametrize("key", REQUIRED)
    def test_a_value_of_another_type_is_refused(
        self, key: str, made: Any, reconfigured: Make, refused: Make
    ) -> None:
        folder = reconfigured(made.wav2vec2("emotion"), **{key: {"of": "another type"}})
        refused(folder, f"config.json does not say {key!r}")

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("hidden_size", 47),
            ("num_hidden_layers", 3),
            ("num_hidden_layers", 5),
            ("intermediate_size", 95),
            ("conv_dim", [16, 16, 25]),
            ("conv_dim", [16, 16]),
            ("conv_kernel", [10, 8, 3]),
            ("conv_kernel", [10, 8, 4, 1]),
            ("conv_stride", [5, 4]),
            ("conv_bias", True),
            ("feat_extract_norm", "layer"),
            ("num_conv_pos_embeddings", 18),
            ("num_conv_pos_embedding_groups", 2),
            ("classifier_proj_size", 21),
        ],
    )
    def test_a_value_that_contradicts_the_tensors_is_refused(
        self, key: str, value: Any, made: Any, reconfigured: Make, refused: Make
    ) -> None:
        folder = reconfigured(made.wav2vec2("emotion"), **{key: value})
        refused(folder, "error: ")

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("num_attention_heads", 0),
            ("num_attention_heads", -4),
            ("num_conv_pos_embeddings", 0),
            ("num_conv_pos_embedding_groups", 0),
            ("num_hidden_layers", 0),
            ("hidden_size", 0),
            ("conv_dim", []),
            ("conv_dim", [16, 16, 24.0]),
            ("conv_stride", [0, 4, 4]),
            ("conv_stride", [5, 4, 2**40]),
            ("layer_norm_eps", -1.0),
            ("layer_norm_eps", 1e60),
            ("num_feat_extract_layers", 7),
        ],
    )
    def test_a_value_that_means_nothing_is_refused(
        self, key: str, value: Any, made: Any, reconfigured: Make, refused: Make
    ) -> None:
        folder = reconfigured(made.wav2vec2("emotion"), **{key: value})
        refused(folder, "error: ")

    @pytest.mark.parametrize("eps", [0, 1])
    def test_an_epsilon_without_a_decimal_point_is_converted_or_refused(
        self, eps: int, made: Any, reconfigured: Make, invoke: Make
    ) -> None:
        """JSON knows one kind of number, the library's configuration two."""
        folder = reconfigured(made.wav2vec2("emotion"), layer_norm_eps=eps)
        ran = invoke("convert", "--model", folder, "--output", "x.gguf")
        assert ran.code in (0, 3), ran.err

    def test_none_at_all(self, made: Any, copied: Make, refused: Make) -> None:
        folder = copied(made.wav2vec2("emotion"))
        (folder / "config.json").unlink()
        refused(folder, "the folder has no config.json", code=2)

    @pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", "\x00\x01", "[" * 100_000])
    def test_that_is_not_an_object(self, text: str, made: Any, copied: Make, refused: Make) -> None:
        folder = copied(made.wav2vec2("emotion"))
        (folder / "config.json").write_text(text)
        assert "config.json" in refused(folder, "JSON")


class TestLabels:
    @pytest.mark.parametrize(
        "labels",
        [
            ...,
            {},
            ["neu", "hap", "ang", "sad"],
            {"0": "neu", "1": "hap", "2": "ang"},
            {"0": "neu", "1": "hap", "2": "ang", "3": "sad", "4": "x"},
            {"1": "neu", "2": "hap", "3": "ang", "4": "sad"},
            {"0": "neu", "1": "hap", "2": "ang", "4": "sad"},
            {"neu": 0, "hap": 1, "ang": 2, "sad": 3},
        ],
    )
    def test_that_do_not_fit_the_classifier(
        self, labels: Any, made: Any, reconfigured: Make, refused: Make
    ) -> None:
        folder = reconfigured(made.wav2vec2("emotion"), id2label=labels)
        err = refused(folder, "the labels do not fit the classifier")
        assert "expected: 4 labels in config.json's id2label" in err

    def test_two_genders_are_not_three(self, made: Any, reweighted: Make, refused: Make) -> None:
        """Two labels for two classes: they fit each other, and not the engine's head."""

        def cut(state: State) -> None:
            for role in ("weight", "bias"):
                name = f"gender.out_proj.{role}"
                state[name] = state[name][:2].contiguous()

        folder = reweighted(made.wav2vec2("age_gender"), cut)
        config = json.loads((folder / "config.json").read_text())
        config["id2label"] = {"0": "female", "1": "male"}
        (folder / "config.json").write_text(json.dumps(config))
        err = refused(folder, "the heads are not those of age and gender")
        assert "1 age and 3 genders" in err

    def test_two_ages_are_not_one(self, made: Any, reweighted: Make, refused: Make) -> None:
        def double(state: State) -> None:
            for role in ("weight", "bias"):
                name = f"age.out_proj.{role}"
                state[name] = torch.cat([state[name], state[name]])

        folder = reweighted(made.wav2vec2("age_gender"), double)
        refused(folder, "the heads are not those of age and gender")


class TestNormalize:
    """Nothing in the weights says whether the waveform is standardised."""

    @pytest.mark.parametrize("command", ["convert", "baseline"])
    @pytest.mark.parametrize("content", [None, "{}", '{"do_normalize": "yes"}'])
    def test_is_asked_for_where_no_file_says_it(
        self, command: str, content: str | None, made: Any, copied: Make, invoke: Make
    ) -> None:
        folder = copied(made.wav2vec2("emotion", {"do_normalize": None}))
        if content is not None:
            (folder / "preprocessor_config.json").write_text(content)
        audio = ("--audio", "x.wav") if command == "baseline" else ()
        _speech_at("x.wav", folder.parent)
        ran = invoke(command, "--model", folder, "--output", "x.gguf", *audio, code=2)
        assert "preprocessor_config.json" in ran.err
        assert "--do-normalize or --no-do-normalize" in ran.err

    @pytest.mark.parametrize("normalize", [True, False])
    def test_is_taken_from_the_user(
        self, normalize: bool, made: Any, invoke: Make, raw: Make, tmp_path: Path
    ) -> None:
        folder = made.wav2vec2("emotion", {"do_normalize": None}).folder
        flag = "--do-normalize" if normalize else "--no-do-normalize"
        _speech_at("x.wav", tmp_path)
        invoke("convert", "--model", folder, "--output", "x.gguf", flag, code=0)
        assert raw(tmp_path / "x.gguf").values["voicedetect.w2v2.do_normalize"] is normalize
        audio = ("--audio", "x.wav", "--output", "b.gguf")
        invoke("baseline", "--model", folder, *audio, flag, code=0)
        stages = raw(tmp_path / "b.gguf").tensors
        ran = invoke("replay", "x.gguf", "--audio", "x.wav", "--json", code=0)
        assert ran.json["emotion_logits"] == pytest.approx(stages["emotion_logits"], abs=1e-4)

    @pytest.mark.parametrize("normalize", [True, False])
    def test_is_taken_from_the_file(
        self, normalize: bool, made: Any, gguf_of: Make, raw: Make
    ) -> None:
        network = made.wav2vec2("emotion", {"do_normalize": normalize})
        found = raw(gguf_of(network.folder)).values
        assert found["voicedetect.w2v2.do_normalize"] is normalize


def _speech_at(name: str, folder: Path) -> None:
    (folder / name).write_bytes(catalog.SPEECH.read_bytes())


class TestWeightNorm:
    @pytest.mark.parametrize("old", [False, True], ids=["parametrizations", "weight_g"])
    @pytest.mark.parametrize("half", ["weight_g", "weight_v"])
    def test_half_a_pair(
        self, old: bool, half: str, made: Any, reweighted: Make, refused: Make
    ) -> None:
        def drop(state: State) -> None:
            for name in list(state):
                if name.startswith(POS) and not name.endswith("bias"):
                    kept = "0" if half == "weight_g" else "1"
                    if not name.endswith((half, f"original{kept}")):
                        del state[name]

        network = made.wav2vec2("emotion", {"old_weight_norm": old})
        err = refused(reweighted(network, drop), "weight-norm pair is not whole")
        assert f"found: {half}" in err

    def test_neither(self, made: Any, reweighted: Make, refused: Make) -> None:
        def drop(state: State) -> None:
            del state[G], state[V]

        err = refused(reweighted(made.wav2vec2("emotion"), drop), "pair is not whole")
        assert "found: neither" in err

    def test_fused(self, made: Any, reweighted: Make, refused: Make) -> None:
        def fuse(state: State) -> None:
            g, v = state.pop(G), state.pop(V)
            state[f"{POS}.weight"] = g * v / v.norm(dim=(0, 1), keepdim=True)

        err = refused(reweighted(made.wav2vec2("emotion"), fuse), "weight norm is fused already")
        assert "weight_g and weight_v" in err

    def test_over_another_axis(self, made: Any, reweighted: Make, refused: Make) -> None:
        def turn(state: State) -> None:
            state[G] = torch.ones(48, 1, 1)

        err = refused(reweighted(made.wav2vec2("emotion"), turn), "keeps another axis")
        assert "[48, 1, 1]" in err


class TestTensors:
    @pytest.mark.parametrize("arch", ["ecapa_tdnn", "wav2vec2_emotion", "wav2vec2_age_gender"])
    def test_every_missing_one_is_refused_before_anything_is_computed(
        self, arch: str, made: Any
    ) -> None:
        """One at a time. The library's classes have no layer without its bias, so one that is
        not there was lost; where the library is not installed nothing else would notice."""
        source = made.named(arch).described().source
        unused = ("masked_spec_embed", "num_batches_tracked", "mean_var_norm_emb")
        wrong = {}
        for name in source.tensors:
            if any(part in name for part in unused):
                continue
            rest = {n: t for n, t in source.tensors.items() if n != name}
            try:
                describe_checkpoint(Source(source.path, source.files, rest), "model", arch=arch)
            except UnsupportedError as error:
                said = (stored_name(name).rpartition(".")[0], stored_name(name), arch)
                if not any(text in str(error) for text in said):
                    wrong[name] = f"refused for {error}"
            except Exception as error:
                wrong[name] = repr(error)
            else:
                wrong[name] = "accepted"
        assert wrong == {}

    @pytest.mark.parametrize("name", ["fc.conv.weight", "asp_bn.norm.running_var"])
    def test_one_that_ecapa_lacks(
        self, name: str, made: Any, reweighted: Make, refused: Make
    ) -> None:
        def drop(state: State) -> None:
            del state[name]

        refused(reweighted(made.ecapa(), drop), "error: the checkpoint")

    def test_a_bias_that_the_library_has_and_the_checkpoint_lacks(
        self, made: Any, reweighted: Make, refused: Make
    ) -> None:
        """The class of the library has it, so this is not the whole checkpoint."""

        def drop(state: State) -> None:
            del state["wav2vec2.encoder.layers.1.attention.v_proj.bias"]

        err = refused(reweighted(made.wav2vec2("emotion"), drop), "no tensor")
        assert "v_proj.bias" in err

    @pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
    def test_of_eight_bits_are_named(
        self, dtype: Any, made: Any, reweighted: Make, refused: Make
    ) -> None:
        def narrow(state: State) -> None:
            state["projector.weight"] = state["projector.weight"].to(dtype)

        err = refused(reweighted(made.wav2vec2("emotion"), narrow), "'projector.weight'")
        assert "convert the float export" in err

    def test_of_eight_bits_in_a_torch_file_are_named(
        self, made: Any, reweighted: Make, refused: Make
    ) -> None:
        def narrow(state: State) -> None:
            state["fc.conv.weight"] = state["fc.conv.weight"].to(torch.float8_e4m3fn)

        refused(reweighted(made.ecapa(), narrow), "'fc.conv.weight'")

    def test_a_complex_one_is_named(self, made: Any, reweighted: Make, refused: Make) -> None:
        def turn(state: State) -> None:
            state["fc.conv.weight"] = state["fc.conv.weight"].to(torch.complex64)

        refused(reweighted(made.ecapa(), turn), "'fc.conv.weight'")

    def test_an_integer_one_that_the_forward_needs_is_named(
        self, made: Any, reweighted: Make, refused: Make
    ) -> None:
        def quantise(state: State) -> None:
            state["classifier.weight"] = (100 * state["classifier.weight"]).to(torch.int8)

        refused(reweighted(made.wav2vec2("emotion"), quantise), "'classifier.weight'")

    @pytest.mark.parametrize(
        ("name", "shape"),
        [
            ("classifier.weight", ()),
            ("wav2vec2.feature_projection.projection.weight", (5,)),
            ("wav2vec2.encoder.layer_norm.weight", (7,)),
            ("wav2vec2.encoder.layers.0.attention.q_proj.weight", (48, 40)),
            ("wav2vec2.encoder.layers.0.attention.q_proj.weight", (44, 48)),
            ("wav2vec2.encoder.layers.0.feed_forward.intermediate_dense.weight", ()),
            ("wav2vec2.feature_extractor.conv_layers.1.conv.weight", (16, 16)),
            (G, (1, 1, 15)),
            (G, ()),
            (V, (48, 12)),
            ("layer_weights", (4,)),
            ("layer_weights", (5, 1)),
            ("projector.weight", (20, 1, 48)),
        ],
    )
    def test_of_another_shape_are_refused(
        self, name: str, shape: tuple[int, ...], made: Any, reweighted: Make, refused: Make
    ) -> None:
        def reshape(state: State) -> None:
            state[name] = torch.ones(shape)

        refused(reweighted(made.wav2vec2("emotion"), reshape), "error: ")

    @pytest.mark.parametrize(
        ("name", "shape"),
        [
            ("blocks.0.conv.conv.weight", (32, 80)),
            ("blocks.0.conv.conv.weight", (32, 40, 5)),
            ("blocks.1.se_block.conv1.conv.weight", ()),
            ("blocks.1.tdnn1.conv.conv.weight", (32, 32, 3)),
            ("blocks.2.res2net_block.blocks.1.conv.conv.weight", (8, 8, 5)),
            ("asp_bn.norm.running_mean", (191,)),
            ("fc.conv.weight", (24, 192)),
            ("fc.conv.bias", (23,)),
        ],
    )
    def test_of_another_shape_in_ecapa_are_refused(
        self, name: str, shape: tuple[int, ...], made: Any, reweighted: Make, refused: Make
    ) -> None:
        def reshape(state: State) -> None:
            state[name] = torch.ones(shape)

        refused(reweighted(made.ecapa(), reshape), "error: ")


class TestFile:
    """A GGUF that lost something: what `replay` reads is no more trusted than a checkpoint."""

    @pytest.mark.parametrize("arch", ["ecapa_tdnn", "wav2vec2_emotion", "wav2vec2_age_gender"])
    def test_without_a_key_or_a_tensor_is_understood_or_refused(self, arch: str, made: Any) -> None:
        manifest = made.named(arch).described().manifest
        fewer = [
            *(replace(manifest, entries=_without(manifest.entries, e)) for e in manifest.entries),
            *(replace(manifest, tensors=_without(manifest.tensors, t)) for t in manifest.tensors),
        ]
        refused = 0
        for damaged in fewer:
            with contextlib.suppress(UnsupportedError):
                Replay.of(damaged)
                continue
            refused += 1
        assert refused > len(manifest.tensors) - 5

    def test_names_itself(self, made: Any, tmp_path: Path) -> None:
        manifest = made.wav2vec2("emotion").described().manifest
        path = tmp_path / "x.gguf"
        rest = _without(manifest.tensors, manifest.by_name["classifier.weight"])
        with emit(replace(manifest, tensors=rest), path):
            pass
        with pytest.raises(UnsupportedError, match=r"no tensor 'classifier\.weight'") as caught:
            replay(path, np.zeros(5000))
        assert caught.value.file == str(path)


def _without(items: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
    return tuple(other for other in items if other is not item)


class TestEcapa:
    def test_an_even_kernel(self, made: Any, refused: Make) -> None:
        network = made.ecapa(channels=(32, 32, 32, 96), kernels=(4, 3, 3, 1))
        err = refused(network.folder, "outside what the forward was proven on")
        assert "odd kernels" in err
        assert "(4, 3, 3, 1)" in err

    @pytest.mark.parametrize("blocks", [1, 5])
    def test_too_few_or_too_many_blocks(self, blocks: int, made: Any, refused: Make) -> None:
        widths = (16,) * (blocks + 1)
        network = made.ecapa(channels=(*widths, 48), kernels=(5, *([3] * blocks), 1))
        err = refused(network.folder, "outside what the forward was proven on")
        assert f"{blocks} blocks" in err

    @pytest.mark.parametrize("scale", [1, 9])
    def test_a_scale_outside(self, scale: int, made: Any, refused: Make) -> None:
        widths = (18, 18, 18, 54)
        network = made.ecapa(channels=widths, kernels=(5, 3, 3, 1), scale=scale)
        err = refused(network.folder, "error: ")
        assert "scale" in err or "res2net" in err

    def test_pooling_without_global_context(self, made: Any, refused: Make) -> None:
        network = made.ecapa(global_context=False)
        err = refused(network.folder, "the attentive pooling has no global context")
        assert "288 input channels" in err

    def test_another_number_of_mel_bins(self, made: Any, refused: Make) -> None:
        network = made.ecapa(input_size=40)
        assert "found: 40" in refused(network.folder, "another number of mel bins")

    def test_grouped_convolutions(self, made: Any, refused: Make) -> None:
        network = made.ecapa(groups=[1, 2, 1, 1, 1])
        refused(network.folder, "error: ")

    def test_one_key_that_stands_for_blocks_that_differ(
        self, made: Any, reweighted: Make, refused: Make
    ) -> None:
        """se_channels is one number: blocks with other bottlenecks cannot be said."""

        def narrow(state: State) -> None:
            se = "blocks.2.se_block"
            for role in ("weight", "bias"):
                state[f"{se}.conv1.conv.{role}"] = state[f"{se}.conv1.conv.{role}"][:6]
            state[f"{se}.conv2.conv.weight"] = state[f"{se}.conv2.conv.weight"][:, :6]

        refused(reweighted(made.ecapa(), narrow), "error: ")


HYPERPARAMS = """\
n_mels: 80
embedding_model: !new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN
    input_size: !ref <n_mels>
    channels: [32, 32, 32, 32, 96]
    kernel_sizes: [5, 3, 3, 3, 1]
    {lines}
    attention_channels: 16
    lin_neurons: 24
"""
DILATED = "dilations: [1, 3, 3, 3, 1]"


class TestHyperparams:
    """What shows in no tensor; the file is read as text, because loading it would run code."""

    def with_lines(self, folder: Path, *lines: str) -> Path:
        text = HYPERPARAMS.replace("{lines}", "\n    ".join(lines))
        (folder / "hyperparams.yaml").write_text(text)
        return folder

    @pytest.mark.parametrize(
        "lines",
        [
            ("dilations: [1, 2, 3, 4, 1]",),
            ("dilations: [1,2,3,4,1]  # as published",),
            ("dilations: [1, 2,", "            3, 4, 1]"),
            ("dilations: [1, 2, 3, 4, 1]", "activation: !name:torch.nn.ReLU"),
            ("dilations: [1, 2, 3, 4, 1]", "# activation: !name:torch.nn.LeakyReLU"),
        ],
    )
    def test_that_say_what_the_engine_does_are_accepted(
        self, lines: tuple[str, ...], made: Any, copied: Make, invoke: Make
    ) -> None:
        folder = self.with_lines(copied(made.ecapa()), *lines)
        invoke("convert", "--model", folder, "--output", "x.gguf", code=0)

    @pytest.mark.parametrize(
        "lines",
        [
            (DILATED,),
            ("dilations: [1, 2, 3, 4]",),
            ("dilations: [1, 3,", "            3, 3, 1]"),
            ("dilations:", "    - 1", "    - 3", "    - 3", "    - 3", "    - 1"),
            ("dilations:", "- 1", "- 3", "- 3", "- 3", "- 1"),
            ('"dilations": [1, 3, 3, 3, 1]',),
            ("activation: !name:torch.nn.LeakyReLU",),
            ("dilations: [1, 2, 3, 4, 1]", "activation: !name:torch.nn.LeakyReLU"),
            ("dilations: [1, 2, 3, 4, 1]", "activation: !name:torch.nn.SiLU {}"),
            ("dilations: [1, 2, 3, 4, 1]", "activation:", "    !name:torch.nn.LeakyReLU"),
        ],
    )
    def test_that_say_something_else_are_refused(
        self, lines: tuple[str, ...], made: Any, copied: Make, refused: Make
    ) -> None:
        folder = self.with_lines(copied(made.ecapa()), *lines)
        err = refused(folder, "hyperparams.yaml")
        assert "expected: dilations [1, 2, 3, 4, 1], activation torch.nn.ReLU" in err

    @pytest.mark.parametrize(
        "text",
        [
            "d: [1, 3, 3, 3, 1]\n" + HYPERPARAMS.replace("{lines}", "dilations: !ref <d>"),
            "a: !name:torch.nn.SiLU\n" + HYPERPARAMS.replace("{lines}", "activation: !ref <a>"),
            "other: !new:Thing\n    activation: !name:torch.nn.ReLU\n"
            + HYPERPARAMS.replace("{lines}", "activation: !name:torch.nn.LeakyReLU"),
            "other: !new:Thing\n    dilations: [1, 2, 3, 4, 1]\n"
            + HYPERPARAMS.replace("{lines}", DILATED),
            "embedding_model: !new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN "
            "{input_size: 80, dilations: [1, 3, 3, 3, 1]}\n",
        ],
        ids=["dilations by reference", "activation by reference", "other activation first",
             "other dilations first", "on one line"],
    )  # fmt: skip
    def test_that_say_it_elsewhere_are_refused_too(
        self, text: str, made: Any, copied: Make, refused: Make
    ) -> None:
        """The dilations of these networks are not the engine's: a file of them would be wrong."""
        folder = copied(made.ecapa())
        (folder / "hyperparams.yaml").write_text(text)
        refused(folder, "hyperparams.yaml")

    def test_the_real_dilations_give_other_numbers(
        self, made: Any, speech: Any, by_library: Make
    ) -> None:
        """So that a dilation which is not seen is a wrong file, not a matter of taste."""
        a = by_library(made.ecapa(), speech[:60])["encoder_out"]
        b = by_library(made.ecapa(dilations=[1, 3, 3, 3, 1]), speech[:60])["encoder_out"]
        assert np.abs(a - b).max() > 0.01

    def test_that_are_absent_make_a_note(self, made: Any, copied: Make, invoke: Make) -> None:
        folder = copied(made.ecapa())
        (folder / "hyperparams.yaml").unlink()
        ran = invoke("convert", "--model", folder, "--output", "x.gguf", code=0)
        assert (
            "note: no hyperparams.yaml says the dilations: [1, 2, 3, 4, 1] are assumed" in ran.out
        )

    def test_that_are_not_yaml_are_refused(self, made: Any, copied: Make, refused: Make) -> None:
        folder = copied(made.ecapa())
        (folder / "hyperparams.yaml").write_text("dilations: [1, 3")
        assert str(folder) in refused(folder, "hyperparams.yaml is not YAML")

    @pytest.mark.parametrize("command", ["convert", "inspect", "baseline"])
    def test_are_never_executed(
        self, command: str, made: Any, copied: Make, graphtools: Make, tmp_path: Path
    ) -> None:
        folder, trace = copied(made.ecapa()), tmp_path / "ran"
        lines = (
            "dilations: [1, 2, 3, 4, 1]",
            f"x: !apply:os.system ['touch {trace}']",
            f"y: !!python/object/apply:os.system ['touch {trace}']",
        )
        self.with_lines(folder, *lines)
        _speech_at("x.wav", tmp_path)
        arguments = {
            "convert": ("--model", folder, "--output", "x.gguf"),
            "inspect": (folder,),
            "baseline": ("--model", folder, "--output", "x.gguf", "--audio", "x.wav"),
        }
        graphtools(command, *arguments[command], code=0)
        assert not trace.exists()
        os.system(f"touch {trace}")  # what it would have done
        assert trace.exists()


class TestArchitecture:
    @pytest.mark.parametrize(
        ("name", "asserted"),
        [
            ("ecapa_tdnn", "wav2vec2_emotion"),
            ("wav2vec2_emotion", "wav2vec2_age_gender"),
            ("wav2vec2_age_gender", "wav2vec2_emotion"),
            ("wav2vec2_emotion", "eres2net"),
        ],
    )
    def test_that_is_asserted_wrongly(
        self, name: str, asserted: str, made: Any, refused: Make
    ) -> None:
        folder = made.named(name).folder
        err = refused(folder, f"the checkpoint is not {asserted}", "--arch", asserted)
        assert f"found: {name}" in err

    @pytest.mark.parametrize("flag", ["--analyze", "--age-gender"])
    def test_alias_is_an_assertion_too(self, flag: str, made: Any, refused: Make) -> None:
        refused(made.ecapa().folder, "the checkpoint is not wav2vec2_", flag)

    def test_that_does_not_exist(self, made: Any, refused: Make) -> None:
        folder = made.ecapa().folder
        err = refused(folder, "unknown architecture 'nonsense'", "--arch", "nonsense", code=2)
        assert "wespeaker_resnet34" in err

    def test_two_that_contradict(self, made: Any, refused: Make) -> None:
        folder = made.ecapa().folder
        refused(folder, "more than one", "--analyze", "--age-gender", code=2)
        refused(folder, "more than one", "--analyze", "--arch", "ecapa_tdnn", code=2)

    @pytest.mark.parametrize(
        ("name", "flags"),
        [
            ("wav2vec2_emotion", ("--analyze",)),
            ("wav2vec2_emotion", ("--arch", "wav2vec2_emotion", "--analyze")),
            ("wav2vec2_age_gender", ("--age-gender",)),
            ("ecapa_tdnn", ("--arch", "ecapa_tdnn")),
        ],
    )
    def test_that_is_right_is_accepted(
        self, name: str, flags: tuple[str, ...], made: Any, invoke: Make
    ) -> None:
        options = ("--output", "x.gguf", "--verify", "none", *flags)
        invoke("convert", "--model", made.named(name).folder, *options, code=0)

    def test_of_no_known_model(self, tmp_path: Path, refused: Make) -> None:
        from safetensors.torch import save_file

        (tmp_path / "other").mkdir()
        save_file({"a.weight": torch.ones(2, 2)}, tmp_path / "other" / "model.safetensors")
        err = refused(tmp_path / "other", "the checkpoint is of no known model")
        assert "ecapa_tdnn, wav2vec2_emotion, wav2vec2_age_gender" in err
        assert "1 tensors, first 'a.weight'" in err

    def test_without_a_head(self, made: Any, reweighted: Make, refused: Make) -> None:
        def behead(state: State) -> State:
            return {n: v for n, v in state.items() if n.startswith("wav2vec2.")}

        folder = reweighted(made.wav2vec2("emotion"), behead)
        refused(folder, "of no known model")
        refused(folder, "the checkpoint is not wav2vec2_emotion", "--analyze")


class TestStrict:
    def test_an_ordinary_checkpoint_passes(self, made: Any, invoke: Make) -> None:
        """Integer buffers are left out on purpose: they are no reason to fail."""
        for network in (made.ecapa(normalizer=False), made.wav2vec2("emotion")):
            options = ("--output", "x.gguf", "--strict")
            invoke("convert", "--model", network.folder, *options, code=0)

    def test_the_normalisers_state_is_known_to_have_no_place(
        self, made: Any, copied: Make, invoke: Make
    ) -> None:
        """Every SpeechBrain folder has it: counters and dicts beside the mean and deviation."""
        folder, name = copied(made.ecapa()), "mean_var_norm_emb.ckpt"
        dicts = {f"spk_dict_{part}": {} for part in ("mean", "std", "count")}
        torch.save({**torch.load(folder / name, weights_only=True), **dicts}, folder / name)
        options = ("--output", "x.gguf", "--strict", "--verify", "none", "--json")
        ran = invoke("convert", "--model", folder, *options, code=0)
        for entry in ("count (int", *(f"{name} (dict" for name in dicts)):
            assert f"mean_var_norm_emb.{entry}, not a tensor)" in ran.json["left_out"]

    def test_an_entry_of_the_normaliser_that_nobody_knows_is_an_error(
        self, made: Any, copied: Make, refused: Make
    ) -> None:
        folder, name = copied(made.ecapa()), "mean_var_norm_emb.ckpt"
        torch.save({**torch.load(folder / name, weights_only=True), "more": [1]}, folder / name)
        assert "mean_var_norm_emb.more" in refused(folder, "no destination", "--strict")

    def test_an_entry_without_a_place_is_an_error(
        self, made: Any, reweighted: Make, invoke: Make, refused: Make
    ) -> None:
        def more(state: State) -> State:
            return {**state, "trainer_state": {"lr": 0.1}}

        folder = reweighted(made.ecapa(normalizer=False), more)
        err = refused(folder, "have no destination (--strict)", "--strict")
        assert "trainer_state" in err
        ran = invoke("convert", "--model", folder, "--output", "x.gguf", "--json", code=0)
        assert "trainer_state (dict, not a tensor)" in ran.json["left_out"]
