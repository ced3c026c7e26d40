"""Bad input on the wire: it is refused, the process lives, others go on, and nothing false is kept."""

from __future__ import annotations

import asyncio
import json

import pytest

from replayproxy.core.values import EpisodeState, Outcome
from replayproxy.storage import Store
from replayproxy.storage.verify import verify
from tests.cases.lab import OK, Talker, get, ok, recording, replaying, talker
from tests.cases.malformed import CUT_SHORT, GOOD, NO_REQUESTS, ODD_BUT_WHOLE
from tests.proxy.wire import Peer, says


async def told(port: int, raw: bytes, *, shut: bool = False) -> bytes:
    """What one connection is told for these bytes: its first answer, or all up to the close. Fails if neither comes."""
    agent = await talker(port)
    try:
        await agent.send(raw)
        if shut:
            agent.writer.write_eof()
        return await agent.answer()
    except asyncio.IncompleteReadError as closed:
        return closed.partial
    except ConnectionError:
        return b""
    finally:
        agent.close()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


async def test_a_listener_refuses_every_malformed_request_and_goes_on(store: Store) -> None:
    async with recording(store, says(OK)) as on:
        steady = await on.agent()
        for count, (name, raw) in enumerate(NO_REQUESTS.items(), 1):
            answer = await told(on.port(), raw)
            assert not answer or status_of(answer) in range(400, 600), name
            assert not answer or b"\r\nReplay-Local: " in answer, name
            assert await steady.ask(GOOD) == OK, name
            assert len(on.environment.requests) == count, f"{name}: something of it reached the environment"
        for name, raw in CUT_SHORT.items():
            assert await told(on.port(), raw, shut=True) == b"", name
        assert len(on.environment.requests) == len(NO_REQUESTS)
        kept = await on.exchanges()
        assert on.recorder.recording.tally.faults == []
    whole = [one for one in kept if one.outcome is Outcome.ANSWERED]
    assert {one.request.target for one in whole} == {b"/good"}
    assert len(whole) == len(NO_REQUESTS)
    assert {one.outcome for one in kept} == {Outcome.ANSWERED, Outcome.LOCAL, Outcome.HALF_SENT}
    reader = store.reader()
    assert reader.episode(reader.run("r"), "e").state is EpisodeState.SEALED
    assert verify(store.path).damaged == []


async def test_the_origin_refuses_every_malformed_request_and_goes_on(store: Store) -> None:
    async with recording(store, says(OK)) as on:
        for _ in NO_REQUESTS:
            assert await on.ask(GOOD) == OK
    async with replaying(store) as origin:
        steady = await talker(origin.ports["app"])
        for name, raw in NO_REQUESTS.items():
            answer = await told(origin.ports["app"], raw)
            assert not answer or status_of(answer) in range(400, 500), name
            assert await steady.ask(GOOD) == OK, name
        for name, raw in CUT_SHORT.items():
            assert await told(origin.ports["app"], raw, shut=True) == b"", name
        steady.close()
        receipt = origin.receipt()
        assert origin.faults == []
    assert receipt["served"]["exact"] == len(NO_REQUESTS)
    assert receipt["missed"] > 0
    assert receipt["reproduced"] is False


async def test_the_control_api_answers_every_malformed_request_with_a_problem_document(store: Store) -> None:
    async with recording(store, says(OK)) as on:
        port = int(on.recorder.control.rpartition(":")[2])
        for name, raw in {**NO_REQUESTS, **ODD_BUT_WHOLE}.items():
            answer = await told(port, raw)
            assert not answer or status_of(answer) in range(400, 500), name
            if answer and status_of(answer) != 431:
                assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == status_of(answer), name
        for raw in CUT_SHORT.values():
            await told(port, raw, shut=True)
        health = await told(port, b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert health.startswith(b"HTTP/1.1 200 ")
        assert len(await on.exchanges()) == 0


@pytest.mark.parametrize("raw", ODD_BUT_WHOLE.values(), ids=ODD_BUT_WHOLE)
async def test_what_is_odd_but_whole_is_recorded_once_and_replayed(store: Store, raw: bytes) -> None:
    async with recording(store, says(OK)) as on:
        assert await told(on.port(), raw) == OK
        (one,) = await on.exchanges(count=1)
        assert len(on.environment.requests) == 1
    assert one.outcome is Outcome.ANSWERED
    async with replaying(store) as origin:
        assert await told(origin.ports["app"], raw) == OK
        assert origin.receipt()["reproduced"] is True


ANSWERS = {
    "garbage": b"hello\r\n\r\n",
    "NUL bytes": b"\x00" * 64 + b"\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "an odd version": b"HTTP/x 200 OK\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nX: y",
    "nothing": b"",
    "a header without a colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "a space in a name": b"HTTP/1.1 200 OK\r\nX Y: z\r\nContent-Length: 0\r\n\r\n",
    "a megabyte of head": b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 1_200_000 + b"\r\n\r\n",
    "a bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a chunk of 2**64": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\nabc",
    "no last chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "less than its length": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
    "an interim without an end": b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n",
    "a bad interim": b"HTTP/1.1 103 Early Hints\r\nnonsense\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "an upgrade nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw",
}


@pytest.mark.parametrize("method", [b"GET", b"POST"])
async def test_a_malformed_answer_is_never_kept_as_a_whole_one(store: Store, method: bytes) -> None:
    left = list(ANSWERS.values())

    async def answerer(peer: Peer, request: bytes) -> None:
        if b"/good" in request:
            await peer.send(OK)
            return
        await peer.send(left.pop(0))
        peer.close()

    live = {}
    async with recording(store, answerer) as on:
        steady = await on.agent()
        for n, name in enumerate(ANSWERS):
            live[name] = await told(on.port(), get(f"/{n}", b"Content-Length: 0", method=method))
            assert await steady.ask(GOOD) == OK, name
        kept = await on.exchanges(count=2 * len(ANSWERS))
        assert on.recorder.recording.tally.faults == []
    for n, name in enumerate(ANSWERS):
        one = next(each for each in kept if each.request.target == f"/{n}".encode())
        wrong = one.outcome in (Outcome.INVALID, Outcome.CUT, Outcome.CLIENT_GONE)
        assert wrong or "upgrade-not-carried" in one.notes, name
        assert one.error or one.outcome is Outcome.CUT, name
    assert verify(store.path).damaged == []
    async with replaying(store) as origin:
        for n, (name, answer) in enumerate(live.items()):
            if "upgrade" not in name:
                asked = get(f"/{n}", b"Content-Length: 0", method=method)
                assert await told(origin.ports["app"], asked) == answer, name


async def test_more_than_its_length_is_not_taken_for_the_next_answer(store: Store) -> None:
    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(ok(b"one") + ok(b"never asked for") if b"/one" in request else ok(b"two"))

    async with recording(store, answerer) as on:
        agent = await on.agent()
        assert await agent.ask(get("/one")) == ok(b"one")
        assert await agent.ask(get("/two")) == ok(b"two")


async def test_a_slow_head_keeps_nobody_else_waiting(store: Store) -> None:
    async with recording(store, says(OK)) as on:
        slow: list[Talker] = [await on.agent() for _ in range(50)]
        steady = await on.agent()
        for n, byte in enumerate(GOOD):
            for agent in slow:
                agent.writer.write(bytes([byte]))
            if n % 8 == 0:
                assert await steady.ask(GOOD) == OK
        for agent in slow:
            assert await agent.answer() == OK
