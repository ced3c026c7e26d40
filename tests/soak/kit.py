"""A recorder as a process of its own, an environment as another, and agents that know what each answer must be.

REPLAYPROXY_SOAK=1 (`make soak`) makes everything as large as the documentation claims; without it, it is short.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

WHOLE = os.environ.get("REPLAYPROXY_SOAK") == "1"


def size(whole: int, short: int) -> int:
    return whole if WHOLE else short


def body_of(target: bytes, sent: bytes) -> bytes:
    """What the environment answers: it depends on all of the request, so an answer to another one shows."""
    said = sent.decode() if len(sent) < 1000 else blake2b(sent, digest_size=16).hexdigest()
    return json.dumps({"at": target.decode(), "sent": said, "pad": "x" * (len(target) * 37 % 400)}).encode()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r")[0] or 0)
            sent = await reader.readexactly(length)
            body = body_of(head.split(b" ", 2)[1], sent)
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def environment() -> Iterator[int]:
    """The port of an environment that answers `body_of`."""
    process = subprocess.Popen([sys.executable, "-m", "tests.soak.kit"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


@dataclass
class Recorder:
    process: asyncio.subprocess.Process
    ready: Mapping[str, Any]
    output: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def port(self) -> int:
        return int(self.ready["envs"]["app"].rstrip("/").rpartition(":")[2])

    @property
    def control(self) -> str:
        return str(self.ready["control"])

    async def stop(self) -> int:
        """Its exit code after SIGINT."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGINT)
        return await asyncio.wait_for(self.process.wait(), 120)

    def private_mib(self) -> float:
        from tests.bench.machine import private_mib

        return private_mib(self.pid)


@asynccontextmanager
async def recorder(
    folder: Path, port: int, *options: str, environ: Mapping[str, str] | None = None, before: Sequence[str] = ()
) -> AsyncIterator[Recorder]:  # fmt: skip
    """`replayproxy record` of run `r` into `folder`/store; killed when the block ends, if it still runs.

    `before`: a command that becomes the one that follows it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    output = folder / "output"
    with output.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *before, sys.executable, "-m", "replayproxy", "record", "--env", f"app=http://127.0.0.1:{port}", "--store",
            str(folder / "store"), "--run", "r", "--ready-file", str(ready), "--log-every", "0s", *options,
            stdout=out, stderr=out, env={**os.environ, **(environ or {})},
        )  # fmt: skip
    try:
        until = time.monotonic() + 60
        while not ready.exists():
            assert process.returncode is None, output.read_text()[-800:]
            assert time.monotonic() < until, output.read_text()[-800:]
            await asyncio.sleep(0.05)
        yield Recorder(process, json.loads(ready.read_text()), output)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class Agent:
    """One connection, one request after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> Agent:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, prefix: str, target: str, sent: bytes = b"") -> bytes:
        """The body of the answer. Raises where it is not what the environment answers to this very request."""
        method = "PUT" if sent else "GET"
        head = f"{method} {prefix}{target} HTTP/1.1\r\nHost: app\r\nContent-Length: {len(sent)}\r\n\r\n"
        self.writer.write(head.encode() + sent)
        answered = await self.reader.readuntil(b"\r\n\r\n")
        length = int(answered.lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r")[0])
        body = await self.reader.readexactly(length)
        if not answered.startswith(b"HTTP/1.1 200 ") or body != body_of(target.encode(), sent):
            raise AssertionError(f"{target}: {answered!r} {body[:200]!r}")
        return body

    def close(self) -> None:
        self.writer.close()


def replayproxy(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "replayproxy", *arguments], capture_output=True, text=True, check=False, timeout=600
    )  # fmt: skip


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    asyncio.run(_serve())
