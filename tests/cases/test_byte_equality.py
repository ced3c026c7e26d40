"""Two thousand exchanges: the environment gets what the agent sent, the agent what the environment said, in recording
but for the closed list of docs/recording.md, and in a replay the very bytes that it got in recording.

No hop-by-hop field is exempt: `Connection`, `Transfer-Encoding` and `Trailer` are compared like all others.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.storage import Store, open_store
from tests.cases.generated import Said, said
from tests.cases.lab import Talker, recording, replaying, talker
from tests.proxy.wire import Peer

EPISODES, EACH = 8, 250


class Played:
    """The environment's part of a script, and what reached it."""

    def __init__(self, script: Sequence[Said]) -> None:
        self.script = {one.number: one for one in script}
        self.got: dict[int, bytes] = {}

    async def __call__(self, peer: Peer, request: bytes) -> None:
        found = re.search(rb" /n(\d+)", request.partition(b"\r\n")[0])
        assert found, request
        one = self.script[int(found[1])]
        self.got[one.number] = request
        await peer.send(one.answer)
        if one.closes:
            peer.close()


async def play(port: int, episode: str, script: Sequence[Said]) -> dict[int, bytes]:
    """One agent: asks in turn, on one connection for as long as that is kept."""
    heard: dict[int, bytes] = {}
    agent: Talker | None = None
    for one in script:
        agent = agent or await talker(port)
        request = (
            one.request.replace(b"HOST", b"127.0.0.1:%d" % port, 1)
            if b"HOST: " not in one.request
            else (one.request.replace(b"HOST: HOST", b"HOST: 127.0.0.1:%d" % port, 1))
        )
        await agent.send(request.replace(b" /n", b" /rp/%s/n" % episode.encode(), 1))
        heard[one.number] = await asyncio.wait_for(agent.answer(one.method), 20)
        if one.closes:
            assert not await agent.is_open(within=5), one
            agent.close()
            agent = None
    if agent:
        agent.close()
    return heard


def plain(message: bytes, *, answer: bool, method: bytes) -> tuple[bytes, bytes, bytes]:
    """(heads, body, trailers) without the split into chunks and their extensions."""
    head, _, rest = message.partition(b"\r\n\r\n")
    while answer and head.rpartition(b"HTTP/1.1 ")[2][:1] == b"1":
        further, _, rest = rest.partition(b"\r\n\r\n")
        head += b"\r\n\r\n" + further
    last = head.rpartition(b"\r\n\r\n")[2].lower()
    if b"transfer-encoding: chunked" not in last or (answer and not rest):
        return head, rest, b""
    body = b""
    while True:
        line, _, rest = rest.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if not size:
            return head, body, rest
        body, rest = body + rest[:size], rest[size + 2 :]


def check(script: Sequence[Said], played: Played, live: dict[int, bytes], again: dict[int, bytes], host: bytes) -> None:
    for one in script:
        sent = re.sub(rb"(?i)(\r\nhost: )HOST\r\n", lambda found: found[1] + host + b"\r\n", one.request, count=1)
        assert plain(played.got[one.number], answer=False, method=one.method) == plain(
            sent, answer=False, method=one.method
        )
        assert plain(live[one.number], answer=True, method=one.method) == plain(
            one.answer, answer=True, method=one.method
        )
        assert again[one.number] == live[one.number]


async def compare(store: Store, scripts: Sequence[Sequence[Said]]) -> None:
    """Records each script as an episode of its own, all at once, and replays them."""
    every = [one for script in scripts for one in script]
    played, names = Played(every), [f"e{number}" for number in range(len(scripts))]
    async with recording(store, played, episode=None, undeclared="accept") as on:
        parts = await asyncio.gather(*(play(on.port(), n, s) for n, s in zip(names, scripts, strict=True)))
        live = {number: answer for part in parts for number, answer in part.items()}
        host = on.environment.authority
    async with replaying(store, episode=None) as origin:
        parts = await asyncio.gather(*(play(origin.ports["app"], n, s) for n, s in zip(names, scripts, strict=True)))
        again = {number: answer for part in parts for number, answer in part.items()}
        receipt = origin.receipt()
    check(every, played, live, again, host)
    assert receipt["reproduced"] is True
    assert receipt["served"]["exact"] == len(every)


@pytest.mark.parametrize("seed", [20310101])
async def test_two_thousand_exchanges_are_the_same_bytes_in_recording_and_in_replay(store: Store, seed: int) -> None:
    r = random.Random(seed)
    await compare(store, [[said(r, e * EACH + n) for n in range(EACH)] for e in range(EPISODES)])


@given(seed=st.integers(0, 2**32), count=st.integers(1, 5))
@settings(max_examples=10, deadline=None)
def test_any_few_exchanges_are_the_same_bytes(seed: int, count: int) -> None:
    """The same with other seeds at each run, which shrinks to few exchanges."""
    r = random.Random(seed)
    with TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store", create=True)
        try:
            asyncio.run(compare(store, [[said(r, n) for n in range(count)]]))
        finally:
            store.close()
