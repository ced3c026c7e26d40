from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from replayproxy.core.values import UNATTRIBUTED, EpisodeState, Outcome, SnapshotStatus
from replayproxy.errors import StoreTrouble
from replayproxy.proxy.scribe import AGENT_CLOSED, AGENT_CONNECTED, ESCAPING_LINKS
from replayproxy.session.camera import Plan
from replayproxy.session.snapshot_watch import SnapshotWatch
from replayproxy.session.wiring import EnvSpec, Reset
from tests.session.desk_kit import URL, Kit, Table, made

type Make = Callable[..., Kit]


async def test_an_exchange_is_stored_in_the_episode_that_its_carrier_named(kit: Make) -> None:
    one = kit()
    await one.open()
    await one.pass_through(target="/a", header="e")
    assert [(e.request.target, e.carrier) for e in await one.stored()] == [(b"/a", "header")]
    assert one.recording.tally.attributed == 1


async def test_traffic_without_a_carrier_goes_to_the_bucket_with_its_reason(kit: Make) -> None:
    one = kit()
    await one.open()
    await one.pass_through(target="/a")
    assert [(e.request.target, e.carrier) for e in await one.stored(UNATTRIBUTED)] == [(b"/a", "no carrier")]
    assert await one.stored() == []
    assert one.recording.tally.unattributed == 1


async def test_an_undeclared_id_opens_an_episode_whose_start_is_missing(kit: Make) -> None:
    one = kit(tables={"app": Table()})
    await one.pass_through(header="new")
    opened = await one.episode("new")
    assert not opened.declared
    assert [(s.when, s.status, s.reason) for s in await one.snapshots("new")] == [
        ("start", SnapshotStatus.MISSING, "undeclared")
    ]
    assert one.recording.tally.why_not_whole() == []


async def test_arrival_keys_are_unique_and_rise_even_when_the_clock_stands(kit: Make) -> None:
    one = kit()
    await one.open()
    one.clock.at -= 1000
    orders = [one.arrive(header="e").order for _ in range(3)]
    one.clock.at -= 500
    orders.append(one.arrive(header="e").order)
    assert orders == sorted(set(orders))


async def test_a_static_environment_goes_where_its_wiring_says(kit: Make) -> None:
    one = kit(envs=[EnvSpec(name="app", upstream=URL, reads=("POST /search",))])
    ticket = one.arrive()
    assert (ticket.upstream, ticket.reads, ticket.note) == (URL, ("POST /search",), "")


async def test_a_dynamic_environment_goes_where_its_episode_says_and_else_nowhere(kit: Make) -> None:
    one = kit(envs=[EnvSpec(name="app", upstream="dynamic")])
    await one.open("e", envs={"app": "http://127.0.0.1:7"})
    await one.open("other")
    assert one.arrive(header="e").upstream == "http://127.0.0.1:7"
    nowhere = one.arrive(header="other")
    assert nowhere.upstream is None
    assert "episode other names none" in nowhere.note
    assert "no carrier" in one.arrive().note


async def test_after_a_write_the_answer_waits_for_the_snapshot(kit: Make) -> None:
    table = Table()
    one = kit(tables={"app": table})
    await one.open()
    assert await one.pass_through("POST", header="e") > 0
    assert await one.pass_through("GET", header="e") == 0
    taken = await one.snapshots()
    assert [(s.n, s.when, s.status) for s in taken] == [
        (0, "start", SnapshotStatus.TAKEN), (1, "write", SnapshotStatus.TAKEN),
    ]  # fmt: skip
    assert taken[1].after == (await one.stored())[0].order
    assert taken[1].after_seq == 1
    assert table.readings == 2


async def test_a_snapshot_that_takes_longer_than_hold_allows_is_late(kit: Make) -> None:
    table, gate = Table(), threading.Event()
    one = kit(tables={"app": table}, plan=Plan(when=("write",), limit=0.01))
    await one.open()
    table.wait = gate.wait
    await one.pass_through("POST", header="e")
    live = one.recording.ledger.lives["e"]
    gate.set()
    await asyncio.wait(list(live.readings))
    assert [(s.status, s.late, s.mode) for s in await one.snapshots()] == [(SnapshotStatus.TAKEN, True, "hold")]
    assert one.recording.tally.late == 1


async def test_free_does_not_wait(kit: Make) -> None:
    table, gate = Table(), threading.Event()
    one = kit(tables={"app": table}, plan=Plan(when=("write",), mode="free"))
    await one.open()
    table.wait = gate.wait
    assert await one.pass_through("POST", header="e") == 0
    gate.set()
    await asyncio.wait(list(one.recording.ledger.lives["e"].readings))
    assert [(s.late, s.mode) for s in await one.snapshots()] == [(False, "free")]


async def test_a_write_whose_answer_streamed_is_followed_by_a_snapshot_all_the_same(kit: Make) -> None:
    one = kit(tables={"app": Table()}, plan=Plan(when=("write",)))
    await one.open()
    ticket = one.arrive("POST", header="e")
    one.recording.finished(ticket, made(ticket, "POST"))
    await asyncio.wait(list(one.recording.ledger.lives["e"].readings))
    assert [s.after for s in await one.snapshots()] == [ticket.order]


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.LOCAL, Outcome.HALF_SENT])
async def test_a_write_that_never_reached_the_environment_is_followed_by_none(kit: Make, outcome: Outcome) -> None:
    one = kit(tables={"app": Table()}, plan=Plan(when=("write",)))
    await one.open()
    ticket = one.arrive("POST", header="e")
    one.recording.finished(ticket, made(ticket, "POST", status=None, outcome=outcome))
    assert not one.recording.ledger.lives["e"].readings


async def test_requests_declared_to_be_reads_are_followed_by_none(kit: Make) -> None:
    one = kit(
        envs=[EnvSpec(name="app", upstream=URL, reads=("POST /search",))], tables={"app": Table()},
        plan=Plan(when=("write",)),
    )  # fmt: skip
    await one.open()
    assert await one.pass_through("POST", "/search", header="e") == 0
    assert await one.pass_through("POST", "/find", header="e") > 0


async def test_a_write_to_one_environment_reads_only_what_belongs_to_it_or_to_all(kit: Make) -> None:
    envs = [EnvSpec(name="crm", upstream=URL), EnvSpec(name="cal", upstream=URL)]
    tables = {"crm": Table(), "crm.cache": Table(), "cal": Table(), "billing": Table()}
    one = kit(envs=envs, tables=tables, plan=Plan(when=("write",)))
    await one.open()
    await one.pass_through("POST", env="crm", header="e")
    assert [(s.name, s.env) for s in await one.snapshots()] == [("crm", "crm"), ("crm.cache", "crm"), ("billing", None)]


async def test_a_snapshot_beside_an_exchange_of_its_episode_is_torn_with_its_number(kit: Make) -> None:
    one = kit(tables={"app": Table()}, plan=Plan(when=("write",)))
    await one.open()
    beside = one.arrive("GET", "/slow", header="e", lane="b")
    await one.pass_through("POST", header="e", lane="a")
    one.recording.finished(beside, made(beside, "GET", "/slow", took_ms=50_000))
    torn = (await one.snapshots())[0]
    assert (torn.status, torn.in_flight, torn.in_flight_seq) == (SnapshotStatus.TORN, (beside.order,), (1,))
    assert one.recording.tally.torn == 1


async def test_an_exchange_of_another_episode_tears_nothing_but_shares_the_instance(kit: Make) -> None:
    one = kit(tables={"app": Table()}, plan=Plan(when=("write",)))
    await one.open("e")
    await one.open("other")
    one.arrive("GET", "/slow", header="other")
    await one.pass_through("POST", header="e")
    taken = (await one.snapshots())[0]
    assert (taken.status, taken.shared_with) == (SnapshotStatus.TAKEN, ("other",))


async def test_an_event_stream_that_is_open_all_along_tears_nothing(kit: Make) -> None:
    one = kit(tables={"app": Table()}, plan=Plan(when=("write",)))
    await one.open()
    ticket = one.arrive("GET", "/events", header="e")
    stream = made(ticket, "GET", "/events", request_headers={"Accept": "text/event-stream"})
    await one.recording.before_forward(ticket, stream.request)
    await one.pass_through("POST", header="e")
    assert (await one.snapshots())[0].status is SnapshotStatus.TAKEN


async def test_a_snapshot_that_fails_is_missing_with_its_reason_and_the_recording_is_not_whole(kit: Make) -> None:
    table = Table()
    table.fails = "statement timeout"
    one = kit(tables={"app": table})
    said: list[str] = []
    one.recording.tally.on_missing = SnapshotWatch(said.append).missing
    await one.open()
    assert said == ["snapshot app is missing: statement timeout; the traffic goes on"], "at once, not at the end"
    await one.pass_through("POST", header="e")
    assert {(s.status, s.reason) for s in await one.snapshots()} == {(SnapshotStatus.MISSING, "statement timeout")}
    assert one.recording.tally.why_not_whole() == ["2 snapshots missing"]
    assert len(said) == 1


async def test_snapshots_never_are_never_taken(kit: Make) -> None:
    table = Table()
    one = kit(tables={"app": table}, plan=Plan(when=()))
    await one.open()
    await one.pass_through("POST", header="e")
    assert table.readings == 0


RESET = Reset(env="app", method="POST", url=f"{URL}/reset", body="")


async def test_a_request_equal_to_the_reset_is_kept_outside_the_episodes_and_counted_apart(kit: Make) -> None:
    one = kit(resets=[RESET], tables={"app": Table()}, plan=Plan(when=("write",)))
    await one.open()
    assert await one.pass_through("POST", "/reset", header="e") == 0
    assert [(e.is_reset, e.carrier) for e in await one.stored(UNATTRIBUTED)] == [(True, "reset")]
    assert await one.stored() == []
    assert (one.recording.tally.resets_seen, one.recording.tally.unattributed) == (1, 0)


async def test_a_reset_opens_no_undeclared_episode(kit: Make) -> None:
    one = kit(resets=[RESET])
    await one.pass_through("POST", "/reset", header="never-seen")
    assert one.recording.ledger.lives == {}


@pytest.mark.parametrize(
    ("sent", "is_reset"), [('{"a": 1}', True), ('{"a":1}', True), ('{"a": 2}', False), ("", False)]
)
async def test_a_reset_with_a_body_is_equal_by_its_value(kit: Make, sent: str, is_reset: bool) -> None:
    one = kit(resets=[Reset(env="app", method="POST", url=f"{URL}/reset", body='{"a": 1}')])
    await one.open()
    json_body = {"sent": sent, "request_headers": {"Content-Type": "application/json"}}
    await one.pass_through("POST", "/reset", header="e", given=json_body)
    assert [e.is_reset for e in await one.stored(UNATTRIBUTED if is_reset else "e")] == [is_reset]


async def test_another_method_or_environment_is_no_reset(kit: Make) -> None:
    one = kit(resets=[RESET], envs=[EnvSpec(name="app", upstream=URL), EnvSpec(name="cal", upstream=URL)])
    await one.open()
    await one.pass_through("GET", "/reset", header="e")
    await one.pass_through("POST", "/reset", env="cal", header="e")
    assert len(await one.stored()) == 2


async def test_a_fault_makes_its_episode_incomplete_and_no_other(kit: Make) -> None:
    one = kit()
    await one.open("e")
    await one.open("other")
    ticket = one.arrive(header="e")
    one.recording.fault(ticket, "body", ValueError("broken"))
    one.recording.finished(ticket, made(ticket))
    await one.desk.end_all(None)
    assert (await one.episode("e")).state is EpisodeState.INCOMPLETE
    assert (await one.episode("e")).faults == ("body: broken",)
    assert (await one.episode("other")).state is EpisodeState.SEALED
    assert one.recording.tally.why_not_whole() == ["1 episode incomplete"]


async def test_a_fault_of_nobody_is_the_run_s(kit: Make) -> None:
    one = kit()
    one.recording.fault(None, "arrive", RuntimeError())
    assert one.recording.tally.faults == ["arrive: RuntimeError"]


async def test_a_fault_that_may_have_cost_anybody_an_exchange_makes_every_open_episode_incomplete(kit: Make) -> None:
    one = kit()
    for name in ("e", "other"):
        await one.open(name)
    one.recording.fault(None, "arrive", ValueError("broken"))
    assert [live.episode.faults for live in one.recording.ledger.lives.values()] == [("arrive: broken",)] * 2
    await one.open("later")
    one.recording.fault(None, "back pressure", ValueError("broken"))
    assert one.recording.ledger.lives["later"].episode.faults == ()
    assert one.recording.tally.faults == ["arrive: broken", "back pressure: broken"]


async def test_a_full_queue_drops_nothing_silently(kit: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = kit(tables={"app": Table()})
    await one.open()
    ticket = one.arrive(header="e")
    monkeypatch.setattr(one.writer, "room", lambda: False)
    monkeypatch.setattr(one.writer, "ample", lambda: False)
    assert not one.recording.room()
    with pytest.raises(RuntimeError, match="queue full") as full:
        one.recording.finished(ticket, made(ticket))
    one.recording.fault(ticket, "finished", full.value)
    await one.recording.camera.take(one.recording.ledger.lives["e"], "mark")
    assert one.recording.ledger.lives["e"].episode.faults == (
        "finished: queue full: an exchange was not stored", "snapshot: queue full: a snapshot was not stored",
    )  # fmt: skip
    waiting = asyncio.create_task(one.recording.wait_room())
    await asyncio.sleep(0)
    monkeypatch.undo()
    await asyncio.wait_for(waiting, 5)


async def test_what_a_store_that_takes_nothing_costs_is_told_at_the_end_though_it_takes_the_rest(
    kit: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kit()
    await one.open()
    ticket = one.arrive(header="e")
    with monkeypatch.context() as patched:
        patched.setattr(type(one.writer), "failed", OSError(28, "No space left on device"))
        patched.setattr(one.writer, "room", lambda: False)
        patched.setattr(one.writer, "ample", lambda: False)
        assert one.recording.room(), "no room comes by waiting"
        with pytest.raises(StoreTrouble) as full:
            one.recording.finished(ticket, made(ticket))
        one.recording.fault(ticket, "finished", full.value)
    lost = "queue full: an exchange was not stored, the store cannot be written: no space left on device"
    assert one.recording.ledger.lives["e"].episode.faults == (f"finished: {lost}",)
    assert await one.recording.close(None) == lost


async def test_traffic_that_passes_a_full_queue_is_never_told_to_read_slower(
    kit: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kit()
    monkeypatch.setattr(one.writer, "ample", lambda: False)
    assert not one.recording.room()
    monkeypatch.setattr(one.recording, "_holds", False)  # --when-full pass
    assert one.recording.room()
    await asyncio.wait_for(one.recording.wait_room(), 1)


async def test_a_store_that_refuses_an_undeclared_episode_leaves_the_book_as_it_was(
    kit: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kit()

    def refuse(_: Any) -> Any:
        raise OSError("disk full")

    monkeypatch.setattr(one.writer, "open_episode", refuse)
    with pytest.raises(OSError, match="disk full"):
        one.arrive(header="new")
    monkeypatch.undo()
    assert one.arrive(header="new").attribution.opened


async def test_connection_events_follow_the_exchange_that_used_the_connection(kit: Make) -> None:
    one = kit()
    await one.open()
    one.recording.event(None, AGENT_CONNECTED, {"connection": "c1"}, one.clock())
    one.recording.event(None, AGENT_CONNECTED, {"connection": "c2"}, one.clock())
    ticket = one.arrive(header="e")
    one.recording.finished(ticket, made(ticket, agent_connection="c1"))
    one.recording.event(None, AGENT_CLOSED, {"connection": "c1"}, one.clock())
    one.recording.event(None, AGENT_CLOSED, {"connection": "c2"}, one.clock())
    live = await one.episode()
    assert [event.kind for event in one.store.reader().events(live)] == [AGENT_CONNECTED, AGENT_CLOSED]


async def test_links_that_lead_past_the_proxy_are_counted(kit: Make) -> None:
    one = kit()
    await one.open()
    ticket = one.arrive(header="e")
    one.recording.event(ticket, ESCAPING_LINKS, {"count": 3}, one.clock())
    one.recording.finished(ticket, made(ticket))
    await one.desk.end_all(None)
    assert (await one.episode()).escaping_links == 3
    assert one.recording.tally.escaping == 3


async def test_an_exchange_that_outlived_its_episode_is_not_put_into_it(kit: Make) -> None:
    one = kit()
    await one.open()
    ticket = one.arrive(header="e")
    one.recording.ledger.retire(one.recording.ledger.lives["e"])
    one.recording.finished(ticket, made(ticket))
    assert [e.carrier for e in await one.stored(UNATTRIBUTED)] == ["episode sealed"]


async def test_closing_seals_the_bucket_and_the_run(kit: Make) -> None:
    one = kit()
    await one.pass_through()
    one.recording.fault(None, "x", ValueError("y"))
    assert await one.recording.close(None) is None
    assert (await one.episode(UNATTRIBUTED)).state is EpisodeState.SEALED
    run = one.store.reader().run("r")
    assert run.closed_wall is not None
    assert run.faults == ("x: y",)
