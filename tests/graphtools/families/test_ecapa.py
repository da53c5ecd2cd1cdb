"""ECAPA-TDNN: its configuration from tensor shapes, its pull order, its stages."""

from __future__ import annotations

import pytest

from graphtools.errors import UnsupportedError
from graphtools.families import FAMILIES
from graphtools.families.ecapa import Config, config_of, matches
from graphtools.names import bind_names

Shapes = dict[str, tuple[int, ...]]


def shapes(blocks: int = 3, scale: int = 4, shortcut: int | None = None) -> Shapes:
    """The convolutions of a checkpoint, 8 channels wide: name to shape."""
    found: Shapes = {"blocks.0.conv.conv.weight": (8, 80, 5)}
    for block in range(1, blocks + 1):
        name = f"blocks.{block}"
        found[f"{name}.tdnn1.conv.conv.weight"] = (8, 8, 1)
        for i in range(scale - 1):
            found[f"{name}.res2net_block.blocks.{i}.conv.conv.weight"] = (2, 2, 3)
        found[f"{name}.tdnn2.conv.conv.weight"] = (8, 8, 1)
        found[f"{name}.se_block.conv1.conv.weight"] = (4, 8, 1)
        found[f"{name}.se_block.conv2.conv.weight"] = (8, 4, 1)
        if shortcut == block:
            found[f"{name}.shortcut.conv.weight"] = (8, 8, 1)
    found["mfa.conv.conv.weight"] = (24, 8 * blocks, 1)
    found["asp.tdnn.conv.conv.weight"] = (4, 72, 1)
    found["asp.conv.conv.weight"] = (24, 4, 1)
    return found | {"asp_bn.norm.weight": (48,), "fc.conv.weight": (6, 48, 1)}


def test_a_checkpoint_is_known_by_its_names() -> None:
    assert matches(shapes())
    for name in ("blocks.0.conv.conv.weight", "asp.conv.conv.weight", "fc.conv.weight"):
        assert not matches({n: s for n, s in shapes().items() if n != name})


@pytest.mark.parametrize(
    ("given", "config"),
    [
        (shapes(), Config(4, (5, 3, 3, 3, 1), 4, (False, False, False))),
        (shapes(blocks=2, scale=8), Config(3, (5, 3, 3, 1), 8, (False, False))),
        (shapes(shortcut=2), Config(4, (5, 3, 3, 3, 1), 4, (False, True, False))),
    ],
)
def test_configuration_is_read_off_the_shapes(given: Shapes, config: Config) -> None:
    assert config_of(given) == config


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"blocks.0.conv.conv.weight": None}, "blocks.0.conv.conv.weight"),
        ({"mfa.conv.conv.weight": (24, 24)}, "mfa.conv.conv.weight"),
        ({"asp.tdnn.conv.conv.weight": (4, 24, 1)}, "no global context"),
        ({"blocks.2.res2net_block.blocks.2.conv.conv.weight": None}, "another Res2Net scale"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, tuple[int, ...] | None], said: str) -> None:
    given: dict[str, tuple[int, ...] | None] = {**shapes(), **change}
    with pytest.raises(UnsupportedError, match=said) as caught:
        config_of({name: shape for name, shape in given.items() if shape is not None})
    assert caught.value.expected
    assert caught.value.found


@pytest.mark.parametrize("lost", ["res2net_block.blocks.2", "shortcut"])
def test_a_module_that_lost_its_weight_is_still_there(lost: str) -> None:
    """Its bias shows it, so that the weight is what is missing and not the module."""
    whole = shapes(shortcut=1)
    given = whole | {f"blocks.1.{lost}.conv.bias": (8,)}
    given = {n: s for n, s in given.items() if n.removeprefix("blocks.1.") != f"{lost}.conv.weight"}
    assert config_of(given) == config_of(whole)


def test_a_block_that_lost_its_first_weight_is_still_there() -> None:
    given = shapes() | {"blocks.1.tdnn1.conv.conv.bias": (8,)}
    del given["blocks.1.tdnn1.conv.conv.weight"]
    with pytest.raises(UnsupportedError, match=r"blocks\.1\.tdnn1\.conv\.conv\.weight"):
        config_of(given)


def test_a_block_that_is_missing_between_others_is_not_passed_over() -> None:
    given = {name: shape for name, shape in shapes().items() if not name.startswith("blocks.2.")}
    with pytest.raises(UnsupportedError):
        config_of(given)


def test_slots_are_the_checkpoints_module_paths_and_every_tensor_is_used() -> None:
    given = shapes(shortcut=2)
    names = [n for n in given if n.endswith("conv.weight")]
    convs = [name.removesuffix(".weight") for name in names]
    norms = [c.removesuffix("conv.conv") + "norm.norm" for c in convs if c.endswith("conv.conv")]
    norms = [n for n in norms if not n.startswith("asp.norm")]
    template = FAMILIES["ecapa"].template(config_of(given))
    assert {s.slot for s in template.slots("conv")} == set(convs)
    assert {s.slot for s in template.slots("bn")} == {*norms, "asp_bn.norm"}
    parts = ("weight", "bias", "running_mean", "running_var")
    names += [f"{norm}.{part}" for norm in (*norms, "asp_bn.norm") for part in parts]
    assert set(bind_names(template, names).values()) == set(names)


def test_stages() -> None:
    template = FAMILIES["ecapa"].template(config_of(shapes()))
    assert template.stages() == (
        *("block0_out", "block1_out", "block2_out", "block3_out"),
        *("mfa_out", "pooled", "encoder_out"),
    )


def test_dilations_grow_with_the_blocks_and_edges_are_reflected() -> None:
    template = FAMILIES["ecapa"].template(config_of(shapes()))
    dilations = {
        step.slot.split(".")[1]: step.dilation
        for step in template.slots("conv")
        if "res2net_block" in step.slot
    }
    assert dilations == {"1": (2,), "2": (3,), "3": (4,)}
