"""Every key of the three architectures with its type and value, and every tensor's name.

The files are read back with gguf's own reader.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from converters.archs.checkpoint import Options
from converters.archs.wav2vec2 import stored_name
from converters.checkpoint import Described, describe_checkpoint
from converters.manifest import Manifest
from converters.schema import all_rows
from converters.sources.source import Source, open_source
from graphtools.tensors import DType, Held, LazyTensor

Make = Callable[..., Any]

U32, F32, BOOL, STRING = ["UINT32"], ["FLOAT32"], ["BOOL"], ["STRING"]
STRINGS, INTS = ["ARRAY", "STRING"], ["ARRAY", "INT32"]


def f32(value: float) -> float:
    return float(np.float32(value))


GENERAL = {"general.architecture": (STRING, "voicedetect"), "general.name": (STRING, "model")}
ECAPA = {
    "voicedetect.arch": (STRING, "ecapa_tdnn"),
    "voicedetect.embedding_dim": (U32, 24),
    "voicedetect.l2_normalize": (BOOL, True),
    "voicedetect.fbank.sample_rate": (U32, 16000),
    "voicedetect.fbank.n_mels": (U32, 80),
    "voicedetect.fbank.n_fft": (U32, 512),
    "voicedetect.fbank.win_length": (U32, 400),
    "voicedetect.fbank.hop_length": (U32, 160),
    "voicedetect.fbank.preemph": (F32, f32(0.97)),
    "voicedetect.fbank.low_freq": (F32, 20.0),
    "voicedetect.fbank.high_freq": (F32, 0.0),
    "voicedetect.fbank.use_energy": (BOOL, False),
    "voicedetect.fbank.cmn": (BOOL, True),
    "voicedetect.fbank.window": (STRING, "povey"),
    "voicedetect.ecapa.channels": (U32, 40),
    "voicedetect.ecapa.n_blocks": (U32, 3),
    "voicedetect.ecapa.se_channels": (U32, 12),
    "voicedetect.ecapa.res2net_scale": (U32, 8),
    "voicedetect.ecapa.attention_channels": (U32, 16),
}
BACKBONE = {
    "voicedetect.w2v2.hidden_size": (U32, 48),
    "voicedetect.w2v2.n_layers": (U32, 3),
    "voicedetect.w2v2.n_heads": (U32, 4),
    "voicedetect.w2v2.ff_dim": (U32, 96),
    "voicedetect.w2v2.num_conv_layers": (U32, 3),
    "voicedetect.w2v2.conv_dims": (INTS, [16, 16, 24]),
    "voicedetect.w2v2.conv_kernels": (INTS, [10, 8, 4]),
    "voicedetect.w2v2.conv_strides": (INTS, [5, 4, 4]),
    "voicedetect.w2v2.feat_extract_norm": (STRING, "group"),
    "voicedetect.w2v2.conv_bias": (BOOL, False),
    "voicedetect.w2v2.do_normalize": (BOOL, True),
    "voicedetect.w2v2.feat_extract_activation": (STRING, "gelu"),
    "voicedetect.w2v2.hidden_act": (STRING, "gelu"),
    "voicedetect.w2v2.do_stable_layer_norm": (BOOL, False),
    "voicedetect.w2v2.layer_norm_eps": (F32, f32(1e-5)),
    "voicedetect.w2v2.num_conv_pos_embeddings": (U32, 16),
    "voicedetect.w2v2.num_conv_pos_embedding_groups": (U32, 4),
    "voicedetect.w2v2.pos_conv_weight_norm_dim": (U32, 2),
    "voicedetect.w2v2.use_weighted_layer_sum": (BOOL, True),
    "voicedetect.w2v2.classifier_proj_size": (U32, 20),
}
EMOTION = {
    "voicedetect.arch": (STRING, "wav2vec2_emotion"),
    "voicedetect.analyze.present": (BOOL, True),
    "voicedetect.analyze.kind": (STRING, "emotion"),
    "voicedetect.analyze.emotion_labels": (STRINGS, ["neu", "hap", "ang", "sad"]),
    "voicedetect.analyze.num_emotions": (U32, 4),
    "voicedetect.analyze.pooling": (STRING, "mean"),
    **BACKBONE,
}
LARGE_LIKE = {
    "feat_extract_norm": "layer",
    "conv_bias": True,
    "do_stable_layer_norm": True,
    "layer_norm_eps": 3e-6,
}
AGE_GENDER = {
    "voicedetect.arch": (STRING, "wav2vec2_age_gender"),
    "voicedetect.analyze.present": (BOOL, True),
    "voicedetect.analyze.kind": (STRING, "age_gender"),
    "voicedetect.analyze.gender_labels": (STRINGS, ["female", "male", "child"]),
    "voicedetect.analyze.num_genders": (U32, 3),
    "voicedetect.analyze.pooling": (STRING, "mean"),
    **BACKBONE,
    "voicedetect.w2v2.feat_extract_norm": (STRING, "layer"),
    "voicedetect.w2v2.conv_bias": (BOOL, True),
    "voicedetect.w2v2.do_normalize": (BOOL, False),
    "voicedetect.w2v2.do_stable_layer_norm": (BOOL, True),
    "voicedetect.w2v2.layer_norm_eps": (F32, f32(3e-6)),
    "voicedetect.w2v2.use_weighted_layer_sum": (BOOL, False),
}


def check(found: Any, expected: Mapping[str, tuple[list[str], Any]]) -> None:
    assert {k: (found.types[k], found.values[k]) for k in found.types} == {**GENERAL, **expected}


class TestKeys:
    def test_of_ecapa(self, made: Any, gguf_of: Make, raw: Make) -> None:
        network = made.ecapa(channels=(40, 48, 48, 72), kernels=(5, 3, 3, 1), scale=8)
        check(raw(gguf_of(network.folder)), ECAPA)

    def test_of_emotion(self, made: Any, gguf_of: Make, raw: Make) -> None:
        check(raw(gguf_of(made.wav2vec2("emotion", num_hidden_layers=3).folder)), EMOTION)

    def test_of_age_and_gender(self, made: Any, gguf_of: Make, raw: Make) -> None:
        save = {"do_normalize": False}
        network = made.wav2vec2("age_gender", save, num_hidden_layers=3, **LARGE_LIKE)
        check(raw(gguf_of(network.folder)), AGE_GENDER)

    @pytest.mark.parametrize(
        ("arch", "expected"),
        [
            ("ecapa_tdnn", ECAPA),
            ("wav2vec2_emotion", EMOTION),
            ("wav2vec2_age_gender", AGE_GENDER),
        ],
    )
    def test_are_the_rows_that_the_architecture_declares_in_their_order(
        self, arch: str, expected: Mapping[str, Any], made: Any
    ) -> None:
        assert [row.key for row in all_rows()[arch]] == list(expected)
        entries = made.named(arch).described().manifest.entries
        assert [e.key for e in entries] == list(expected)

    @pytest.mark.parametrize("arch", ["wav2vec2_emotion", "wav2vec2_age_gender"])
    def test_of_the_heads_say_nothing_of_a_front_end_or_an_embedding(
        self, arch: str, made: Any
    ) -> None:
        keys = {e.key for e in made.named(arch).described().manifest.entries}
        assert not {k for k in keys if "fbank" in k or "embedding_dim" in k or "l2" in k}

    def test_of_ecapa_say_nothing_of_a_head(self, made: Any) -> None:
        keys = {e.key for e in made.ecapa().described().manifest.entries}
        assert not {k for k in keys if "analyze" in k or "w2v2" in k}

    def test_say_where_they_come_from(self, made: Any) -> None:
        origins = {e.key: e.origin for e in made.ecapa().described().manifest.entries}
        assert origins["voicedetect.embedding_dim"] == "shape of fc.conv.weight"
        assert origins["voicedetect.ecapa.attention_channels"] == "shape of asp.conv.conv.weight"
        described = made.wav2vec2("emotion").described()
        origins = {e.key: e.origin for e in described.manifest.entries}
        assert origins["voicedetect.w2v2.n_heads"] == "config.json: num_attention_heads"
        assert origins["voicedetect.w2v2.do_normalize"].startswith("preprocessor_config.json")

    def test_pooling_with_a_context_of_three_times_the_channels(
        self, made: Any, gguf_of: Make, raw: Make
    ) -> None:
        """The attention's width is what goes into its last layer, not what comes out."""
        network = made.ecapa(attention=7, se=5, embedding=11)
        found = raw(gguf_of(network.folder)).values
        assert found["voicedetect.ecapa.attention_channels"] == 7
        assert found["voicedetect.ecapa.se_channels"] == 5
        assert found["voicedetect.embedding_dim"] == 11


class TestLabels:
    TWELVE = tuple(f"class {i}" for i in range(12))

    def described(self, made: Any, listed: Mapping[Any, str]) -> Described:
        """Twelve classes, whose labels are listed like that; json.loads cannot give int keys."""
        network = made.wav2vec2("emotion", id2label=dict(enumerate(self.TWELVE)))
        config = json.loads((network.folder / "config.json").read_text()) | {"id2label": listed}

        class Told(Source):
            def json(self, name: str) -> dict[str, Any] | None:
                return config if name == "config.json" else {"do_normalize": True}

        source = network.described().source
        told = Told(source.path, source.files, source.tensors)
        return describe_checkpoint(told, "model")

    @pytest.mark.parametrize("kind", [str, int])
    @pytest.mark.parametrize("order", [sorted, reversed, lambda ids: sorted(ids, key=str)])
    def test_stand_in_the_order_of_their_ids(
        self, kind: type, order: Callable[[Iterable[int]], Iterable[int]], made: Any
    ) -> None:
        """As text "10" comes before "2"."""
        listed = {kind(i): self.TWELVE[i] for i in order(range(12))}
        manifest = self.described(made, listed).manifest
        assert manifest["voicedetect.analyze.emotion_labels"] == self.TWELVE
        assert manifest["voicedetect.analyze.num_emotions"] == 12

    def test_of_age_and_gender_are_the_published_ones_where_the_config_has_none(
        self, made: Any, reconfigured: Make, gguf_of: Make, raw: Make
    ) -> None:
        network = made.wav2vec2("age_gender")
        for labels in (..., {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, {"0": "a", "1": "b"}):
            folder = reconfigured(network, id2label=labels)
            found = raw(gguf_of(folder)).values["voicedetect.analyze.gender_labels"]
            assert found == ["female", "male", "child"]
            shutil.rmtree(folder)

    def test_of_age_and_gender_are_the_configs_where_it_has_them(
        self, made: Any, reconfigured: Make, gguf_of: Make, raw: Make
    ) -> None:
        labels = {"2": "male", "0": "child", "1": "female"}
        folder = reconfigured(made.wav2vec2("age_gender"), id2label=labels)
        found = raw(gguf_of(folder)).values["voicedetect.analyze.gender_labels"]
        assert found == ["child", "female", "male"]

    def test_that_are_not_ascii_are_kept(
        self, made: Any, reconfigured: Make, gguf_of: Make, raw: Make
    ) -> None:
        labels = {"0": "fröhlich", "1": "", "2": "怒り", "3": "sad"}
        folder = reconfigured(made.wav2vec2("emotion"), id2label=labels)
        found = raw(gguf_of(folder)).values["voicedetect.analyze.emotion_labels"]
        assert found == ["fröhlich", "", "怒り", "sad"]


class TestNames:
    def test_of_ecapa_are_the_state_dicts_own_in_its_order(
        self, made: Any, gguf_of: Make, raw: Make
    ) -> None:
        network = made.ecapa()
        found = raw(gguf_of(network.folder)).tensors
        state = network.module.state_dict()
        weights = [name for name in state if not name.endswith("num_batches_tracked")]
        normaliser = ["mean_var_norm_emb.glob_mean", "mean_var_norm_emb.glob_std"]
        assert list(found) == [*weights, *normaliser]
        for name in weights:
            np.testing.assert_array_equal(found[name], state[name].numpy(), err_msg=name)

    def test_of_wav2vec2_are_shortened_by_the_contracts_rule_alone(
        self, made: Any, gguf_of: Make, raw: Make
    ) -> None:
        network = made.wav2vec2("emotion")
        found = raw(gguf_of(network.folder)).tensors
        renamed = {}
        for name, value in network.module.state_dict().items():
            short = "w2v2." + name[9:] if name.startswith("wav2vec2.") else name
            short = short.replace("parametrizations.weight.original0", "weight_g")
            short = short.replace("parametrizations.weight.original1", "weight_v")
            renamed[short] = value.numpy()
        assert set(found) == set(renamed)
        for name, values in renamed.items():
            np.testing.assert_array_equal(found[name], values, err_msg=name)
        heads = {name for name in found if not name.startswith("w2v2.")}
        assert heads == {
            "layer_weights",
            *(f"{part}.{role}" for part in ("projector", "classifier") for role in ROLES),
        }
        assert "w2v2.encoder.pos_conv_embed.conv.weight_g" in found

    def test_of_wav2vec2_stand_in_the_order_of_the_file(
        self, made: Any, gguf_of: Make, raw: Make
    ) -> None:
        folder = made.wav2vec2("age_gender").folder
        file = (folder / "model.safetensors").read_bytes()
        header = json.loads(file[8 : 8 + int.from_bytes(file[:8], "little")])
        header.pop("__metadata__", None)
        assert list(raw(gguf_of(folder)).tensors) == [stored_name(name) for name in header]

    def test_of_age_and_gender_heads_are_verbatim(
        self, made: Any, gguf_of: Make, raw: Make
    ) -> None:
        found = raw(gguf_of(made.wav2vec2("age_gender").folder)).tensors
        heads = {name for name in found if not name.startswith("w2v2.")}
        assert heads == {
            f"{head}.{layer}.{role}"
            for head in ("age", "gender")
            for layer in ("dense", "out_proj")
            for role in ROLES
        }

    @pytest.mark.parametrize(
        ("name", "stored"),
        [
            ("wav2vec2.masked_spec_embed", "w2v2.masked_spec_embed"),
            ("wav2vec2.a.wav2vec2.b", "w2v2.a.wav2vec2.b"),
            ("other.wav2vec2.b", "other.wav2vec2.b"),
            ("wav2vec2.c.parametrizations.weight.original0", "w2v2.c.weight_g"),
            ("wav2vec2.c.parametrizations.weight.original1", "w2v2.c.weight_v"),
            ("wav2vec2.c.weight_g", "w2v2.c.weight_g"),
            ("projector.weight", "projector.weight"),
        ],
    )
    def test_rule(self, name: str, stored: str) -> None:
        assert stored_name(name) == stored

    def test_two_tensors_with_one_stored_name_are_refused(
        self, made: Any, reweighted: Make, invoke: Make
    ) -> None:
        """A checkpoint with both spellings of its weight norm."""
        pair = "wav2vec2.encoder.pos_conv_embed.conv"

        def both(state: dict[str, Any]) -> None:
            for new, old in (("original0", "weight_g"), ("original1", "weight_v")):
                state[f"{pair}.{old}"] = state[f"{pair}.parametrizations.weight.{new}"] + 1.0

        folder = reweighted(made.wav2vec2("emotion"), both)
        ran = invoke("convert", "--model", folder, "--output", "x.gguf", code=3)
        assert "two tensors would be stored as 'w2v2.encoder.pos_conv_embed.conv.weight" in ran.err
        assert "parametrizations.weight.original" in ran.err

    def test_a_name_that_is_too_long_is_refused(
        self, made: Any, reweighted: Make, invoke: Make, tmp_path: Path
    ) -> None:
        """63 bytes are the most; 5 of the prefix are saved by the shortening, and bytes count."""
        fits, does_not = "x" * 58, "ü" * 29 + "x"

        def more(state: dict[str, Any]) -> None:
            state[f"wav2vec2.{fits}"] = torch.zeros(2)

        folder = reweighted(made.wav2vec2("emotion"), more)
        options = ("--output", "x.gguf", "--verify", "none")
        invoke("convert", "--model", folder, *options, code=0)

        def too_much(state: dict[str, Any]) -> None:
            state[f"wav2vec2.{does_not}"] = torch.zeros(2)

        (tmp_path / "x.gguf").unlink()
        shutil.rmtree(folder)
        folder = reweighted(made.wav2vec2("emotion"), too_much)
        ran = invoke("convert", "--model", folder, *options, code=3)
        assert "64 bytes" in ran.err
        assert not (tmp_path / "x.gguf").exists()


ROLES = ("weight", "bias")


def published(size: str) -> Manifest:
    """A head on the base or the large backbone: real names and shapes, no values."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification

    from converters.reference.wav2vec2 import age_gender_module

    if size == "base":
        config = Wav2Vec2Config(num_labels=4, use_weighted_layer_sum=True)
        make: Callable[[Any], Any] = Wav2Vec2ForSequenceClassification
    else:
        config = Wav2Vec2Config(
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            feat_extract_norm="layer",
            conv_bias=True,
            do_stable_layer_norm=True,
            num_labels=3,
        )
        make = age_gender_module
    with torch.device("meta"):
        state = make(config).state_dict()

    class Published(Source):
        def json(self, name: str) -> dict[str, Any] | None:
            return json.loads(json.dumps(config.to_dict())) if name == "config.json" else None

    empty = np.empty(0, np.float32)
    tensors = {
        name: LazyTensor(name, tuple(value.shape), DType.F32, Held(name, empty))
        for name, value in state.items()
    }
    source = Published(Path("published"), (), tensors)
    return describe_checkpoint(source, size, options=Options(do_normalize=True)).manifest


@pytest.mark.parametrize(("size", "tensors"), [("base", 216), ("large", 430)])
def test_every_name_of_the_published_sizes_fits(size: str, tensors: int) -> None:
    manifest = published(size)
    names = [t.name for t in manifest.tensors]
    assert len(names) == len(set(names)) == tensors
    assert max(len(name.encode()) for name in names) < 64
    layers = 12 if size == "base" else 24
    assert f"w2v2.encoder.layers.{layers - 1}.feed_forward.intermediate_dense.weight" in names
    by_name = {t.name: t.shape for t in manifest.tensors}
    assert by_name["w2v2.encoder.pos_conv_embed.conv.weight_g"] == (1, 1, 128)
    assert manifest["voicedetect.w2v2.n_layers"] == layers


def test_the_base_sizes_keys() -> None:
    manifest = published("base")
    found = {e.key.rpartition(".")[2]: e.value for e in manifest.entries}
    assert found["conv_dims"] == (512,) * 7
    assert found["conv_kernels"] == (10, 3, 3, 3, 3, 2, 2)
    assert found["conv_strides"] == (5, 2, 2, 2, 2, 2, 2)
    sizes = ("hidden_size", "n_heads", "ff_dim", "classifier_proj_size")
    assert [found[k] for k in sizes] == [768, 12, 3072, 256]


class TestNormaliser:
    """``mean_var_norm_emb.ckpt`` beside an ECAPA-TDNN."""

    def test_is_stored_under_its_files_name(self, made: Any, gguf_of: Make, raw: Make) -> None:
        network = made.ecapa()
        found = raw(gguf_of(network.folder)).tensors
        state = torch.load(network.folder / "mean_var_norm_emb.ckpt", weights_only=True)
        stored = found["mean_var_norm_emb.glob_mean"]
        np.testing.assert_array_equal(stored, state["glob_mean"].numpy())
        assert found["mean_var_norm_emb.glob_std"].shape == (1,)  # 0-d in the checkpoint
        assert found["mean_var_norm_emb.glob_std"][0] == state["glob_std"]

    def test_what_of_it_is_no_tensor_is_listed_as_left_out(self, made: Any) -> None:
        left_out = made.ecapa().described().left_out
        assert left_out["mean_var_norm_emb.count"] == "int, not a tensor"
        assert left_out["mean_var_norm_emb.spk_dict_mean"] == "dict, not a tensor"

    def test_may_be_absent(self, made: Any, gguf_of: Make, raw: Make) -> None:
        found = raw(gguf_of(made.ecapa(normalizer=False).folder)).tensors
        assert not [name for name in found if name.startswith("mean_var_norm_emb")]

    def test_that_is_a_dangling_link_is_not_taken_for_absent(
        self, made: Any, copied: Make, invoke: Make
    ) -> None:
        folder = copied(made.ecapa(normalizer=False))
        (folder / "mean_var_norm_emb.ckpt").symlink_to(folder / "gone")
        ran = invoke("convert", "--model", folder, "--output", "x.gguf", code=2)
        assert "link to a file that is not there" in ran.err


class TestLeftOut:
    def test_integer_buffers_are_listed_each(self, made: Any) -> None:
        described = made.ecapa().described()
        tracked = {n for n in described.source.tensors if n.endswith("num_batches_tracked")}
        assert len(tracked) > 10
        assert {described.left_out[n] for n in tracked} == {"i64 buffer, not a weight"}
        listed = {line.split(" (")[0] for line in described.manifest.left_out}
        assert tracked <= listed

    @pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool])
    def test_of_every_integer_type(self, dtype: Any, made: Any, reweighted: Make) -> None:
        def more(state: dict[str, Any]) -> None:
            state["wav2vec2.position_ids"] = torch.zeros(4, dtype=dtype)

        source = open_source(reweighted(made.wav2vec2("emotion"), more))
        described = describe_checkpoint(source, "model")
        assert set(described.left_out) == {"wav2vec2.position_ids"}
        assert described.left_out["wav2vec2.position_ids"].endswith("buffer, not a weight")

    def test_every_source_key_is_stored_or_left_out(self, made: Any) -> None:
        for arch in ("ecapa_tdnn", "wav2vec2_emotion", "wav2vec2_age_gender"):
            described = made.named(arch).described()
            accounted = {*described.stored, *described.left_out}
            assert accounted == {*described.source.tensors, *described.source.skipped}
            assert not set(described.stored) & set(described.left_out)
            written = [t.name for t in described.manifest.tensors]
            assert sorted(described.stored.values()) == sorted(written)
