"""One trained network, any export: the manifest of every file is that of the plain one.

Manifests are compared in pull order by value: keys, strides, and the arrays behind the names. The
names are the file's own. What is refused instead is in ``test_variants_refused.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from converters.compare import cosine
from converters.convert import Conversion, convert
from converters.manifest import Manifest
from converters.replay import replay
from fixtures import catalog
from fixtures.variants import Build, optimisers, rewrites

Array = npt.NDArray[Any]

TINY = catalog.names(committed=True)
NAMES = {str(catalog.EXPORTS[name].family): name for name in TINY}


def by_torch(exporter: str, *arguments: Any, **options: Any) -> Build:
    """A build of `fixtures.variants.exporters`, which is imported when it runs: it needs torch."""

    def build(name: str, folder: Path) -> Path:
        from fixtures.variants import exporters

        made: Build = getattr(exporters, exporter)(*arguments, **options)
        return made(name, folder)

    return build


@dataclass(frozen=True)
class Variant:
    """A file of the network, and what may differ from the plain one's manifest.

    Attributes:
        rtol, atol: of every element of every tensor; 0 asks for the same bytes.
        var_eps: what the file's pooling adds to a variance where that is not what the plain one
            adds, by family.
        note: what the user is told, in part.
        apart: the largest distance of the replayed embedding, relative to its largest element.
        slow: torch's exporters or a quantiser run.
    """

    name: str
    build: Build
    rtol: float = 0.0
    atol: float = 0.0
    var_eps: dict[str, float] = field(default_factory=dict)
    apart: float = 0.0
    note: str = ""
    families: tuple[str, ...] = tuple(NAMES)
    slow: bool = False


def torchs(name: str, build: Build, **differences: Any) -> Variant:
    """Torch's exporters write the values that it has, to the bit."""
    return Variant(name, build, slow=True, **differences)


# Whoever folds a BatchNorm in float32 is some units in the last place from float64 rounded once.
FOLDED: dict[str, Any] = {"rtol": 2e-6, "atol": 1e-6, "apart": 2e-5}
# 11 bits; below 6e-5 fewer, and below 6e-8 none.
HALF: dict[str, Any] = {"rtol": 2**-11, "atol": 2**-24, "apart": 0.05}

# Torch's exporter by torch.export drops constants up to 1e-8: ERes2Net's epsilon is one.
DROPPED = {"eres2net": 0.0}
# Half precision has no 1e-7, which is rounded, and no 1e-8, which is raised to its least number.
ROUNDED = {"resnet": 2.0**-23, "eres2net": 2.0**-24}

VARIANTS = [
    torchs("legacy, opset 11", by_torch("legacy", 11)),
    torchs("legacy, opset 13", by_torch("legacy", 13)),
    torchs("legacy, opset 14", by_torch("legacy", 14)),
    torchs("legacy, opset 17", by_torch("legacy", 17)),
    torchs("legacy, 198 frames", by_torch("legacy", frames=198), note="takes 198 frames only"),
    torchs("legacy, 200 frames", by_torch("legacy", frames=200), note="takes 200 frames only"),
    torchs("legacy, batch of 1", by_torch("legacy", batch_fixed=True)),
    torchs("legacy, no constant folding", by_torch("unfolded_constants"), **FOLDED),
    torchs("legacy, BatchNorms unfolded", by_torch("legacy", fold=False), **FOLDED),
    torchs("dynamo, opset 18", by_torch("dynamo", 18), var_eps=DROPPED, **FOLDED),
    torchs("dynamo, opset 20", by_torch("dynamo", 20), var_eps=DROPPED, **FOLDED),
    Variant("onnxslim", optimisers.slimmed()),
    Variant("onnxsim", optimisers.simplified()),
    Variant("onnxruntime, basic", optimisers.runtime("BASIC")),
    Variant("onnxruntime, extended", optimisers.runtime("EXTENDED")),
    Variant("f16, casts at the ends", optimisers.halved(True), var_eps=ROUNDED, **HALF),
    Variant("f16 throughout", optimisers.halved(False), var_eps=ROUNDED, **HALF),
    Variant("upgraded to opset 17", optimisers.upgraded(17)),
    Variant("upgraded to opset 20", optimisers.upgraded(20)),
    Variant("shuffled", rewrites.shuffled(1)),
    Variant("in another valid order", rewrites.ordered(2)),
    Variant("renamed", rewrites.renamed(3)),
    Variant("weights as Constant nodes", rewrites.as_constant_nodes()),
    Variant("weights as graph inputs too", rewrites.as_graph_inputs()),
    Variant("weights in one file", rewrites.external(one_file=True)),
    Variant("weights in a file each", rewrites.external(one_file=False)),
    Variant("a link into blobs", rewrites.linked()),
    torchs(
        "WeSpeaker's own class",
        by_torch("wespeaker", None),
        families=("eres2net", "campplus"),
        # CAM++'s 1e-7 has no key: the engine adds nothing.
        var_eps={"eres2net": float(np.float32(1e-7))},
        apart=1e-4,
    ),
    torchs(
        "WeSpeaker's own class, zeros subtracted",
        by_torch("wespeaker", "zero"),
        families=("eres2net", "campplus"),
        var_eps={"eres2net": float(np.float32(1e-7))},
        apart=1e-4,
    ),
]


def cases() -> Iterator[Any]:
    for variant in VARIANTS:
        for family in variant.families:
            marks = [pytest.mark.slow] if variant.slow else []
            yield pytest.param(variant, family, id=f"{variant.name}, {family}", marks=marks)


@cache
def features() -> Array:
    from converters.probes import probes

    return probes()[0].features[:173]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Conversion, Array]]:
    """The conversion of a tiny export as it is, and the embedding that its file computes."""
    folder = tmp_path_factory.mktemp("plain")

    @cache
    def make(name: str) -> tuple[Conversion, Array]:
        done = convert(catalog.path(name), folder / f"{name}.gguf", name="model")
        return done, replay(done.files[0], features()).encoder_out

    return make


def values_of(manifest: Manifest) -> list[tuple[str, str, list[Any]]]:
    """(key, type, values) in order, every name replaced by the tensors that it stands for."""
    tensors = {tensor.name: tensor for tensor in manifest.tensors}

    def behind(value: Any) -> list[Any]:
        if isinstance(value, tuple):
            return [part for one in value for part in behind(one)]
        if value in tensors:
            return [tensors[value].read()]
        parts = [f"{value}.{p}" for p in ("weight", "bias", "running_mean", "running_var")]
        return [tensors[p].read() for p in parts] if parts[0] in tensors else [value]

    return [(e.key, e.type, behind(e.value)) for e in manifest.entries]


def require_same(found: Manifest, wanted: Manifest, variant: Variant, family: str) -> None:
    assert len(found.tensors) == len(wanted.tensors)
    assert all(len(behind) for _, _, behind in values_of(wanted))
    pairs = zip(values_of(found), values_of(wanted), strict=True)
    for (key, kind, ours), (other_key, other_kind, theirs) in pairs:
        assert (key, kind, len(ours)) == (other_key, other_kind, len(theirs))
        if key.endswith(".var_eps") and family in variant.var_eps:
            assert ours == [variant.var_eps[family]], key
            continue
        for at, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert isinstance(one, np.ndarray) == isinstance(other, np.ndarray), (key, at)
            if not isinstance(one, np.ndarray):
                assert one == other, (key, at)
            elif not variant.rtol:
                assert one.tobytes() == other.tobytes(), (key, at)
            else:
                np.testing.assert_allclose(one, other, variant.rtol, variant.atol, err_msg=key)


@pytest.mark.parametrize(("variant", "family"), list(cases()))
def test_the_manifest_is_that_of_the_plain_export(
    variant: Variant, family: str, plain: Callable[[str], tuple[Conversion, Array]], tmp_path: Path
) -> None:
    name = NAMES[family]
    done = convert(variant.build(name, tmp_path), tmp_path / "x.gguf", name="model")
    assert done.proof
    wanted, embedding = plain(name)
    require_same(done.manifest, wanted.manifest, variant, family)
    found = replay(done.files[0], features()).encoder_out
    assert np.abs(found - embedding).max() <= variant.apart * np.abs(embedding).max()
    assert cosine(found, embedding) > (0.999 if variant.rtol > 1e-4 else 0.999999)
    notes = "\n".join(done.notes)
    assert variant.note in notes
    assert ("half-precision weights are widened" in notes) == variant.name.startswith("f16")
    # 200 frames are one whole segment after CAM++'s stride.
    whole = (variant.name, family) == ("legacy, 200 frames", "campplus")
    assert ("200 frames do not exercise the segment rule" in notes) == whole
