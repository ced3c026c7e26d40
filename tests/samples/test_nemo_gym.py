"""NeMo Gym's sessions without any mark of ours: the cookie changes each second, the episode stays."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

from replayproxy.session.rollouts_join import Join
from replayproxy.session.rollouts_shapes import choose
from replayproxy.storage import open_store
from tests.samples.nemo_gym import Nemo, Session
from tests.samples.serving import Agent, episode, episodes, options, record, replay, served


async def one_rollout(url: str) -> None:
    async with Session(url) as session:
        await session.call("seed_session")
        for n in range(3):
            assert await session.call("increment_counter", by=2) == {"count": 2 * n + 2}
        assert await session.call("verify") == {"reward": 6.0}


def many(count: int, *, alike: bool = False) -> Agent:
    """So many rollouts at once; `alike`: they begin with the same request, one after the other."""

    async def agent(url: str) -> None:
        async def one(number: int, turn: asyncio.Event, after: asyncio.Event) -> None:
            async with Session(url) as session:
                if alike:
                    await turn.wait()
                await session.call("seed_session", **({} if alike else {"task": number}))
                after.set()
                for n in range(4):
                    assert await session.call("increment_counter", by=number) == {"count": number * (n + 1)}
                    await asyncio.sleep(0)

        turns = [asyncio.Event() for _ in range(count + 1)]
        turns[0].set()
        await asyncio.gather(*(one(n, turns[n], turns[n + 1]) for n in range(count)))

    return agent


async def recorded(store: Path, agent: Agent, clock: Any = lambda: 1_780_000_000, **given: Any) -> Any:
    async with served(Nemo(clock).app) as url:
        return (await record(options(store, url, ["nemo-gym"], **given), agent)).recording.tally


async def test_a_cookie_that_changes_each_second_is_one_episode(tmp_path: Path) -> None:
    seconds = itertools.count(1_780_000_000)
    tally = await recorded(tmp_path, one_rollout, lambda: next(seconds))
    assert tally.why_not_whole() == []
    named = episodes(tmp_path)
    assert named.pop("unattributed") == []
    ((name, exchanges),) = named.items()
    cookies = [v for x in exchanges for n, v in x.response.fields if n.lower() == b"set-cookie"]
    assert len(set(cookies)) == 5
    assert {x.carrier for x in exchanges} == {"rule"}
    assert episode(tmp_path, name).aliases[0] == ("nemo-session", name)
    assert episode(tmp_path, name).reward == 6.0


async def test_it_is_reproduced_with_the_server_gone(tmp_path: Path) -> None:
    seconds = itertools.count(1_780_000_000)
    await recorded(tmp_path, one_rollout, lambda: next(seconds))
    receipt = await replay(tmp_path, one_rollout)
    assert receipt["reproduced"], receipt
    assert receipt["adopted"] == [{"episode": receipt["episodes"][0]["episode"], "by": "request POST /seed_session"}]


async def test_fifty_interleaved_sessions_are_fifty_episodes_and_reproduced(tmp_path: Path) -> None:
    tally = await recorded(tmp_path, many(50))
    assert (tally.unattributed, tally.contradictions) == (0, 0)
    named = episodes(tmp_path)
    assert named.pop("unattributed") == []
    assert [len(exchanges) for exchanges in named.values()] == [5] * 50
    receipt = await replay(tmp_path, many(50))
    assert receipt["reproduced"], receipt
    assert len(receipt["adopted"]) == len(receipt["episodes"]) == 50


async def test_sessions_that_begin_alike_are_adopted_in_the_order_of_recording(tmp_path: Path) -> None:
    await recorded(tmp_path, many(8, alike=True))
    receipt = await replay(tmp_path, many(8, alike=True))
    assert receipt["reproduced"], receipt
    assert [one["episode"] for one in receipt["adopted"]] == list(episodes(tmp_path))[:-1]


async def test_a_lost_cookie_is_a_new_session_and_so_an_episode_of_its_own(tmp_path: Path) -> None:
    async def forgetful(url: str) -> None:
        async with Session(url) as session:
            await session.call("seed_session")
            assert await session.call("increment_counter", by=2) == {"count": 2}
            session.lose_cookie()
            assert await session.call("increment_counter", by=2) == {"count": 2}
            assert await session.call("increment_counter", by=2) == {"count": 4}

    tally = await recorded(tmp_path, forgetful)
    assert tally.why_not_whole() == []
    named = episodes(tmp_path)
    assert [len(exchanges) for exchanges in named.values()] == [2, 2, 0]
    receipt = await replay(tmp_path, forgetful)
    assert receipt["reproduced"], receipt


async def test_the_token_of_mcp_clients_and_the_cookie_are_one_episode(tmp_path: Path) -> None:
    async def both(url: str) -> None:
        async with Session(url) as session:
            headers = (await session.call("seed_session"))["mcp"]["headers"]
            await session.call("increment_counter", by=2)
        async with Session(url) as client:  # no cookie of the harness; the answers give it one of the same session
            assert await client.call("mcp", by=3, headers=headers) == {"count": 5}

    tally = await recorded(tmp_path, both)
    assert tally.why_not_whole() == []
    assert [len(exchanges) for exchanges in episodes(tmp_path).values()] == [3, 0]
    receipt = await replay(tmp_path, both)
    assert receipt["reproduced"], receipt


async def test_the_rollouts_of_a_collection_are_joined_to_their_episodes_without_a_word(tmp_path: Path) -> None:
    """Each row is handed on to /seed_session, indices and all, and comes out of /verify with a reward."""
    collected = []

    async def collect(url: str) -> None:
        for task, attempt in itertools.product(range(2), range(3)):
            row = {"_ng_task_index": task, "_ng_rollout_index": attempt}
            async with Session(url) as session:
                await session.call("seed_session", **row)
                await session.call("increment_counter", by=task + attempt)
                collected.append({**row, "response": {}, **await session.call("verify")})

    await recorded(tmp_path, collect)
    with open_store(tmp_path) as store:
        reader = store.reader()
        known = reader.episodes(reader.run("r"))
    chosen = choose(collected, known)
    assert str(chosen) == "--on _ng_task_index=task --on _ng_rollout_index=attempt"
    join = Join(chosen.on, known)
    assert [[e.name for e in join.match(row).episodes] for row in collected] == [[e.name] for e in known]
