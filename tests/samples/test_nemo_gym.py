"""NeMo Gym's sessions without any mark of ours: the cookie changes each second, the episode stays."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from tests.samples.nemo_gym import Nemo, Session
from tests.samples.serving import episodes, options, record, served


async def test_a_cookie_that_changes_each_second_is_one_episode(tmp_path: Path) -> None:
    seconds = itertools.count(1_780_000_000)
    async with served(Nemo(lambda: next(seconds)).app) as url:

        async def agent(url: str) -> None:
            async with Session(url) as session:
                await session.call("seed_session")
                for n in range(3):
                    assert await session.call("increment_counter", by=2) == {"count": 2 * n + 2}
                assert await session.call("verify") == {"reward": 6.0}

        recorder = await record(options(tmp_path, url, ["nemo-gym"]), agent)
    assert recorder.recording.tally.why_not_whole() == []
    named = episodes(tmp_path)
    assert [len(exchanges) for exchanges in named.values()] == [5, 0]
    (name,) = [name for name in named if name != "unattributed"]
    cookies = [v for x in named[name] for n, v in x.response.fields if n.lower() == b"set-cookie"]
    assert len(set(cookies)) == 5
    assert {x.carrier for x in named[name]} == {"rule"}


async def test_fifty_interleaved_sessions_are_fifty_episodes(tmp_path: Path) -> None:
    async with served(Nemo(lambda: 1_780_000_000).app) as url:

        async def agent(url: str) -> None:
            async def one(number: int) -> None:
                async with Session(url) as session:
                    await session.call("seed_session", task=number)
                    for _ in range(4):
                        await session.call("increment_counter", by=number)
                        await asyncio.sleep(0)

            await asyncio.gather(*map(one, range(50)))

        recorder = await record(options(tmp_path, url, ["nemo-gym"]), agent)
    assert recorder.recording.tally.unattributed == 0
    named = episodes(tmp_path)
    assert named.pop("unattributed") == []
    assert [len(exchanges) for exchanges in named.values()] == [5] * 50
