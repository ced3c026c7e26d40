"""One exchange while it happens: what the hooks and layers see of it, gathered until it is handed to the scribe.

Rules of this file: no method raises. What fails in the recorder is given to `Scribe.fault` and the bytes go on. An
exchange ends once: after `end` or `release` everything is a no-op, so that every path that may be the last can call it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Concatenate

from replayproxy.core.canonical import decoded
from replayproxy.core.links import LinkCounter
from replayproxy.core.redact_body import GIVEN_UP
from replayproxy.core.values import Exchange, Fields, Message, Outcome, Request, Response, Times, WebSocket, changed
from replayproxy.proxy.capture import Capture
from replayproxy.proxy.scribe import ESCAPING_LINKS, BodySink, Scribe, TalkSink, Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Where instants come from: the machine's monotonic clock and the wall, both in ns."""

    now: Callable[[], int]
    wall: Callable[[], int]


def guarded[**P](where: str) -> Callable[[Callable[Concatenate[Live, P], None]], Callable[Concatenate[Live, P], None]]:
    """What the method raises is the recorder's fault, and the traffic goes on."""

    def wrap(method: Callable[Concatenate[Live, P], None]) -> Callable[Concatenate[Live, P], None]:
        @functools.wraps(method)
        def call(self: Live, *args: P.args, **kwargs: P.kwargs) -> None:
            try:
                method(self, *args, **kwargs)
            except Exception as error:
                self.fault(where, error)

        return call  # type: ignore[return-value]  # mypy sees `self` as positional-or-keyword

    return wrap


class Live:
    """See the module. `ticket` None: the scribe took no notice, so nothing is captured, but the traffic goes on."""

    def __init__(
        self, scribe: Scribe, clock: Clock, ticket: Ticket | None, *, head: Request, at: int, agent_connection: str
    ) -> None:
        self.scribe, self.clock, self.ticket, self.head = scribe, clock, ticket, head
        self.agent_connection, self.env_connection, self.upstream = agent_connection, "", ""
        self.origins: tuple[str, ...] = ()  # the environment's own: what a link to it begins with
        self.forward = False
        self.base = self.prefix = ""  # what such a link begins with for the agent; base "": it is left alone
        self.at, self.wall = at, clock.wall()
        self.c_in: int | None = None  # these five are what `Times` says
        self.fwd: int | None = None
        self.first: int | None = None
        self.up_end: int | None = None
        self.c_out: int | None = None
        self.ended = ticket is None  # nothing is recorded from here on
        self.over = False  # nothing passes from here on
        self.when_over: Callable[[Live], None] | None = None
        self.truncate_at: int | None = None  # bytes of the answer's body that the agent gets (`--chaos`)
        self.local: str | None = None  # why the proxy answers itself
        self.streamed = self.request_whole = self.answer_whole = False
        self.heard = 0  # when the environment last sent something of its answer
        self.busy = False  # the scribe holds the answer; the end is still to come
        self.overdue = False
        self.request_body, self.answer_body = Capture(self._request_sink), Capture(self._answer_sink)
        self.request_trailers: Fields = ()
        self.answer: Response | None = None
        self.interims: list[tuple[int, Fields]] = []
        self._talk: TalkSink | None = None
        self.notes: list[str] = []
        self.held_ns = 0
        self.held: Exchange | None = None  # as the scribe saw it before the agent got the answer
        self._request: Request | None = None
        self._links: LinkCounter | None = None

    def _request_sink(self) -> BodySink:
        assert self.ticket is not None
        return self.scribe.sink(self.ticket, self.head.fields, answer=False)

    def _answer_sink(self) -> BodySink:
        assert self.ticket is not None
        return self.scribe.sink(self.ticket, self.answer.fields if self.answer else (), answer=True)

    def fault(self, where: str, error: BaseException) -> None:
        try:
            self.scribe.fault(self.ticket, where, error)
        except Exception:  # by contract it never raises; if it does, traffic still comes first
            pass

    @guarded("request body")
    def request_piece(self, data: bytes) -> None:
        if not self.ended:
            self.request_body.add(data, self.clock.now())

    def request_tee(self, data: bytes) -> bytes:
        """A stream callable of mitmproxy's: sees every piece of a request that is passed on as it comes."""
        self.request_piece(data)
        return data

    @guarded("request body")
    def request_block(self, data: bytes) -> None:
        """A whole buffered body, or the part of it that came."""
        if not self.ended:
            self.request_body.add(data)

    @guarded("request")
    def request_complete(self, trailers: Fields) -> None:
        self.c_in = self.clock.now()
        self.request_trailers = trailers
        self.request_whole = True

    @guarded("forwarding")
    def forwarding(self, connection: str) -> None:
        """The next thing that happens is the first byte to the environment."""
        self.env_connection = connection
        self.fwd = self.clock.now()

    @guarded("1xx")
    def interim(self, status: int, fields: Fields) -> None:
        if not self.ended:
            self.interims.append((status, fields))

    @guarded("answer's head")
    def head_came(self) -> None:
        self.first = self.heard = self.clock.now()

    @guarded("answer's body")
    def heard_something(self) -> None:
        self.heard = self.clock.now()

    @guarded("answer's head")
    def answer_head(self, answer: Response) -> None:
        self.answer = answer
        self._links = LinkCounter(self.origins) if self.origins else None

    @guarded("answer's body")
    def answer_piece(self, data: bytes) -> None:
        if data and not self.ended:
            self.answer_body.add(data, self.clock.now())
            if self._links:
                self._links.feed(data)

    def answer_tee(self, data: bytes) -> bytes:
        """A stream callable of mitmproxy's. It may not raise: the agent would hang."""
        self.answer_piece(data)
        return data

    @guarded("answer's body")
    def answer_block(self, data: bytes) -> None:
        """A whole buffered body, or the part of it that came before a cut."""
        if data and not self.ended:
            self.answer_body.add(data)
            if self._links and self.answer:
                self._links.feed(decoded(self.answer.fields, data) or b"")

    @guarded("answer's body")
    def answer_lost(self, why: str) -> None:
        """The body passed without the recorder: it is not captured, which is never the same as empty."""
        self.answer_body.give_up()
        self.notes.append(f"answer-not-captured: {why}")

    @guarded("answer")
    def answer_complete(self) -> None:
        """The environment's last byte is here."""
        self.up_end = self.clock.now()
        self.answer_whole = True

    @guarded("answer")
    def answer_failed(self) -> None:
        """Nothing more comes from the environment, though more was due."""
        if self.up_end is None:
            self.up_end = self.clock.now()

    @guarded("answer's body")
    def truncated(self) -> None:
        """The agent got a part of the whole answer."""
        assert self.ticket is not None
        assert self.ticket.fault is not None
        self.notes.append(self.ticket.fault.note)

    @guarded("answer's trailers")
    def answer_trailers(self, trailers: Fields) -> None:
        if self.answer and trailers:
            self.answer = replace(self.answer, trailers=trailers)

    @guarded("message")
    def message(self, *, from_agent: bool, text: bool, payload: bytes) -> None:
        if not self.ended and self.ticket is not None:
            if self._talk is None:
                self._talk = self.scribe.talk(self.ticket)
            self._talk.add(Message(from_agent=from_agent, text=text, payload=payload, at=self.clock.now()))

    def conversation(
        self, close_code: int | None = None, reason: str = "", *, by_agent: bool | None = None
    ) -> WebSocket:
        """What was said so far, and how it ended. `close_code` None: it is still open."""
        messages, log = self._talk.close() if self._talk is not None else ((), None)
        return WebSocket(
            messages=messages, close_code=close_code, close_reason=reason, closed_by_agent=by_agent, log=log
        )

    @guarded("handed over")
    def handed_over(self) -> None:
        """The last byte for the agent is written."""
        self.c_out = self.clock.now()

    @property
    def is_websocket(self) -> bool:
        return self.answer is not None and self.answer.status == 101

    @property
    def is_stream(self) -> bool:
        """Whether it may stay open for as long as the agent lives."""
        return self.streamed or self.is_websocket

    def request(self) -> Request:
        """The request with its body as far as it came. Closes the body."""
        if self._request is None:
            head = self.head
            self._request = Request(
                method=head.method,
                target=head.target,
                version=head.version,
                fields=head.fields,
                body=self.request_body.close(),
                agent_host=head.agent_host,
                trailers=self.request_trailers,
            )
        return self._request

    @property
    def times(self) -> Times:
        return Times(
            head=self.at,
            wall=self.wall,
            c_in=self.c_in,
            fwd=self.fwd,
            first=self.first,
            up_end=self.up_end,
            c_out=self.c_out,
        )

    def exchange(
        self,
        outcome: Outcome,
        *,
        error: str = "",
        closed_by_agent: bool | None = None,
        websocket: WebSocket | None = None,
    ) -> Exchange:
        """The exchange as it stands. Closes the bodies."""
        assert self.ticket is not None
        attribution, answer = self.ticket.attribution, self.answer
        if answer is not None:
            answer = changed(answer, body=self.answer_body.close(), informational=tuple(self.interims))
        request = self.request()
        if (self.request_body.withheld or self.answer_body.withheld) and GIVEN_UP not in self.notes:
            self.notes.append(GIVEN_UP)
        return Exchange(
            seq=0,
            order=self.ticket.order,
            env=self.ticket.env,
            lane=attribution.lane,
            request=request,
            response=answer,
            outcome=outcome,
            times=self.times,
            carrier=attribution.carrier if attribution.episode else attribution.reason,
            websocket=websocket,
            error=error,
            cut_at=self._cut_at(outcome),
            upstream=self.upstream,
            agent_connection=self.agent_connection,
            env_connection=self.env_connection,
            held_ns=self.held_ns,
            closed_by_agent=closed_by_agent,
            notes=tuple(self.notes),
            is_reset=self.ticket.is_reset,
            is_probe=self.ticket.is_probe,
        )

    def _cut_at(self, outcome: Outcome) -> int | None:
        begun = self.answer is not None
        if outcome is Outcome.CUT or (begun and outcome in (Outcome.INVALID, Outcome.TIMED_OUT)):
            return self.answer_body.size
        return None

    def end(
        self,
        outcome: Outcome,
        *,
        error: str = "",
        closed_by_agent: bool | None = None,
        websocket: WebSocket | None = None,
    ) -> None:
        """Nothing more passes. Hands the exchange to the scribe, unless that was done."""
        if self.over:
            return
        self.over = True
        self.release(outcome, error=error, closed_by_agent=closed_by_agent, websocket=websocket)
        if self.when_over:
            self.when_over(self)

    @guarded("finished")
    def release(
        self,
        outcome: Outcome,
        *,
        error: str = "",
        closed_by_agent: bool | None = None,
        websocket: WebSocket | None = None,
    ) -> None:
        """Ends the recording, whether or not the traffic goes on."""
        if self.ended:
            return
        self.ended = True
        assert self.ticket is not None
        if self._links and (count := self._links.end()):
            self.notes.append(f"escaping-links:{count}")
            self.scribe.event(self.ticket, ESCAPING_LINKS, {"count": count}, self.clock.now())
        if websocket is None and self.is_websocket:
            websocket = self.conversation()
        if self.held is not None and outcome is Outcome.ANSWERED:
            exchange = changed(self.held, times=self.times, held_ns=self.held_ns, notes=tuple(self.notes))
        else:
            exchange = self.exchange(outcome, error=error, closed_by_agent=closed_by_agent, websocket=websocket)
        self.scribe.finished(self.ticket, exchange)
