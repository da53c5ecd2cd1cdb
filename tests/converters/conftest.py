"""What the tests of this package share: the tiny exports recovered, edited and written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from gguf import GGUFReader, GGUFValueType

from converters.archs import arch_of_family
from converters.audio import read_audio
from converters.convert import describe, require_recovered
from converters.emit import emit
from converters.frontend import log_mel, mean_subtracted
from converters.manifest import Entry, Manifest
from fixtures import catalog
from graphtools.graph import build
from graphtools.onnx_file import load
from graphtools.recover import Recovered
from graphtools.tensors import DType, Held, LazyTensor

Array = npt.NDArray[Any]
Change = Callable[[onnx.ModelProto], None]

REPO = catalog.HERE.parent
MAIN = "from converters.cli import main; main()"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything that asks for the upstream classes' exports builds them with torch: slow."""
    for item in items:
        if "unfolded" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@cache
def _recovered(path: Path) -> Recovered:
    return require_recovered(build(load(path)))


@pytest.fixture(scope="session")
def recovered() -> Callable[[Path], Recovered]:
    """The recovered network of an ONNX file; each file is read once."""
    return _recovered


@pytest.fixture(scope="session")
def manifest_of() -> Callable[[Path], Manifest]:
    """The manifest of an ONNX file, called "model"."""

    def make(path: Path) -> Manifest:
        net = _recovered(path)
        return describe(net, arch_of_family(net.family.name), "model")

    return make


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., Path]:
    """A tiny export after ``change(proto)``, as a file of its own."""

    def make(name: str, change: Change, to: str = "edited.onnx") -> Path:
        proto = onnx.load(catalog.path(name))
        change(proto)
        onnx.save(proto, tmp_path / to)
        return tmp_path / to

    return make


@pytest.fixture(scope="session")
def written() -> Callable[[Manifest, Path], Path]:
    """Emit a manifest; the path that it was written to."""

    def make(manifest: Manifest, path: Path) -> Path:
        with emit(manifest, path):
            pass
        return path

    return make


@pytest.fixture(scope="session")
def held() -> Callable[..., LazyTensor]:
    """A float32 tensor in memory."""

    def make(name: str, values: Any = (1.0, 2.0, 3.0)) -> LazyTensor:
        array = np.asarray(values, dtype=np.float32)
        return LazyTensor(name, array.shape, DType.F32, Held(name, array))

    return make


@pytest.fixture(scope="session")
def small(held: Callable[..., LazyTensor]) -> Callable[..., Manifest]:
    """A manifest of one key of every type that is written, and two tensors."""

    def make(*more: Entry, tensors: Sequence[LazyTensor] | None = None) -> Manifest:
        entries = (
            Entry("a.text", "string", "povey", "test"),
            Entry("a.nothing", "string", "", "test"),
            Entry("a.flag", "bool", True, "test"),
            Entry("a.byte", "u8", 200, "test"),
            Entry("a.count", "u32", 4_000_000_000, "test"),
            Entry("a.long", "u64", 2**63, "test"),
            Entry("a.signed", "i32", -5, "test"),
            Entry("a.wide", "i64", -(2**62), "test"),
            Entry("a.real", "f32", float(np.float32(0.97)), "test"),
            Entry("a.names", "[string]", ("x", "", "ü"), "test"),
            Entry("a.strides", "[i32]", (1, 2, -1), "test"),
            Entry("a.reals", "[f32]", (0.5, -1.5), "test"),
            *more,
        )
        grid = np.random.default_rng(1).normal(size=(2, 3, 1, 5))
        default = (held("w", grid), held("b"))
        chosen = default if tensors is None else tuple(tensors)
        return Manifest("voicedetect", "some model", entries, chosen)

    return make


@dataclass(frozen=True)
class Raw:
    """A GGUF file as gguf's own reader sees it, without any code of this project."""

    types: dict[str, list[str]]
    values: dict[str, Any]
    tensors: dict[str, Array]
    kinds: dict[str, str]
    offsets: dict[str, int]
    alignment: int


@pytest.fixture(scope="session")
def raw() -> Callable[[Path], Raw]:
    """Read a GGUF with `gguf.GGUFReader` alone; tensor order is kept."""

    def read(path: Path) -> Raw:
        reader = GGUFReader(path)
        fields = {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
        return Raw(
            types={k: [GGUFValueType(t).name for t in f.types] for k, f in fields.items()},
            values={k: f.contents() for k, f in fields.items()},
            tensors={t.name: np.array(t.data) for t in reader.tensors},
            kinds={t.name: t.tensor_type.name for t in reader.tensors},
            offsets={t.name: int(t.data_offset) for t in reader.tensors},
            alignment=int(reader.alignment),
        )

    return read


@pytest.fixture(scope="session")
def speech() -> Array:
    """The shipped clip's mean-subtracted features, ``[298, 80]`` float32."""
    return mean_subtracted(log_mel(read_audio(catalog.SPEECH)))


@dataclass(frozen=True)
class Ran:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def graphtools(tmp_path: Path) -> Callable[..., Ran]:
    """Run a command in a process of its own, in ``tmp_path``, with warnings as errors.

    No result of it may be a traceback.
    """

    def run(
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        code: int | None = None,
        **popen: Any,
    ) -> Ran:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", MAIN, *map(str, arguments)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=300,
            check=False,
            cwd=popen.pop("cwd", tmp_path),
            env=clean_environment() | dict(env or {}),
            **popen,
        )
        ran = Ran(done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in ran.out + ran.err, ran.err
        assert code is None or ran.code == code, f"exit {ran.code}\n{ran.err}"
        return ran

    return run


@pytest.fixture
def invoke(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Ran]:
    """Run a command in this process, in ``tmp_path``: quicker than `graphtools`.

    An exception that gets out of the command line's own boundary fails the test.
    """

    def run(*arguments: str | Path, code: int | None = None) -> Ran:
        from converters.cli import main

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["graphtools", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        status = left.value.code
        assert status is None or isinstance(status, int)
        ran = Ran(status or 0, captured.out, captured.err)
        assert "Traceback" not in ran.out + ran.err, ran.err
        assert code is None or ran.code == code, f"exit {ran.code}\n{ran.err}"
        return ran

    return run


def clean_environment() -> dict[str, str]:
    """This process's, without what would reach a hub or change what is printed."""
    dropped = ("HF_", "HUGGINGFACE_", "GRAPHTOOLS_", "PYTHONWARNINGS", "COLUMNS")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    path = os.pathsep.join(filter(None, (str(REPO), kept.get("PYTHONPATH"))))
    # No request may leave the machine: nothing listens on port 9 (discard) here.
    return kept | {
        "PYTHONPATH": path,
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


@pytest.fixture(scope="session")
def environment() -> Callable[[], dict[str, str]]:
    """The environment that subprocesses get."""
    return clean_environment


@pytest.fixture(scope="session")
def bounded() -> Callable[..., Ran]:
    """Run Python source in a process that may use 4 GB of addresses and 30 s of processor time.

    For input that asks for more memory than there is: without the bounds a failure would take
    the machine with it.
    """

    def run(source: str, *arguments: str | Path, seconds: int = 30) -> Ran:
        bounds = (
            "import resource\n"
            "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
            f"resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))\n"
        )
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", bounds + source, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=20 * seconds,
            check=False,
            env=clean_environment() | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        out_of_time = done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
        assert not out_of_time, f"more than {seconds} s, or too much memory:\n{done.stdout}"
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def unfolded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny network exported as if for training: every BatchNorm stays a node."""
    folder = tmp_path_factory.mktemp("unfolded")

    @cache
    def make(name: str) -> Path:
        from fixtures.export import export_legacy

        export = catalog.EXPORTS[name]
        target = folder / f"{name}.onnx"
        return export_legacy(export.module(), target, opset=export.opset, fold=False)

    return make


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """No test may leave a temp file of the emitter behind."""
    yield
    left = [p.name for p in tmp_path.rglob(".*.tmp")]
    assert not left
