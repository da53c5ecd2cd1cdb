"""Which of the engine's tensors is which golden: by a map, by name, or by stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from converters.arrays import Arrays
from converters.gates import are_codes
from graphtools.errors import UsageError
from graphtools.tensors import Array

__all__ = ["Pairing", "keyed", "margin_of", "pair", "read_map", "stages_of"]


@dataclass(frozen=True)
class Pairing:
    """Goldens and what the engine has for each.

    Attributes:
        pairs: golden name to the engine's, "" where it has none; in execution order where the
            golden says it, else in the order of its file.
        extra: the engine's tensors that no golden has.
        stages: golden name to the stage of the recovered network that it is, where that is known.
    """

    golden: Arrays
    ours: Arrays
    pairs: Mapping[str, str]
    extra: tuple[str, ...] = ()
    stages: Mapping[str, str] = field(default_factory=dict)

    def read(self, name: str) -> tuple[Array, Array]:
        """A golden and ours, which has the golden's shape unless the two differ by more than
        axes of size 1.

        Raises:
            NotAModelError, UnsupportedError: as `Arrays.read`.
        """
        other = self.pairs[name]
        golden, ours = self.golden.read(name), self.ours.read(other)
        raw = other in self.ours.raw and ours.size == golden.size
        if raw or [d for d in golden.shape if d != 1] == [d for d in ours.shape if d != 1]:
            ours = ours.reshape(golden.shape)
        return golden, ours


def pair(golden: Arrays, ours: Arrays, names: Mapping[str, str] | None = None) -> Pairing:
    """Match every golden: by ``names`` where they have it, by the exact name, by the stage.

    Two files of one array each are a pair whatever their names are.

    Raises:
        UsageError: ``names`` has what is not there, or nothing can be matched.
    """
    names = names or {}
    _require_there(names, golden, ours)
    margins = {f"{name}_margin" for name in golden.readers if margin_of(golden, name) is not None}
    listed = [name for name in _order(golden) if name not in margins]
    stages, stored = stages_of(golden), _stored(golden)
    found = {name: names.get(name) or _exact(name, stored.get(name), ours) for name in listed}
    if _lone(golden) and _lone(ours) and not names:
        found = dict(zip(golden.readers, ours.readers, strict=True))
    taken = {other for other in found.values() if other}
    by_stage = {stage: name for name, stage in stages_of(ours).items()}
    for name in (name for name, other in found.items() if not other):
        stage = stages.get(name, name)
        other = stage if stage in ours else by_stage.get(stage, "")
        if other and other not in taken:
            found[name] = other
            taken.add(other)
    if not taken:
        raise UsageError(
            "no tensor of the two files has the same name",
            expected=", ".join([*golden.readers][:3]),
            found=", ".join([*ours.readers][:3]),
            todo="add --map FILE, with a line `golden ours` for each pair",
        )
    extra = tuple(name for name in ours.readers if name not in taken | margins)
    return Pairing(golden, ours, found, extra, stages)


def read_map(path: Path) -> dict[str, str]:
    """Golden name to engine name, from lines ``golden ours``; ``#`` begins a comment.

    Raises:
        UsageError: there is no such file, or a line is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("the map cannot be read", file=path, found=str(error)) from error
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#")[0].split()
        if len(words) not in (0, 2) or (words and words[0] in found):
            raise UsageError(
                "a line of the map is not one golden name and one of ours",
                file=path,
                where=f"line {number}",
                found=line.strip(),
            )
        if words:
            found[words[0]] = words[1]
    return found


def keyed(a: Arrays, key: str, type: str) -> Sequence[Any]:
    """The value of a baseline's array key; empty where it has none."""
    if a.manifest is None or key not in a.manifest.by_key:
        return ()
    listed: Sequence[Any] = a.manifest.get(key, type)
    return listed


def stages_of(a: Arrays) -> dict[str, str]:
    """Tensor to the stage of the recovered network that it is, in execution order.

    A stage that several tensors claim to be is left out: which one it is would be a guess.
    """
    tensors = keyed(a, "baseline.tensors", "[string]")
    taps = keyed(a, "baseline.tap_stages", "[string]")
    if tensors and len(tensors) == len(taps):
        count = Counter(taps)
        return {n: s for n, s in zip(tensors, taps, strict=True) if s and count[s] == 1 and n in a}
    return {name: name for name in keyed(a, "baseline.stages", "[string]") if name in a}


def margin_of(a: Arrays, name: str) -> Array | None:
    """The margins of codes, in their shape; None of what is no codes with a margin for each."""
    if f"{name}_margin" not in a:
        return None
    margin = a.read(f"{name}_margin")
    return margin if are_codes(a.read(name), margin) else None


def _require_there(names: Mapping[str, str], golden: Arrays, ours: Arrays) -> None:
    for name, other in names.items():
        if name not in golden or other not in ours:
            raise UsageError(
                "the map names a tensor that is not there",
                file=golden.path if name not in golden else ours.path,
                found=name if name not in golden else other,
            )


def _order(a: Arrays) -> list[str]:
    """Inputs of the network first, then its stages, then what is made of them; where the file
    lists taps, they are in execution order."""
    names = list(a.readers)
    stages = [name for name in keyed(a, "baseline.stages", "[string]") if name in a]
    if not stages or keyed(a, "baseline.tensors", "[string]"):
        return names
    before = [n for n in names if n in ("wav", "fbank_raw", "fbank")]
    after = [n for n in names if n not in stages and n not in before]
    return [*before, *stages, *after]


def _stored(a: Arrays) -> dict[str, str]:
    """Full name to the name in a GGUF, which has no room for a long one."""
    full = keyed(a, "baseline.tensors", "[string]")
    if a.manifest is None or len(full) != len(a.manifest.tensors):
        return {}
    return dict(zip(full, (tensor.name for tensor in a.manifest.tensors), strict=True))


def _exact(name: str, stored: str | None, ours: Arrays) -> str:
    """Ours of this name, or of what an engine has to make of it; "" where there is none."""
    spellings = [name, stored]
    if ours.path is not None and ours.path.is_dir():  # a file's path has no leading slash
        spellings.append(name.lstrip("/"))
    return next((spelt for spelt in spellings if spelt and spelt in ours), "")


def _lone(a: Arrays) -> bool:
    return a.path is not None and a.path.is_file() and a.path.suffix in (".npy", ".bin")
