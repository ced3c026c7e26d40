"""Whole commands against servers written by others, each in a virtual environment of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.needs import absent

ROOT = Path(__file__).parents[2]
SERVERS = ROOT / "tests" / "e2e" / "servers"
VENVS = ROOT / ".cache" / "servers"


def server_python(name: str) -> str:
    """The interpreter of a server's own environment; `make servers` makes it."""
    path = VENVS / name / "bin" / "python"
    if not path.exists():
        absent(f"{path.relative_to(ROOT)} is not there: run `make servers`")
    return str(path)


def free_port() -> int:
    """A port that was free a moment ago: for servers that cannot report the one they bound."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Lab:
    """A store, the commands over it, and servers that are stopped when the test ends."""

    path: Path
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    urls: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        return self.path / "store"

    def run(self, *words: str, env: dict[str, str] | None = None, timeout: float = 90) -> Ran:
        """`replayproxy WORDS` with this lab's store."""
        return self.call(words[0], "--store", str(self.store), *words[1:], env=env, timeout=timeout)

    def doctor(self, *words: str) -> Ran:
        """`replayproxy doctor WORDS`, which has no store."""
        return self.call("doctor", *words)

    def call(self, *words: str, env: dict[str, str] | None = None, timeout: float = 90) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "replayproxy", *words],
            capture_output=True, text=True, timeout=timeout, cwd=self.path, env={**os.environ, **(env or {})},
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def serve(self, words: list[str], url: str, *, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Starts a server and returns when `url` answers anything at all."""
        log = (self.path / f"server-{len(self.servers)}.log").open("wb")
        server = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **(env or {})}, cwd=self.path)
        self.servers.append(server)
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            if server.poll() is not None:
                raise AssertionError(f"{words} ended with {server.returncode}: {Path(log.name).read_text()}")
            try:
                urllib.request.urlopen(url, timeout=2).close()
                return server
            except urllib.error.HTTPError:
                return server
            except OSError:
                time.sleep(0.1)
        raise AssertionError(f"{words} did not answer at {url}: {Path(log.name).read_text()}")

    def toy(self) -> str:
        """Starts tests/e2e/servers/toy.py and gives its URL."""
        words = [sys.executable, str(SERVERS / "toy.py")]
        server = subprocess.Popen(words, stdout=subprocess.PIPE)
        self.servers.append(server)
        assert server.stdout is not None
        url = str(json.loads(server.stdout.readline())["url"])
        server.stdout.close()
        return url

    def stop(self, server: subprocess.Popen[bytes]) -> None:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(5)

    def stop_all(self) -> None:
        for server in self.servers:
            if server.poll() is None:
                self.stop(server)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    try:
        yield made
    finally:
        made.stop_all()


class Resetter:
    """An endpoint that resets an environment by calling a function, as a harness's own reset service would."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.calls = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                act()
                outer.calls += 1
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/reset"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def resetter() -> Iterator[Callable[[Callable[[], None]], Resetter]]:
    made: list[Resetter] = []

    def start(act: Callable[[], None]) -> Resetter:
        made.append(Resetter(act))
        return made[-1]

    yield start
    for one in made:
        one.close()


class NoContact:
    """Listens where the environment was, and counts who comes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self._socket.setblocking(False)

    def count(self) -> int:
        contacts = 0
        while True:
            try:
                self._socket.accept()[0].close()
                contacts += 1
            except BlockingIOError:
                return contacts

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def no_contact() -> Iterator[Callable[[int], NoContact]]:
    made: list[NoContact] = []

    def listen(port: int) -> NoContact:
        made.append(NoContact(port))
        return made[-1]

    yield listen
    for one in made:
        one.close()
