"""Large bodies and many connections, with the memory of the real programs measured from outside.

The suite runs it small. `make large` sets REPLAYPROXY_LARGE=1: 300 MiB each way, 10,000 idle connections.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path

import pytest

from tests.cases.lab import get, talker
from tests.needs import absent

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

WHOLE = os.environ.get("REPLAYPROXY_LARGE") == "1"
MIB = 1024 * 1024
SIZE = (300 if WHOLE else 24) * MIB
IDLE = 10_000 if WHOLE else 1_000
GROWTH = 64 * MIB
"""What the memory of a program may grow by, whatever the size of a body."""

BLOCKS = [random.Random(n).randbytes(MIB - 1) for n in range(7)]


def block(number: int) -> bytes:
    """A MiB that no other is equal to, and that does not compress."""
    at = number * 37 % 1000
    one = BLOCKS[number % 7]
    return one[at:] + one[:at] + bytes([number % 251])


class Far:
    """The environment: sends and takes large bodies, in a process that is not measured."""

    def __init__(self) -> None:
        self.port = 0
        self.taken: list[tuple[int, bytes]] = []

    async def start(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self.server, self.port = server, server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if b"/dump" in head:
                    await send(writer, b"HTTP/1.1 200 OK\r\n", chunked=b"chunked" in head.split(b"\r\n")[0])
                    continue
                if head.startswith(b"PUT"):
                    self.taken.append(await take(reader, head))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def send(writer: asyncio.StreamWriter, lead: bytes, *, chunked: bool) -> None:
    writer.write(lead + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: %d\r\n\r\n" % SIZE))
    for number in range(SIZE // MIB):
        data = block(number)
        writer.write(b"%x\r\n" % MIB + data + b"\r\n" if chunked else data)
        await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def take(reader: asyncio.StreamReader, head: bytes) -> tuple[int, bytes]:
    """(size, digest) of a body, without keeping it."""
    size, hashed = 0, blake2b(digest_size=16)
    if b"chunked" in head.lower().partition(b"transfer-encoding")[2]:
        while length := int(await reader.readuntil(b"\r\n"), 16):
            data = await reader.readexactly(length + 2)
            hashed.update(data[:-2])
            size += length
        await reader.readuntil(b"\r\n")
        return size, hashed.digest()
    left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    while left and (data := await reader.read(min(left, MIB))):
        hashed.update(data)
        size, left = size + len(data), left - len(data)
    return size, hashed.digest()


class Program:
    """`replayproxy record` or `replay` as a process of its own. Memory: private pages, not the mapped store."""

    def __init__(self, process: asyncio.subprocess.Process, ready: dict[str, object]) -> None:
        self.process, self.ready = process, ready
        self.peak = 0
        self.pid = int(str(ready["pid"]))

    @property
    def port(self) -> int:
        envs = self.ready["envs"]
        assert isinstance(envs, dict)
        return int(envs["app"].rpartition(":")[2])

    def memory(self) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        kib = {
            name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if name[:3] == "Rss"
        }
        return (kib["RssAnon"] + kib["RssShmem"]) * 1024

    async def watch(self) -> None:
        while True:
            self.peak = max(self.peak, self.memory())
            await asyncio.sleep(0.02)


@asynccontextmanager
async def program(tmp_path: Path, *words: str) -> AsyncIterator[Program]:
    ready = tmp_path / f"{words[0]}.json"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "replayproxy", words[0], "--store", str(tmp_path / "store"), *words[1:],
        "--ready-file", str(ready), stdout=asyncio.subprocess.DEVNULL, stderr=(tmp_path / f"{words[0]}.err").open("wb"),
    )  # fmt: skip
    try:
        for _ in range(600):
            if ready.exists():
                break
            assert process.returncode is None, f"{words[0]} ended with {process.returncode}"
            await asyncio.sleep(0.05)
        yield Program(process, json.loads(ready.read_text()))
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 30)


async def both_ways(port: int, *, chunked: bool) -> list[tuple[int, bytes]]:
    """A download and an upload on one connection; what the download was."""
    agent = await talker(port)
    kind = b"chunked" if chunked else b"length"
    await agent.send(get(b"/dump/" + kind))
    head = await asyncio.wait_for(agent.reader.readuntil(b"\r\n\r\n"), 60)
    got = await take(agent.reader, head)
    await send(agent.writer, b"PUT /up/%s HTTP/1.1\r\nHost: x\r\n" % kind, chunked=chunked)
    answer = await asyncio.wait_for(agent.reader.readuntil(b"ok"), 60)
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    agent.close()
    return [got]


async def measured(one: Program) -> tuple[int, list[tuple[int, bytes]], float]:
    """(growth in bytes, what was downloaded, seconds)."""
    warm = await talker(one.port)
    await warm.send(get(b"/warm"))
    await warm.answer()
    warm.close()
    before, begun = one.memory(), time.monotonic()
    watching = asyncio.ensure_future(one.watch())
    got = [*await both_ways(one.port, chunked=False), *await both_ways(one.port, chunked=True)]
    watching.cancel()
    return one.peak - before, got, time.monotonic() - begun


async def test_large_bodies_pass_both_ways_with_flat_memory_in_recording_and_in_replay(
    tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    far = Far()
    await far.start()
    hashed = blake2b(digest_size=16)
    for number in range(SIZE // MIB):
        hashed.update(block(number))
    same = (SIZE, hashed.digest())
    async with program(
        tmp_path, "record", "--run", "r", "--episode", "e", "--env", f"app=http://127.0.0.1:{far.port}"
    ) as one:
        grown, got, seconds = await measured(one)
    far.server.close()
    print(f"record: {SIZE // MIB} MiB four times in {seconds:.1f} s, memory grew by {grown / MIB:.1f} MiB")
    record_property("record", grown)
    assert got == far.taken == [same, same]
    assert grown < GROWTH
    async with program(tmp_path, "replay", "r/e") as one:
        grown, got, seconds = await measured(one)
    print(f"replay: {SIZE // MIB} MiB four times in {seconds:.1f} s, memory grew by {grown / MIB:.1f} MiB")
    assert got == [same, same]
    assert grown < GROWTH


async def waits(port: int, count: int) -> list[float]:
    agent = await talker(port)
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        await agent.ask(get(b"/x"))
        took.append(time.perf_counter() - begun)
    agent.close()
    return took


async def test_many_idle_connections_do_not_matter_to_one_that_is_recorded(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * IDLE:
        absent(f"{IDLE} connections need more than the {hard} files that are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    far = Far()
    await far.start()
    idle = []
    try:
        wired = f"app=http://127.0.0.1:{far.port}"
        async with program(tmp_path, "record", "--run", "r", "--episode", "e", "--env", wired) as one:
            await waits(one.port, 50)
            before, memory = await waits(one.port, 300), one.memory()
            for _ in range(0, IDLE, 200):
                idle += await asyncio.gather(*(talker(one.port) for _ in range(200)))
            await until_all_are_accepted(one.port)
            held = one.memory() - memory
            after = await waits(one.port, 300)
            for agent in idle:
                agent.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        far.server.close()
    told = [f"{statistics.median(each) * 1000:.2f} ms (p10 {quick(each) * 1000:.2f})" for each in (before, after)]
    print(f"{IDLE} idle: median {told[0]} before, {told[1]} with them; {held / IDLE / 1024:.1f} KiB each")
    assert quick(after) < 2 * quick(before) + 0.003
    assert held / IDLE < 64 * 1024


async def until_all_are_accepted(port: int) -> None:
    """They are taken in turn; the one that comes last is answered when all are there."""
    last = await talker(port)
    await last.send(get(b"/last"))
    await asyncio.wait_for(last.reader.readuntil(b"ok"), 120)
    last.close()


def quick(took: list[float]) -> float:
    """The tenth percentile: what it takes where no other program is in the way."""
    return sorted(took)[len(took) // 10]
