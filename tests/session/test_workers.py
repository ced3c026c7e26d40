"""`record --workers 2` whole: real worker processes, a small environment in this loop, and what the store holds."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from replayproxy.core.identity import SEALED
from replayproxy.core.values import EpisodeState, Exchange, Outcome, Snapshot, SnapshotStatus
from replayproxy.proxy.fleet import Fleet
from replayproxy.session import secrecy
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.recorder import Recorder
from replayproxy.session.wiring import EnvSpec
from replayproxy.state.loader import load
from replayproxy.storage import open_store

WORKERS = 2


@dataclass
class World:
    """The environment, and where the store is."""

    url: str
    store: Path
    delay: float = 0.0
    seen: list[str] = field(default_factory=list)
    value: int = 0
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request.raw_path)
        if request.path == "/talk":
            talk = web.WebSocketResponse()
            await talk.prepare(request)
            async for message in talk:
                await talk.send_str(message.data.upper())
            return talk
        if request.path == "/events":
            stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await stream.prepare(request)
            await stream.write(b"data: 1\n\n")
            await self.go_on.wait()
            return stream
        if request.path == "/state":
            return web.json_response({"t": {"1": {"value": self.value}}})
        if request.path == "/echo":
            return web.Response(body=await request.content.read(), headers={"Content-Type": "application/octet-stream"})
        if request.method == "POST":
            self.value += 1
        await asyncio.sleep(self.delay)
        return web.json_response({"path": request.raw_path, "value": self.value})

    def options(self, **given: Any) -> RecordOptions:
        envs = (EnvSpec(name="app", upstream=self.url),)
        wired = {"store": self.store, "run": "r", "envs": envs, "log_every": 0.0, "workers": WORKERS, "verdicts": False}
        return RecordOptions(**{**wired, **given})

    @asynccontextmanager
    async def recorder(self, said: list[str] | None = None, **given: Any) -> AsyncIterator[Recorder]:
        with open_store(self.store, create=True) as store:
            writer = store.writer(redactor=secrecy.for_recording(self.store, keep=False, rules=()))
            one = Recorder(self.options(**given), store, writer, (said if said is not None else []).append)
            try:
                await one.start()
                yield one
            finally:
                await one.stop(None)
                writer.close()

    def read(self, name: str) -> tuple[EpisodeState, list[Exchange], list[Snapshot]]:
        with open_store(self.store) as store:
            reader = store.reader()
            episode = reader.episode(reader.run("r"), name)
            return episode.state, list(reader.exchanges(episode)), list(reader.snapshots(episode))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(url="", store=tmp_path / "store")
    runner = web.ServerRunner(web.Server(made.answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    yield made
    made.go_on.set()
    await runner.cleanup()


class Agent:
    """One connection, kept open."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port, self.path = parts.hostname, parts.port, parts.path
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)

    async def ask(self, target: str, method: str = "GET") -> bytes:
        """The answer's body. Raises OSError or EOFError when the connection breaks."""
        assert self.reader is not None
        assert self.writer is not None
        head = f"{method} {self.path}{target} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Length: 0\r\n\r\n"
        self.writer.write(head.encode())
        said = await self.reader.readuntil(b"\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 200"), said
        length = next(line for line in said.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return await self.reader.readexactly(int(length.split(b":")[1]))

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


async def crowd(url: str, count: int = 24) -> list[Agent]:
    """So many connections, opened at once: they land on all the workers."""
    agents = [Agent(url) for _ in range(count)]
    await asyncio.gather(*(agent.connect() for agent in agents))
    return agents


async def until(holds: Callable[[], Any], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.02)


def workers_of(exchanges: list[Exchange]) -> set[int]:
    return {exchange.order[1] for exchange in exchanges}


async def test_an_episode_keeps_its_order_though_its_connections_land_on_different_workers(world: World) -> None:
    async with world.recorder(episode="e") as one:
        agents = await crowd(one.addresses.plain_urls()["app"])
        for n in range(96):
            await agents[n % len(agents)].ask(f"/{n}")
    state, exchanges, _ = world.read("e")
    assert state is EpisodeState.SEALED
    assert workers_of(exchanges) == {1, 2}, "both had a share, else this shows nothing"
    assert [exchange.request.target for exchange in exchanges] == [b"/%d" % n for n in range(96)]
    assert [exchange.seq for exchange in exchanges] == list(range(1, 97))
    assert one.recording.tally.lane_ambiguous == 0


async def test_a_worker_that_is_killed_costs_what_it_had_under_way_and_is_replaced(world: World) -> None:
    world.delay = 0.02
    answered: Counter[str] = Counter()
    failed: set[str] = set()
    done = asyncio.Event()
    said: list[str] = []

    async def agent(number: int, url: str) -> None:
        count = 0
        one = Agent(url)
        while not done.is_set():
            target = f"/{number}-{count}"
            try:
                if one.writer is None or one.writer.is_closing():
                    one = Agent(url)
                    await one.connect()
                await one.ask(target)
                answered[target] += 1
            except (OSError, EOFError):
                failed.add(target)
                one.close()
            count += 1
        one.close()

    async with world.recorder(said, episode="e") as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        url = one.addresses.plain_urls()["app"]
        crowd_ = [asyncio.ensure_future(agent(number, url)) for number in range(16)]
        await until(lambda: len(answered) > 100)
        first, second = fleet.pids
        os.kill(first, signal.SIGKILL)
        await until(lambda: failed)
        await until(lambda: fleet.ready == WORKERS and first not in fleet.pids)
        there = len(answered)
        await until(lambda: len(answered) > there + 50)
        # The one that took its place serves: the other one goes, and the answers do not end.
        os.kill(second, signal.SIGKILL)
        await until(lambda: second not in fleet.pids)
        there = len(answered)
        await until(lambda: len(answered) > there + 50)
        done.set()
        await asyncio.gather(*crowd_)
        counts = one.recording.tally
    state, exchanges, _ = world.read("e")
    stored = Counter(exchange.request.target.decode() for exchange in exchanges)
    lost = {exchange.request.target.decode() for exchange in exchanges if exchange.outcome is Outcome.LOST}
    whole = {exchange.request.target.decode() for exchange in exchanges if exchange.outcome is Outcome.ANSWERED}
    assert set(stored.values()) == {1}, "each exactly once"
    assert set(answered) <= whole | lost
    # Beyond what its agents missed, only what was answered in the very turn of the loop in which it was killed.
    assert 0 < len(lost) <= 32
    assert len(set(answered) & lost) <= 16
    assert {exchange.error.rpartition("worker ")[2] for exchange in exchanges if exchange.outcome is Outcome.LOST} <= {
        "1 was killed by signal 9", "2 was killed by signal 9"
    }  # fmt: skip
    assert state is EpisodeState.SEALED, "what is missing is known"
    assert (counts.lost, f"{counts.lost} exchanges lost with a worker process" in counts.why_not_whole()) == (
        len(lost), len(lost) > 1
    )  # fmt: skip
    assert [line for line in said if "was killed by signal 9" in line and "a new one is started" in line]


async def test_a_snapshot_after_a_write_shows_it_whichever_worker_carried_it(world: World) -> None:
    snapshots = (load("app", f"http:{world.url}/state"),)
    async with world.recorder(episode="e", snapshots=snapshots) as one:
        agents = await crowd(one.addresses.plain_urls()["app"])
        for n in range(12):
            await agents[n * 2].ask(f"/w{n}", "POST")
            await agents[n * 2 + 1].ask(f"/r{n}")
    state, exchanges, taken = world.read("e")
    assert state is EpisodeState.SEALED
    assert workers_of(exchanges) == {1, 2}
    after = [snapshot for snapshot in taken if snapshot.when == "write"]
    assert [snapshot.after_seq for snapshot in after] == list(range(1, 25, 2))
    assert {snapshot.status for snapshot in taken} == {SnapshotStatus.TAKEN}, "no read before it is still under way"
    assert len({snapshot.root for snapshot in after}) == 12
    held = [exchange.held_ns > 0 for exchange in exchanges]
    assert held == [True, False] * 12


async def test_episodes_of_the_api_are_told_apart_and_end_on_every_worker(world: World) -> None:
    async with world.recorder(said=[]) as one, aiohttp.ClientSession() as http:
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
        state, exchanges, _ = world.read(style)
        assert state is EpisodeState.SEALED
        assert [exchange.request.target.decode() for exchange in exchanges] == [f"/{style}"] * 12
    assert {reason: stray.count for reason, stray in strays.items()} == {SEALED: 1}


async def test_a_stream_that_is_open_when_its_episode_ends_is_cut_from_it(world: World) -> None:
    async with world.recorder() as one, aiohttp.ClientSession() as http:
        async with http.post(f"{one.control}/v1/episodes", json={"episode": "e"}) as opened:
            url = (await opened.json())["urls"]["app"]
        async with http.get(f"{url}/events") as stream:
            assert await stream.content.readline() == b"data: 1\n"
            async with http.post(f"{one.control}/v1/episodes/e/end", json={}) as ended:
                assert (await ended.json())["state"] == "sealed"
    _, exchanges, _ = world.read("e")
    assert [exchange.outcome for exchange in exchanges] == [Outcome.OPEN_AT_END]
    body = exchanges[0].response.body if exchanges[0].response else None
    assert body is not None
    assert body.inline == b"data: 1\n\n"


async def test_long_bodies_conversations_and_secrets_are_kept_as_by_one_process(world: World) -> None:
    long = os.urandom(300_000)
    async with world.recorder(episode="e") as one, aiohttp.ClientSession() as http:
        url = one.addresses.plain_urls()["app"]
        async with http.post(f"{url}/echo", data=long, headers={"Authorization": "Bearer s3cr3t-t0ken-x"}) as answer:
            assert await answer.read() == long
        async with http.ws_connect(f"{url}/talk") as talk:
            await talk.send_str("hello")
            assert (await talk.receive()).data == "HELLO"
    assert one.recording.tally.why_not_whole() == []
    with open_store(world.store) as store:
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
    for path in world.store.rglob("*"):
        assert not path.is_file() or b"s3cr3t" not in path.read_bytes()


async def test_rules_find_the_episode_in_a_body_that_a_worker_carried(world: World) -> None:
    rule = {"name": "who", "action": "extract", "at": "POST /echo", "body": "/who", "fills": "episode"}
    async with world.recorder(rules=(rule,)) as one, aiohttp.ClientSession() as http:
        url = one.addresses.plain_urls()["app"]
        for n in range(6):
            async with http.post(f"{url}/echo", json={"who": f"e{n % 2}", "n": n}) as answer:
                await answer.read()
    for name in ("e0", "e1"):
        _, exchanges, _ = world.read(name)
        assert [exchange.carrier for exchange in exchanges] == ["rule"] * 3


async def test_tls_listeners_speak_http2_on_every_worker(world: World) -> None:
    envs = (EnvSpec(name="app", upstream=world.url, tls=True),)
    async with world.recorder(envs=envs, episode="e") as one:
        assert one.authority is not None
        url = one.addresses.plain_urls()["app"]
        curl = await asyncio.create_subprocess_exec(
            "curl", "-sS", "--cacert", str(one.authority.certificate), f"{url}/a", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await curl.communicate()
    assert (curl.returncode, b'"/a"' in out) == (0, True)
    _, exchanges, _ = world.read("e")
    assert [exchange.request.target for exchange in exchanges] == [b"/a"]


async def test_a_new_worker_takes_over_more_listeners_than_can_be_on_their_way_at_once(world: World) -> None:
    async with world.recorder(episode="e") as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        opened = await asyncio.gather(*(fleet.listen("app", world.url) for _ in range(400)))
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
    _, exchanges, _ = world.read("e")
    assert [exchange.request.target for exchange in exchanges] == [b"/50", b"/399"]


async def test_a_full_queue_makes_the_workers_read_slower_until_there_is_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.recorder(episode="e") as one, aiohttp.ClientSession() as http:
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


async def test_workers_that_cannot_start_are_told_of_and_nothing_is_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replayproxy.errors import WorldTrouble
    from replayproxy.proxy import fleet

    monkeypatch.setattr(fleet, "PROGRAM", ("false",))
    monkeypatch.setattr(fleet, "START_SECONDS", 20.0)
    with pytest.raises(WorldTrouble, match="the worker processes did not start"):
        async with world.recorder(episode="e"):
            pass


async def test_a_worker_whose_recorder_is_gone_ends(world: World) -> None:
    async with world.recorder(episode="e") as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        pid = fleet.pids[0]
        fleet._seats[1].channel._transport.abort()  # type: ignore[union-attr]  as a recorder that was killed
        await until(lambda: fleet.pids and pid not in fleet.pids)
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            raise AssertionError("it is still there")


async def test_a_worker_that_stands_still_is_replaced_and_holds_up_no_episode(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replayproxy.proxy import fleet as fleets
    from replayproxy.session import episodes

    monkeypatch.setattr(fleets, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(episodes, "STREAMS_SETTLE", 0.3)
    monkeypatch.setattr(episodes, "SETTLE", 5.0)
    said: list[str] = []
    world.delay = 1.0
    async with world.recorder(said) as one, aiohttp.ClientSession() as http:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        async with http.post(f"{one.control}/v1/episodes", json={"episode": "e"}) as opened:
            agents = await crowd((await opened.json())["urls"]["app"])
        asking = [asyncio.ensure_future(agent.ask(f"/{n}")) for n, agent in enumerate(agents)]
        await until(lambda: len(world.seen) == len(agents))
        stands = fleet.pids[0]
        os.kill(stands, signal.SIGSTOP)
        async with asyncio.timeout(30), http.post(f"{one.control}/v1/episodes/e/end", json={}) as ended:
            assert (await ended.json())["state"] == "sealed"
        await asyncio.gather(*asking, return_exceptions=True)
        await until(lambda: fleet.ready == WORKERS)
        stands = fleet.pids[0]
        os.kill(stands, signal.SIGSTOP)
        wanted = {"episode": "p", "url_style": "port"}
        async with asyncio.timeout(30), http.post(f"{one.control}/v1/episodes", json=wanted) as opened:
            assert opened.status == 201
        assert stands not in fleet.pids
    state, exchanges, _ = world.read("e")
    assert (state, len(exchanges)) == (EpisodeState.SEALED, len(agents))
    assert {exchange.outcome for exchange in exchanges if exchange.order[1] == 1} == {Outcome.LOST}
    assert not one.recording.tally.strays
    assert len([line for line in said if "was killed by signal 9" in line and "a new one is started" in line]) == 2


async def test_an_episode_whose_exchanges_did_not_end_is_incomplete(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replayproxy.session import episodes

    monkeypatch.setattr(episodes, "STREAMS_SETTLE", 0.2)
    monkeypatch.setattr(episodes, "SETTLE", 0.4)
    async with world.recorder() as one, aiohttp.ClientSession() as http:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        world.delay = 30.0
        async with http.post(f"{one.control}/v1/episodes", json={"episode": "e"}) as opened:
            agent = Agent((await opened.json())["urls"]["app"])
        await agent.connect()
        asking = asyncio.ensure_future(agent.ask("/1"))
        await until(lambda: world.seen)
        for pid in fleet.pids:
            os.kill(pid, signal.SIGSTOP)
        async with http.post(f"{one.control}/v1/episodes/e/end", json={}) as ended:
            told = await ended.json()
        assert (told["state"], told["faults"]) == ("incomplete", ["1 exchanges did not end with the episode"])
    await asyncio.gather(asking, return_exceptions=True)


async def test_an_episode_opens_though_a_worker_has_ended_that_very_moment(world: World) -> None:
    async with world.recorder() as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        os.kill(fleet.pids[0], signal.SIGKILL)
        # Nothing of the loop runs here: nobody has heard of it.
        os.waitid(os.P_PID, fleet.pids[0], os.WEXITED | os.WNOWAIT)
        listener = await fleet.listen("app", world.url)
        await until(lambda: fleet.ready == WORKERS)
        agent = Agent(listener.url)
        await agent.connect()
        await agent.ask("/1")


async def test_a_signal_for_the_whole_group_leaves_the_end_to_the_recorder(world: World) -> None:
    world.delay = 0.3
    said: list[str] = []
    async with world.recorder(said, episode="e") as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        agents = await crowd(one.addresses.plain_urls()["app"], 8)
        asking = [asyncio.ensure_future(agent.ask(f"/{n}")) for n, agent in enumerate(agents)]
        await until(lambda: len(world.seen) == 8)
        for pid in fleet.pids:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(pid, number)
        await asyncio.gather(*asking)
    assert said[-1:] == [] or "was killed" not in said[-1]
    assert {exchange.outcome for exchange in world.read("e")[1]} == {Outcome.ANSWERED}


async def test_the_directory_of_a_recording_has_no_say_in_what_its_processes_import(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    async with world.recorder(episode="e", verdicts=True) as one, aiohttp.ClientSession() as http:
        agents = await crowd(one.addresses.plain_urls()["app"], 1)
        await agents[0].ask("/1")
        async with http.post(f"{one.control}/v1/episodes/e/end", json={}) as ended:
            told = await ended.json()
    assert (told["state"], "has ended" in str(told)) == ("sealed", False)


async def test_where_no_worker_can_be_had_any_more_agents_are_refused_and_do_not_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replayproxy.proxy import fleet as fleets

    said: list[str] = []
    async with world.recorder(said, episode="e") as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        monkeypatch.setattr(fleets, "PROGRAM", ("false",))
        for pid in fleet.pids:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not fleet.pids and len([line for line in said if "no new one" in line]) == WORKERS)
        with pytest.raises(ConnectionRefusedError):
            await Agent(one.addresses.plain_urls()["app"]).connect()
    assert world.read("e")[0] is EpisodeState.INCOMPLETE
