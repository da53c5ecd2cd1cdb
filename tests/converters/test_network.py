"""Names are pulled from flat lists by a running index, as an engine does."""

from __future__ import annotations

from typing import Any

import pytest

from converters.manifest import Entry, Manifest
from converters.network import pull
from graphtools.errors import UnsupportedError

SLOTS = ["stem", "b.conv1", "b.conv2"]


def manifest(**lists: Any) -> Manifest:
    entries = tuple(Entry(key, "[string]", value, "test") for key, value in lists.items())
    return Manifest("voicedetect", "m", entries, ())


def test_position_decides() -> None:
    found = pull(manifest(w=("c", "a", "b")), SLOTS, {"weight": "w"})
    assert found == {
        ("stem", "weight"): "c",
        ("b.conv1", "weight"): "a",
        ("b.conv2", "weight"): "b",
    }


def test_an_empty_name_is_no_bias_where_that_is_allowed() -> None:
    lists = manifest(w=("a", "b", "c"), x=("", "d", ""))
    found = pull(lists, SLOTS, {"weight": "w", "bias": "x"}, optional=("bias",))
    assert [place for place in found if place[1] == "bias"] == [("b.conv1", "bias")]


def test_order_is_by_slot_then_by_role() -> None:
    lists = manifest(w=("a", "b", "c"), x=("d", "e", "f"))
    found = pull(lists, SLOTS, {"weight": "w", "bias": "x"}, optional=("bias",))
    assert list(found.values()) == ["a", "d", "b", "e", "c", "f"]


@pytest.mark.parametrize("listed", [("a", "b"), ("a", "b", "c", "d")])
def test_a_list_of_another_length_is_refused(listed: tuple[str, ...]) -> None:
    with pytest.raises(UnsupportedError, match="'w' does not fit") as caught:
        pull(manifest(w=listed), SLOTS, {"weight": "w"})
    assert caught.value.expected == "3 names"
    assert caught.value.found == str(len(listed))


def test_an_absent_list_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="'x'"):
        pull(manifest(w=("a", "b", "c")), SLOTS, {"weight": "w", "bias": "x"})


def test_stage_weights_list_what_is_read_before_each_stage(manifest_of: Any) -> None:
    from converters.replay import Replay
    from fixtures import catalog

    path = catalog.path("resnet34_tiny")
    weights = Replay.of(manifest_of(path)).network.stage_weights()
    assert list(weights)[:2] == ["stem", "layer1.0"]
    with_shortcut = {"layer2.0", "layer3.0", "layer4.0"}
    for stage, listed in weights.items():
        if stage.startswith("layer"):
            assert len(listed) == (6 if stage in with_shortcut else 4)
    assert (len(weights["stem"]), weights["pooled"]) == (2, ())
    every = [name for names in weights.values() for name in names]
    assert every == [t.name for t in manifest_of(path).tensors]
    assert weights["encoder_out"] == ("model.seg_1.weight", "model.seg_1.bias", "mean_vec")
