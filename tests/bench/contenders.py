"""The programs that are held beside each other, each started as its users start it, on the core of the program."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.machine import PROXY_CORE, pinned
from tests.bench.upstream import SMALL, free_port, wait_for

HERE = Path(__file__).parent
NODE_MODULES = Path(".cache/bench/node_modules")
BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Running:
    """`url`: what the load is sent to, without a slash at the end."""

    url: str
    pid: int


type Contender = Callable[[Path, str], AbstractContextManager[Running]]
"""Given a folder of its own and what it serves: an upstream's URL, or a recording."""


@contextmanager
def program(command: Sequence[str], port: int, folder: Path, *, path: str = "") -> Iterator[Running]:
    """A program that listens on a port, until the block ends."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [*pinned(PROXY_CORE), *command], stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )  # fmt: skip
        try:
            wait_for(port, process=process)
            yield Running(f"http://127.0.0.1:{port}{path}", process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# Recorders


def recorder(*options: str, core: int | None = PROXY_CORE) -> Contender:
    """`replayproxy record`, all in one episode. `core` None: on any."""

    @contextmanager
    def run(folder: Path, upstream: str) -> Iterator[Running]:
        ready = folder / "ready.json"
        command = [
            str(BIN / "replayproxy"),
            "record",
            "--env",
            f"app={upstream}",
            "--store",
            str(folder / "store"),
            "--run",
            "r",
            "--episode",
            "e1",
            "--ready-file",
            str(ready),
            "--log-every",
            "0s",
            *options,
        ]
        with _until_ready(command, ready, folder, core) as (process, told):
            yield Running(told["envs"]["app"].rstrip("/"), process.pid)

    return run


@contextmanager
def _until_ready(
    command: Sequence[str], ready: Path, folder: Path, core: int | None = PROXY_CORE
) -> Iterator[tuple[subprocess.Popen[bytes], Mapping[str, Mapping[str, str]]]]:
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen([*pinned(core), *command], stdout=output, stderr=output)
        try:
            until = time.monotonic() + 120
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"not ready: {(folder / 'output').read_text()[-400:]}")
                time.sleep(0.05)
            yield process, json.loads(ready.read_text())
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(120)


def mitmdump(*options: str) -> Contender:
    @contextmanager
    def run(folder: Path, upstream: str) -> Iterator[Running]:
        port = free_port()
        given = [part.format(folder=folder) for part in options]
        command = [
            str(BIN / "mitmdump"), "-q", "--mode", f"reverse:{upstream}@127.0.0.1:{port}", "--ssl-insecure",
            "--set", f"confdir={folder}", *given,
        ]  # fmt: skip
        with program(command, port, folder) as running:
            yield running

    return run


@contextmanager
def bare(folder: Path, upstream: str) -> Iterator[Running]:
    """mitmproxy's Master with the four add-ons that it cannot do without: records nothing."""
    port = free_port()
    with program([sys.executable, "-m", "tests.bench.bare", str(port), upstream], port, folder) as running:
        yield running


# Replayers. What they are given is a folder with `store`, `flows` and `paths` (see recordings.py)


@contextmanager
def replay(folder: Path, recording: str) -> Iterator[Running]:
    """`replayproxy replay RUN`: each request from its own episode."""
    ready = folder / "ready.json"
    command = [
        str(BIN / "replayproxy"), "replay", "r", "--store", f"{recording}/store", "--ready-file", str(ready),
    ]  # fmt: skip
    with _until_ready(command, ready, folder) as (process, told):
        yield Running(told["envs"]["app"].rstrip("/"), process.pid)


@contextmanager
def mitmdump_replay(folder: Path, recording: str) -> Iterator[Running]:
    port = free_port()
    command = [
        str(BIN / "mitmdump"), "-q", "--mode", f"reverse:http://127.0.0.1:9@127.0.0.1:{port}", "--server-replay",
        f"{recording}/flows", "--server-replay-extra", "404", "--set", "connection_strategy=lazy",
        "--set", "server_replay_ignore_host=true", "--set", "server_replay_ignore_port=true",
        "--set", f"confdir={folder}",
    ]  # fmt: skip
    with program(command, port, folder) as running:
        yield running


@contextmanager
def constant(folder: Path, recording: str) -> Iterator[Running]:
    """aiohttp's low-level server with a handler that returns one constant answer."""
    port = free_port()
    with program([sys.executable, "-m", "tests.bench.constant", str(port)], port, folder) as running:
        yield running


def _needs(*names: str) -> None:
    missing = [name for name in names if not (shutil.which(name) or (NODE_MODULES / name).exists())]
    if missing:
        raise LookupError(f"{', '.join(missing)} is not there: make bench-others installs it")


@contextmanager
def wiremock(folder: Path, recording: str) -> Iterator[Running]:
    _needs("java", "wiremock")
    port, jar = free_port(), next((NODE_MODULES / "wiremock").rglob("*.jar"))
    (folder / "mappings").mkdir()
    stub = {
        "request": {"method": "GET", "urlPattern": "/.*"},
        "response": {"status": 200, "headers": {"Content-Type": "application/json"}, "body": SMALL.decode()},
    }
    (folder / "mappings" / "all.json").write_text(json.dumps(stub))
    command = [
        "java", "-jar", str(jar), "--port", str(port), "--bind-address", "127.0.0.1", "--root-dir", str(folder),
        "--no-request-journal", "--disable-banner", "--async-response-enabled", "false",
    ]  # fmt: skip
    with program(command, port, folder) as running:
        yield running


@contextmanager
def mountebank(folder: Path, recording: str) -> Iterator[Running]:
    _needs("node", "mountebank")
    port, control = free_port(), free_port()
    answer = {"statusCode": 200, "headers": {"Content-Type": "application/json"}, "body": SMALL.decode()}
    imposter = {"port": port, "protocol": "http", "recordRequests": False, "stubs": [{"responses": [{"is": answer}]}]}
    (folder / "imposters.json").write_text(json.dumps({"imposters": [imposter]}))
    command = [
        "node", str(NODE_MODULES / "mountebank/bin/mb"), "start", "--port", str(control), "--configfile",
        str(folder / "imposters.json"), "--loglevel", "error", "--nologfile", "--pidfile", str(folder / "mb.pid"),
    ]  # fmt: skip
    with program(command, port, folder) as running:
        yield running


@contextmanager
def talkback(folder: Path, recording: str) -> Iterator[Running]:
    _needs("node", "talkback")
    port = free_port()
    command = ["node", str(HERE / "talkback.cjs"), str(port), str(NODE_MODULES.resolve()), recording]
    with program(command, port, folder) as running:
        yield running
