"""Every value of every manifest is changed once, and the proof has to refuse each such file.

The networks are the tiny exports: full depth, reduced width. The proof is the real one; only
onnxruntime's runs on the source, which no mutant changes, are remembered between mutants.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from converters import gguf_file
from converters.manifest import Entry, Manifest
from converters.proof import prove
from fixtures import catalog
from graphtools.tensors import DType, Held, LazyTensor

Make = Callable[..., Any]
Array = npt.NDArray[Any]

TINY = catalog.names(committed=True)
PARTS = ("weight", "bias", "running_mean", "running_var")
CHUNKS = {"resnet34_tiny": 2, "eres2net_tiny": 4, "campplus_tiny": 10}


class RememberingSession:
    """An onnxruntime session that runs the same model on the same input once per process."""

    real: Any = onnxruntime.InferenceSession
    sessions: dict[bytes, Any] = {}  # noqa: RUF012
    results: dict[bytes, list[Array]] = {}  # noqa: RUF012

    def __init__(self, data: bytes, *more: Any) -> None:
        self.data, self.more = data, more
        self.key = hashlib.sha256(data).digest()

    def run(self, outputs: list[str], feeds: Mapping[str, Array]) -> list[Array]:
        digest = hashlib.sha256(self.key + "\0".join(outputs).encode())
        for name, value in feeds.items():
            digest.update(f"{name} {value.shape} {value.dtype}".encode() + value.tobytes())
        key = digest.digest()
        if key not in self.results:
            if self.key not in self.sessions:
                self.sessions[self.key] = self.real(self.data, *self.more)
            found = self.sessions[self.key].run(outputs, feeds)
            for value in found:
                value.setflags(write=False)
            self.results[key] = found
        return list(self.results[key])


@pytest.fixture(autouse=True)
def _remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "InferenceSession", RememberingSession)


@dataclass(frozen=True)
class Mutant:
    """One change: to the value of a key, or to the bytes of tensors."""

    kind: str
    label: str
    key: str = ""
    value: Any = None
    values: tuple[tuple[str, Array], ...] = ()

    def of(self, manifest: Manifest) -> Manifest:
        if self.key:
            entries = tuple(
                replace(e, value=self.value) if e.key == self.key else e for e in manifest.entries
            )
            return replace(manifest, entries=entries)
        new = dict(self.values)
        tensors = tuple(
            LazyTensor(t.name, new[t.name].shape, DType.F32, Held(t.name, new[t.name]))
            if t.name in new
            else t
            for t in manifest.tensors
        )
        return replace(manifest, tensors=tensors)


def mutants(manifest: Manifest) -> list[Mutant]:
    return [*key_mutants(manifest), *tensor_mutants(manifest)]


def key_mutants(manifest: Manifest) -> Iterator[Mutant]:
    values = {t.name: t.read() for t in manifest.tensors}
    for entry in manifest.entries:
        key, value = entry.key, entry.value
        if entry.type == "[string]":
            yield from list_mutants(entry, values)
        elif entry.type == "[i32]":
            for i, number in enumerate(value):  # type: ignore[arg-type]
                changes = {number + 1, number - 1}
                if key.endswith("stride"):
                    changes = {3 - number, number + 1}
                for changed in sorted(changes):
                    listed = (*value[:i], changed, *value[i + 1 :])  # type: ignore[index]
                    yield Mutant("integer", f"{key}[{i}] = {changed}", key, listed)
        elif entry.type == "u32":
            for changed in (value + 1, value - 1):  # type: ignore[operator]
                yield Mutant("integer", f"{key} = {changed}", key, changed)
        elif entry.type == "f32":
            changed = float(np.float32(value * 1.1 if value else 0.1))  # type: ignore[operator]
            yield Mutant("scalar", f"{key} = {changed:g}", key, changed)
        elif entry.type == "bool":
            yield Mutant("flag", f"{key} = {not value}", key, not value)
        elif value in values:
            assert isinstance(value, str)
            if other := partner(value, list(values), values):
                yield Mutant("name", f"{key} = {other}", key, other)
            yield Mutant("dropped", f'{key} = ""', key, "")
        else:
            yield Mutant("text", f"{key} = {value}x", key, f"{value}x")


def list_mutants(entry: Entry, values: Mapping[str, Array]) -> Iterator[Mutant]:
    """Each name exchanged with the next of its shape in the list, else replaced by any other of
    its shape; each bias dropped; a tensor named where there was none.
    """
    key, listed = entry.key, entry.value
    assert isinstance(listed, tuple)
    if key.endswith("bn_prefix"):
        yield from prefix_mutants(entry, values)
        return
    for i, name in enumerate(listed):
        assert isinstance(name, str)
        changed = list(listed)
        if not name:
            near = next(n for n in listed[i + 1 :] + listed[:i] if n)
            changed[i] = near
            yield Mutant("invented", f"{key}[{i}] = {near}", key, tuple(changed))
            continue
        other = partner(name, [str(n) for n in listed[i + 1 :] if n], values)
        if other:
            j = listed.index(other, i + 1)
            changed[i], changed[j] = changed[j], changed[i]
            yield Mutant("exchange", f"{key}[{i}] <-> [{j}]", key, tuple(changed))
        elif other := partner(name, list(values), values):
            changed[i] = other
            yield Mutant("name", f"{key}[{i}] = {other}", key, tuple(changed))
        if key.endswith("_bias"):
            dropped = (*listed[:i], "", *listed[i + 1 :])
            yield Mutant("dropped", f'{key}[{i}] = ""', key, dropped)


def prefix_mutants(entry: Entry, values: Mapping[str, Array]) -> Iterator[Mutant]:
    listed = entry.value
    assert isinstance(listed, tuple)
    for i, prefix in enumerate(listed):
        size = values[f"{prefix}.weight"].size
        alike = [j for j, p in enumerate(listed) if j != i and values[f"{p}.weight"].size == size]
        if alike:
            j = next((j for j in alike if j > i), alike[0])
            changed = list(listed)
            changed[i], changed[j] = changed[j], changed[i]
            yield Mutant("exchange", f"{entry.key}[{i}] <-> [{j}]", entry.key, tuple(changed))
        gone = (*listed[:i], f"{prefix}x", *listed[i + 1 :])
        yield Mutant("text", f"{entry.key}[{i}] = {prefix}x", entry.key, gone)


def partner(name: str, among: list[str], values: Mapping[str, Array]) -> str | None:
    """The next tensor of the same shape and other bytes: an exchange of equals changes nothing."""
    here = among.index(name) + 1 if name in among else 0
    for other in among[here:] + among[:here]:
        same_shape = other != name and values[other].shape == values[name].shape
        if same_shape and not np.array_equal(values[other], values[name]):
            return other
    return None


def tensor_mutants(manifest: Manifest) -> Iterator[Mutant]:
    values = {t.name: t.read() for t in manifest.tensors}
    for name, array in values.items():
        scaled = (array * np.float32(1.01)).astype(np.float32)
        if array.any():
            yield Mutant("scaled", f"{name} x 1.01", values=((name, scaled),))
        one = array.copy()
        at = int(np.abs(one).argmax())
        one.reshape(-1)[at] = one.reshape(-1)[at] * 1.5 or 1.0
        yield Mutant("element", f"{name}.flat[{at}] x 1.5", values=((name, one),))
    by_key = manifest.by_key
    if "voicedetect.campplus.bn_prefix" not in by_key:
        return
    for prefix in by_key["voicedetect.campplus.bn_prefix"].value:  # type: ignore[union-attr]
        for a, b in itertools.combinations(PARTS, 2):
            one, two = values[f"{prefix}.{a}"], values[f"{prefix}.{b}"]
            if not np.array_equal(one, two):
                swapped = ((f"{prefix}.{a}", two), (f"{prefix}.{b}", one))
                yield Mutant("permuted", f"{prefix}: {a} <-> {b}", values=swapped)


@dataclass(frozen=True)
class Outcome:
    """What became of some mutants, by label; those that are neither were killed."""

    survived: list[str]
    crashed: list[str]


@pytest.fixture
def outcome(
    manifest_of: Make, recovered: Make, written: Make, tmp_path: Path
) -> Callable[[str, list[Mutant]], Outcome]:
    """Write each mutant as a GGUF and prove it.

    A proof that raises is no proof that the file is wrong: it is counted by itself.
    """

    def run(name: str, found: list[Mutant]) -> Outcome:
        path, file = catalog.path(name), tmp_path / "mutant.gguf"
        manifest, net = manifest_of(path), recovered(path)
        whole = written(manifest, tmp_path / "whole.gguf")
        spans = {t.name: t.span() for t in gguf_file.read(whole).tensors}
        result = Outcome([], [])
        for mutant in found:
            if mutant.key:
                written(mutant.of(manifest), file)
            else:  # the same file as through the emitter, but for the bytes of these tensors
                shutil.copyfile(whole, file)
                with file.open("rb+") as stream:
                    for tensor, values in mutant.values:
                        span = spans[tensor]
                        assert span is not None
                        assert span.length == values.nbytes
                        stream.seek(span.offset)
                        stream.write(values.tobytes())
            label = f"{mutant.kind}: {mutant.label}"
            try:
                if prove(file, net):
                    result.survived.append(label)
            except Exception as error:
                result.crashed.append(f"{label}: {error!r}")
        return result

    return run


@pytest.mark.parametrize("name", TINY)
def test_the_unchanged_file_is_proven(
    name: str, manifest_of: Make, recovered: Make, written: Make, tmp_path: Path
) -> None:
    """Else everything below would be killed for nothing."""
    path = catalog.path(name)
    assert prove(written(manifest_of(path), tmp_path / "x.gguf"), recovered(path))


@pytest.mark.parametrize("name", TINY)
def test_mutants_cover_every_value_and_differ_from_the_file(name: str, manifest_of: Make) -> None:
    manifest = manifest_of(catalog.path(name))
    found = mutants(manifest)
    assert {m.key for m in found if m.key} == {e.key for e in manifest.entries}
    assert {n for m in found for n, _ in m.values} == {t.name for t in manifest.tensors}
    assert len({m.label for m in found}) == len(found)
    for mutant in found:
        changed = mutant.of(manifest)
        keys = [e.value for e in changed.entries] != [e.value for e in manifest.entries]
        touched = dict(mutant.values)
        bytes_differ = any(
            not np.array_equal(manifest.by_name[n].read(), v) for n, v in touched.items()
        )
        assert keys or bytes_differ, mutant.label


@pytest.mark.parametrize("name", TINY)
def test_a_sample_of_mutants_is_killed(name: str, manifest_of: Make, outcome: Make) -> None:
    """Every kind of change, 18 mutants of each network."""
    found = mutants(manifest_of(catalog.path(name)))
    rng = random.Random(f"sample of {name}")
    rng.shuffle(found)
    kinds = {m.kind: m for m in found}
    sample = [*kinds.values(), *found[: 18 - len(kinds)]]
    result = outcome(name, [m for m in sample if not is_equivalent(m)])
    assert result.survived == []
    assert result.crashed == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "chunk"), [(name, chunk) for name in TINY for chunk in range(CHUNKS[name])]
)
def test_every_mutant_is_killed(
    name: str, chunk: int, manifest_of: Make, outcome: Make,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    """Stronger than a kill rate of 0.999: no changed key survives, and who did is named.

    Bytes are finer: a hidden unit of a CAM++ mask that its ReLU cuts on every probe shows nothing
    of a single weight of it, and a bias of a mask wrong by 1 % may stay below the gate. Of the
    tensors nothing else may survive, and of these few.
    """
    found = mutants(manifest_of(catalog.path(name)))[chunk :: CHUNKS[name]]
    chosen = [m for m in found if not is_equivalent(m)]
    result = outcome(name, chosen)
    killed = len(chosen) - len(result.survived) - len(result.crashed)
    kinds = dict(sorted(Counter(m.kind for m in chosen).items()))
    record_property("mutants", len(chosen))
    record_property("killed", killed)
    equivalent = len(found) - len(chosen)
    print(f"MUTATION {name} {len(chosen)} mutants {killed} killed {equivalent} equivalent {kinds}")
    for label in result.survived:
        print(f"SURVIVOR {name} {label}")
    for label in result.crashed:
        print(f"CRASHED {name} {label}")
    assert result.crashed == []
    fine = [s for s in result.survived if s.startswith(("element: ", "scaled: "))]
    assert [s for s in result.survived if s not in fine] == []
    assert [s for s in fine if ".cam_layer.linear" not in s or "local" in s] == []
    assert len(fine) <= 0.05 * len(chosen)


@pytest.mark.parametrize("name", TINY)
def test_equivalent_mutants_are_proven(name: str, manifest_of: Make, outcome: Make) -> None:
    """They are the same network, which is why they are left out above; and they are few."""
    found = [m for m in mutants(manifest_of(catalog.path(name))) if is_equivalent(m)]
    assert len(found) == {"resnet34_tiny": 0, "eres2net_tiny": 4, "campplus_tiny": 2}[name]
    assert len(outcome(name, found).survived) == len(found)


def is_equivalent(mutant: Mutant) -> bool:
    """Whether a mutant computes the same function.

    The last conv of a residual block and its shortcut are added: which of the two has which bias
    does not matter. ERes2Net and CAM++ list both in one list, next to each other.
    """
    pairs = {"eres2net": (4, 17, 39, 79), "campplus": (2, 7)}
    return mutant.label in {
        f"voicedetect.{arch}.conv_bias[{i}] <-> [{i + 1}]" for arch, at in pairs.items() for i in at
    }
