"""What holds for every family, shown on real exports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from fixtures import catalog
from graphtools import families
from graphtools.families import FAMILIES, Family
from graphtools.graph import Graph
from graphtools.match import Role
from graphtools.numpy_ops import NumpyOps
from graphtools.recover import Recovered
from graphtools.tensors import Array

Known = Callable[[str], Recovered]

TINY = catalog.names(committed=True)
FULL = [n for n in catalog.names(committed=False) if catalog.EXPORTS[n].family]
EXPORTS = [*TINY, *(pytest.param(name, marks=pytest.mark.slow) for name in FULL)]


@pytest.mark.parametrize("name", EXPORTS)
def test_pull_order_is_the_order_of_an_untouched_export(recovered: Known, name: str) -> None:
    """Torch's exporter writes nodes as the forward calls them, which no family here knows of."""
    file = onnx.load(catalog.path(name))
    kinds = ("Conv", "BatchNormalization")
    expected = [index for index, node in enumerate(file.graph.node) if node.op_type in kinds]
    net = recovered(name)
    template = net.family.template(net.config)
    found = [net.binding.layers[step.slot].node for step in template.slots("conv", "bn")]
    assert found == expected


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_is_its_own_family(recovered: Known, name: str) -> None:
    assert recovered(name).family.name == catalog.EXPORTS[name].family


@pytest.mark.parametrize("name", EXPORTS)
def test_every_guess_that_binds_is_the_configuration(recovered: Known, name: str) -> None:
    net = recovered(name)
    assert net.family.guess is not None
    assert net.config in list(net.family.guess(net.graph))


class Bound:
    """Weights as recovery bound them."""

    def __init__(self, net: Recovered) -> None:
        self.net = net

    def tensor(self, slot: str, role: Role) -> Array | None:
        found = self.net.binding.layers[slot].tensors.get(role)
        return None if found is None else found.read()

    def stride(self, slot: str) -> int | None:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("frames", [298, 41])
def test_a_forward_over_recovered_weights_computes_the_torch_module(
    recovered: Known, name: str, frames: int
) -> None:
    net = recovered(name)
    features = np.random.default_rng(frames).normal(0.0, 4.0, (frames, 80))
    constants: Mapping[str, float] = {c.name: c.value for c in net.binding.constants.values()}
    shapes: dict[str, tuple[int, ...]] = {}

    def seen(stage: str, value: Array) -> Array:
        shapes[stage] = value.shape
        return value

    # Torch divides the last segment of CAM++'s context by its valid frames.
    ops = NumpyOps(Bound(net), {**constants, "cam.valid": 1.0}, seen)
    found = net.family.forward(ops, features.T, net.config)
    with torch.no_grad():
        module = catalog.EXPORTS[name].module().double()
        expected = module(torch.from_numpy(features)[None])[0].numpy()
    # The export folded norms in float32; behind 40 to 200 layers that is 1e-5 of the largest.
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
    assert list(shapes) == list(net.binding.template.stages())
    assert all(len(shape) in (1, 2, 3) for shape in shapes.values())
    assert ops.used >= set(net.binding.layers)


def test_families_are_listed_under_their_own_names() -> None:
    assert all(family.name == name for name, family in FAMILIES.items())
    assert len({family.title for family in FAMILIES.values()}) == len(FAMILIES)


def test_speaker_encoders_take_features_and_the_others_samples() -> None:
    assert {name for name, f in FAMILIES.items() if f.takes == "samples"} == {"moss", "wav2vec2"}
    assert {f.takes for f in FAMILIES.values()} == {"features", "samples"}


def test_recovery_tries_the_families_that_can_guess() -> None:
    without = {name for name, family in FAMILIES.items() if family.guess is None}
    assert without == {"ecapa", "moss", "wav2vec2"}  # they come as state dicts


def test_every_file_of_the_folder_is_a_family() -> None:
    folder = Path(families.__file__).parent
    assert sorted(FAMILIES) == sorted(p.stem for p in folder.glob("[a-z]*.py"))


@pytest.mark.parametrize("takes", ["features", "samples"])
def test_a_template_begins_with_what_the_family_takes(takes: str) -> None:
    family = Family("f", "F", takes, lambda o, x, config: o.relu(x))  # type: ignore[arg-type]
    assert family.template(None).steps[0].rank == {"features": 3, "samples": 2}[takes]


@pytest.mark.parametrize("family", [f for f in FAMILIES.values() if f.guess], ids=lambda f: f.name)
def test_a_guess_always_offers_something(family: Family, parse: Callable[..., Graph]) -> None:
    """So that a miss can be told against something."""
    assert family.guess is not None
    for text in (
        "g (float[2] x) => (float[2] y) { y = Relu (x) }",
        "g (float[2] x) => (float[2] x) { y = Relu (x) }",
        "g (float[2] x) => (float[2] y) { y = Clip (h) h = Add (x, x) }",
    ):
        assert list(family.guess(parse(text)))
