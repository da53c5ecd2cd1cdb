"""Random rewrites that change nothing, composed at random over random networks: the manifest is
the same, or the file is refused. Never a crash, never another manifest.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from converters.archs import arch_of_family
from converters.convert import convert, describe, require_recovered
from converters.manifest import Manifest
from fixtures.variants.moves import EXACT, ROUNDING, Move
from graphtools.errors import Error
from graphtools.graph import build
from graphtools.onnx_file import load

Values = list[tuple[str, str, list[Any]]]

# Files of each half; a thousand take a few minutes of one core.
FILES = int(os.environ.get("REWRITE_FILES", "500"))
# Folding in float64 and rounding once is a unit in the last place from folding twice.
RTOL, ATOL = 4e-6, 2e-6


def draw_network(draw: random.Random) -> tuple[str, dict[str, Any]]:
    """A constructor of `fixtures.upstream` with random widths, depths and embedding sizes."""
    family = draw.choice(["resnet", "resnet", "eres2net", "eres2net", "campplus"])
    size = draw.randrange(5, 48)
    if family == "campplus":
        return family, {
            "embedding_size": size,
            "growth_rate": draw.randrange(2, 6),
            "bn_size": draw.randrange(2, 5),
            "init_channels": 2 * draw.randrange(4, 9),
            "fcm_channels": draw.randrange(2, 6),
        }
    blocks = [draw.randrange(1, 4) for _ in range(4)]
    if family == "eres2net":
        return family, {"num_blocks": blocks, "m_channels": 4, "embedding_size": size}
    mean = draw.choice([None, "zero", "random"])
    width = draw.randrange(2, 7)
    return family, {"num_blocks": blocks, "m_channels": width, "embed_dim": size, "mean_vec": mean}


@dataclass
class Base:
    """A network as torch exports it for use and for training, and its manifest."""

    text: str
    files: tuple[bytes, bytes]
    values: Values


@dataclass
class Tally:
    """What became of the generated files."""

    outcomes: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"{dict(self.outcomes)}", *self.told])


def values_of(manifest: Manifest) -> Values:
    """(key, type, values) in order, every name replaced by the tensors that it stands for."""
    tensors = {tensor.name: tensor for tensor in manifest.tensors}

    def behind(value: Any) -> Iterator[Any]:
        if isinstance(value, tuple):
            for one in value:
                yield from behind(one)
            return
        parts = [f"{value}.{p}" for p in ("weight", "bias", "running_mean", "running_var")]
        names = [value] if value in tensors else [name for name in parts if name in tensors]
        yield from [tensors[name].read() for name in names] or [value]

    return [(e.key, e.type, list(behind(e.value))) for e in manifest.entries]


def manifest_values(path: Path) -> Values:
    net = require_recovered(build(load(path)))
    return values_of(describe(net, arch_of_family(net.family.name), "model"))


def differs(found: Values, wanted: Values, exact: bool) -> str:
    """The first key whose value is another; "" where there is none."""
    for (key, kind, ours), (other, other_kind, theirs) in zip(found, wanted, strict=True):
        if (key, kind, len(ours)) != (other, other_kind, len(theirs)):
            return key
        for one, two in zip(ours, theirs, strict=True):
            if not isinstance(one, np.ndarray) or not isinstance(two, np.ndarray):
                same = isinstance(one, type(two)) and one == two
            elif exact or one.shape != two.shape:
                same = one.shape == two.shape and one.tobytes() == two.tobytes()
            else:
                same = np.allclose(one, two, RTOL, ATOL)
            if not same:
                return key
    return ""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Base]:
    folder = tmp_path_factory.mktemp("bases")

    @cache
    def make(seed: int) -> Base:
        from fixtures import upstream
        from fixtures.export import export_legacy

        constructor, arguments = draw_network(random.Random(seed))
        module = getattr(upstream, constructor)(**arguments, seed=seed)
        paths = [folder / f"{seed}-{fold}.onnx" for fold in (True, False)]
        for path, fold in zip(paths, (True, False), strict=True):
            export_legacy(module, path, opset=13, fold=fold)
        values = manifest_values(paths[0])
        first, second = (path.read_bytes() for path in paths)
        return Base(f"{constructor}({arguments})", (first, second), values)

    return make


def rewritten(base: Base, draw: random.Random) -> tuple[onnx.ModelProto, list[Move], bool]:
    """A composition of one to eight moves; whether it keeps every weight to the bit."""
    training = draw.random() < 0.4
    proto = onnx.ModelProto.FromString(base.files[training])
    choices = [*EXACT, *ROUNDING, *ROUNDING] if draw.random() < 0.5 else [*EXACT]
    moves = [draw.choice(choices) for _ in range(draw.randrange(1, 9))]
    for move in moves:
        move(proto, draw)
    return proto, moves, not training and not set(moves) & set(ROUNDING)


def outcome(path: Path, base: Base, exact: bool) -> str:
    try:
        key = differs(manifest_values(path), base.values, exact)
    except Error as error:
        return f"refused: {error}"
    except Exception as error:
        return f"crashed: {error!r}"
    return f"wrong: {key}" if key else "right"


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])
def test_the_manifest_stays_the_same(
    half: int, base: Callable[[int], Base], tmp_path: Path, record_property: Callable[..., None]
) -> None:
    """Each half runs on a core of its own; every eighth file is proven too."""
    tally = Tally()
    for number in range(FILES):
        seed = 2 * number + half
        draw = random.Random(seed)
        made = base(2 * (number // 40) + half)
        proto, moves, exact = rewritten(made, draw)
        path = tmp_path / "model.onnx"
        path.write_bytes(proto.SerializeToString())
        found = outcome(path, made, exact)
        if found == "right" and number % 8 == 0:
            assert convert(path, tmp_path / "x.gguf").proof, (seed, made.text, moves)
        tally.outcomes[found.split(":")[0]] += 1
        if found != "right":
            tally.told.append(f"{seed}: {made.text}, {[m.__name__ for m in moves]}: {found}")
    record_property("outcomes", dict(tally.outcomes))
    print(tally)
    assert tally.outcomes["wrong"] == tally.outcomes["crashed"] == 0, tally
    assert tally.outcomes["right"] >= 0.995 * FILES, tally
