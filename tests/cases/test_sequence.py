"""Which answer is whose turn: equal requests over time, retries, conditional requests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.storage import Store
from tests.cases.lab import answers, both, get, ok, over_a_store, recording, replaying, talker
from tests.proxy.wire import Peer

few = settings(max_examples=8, deadline=None)

STEPS = st.lists(st.sampled_from(["read", "write", "poll"]), min_size=3, max_size=12)
COUNTER, JOB = get("/counter"), get("/job")
INC = get("/inc", b"Content-Length: 0", method=b"POST")


class World:
    """A counter, and a job that is done when it was asked for three times."""

    def __init__(self) -> None:
        self.counter, self.polls = 1, 0

    async def __call__(self, peer: Peer, request: bytes) -> None:
        if b"/inc" in request:
            self.counter += 1
            await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        elif b"/job" in request:
            self.polls += 1
            await peer.send(ok(b"%d" % self.polls, status=b"202 Accepted" if self.polls < 3 else b"200 OK"))
        else:
            await peer.send(ok(b"%d" % self.counter))


@given(steps=STEPS)
@few
@over_a_store
async def test_the_nth_equal_request_gets_the_nth_answer_and_one_more_is_a_miss(store: Store, steps: list[str]) -> None:
    requests = [{"read": COUNTER, "write": INC, "poll": JOB}[step] for step in steps]
    live, again, receipt = await both(store, World(), *requests)
    assert again == live
    assert receipt["reproduced"] is True
    async with replaying(store) as origin:
        agent = await talker(origin.ports["app"])
        assert [await agent.ask(request) for request in requests] == live
        assert (await agent.ask(requests[-1])).startswith(b"HTTP/1.1 470 "), "never the last answer once more"
        agent.close()
        assert (origin.receipt()["missed"], origin.receipt()["reproduced"]) == (1, False)


BUSY = b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"


@given(retries=st.integers(0, 4), made=st.integers(1, 6))
@few
@over_a_store
async def test_fewer_or_more_retries_never_shift_an_answer_to_another_step(
    store: Store, retries: int, made: int
) -> None:
    task, done = get("/task"), get("/done", b"Content-Length: 0", method=b"POST")
    script = [BUSY] * retries + [ok(b"task"), ok(b"done")]
    async with recording(store, answers(*script)) as on:
        agent = await on.agent()
        for _ in range(retries + 1):
            await agent.ask(task)
        assert await agent.ask(done) == ok(b"done")
    async with replaying(store) as origin:
        agent = await talker(origin.ports["app"])
        got = [await agent.ask(task) for _ in range(made)]
        assert await agent.ask(done) == ok(b"done"), "what is left over is not handed to a later step"
        agent.close()
        receipt = origin.receipt()
    recorded = script[: retries + 1]
    assert got[: retries + 1] == recorded[:made]
    assert all(one.startswith(b"HTTP/1.1 470 ") for one in got[retries + 1 :])
    assert receipt["unused"] == max(0, retries + 1 - made)
    assert len(receipt["unused_exchanges"]) == receipt["unused"]
    assert receipt["requests_missed"] == max(0, made - retries - 1)
    assert receipt["missed"] == (made > retries + 1), "repeats of one miss are one, with a count"


async def test_a_miss_is_answered_so_that_common_clients_do_not_try_again(store: Store) -> None:
    async with recording(store) as on:
        await on.ask(get("/task"))
    async with replaying(store) as origin:
        agent = await talker(origin.ports["app"])
        missed = await agent.ask(get("/other"))
        agent.close()
    head, _, body = missed.partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1])
    assert status == 470
    assert status not in (408, 409, 425, 429, 500, 502, 503, 504)
    assert b"\r\nReplay-Miss: 1" in head
    assert b"retry-after" not in head.lower()
    assert json.loads(body)["status"] == 470


WHOLE = ok(b"0123456789", b'ETag: "v1"')
SAME = b'HTTP/1.1 304 Not Modified\r\nETag: "v1"\r\n\r\n'
PART = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-3/10\r\nContent-Length: 4\r\n\r\n0123"
CONDITIONS = {
    b"": WHOLE,
    b'If-None-Match: "v1"': SAME,
    b"If-Modified-Since: Thu, 21 Mar 2030 12:45:00 GMT": SAME,
    b"Range: bytes=0-3": PART,
    b'If-Range: "v1"': WHOLE,
}


async def bundle(peer: Peer, request: bytes) -> None:
    await peer.send(next(told for field, told in reversed(CONDITIONS.items()) if field in request))


@given(
    kept=st.sampled_from(list(CONDITIONS)),
    cache=st.sampled_from([*CONDITIONS, b'If-None-Match: "v2"', b"Range: bytes=4-"]),
)
@settings(max_examples=20, deadline=None)
@over_a_store
async def test_a_condition_or_range_is_answered_only_by_what_was_recorded_under_it(
    store: Store, kept: bytes, cache: bytes
) -> None:
    async with recording(store, bundle) as on:
        live = await on.ask(get("/bundle", *filter(None, [kept])))
    assert live == CONDITIONS[kept]
    async with replaying(store) as origin:
        agent = await talker(origin.ports["app"])
        got = await agent.ask(get("/bundle", *filter(None, [cache])))
        agent.close()
        missed = origin.misses
    if kept == cache:
        assert got == live
    else:
        assert got.startswith(b"HTTP/1.1 470 ")
        names = {field.partition(b":")[0].lower().decode() for field in (kept, cache) if field}
        assert any(name in json.dumps(missed).lower() for name in names), "it says why"


@pytest.mark.parametrize("stay", [False, True])
async def test_a_cold_and_a_warm_cache_are_both_answered_in_one_episode(store: Store, stay: bool) -> None:
    requests = [get("/bundle"), get("/bundle", b'If-None-Match: "v1"'), get("/bundle", b"Range: bytes=0-3")]
    if stay:
        requests.reverse()
    live, again, receipt = await both(store, bundle, *requests)
    assert live == again
    assert receipt["reproduced"] is True
