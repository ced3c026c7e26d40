"""What closed replay carries: a thousand recorded episodes, mixed, beside others that answer a stub."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench import contenders
from tests.bench.contenders import Contender, Running
from tests.bench.load import Load, in_order, wrk
from tests.bench.machine import cpu_seconds
from tests.bench.recordings import Recording, make
from tests.bench.rounds import Row, turns
from tests.bench.upstream import SMALL

OTHERS: dict[str, Contender] = {
    "aiohttp constant": contenders.constant, "WireMock": contenders.wiremock, "mountebank": contenders.mountebank,
    "talkback": contenders.talkback,
}  # fmt: skip

FLOWS = 10
"""Exchanges of each episode that mitmdump is given: it reads its whole file before it listens."""


def beside_others(folder: Path, rounds: int, seconds: float, *, episodes: int = 1000, each: int = 60) -> Iterator[Row]:
    """A round is a start of each: a recording answers each request once."""
    ours = make(folder / "recording", episodes, each)
    flows = make(folder / "flows", episodes, FLOWS, flows=True)
    (folder / "small.json").write_bytes(SMALL)
    for number in range(1, rounds + 1):
        home = folder / f"round-{number}"
        home.mkdir()
        (home / "small.json").write_bytes(SMALL)
        yield from _ours(ours, home, number, seconds)
        yield from _mitmdump(flows, home, number, seconds)
    programs = {name: (other, str(folder)) for name, other in OTHERS.items()}
    for name in programs:
        (folder / f"replay-{name}".replace(" ", "-")).mkdir(exist_ok=True)
    yield from turns(
        "replay", programs, lambda _, one: wrk(f"{one.url}/deals/1", seconds=max(seconds, 5)), folder, rounds
    )  # fmt: skip


def _ours(recording: Recording, home: Path, number: int, seconds: float) -> Iterator[Row]:
    (home / "ours").mkdir()
    with contenders.replay(home / "ours", str(recording.folder)) as one:
        lines = recording.paths.read_text().splitlines(keepends=True)
        episodes = len({line.split("/")[2] for line in lines})
        yield {
            "group": "replay",
            "name": "first request of an episode",
            "round": number,
            **_first(one, lines[:episodes]),
        }
        rest = home / "rest"
        rest.write_text("".join(lines[episodes:]))
        yield {"group": "replay", "name": "replayproxy", "round": number, **_measured(one, rest, seconds)}


def _mitmdump(recording: Recording, home: Path, number: int, seconds: float) -> Iterator[Row]:
    (home / "mitmdump").mkdir()
    with contenders.mitmdump_replay(home / "mitmdump", str(recording.folder)) as one:
        yield {
            "group": "replay", "name": "mitmdump --server-replay", "round": number,
            **_measured(one, recording.plain, max(seconds, 4)),
        }  # fmt: skip


def _measured(one: Running, paths: Path, seconds: float) -> Row:
    used = cpu_seconds(one.pid)
    seen: Load = in_order(one.url, paths, seconds=seconds)
    asked = sum(1 for _ in paths.open())
    if seen.requests >= asked:
        raise RuntimeError(f"{asked} recorded requests do not last {seconds} s: {seen.requests} were answered")
    return {"cpu_s_per_1000": round((cpu_seconds(one.pid) - used) / max(1, seen.requests) * 1000, 4), **seen.to_json()}


def _first(one: Running, paths: list[str]) -> Row:
    """Asks for one request of every episode, one after another: that is when it is read from the store."""
    where = urlsplit(one.url)
    line = http.client.HTTPConnection(where.hostname or "", where.port)
    used, began = cpu_seconds(one.pid), time.monotonic()
    for path in paths:
        line.request("GET", path.strip())
        answer = line.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path.strip()}: {answer.status}")
    line.close()
    return {
        "episodes": len(paths), "ms_per_episode": round((time.monotonic() - began) * 1000 / len(paths), 3),
        "cpu_ms_per_episode": round((cpu_seconds(one.pid) - used) * 1000 / len(paths), 3),
    }  # fmt: skip
