"""Agents that say nothing, or something new, of whose they are: which recorded episode answers them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.samples.nemo_gym import Nemo, Session
from tests.samples.serving import Agent, episodes, options, record, replay, served

THREAD = {"name": "thread", "action": "extract", "header": "X-Thread", "fills": "alias"}


def counting() -> web.Application:
    """Counts by thread; gives each answer its number."""
    counts: dict[str, int] = {}

    async def answer(request: web.Request) -> web.Response:
        thread = request.headers.get("X-Thread", "")
        counts[thread] = counts.get(thread, 0) + 1
        return web.json_response({"n": counts[thread], "asked": request.path})

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    return app


async def asking(url: str, thread: str | None, *paths: str) -> list[int]:
    told = []
    async with aiohttp.ClientSession(headers={"X-Thread": thread} if thread else {}) as client:
        for path in paths:
            async with client.post(url + path) as answer:
                told.append((await answer.json())["n"] if answer.status == 200 else -answer.status)
    return told


async def recorded(store: Path, agent: Agent) -> Any:
    async with served(counting()) as url:
        return (await record(options(store, url, [], [THREAD]), agent)).recording.tally


async def test_an_agent_that_makes_up_its_id_anew_is_adopted_and_known_by_it_from_then_on(tmp_path: Path) -> None:
    async def agent(url: str) -> None:
        for task in ("/crm", "/mail"):
            thread = str(uuid.uuid4())
            assert await asking(url, thread, task, "/step", "/step") == [1, 2, 3]

    assert (await recorded(tmp_path, agent)).why_not_whole() == []
    receipt = await replay(tmp_path, agent)
    assert receipt["reproduced"], receipt
    assert [one["by"] for one in receipt["adopted"]] == ["request POST /crm", "request POST /mail"]


async def test_a_miss_in_an_adopted_episode_says_that_it_was_adopted(tmp_path: Path) -> None:
    async def agent(url: str) -> None:
        assert await asking(url, str(uuid.uuid4()), "/crm", "/step") == [1, 2]

    await recorded(tmp_path, agent)
    told = []

    async def other(url: str) -> None:
        async with aiohttp.ClientSession(headers={"X-Thread": str(uuid.uuid4())}) as client:
            for path in ("/crm", "/elsewhere"):
                async with client.post(url + path) as answer:
                    told.append((await answer.json()).get("detail", ""))

    await replay(tmp_path, other)
    assert told[0] == ""
    assert told[1].endswith("; this episode was adopted by order; the agent may be another one's")


async def test_a_known_id_is_never_adopted_by_another_episode(tmp_path: Path) -> None:
    async def agent(url: str) -> None:
        for thread in ("t1", "t2"):
            await asking(url, thread, "/step")

    await recorded(tmp_path, agent)

    async def more(url: str) -> None:
        assert await asking(url, "t1", "/step", "/step") == [1, -470]
        assert await asking(url, "t2", "/step") == [1]

    receipt = await replay(tmp_path, more)
    assert (receipt["reproduced"], receipt["missed"], receipt["adopted"]) == (False, 1, [])


async def test_a_stranger_whose_request_begins_no_episode_is_of_no_episode(tmp_path: Path) -> None:
    async def agent(url: str) -> None:
        await asking(url, "t1", "/first", "/second")

    await recorded(tmp_path, agent)

    async def other(url: str) -> None:
        assert await asking(url, "t9", "/second") == [-470]
        assert await asking(url, None, "/first") == [-470]

    receipt = await replay(tmp_path, other)
    assert receipt["missed"] == 2
    assert {one["request"] for one in receipt["unattributed"]} == {"POST /second", "POST /first"}


async def test_more_strangers_than_episodes_are_not_answered_twice_from_one(tmp_path: Path) -> None:
    async def agent(url: str) -> None:
        for thread in ("a", "b"):
            await asking(url, thread, "/step")

    await recorded(tmp_path, agent)

    async def three(url: str) -> None:
        for thread, told in (("x", 1), ("y", 1), ("z", -470)):
            assert await asking(url, thread, "/step") == [told]

    assert len((await replay(tmp_path, three))["adopted"]) == 2


@pytest.mark.parametrize("field", ["request_id", "Idempotency-Key"])
async def test_a_beginning_that_the_agent_mints_a_value_in_is_still_that_beginning(tmp_path: Path, field: str) -> None:
    async def agent(url: str) -> None:
        minted = str(uuid.uuid4())
        headers = {} if field == "request_id" else {field: minted}
        async with Session(url) as session:
            await session.call("seed_session", headers=headers, **({field: minted} if not headers else {}))
            assert await session.call("increment_counter", by=2) == {"count": 2}

    async with served(Nemo(lambda: 1_780_000_000).app) as url:
        await record(options(tmp_path, url, ["nemo-gym"]), agent)
    assert [len(exchanges) for exchanges in episodes(tmp_path).values()] == [2, 0]
    receipt = await replay(tmp_path, agent)
    assert receipt["reproduced"], receipt


async def test_a_probe_is_answered_and_counts_for_nothing(tmp_path: Path) -> None:
    health = {"name": "health", "action": "extract", "at": "POST /health", "fills": "probe"}

    async def agent(url: str) -> None:
        await asking(url, None, "/health", "/health")
        await asking(url, "t1", "/step")

    async with served(counting()) as url:
        tally = (await record(options(tmp_path, url, [], [THREAD, health]), agent)).recording.tally
    assert (tally.probes, tally.why_not_whole()) == (2, [])

    async def patient(url: str) -> None:
        assert await asking(url, None, "/health", "/health", "/health") == [1, 2, 2]
        assert await asking(url, "t1", "/step") == [1]

    receipt = await replay(tmp_path, patient)
    assert (receipt["reproduced"], receipt["missed"], receipt["probes"]) == (True, 0, 3)

    async def hasty(url: str) -> None:
        assert await asking(url, "t1", "/step") == [1]

    assert (await replay(tmp_path, hasty))["reproduced"]


async def test_an_id_that_outlived_its_episode_leads_to_the_one_that_was_marked_last(tmp_path: Path) -> None:
    ends = {"name": "bye", "action": "extract", "at": "POST */bye", "fills": "end"}

    async def agent(url: str) -> None:
        for name in ("a", "b"):
            assert (await asking(f"{url}/rp/{name}", "worker", "/hello"))[0] > 0
            assert (await asking(url, "worker", "/work"))[0] > 0
            assert (await asking(f"{url}/rp/{name}", "worker", "/bye"))[0] > 0

    async with served(counting()) as url:
        tally = (await record(options(tmp_path, url, [], [THREAD, ends]), agent)).recording.tally
    assert tally.why_not_whole() == []
    assert [len(exchanges) for exchanges in episodes(tmp_path).values()] == [3, 3, 0]
    receipt = await replay(tmp_path, agent)
    assert receipt["reproduced"], receipt
