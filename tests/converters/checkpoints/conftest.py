"""What the tests of checkpoints share: small ones, the libraries as oracle, processes, a hub."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from converters import gguf_file
from converters.archs.checkpoint import Options
from converters.checkpoint import Described, describe_checkpoint
from converters.convert import convert
from converters.probes import speech_samples
from converters.replay import Replay
from converters.sources.source import open_source
from fixtures import checkpoints

Array = npt.NDArray[Any]
Stages = dict[str, Array]

# The networks are tiny, and the tests run on every core already: threads only get in their way.
torch.set_num_threads(1)


@dataclass(frozen=True, eq=False)
class Made:
    """A checkpoint on disk and the very module that it was saved from."""

    folder: Path
    module: nn.Module
    config: dict[str, Any]
    normalize: bool = False

    def described(self, **options: Any) -> Described:
        return describe_checkpoint(open_source(self.folder), "model", options=Options(**options))


class Maker:
    """Small checkpoints, each made once per process."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._made: dict[str, Made] = {}

    def ecapa(self, *, normalizer: bool = True, **arguments: Any) -> Made:
        def make(folder: Path) -> Made:
            module = checkpoints.ecapa(**arguments)
            checkpoints.save_ecapa(module, folder, normalizer=normalizer)
            return Made(folder, module, {})

        return self._once(f"ecapa {normalizer} {arguments}", make)

    def wav2vec2(self, head: str, save: Mapping[str, Any] | None = None, **config: Any) -> Made:
        """``emotion`` or ``age_gender``; ``save`` are arguments of `checkpoints.save_wav2vec2`."""
        if head == "age_gender":  # as the published one is
            config = {"use_weighted_layer_sum": False, **config}

        def make(folder: Path) -> Made:
            full = checkpoints.wav2vec2_config(**config)
            module = checkpoints.wav2vec2(head, full)
            checkpoints.save_wav2vec2(module, full, folder, **(save or {}))
            normalize = (save or {}).get("do_normalize", True)
            return Made(folder, module, full, bool(normalize))

        return self._once(f"{head} {save} {config}", make)

    def named(self, name: str) -> Made:
        """The default one of each architecture, by the name of the architecture."""
        if name == "ecapa_tdnn":
            return self.ecapa()
        return self.wav2vec2(name.removeprefix("wav2vec2_"))

    def _once(self, key: str, make: Callable[[Path], Made]) -> Made:
        if key not in self._made:
            self._made[key] = make(self._base / f"made{len(self._made)}")
        return self._made[key]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    return Maker(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Made], Path]:
    """A folder of the test's own to change."""

    def copy(made: Made) -> Path:
        return Path(shutil.copytree(made.folder, tmp_path / f"copy_{made.folder.name}"))

    return copy


@pytest.fixture
def reconfigured(copied: Callable[[Made], Path]) -> Callable[..., Path]:
    """A copy with keys of a JSON file changed; a value of `...` takes the key away."""

    def change(made: Made, file: str = "config.json", **values: Any) -> Path:
        folder = copied(made)
        listed = json.loads((folder / file).read_text()) | values
        kept = {k: v for k, v in listed.items() if v is not ...}
        (folder / file).write_text(json.dumps(kept))
        return folder

    return change


@pytest.fixture
def reweighted(copied: Callable[[Made], Path]) -> Callable[..., Path]:
    """A copy whose state dict went through ``change``; what it returns, if anything, is saved."""

    def apply(made: Made, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Path:
        from safetensors.torch import load_file, save_file

        folder = copied(made)
        file = folder / "model.safetensors"
        if file.exists():
            state = load_file(file)
            save_file(change(state) or state, file)
        else:
            file = folder / "embedding_model.ckpt"
            state = torch.load(file, weights_only=True)
            torch.save(change(state) or state, file)
        return folder

    return apply


@pytest.fixture
def gguf_of(tmp_path: Path) -> Callable[..., Path]:
    """A folder's GGUF, without any proof."""

    def make(folder: Path, **options: Any) -> Path:
        target = tmp_path / f"{folder.name}.gguf"
        convert(folder, target, name="model", verify="none", options=Options(**options))
        return target

    return make


@pytest.fixture(scope="session")
def clip() -> Callable[[int], Array]:
    """The first ``n`` samples of the loud part of the shipped clip."""
    return lambda n: speech_samples()[6000 : 6000 + n]


@pytest.fixture(scope="session")
def replayed() -> Callable[[Path, Array], Stages]:
    """Every stage of a GGUF on an input, in order, float64."""

    def run(gguf: Path, values: Array) -> Stages:
        found: Stages = {}

        def keep(stage: str, x: Array) -> Array:
            assert stage not in found, f"the stage {stage} came twice"
            found[stage] = x
            return x

        Replay.of(gguf_file.read(gguf)).run(values, keep)
        return found

    return run


@pytest.fixture(scope="session")
def by_library() -> Callable[[Made, Array], Stages]:
    """Every golden of the contract, by the library's own module and nothing of this project."""

    def run(made: Made, values: Array) -> Stages:
        return _speechbrain(made, values) if not made.config else _transformers(made, values)

    return run


@torch.no_grad()
def _speechbrain(made: Made, features: Array) -> Stages:
    module: Any = made.module
    blocks = {f"block{i}_out": block for i, block in enumerate(module.blocks)}
    parts = {**blocks, "mfa_out": module.mfa, "pooled": module.asp}
    found: Stages = {}
    handles = [
        part.register_forward_hook(
            lambda _, __, out, name=name: found.__setitem__(name, out[0].numpy())
        )
        for name, part in parts.items()
    ]
    out = module(torch.from_numpy(np.array(features))[None])
    for handle in handles:
        handle.remove()
    found["pooled"] = found["pooled"][:, 0]  # [2C, 1]
    return found | {"encoder_out": out[0, 0].numpy()}


@torch.no_grad()
def _transformers(made: Made, samples: Array) -> Stages:
    from transformers import Wav2Vec2FeatureExtractor

    module: Any = made.module
    extractor = Wav2Vec2FeatureExtractor(do_normalize=made.normalize)
    wave = extractor(samples, sampling_rate=16000, return_tensors="pt").input_values
    out = module.wav2vec2(wave, output_hidden_states=True)
    n = len(out.hidden_states) - 1
    found = {"feat_extract_out": module.wav2vec2.feature_extractor(wave)[0]}
    if hasattr(module, "classifier"):
        # The last state after the final norm that pre-norm encoders have; transformers 5 does
        # not put that one among its hidden states.
        found["enc_layer_0"] = out.hidden_states[1][0].T
        found["enc_layer_mid"] = out.hidden_states[n // 2][0].T
        found["enc_layer_last"] = out.last_hidden_state[0].T
        logits = module(wave).logits[0]
        found |= {"emotion_logits": logits, "emotion_probs": torch.softmax(logits, -1)}
    else:
        found["enc_layer_last"] = out.last_hidden_state[0].T
        mean = out.last_hidden_state[0].mean(0)
        logits = module.gender(mean)
        found |= {"age_raw": module.age(mean), "gender_logits": logits}
        found["gender_probs"] = torch.softmax(logits, -1)
    return {name: value.numpy() for name, value in found.items()}


@pytest.fixture(scope="session")
def assert_same() -> Callable[[Stages, Stages], None]:
    """Ours is the library's at every stage.

    The contract asks for cosine >= 0.9999 and ``|d| <= 1e-3 x max(1, max|golden|)``. That lets
    a tanh gelu pass (it differs by 5e-4), so the bound here is 2e-5: the libraries' float32 noise
    was at most 2.7e-6 over all the configurations tested.
    """

    def check(ours: Stages, goldens: Stages) -> None:
        assert set(ours) == set(goldens)
        for stage, golden in goldens.items():
            found = ours[stage]
            assert found.shape == golden.shape, stage
            assert golden.std() > 0 or golden.size == 1, f"{stage} of the library says nothing"
            a, b = golden.astype(np.float64).ravel(), found.ravel()
            cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
            assert cosine >= 0.9999, f"{stage}: cosine {cosine}"
            apart, scale = np.abs(a - b).max(), max(1.0, np.abs(a).max())
            assert apart <= 2e-5 * scale, f"{stage}: {apart} of {scale}"

    return check


_WITHOUT = """
import sys

class Without:
    def __init__(self, finder, names):
        self.finder, self.names = finder, names

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, *more):
        hidden = name.partition(".")[0] in self.names
        return None if hidden else self.finder.find_spec(name, *more)

names = sys.argv.pop(1).split(",")
sys.meta_path[:] = [Without(finder, names) for finder in sys.meta_path]
"""
_MAIN = "from converters.cli import main; main()"
# What the hub's client waits between its attempts would only make the tests slow.
_IMPATIENT = "import time; time.sleep = lambda seconds: None\n"


@dataclass(frozen=True)
class Ran:
    """A finished process."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def process(tmp_path: Path, environment: Callable[[], dict[str, str]]) -> Callable[..., Ran]:
    """A command (or ``source``) in a process where the packages ``without`` are not installed."""

    def run(
        *arguments: str | Path,
        without: str = "",
        source: str = _MAIN,
        code: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Ran:
        lines = [sys.executable, "-W", "error", "-c", _WITHOUT + source, without]
        done = subprocess.run(
            [*lines, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=tmp_path,
            env=environment() | dict(env or {}),
        )
        ran = Ran(done.returncode, done.stdout, done.stderr)
        assert code is None or ran.code == code, f"exit {ran.code}\n{ran.out}\n{ran.err}"
        return ran

    return run


_SHA = "0123456789abcdef0123456789abcdef01234567"
_API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/[^/?]+)?(?:\?.*)?$")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/[^/]+/([^?]+)(?:\?.*)?$")


@dataclass
class Repo:
    """A repository, and what goes wrong with it.

    Attributes:
        gated: every file answers 403 with the hub's code for that.
        gone: files that are listed and answer 404.
        failing: files that answer 500.
        cut: the connection ends after so many bytes of a file, every time.
    """

    files: dict[str, bytes]
    gated: bool = False
    gone: frozenset[str] = frozenset()
    failing: frozenset[str] = frozenset()
    cut: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Hub:
    """A model hub on 127.0.0.1.

    Attributes:
        repos: by id.
        requests: (method, path) of every request, in order.
        sent: bytes of bodies, by file name.
        hangs_up: every connection is closed without an answer.
    """

    url: str
    repos: dict[str, Repo] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)
    hangs_up: bool = False

    def add(self, name: str, folder: Path, **faults: Any) -> Repo:
        found = (p for p in sorted(folder.rglob("*")) if p.is_file())
        files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in found}
        self.repos[name] = Repo(files, **faults)
        return self.repos[name]

    @property
    def asked(self) -> set[str]:
        """The files that any request was about."""
        found = (_RESOLVE.match(path) for _, path in self.requests)
        return {match[2] for match in found if match}


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.hub.requests.append((self.command, self.path))
        if self.hub.hangs_up:
            self.close_connection = True
        elif match := _API.match(self.path) or _RESOLVE.match(self.path):
            repo = self.hub.repos.get(match[1])
            if repo is None:
                # What the hub tells a stranger of a name that it does not know.
                self._refuse(401, "RepoNotFound", "Invalid username or password.")
            elif match.re is _API:
                self._api(match[1], repo, match[2] == "tree")
            else:
                self._resolve(repo, match[2])
        else:
            self._refuse(404, "", "Not Found")

    def _api(self, name: str, repo: Repo, tree: bool) -> None:
        if tree:
            found: object = [
                {"type": "file", "oid": _oid(data), "size": len(data), "path": path}
                for path, data in repo.files.items()
            ]
        else:
            siblings = [{"rfilename": path} for path in repo.files]
            found = {"id": name, "sha": _SHA, "siblings": siblings, "private": False}
        self._send(200, {"Content-Type": "application/json"}, json.dumps(found).encode())

    def _resolve(self, repo: Repo, file: str) -> None:
        if repo.gated:
            self._refuse(403, "GatedRepo", "Access to this model is restricted.")
        elif file in repo.failing:
            self._refuse(500, "", "Internal Server Error")
        elif file not in repo.files or file in repo.gone:
            self._refuse(404, "EntryNotFound", "Entry not found")
        else:
            self._file(file, repo.files[file], repo.cut.get(file))

    def _file(self, name: str, data: bytes, cut: int | None) -> None:
        wanted = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        end = min(int(wanted[2]) + 1, len(data)) if wanted and wanted[2] else len(data)
        headers = {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": _SHA, "Accept-Ranges": "bytes"}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        body = data[start:end] if cut is None else data[start : min(end, max(cut, start))]
        if len(body) < end - start:
            self.close_connection = True
        if self.command == "GET":
            self.hub.sent[name] = self.hub.sent.get(name, 0) + len(body)
        self._send(206 if wanted else 200, headers, body, end - start)

    def _refuse(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        self._send(status, headers, json.dumps({"error": message}).encode())

    def _send(
        self, status: int, headers: Mapping[str, str], body: bytes, length: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@cache
def _oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A running hub without any repository."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    running = Hub(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"hub": running})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield running
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def online(hub: Hub, process: Callable[..., Ran], tmp_path: Path) -> Callable[..., Ran]:
    """A command whose hub is `hub`, with a cache of its own.

    Without torch unless asked for: it takes seconds to import, and the level is not the matter.
    """

    def run(*arguments: str | Path, without: str = "torch", **more: Any) -> Ran:
        home = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "127.0.0.1"}
        env = home | more.pop("env", {})
        return process(*arguments, without=without, source=_IMPATIENT + _MAIN, env=env, **more)

    return run
