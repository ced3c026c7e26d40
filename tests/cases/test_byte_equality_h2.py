"""Three hundred and twenty exchanges over HTTP/2 and TLS: the environment gets the header list, body and trailers that
the agent sent, the agent those that the environment sent, and in a replay the very same as in recording.

What is listed in docs/recording.md is `:authority`, the environment's own, and nothing else: header lists are compared
whole, in their order. What DATA frames a body is cut into is not compared.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replayproxy.storage import Store, open_store
from tests.cases.generated_h2 import Said, said
from tests.cases.h2lab import Agent, Desk, Heard, On, Say, Site, recorded, replayed

EPISODES, EACH = 4, 80


async def play(agent: Agent, episode: bytes, script: Sequence[Said]) -> dict[int, Heard]:
    """Asks in turn."""
    heard = {}
    for one in script:
        asked = replace(one.ask, path=b"/rp/" + episode + one.ask.path)
        heard[one.number] = await agent.ask(asked, 20)
    return heard


async def all_of(on: On, scripts: Sequence[Sequence[Said]]) -> dict[int, Heard]:
    agents = [await on.agent() for _ in scripts]
    parts = await asyncio.gather(
        *(play(a, b"e%d" % n, s) for n, (a, s) in enumerate(zip(agents, scripts, strict=True)))
    )
    return {number: heard for part in parts for number, heard in part.items()}


def check(script: Sequence[Said], asked: dict[int, Heard], live: dict[int, Heard], authority: bytes) -> None:
    for one in script:
        ask, say, came, told = one.ask, one.say, asked[one.number], live[one.number]
        pseudo = {b":method": ask.method, b":scheme": b"https", b":path": ask.path, b":authority": authority}
        assert dict(came.head[:4]) == pseudo, one
        assert (came.head[4:], came.body, came.trailers) == (ask.fields, b"".join(ask.pieces), ask.trailers), one
        assert told.head == ((b":status", b"%d" % say.status), *say.fields), one
        assert (told.body, told.trailers) == (b"".join(p for p in say.pieces if isinstance(p, bytes)), say.trailers), (
            one
        )
        assert told.interims == [((b":status", b"%d" % status), *fields) for status, fields in say.interims], one


async def compare(store: Store, desk: Desk, scripts: Sequence[Sequence[Said]]) -> None:
    """Records each script as an episode of its own, all at once, and replays them."""
    every = {one.number: one for script in scripts for one in script}
    asked: dict[int, Heard] = {}

    def answer(heard: Heard) -> Say:
        number = int(dict(heard.head)[b":path"].partition(b"?")[0].split(b"/")[1][1:])
        asked[number] = heard
        return every[number].say

    async with Site(desk, "h2", answer) as site:
        async with recorded(store, site, episode=None, undeclared="accept") as on:
            live = await all_of(on, scripts)
        check(list(every.values()), asked, live, site.authority)
    async with replayed(store, site, episode=None) as again:
        told = await all_of(again, scripts)
        receipt = again.on.receipt()
    for number, heard in live.items():
        assert told[number].said == heard.said, every[number]
    assert (receipt["reproduced"], receipt["served"]["exact"]) == (True, len(every))


@pytest.mark.parametrize("seed", [20310101])
async def test_three_hundred_and_twenty_exchanges_are_the_same_in_recording_and_in_replay(
    store: Store, desk: Desk, seed: int
) -> None:
    r = random.Random(seed)
    await compare(store, desk, [[said(r, e * EACH + n) for n in range(EACH)] for e in range(EPISODES)])


@given(seed=st.integers(0, 2**32), count=st.integers(1, 5))
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_few_exchanges_are_the_same(desk: Desk, seed: int, count: int) -> None:
    """The same with other seeds at each run, which shrinks to few exchanges."""
    r = random.Random(seed)
    with TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store", create=True)
        try:
            asyncio.run(compare(store, desk, [[said(r, n) for n in range(count)]]))
        finally:
            store.close()
