"""When a request may be sent again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.effects import is_write, may_conflict
from replayproxy.core.schedule import Plan, ended_at, plan, seen_at, sent_at, settled
from replayproxy.core.values import Event, Exchange, Outcome, WebSocket
from replayproxy.testing import MS, exchange, snapshot, trace


def planned(*exchanges: Exchange, **more: object) -> Plan:
    return plan(trace(exchanges).exchanges, **more)  # type: ignore[arg-type]


def after(made: Plan) -> list[set[int]]:
    return [set(step.after) for step in made.steps]


def test_one_after_the_other_waits_for_the_one_before_and_no_more() -> None:
    made = planned(*(exchange(target=f"/{n}", at_ms=n * 10.0) for n in range(4)))
    assert after(made) == [set(), {1}, {2}, {3}]


def test_what_overlapped_in_a_lane_overlaps_again() -> None:
    made = planned(
        exchange(target="/a", at_ms=0, took_ms=50),
        exchange(target="/b", at_ms=10, took_ms=10),
        exchange(target="/c", at_ms=15, took_ms=10),
        exchange(target="/d", at_ms=30, took_ms=5),
        exchange(target="/e", at_ms=60, took_ms=5),
    )
    assert after(made) == [set(), set(), set(), {2, 3}, {1, 4}]


def test_lanes_do_not_wait_for_each_other_where_nothing_conflicts() -> None:
    made = planned(
        exchange("POST", "/deals", at_ms=0, lane="a"),
        exchange("GET", "/slots", at_ms=10, lane="b"),
        exchange("GET", "/deals", at_ms=20, lane="a"),
    )
    assert after(made) == [set(), set(), {1}]


def test_conflicting_writes_of_other_lanes_keep_their_order() -> None:
    made = planned(
        exchange("POST", "/deals", at_ms=0, lane="a"),
        exchange("GET", "/deals/7", at_ms=10, lane="b"),
        exchange("PATCH", "/deals/7", at_ms=20, lane="c"),
        exchange("GET", "/slots", at_ms=30, lane="d"),
        exchange("DELETE", "/", at_ms=40, lane="e"),
    )
    assert after(made) == [set(), {1}, {1, 2}, set(), {1, 2, 3, 4}]


def test_two_reads_never_wait_for_each_other_across_lanes() -> None:
    made = planned(exchange(target="/deals", at_ms=0, lane="a"), exchange(target="/deals", at_ms=10, lane="b"))
    assert after(made) == [set(), set()]


def test_a_declared_read_is_none() -> None:
    lines = (
        exchange("POST", "/search", at_ms=0, lane="a"),
        exchange("POST", "/search", at_ms=10, lane="b"),
    )
    assert after(planned(*lines)) == [set(), {1}]
    assert after(planned(*lines, reads={"app": ("POST /search",)})) == [set(), set()]


def test_a_request_waits_for_the_answer_that_named_what_it_says_in_whatever_lane() -> None:
    made = planned(exchange(target="/a", at_ms=0, lane="a"), exchange(target="/b", at_ms=9, lane="b"), flows={2: {1}})
    assert after(made) == [set(), {1}]


def stream(at_ms: float, took_ms: float, outcome: Outcome = Outcome.CLIENT_GONE) -> Exchange:
    return exchange(target="/events", body=b"data: 1\n\n", at_ms=at_ms, took_ms=took_ms, outcome=outcome)


def test_a_stream_that_the_agent_closed_is_closed_after_what_had_ended_before_its_close() -> None:
    made = planned(
        stream(0, 40),
        exchange("POST", "/say", at_ms=10, took_ms=5),
        exchange("POST", "/say", at_ms=20, took_ms=5),
        exchange("POST", "/say", at_ms=60, took_ms=5),
    )
    assert made.steps[0].close_after == {3}
    assert made.steps[3].after == {1, 3}


def test_a_stream_open_at_the_end_is_closed_last_and_nothing_waits_for_it() -> None:
    made = planned(stream(0, 100, Outcome.OPEN_AT_END), exchange("POST", "/say", at_ms=10), exchange(at_ms=200))
    assert made.steps[0].close_after == {3}
    assert after(made)[2] == {2}


def test_an_answer_read_to_its_end_is_not_closed() -> None:
    assert planned(exchange()).steps[0].close_after is None


def test_what_is_never_sent_is_listed_with_the_reason() -> None:
    made = planned(
        exchange(target="/ws", status=101, at_ms=0, websocket=WebSocket(messages=(), close_code=1000)),
        exchange(target="/half", status=None, at_ms=10, outcome=Outcome.HALF_SENT),
        exchange(target="/ours", status=502, at_ms=20, outcome=Outcome.LOCAL),
        exchange(target="/reset", at_ms=30, is_reset=True),
        exchange("POST", "/big", sent=None, at_ms=40),
        exchange(target="/last", at_ms=50),
        exchange(target="/lost", status=None, at_ms=60, outcome=Outcome.LOST),
    )
    assert [(step.seq, step.undecided) for step in made.skipped] == [
        (1, True), (2, True), (3, False), (4, False), (5, True), (7, True),
    ]  # fmt: skip
    assert made.skipped[0].skip == "websocket"
    assert made.skipped[1].skip == "half-sent"
    assert made.skipped[5].skip == "lost: whether it reached the environment is not known"
    assert after(made)[5] == {5}


def test_the_gap_is_the_agents_own_pause() -> None:
    made = planned(exchange(at_ms=5, took_ms=10), exchange(at_ms=40, took_ms=10), exchange(at_ms=45, took_ms=10))
    assert [step.gap for step in made.steps] == [0, 25_000_000, 30_000_000]


def left(at_ms: float, connection: str, **more: Any) -> Exchange:
    one = exchange(target="/mcp", at_ms=at_ms, outcome=Outcome.CLIENT_GONE, agent_connection=connection, **more)
    return replace(one, times=replace(one.times, up_end=None, c_out=None))


def closed(connection: str, at_ms: float) -> Event:
    return Event(at=round(at_ms * MS), wall=0, kind="agent-closed", detail={"connection": connection})


def test_an_exchange_that_the_agent_left_ends_when_its_connection_was_closed() -> None:
    first, *rest = settled(
        [left(0, "c1", body=b"x", chunks=[(1, 4)]), left(20, "c2"), left(40, "c1")],
        [closed("c2", 33), closed("c1", 9), closed("c1", 55), closed("c3", 1)],
    )
    assert [e.times.up_end for e in (first, *rest)] == [9 * MS, 33 * MS, 55 * MS]


def test_without_that_event_it_ends_with_the_last_chunk_or_never() -> None:
    made = settled([left(0, "c1", body=b"xy", chunks=[(1, 4), (1, 7)]), left(20, "c2")], [])
    assert [e.times.up_end for e in made] == [7 * MS, None]


def test_what_follows_an_answer_that_was_left_waits_for_its_close() -> None:
    one, two = settled([left(0, "c1"), exchange(at_ms=30)], [closed("c1", 10)])
    made = plan(trace([one, two]).exchanges)
    assert after(made) == [set(), {1}]


@st.composite
def episodes(draw: st.DrawFn) -> list[Exchange]:
    made = []
    for at in sorted(draw(st.lists(st.integers(0, 200), min_size=1, max_size=12, unique=True))):
        outcome = draw(
            st.sampled_from(
                [Outcome.ANSWERED, Outcome.CLIENT_GONE, Outcome.OPEN_AT_END, Outcome.HALF_SENT, Outcome.LOST]
            )
        )
        one = exchange(
            draw(st.sampled_from(["GET", "POST"])), draw(st.sampled_from(["/a", "/a/1", "/b", "/"])), at_ms=at,
            took_ms=draw(st.integers(1, 80)), lane=draw(st.sampled_from("xyz")), outcome=outcome,
        )  # fmt: skip
        if draw(st.booleans()) and outcome is not Outcome.ANSWERED:
            one = replace(one, times=replace(one.times, c_out=None, up_end=None))
        made.append(one)
    return made


def test_a_state_that_was_read_with_nothing_in_flight_is_read_so_again() -> None:
    made = trace(
        [
            exchange("GET", "/slow", at_ms=0, took_ms=8, lane="a"),
            exchange("POST", "/deals", at_ms=10, took_ms=5, lane="b"),
            exchange("GET", "/slots", at_ms=30, lane="c"),
            exchange("POST", "/notes", at_ms=40, took_ms=5, lane="d"),
        ]
    ).exchanges
    clean = replace(snapshot(1, b"r", at_ms=16), after_seq=2)
    torn = replace(snapshot(2, b"r", at_ms=46), after_seq=4, in_flight_seq=(3,))
    steps = plan(made, snapshots=[clean, torn]).steps
    assert [set(step.after) for step in steps] == [set(), set(), {2}, {2}]
    assert [set(step.hold_after) for step in steps] == [set(), {1}, set(), set()]


@given(episodes(), st.lists(st.tuples(st.integers(1, 12), st.integers(0, 90)), max_size=4))
def test_every_plan_can_be_carried_out_and_keeps_each_lanes_order(
    made: list[Exchange], read: list[tuple[int, int]]
) -> None:
    numbered = trace(made).exchanges
    by_seq = {e.seq: e for e in numbered}
    shots = [
        replace(snapshot(n, b"r", at_ms=min(ended_at(by_seq[seq]), 10**9) / MS + late, took_ms=2), after_seq=seq)
        for n, (seq, late) in enumerate(read)
        if seq in by_seq
    ]
    steps = {step.seq: step for step in plan(numbered, snapshots=shots).steps}
    started: set[int] = set()
    ended: set[int] = set()
    while len(ended) < len(steps):
        ready = {seq for seq, step in steps.items() if seq not in started and step.after <= ended}
        over = {seq for seq in started - ended if (steps[seq].close_after or set()) | steps[seq].hold_after <= ended}
        assert ready or over, "it waits for ever"
        started |= ready
        ended |= over
    for seq, step in steps.items():
        reach: set[int] = set()
        todo = list(step.after)
        while todo:
            one = todo.pop()
            if one not in reach:
                reach.add(one)
                todo += steps[one].after
        this = by_seq[seq]
        lane = [e for e in numbered if e.lane == this.lane]
        assert {e.seq for e in lane if seen_at(e) < this.times.head} <= reach
        assert {e.seq for e in numbered if ended_at(e) < sent_at(this) and conflict(e, this)} <= reach
        assert all(ended_at(by_seq[one]) < sent_at(this) for one in step.after)


def conflict(a: Exchange, b: Exchange) -> bool:
    return a.lane != b.lane and may_conflict(a, b, is_write(a.request), is_write(b.request))
