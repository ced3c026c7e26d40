"""Where a message ends, and what is in front of it: heads without bodies, 1xx, chunks, trailers, two framings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core.values import Outcome
from replayproxy.storage import Store
from tests.cases.lab import both, get, ok, over_a_store, recording, replaying, talker
from tests.proxy.wire import Peer, says

few = settings(max_examples=8, deadline=None)
NEXT = get("/next")


@given(
    method=st.sampled_from([b"HEAD", b"GET"]),
    length=st.one_of(st.none(), st.sampled_from([0, 1, 4096, 2**31, 10**12])),
    status=st.sampled_from([b"200 OK", b"404 Not Found", b"304 Not Modified"]),
    chunked=st.booleans(),
)
@few
@over_a_store
async def test_an_answer_without_a_body_keeps_the_length_of_the_absent_one(
    store: Store, method: bytes, length: int | None, status: bytes, chunked: bool
) -> None:
    if method == b"GET":
        status = b"304 Not Modified"
    framing = (
        b"Transfer-Encoding: chunked\r\n" if chunked else b"" if length is None else b"CONTENT-length: %d\r\n" % length
    )
    answer = b"HTTP/1.1 " + status + b'\r\nETag: "v1"\r\n' + framing + b"\r\n"
    live, again, receipt = await both(store, says(answer), get("/artifact", method=method), get("/b", method=method))
    assert live == again == [answer, answer]
    assert receipt["reproduced"] is True


@given(
    statuses=st.lists(st.sampled_from([100, 102, 103, 103, 199]), min_size=1, max_size=3),
    method=st.sampled_from([b"GET", b"POST"]),
)
@few
@over_a_store
async def test_an_informational_answer_is_never_taken_for_the_final_one(
    store: Store, statuses: list[int], method: bytes
) -> None:
    reasons = {100: b"Continue", 102: b"Processing", 103: b"Early Hints", 199: b""}
    interims = [b"HTTP/1.1 %d %s\r\nLink: </a.css>; n=%d\r\n\r\n" % (s, reasons[s], n) for n, s in enumerate(statuses)]
    final = ok(b"ok")
    async with recording(store, says(b"".join(interims) + final)) as on:
        agent = await on.agent()
        live = [await agent.ask(get(method=method)), await agent.ask(get("/again", method=method))]
        exchanges = await on.exchanges(count=2)
    assert live == [b"".join(interims) + final] * 2
    for one in exchanges:
        assert one.response is not None
        assert one.response.status == 200
        assert [status for status, _ in one.response.informational] == statuses
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        kept = b"".join(one for one, status in zip(interims, statuses, strict=True) if status != 100)
        assert await again.ask(get(method=method)) == kept + final
        assert await again.ask(get("/again", method=method)) == kept + final
        again.close()


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=5),
    trailers=st.lists(
        st.tuples(st.sampled_from([b"X-Sum", b"x-sum", b"Server-Timing"]), st.sampled_from([b"", b"1", b"\xe9"])),
        max_size=3,
    ),
    upload=st.booleans(),
)
@few
@over_a_store
async def test_chunks_have_one_framing_and_trailers_pass_both_ways(
    store: Store, chunks: list[bytes], trailers: list[tuple[bytes, bytes]], upload: bool
) -> None:
    tail = b"".join(b"%s: %s\r\n" % pair for pair in trailers)
    body = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in chunks) + b"0\r\n" + tail + b"\r\n"
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    request = get(b"/up", b"Transfer-Encoding: chunked", method=b"POST") + body if upload else get()
    async with recording(store, says(answer)) as on:
        agent = await on.agent()
        live = [await agent.ask(request), await agent.ask(NEXT)]
        got = on.environment.requests
        (first, _) = await on.exchanges(count=2)
    if upload:
        sent = got[0].partition(b"\r\n\r\n")[2]
        assert sent.endswith(b"0\r\n" + tail + b"\r\n")
        assert first.request.trailers == tuple(trailers)
        assert first.request.body is not None
        assert first.request.body.size == len(b"".join(chunks))
    assert first.response is not None
    assert first.response.trailers == tuple(trailers)
    for one in live:
        assert one.count(b"Transfer-Encoding") == 1
        assert b"content-length" not in one.lower()
        assert one.endswith(b"0\r\n" + tail + b"\r\n")
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        assert [await again.ask(request), await again.ask(NEXT)] == live
        again.close()


BOTH = {
    "length first": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "chunked first": b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "two equal lengths": b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "a negative length": b"Content-Length: -2\r\n\r\nok",
    "a length in hex": b"Content-Length: 0x2\r\n\r\nok",
    "a length beyond all": b"Content-Length: 99999999999999999999\r\n\r\nok",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked before gzip": b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("framed", BOTH.values(), ids=BOTH)
async def test_an_answer_with_two_framings_is_refused_by_the_proxy_and_is_no_502_of_the_environment(
    store: Store, framed: bytes
) -> None:
    async def answerer(peer: Peer, request: bytes) -> None:
        await peer.send(ok(b"next") if b"/next" in request else b"HTTP/1.1 200 OK\r\n" + framed)
        if b"/next" not in request:
            peer.close()

    async with recording(store, answerer) as on:
        told = await on.ask(get())
        assert await on.ask(NEXT) == ok(b"next")
        first, second = await on.exchanges(count=2)
    assert second.outcome is Outcome.ANSWERED
    assert first.outcome is not Outcome.ANSWERED
    if first.outcome is Outcome.INVALID:
        assert told.startswith(b"HTTP/1.1 502 ")
        assert b"\r\nReplay-Local: " in told
        assert first.error
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        assert await again.ask(get()) == told, "the agent is told the same again"
        again.close()
