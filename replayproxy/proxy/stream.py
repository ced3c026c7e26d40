"""mitmproxy's HttpStream, told what it does to an exchange: when it ended and how, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, cast

from mitmproxy import http
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import HttpLayer, HttpStream, SendHttp, _base, _events

from replayproxy.core.values import Outcome
from replayproxy.proxy.buffering import BUFFER_LIMIT
from replayproxy.proxy.connecting import why_overdue
from replayproxy.proxy.layers import EnvironmentFault, RequestRefused, ResponseInformational
from replayproxy.proxy.live import Live
from replayproxy.proxy.unquoted import unquoted

_ATTRIBUTE = "_replayproxy_live"


def attach(flow: http.HTTPFlow, live: Live) -> None:
    """Not in `flow.metadata`: a user's mitmdump writes that to its flow file."""
    setattr(flow, _ATTRIBUTE, live)


def live_of(flow: http.HTTPFlow | None) -> Live | None:
    return cast("Live | None", getattr(flow, _ATTRIBUTE, None))


class AnswerOverdue(events.MessageInjected[None]):
    """Sent into a connection when the environment has not begun to answer in time, or has stopped in its midst."""

    def __init__(self, flow: http.HTTPFlow, why: str, begun: bool) -> None:
        super().__init__(flow, None)
        self.why, self.begun = why, begun


_stock_handle_event: Callable[[HttpLayer, events.Event], CommandGenerator[None]] = HttpLayer._handle_event


def reach_stream(layer: HttpLayer, event: events.Event) -> CommandGenerator[None]:
    """mitmproxy finds the stream of an injected event by its server connection, which over HTTP/2 has many streams, and
    before the connection is made has none. We find it by its flow, also inside a tunnel."""
    # Every event of every connection passes here: the generator of the stock layer itself, and none around it.
    if isinstance(event, AnswerOverdue):
        return _overdue(layer, event)
    return _stock_handle_event(layer, event)


def _overdue(layer: HttpLayer, event: AnswerOverdue) -> CommandGenerator[None]:
    for stream in list(layer.streams.values()):
        if stream.child_layer is not None or getattr(stream, "flow", None) is event.flow:
            yield from layer.event_to_child(stream, event)


class RecordedStream(HttpStream):
    """See the module. Without a `Live` on its flow it only passes on what stock would lose."""

    _passed = 0
    _withheld = False

    @property
    def live(self) -> Live | None:
        return live_of(getattr(self, "flow", None))

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, ResponseInformational):
            return self._pass_interim(event)
        if isinstance(event, AnswerOverdue):
            return self._give_up(event)
        stock: CommandGenerator[None] = super()._handle_event(event)
        if (live := self.live) is not None and live.truncate_at is not None:
            return self._truncated(live, stock)
        return stock

    def _truncated(self, live: Live, given: CommandGenerator[None]) -> CommandGenerator[None]:
        """The same, but of the answer's body the agent gets its beginning, and then the end of the connection."""
        reply = None
        while True:
            try:
                command = given.send(reply)
            except StopIteration:
                return
            reply = None
            if not isinstance(command, SendHttp) or command.connection is not self.context.client:
                reply = yield command
                continue
            event = command.event
            if isinstance(event, _events.ResponseData):
                left = max((live.truncate_at or 0) - self._passed, 0)
                self._withheld = self._withheld or len(event.data) > left
                event = _events.ResponseData(event.stream_id, event.data[:left])
                self._passed += len(event.data)
                if event.data:
                    yield SendHttp(event, command.connection)
            elif self._withheld and isinstance(event, _events.ResponseTrailers):
                pass
            elif self._withheld and isinstance(event, _events.ResponseEndOfMessage):
                live.truncated()
                yield SendHttp(EnvironmentFault(event.stream_id, "truncated", Outcome.CUT), command.connection)
            else:
                yield command

    def _pass_interim(self, event: ResponseInformational) -> CommandGenerator[None]:
        if self.server_state != self.state_wait_for_response_headers:
            return
        if live := self.live:
            live.interim(event.response.status_code, event.response.headers.fields)
        if not (self.flow.request.is_http11 or self.flow.request.is_http2):
            return  # HTTP/1.0 knows no interim answers
        if self.client_state != self.state_errored:
            yield SendHttp(event, self.context.client)

    def _give_up(self, event: AnswerOverdue) -> CommandGenerator[None]:
        in_body = (self.state_consume_response_body, self.state_stream_response_body)
        if self.server_state not in (in_body if event.begun else (self.state_wait_for_response_headers,)):
            return
        closing = _events.RequestProtocolError(self.stream_id, event.why, _events.ErrorCode.CANCEL)
        yield SendHttp(closing, self.context.server)
        yield from self.handle_protocol_error(EnvironmentFault(self.stream_id, event.why, Outcome.TIMED_OUT))

    def make_server_connection(self) -> CommandGenerator[bool]:
        connected = yield from super().make_server_connection()
        if connected and (live := self.live):
            live.forwarding(self.context.server.id)
        return connected

    def state_wait_for_response_headers(self, event: _events.ResponseHeaders) -> CommandGenerator[None]:
        if live := self.live:
            live.head_came()
        yield from super().state_wait_for_response_headers(event)

    def state_consume_response_body(self, event: events.Event) -> CommandGenerator[None]:
        if live := self.live:
            live.heard_something()
            if isinstance(event, _events.ResponseEndOfMessage):
                live.answer_complete()
        yield from super().state_consume_response_body(event)
        if isinstance(event, _events.ResponseData) and len(self.response_body_buf) > BUFFER_LIMIT:
            live = self.live
            if live and self.flow.response and self.server_state == self.state_consume_response_body:
                yield from self._begin_to_stream(live, self.flow.response)

    def _begin_to_stream(self, live: Live, response: http.Response) -> CommandGenerator[None]:
        """The answer turned out longer than what may be held back."""
        so_far = bytes(self.response_body_buf)
        self.response_body_buf.clear()  # type: ignore[no-untyped-call]
        live.streamed = True
        response.stream = live.answer_tee
        yield from self.start_response_stream()
        yield from self.state_stream_response_body(_events.ResponseData(self.stream_id, so_far))

    def state_stream_response_body(self, event: events.Event) -> CommandGenerator[None]:
        if live := self.live:
            live.heard_something()
            if isinstance(event, _events.ResponseEndOfMessage):
                live.answer_complete()
        yield from super().state_stream_response_body(event)

    def flow_done(self) -> CommandGenerator[None]:
        yield from super().flow_done()
        live = self.live
        if live is None or self.flow.websocket:
            return
        live.handed_over()
        if live.local is not None:
            live.end(Outcome.LOCAL, error=live.local)
        elif self.flow.response and self.flow.response.status_code == 101:
            live.notes.append("upgrade-not-carried")
            live.end(Outcome.ANSWERED, error="the connection was switched to a protocol that is not carried")
        else:
            live.end(Outcome.ANSWERED)

    def check_killed(self, emit_error_hook: bool) -> CommandGenerator[bool]:
        waiting = tuple(self._paused_event_queue)
        killed = yield from super().check_killed(emit_error_hook)
        if killed and (live := self.live):
            for event in waiting:  # what the agent sent before it left, while we were busy with something else
                if isinstance(event, _events.RequestData):
                    live.request_block(event.data)
            if live.local is not None:
                live.handed_over()
                live.end(Outcome.LOCAL, error=live.local)
            self._agent_failed(live, next((e for e in waiting if isinstance(e, _events.RequestProtocolError)), None))
        return killed

    def check_invalid(self, request: bool) -> CommandGenerator[bool]:
        invalid = yield from _unquoted(super().check_invalid(request))
        if invalid and (live := self.live):
            why = unquoted(self.flow.error.msg) if self.flow.error else ""
            live.handed_over()
            live.end(Outcome.LOCAL if request else Outcome.INVALID, error=why)
        return invalid

    def handle_protocol_error(
        self, event: _events.RequestProtocolError | _events.ResponseProtocolError
    ) -> CommandGenerator[None]:
        if event.code is _events.ErrorCode.CONNECT_FAILED and (why := self._why_not_connected()):
            event = EnvironmentFault(self.stream_id, why, Outcome.TIMED_OUT)
        event.message = unquoted(event.message)
        live = self.live
        agent_there = self.client_state != self.state_errored
        if live and self.client_state == self.state_consume_request_body:
            live.request_block(bytes(self.request_body_buf))
        if self.server_state == self.state_consume_response_body:
            part = bytes(self.response_body_buf)
            self.response_body_buf.clear()  # type: ignore[no-untyped-call]
            if live:
                live.answer_block(part)
            if agent_there and self.flow.response and isinstance(event, _events.ResponseProtocolError):
                yield from self._send_part(self.flow.response, part)
        yield from super().handle_protocol_error(event)
        if live:
            self._failed(live, event)

    def _why_not_connected(self) -> str:
        return why_overdue(self.context.client, (self.flow.request.host, self.flow.request.port))

    def _send_part(self, response: http.Response, part: bytes) -> CommandGenerator[None]:
        """What the agent would have had without the proxy: the head and as much of the body as came."""
        head: _base.HttpEvent = _events.ResponseHeaders(self.stream_id, response, end_stream=False)
        yield SendHttp(head, self.context.client)
        if part:
            yield SendHttp(_events.ResponseData(self.stream_id, part), self.context.client)

    def _failed(self, live: Live, event: _events.RequestProtocolError | _events.ResponseProtocolError) -> None:
        if isinstance(event, _events.RequestProtocolError):
            self._agent_failed(live, event)
        elif event.code is _events.ErrorCode.CONNECT_FAILED:
            live.handed_over()
            live.end(Outcome.REFUSED, error=event.message)
        elif live.fwd is None and isinstance(event, EnvironmentFault):
            live.handed_over()
            live.end(event.outcome, error=event.message)
        else:
            live.answer_failed()
            live.handed_over()
            outcome = event.outcome if isinstance(event, EnvironmentFault) else Outcome.INVALID
            live.end(outcome if live.request_whole else Outcome.HALF_SENT, error=event.message, closed_by_agent=False)

    def _agent_failed(self, live: Live, event: _events.RequestProtocolError | None) -> None:
        """The agent left, or sent what cannot be passed on. None: an add-on ended the exchange."""
        if isinstance(event, RequestRefused):
            live.handed_over()
            live.end(Outcome.LOCAL, error=event.message)
            return
        outcome = Outcome.CLIENT_GONE if live.request_whole else Outcome.HALF_SENT
        by_agent = event is not None and event.code is _events.ErrorCode.CLIENT_DISCONNECTED
        error = unquoted(event.message) if event else "ended by an add-on"
        live.end(outcome, error=error, closed_by_agent=by_agent)


def _unquoted(said: Generator[commands.Command, Any, bool]) -> Generator[commands.Command, Any, bool]:
    """The same commands; the agent is told what is stored, so that a replay tells it the same."""
    reply = None
    while True:
        try:
            command = said.send(reply)
        except StopIteration as end:
            return bool(end.value)
        if isinstance(command, SendHttp) and isinstance(command.event, _events.ResponseProtocolError):
            command.event.message = unquoted(command.event.message)
        reply = yield command
