"""A recorder that fails changes nothing on the wire, and says that it failed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from replayproxy.core.values import Outcome
from replayproxy.proxy import head, record_addon
from replayproxy.proxy.live import Live
from tests.proxy.test_websocket import frame, read_frame, talk
from tests.proxy.wire import Wire, says

POST = b"POST /rp/e1/a HTTP/1.1\r\nHost: x\r\nX-Replay-Lane: l\r\nContent-Length: 2\r\n\r\nhi"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
LONG = b"POST /rp/e1/a HTTP/1.1\r\nHost: x\r\nX-Replay-Lane: l\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70000

SCRIBE = ("arrive", "sink", "sink.write", "before_forward", "hold", "finished", "event", "room")


@pytest.mark.parametrize("also", [None, "fault"], ids=["", "and fault itself"])
@pytest.mark.parametrize("request_", [POST, LONG], ids=["short", "long"])
@pytest.mark.parametrize("answer", [OK, CHUNKED], ids=["length", "chunked"])
@pytest.mark.parametrize("where", SCRIBE)
async def test_a_scribe_that_raises_changes_nothing_on_the_wire_and_is_reported(
    w: Wire, where: str, answer: bytes, request_: bytes, also: str | None
) -> None:
    environment, _, agent = await w.between(says(answer))
    w.scribe.breaks = {where, also or where}
    for _ in range(2):
        assert await agent.ask(request_) == answer
    assert (
        environment.requests
        == [
            request_.replace(b"/rp/e1", b"")
            .replace(b"X-Replay-Lane: l\r\n", b"")
            .replace(b"Host: x", b"Host: " + environment.authority)
        ]
        * 2
    )
    if where == "hold" and not w.scribe.faults:
        pytest.fail("nothing was held")
    assert w.scribe.faults
    assert all("planted" in str(error) for _, _, error in w.scribe.faults)
    if where in ("sink", "sink.write"):
        exchange = await w.scribe.exchange()
        assert (exchange.request.body, exchange.outcome) == (None, Outcome.ANSWERED), "not captured, never empty"


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (head, "take_marks"),
        (head, "with_host"),
        (record_addon.RecordAddon, "_answers_itself"),
        (Live, "request_complete"),
        (Live, "answer_head"),
        (record_addon, "to_agent"),
        (record_addon, "may_buffer"),
        (Live, "answer_trailers"),
        (Live, "exchange"),
        (record_addon, "Request"),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", ""),
)
async def test_an_exception_inside_a_hook_lets_the_traffic_go_on(
    w: Wire, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(*_: Any, **__: Any) -> None:
        raise RuntimeError("planted")

    environment, _, agent = await w.between(says(CHUNKED))
    monkeypatch.setattr(owner, name, planted)
    assert (await agent.ask(POST)).endswith(b"2\r\nok\r\n0\r\n\r\n")
    assert environment.requests[0].endswith(b"\r\n\r\nhi")
    assert [str(error) for _, _, error in w.scribe.faults] == ["planted"] * len(w.scribe.faults) != []


@pytest.mark.parametrize("where", ["message", "end"])
async def test_an_exception_in_a_websocket_hook_lets_the_conversation_go_on(
    w: Wire, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(*_: Any, **__: Any) -> None:
        raise RuntimeError("planted")

    agent, environment = await talk(w)
    monkeypatch.setattr(Live, where, planted)
    await environment.send(frame(1, b"x"))
    assert await read_frame(agent) == (1, b"x")
    await environment.send(frame(8, b""))
    assert await read_frame(agent) == (8, b"")
    await w.scribe.until(lambda: w.scribe.faults)


async def test_every_carrier_reaches_the_scribe(w: Wire) -> None:
    environment, _, agent = await w.between(says(OK))
    for marks in (b"X-Replay-Episode: caf%C3%A9\r\n", b"baggage: replay.episode=c\r\n", b""):
        await agent.ask(b"GET /a HTTP/1.1\r\nHost: x\r\n%s\r\n" % marks)
    await agent.ask(b"GET /rp/%ff/a HTTP/1.1\r\nHost: x\r\n\r\n")
    await w.scribe.exchange(4)
    assert [(e.carrier, e.lane) for e in w.scribe.exchanges] == [
        ("header", "main"),
        ("baggage", "main"),
        ("no carrier", "main"),
        ("refused name: it is not valid UTF-8", "main"),
    ]
    assert {request.split(b"\r\n")[0] for request in environment.requests} == {b"GET /a HTTP/1.1"}


async def test_reads_named_by_the_ticket_are_not_held_back(w: Wire) -> None:
    w.scribe.reads = ("POST /a",)
    _, _, agent = await w.between(says(CHUNKED))
    await agent.ask(POST)
    assert w.scribe.held == []
    await agent.ask(POST.replace(b"/a ", b"/b "))
    assert len(w.scribe.held) == 1


async def test_the_scribe_sees_the_request_before_it_is_forwarded(w: Wire) -> None:
    environment, _, agent = await w.between(says(OK))
    await agent.ask(POST)
    await agent.ask(LONG)
    short, long = w.scribe.forwarded
    assert short.body is not None
    assert (short.target, short.body.inline) == (b"/a", b"hi")
    assert short.fields == ((b"Host", environment.authority), (b"Content-Length", b"2"))
    assert long.body is None


def test_the_pure_parts_of_the_proxy_do_not_import_mitmproxy() -> None:
    code = "import sys, replayproxy.proxy.scribe, replayproxy.proxy.routes, replayproxy.proxy.problems\n"
    code += "import replayproxy.proxy.listeners, replayproxy.proxy.head; sys.exit('mitmproxy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert head.take_marks(b"/", ()).target == b"/"
