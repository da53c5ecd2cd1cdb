"""Every value of every manifest is changed once, and the proof has to refuse each such file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.checkpoint import Described, prove
from converters.emit import emit
from converters.manifest import Entry, Manifest
from converters.reference import ecapa, wav2vec2
from graphtools.tensors import DType, Held, LazyTensor

Make = Callable[..., Any]

MIN_KILL_RATE = 0.999


@dataclass(frozen=True)
class Mutant:
    label: str
    manifest: Manifest


def other_values(value: Any) -> Iterator[Any]:
    """Values near this one; of an array one element at a time, and without its last."""
    if isinstance(value, tuple):
        for i, item in enumerate(value):
            for other in other_values(item):
                yield (*value[:i], other, *value[i + 1 :])
        if len(value) > 1:
            yield value[:-1]
            yield value[::-1]
        yield (*value, value[-1])
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, 2 * value, *([value - 1] if value else []))
    elif isinstance(value, float):
        yield float(np.float32(value * 1.01 + 1e-6))
    else:
        yield from (f"{value}x", "")


def of_keys(manifest: Manifest) -> Iterator[Mutant]:
    for i, entry in enumerate(manifest.entries):
        rest = (*manifest.entries[:i], *manifest.entries[i + 1 :])
        yield Mutant(f"without {entry.key}", replace(manifest, entries=rest))
        for other in other_values(entry.value):
            if other == entry.value:
                continue
            changed = list(manifest.entries)
            changed[i] = replace(entry, value=other)
            label = f"{entry.key} = {other!r}"
            yield Mutant(label, replace(manifest, entries=tuple(changed)))
        if entry.type == "u32":
            changed = list(manifest.entries)
            changed[i] = replace(entry, type="i32")
            yield Mutant(f"{entry.key} as i32", replace(manifest, entries=tuple(changed)))
    yield Mutant("another architecture", replace(manifest, architecture="voicedetectx"))
    extra = Entry("voicedetect.extra", "u32", 1, "")
    yield Mutant("one key more", replace(manifest, entries=(*manifest.entries, extra)))


def with_values(manifest: Manifest, values: dict[str, Any]) -> Manifest:
    def changed(tensor: LazyTensor) -> LazyTensor:
        if tensor.name not in values:
            return tensor
        array = np.ascontiguousarray(values[tensor.name], np.float32)
        return LazyTensor(tensor.name, array.shape, DType.F32, Held(tensor.name, array))

    return replace(manifest, tensors=tuple(map(changed, manifest.tensors)))


def of_tensors(manifest: Manifest) -> Iterator[Mutant]:
    rng = np.random.default_rng(7)
    by_shape: dict[tuple[int, ...], list[LazyTensor]] = {}
    for i, tensor in enumerate(manifest.tensors):
        values = tensor.read()
        yield Mutant(
            f"{tensor.name} x 1.01", with_values(manifest, {tensor.name: values * np.float32(1.01)})
        )
        one = values.copy()
        at = rng.integers(one.size)
        one.flat[at] += np.float32(0.01)
        yield Mutant(f"{tensor.name}[{at}] + 0.01", with_values(manifest, {tensor.name: one}))
        rest = (*manifest.tensors[:i], *manifest.tensors[i + 1 :])
        yield Mutant(f"without {tensor.name}", replace(manifest, tensors=rest))
        by_shape.setdefault(tensor.shape, []).append(tensor)
    for shape, group in by_shape.items():
        # Each with the one after it: every tensor is in an exchange, and they are not thousands.
        for a, b in itertools.pairwise(group):
            x, y = a.read(), b.read()
            assert not np.array_equal(x, y), f"{a.name} and {b.name} are equal: a weak fixture"
            yield Mutant(
                f"{a.name} <-> {b.name} {list(shape)}",
                with_values(manifest, {a.name: y, b.name: x}),
            )
    array = np.ones(3, np.float32)
    extra = LazyTensor("extra", (3,), DType.F32, Held("extra", array))
    yield Mutant("one tensor more", replace(manifest, tensors=(*manifest.tensors, extra)))


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library runs once per input: no mutant changes what it is run on."""
    for module in (ecapa, wav2vec2):
        real, known = module.stages, {}

        def stages(source: Any, arch: str, normalize: bool, real: Any = real, known: Any = known):  # type: ignore[no-untyped-def]
            run = known.setdefault("run", real(source, arch, normalize))

            def once(values: Any) -> Any:
                key = values.tobytes()
                if key not in known:
                    known[key] = run(values)
                return known[key]

            return once

        monkeypatch.setattr(module, "stages", stages)


def survivors(
    mutants: list[Mutant], described: Described, folder: Path
) -> tuple[list[str], list[str]]:
    """The mutants that are called proven, and those at which the proof itself breaks down."""
    alive, broken = [], []
    for mutant in mutants:
        path = folder / "mutant.gguf"
        with emit(mutant.manifest, path):
            pass
        try:
            if prove(path, described):
                alive.append(mutant.label)
        except Exception as error:
            broken.append(f"{mutant.label}: {error!r}")
    return alive, broken


@pytest.mark.slow
@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("arch", ["ecapa_tdnn", "wav2vec2_emotion", "wav2vec2_age_gender"])
@pytest.mark.parametrize("kind", ["keys", "tensors"])
def test_the_proof_refuses_every_mutant(arch: str, kind: str, made: Any, tmp_path: Path) -> None:
    described = made.named(arch).described()
    path = tmp_path / "x.gguf"
    with emit(described.manifest, path):
        pass
    assert prove(path, described).level == "full"
    assert prove(path, described)
    mutants = list((of_keys if kind == "keys" else of_tensors)(described.manifest))
    assert len(mutants) > (60 if kind == "keys" else 300)
    alive, broken = survivors(mutants, described, tmp_path)
    rate = 1 - len(alive) / len(mutants)
    print(f"{arch} {kind}: {rate:.4%} of {len(mutants)} killed, alive: {alive}")
    assert rate >= MIN_KILL_RATE, f"{rate:.3%} of {len(mutants)} killed; alive: {alive}"
    assert alive == []
    # Refused is refused with a reason: a file like that may reach `replay` too.
    assert broken == []


# What the comparison with the library alone does not see, and why. (Equality with the source
# sees all of it: this shows how sharp the second instrument is by itself.)
BLIND = {
    "ecapa_tdnn": {
        "mean_var_norm_emb.glob_mean": "not part of the network",
        "mean_var_norm_emb.glob_std": "not part of the network",
        # A shift that is the same at every frame goes away in the softmax over time.
        "asp.conv.conv.bias": "the softmax takes it out",
    },
    "wav2vec2_emotion": {
        "w2v2.masked_spec_embed": "training only",
        "w2v2.feature_extractor.conv_layers.0.conv.weight": "the group norm takes its scale out",
        "w2v2.encoder.pos_conv_embed.conv.weight_v": "the weight norm takes its scale out",
        **{
            f"w2v2.encoder.layers.{i}.attention.k_proj.bias": "the softmax takes it out"
            for i in range(4)
        },
    },
}


@pytest.mark.slow
@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("arch", list(BLIND))
def test_the_library_alone_sees_every_tensor_that_takes_part(
    arch: str, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tensor larger by half, with keys and bytes taken on trust."""
    monkeypatch.setattr("converters.checkpoint._check_keys", lambda *_: None)
    monkeypatch.setattr("converters.checkpoint._check_data", lambda *_: 0)
    described = made.named(arch).described()
    manifest = described.manifest
    mutants = [
        Mutant(t.name, with_values(manifest, {t.name: t.read() * np.float32(1.5)}))
        for t in manifest.tensors
    ]
    alive, broken = survivors(mutants, described, tmp_path)
    assert set(alive) == set(BLIND[arch])
    assert broken == []
