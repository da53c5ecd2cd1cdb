"""A model hub on this machine that speaks the real one's interface, for one test run."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """What the server holds, and what it was asked.

    Attributes:
        repositories: file name to bytes, by repository.
        status: repositories that answer with an HTTP status and the hub's error code.
        gated: repositories that list their files and refuse to give them.
        cut: repositories whose downloads break off half-way.
        requests: method and path of every request.
    """

    url: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    status: dict[str, tuple[int, str]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)

    def downloads(self) -> set[str]:
        """Files whose bytes were asked for."""
        marker = f"/resolve/{COMMIT}/"
        return {r.split(marker)[1] for r in self.requests if r.startswith("GET") and marker in r}


@pytest.fixture
def hub() -> Iterator[Hub]:
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def log_message(self, *arguments: Any) -> None:
            pass

        def _answer(self, body: bool) -> None:
            path = self.path.split("?")[0]
            state.requests.append(f"{self.command} {path}")
            parts = path.strip("/").split("/")
            api = parts[:2] == ["api", "models"]
            repository = "/".join(parts[2:4] if api else parts[:2])
            if repository in state.status:
                code, error = state.status[repository]
                self._refuse(code, error)
            elif repository not in state.repositories:
                self._refuse(404, "RepoNotFound")
            elif api:
                self._api(repository, parts[4:], body)
            elif repository in state.gated:
                self._refuse(403, "GatedRepo")
            else:
                self._file(repository, "/".join(parts[4:]), body)

        def _api(self, repository: str, rest: list[str], body: bool) -> None:
            files = state.repositories[repository]
            if rest[:1] == ["tree"]:
                found: Any = [
                    {"type": "file", "path": n, "size": len(c), "oid": hashlib.sha1(c).hexdigest()}
                    for n, c in files.items()
                ]
            else:
                names = [{"rfilename": n} for n in files]
                found = {"id": repository, "sha": COMMIT, "siblings": names, "private": False}
            self._send(json.dumps(found).encode(), {"Content-Type": "application/json"}, body)

        def _file(self, repository: str, name: str, body: bool) -> None:
            content = state.repositories[repository].get(name)
            if content is None:
                self._refuse(404, "EntryNotFound")
                return
            etag = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
            if body and repository in state.cut:
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                for key, value in etag.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(content[: len(content) // 2])
                self.close_connection = True
                return
            self._send(content, etag, body)

        def _send(self, content: bytes, headers: dict[str, str], body: bool) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            for key, value in headers.items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def _refuse(self, code: int, error: str) -> None:
            self.send_response(code)
            self.send_header("X-Error-Code", error)
            self.send_header("X-Error-Message", f"{error} (made up)")
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def through(hub: Hub, graphtools: Any, tmp_path: Path) -> Callable[..., Any]:
    """Run a command that asks this hub and keeps its cache in ``tmp_path``."""
    env = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "home"),
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }

    def run(*arguments: Any, **options: Any) -> Any:
        return graphtools(*arguments, env=env | options.pop("env", {}), **options)

    return run
