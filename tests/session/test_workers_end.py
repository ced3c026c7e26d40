"""Workers that are killed, stand still, cannot start or lose their recorder: what it costs, and what is said."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from replayproxy.core.values import EpisodeState, Outcome
from replayproxy.proxy.fleet import Fleet
from tests.session.crew_kit import WORKERS, Agent, Crew, crowd, until
from tests.soak.kit import replayproxy


async def test_a_worker_that_is_killed_costs_what_it_had_under_way_and_is_replaced(crew: Crew) -> None:
    crew.delay = 0.02
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

    async with crew.recorder(said, episode="e") as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        url = one.addresses.plain_urls()["app"]
        crowd_ = [asyncio.ensure_future(agent(number, url)) for number in range(16)]
        await until(lambda: len(answered) > 100)
        # A busy machine may let one worker take all connections: the other one's end would cost nothing.
        first = max(fleet._seats.values(), key=lambda seat: len(seat.link.in_flight())).process.pid
        (second,) = set(fleet.pids) - {first}
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
    state, exchanges, _ = crew.read("e")
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


async def test_the_forward_proxy_goes_on_with_workers_that_took_the_place_of_others(crew: Crew) -> None:
    async with crew.recorder(episode="e", forward=("127.0.0.1", 0)) as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        begun = fleet.pids

        async def ask(target: str) -> None:
            async with aiohttp.ClientSession() as http, http.get(crew.url + target, proxy=one.forward) as answer:
                assert (await answer.json())["path"] == target

        await ask("/before")
        await until(lambda: one.recording.tally.attributed == 1)
        for pid in begun:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: fleet.ready == WORKERS and not set(begun) & set(fleet.pids))
        await ask("/after")
    state, exchanges, _ = crew.read("e")
    assert state is EpisodeState.SEALED
    assert [(x.env, x.request.target, x.outcome) for x in exchanges] == [
        ("app", b"/before", Outcome.ANSWERED), ("app", b"/after", Outcome.ANSWERED),
    ]  # fmt: skip


async def test_workers_that_cannot_start_are_told_of_and_nothing_is_left(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replayproxy.errors import WorldTrouble
    from replayproxy.proxy import fleet

    monkeypatch.setattr(fleet, "PROGRAM", ("false",))
    monkeypatch.setattr(fleet, "START_SECONDS", 20.0)
    with pytest.raises(WorldTrouble, match="the worker processes did not start"):
        async with crew.recorder(episode="e"):
            pass


async def test_the_messages_that_a_killed_worker_had_passed_on_are_kept_and_shown(crew: Crew) -> None:
    async with crew.recorder(episode="e") as one, aiohttp.ClientSession() as http:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        url = one.addresses.plain_urls()["app"]
        async with http.ws_connect(f"{url}/talk") as talk:
            for word in ("hello", "you"):
                await talk.send_str(word)
                assert (await talk.receive()).data == word.upper()
            await asyncio.sleep(0.2)
            for pid in fleet.pids:
                os.kill(pid, signal.SIGKILL)
            await until(lambda: one.recording.tally.lost)
    state, exchanges, _ = crew.read("e")
    said = exchanges[0].websocket
    assert (state, exchanges[0].outcome) == (EpisodeState.SEALED, Outcome.LOST)
    assert said is not None
    assert [message.payload for message in said.messages] == [b"hello", b"HELLO", b"you", b"YOU"]
    shown = replayproxy("show", "r/e#1", "--store", str(crew.store))
    assert (shown.returncode, "4 messages, what followed is not known" in shown.stdout) == (0, True), (
        shown.stdout + shown.stderr
    )


async def test_a_worker_whose_recorder_is_gone_ends(crew: Crew) -> None:
    async with crew.recorder(episode="e") as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        pid = fleet.pids[0]
        fleet._seats[1].channel._transport.abort()  # type: ignore[union-attr]  as a recorder that was killed
        await until(lambda: fleet.pids and pid not in fleet.pids)
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            raise AssertionError("it is still there")


async def test_a_worker_that_stands_still_is_replaced_and_holds_up_no_episode(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replayproxy.proxy import fleet as fleets
    from replayproxy.session import episodes

    monkeypatch.setattr(fleets, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(episodes, "STREAMS_SETTLE", 0.3)
    monkeypatch.setattr(episodes, "SETTLE", 5.0)
    said: list[str] = []
    crew.delay = 1.0
    async with crew.recorder(said) as one, aiohttp.ClientSession() as http:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        async with http.post(f"{one.control}/v1/episodes", json={"episode": "e"}) as opened:
            agents = await crowd((await opened.json())["urls"]["app"])
        asking = [asyncio.ensure_future(agent.ask(f"/{n}")) for n, agent in enumerate(agents)]
        await until(lambda: len(crew.seen) == len(agents))
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
    state, exchanges, _ = crew.read("e")
    assert (state, len(exchanges)) == (EpisodeState.SEALED, len(agents))
    assert {exchange.outcome for exchange in exchanges if exchange.order[1] == 1} == {Outcome.LOST}
    assert not one.recording.tally.strays
    assert len([line for line in said if "was killed by signal 9" in line and "a new one is started" in line]) == 2


async def test_an_episode_whose_exchanges_did_not_end_is_incomplete(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replayproxy.session import episodes

    monkeypatch.setattr(episodes, "STREAMS_SETTLE", 0.2)
    monkeypatch.setattr(episodes, "SETTLE", 0.4)
    async with crew.recorder() as one, aiohttp.ClientSession() as http:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        crew.delay = 30.0
        async with http.post(f"{one.control}/v1/episodes", json={"episode": "e"}) as opened:
            agent = Agent((await opened.json())["urls"]["app"])
        await agent.connect()
        asking = asyncio.ensure_future(agent.ask("/1"))
        await until(lambda: crew.seen)
        for pid in fleet.pids:
            os.kill(pid, signal.SIGSTOP)
        async with http.post(f"{one.control}/v1/episodes/e/end", json={}) as ended:
            told = await ended.json()
        assert (told["state"], told["faults"]) == ("incomplete", ["1 exchange did not end with the episode"])
    await asyncio.gather(asking, return_exceptions=True)


async def test_an_episode_opens_though_a_worker_has_ended_that_very_moment(crew: Crew) -> None:
    async with crew.recorder() as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        os.kill(fleet.pids[0], signal.SIGKILL)
        # Nothing of the loop runs here: nobody has heard of it.
        os.waitid(os.P_PID, fleet.pids[0], os.WEXITED | os.WNOWAIT)
        listener = await fleet.listen("app", crew.url)
        await until(lambda: fleet.ready == WORKERS)
        agent = Agent(listener.url)
        await agent.connect()
        await agent.ask("/1")


async def test_a_worker_that_is_ready_when_the_start_was_given_up_is_no_fault(crew: Crew) -> None:
    async with crew.recorder([], episode="e") as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        seat = fleet._seats[1]
        seat.ready = asyncio.get_running_loop().create_future()
        seat.ready.cancel()
        await fleet._equip(seat)
        assert seat.ready.cancelled()


async def test_a_signal_for_the_whole_group_leaves_the_end_to_the_recorder(crew: Crew) -> None:
    crew.delay = 0.3
    said: list[str] = []
    async with crew.recorder(said, episode="e") as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        agents = await crowd(one.addresses.plain_urls()["app"], 8)
        asking = [asyncio.ensure_future(agent.ask(f"/{n}")) for n, agent in enumerate(agents)]
        await until(lambda: len(crew.seen) == 8)
        for pid in fleet.pids:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(pid, number)
        await asyncio.gather(*asking)
    assert said[-1:] == [] or "was killed" not in said[-1]
    assert {exchange.outcome for exchange in crew.read("e")[1]} == {Outcome.ANSWERED}


async def test_the_directory_of_a_recording_has_no_say_in_what_its_processes_import(
    crew: Crew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    async with crew.recorder(episode="e", verdicts=True) as one, aiohttp.ClientSession() as http:
        agents = await crowd(one.addresses.plain_urls()["app"], 1)
        await agents[0].ask("/1")
        async with http.post(f"{one.control}/v1/episodes/e/end", json={}) as ended:
            told = await ended.json()
    assert (told["state"], "has ended" in str(told)) == ("sealed", False)


async def test_where_no_worker_can_be_had_any_more_agents_are_refused_and_do_not_wait(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replayproxy.proxy import fleet as fleets

    said: list[str] = []
    async with crew.recorder(said, episode="e") as one:
        fleet = one.engine
        assert isinstance(fleet, Fleet)
        monkeypatch.setattr(fleets, "PROGRAM", ("false",))
        for pid in fleet.pids:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not fleet.pids and len([line for line in said if "no new one" in line]) == WORKERS)
        with pytest.raises(ConnectionRefusedError):
            await Agent(one.addresses.plain_urls()["app"]).connect()
    assert crew.read("e")[0] is EpisodeState.INCOMPLETE
