"""ECAPA-TDNN: the GGUF alone computes what SpeechBrain's class computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.convert import convert

Make = Callable[..., Any]

# Widths of the first layer, the blocks and the MFA layer; kernels of the same; Res2Net scale.
SPACE = {
    "2 blocks, scale 2": ((16, 32, 32, 48), (5, 3, 3, 1), 2),
    "2 blocks, scale 7, shortcut": ((21, 42, 42, 56), (1, 5, 1, 5), 7),
    "3 blocks, scale 3, shortcuts": ((24, 48, 24, 36, 60), (3, 1, 5, 3, 3), 3),
    "3 blocks, scale 4": ((32, 32, 32, 32, 96), (5, 3, 3, 3, 1), 4),
    "3 blocks, scale 6, shortcuts": ((12, 24, 48, 36, 60), (5, 5, 3, 1, 1), 6),
    "3 blocks, scale 8": ((64, 64, 64, 64, 192), (5, 3, 3, 3, 1), 8),
    "4 blocks, scale 5, shortcuts": ((15, 45, 30, 60, 45, 80), (5, 3, 3, 3, 3, 1), 5),
    "4 blocks, scale 4, kernels 1 and 5": ((20, 20, 60, 40, 40, 96), (1, 5, 1, 3, 5, 3), 4),
}


@pytest.fixture(params=list(SPACE))
def network(request: pytest.FixtureRequest, made: Any) -> Any:
    channels, kernels, scale = SPACE[request.param]
    return made.ecapa(channels=channels, kernels=kernels, scale=scale, seed=len(request.param))


@pytest.mark.parametrize("frames", [97, 38])
def test_every_stage_is_the_librarys(
    network: Any,
    frames: int,
    speech: Any,
    gguf_of: Make,
    replayed: Make,
    by_library: Make,
    assert_same: Make,
) -> None:
    features = speech[60 : 60 + frames]
    goldens = by_library(network, features)
    ours = replayed(gguf_of(network.folder), features)
    assert_same(ours, goldens)
    blocks = len(network.module.blocks)
    wanted = [*(f"block{i}_out" for i in range(blocks)), "mfa_out", "pooled", "encoder_out"]
    assert list(ours) == wanted


def test_the_space_is_what_the_architecture_states() -> None:
    """Two to four blocks, scales from 2 to 8, odd kernels: each is tried above."""
    from converters.archs.ecapa import ARCH

    assert ARCH.space.startswith("any widths, 2 to 4 blocks, scale 2 to 8, odd kernels")
    assert {len(channels) - 2 for channels, _, _ in SPACE.values()} == {2, 3, 4}
    assert {scale for _, _, scale in SPACE.values()} == set(range(2, 9))
    assert {k for _, kernels, _ in SPACE.values() for k in kernels} == {1, 3, 5}


def test_a_block_of_another_width_than_its_input_has_a_shortcut(made: Any, gguf_of: Make) -> None:
    from converters import gguf_file

    channels, kernels, scale = SPACE["3 blocks, scale 3, shortcuts"]
    network = made.ecapa(channels=channels, kernels=kernels, scale=scale)
    names = gguf_file.read(gguf_of(network.folder)).by_name
    found = {i for i in range(5) if f"blocks.{i}.shortcut.conv.weight" in names}
    assert found == {1, 2, 3}


def test_the_attention_is_not_flat(made: Any, speech: Any, by_library: Make) -> None:
    """Else the weighted statistics would be the plain ones, and no test could tell them apart."""
    stages = by_library(made.ecapa(), speech)
    mfa, pooled = stages["mfa_out"], stages["pooled"]
    channels = len(mfa)
    assert np.abs(pooled[:channels] - mfa.mean(axis=1)).max() > 0.1
    assert np.abs(pooled[channels:] - mfa.std(axis=1)).max() > 0.1


def test_a_channel_that_does_not_move_has_the_floor_as_its_deviation(
    made: Any,
    reweighted: Make,
    speech: Any,
    gguf_of: Make,
    replayed: Make,
) -> None:
    """std = sqrt(max(var, 1e-12)): a dead channel gives 1e-6, not 0 and not sqrt(1e-5)."""

    def dead(state: dict[str, Any]) -> None:
        state["mfa.norm.norm.weight"][5] = 0.0

    found = replayed(gguf_of(reweighted(made.ecapa(), dead)), speech[:50])["pooled"]
    assert found[len(found) // 2 + 5] == pytest.approx(1e-6, rel=1e-9)


def test_the_normaliser_is_stored_and_changes_no_number(
    made: Any, gguf_of: Make, replayed: Make, speech: Any
) -> None:
    """The goldens take the front end's features as they are, not SpeechBrain's own."""
    with_it, without = made.ecapa(), made.ecapa(normalizer=False)
    a = replayed(gguf_of(with_it.folder), speech[:60])
    b = replayed(gguf_of(without.folder), speech[:60])
    np.testing.assert_array_equal(a["encoder_out"], b["encoder_out"])


def test_a_clip_that_is_too_short_to_reflect_is_refused(
    made: Any, gguf_of: Make, invoke: Make, tmp_path: Path
) -> None:
    """The widest padding is 4 frames at dilation 4; the library raises an error there."""
    np.save(tmp_path / "x.npy", np.zeros((4, 80), np.float32))
    ran = invoke("replay", gguf_of(made.ecapa().folder), "--input", tmp_path / "x.npy", code=3)
    assert "reflected at its edges" in ran.err


@pytest.mark.slow
def test_the_full_size_is_proven_now(made: Any, tmp_path: Path) -> None:
    network = made.ecapa(
        channels=(1024, 1024, 1024, 1024, 3072), scale=8, embedding=192, attention=128, se=128
    )
    assert sum(p.numel() for p in network.module.parameters()) == 20_767_552
    done = convert(network.folder, tmp_path / "x.gguf")
    assert done.proof is not None
    assert done.proof.level == "full"
    assert len(done.proof.stages) == 7
    worst = max(d.max_abs for d in done.proof.stages.values())
    assert worst < 5e-3  # of values up to a hundred
    assert min(d.cosine for d in done.proof.stages.values()) > 0.999999
