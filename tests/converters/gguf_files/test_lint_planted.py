"""For every code a file with exactly that fault in it, and that code is what is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.lint import lint
from converters.lint_codes import Code

Make = Callable[..., Any]
Change = Callable[[Any], object]


@dataclass(frozen=True)
class Fault:
    """What is changed in which file, and what the finding has to name."""

    code: Code
    kind: str
    where: str
    change: Change

    def __str__(self) -> str:
        return f"{self.code.id} {self.kind} {self.where}"


def both(*changes: Change) -> Change:
    def apply(file: Any) -> None:
        for change in changes:
            change(file)

    return apply


def key(name: str, value: Any) -> Change:
    """The key with another value; a function is given the old one."""

    def change(file: Any) -> None:
        file[name] = value(file[name]) if callable(value) else value

    return change


def tensor(name: str, **changes: Any) -> Change:
    """The tensor with other attributes; functions are given the old ones."""

    def change(file: Any) -> None:
        found = file.tensor(name)
        for attribute, value in changes.items():
            old = getattr(found, attribute)
            setattr(found, attribute, value(old) if callable(value) else value)

    return change


def extra(name: str, ne: tuple[int, ...], number: int = 0, data: bytes = b"\x01" * 4) -> Change:
    return lambda file: file.tensors.append(type(file.tensors[0])(name, ne, number, data))


def renamed(old: str, new: str) -> Change:
    """A tensor under another name, and the keys that name it."""

    def swap(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(swap(item) for item in value)
        return new if value == old else value

    def change(file: Any) -> None:
        file.tensor(old).name = new
        for entry in file.keys:
            entry[2] = swap(entry[2])

    return change


def at(index: int, value: Any) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """A list with one entry changed."""

    def change(listed: tuple[Any, ...]) -> tuple[Any, ...]:
        new = value(listed[index]) if callable(value) else value
        return (*listed[:index], new, *listed[index + 1 :])

    return change


def filled(value: float, index: int = 5) -> Callable[[Any], Any]:
    def change(values: Any) -> Any:
        values.flat[index] = value
        return values

    return change


def as_f16(t: Any) -> None:
    t.data, t.number = t.values.astype("<f2").tobytes(), 1


def swapped(name: str, i: int, j: int) -> Change:
    def change(file: Any) -> None:
        listed = list(file[name])
        listed[i], listed[j] = listed[j], listed[i]
        file[name] = tuple(listed)

    return change


ERES, RES, CAM = "voicedetect.eres2net", "voicedetect.resnet", "voicedetect.campplus"
W2V, ECAPA, ANALYZE, MOSS = (
    "voicedetect.w2v2",
    "voicedetect.ecapa",
    "voicedetect.analyze",
    "moss.at",
)
LAYER = "encoder.1.transformer.layers.0"

FORMAT = [
    Fault(Code.REPEATED_KEY, "foreign", "k", lambda f: [f.add("k", "u32", i) for i in (1, 2)]),
    Fault(
        Code.REPEATED_KEY,
        "eres2net",
        f"{ERES}.scale",
        lambda f: f.add(f"{ERES}.scale", "u32", 2),
    ),
    Fault(Code.KEY_NAME, "foreign", "''", lambda f: f.add("", "u32", 1)),
    Fault(Code.KEY_NAME, "foreign", r"\xfc", lambda f: f.add("ü", "u32", 1)),
    Fault(Code.KEY_NAME, "foreign", "GGUF.version", lambda f: f.add("GGUF.version", "u32", 1)),
    Fault(Code.KEY_NAME, "foreign", "kkk", lambda f: f.add("k" * 65536, "u32", 1)),
    Fault(
        Code.NO_ARCHITECTURE,
        "foreign",
        "general.architecture",
        lambda f: f.drop("general.architecture"),
    ),
    Fault(
        Code.NO_ARCHITECTURE,
        "foreign",
        "general.architecture",
        both(key("general.architecture", 7), lambda f: f.retype("general.architecture", "u32")),
    ),
    *(
        Fault(
            Code.ALIGNMENT,
            kind,
            "general.alignment",
            lambda f, value=value, kept=kept: f.add("general.alignment", kept, value),
        )
        for kind in ("foreign", "resnet")
        for value, kept in ((24, "u32"), (0, "u32"), (32, "i32"), (32, "u64"))
    ),
    Fault(Code.LONG_NAME, "foreign", "w" * 64, renamed("w", "w" * 64)),
    Fault(Code.LONG_NAME, "foreign", "ü" * 32, renamed("w", "ü" * 32)),
    Fault(Code.LONG_NAME, "resnet", "mmm", renamed("mean_vec", "m" * 64)),
    Fault(Code.TENSOR_NAME, "foreign", "''", renamed("w", "")),
    Fault(Code.TENSOR_NAME, "foreign", r"'a\nb'", renamed("w", "a\nb")),
    Fault(Code.TENSOR_NAME, "foreign", r"'a\x00'", renamed("w", "a\0")),
    Fault(Code.TENSOR_NAME, "foreign", r"'a\x7f'", renamed("w", "a\x7f")),
    Fault(Code.REPEATED_TENSOR, "foreign", "w", renamed("h", "w")),
    Fault(Code.REPEATED_TENSOR, "resnet", "mean_vec", extra("mean_vec", (1,))),
    Fault(Code.AXES, "foreign", "new", extra("new", (1, 1, 1, 1, 1))),
    Fault(Code.AXES, "foreign", "new", extra("new", ())),
    Fault(Code.EMPTY_AXIS, "foreign", "new", extra("new", (4, 0), data=b"")),
    Fault(Code.TOO_LARGE, "foreign", "new", extra("new", (2**40, 2**40))),
    Fault(Code.TOO_LARGE, "foreign", "new", extra("new", (2**62,))),
    Fault(Code.UNKNOWN_TYPE, "foreign", "w", tensor("w", number=4)),
    Fault(Code.UNKNOWN_TYPE, "foreign", "h", tensor("h", number=999)),
    Fault(Code.PARTIAL_BLOCK, "foreign", "q", tensor("q", ne=(16, 6))),
    Fault(Code.PARTIAL_BLOCK, "foreign", "q", tensor("q", ne=(33, 3))),
    Fault(Code.MISALIGNED, "foreign", "h", tensor("h", offset=168)),
    Fault(Code.MISALIGNED, "foreign", "w", tensor("w", offset=4)),
    Fault(Code.OUT_OF_PLACE, "foreign", "h", tensor("h", offset=192)),
    Fault(Code.OUT_OF_PLACE, "foreign", "h", tensor("h", offset=0)),
    Fault(Code.OUT_OF_PLACE, "resnet", "mean_vec", tensor("mean_vec", offset=0)),
    Fault(Code.NO_PADDING, "foreign", "h", lambda f: setattr(f, "padding", False)),
    Fault(
        Code.NO_PADDING,
        "resnet",
        "short",
        both(
            renamed("mean_vec", "short"),
            key("general.name", "a name of another length"),
            tensor("short", values=lambda v: v[:1]),
            lambda f: setattr(f, "padding", False),
        ),
    ),
]

KEYS = [
    Fault(Code.NO_SCHEMA, "resnet", "voicedetect.arch", key("voicedetect.arch", "resnet")),
    Fault(Code.NO_SCHEMA, "resnet", "voicedetect.arch", lambda f: f.drop("voicedetect.arch")),
    Fault(
        Code.MISSING_KEY,
        "campplus",
        "voicedetect.embedding_dim",
        lambda f: f.drop("voicedetect.embedding_dim"),
    ),
    Fault(Code.MISSING_KEY, "resnet", f"{RES}.mean_vec", lambda f: f.drop(f"{RES}.mean_vec")),
    Fault(Code.MISSING_KEY, "eres2net", f"{ERES}.scale", lambda f: f.drop(f"{ERES}.scale")),
    Fault(Code.MISSING_KEY, "ecapa", f"{ECAPA}.n_blocks", lambda f: f.drop(f"{ECAPA}.n_blocks")),
    Fault(Code.MISSING_KEY, "emotion", f"{W2V}.conv_dims", lambda f: f.drop(f"{W2V}.conv_dims")),
    Fault(
        Code.MISSING_KEY,
        "age_gender",
        f"{ANALYZE}.gender_labels",
        lambda f: f.drop(f"{ANALYZE}.gender_labels"),
    ),
    Fault(Code.MISSING_KEY, "moss", f"{MOSS}.enc.kind", lambda f: f.drop(f"{MOSS}.enc.kind")),
    Fault(Code.MISSING_KEY, "moss", "general.name", lambda f: f.drop("general.name")),
    Fault(  # the keys of a stereo codec come together
        Code.MISSING_KEY, "moss", f"{MOSS}.code_dim", lambda f: f.add(f"{MOSS}.channels", "u32", 1)
    ),
    Fault(
        Code.MISSING_KEY,
        "resnet goldens",
        "baseline.audio_sha256",
        lambda f: f.drop("baseline.audio_sha256"),
    ),
    Fault(Code.MISSING_KEY, "taps", "baseline.shapes", lambda f: f.drop("baseline.shapes")),
    Fault(
        Code.UNKNOWN_KEY, "resnet", f"{RES}.stride_", lambda f: f.add(f"{RES}.stride_", "u32", 1)
    ),
    Fault(Code.UNKNOWN_KEY, "resnet", f"{ERES}.scale", lambda f: f.add(f"{ERES}.scale", "u32", 2)),
    Fault(Code.UNKNOWN_KEY, "moss", "moss.x", lambda f: f.add("moss.x", "u32", 2)),
    Fault(
        Code.UNKNOWN_KEY,
        "emotion",
        f"{ANALYZE}.gender_labels",
        lambda f: f.add(f"{ANALYZE}.gender_labels", "[string]", ("a",)),
    ),
    Fault(Code.UNKNOWN_KEY, "taps", "baseline.x", lambda f: f.add("baseline.x", "u32", 2)),
    Fault(
        Code.MISTYPED_KEY,
        "ecapa",
        "voicedetect.embedding_dim",
        lambda f: f.retype("voicedetect.embedding_dim", "i32"),
    ),
    Fault(
        Code.MISTYPED_KEY, "resnet", f"{RES}.stride", lambda f: f.retype(f"{RES}.stride", "[u32]")
    ),
    Fault(
        Code.MISTYPED_KEY,
        "emotion",
        f"{W2V}.conv_bias",
        lambda f: f.retype(f"{W2V}.conv_bias", "u8"),
    ),
    Fault(
        Code.MISTYPED_KEY,
        "eres2net goldens",
        "baseline.noise",
        lambda f: f.retype("baseline.noise", "[f64]"),
    ),
    *(
        Fault(
            Code.FORBIDDEN_KEY,
            kind,
            name,
            lambda f, name=name, kept=kept, value=value: f.add(name, kept, value),
        )
        for kinds, name, kept, value in (
            (("resnet", "eres2net", "campplus", "ecapa"), f"{ANALYZE}.present", "bool", False),
            (("resnet", "ecapa"), f"{ANALYZE}.emotion_labels", "[string]", ("a",)),
            (("emotion", "age_gender"), "voicedetect.fbank.n_mels", "u32", 80),
            (("emotion", "age_gender"), "voicedetect.embedding_dim", "u32", 4),
        )
        for kind in kinds
    ),
    Fault(
        Code.NOT_THE_SCHEMAS,
        "resnet",
        "voicedetect.fbank.window",
        key("voicedetect.fbank.window", "hamming"),
    ),
    Fault(
        Code.NOT_THE_SCHEMAS,
        "campplus",
        "voicedetect.fbank.preemph",
        key("voicedetect.fbank.preemph", 0.95),
    ),
    Fault(
        Code.NOT_THE_SCHEMAS,
        "ecapa",
        "voicedetect.l2_normalize",
        key("voicedetect.l2_normalize", False),
    ),
    Fault(Code.NOT_THE_SCHEMAS, "emotion", f"{ANALYZE}.pooling", key(f"{ANALYZE}.pooling", "max")),
    Fault(Code.EMPTY_ARRAY, "eres2net", f"{ERES}.num_blocks", key(f"{ERES}.num_blocks", ())),
    Fault(Code.EMPTY_ARRAY, "moss", f"{MOSS}.dec.kind", key(f"{MOSS}.dec.kind", ())),
    *(
        Fault(Code.NOT_PARALLEL, kind, name, key(name, lambda listed: listed[:-1]))
        for kind, name in (
            ("resnet", f"{RES}.stride"),
            ("resnet", f"{RES}.down_bias"),
            ("eres2net", f"{ERES}.conv_stride"),
            ("emotion", f"{W2V}.conv_strides"),
            ("moss", f"{MOSS}.enc.d_ff"),
            ("moss", f"{MOSS}.dec.patch"),
            ("resnet goldens", "baseline.noise"),
            ("ecapa goldens", "baseline.stage_weights"),
        )
    ),
    Fault(
        Code.NOT_PARALLEL, "campplus", f"{CAM}.conv_bias", key(f"{CAM}.conv_bias", lambda x: x[1:])
    ),
    *(
        Fault(Code.MISCOUNTED, kind, name, key(name, lambda n: n + 1))
        for kind, name in (
            ("resnet", "voicedetect.embedding_dim"),
            ("eres2net", "voicedetect.embedding_dim"),
            ("campplus", "voicedetect.embedding_dim"),
            ("ecapa", "voicedetect.embedding_dim"),
            ("eres2net", f"{ERES}.m_channels"),
            ("ecapa", f"{ECAPA}.channels"),
            ("ecapa", f"{ECAPA}.n_blocks"),
            ("ecapa", f"{ECAPA}.se_channels"),
            ("ecapa", f"{ECAPA}.res2net_scale"),
            ("ecapa", f"{ECAPA}.attention_channels"),
            ("emotion", f"{ANALYZE}.num_emotions"),
            ("age_gender", f"{ANALYZE}.num_genders"),
            ("emotion", f"{W2V}.hidden_size"),
            ("emotion", f"{W2V}.n_layers"),
            ("emotion", f"{W2V}.ff_dim"),
            ("emotion", f"{W2V}.num_conv_layers"),
            ("emotion", f"{W2V}.num_conv_pos_embeddings"),
            ("emotion", f"{W2V}.classifier_proj_size"),
            ("moss", f"{MOSS}.downsample"),
            ("moss", f"{MOSS}.num_quantizers"),
            ("moss", f"{MOSS}.codebook_size"),
            ("moss", f"{MOSS}.codebook_dim"),
            ("moss", f"{MOSS}.rvq_dim"),
            ("moss", f"{MOSS}.enc.n_stages"),
        )
    ),
    *(
        Fault(Code.MISCOUNTED, kind, name, key(name, at(index, lambda n: n + 1)))
        for kind, name, index in (
            ("emotion", f"{W2V}.conv_dims", 0),
            ("age_gender", f"{W2V}.conv_kernels", 1),
            ("moss", f"{MOSS}.enc.n_layers", 1),
            ("moss", f"{MOSS}.enc.d_model", 1),
            ("moss", f"{MOSS}.enc.d_ff", 1),
            ("moss", f"{MOSS}.dec.in_dim", 0),
            ("moss", f"{MOSS}.dec.out_dim", 0),
        )
    ),
    Fault(
        Code.MISCOUNTED,
        "emotion",
        f"{ANALYZE}.emotion_labels",
        key(f"{ANALYZE}.emotion_labels", lambda x: x[:-1]),
    ),
    Fault(
        Code.MISCOUNTED,
        "moss",
        f"{MOSS}.code_dim",
        lambda f: [
            f.add(f"{MOSS}.{name}", "u32", value)
            for name, value in (("channels", 1), ("channel_interleave", 0), ("code_dim", 1))
        ],
    ),
    Fault(Code.MISCOUNTED, "emotion", f"{W2V}.conv_bias", key(f"{W2V}.conv_bias", True)),
    Fault(
        Code.MISCOUNTED,
        "taps",
        "baseline.tensors",
        both(*(key(f"baseline.{k}", lambda x: x[:-1]) for k in ("tensors", "shapes"))),
    ),
    *(
        Fault(Code.NOT_A_NUMBER, kind, name, key(name, value))
        for kind, name, value in (
            ("resnet", f"{RES}.var_eps", float("nan")),
            ("eres2net", f"{ERES}.relu_clamp", float("inf")),
            ("moss", f"{MOSS}.context_seconds", float("nan")),
            ("resnet goldens", "baseline.noise", at(0, float("inf"))),
        )
    ),
    *(
        Fault(Code.NO_NETWORK, kind, arch, change)
        for kind, arch, change in (
            (
                "eres2net",
                "eres2net",
                both(
                    *(
                        key(f"{ERES}.conv_{k}", lambda x: x[:-1])
                        for k in ("weight", "bias", "stride")
                    )
                ),
            ),
            ("eres2net", "eres2net", key(f"{ERES}.num_blocks", (3, 4, 6))),
            ("eres2net", "eres2net", key(f"{ERES}.num_blocks", (3, 4, 6, 4))),
            (
                "campplus",
                "campplus",
                both(*(key(f"{CAM}.conv_{k}", lambda x: x[:-1]) for k in ("weight", "bias"))),
            ),
            ("campplus", "campplus", key(f"{CAM}.bn_prefix", lambda x: x[:-1])),
            ("resnet", "wespeaker_resnet34", key(f"{RES}.stride", at(0, 0))),
            ("resnet", "wespeaker_resnet34", key(f"{RES}.down_bias", at(3, ""))),
            (
                "ecapa",
                "ecapa_tdnn",
                lambda f: f.tensors.remove(f.tensor("blocks.2.tdnn1.norm.norm.running_var")),
            ),
            (
                "emotion",
                "wav2vec2_emotion",
                lambda f: f.tensors.remove(f.tensor("w2v2.encoder.layers.1.layer_norm.bias")),
            ),
            ("emotion", "wav2vec2_emotion", key(f"{W2V}.conv_strides", at(0, 0))),
            ("moss", "moss-audio-tokenizer", key(f"{MOSS}.enc.n_heads", at(1, 0))),
            ("moss", "moss-audio-tokenizer", key(f"{MOSS}.context_seconds", -1.0)),
            (
                "moss",
                "moss-audio-tokenizer",
                lambda f: f.tensors.remove(f.tensor(f"{LAYER}.linear2.weight")),
            ),
        )
    ),
]

TENSORS = [
    *(
        Fault(Code.NO_TENSOR, kind, name, change)
        for kind, name, change in (
            ("resnet", f"{RES}.stem_weight", key(f"{RES}.stem_weight", "nowhere")),
            ("resnet", f"{RES}.conv2_bias[3]", key(f"{RES}.conv2_bias", at(3, ""))),
            ("resnet", f"{RES}.down_weight[3]", key(f"{RES}.down_weight", at(3, "x"))),
            ("eres2net", f"{ERES}.conv_weight[0]", key(f"{ERES}.conv_weight", at(0, ""))),
            ("campplus", f"{CAM}.bn_prefix[9]", key(f"{CAM}.bn_prefix", at(9, "x"))),
            ("campplus", f"{CAM}.emb_bn_var", key(f"{CAM}.emb_bn_var", "x")),
            (
                "campplus",
                f"{CAM}.bn_prefix[2]",
                lambda f: f.tensors.remove(f.tensor(f[f"{CAM}.bn_prefix"][2] + ".running_var")),
            ),
            ("moss goldens", "baseline.stages[0]", key("baseline.stages", at(0, "x"))),
        )
    ),
    *(
        Fault(Code.MISFIT, kind, where, change)
        for kind, where, change in (
            # names exchanged, shapes that do not fit
            ("resnet", "layer1.0.conv1", swapped(f"{RES}.conv1_weight", 0, 15)),
            ("eres2net", "stem", swapped(f"{ERES}.conv_weight", 0, 1)),
            ("campplus", "fcm.stem", swapped(f"{CAM}.conv_weight", 0, 200)),
            ("campplus", "block1.0.bn", swapped(f"{CAM}.bn_prefix", 0, 20)),
            # layouts
            (
                "resnet",
                "weight of layer2.0.conv1",
                tensor("onnx::Conv_388", values=lambda v: v.transpose(1, 0, 2, 3)),
            ),
            ("resnet", "bias of seg", tensor("model.seg_1.bias", values=lambda v: v[:-1])),
            ("resnet", "offset of mean_vec", tensor("mean_vec", values=lambda v: v[:-1])),
            ("ecapa", "asp_bn.norm", tensor("asp_bn.norm.running_var", values=lambda v: v[1:])),
            ("ecapa", "fc.conv", tensor("fc.conv.weight", values=lambda v: v[:, 1:])),
            (
                "emotion",
                "weight_g of w2v2.encoder.pos_conv_embed.conv",
                tensor("w2v2.encoder.pos_conv_embed.conv.weight_g", values=lambda v: v[..., :-1]),
            ),
            ("emotion", "layer_weights", tensor("layer_weights", values=lambda v: v[:-1])),
            (
                "emotion",
                "q_proj",
                tensor("w2v2.encoder.layers.0.attention.q_proj.weight", values=lambda v: v[:, :-1]),
            ),
            (
                "moss",
                "layer_scale_1",
                tensor(f"{LAYER}.layer_scale_1.scale", values=lambda v: v[1:]),
            ),
            (
                "moss",
                "in_proj",
                tensor("quantizer.quantizers.1.in_proj.weight", values=lambda v: v[:, 1:]),
            ),
            # numbers that only shapes contradict
            ("eres2net", "what comes out of layer1.0.", key(f"{ERES}.conv_stride", at(2, 2))),
            ("resnet", "what comes out of layer1.0.conv2", key(f"{RES}.stride", at(0, 2))),
            ("moss", "what comes out of", key(f"{MOSS}.enc.n_heads", at(1, 7))),
            ("emotion", "what comes out of", key(f"{W2V}.n_heads", 7)),
            ("emotion", "pos_conv_embed", key(f"{W2V}.num_conv_pos_embedding_groups", 8)),
        )
    ),
    *(
        Fault(Code.NOT_F32, kind, name, lambda f, name=name: as_f16(f.tensor(name)))
        for kind, name in (
            ("resnet", "model.seg_1.weight"),
            ("resnet", "model.seg_1.bias"),
            ("ecapa", "blocks.0.norm.norm.running_var"),
            ("emotion", "layer_weights"),
            ("moss", f"{LAYER}.norm1.weight"),
            ("moss", "quantizer.quantizers.0.in_proj.bias"),
            ("moss", f"{LAYER}.layer_scale_1.scale"),
        )
    ),
    *(Fault(Code.STRAY, kind, "extra", extra("extra", (1,))) for kind in ("resnet", "moss")),
    Fault(Code.STRAY, "eres2net", "seg_1.bias", key(f"{ERES}.seg_bias", "")),
]

BIG = np.zeros((3, 500_000), np.float32)
VALUES = [
    *(
        Fault(Code.NOT_FINITE, kind, name, tensor(name, values=filled(value)))
        for kind, name, value in (
            ("resnet", "mean_vec", float("nan")),
            ("campplus", "xvector.block1.tdnnd1.nonlinear1.batchnorm.running_mean", float("inf")),
            ("moss", f"{LAYER}.linear1.weight", float("-inf")),
            ("resnet goldens", "encoder_out", float("nan")),
            ("foreign", "w", float("nan")),
        )
    ),
    Fault(Code.NOT_FINITE, "foreign", "h", tensor("h", data=b"\x00\x7c" + b"\x01\x00" * 4)),
    Fault(
        Code.NOT_FINITE, "foreign", "h", tensor("h", number=30, data=b"\x80\x7f" + b"\x01\x00" * 4)
    ),
    Fault(Code.NOT_FINITE, "foreign", "q", tensor("q", data=lambda d: b"\x00\x7e" + d[2:])),
    Fault(  # beyond the first piece that is read
        Code.NOT_FINITE,
        "foreign",
        "w",
        tensor("w", values=lambda v: filled(float("nan"), 1_400_000)(BIG + 1)),
    ),
    *(
        Fault(Code.ALL_ZERO, kind, name, tensor(name, data=lambda d: bytes(len(d))))
        for kind, name in (
            ("resnet", "model.seg_1.bias"),
            ("ecapa", "fc.conv.weight"),
            ("foreign", "w"),
            ("foreign", "q"),
            ("foreign", "h"),
        )
    ),
    Fault(Code.ALL_ZERO, "foreign", "w", tensor("w", values=BIG)),
]

FAULTS = [*FORMAT, *KEYS, *TENSORS, *VALUES]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_found_and_nothing_else(fault: Fault, planted: Make) -> None:
    found = lint(planted(fault.kind, fault.change))
    assert not found
    lines = [str(f) for f in found.findings]
    assert {f.code for f in found.findings} == {fault.code}, "\n".join(lines)
    assert any(fault.where in f.where for f in found.findings), "\n".join(lines)
    for finding, line in zip(found.findings, lines, strict=True):
        assert line.startswith(f"{fault.code.id} {fault.code.title}: ")
        assert line.endswith(f"; fix: {fault.code.fix}")
        assert line.isprintable()
        assert set(finding.to_json()) == {"code", "title", "where", "found", "fix"}


def test_every_code_has_a_planted_fault() -> None:
    assert {fault.code for fault in FAULTS} == set(Code)


def test_codes_are_told_apart_and_sorted() -> None:
    ids = [code.id for code in Code]
    assert sorted(set(ids)) == sorted(ids)
    for code in Code:
        assert code.meaning.endswith("."), code
        assert min(len(code.title), len(code.fix)) > 0, code
        assert "\n" not in code.title + code.meaning + code.fix, code


def test_what_builds_on_a_fault_is_not_checked_and_that_is_said(planted: Make) -> None:
    found = lint(planted("resnet", lambda f: f.drop(f"{RES}.var_eps")))
    assert found.notes == (
        "not checked until this is mended: names, counts, shapes and types of tensors",
    )
    assert found.to_json()["notes"] == list(found.notes)


def test_several_faults_are_all_found(planted: Make) -> None:
    change = both(
        lambda f: f.drop(f"{RES}.var_eps"),
        lambda f: f.add(f"{ANALYZE}.present", "bool", True),
        tensor("mean_vec", values=filled(float("nan"))),
        lambda f: f.add("general.alignment", "u32", 33),
    )
    found = lint(planted("resnet", change))
    assert [f.code.id for f in found.findings] == ["F104", "K101", "K104", "V301"]


def test_one_shape_that_is_wrong_is_one_finding_or_two(planted: Make) -> None:
    """And not one for every layer behind it."""
    for name in ("conv1", "conv2"):
        found = lint(planted("resnet", swapped(f"{RES}.{name}_weight", 0, 15)))
        assert 2 <= len(found.findings) <= 6, [str(f) for f in found.findings]


def test_lists_name_every_missing_tensor(planted: Make) -> None:
    change = key(f"{RES}.conv1_weight", lambda names: tuple(f"x{n}" for n in names))
    found = lint(planted("resnet", change))
    assert [f.where for f in found.findings] == [f"{RES}.conv1_weight[{i}]" for i in range(16)]


def test_the_place_and_the_number_of_bad_values(planted: Make) -> None:
    def change(file: Any) -> None:
        weights = file.tensor("w")
        values = weights.values
        values.flat[[2, 4]] = float("nan"), float("inf")
        weights.values = values

    (only,) = lint(planted("foreign", change)).findings
    assert only.found == "2 of 6 values, the first at 2 of the flat tensor"


def test_the_padding_lacks_one_byte(planted: Make) -> None:
    path: Path = planted("foreign", lambda f: None)
    path.write_bytes(path.read_bytes()[:-1])
    assert [f.code for f in lint(path).findings] == [Code.NO_PADDING]


def test_the_first_bad_value_of_all_pieces_is_named(planted: Make) -> None:
    def change(values: Any) -> Any:
        return filled(float("nan"), 1_400_000)(filled(float("nan"), 7)(BIG + 1))

    (only,) = lint(planted("foreign", tensor("w", values=change))).findings
    assert only.found == "2 of 1500000 values, the first at 7 of the flat tensor"


def test_a_fault_of_both_directions_is_said_once(planted: Make) -> None:
    name = "quantizer.quantizers.1.codebook.weight"
    found = lint(planted("moss", tensor(name, values=lambda v: v[:, 1:]))).findings
    assert {f.code for f in found} == {Code.MISFIT}
    assert len(set(found)) == len(found) >= 2
