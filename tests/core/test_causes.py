"""What a piece of an event stream waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.causes import Asked, causes
from replayproxy.core.values import Exchange
from replayproxy.testing import MS, exchange

SSE = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}


def stream(*pieces: float, at: float = 0, until: float | None = None, method: str = "GET", **more: Any) -> Exchange:
    """An event stream that was asked for at `at` ms, with a piece at each instant, and ended at `until`."""
    chunks = [(1, piece) for piece in pieces]
    made = exchange(
        method, "/events", body=b"e" * len(pieces), chunks=chunks, at_ms=at, headers=more.pop("headers", SSE), **more
    )
    end = None if until is None else round(until * MS)
    return replace(made, times=replace(made.times, head=round(at * MS), c_in=round(at * MS), up_end=end))


def call(at: float, method: str = "POST", **more: Any) -> Exchange:
    made = exchange(method, "/jobs", at_ms=at, **more)
    return replace(made, times=replace(made.times, head=round(at * MS), c_in=round(at * MS)))


def waits(exchanges: list[Exchange], instant: float, of: int = 0, asked: tuple[int, ...] = ()) -> int | None:
    pending = causes(
        Asked(at=at, exchange=one, write=one.request.method == b"POST") for at, one in enumerate(exchanges)
    ).of(exchanges[of])
    return None if pending is None else pending.first(round(instant * MS), asked)


def test_a_piece_waits_for_the_request_that_had_come_before_it() -> None:
    episode = [stream(5, 15), call(10)]
    assert waits(episode, 5) is None
    assert waits(episode, 15) == 1
    assert waits(episode, 15, asked=(1,)) is None


def test_the_end_of_a_stream_that_a_read_opened_waits_and_that_of_an_answer_to_a_write_does_not() -> None:
    assert waits([stream(until=20), call(10)], 20) == 1
    assert waits([stream(5, until=20, method="POST"), call(10)], 20) is None


def test_it_waits_for_its_own_lane_and_for_the_writes_to_its_environment() -> None:
    for name, other, waited in (
        ("a read of its lane", call(10, "GET"), True),
        ("its lane, another environment", call(10, env="crm"), True),
        ("a write of another lane", call(10, lane="b"), True),
        ("a read of another lane", call(10, "GET", lane="b"), False),
        ("another lane and environment", call(10, lane="b", env="crm"), False),
    ):
        assert (waits([stream(15), other], 15) == 1) is waited, name


def test_only_event_streams_wait_that_something_came_into() -> None:
    assert waits([stream(15, headers={"Content-Type": "text/html"}), call(10)], 15) is None
    assert waits([stream(15), call(20)], 25) is None
    block = exchange(body=b"e", headers={"Content-Type": "text/event-stream"}, took_ms=30)
    assert waits([block, call(10)], 30) is None, "it came as one block: when is not known"
    assert waits([stream(15, headers={"Content-Type": "application/x-ndjson"}), call(10)], 15) == 1


moments = st.integers(0, 60)
requests = st.lists(
    st.tuples(moments, st.sampled_from(["GET", "POST"]), st.sampled_from(["main", "b"]), st.sampled_from(["app", "x"])),
    max_size=12,
)


@given(begun=moments, pieces=st.lists(moments, max_size=5), others=requests, order=st.randoms(use_true_random=False))
def test_pieces_come_when_all_that_may_have_caused_them_was_asked_for(
    begun: int, pieces: list[int], others: list[tuple[int, str, str, str]], order: Any
) -> None:
    """The reference: the rule, one by one; in whatever order the replay is asked."""
    pieces = sorted(piece for piece in pieces if piece > begun)
    made = [stream(*pieces, at=begun), *(call(at, method, lane=lane, env=env) for at, method, lane, env in others)]
    found = causes(Asked(at=at, exchange=one, write=one.request.method == b"POST") for at, one in enumerate(made))
    pending = found.of(made[0])
    coming = list(range(1, len(made)))
    order.shuffle(coming)
    asked: set[int] = {0}
    for piece in pieces:
        needed = {
            number
            for number, (at, method, lane, env) in enumerate(others, 1)
            if begun < at < piece and (lane == "main" or (method == "POST" and env == "app"))
        }
        while (first := pending.first(piece * MS, asked) if pending else None) is not None:
            assert first in needed - asked
            asked.add(coming.pop())
        assert needed <= asked
