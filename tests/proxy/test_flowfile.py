"""Flow files: what we write is read by mitmproxy and comes back as it was; what mitmproxy writes becomes exchanges."""

from __future__ import annotations

import io
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from mitmproxy.io import FlowReader, FlowWriter
from mitmproxy.test import tflow, tutils

from replayproxy.core.canonical import body_of
from replayproxy.core.values import Chunk, Exchange, Message, Outcome, WebSocket
from replayproxy.proxy.flowfile import FlowFile, Found, NotFlows, Skipped, looks_like_flows, read_flows
from replayproxy.testing import body, exchange
from tests.core.test_har import exchanges

ORIGIN = "http://127.0.0.1:9000"


def written(*listed: Exchange) -> bytes:
    out = io.BytesIO()
    flows = FlowFile(out)
    for one in listed:
        flows.add(one, origin=ORIGIN, run="r", episode="e")
    return out.getvalue()


def read(data: bytes) -> list[Found | Skipped]:
    return list(read_flows(io.BytesIO(data), len(data)))


def only(data: bytes) -> Found:
    (found,) = read(data)
    assert isinstance(found, Found)
    return found


def foreign(*flows: Any) -> bytes:
    out = io.BytesIO()
    writer = FlowWriter(out)  # type: ignore[no-untyped-call]
    for one in flows:
        writer.add(one)
    return out.getvalue()


@settings(deadline=None, max_examples=40)
@given(exchanges)
def test_an_exchange_comes_back_as_it_was(one: Exchange) -> None:
    found = only(written(one))
    assert found == Found(exchange=replace(one, seq=0), episode="e", run="r")


def test_a_conversation_comes_back_as_it_was() -> None:
    said = (Message(from_agent=True, text=True, payload=b"{}", at=5), Message(from_agent=False, text=False,
            payload=b"\xff", at=9))  # fmt: skip
    talk = WebSocket(messages=said, close_code=1000, close_reason="bye", closed_by_agent=False)
    one = exchange(status=101, websocket=talk)
    assert only(written(one)).exchange == one


def test_mitmdump_reads_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "r.flow"
    held = body(b"ab")
    assert held is not None
    one = exchange("POST", "/x?a=1", sent={"a": 1}, body=replace(held, chunks=(Chunk(size=2, at=3),)), status=201)
    path.write_bytes(written(one, exchange(status=None, outcome=Outcome.REFUSED, error="connection refused")))
    mitmdump = Path(sys.executable).parent / "mitmdump"
    done = subprocess.run([mitmdump, "-nr", path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "POST http://127.0.0.1:9000/x?a=1" in done.stdout
    assert "<< 201 Created 2b" in done.stdout
    assert "connection refused" in done.stdout


def test_the_same_recording_gives_the_same_file() -> None:
    assert written(exchange()) == written(exchange())


def test_a_flow_of_mitmproxy_becomes_an_exchange() -> None:
    one = tflow.tflow(resp=True)
    one.request.headers["x-replay-episode"] = "a%20b"
    one.request.headers["x-replay-lane"] = "tool"
    assert one.response is not None
    one.response.trailers = tutils.treq().headers
    found = only(foreign(one))
    read_ = found.exchange
    assert (found.episode, read_.lane, read_.upstream) == ("a b", "tool", "http://address:22")
    assert (read_.request.method, read_.request.target) == (b"GET", b"/path")
    assert read_.request.fields == ((b"Host", b"address:22"), (b"header", b"qvalue"), (b"content-length", b"7"))
    assert read_.request.body == body_of(b"content")
    assert read_.response is not None
    assert (read_.response.status, read_.response.body) == (200, body_of(b"message"))
    assert read_.response.trailers
    assert read_.times.head == 946681200_000_000_000
    assert read_.outcome is Outcome.ANSWERED


def test_errors_and_conversations_of_mitmproxy_are_taken() -> None:
    broken = only(foreign(tflow.tflow(err=True))).exchange
    assert (broken.response, broken.outcome, broken.error) == (None, Outcome.CUT, "error")
    talk = only(foreign(tflow.twebsocketflow())).exchange.websocket
    assert talk is not None
    assert [(m.from_agent, m.text, m.payload) for m in talk.messages] == [
        (True, False, b"hello binary"), (True, True, b"hello text"), (False, True, b"it's me"),
    ]  # fmt: skip


def test_other_kinds_of_flows_are_named_and_left() -> None:
    connect = tflow.tflow(req=tutils.treq(method=b"CONNECT"))
    found = read(foreign(tflow.ttcpflow(), tflow.tudpflow(), tflow.tdnsflow(), connect, tflow.tflow()))
    assert [one.what if isinstance(one, Skipped) else "exchange" for one in found] == [
        "tcp flows", "udp flows", "dns flows", "CONNECT requests", "exchange",
    ]  # fmt: skip


def refusal(data: bytes) -> str | None:
    try:
        read(data)
    except NotFlows as refused:
        return str(refused)
    return None


def test_a_cut_file_is_refused_unless_it_ends_with_a_flow() -> None:
    whole = written(exchange(), exchange("POST", sent=b"x" * 2000))
    first = len(written(exchange()))
    for at in {1, 5, 20, first - 1, first + 1, len(whole) - 1, *random.Random(3).sample(range(2, len(whole)), 40)}:
        assert (refusal(whole[:at]) is None) == (at == first), f"cut at {at}"


def test_flipped_bits_end_in_a_refusal_or_in_a_flow_and_never_otherwise() -> None:
    whole, chance = written(exchange("POST", sent={"a": 1}, body={"b": 2})), random.Random(4)
    seen = set()
    for _ in range(200):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        seen.add(refusal(bytes(damaged)) is None)
    assert False in seen


def test_a_length_that_is_a_lie_takes_no_memory() -> None:
    assert "cut" in str(refusal(b"999999999999:5:"))
    assert "flow 1" in str(refusal(b"20:" + b"1:" * 10 + b"]"))
    assert refusal(b"") is None


@pytest.mark.parametrize("other", [b"", b"{", b"\x89PNG\r\n\x1a\n", b"1234", b"abc:"])
def test_other_files_do_not_look_like_flows(other: bytes) -> None:
    assert not looks_like_flows(other)
    assert looks_like_flows(written(exchange()))


def test_a_file_of_an_older_mitmproxy_is_brought_up_to_date() -> None:
    state = dict(tflow.tflow(resp=True).get_state())
    state["version"] = 20
    for member in ("client_conn", "server_conn"):  # as version 20 had it
        state[member] = dict(state[member])
    from mitmproxy.io import tnetstring

    data = tnetstring.dumps(state)
    assert list(FlowReader(io.BytesIO(data)).stream())
    assert only(data).exchange.request.target == b"/path"
