"""Two workers record what one would: order, snapshots, episodes, bodies, conversations, rules, TLS, back pressure."""

from __future__ import annotations

import asyncio
import os
import signal

import aiohttp
import pytest

from replayproxy.core.identity import SEALED
from replayproxy.core.values import EpisodeState, Outcome, SnapshotStatus
from replayproxy.proxy.fleet import Fleet
from replayproxy.session.wiring import EnvSpec
from replayproxy.state.loader import load
from replayproxy.storage import open_store
from tests.session.crew_kit import WORKERS, Agent, Crew, crowd, until, workers_of


async def test_an_episode_keeps_its_order_though_its_connections_land_on_different_workers(crew: Crew) -> None:
    async with crew.recorder(episode="e") as one:
        agents = await crowd(one.addresses.plain_urls()["app"])
        for n in range(96):
            await agents[n % len(agents)].ask(f"/{n}")
    state, exchanges, _ = crew.read("e")
    assert state is EpisodeState.SEALED
    assert workers_of(exchanges) == {1, 2}, "both had a share, else this shows nothing"
    assert [exchange.request.target for exchange in exchanges] == [b"/%d" % n for n in range(96)]
    assert [exchange.seq for exchange in exchanges] == list(range(1, 97))
    assert one.recording.tally.lane_ambiguous == 0


async def test_a_snapshot_after_a_write_shows_it_whichever_worker_carried_it(crew: Crew) -> None:
    snapshots = (load("app", f"http:{crew.url}/state"),)
    async with crew.recorder(episode="e", snapshots=snapshots) as one:
        agents = await crowd(one.addresses.plain_urls()["app"])
        for n in range(12):
            await agents[n * 2].ask(f"/w{n}", "POST")
            await agents[n * 2 + 1].ask(f"/r{n}")
    state, exchanges, taken = crew.read("e")
    assert state is EpisodeState.SEALED
    assert workers_of(exchanges) == {1, 2}
    after = [snapshot for snapshot in taken if snapshot.when == "write"]
    assert [snapshot.after_seq for snapshot in after] == list(range(1, 25, 2))
    assert {snapshot.status for snapshot in taken} == {SnapshotStatus.TAKEN}, "no read before it is still under way"
    assert len({snapshot.root for snapshot in after}) == 12
    held = [exchange.held_ns > 0 for exchange in exchanges]
    assert held == [True, False] * 12


async def test_episodes_of_the_api_are_told_apart_and_end_on_every_worker(crew: Crew) -> None:
    async with crew.recorder(said=[]) as one, aiohttp.ClientSession() as http:
        urls = {}
        for style in ("path", "port"):
            wanted = {"episode": style, "url_style": style}
            async with http.post(f"{one.control}/v1/episodes", json=wanted) as opened:
                assert opened.status == 201
                urls[style] = (await opened.json())["urls"]["app"]
        agents = {style: await crowd(url, 12) for style, url in urls.items()}
        for style, each in agents.items():
            await asyncio.gather(*(agent.ask(f"/{style}") for agent in each))
        for style in agents:
            async with http.post(f"{one.control}/v1/episodes/{style}/end", json={"reward": 1.0}) as ended:
                assert (ended.status, (await ended.json())["state"]) == (200, "sealed")
        await agents["path"][0].ask("/late")
        with pytest.raises(OSError):
            await Agent(urls["port"]).connect()
        strays = one.recording.tally.strays
    for style in agents:
        state, exchanges, _ = crew.read(style)
        assert state is EpisodeState.SEALED
        assert [exchange.request.target.decode() for exchange in exchanges] == [f"/{style}"] * 12
    assert {reason: stray.count for reason, stray in strays.items()} == {SEALED: 1}


async def test_a_stream_that_is_open_when_its_episode_ends_is_cut_from_it(crew: Crew) -> None:
    async with crew.recorder() as one, aiohttp.ClientSession() as http:
        async with http.post(f"{one.control}/v1/episodes", json={"episode": "e"}) as opened:
            url = (await opened.json())["urls"]["app"]
        async with http.get(f"{url}/events") as stream:
            assert await stream.content.readline() == b"data: 1\n"
            async with http.post(f"{one.control}/v1/episodes/e/end", json={}) as ended:
                assert (await ended.json())["state"] == "sealed"
    _, exchanges, _ = crew.read("e")
    assert [exchange.outcome for exchange in exchanges] == [Outcome.OPEN_AT_END]
    body = exchanges[0].response.body if exchanges[0].response else None
    assert body is not None
    assert body.inline == b"data: 1\n\n"


async def test_long_bodies_conversations_and_secrets_are_kept_as_by_one_process(crew: Crew) -> None:
    long = os.urandom(300_000)
    async with crew.recorder(episode="e") as one, aiohttp.ClientSession() as http:
        url = one.addresses.plain_urls()["app"]
        async with http.post(f"{url}/echo", data=long, headers={"Authorization": "Bearer s3cr3t-t0ken-x"}) as answer:
            assert await answer.read() == long
        async with http.ws_connect(f"{url}/talk") as talk:
            await talk.send_str("hello")
            assert (await talk.receive()).data == "HELLO"
    assert one.recording.tally.why_not_whole() == []
    with open_store(crew.store) as store:
        reader = store.reader()
        echo, said = reader.exchanges(reader.episode(reader.run("r"), "e"))
        assert echo.response is not None
        for body in (echo.request.body, echo.response.body):
            assert body is not None
            assert (body.size, body.inline) == (len(long), None)
            assert reader.body(body) == long
        messages = said.websocket.messages if said.websocket else ()
    token = next(value for name, value in echo.request.fields if name == b"Authorization")
    assert b"s3cr3t" not in token
    assert [(message.from_agent, message.payload) for message in messages] == [(True, b"hello"), (False, b"HELLO")]
    for path in crew.store.rglob("*"):
        assert not path.is_file() or b"s3cr3t" not in path.read_bytes()


async def test_rules_find_the_episode_in_a_body_that_a_worker_carried(crew: Crew) -> None:
    rule = {"name": "who", "action": "extract", "at": "POST /echo", "body": "/who", "fills": "episode"}
    async with crew.recorder(rules=(rule,)) as one, aiohttp.ClientSession() as http:
        url = one.addresses.plain_urls()["app"]
        for n in range(6):
            async with http.post(f"{url}/echo", json={"who": f"e{n % 2}", "n": n}) as answer:
                await answer.read()
    for name in ("e0", "e1"):
        _, exchanges, _ = crew.read(name)
        assert [exchange.carrier for exchange in exchanges] == ["rule"] * 3


async def test_tls_listeners_speak_http2_on_every_worker(crew: Crew) -> None:
    envs = (EnvSpec(name="app", upstream=crew.url, tls=True),)
    async with crew.recorder(envs=envs, episode="e") as one:
        assert one.authority is not None
        url = one.addresses.plain_urls()["app"]
        curl = await asyncio.create_subprocess_exec(
            "curl", "-sS", "--cacert", str(one.authority.certificate), f"{url}/a", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await curl.communicate()
    assert (curl.returncode, b'"/a"' in out) == (0, True)
    _, exchanges, _ = crew.read("e")
    assert [exchange.request.target for exchange in exchanges] == [b"/a"]


async def test_a_new_worker_takes_over_more_listeners_than_can_be_on_their_way_at_once(crew: Crew) -> None:
    async with crew.recorder(episode="e") as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        opened = await asyncio.gather(*(fleet.listen("app", crew.url) for _ in range(400)))
        for listener in opened[:50]:
            await fleet.unlisten(listener)
        first, second = fleet.pids
        os.kill(first, signal.SIGKILL)
        await until(lambda: fleet.ready == WORKERS and first not in fleet.pids)
        os.kill(second, signal.SIGKILL)
        await until(lambda: second not in fleet.pids)
        for number in (50, 399):
            agent = Agent(opened[number].url)
            await agent.connect()
            await agent.ask(f"/{number}")
    _, exchanges, _ = crew.read("e")
    assert [exchange.request.target for exchange in exchanges] == [b"/50", b"/399"]


async def test_a_full_queue_makes_the_workers_read_slower_until_there_is_room(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crew.recorder(episode="e") as one, aiohttp.ClientSession() as http:
        url = one.addresses.plain_urls()["app"]
        room = asyncio.Event()
        monkeypatch.setattr(one.recording, "room", room.is_set)
        monkeypatch.setattr(one.recording, "wait_room", room.wait)
        for agent in await crowd(url):
            await agent.ask("/tells")  # with the next word of a worker the recorder tells them all
        sent = asyncio.ensure_future(http.post(f"{url}/echo", data=bytes(32 * 1024 * 1024)))
        _, waits = await asyncio.wait([sent], timeout=2.0)
        assert waits, "as much as that does not fit into the system's own buffers"
        room.set()
        async with asyncio.timeout(60), await sent as answer:
            assert len(await answer.read()) == 32 * 1024 * 1024
    assert one.recording.tally.why_not_whole() == []
