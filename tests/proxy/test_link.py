"""A worker's scribe and the recorder's end of it, over a real socket pair: what the recorder is told in the end."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from replayproxy.core.canonical import digest
from replayproxy.core.identity import Claims
from replayproxy.core.redact_body import GIVEN_UP
from replayproxy.core.values import Body, Exchange, Message, Outcome, Request, Response, Times, WebSocket
from replayproxy.proxy.forward import ForwardOptions
from replayproxy.proxy.frames import Channel, Word
from replayproxy.proxy.link import Link
from replayproxy.proxy.listeners import EnvOptions
from replayproxy.proxy.remote import HELD_LIMIT, FarTicket, RemoteScribe
from replayproxy.proxy.routes import Upstream
from replayproxy.proxy.scribe import Ticket
from tests.proxy.wire import FakeScribe, Sink

FIELDS = ((b"Host", b"127.0.0.1:1"), (b"Content-Type", b"application/json"))
URL = "http://127.0.0.1:9"


class Desk(FakeScribe):
    """`watched` and `noted` are what `follows` says."""

    watched = noted = False
    withholds = False

    def arrive(self, claims: Claims, *, worker: int = 0, **given: Any) -> Ticket:  # type: ignore[override]
        self.urls = {"app": URL}
        self.workers = [*getattr(self, "workers", []), worker]
        return super().arrive(claims, **given)

    def follows(self, ticket: Ticket) -> tuple[bool, bool]:
        return self.watched, self.noted

    def sink(self, ticket: Ticket, fields: Any, *, answer: bool) -> Sink:
        return Withholding() if self.withholds else super().sink(ticket, fields, answer=answer)


class Withholding(Sink):
    def close(self) -> Any:
        return None


@dataclass
class Ends:
    desk: Desk
    link: Link
    scribe: RemoteScribe
    far: Channel

    async def arrive(self, method: bytes = b"GET", **claims: Any) -> Ticket:
        ticket = await self.scribe.arrive(
            Claims(prefix="e", **claims), env="app", listener="l", method=method, target=b"/x",
            at=time.monotonic_ns(), fields=FIELDS,
        )  # fmt: skip
        assert ticket is not None
        return ticket

    def body(self, ticket: Ticket, *pieces: bytes, answer: bool, at: int | None = None) -> Body:
        sink = self.scribe.sink(ticket, FIELDS, answer=answer)
        for piece in pieces:
            sink.write(piece, at)
        assert sink.size == sum(map(len, pieces))
        return sink.close()

    def exchange(self, ticket: Ticket, body: Body | None, sent: Body | None = None, **more: Any) -> Exchange:
        at = time.monotonic_ns()
        given: dict[str, Any] = {
            "seq": 0, "order": ticket.order, "env": ticket.env, "lane": "main", "outcome": Outcome.ANSWERED,
            "times": Times(head=at, wall=5, c_in=at + 1, fwd=at + 2, first=at + 3, up_end=at + 4, c_out=at + 5),
            "carrier": "", "upstream": URL, "agent_connection": "a", "env_connection": "b", "notes": ("n",),
            "request": Request(
                method=b"POST", target=b"/x", version=b"HTTP/1.1", fields=FIELDS, body=sent, agent_host=b"h",
                trailers=((b"t", b"1"),),
            ),
            "response": Response(
                status=200, reason=b"Fine", version=b"HTTP/1.1", fields=FIELDS, body=body,
                informational=((103, ((b"Link", b"l"),)),),
            ),
        }  # fmt: skip
        return Exchange(**{**given, **more})

    async def pass_through(self, ticket: Ticket, exchange: Exchange) -> Exchange:
        """As the proxy does it; gives what the recorder got."""
        await self.scribe.before_forward(ticket, exchange.request)
        await self.scribe.hold(ticket, exchange)
        self.scribe.finished(ticket, exchange)
        return await self.desk.exchange(len(self.desk.exchanges) + 1)


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    desk, loop = Desk(), asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    near = Channel(lambda message: link.hear(message) and None, lambda: None)
    far = Channel(lambda message: scribe.hear(message) and None, lambda: None)
    link, scribe = Link(desk, 2, near, time.time_ns), RemoteScribe(far)
    await loop.create_unix_connection(lambda: near, sock=ours)
    await loop.create_unix_connection(lambda: far, sock=theirs)
    yield Ends(desk, link, scribe, far)
    near.close()
    far.close()


@pytest.mark.parametrize(("watched", "noted"), [(False, False), (False, True), (True, False)])
async def test_an_exchange_arrives_as_it_was_told_whichever_way_it_was_asked_about(
    ends: Ends, watched: bool, noted: bool
) -> None:
    ends.desk.watched, ends.desk.noted = watched, noted
    ticket = await ends.arrive(b"POST")
    told = ends.exchange(ticket, ends.body(ticket, b"{}", answer=True), ends.body(ticket, b"[1]", answer=False))
    came = await ends.pass_through(ticket, told)
    assert came.request.body is not None
    assert came.response is not None
    assert came.response.body is not None
    assert (came.request.body.inline, came.response.body.inline) == (b"[1]", b"{}")
    assert came.response.body.digest == digest(b"{}")
    assert (came.lane, came.carrier, came.order) == ("main", "prefix", ends.desk.tickets[0].order)
    for name in ("outcome", "times", "upstream", "agent_connection", "env_connection", "notes"):
        assert getattr(came, name) == getattr(told, name)
    assert (came.request.trailers, came.request.agent_host) == (((b"t", b"1"),), b"h")
    assert came.response.informational == ((103, ((b"Link", b"l"),)),)
    assert len(ends.desk.held) == (watched or noted)
    assert len(ends.desk.forwarded) == watched
    assert len(ends.desk.heads) == 2, "each body goes to the store once, however often it is told"
    assert not ends.desk.faults


async def test_a_long_body_passes_piece_by_piece_with_its_times(ends: Ends) -> None:
    ticket = await ends.arrive()
    piece = b"p" * (HELD_LIMIT // 2)
    body = ends.body(ticket, piece, piece, piece, answer=True, at=7)
    assert body.inline is None
    came = await ends.pass_through(ticket, ends.exchange(ticket, body))
    assert came.response is not None
    assert came.response.body is not None
    assert came.response.body.inline == piece * 3
    assert [(chunk.size, chunk.at) for chunk in came.response.body.chunks] == [(len(piece), 7)] * 3


async def test_a_body_that_is_withheld_is_noted_and_one_that_was_given_up_is_none(ends: Ends) -> None:
    ends.desk.withholds = True
    ticket = await ends.arrive()
    came = await ends.pass_through(ticket, ends.exchange(ticket, ends.body(ticket, b"x", answer=True)))
    assert came.response is not None
    assert came.response.body is None
    assert GIVEN_UP in came.notes
    other = await ends.arrive()
    came = await ends.pass_through(other, ends.exchange(other, None))
    assert came.response is not None
    assert came.response.body is None
    assert GIVEN_UP not in came.notes


async def test_a_conversation_is_told_message_by_message(ends: Ends) -> None:
    ticket = await ends.arrive()
    talk = ends.scribe.talk(ticket)
    said = [Message(from_agent=n % 2 == 0, text=True, payload=b"%d" % n, at=n) for n in range(3)]
    for message in said:
        talk.add(message)
    assert talk.close() == ((), None)
    socket_ = WebSocket(messages=(), close_code=1000, close_reason="done", closed_by_agent=True)
    came = await ends.pass_through(ticket, ends.exchange(ticket, None, websocket=socket_))
    assert came.websocket == WebSocket(messages=tuple(said), close_code=1000, close_reason="done", closed_by_agent=True)


async def test_of_a_conversation_whose_process_ended_what_had_passed_is_kept(ends: Ends) -> None:
    ticket = await ends.arrive()
    said = [Message(from_agent=n % 2 == 0, text=True, payload=b"%d" % n, at=n) for n in range(3)]
    talk = ends.scribe.talk(ticket)
    for message in said:
        talk.add(message)
    await ends.arrive()  # words are heard in their order
    assert ends.link.died("killed") == 2
    lost = ends.desk.exchanges[0]
    assert (lost.outcome, lost.websocket) == (Outcome.LOST, WebSocket(messages=tuple(said), close_code=None))


async def test_what_was_under_way_when_the_process_ended_is_lost_and_said_to_be(ends: Ends) -> None:
    over, open_ = await ends.arrive(), await ends.arrive(b"POST")
    await ends.pass_through(over, ends.exchange(over, None))
    assert list(ends.link.in_flight()) == [2]
    assert ends.link.died("killed") == 1
    lost = ends.desk.exchanges[-1]
    assert (lost.outcome, lost.error, lost.response, lost.request.method) == (Outcome.LOST, "killed", None, b"POST")
    assert lost.request.body is None, "not captured; a replay never matches it, and a re-drive never sends it"
    assert (b"Host", b"127.0.0.1:9") in lost.request.fields, "the environment's, as in every exchange"
    assert lost.times.fwd == ends.desk.tickets[1].order[0], "it may have reached the environment at once"
    assert lost.times.up_end is None
    assert ends.link.died("again") == 0
    assert open_.order == lost.order


async def test_each_worker_has_its_own_place_in_the_order(ends: Ends) -> None:
    await ends.arrive()
    assert ends.desk.workers == [2]


async def test_a_recorder_that_takes_no_notice_lets_the_traffic_go_on(ends: Ends) -> None:
    ends.desk.breaks.add("arrive")
    arriving = ends.scribe.arrive(Claims(), env="app", listener="l", method=b"GET", target=b"/", at=1)
    assert await arriving is None
    assert [(ticket, where) for ticket, where, _ in ends.desk.faults] == [(None, "arrive")]


@pytest.mark.parametrize("where", ["before_forward", "hold", "finished", "sink"])
async def test_what_the_recorder_raises_is_a_fault_of_that_exchange_and_nobody_waits_for_ever(
    ends: Ends, where: str
) -> None:
    ends.desk.watched = True
    ticket = await ends.arrive()
    ends.desk.breaks.add(where)
    told = ends.exchange(ticket, ends.body(ticket, b"x", answer=True), ends.body(ticket, b"y", answer=False))
    async with asyncio.timeout(5):
        await ends.scribe.before_forward(ticket, told.request)
        await ends.scribe.hold(ticket, told)
    ends.scribe.finished(ticket, told)
    await ends.desk.until(lambda: ends.desk.faults)
    assert all(one == ends.desk.tickets[0] for one, _, _ in ends.desk.faults)


async def test_a_fault_of_the_worker_s_is_told_with_its_exchange(ends: Ends) -> None:
    ticket = await ends.arrive()
    ends.scribe.fault(ticket, "finished", KeyError())
    await ends.desk.until(lambda: ends.desk.faults)
    (whose, where, error), = ends.desk.faults  # fmt: skip
    assert (whose, where, str(error)) == (ends.desk.tickets[0], "finished", "KeyError")
    assert not ends.link.in_flight(), "nobody waits for it"


async def test_an_event_names_its_exchange_also_when_that_is_over(ends: Ends) -> None:
    ticket = await ends.arrive()
    await ends.pass_through(ticket, ends.exchange(ticket, None))
    ends.scribe.event(ticket, "agent-closed", {"connection": "a"}, 9)
    await ends.desk.until(lambda: ends.desk.events)
    assert ends.desk.events == [(ends.desk.tickets[0], "agent-closed", {"connection": "a"}, 9)]


async def test_tickets_that_the_worker_let_go_are_forgotten(ends: Ends) -> None:
    for _ in range(200):
        ticket = await ends.arrive()
        await ends.pass_through(ticket, ends.exchange(ticket, None))
        assert isinstance(ticket, FarTicket)
    del ticket
    gc.collect()
    assert len(ends.link._entries) < 150


async def test_a_worker_reads_slower_while_the_recorder_says_so(ends: Ends) -> None:
    assert ends.scribe.room()
    ends.scribe.hear((Word.ROOM, False))
    assert not ends.scribe.room()
    waiting = asyncio.ensure_future(ends.scribe.wait_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    ends.scribe.hear((Word.ROOM, True))
    async with asyncio.timeout(5):
        await waiting


async def test_an_origin_that_is_none_is_answered_too_and_holds_up_no_tunnel(ends: Ends) -> None:
    """Of a CONNECT to a host that no URL can have."""

    class Refuses:
        def env_of(self, at: Any, target: bytes) -> str:
            raise ValueError(at)

        options_of = env_of

    ends.link._forwarding = lambda: ForwardOptions(naming=Refuses())  # type: ignore[arg-type]
    at = Upstream(scheme="https", host="a b", port=443)
    async with asyncio.timeout(5):
        await ends.scribe.naming.learn(at)
    assert ends.scribe.naming.options_of(at) == EnvOptions()


async def test_how_an_origin_is_verified_is_known_before_its_ticket(ends: Ends) -> None:
    verified = EnvOptions(ca=Path("/ca.pem"), insecure=True)

    class Names:
        def env_of(self, at: Any, target: bytes) -> str:
            return "app" if (at.origin, target) == ("https://h:1", b"/a") else "another"

        def options_of(self, at: Any) -> EnvOptions:
            return verified

    ends.link._forwarding = lambda: ForwardOptions(naming=Names())  # type: ignore[arg-type]
    naming, at = ends.scribe.naming, Upstream(scheme="https", host="h", port=1)
    ticket = await ends.scribe.arrive(
        Claims(), env=naming.env_of(at, b"/a"), listener="l", method=b"GET", target=b"/a", at=1
    )
    assert ticket is not None
    assert ticket.env == "app"
    assert naming.options_of(at) == verified
