from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from replayproxy.core.values import EpisodeState, Outcome, SnapshotStatus
from replayproxy.errors import StoreTrouble, WorldTrouble
from replayproxy.serve.control import EndRequest, MarkRequest, OpenRequest, Refused
from replayproxy.session import episodes
from replayproxy.session.camera import Plan
from replayproxy.session.judging import NOT_HERE
from replayproxy.session.wiring import EnvSpec
from tests.session.desk_kit import URL, Kit, Table, made

type Make = Callable[..., Kit]

DYNAMIC = [EnvSpec(name="app", upstream=URL + "/api"), EnvSpec(name="crm", upstream="dynamic")]


async def opened(kit: Kit, **wanted: Any) -> dict[str, Any]:
    return await kit.desk.open(OpenRequest(**wanted), "127.0.0.1")


async def refused(kit: Kit, **wanted: Any) -> Refused:
    with pytest.raises(Refused) as no:
        await opened(kit, **wanted)
    return no.value


async def test_an_episode_is_opened_with_all_that_was_said_after_its_start_snapshot(kit: Make) -> None:
    one = kit(envs=DYNAMIC, tables={"app": Table()})
    await one.addresses.start()
    answer = await opened(
        one, episode="a b".replace(" ", "é"), task="t", seed=7, attempt=2, group="g", meta={"step": 3},
        envs={"crm": "http://127.0.0.1:5/sub"}, instance={"crm": "pod-1"},
    )  # fmt: skip
    assert answer["episode"] == "aéb"
    assert answer["urls"] == {
        "app": "http://127.0.0.1:4001/rp/a%C3%A9b/api", "crm": "http://127.0.0.2:4002/rp/a%C3%A9b/sub",
    }  # fmt: skip
    stored = await one.episode("aéb")
    assert (stored.task, stored.seed, stored.attempt, stored.group) == ("t", 7, 2, "g")
    assert (stored.meta, stored.envs, stored.instance) == (
        {"step": 3}, {"crm": "http://127.0.0.1:5/sub"}, {"crm": "pod-1"},
    )  # fmt: skip
    assert [(s.when, s.status) for s in await one.snapshots("aéb")] == [("start", SnapshotStatus.TAKEN)]


async def test_a_dynamic_environment_without_an_upstream_has_no_url(kit: Make) -> None:
    one = kit(envs=DYNAMIC)
    await one.addresses.start()
    assert list((await opened(one))["urls"]) == ["app"]


async def test_names_are_minted_where_none_is_given(kit: Make) -> None:
    one = kit()
    await one.addresses.start()
    assert [(await opened(one, task=task))["episode"] for task in ("crm-7", "crm-7", None)] == [
        "crm-7-a1",
        "crm-7-a2",
        "e1",
    ]


async def test_a_taken_name_is_409_with_one_to_try_open_or_sealed(kit: Make) -> None:
    one = kit()
    await one.addresses.start()
    await opened(one, episode="x")
    no = await refused(one, episode="x")
    assert (no.status, no.document["try"]) == (409, "x-a2")
    await one.desk.end("x", EndRequest())
    assert (await refused(one, episode="x")).document["try"] == "x-a2"


@pytest.mark.parametrize(
    ("name", "near"), [("a b", "a-b"), ("", "episode-1"), ("unattributed", "episode-1"), ("a/b", "a-b")]
)
async def test_a_refused_name_is_422_with_one_to_try(kit: Make, name: str, near: str) -> None:
    no = await refused(kit(), episode=name)
    assert (no.status, no.document["try"]) == (422, near)


@pytest.mark.parametrize(
    ("wanted", "status", "says"),
    [
        ({"envs": {"nope": "http://127.0.0.1"}}, 422, "no environment 'nope'"),
        ({"envs": {"app": "http://127.0.0.1"}}, 422, "has an upstream already"),
        ({"envs": {"crm": "ftp://x"}}, 422, "is no http://"),
        ({"envs": {"crm": "http://10.0.0.1"}}, 403, "not loopback"),
        ({"envs": {"crm": "http://metadata.internal"}}, 403, "not loopback"),
        ({"instance": {"nope": "1"}}, 422, "no environment 'nope'"),
        ({"snapshots": {"app": "sqlite:/etc/passwd"}}, 422, "takes http: only"),
        ({"snapshots": {"app": "./mine.py:x"}}, 422, "takes http: only"),
        ({"snapshots": {"app": "http:nonsense"}}, 422, "snapshot app=http:nonsense"),
        ({"snapshots": {"app": "http:http://127.0.0.1/s,header=A:env:HOME"}}, 422, "env: is for the command line"),
        ({"snapshots": {"app": "http:http://10.0.0.1/s"}}, 403, "not loopback"),
        ({"snapshots": {"app": "http:http://127.0.0.1:{seed}/s"}}, 422, "snapshot"),
        ({"snapshots": {"app": "http:http://127.0.0.1@10.0.0.1/s,header=A:B"}}, 403, "not loopback"),
        ({"snapshots": {"1": "http:http://127.0.0.1/s"}}, 422, "snapshot name"),
    ],
)
async def test_what_the_api_may_not_name_is_refused_and_opens_nothing(
    kit: Make, wanted: dict[str, Any], status: int, says: str
) -> None:
    one = kit(envs=DYNAMIC)
    no = await refused(one, episode="x", **wanted)
    assert no.status == status
    assert says in no.document["detail"]
    assert not one.recording.book.is_taken("x")


async def test_an_allowed_upstream_beyond_loopback_is_taken(kit: Make) -> None:
    one = kit(envs=DYNAMIC, allowed=["10.0.0.0/8"])
    await one.addresses.start()
    assert "crm" in (await opened(one, envs={"crm": "http://10.1.2.3:80"}))["urls"]


async def test_an_http_snapshot_of_the_api_is_taken_for_that_episode_alone(kit: Make) -> None:
    one = kit(tables={"app": Table()})
    await one.addresses.start()
    await opened(one, episode="x", snapshots={"app.own": "http:http://127.0.0.1:9/state"})
    await opened(one, episode="y")
    assert [s.name for s in await one.snapshots("x")] == ["app", "app.own"]
    assert [s.name for s in await one.snapshots("y")] == ["app"]


async def test_port_style_gives_an_episode_listeners_of_its_own_and_takes_them_back(kit: Make) -> None:
    one = kit(envs=DYNAMIC)
    await one.addresses.start()
    answer = await opened(one, episode="x", url_style="port", envs={"crm": "http://127.0.0.1:5/sub"})
    assert answer["urls"] == {"app": "http://127.0.0.1:4003/api", "crm": "http://127.0.0.2:4004/sub"}
    assert [one_.port_episode for one_ in one.recording.ledger.lives["x"].listeners] == ["x", "x"]
    await one.desk.end("x", EndRequest())
    assert [listener.env for listener in one.engine.closed] == ["app", "crm"]


async def test_an_episode_that_gets_no_listener_is_given_up(kit: Make) -> None:
    one = kit(url_style="port")
    await one.addresses.start()
    one.engine.fails = WorldTrouble("too many open files")
    no = await refused(one, episode="x")
    assert (no.status, no.document["detail"]) == (503, "too many open files")
    assert (await one.episode("x")).state is EpisodeState.INCOMPLETE


async def test_the_end_seals_and_says_that_nothing_was_checked(kit: Make) -> None:
    one = kit(tables={"app": Table()})
    await one.addresses.start()
    await opened(one, episode="x", meta={"a": 1})
    await one.pass_through(header="x")
    answer = await one.desk.end("x", EndRequest(reward=0.5, outcome="solved", meta={"b": 2}))
    assert (answer["state"], answer["verdict"], answer["mask"], answer["reasons"]) == ("sealed", "unknown", False, [])
    assert answer["coverage"]["checked"] == []
    assert set(answer["coverage"]["not_checked"].values()) == {NOT_HERE}
    stored = await one.episode("x")
    assert (stored.state, stored.ended_by, stored.reward, stored.outcome) == (EpisodeState.SEALED, "end", 0.5, "solved")
    assert stored.meta == {"a": 1, "b": 2}
    assert stored.seal is not None
    assert (stored.seal.exchanges, stored.seal.snapshots) == (1, 2)


async def test_an_end_asked_again_gives_the_same_answer_but_not_for_another_reward(kit: Make) -> None:
    one = kit()
    await one.addresses.start()
    await opened(one, episode="x")
    first = await one.desk.end("x", EndRequest(reward=1.0))
    assert await one.desk.end("x", EndRequest(reward=1.0)) == first
    assert await one.desk.end("x", EndRequest()) == first
    with pytest.raises(Refused) as no:
        await one.desk.end("x", EndRequest(reward=0.0))
    assert no.value.status == 409


async def test_two_ends_at_once_end_it_once(kit: Make) -> None:
    one = kit(tables={"app": Table()})
    await one.addresses.start()
    await opened(one, episode="x")
    answers = await asyncio.gather(*(one.desk.end("x", EndRequest()) for _ in range(3)))
    assert answers[0] == answers[1] == answers[2]
    assert len(await one.snapshots("x")) == 2


@pytest.mark.parametrize("call", ["mark", "snapshot", "end", "describe"])
async def test_an_unknown_episode_is_404(kit: Make, call: str) -> None:
    one = kit()
    calls = {"mark": MarkRequest(), "snapshot": "", "end": EndRequest()}
    with pytest.raises(Refused) as no:
        if call == "describe":
            one.desk.describe("nope")
        else:
            await getattr(one.desk, call)("nope", calls[call])
    assert no.value.status == 404


async def test_a_sealed_episode_takes_no_marks(kit: Make) -> None:
    one = kit()
    await one.addresses.start()
    await opened(one, episode="x")
    await one.desk.end("x", EndRequest())
    with pytest.raises(Refused) as no:
        await one.desk.mark("x", MarkRequest(step=1))
    assert no.value.status == 409


async def test_traffic_after_the_end_is_unattributed(kit: Make) -> None:
    one = kit()
    await one.addresses.start()
    await opened(one, episode="x")
    await one.desk.end("x", EndRequest())
    assert one.arrive(prefix="x").attribution.reason == "episode sealed"


async def test_a_mark_and_a_snapshot_are_kept(kit: Make) -> None:
    one = kit(tables={"app": Table()}, plan=Plan(when=()))
    await one.addresses.start()
    await opened(one, episode="x")
    await one.desk.mark("x", MarkRequest(step=3, data={"k": [1]}))
    taken = await one.desk.snapshot("x", "before")
    assert taken == [{"snapshot": "s0", "name": "app", "status": "taken", "reason": "", "rows": 1}]
    episode = await one.episode("x")
    assert [(e.kind, e.detail) for e in one.store.reader().events(episode)] == [
        ("mark", {"step": 3, "data": {"k": [1]}})
    ]
    assert [(s.when, s.label) for s in await one.snapshots("x")] == [("mark", "before")]


async def test_the_end_waits_for_what_is_in_flight(kit: Make) -> None:
    one = kit()
    await one.addresses.start()
    await opened(one, episode="x")
    ticket = one.arrive(header="x")
    ending = asyncio.create_task(one.desk.end("x", EndRequest()))
    await asyncio.sleep(0.01)
    assert not ending.done()
    assert one.desk.describe("x")["in_flight"] == 1
    one.recording.finished(ticket, made(ticket))
    assert (await ending)["state"] == "sealed"
    assert len(await one.stored("x")) == 1


async def test_a_stream_that_stays_open_is_cut_from_its_episode(kit: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes, "STREAMS_SETTLE", 0.01)
    one = kit()
    await one.addresses.start()
    await opened(one, episode="x")
    one.engine.streams.append(one.arrive(header="x"))
    assert (await one.desk.end("x", EndRequest()))["state"] == "sealed"
    assert [e.outcome for e in await one.stored("x")] == [Outcome.OPEN_AT_END]


async def test_everything_open_ends_when_the_recorder_stops(kit: Make) -> None:
    one = kit(tables={"app": Table()})
    await one.addresses.start()
    for name in ("x", "y"):
        await opened(one, episode=name)
    await one.desk.end_all(None)
    assert [(await one.episode(name)).ended_by for name in ("x", "y")] == ["stop", "stop"]
    assert one.recording.tally.sealed == 2
    assert (await refused(one, episode="z")).status == 503


async def test_a_snapshot_that_does_not_come_before_the_deadline_is_missing(kit: Make) -> None:
    table, gate = Table(), threading.Event()
    one = kit(tables={"app": table}, plan=Plan(when=("write", "end"), mode="free"))
    await one.addresses.start()
    await opened(one, episode="x")
    table.wait = gate.wait
    await one.pass_through("POST", header="x")
    await one.desk.end_all(asyncio.get_running_loop().time() + 0.05)
    taken = await one.snapshots("x")
    assert {(s.when, s.status) for s in taken} == {("write", SnapshotStatus.MISSING), ("end", SnapshotStatus.MISSING)}
    assert (await one.episode("x")).state is EpisodeState.SEALED
    gate.set()


async def test_an_end_that_waits_for_a_snapshot_does_not_outlast_the_deadline_of_a_stop(kit: Make) -> None:
    table, gate = Table(), threading.Event()
    one = kit(tables={"app": table}, plan=Plan(when=("end",)))
    await one.addresses.start()
    await opened(one, episode="x")
    table.wait = gate.wait
    asked = asyncio.create_task(one.desk.end("x", EndRequest(reward=1.0)))
    await asyncio.sleep(0.05)
    await asyncio.wait_for(one.desk.end_all(asyncio.get_running_loop().time() + 0.05), 5)
    assert (await asked)["state"] == "sealed"
    assert [(s.when, s.status) for s in await one.snapshots("x")] == [("end", SnapshotStatus.MISSING)]
    assert ((await one.episode("x")).ended_by, (await one.episode("x")).reward) == ("end", 1.0)
    gate.set()


async def test_an_episode_without_traffic_is_sealed_as_idle_but_not_while_something_is_in_flight(kit: Make) -> None:
    one = kit()
    await one.addresses.start()
    await opened(one, episode="quiet")
    await opened(one, episode="busy")
    ticket = one.arrive(header="busy")
    one.clock.at += 10**9
    assert await one.desk.end_idle(0.5) == ["quiet"]
    assert (await one.episode("quiet")).ended_by == "idle"
    one.recording.finished(ticket, made(ticket))
    assert await one.desk.end_idle(0.5) == []


async def test_a_store_that_cannot_seal_leaves_an_incomplete_episode_and_says_so(
    kit: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kit()
    await one.addresses.start()
    await opened(one, episode="x")

    def fails(_: Any) -> Any:
        raise StoreTrouble("disk full")

    monkeypatch.setattr(one.writer, "seal", fails)
    answer = await one.desk.end("x", EndRequest())
    assert (answer["state"], answer["faults"]) == ("incomplete", ["not sealed: disk full"])
    assert one.desk.store_trouble == "disk full"
    assert one.recording.tally.incomplete == ["x"]


async def test_overlapping_identical_requests_are_counted_when_the_episode_ends(kit: Make) -> None:
    one = kit()
    await one.addresses.start()
    await opened(one, episode="x")
    tickets = [one.arrive(header="x") for _ in range(2)]
    for ticket in tickets:
        one.recording.finished(ticket, made(ticket, took_ms=100))
    await one.desk.end("x", EndRequest())
    assert one.recording.tally.lane_ambiguous == 1


async def test_what_is_open_and_what_is_sealed_can_be_looked_at(kit: Make) -> None:
    one = kit(envs=DYNAMIC)
    await one.addresses.start()
    await opened(one, episode="x", task="t", envs={"crm": "http://127.0.0.1:5"})
    await one.pass_through(header="x")
    await opened(one, episode="y")
    await one.desk.end("x", EndRequest(reward=1.0))
    rows = {row["episode"]: row for row in one.desk.describe_all()}
    assert (rows["x"]["state"], rows["x"]["exchanges"], rows["x"]["reward"]) == ("sealed", 1, 1.0)
    assert rows["y"]["state"] == "open"
    assert one.desk.describe("y")["urls"] == {"app": "http://127.0.0.1:4001/rp/y/api"}
    assert one.desk.describe("x")["task"] == "t"
    health = one.desk.health()
    assert health["status"] == "ok"
    assert health["episodes"] == {"open": 1, "sealed": 1, "incomplete": 0}
    assert one.desk.instances() == {"crm": 1}
