"""GGUF files that can be taken apart, changed in one place, and written with that fault in them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.baseline import baseline
from converters.convert import convert
from converters.gguf_header import Header
from converters.tap import write_taps
from fixtures import catalog, checkpoints

# Value types of GGUF: number, and struct's letter.
SCALARS = {
    "u8": (0, "B"),
    "i8": (1, "b"),
    "u16": (2, "H"),
    "i16": (3, "h"),
    "u32": (4, "I"),
    "i32": (5, "i"),
    "f32": (6, "f"),
    "bool": (7, "?"),
    "u64": (10, "Q"),
    "i64": (11, "q"),
    "f64": (12, "d"),
}
F32, F16, Q8_0 = 0, 1, 8


@dataclass
class Tensor:
    """A tensor as it is written; ``offset`` None puts it where it belongs."""

    name: str
    ne: tuple[int, ...]
    number: int
    data: bytes
    offset: int | None = None

    @property
    def values(self) -> Any:
        """Of an f32 tensor, in numpy's order."""
        return np.frombuffer(self.data, "<f4").reshape(self.ne[::-1]).copy()

    @values.setter
    def values(self, array: Any) -> None:
        stored = np.ascontiguousarray(array, "<f4")
        self.ne, self.data = stored.shape[::-1], stored.tobytes()


@dataclass
class File:
    """All of a GGUF, to be changed.

    Attributes:
        keys: [name, type, value], in order.
        padding: whether the last tensor is padded.
    """

    keys: list[list[Any]]
    tensors: list[Tensor]
    alignment: int = 32
    padding: bool = True
    version: int = 3

    @classmethod
    def of(cls, path: Path) -> File:
        header = Header.read(path)
        raw = path.read_bytes()
        tensors = []
        for info in header.tensors:
            span = header.span(info)
            data = raw[span.offset : span.offset + span.length]
            tensors.append(Tensor(info.name, info.ne, info.number, data))
        return cls([[k.name, k.type, k.value] for k in header.keys], tensors, header.alignment)

    def __getitem__(self, key: str) -> Any:
        return next(value for name, _, value in self.keys if name == key)

    def __setitem__(self, key: str, value: Any) -> None:
        next(entry for entry in self.keys if entry[0] == key)[2] = value

    def retype(self, key: str, type: str) -> None:
        next(entry for entry in self.keys if entry[0] == key)[1] = type

    def drop(self, key: str) -> None:
        self.keys = [entry for entry in self.keys if entry[0] != key]

    def add(self, key: str, type: str, value: Any) -> None:
        self.keys.append([key, type, value])

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def bytes(self) -> bytes:
        head = b"GGUF" + struct.pack("<IQQ", self.version, len(self.tensors), len(self.keys))
        head += b"".join(_text(name) + _value(type, value) for name, type, value in self.keys)
        data = b""
        for t in self.tensors:
            place = len(data) if t.offset is None else t.offset
            head += _text(t.name) + struct.pack(f"<I{len(t.ne)}Q", len(t.ne), *t.ne)
            head += struct.pack("<IQ", t.number, place)
            data = data.ljust(place, b"\0")
            data = data[:place] + t.data + data[place + len(t.data) :]
            if self.padding or t is not self.tensors[-1]:
                data += bytes(-len(data) % self.alignment)
        return head + bytes(-len(head) % self.alignment) + data


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(type: str, value: Any) -> bytes:
    if type.startswith("["):
        inner = type[1:-1]
        number = 8 if inner == "string" else SCALARS[inner][0]
        return struct.pack("<IIQ", 9, number, len(value)) + b"".join(
            _value(inner, item)[4:] for item in value
        )
    if type == "string":
        return struct.pack("<I", 8) + _text(value)
    number, letter = SCALARS[type]
    return struct.pack(f"<I{letter}", number, value)


def foreign() -> File:
    """A file of an architecture that is none of ours."""
    rng = np.random.default_rng(0)
    blocks = b"".join(
        struct.pack("<e", 0.5) + rng.integers(1, 99, 32, np.uint8).tobytes() for _ in "abc"
    )
    return File(
        [
            ["general.architecture", "string", "llama"],
            ["llama.block_count", "u32", 2],
            ["tokenizer.tokens", "[string]", ("a", "", "ü")],
        ],
        [
            Tensor("w", (3, 2), F32, rng.normal(size=(2, 3)).astype("<f4").tobytes()),
            Tensor("q", (32, 3), Q8_0, blocks),
            Tensor("h", (5,), F16, rng.normal(size=5).astype("<f2").tobytes()),
        ],
    )


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A file of every kind by name: each architecture converted from its tiny fixture, goldens."""
    folder = tmp_path_factory.mktemp("lint")
    made: dict[str, Path] = {}

    def source(name: str) -> Path:
        if name in ONNX:
            return catalog.path(ONNX[name])
        if name == "moss":
            return catalog.HERE / "moss_tiny"
        target = folder / f"{name}_checkpoint"
        if not target.exists() and name == "ecapa":
            checkpoints.save_ecapa(checkpoints.ecapa(), target)
        elif not target.exists():
            config = checkpoints.wav2vec2_config(use_weighted_layer_sum=name == "emotion")
            checkpoints.save_wav2vec2(checkpoints.wav2vec2(name, config), config, target)
        return target

    def make(name: str) -> Path:
        if name not in made:
            target = folder / f"{name.replace(' ', '_')}.gguf"
            kind, _, goldens = name.partition(" ")
            if name == "foreign":
                target.write_bytes(foreign().bytes())
            elif name == "taps":
                grid = np.random.default_rng(2).normal(size=(1, 2, 3, 4, 5))
                write_taps({"a": grid, "b" * 70: grid[0]}, target, name="taps")
            elif goldens:
                audio = catalog.SPEECH if kind != "moss" else _codec_clip(folder)
                baseline(source(kind), audio, target)
            else:
                convert(source(kind), target, name="model", verify="none")
            made[name] = target
        return made[name]

    return make


ONNX = {"resnet": "resnet34_tiny", "eres2net": "eres2net_tiny", "campplus": "campplus_tiny"}
ARCHS = [*ONNX, "ecapa", "emotion", "age_gender", "moss"]
KINDS = [*ARCHS, *(f"{name} goldens" for name in ARCHS), "taps", "foreign"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``kind`` is every file that `files` makes, ``arch`` every one with a network."""
    for name, values in (("kind", KINDS), ("arch", ARCHS)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, values)


def _codec_clip(folder: Path) -> Path:
    import soundfile

    wave = np.load(catalog.HERE / "moss_tiny" / "expected.npz")["wav"].astype(np.float32)
    soundfile.write(folder / "codec_clip.wav", wave, 1600, "FLOAT")
    return folder / "codec_clip.wav"


@pytest.fixture
def planted(files: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """The file of a kind after ``change(file)``."""

    def make(kind: str, change: Callable[[File], object]) -> Path:
        file = File.of(files(kind))
        change(file)
        (tmp_path / "planted.gguf").write_bytes(file.bytes())
        return tmp_path / "planted.gguf"

    return make
