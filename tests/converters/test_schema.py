"""The schema's rows: what the tables of the three speaker encoders say, and what a row is."""

from __future__ import annotations

import pytest

from converters.schema import Row, all_rows

SPEAKER = {
    "voicedetect.arch": "string",
    "voicedetect.embedding_dim": "u32",
    "voicedetect.l2_normalize": "bool",
    "voicedetect.fbank.sample_rate": "u32",
    "voicedetect.fbank.n_mels": "u32",
    "voicedetect.fbank.n_fft": "u32",
    "voicedetect.fbank.win_length": "u32",
    "voicedetect.fbank.hop_length": "u32",
    "voicedetect.fbank.preemph": "f32",
    "voicedetect.fbank.low_freq": "f32",
    "voicedetect.fbank.high_freq": "f32",
    "voicedetect.fbank.use_energy": "bool",
    "voicedetect.fbank.cmn": "bool",
    "voicedetect.fbank.window": "string",
}
TABLES = {
    "wespeaker_resnet34": {
        "voicedetect.resnet.stem_weight": "string",
        "voicedetect.resnet.stem_bias": "string",
        "voicedetect.resnet.conv1_weight": "[string]",
        "voicedetect.resnet.conv1_bias": "[string]",
        "voicedetect.resnet.conv2_weight": "[string]",
        "voicedetect.resnet.conv2_bias": "[string]",
        "voicedetect.resnet.down_weight": "[string]",
        "voicedetect.resnet.down_bias": "[string]",
        "voicedetect.resnet.stride": "[i32]",
        "voicedetect.resnet.seg_weight": "string",
        "voicedetect.resnet.seg_bias": "string",
        "voicedetect.resnet.mean_vec": "string",
        "voicedetect.resnet.var_eps": "f32",
    },
    "eres2net": {
        "voicedetect.eres2net.conv_weight": "[string]",
        "voicedetect.eres2net.conv_bias": "[string]",
        "voicedetect.eres2net.conv_stride": "[i32]",
        "voicedetect.eres2net.num_blocks": "[i32]",
        "voicedetect.eres2net.m_channels": "u32",
        "voicedetect.eres2net.scale": "u32",
        "voicedetect.eres2net.seg_weight": "string",
        "voicedetect.eres2net.seg_bias": "string",
        "voicedetect.eres2net.relu_clamp": "f32",
        "voicedetect.eres2net.var_eps": "f32",
    },
    "campplus": {
        "voicedetect.campplus.conv_weight": "[string]",
        "voicedetect.campplus.conv_bias": "[string]",
        "voicedetect.campplus.bn_prefix": "[string]",
        "voicedetect.campplus.emb_bn_mean": "string",
        "voicedetect.campplus.emb_bn_var": "string",
        "voicedetect.campplus.bn_eps": "f32",
    },
}
KINDS = {"string", "bool", "u8", "u32", "u64", "i32", "i64", "f32"}


@pytest.mark.parametrize("arch", TABLES)
def test_the_tables_of_the_speaker_encoders(arch: str) -> None:
    assert {r.key: r.type for r in all_rows()[arch]} == SPEAKER | TABLES[arch]


def test_heads_of_other_kinds_have_no_keys_in_a_speaker_encoder() -> None:
    for arch in TABLES:
        assert not [r.key for r in all_rows()[arch] if ".analyze." in r.key]


@pytest.mark.parametrize("arch", sorted(all_rows()))
def test_every_row_is_complete_and_unique(arch: str) -> None:
    rows = all_rows()[arch]
    assert len({r.key for r in rows}) == len(rows)
    for row in rows:
        assert row.type.strip("[]") in KINDS, row
        assert row.type.count("[") == row.type.count("]") <= 1, row
        assert row.meaning, row
        assert "\n" not in row.meaning, row
        assert row.key == row.key.lower(), row


@pytest.mark.parametrize("arch", TABLES)
def test_what_shows_a_value_is_one_of_four_things(arch: str) -> None:
    rows: tuple[Row, ...] = all_rows()[arch]
    assert {r.proof for r in rows} <= {"replay", "source", "measured", "schema"}
    fixed = {r.key: r.fixed for r in rows if r.proof == "schema"}
    assert all(value is not None for value in fixed.values())
    assert fixed["voicedetect.arch"] == arch
    assert fixed["voicedetect.l2_normalize"] is True


def test_the_baselines_rows_are_of_the_baseline() -> None:
    rows = all_rows()["voicedetect-baseline"]
    types = {r.key: r.type for r in rows}
    assert all(key.startswith("baseline.") for key in types)
    assert types["baseline.noise"] == "[f32]"
    assert types["baseline.stages"] == types["baseline.stage_weights"] == "[string]"
    assert types["baseline.audio_sha256"] == types["baseline.model_sha256"] == "string"
