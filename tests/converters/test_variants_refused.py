"""Files that look like one of our networks and are refused: with the reason, and nothing left.

The files that must come out right are in ``test_variants.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from converters.convert import convert
from fixtures import catalog
from fixtures.variants import Build, optimisers, rewrites
from graphtools import tensors
from graphtools.errors import MissError, UnsupportedError
from graphtools.families import FAMILIES

TINY = catalog.names(committed=True)
NAMES = {str(catalog.EXPORTS[name].family): name for name in TINY}
ALL = tuple(NAMES)


def by_torch(exporter: str, *arguments: Any) -> Build:
    """A build of `fixtures.variants.exporters`, which is imported when it runs: it needs torch."""

    def build(name: str, folder: Path) -> Path:
        from fixtures.variants import exporters

        made: Build = getattr(exporters, exporter)(*arguments)
        return made(name, folder)

    return build


def with_end(*ends: str) -> Build:
    """The network with modules after its embedding."""

    def build(name: str, folder: Path) -> Path:
        from torch import nn

        from fixtures.variants import exporters

        class Normalise(nn.Module):
            def forward(self, x: Any) -> Any:
                return nn.functional.normalize(x, dim=-1)

        made = {
            "L2": Normalise,
            "linear": lambda: nn.Linear(32, 7),
            "softmax": lambda: nn.Softmax(dim=-1),
        }
        return exporters.extended(nn.Sequential(*(made[end]() for end in ends)))(name, folder)

    return build


@dataclass(frozen=True)
class Refused:
    """A file, and parts of the message that must be there; {title} is the family's name."""

    name: str
    build: Build
    cause: str
    where: str
    expected: str
    found: str
    todo: str
    families: tuple[str, ...] = ALL
    slow: bool = True


QUANTISED = ("the model is a quantised export", "QuantizeLinear) -> ", "float weights")
AFTER = ("the network is {title}, but its embedding is not the output",)
BEFORE_IT = ("the embedding", "between them", "export the model without what follows")
REFUSED = [
    Refused(
        "onnxruntime, all optimisations",
        optimisers.runtime("ALL"),
        "the model is optimised for one CPU",
        "(com.microsoft.nchwc.Conv) -> ",
        "operators of the ONNX standard",
        "com.microsoft.nchwc.",
        "use the original export",
        slow=False,
    ),
    Refused("dynamic int8", optimisers.int8(), *QUANTISED, "ConvInteger", "use the float one"),
    Refused("QDQ int8", optimisers.qdq(), *QUANTISED, "DequantizeLinear", "use the float one"),
    Refused(
        "input [B, 80, T]",
        by_torch("transposed"),
        "the model takes its features transposed",
        'input "feats" to node',
        "[B, T, 80], and a Transpose of the last two axes before the first layer",
        "feats: f32 [B, 80, T], and Unsqueeze in between",
        "export the model so that it transposes the features itself",
    ),
    Refused(
        "an extra L2 normalisation",
        with_end("L2"),
        *AFTER,
        "(ReduceL2) -> ",
        BEFORE_IT[0],
        "ReduceL2, Clip, Shape, Expand, Div between them",
        BEFORE_IT[2],
    ),
    Refused("a softmax", with_end("softmax"), *AFTER, "(Softmax) -> ", *BEFORE_IT),
    Refused(
        "a classifier",
        with_end("linear", "softmax"),
        *AFTER,
        "(Gemm) -> ",
        BEFORE_IT[0],
        "Gemm, Softmax between them",
        BEFORE_IT[2],
    ),
    Refused(
        "WeSpeaker's own class, its mean subtracted",
        by_torch("wespeaker", "random"),
        *AFTER,
        "(Sub) -> ",
        *BEFORE_IT,
        families=("eres2net", "campplus"),
    ),
    Refused(
        "two networks in one file",
        rewrites.with_another("resnet34_tiny"),
        "the network can be read in more than one way",
        "",
        "",
        "{title} at output 'embs'",
        "export it with the embedding as its only output",
        families=("eres2net", "campplus"),
        slow=False,
    ),
]


def cases() -> Iterator[Any]:
    for case in REFUSED:
        for family in case.families:
            marks = [pytest.mark.slow] if case.slow else []
            yield pytest.param(case, family, id=f"{case.name}, {family}", marks=marks)


@pytest.mark.parametrize(("case", "family"), list(cases()))
def test_is_refused_with_the_reason_and_nothing_is_written(
    case: Refused, family: str, tmp_path: Path
) -> None:
    path = case.build(NAMES[family], tmp_path)
    before = {p.name for p in tmp_path.iterdir()}
    with pytest.raises(UnsupportedError) as caught:
        convert(path, tmp_path / "x.gguf")
    error, title = caught.value, FAMILIES[family].title
    assert error.file == str(path)
    for wanted, said in (
        (case.cause, error.cause),
        (case.where, error.where),
        (case.expected, error.expected),
        (case.found, error.found),
        (case.todo, error.todo),
    ):
        assert wanted.format(title=title) in (said or "")
    assert {p.name for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", TINY)
def test_padded_channels_are_never_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weight that was blocked for one processor has channels of zeros that no network has."""
    path = optimisers.runtime("ALL")(name, tmp_path)
    read: list[str] = []
    original = tensors.LazyTensor.read

    def watched(tensor: tensors.LazyTensor) -> tensors.Array:
        if tensor.dtype.is_float and len(tensor.shape) > 1:
            read.append(tensor.name)
        return original(tensor)

    monkeypatch.setattr(tensors.LazyTensor, "read", watched)
    with pytest.raises(MissError, match="optimised for one CPU"):
        convert(path, tmp_path / "x.gguf")
    assert read == []
