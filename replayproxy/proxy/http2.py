"""Our subclasses of mitmproxy's HTTP/2 layers: what stock mitmproxy loses on the way, they keep.

| stock mitmproxy 12.3 | here |
|---|---|
| 1xx answers are swallowed | passed on and kept aside |
| HTML error pages | problem documents that are marked as ours |
| an environment that resets the stream before its answer: an invented 502 | the agent's stream is reset |
| header names of HTTP/1 trailers go out in upper case, which ends the connection | in lower case |
| a target or a method with spaces, and a length without a body, go on to HTTP/1 as they are | they are refused, 400 |
| an empty DATA frame ends the body as HTTP/1's last chunk; what follows is taken for the next request | it is nothing |
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import h2.errors
import h2.events
from mitmproxy import http
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import _base, _events, _http2

from replayproxy.core.values import Fields, Outcome
from replayproxy.proxy import problems
from replayproxy.proxy.bounds import Unreadable, UnreadableRequestHook
from replayproxy.proxy.layers import OUTCOMES, EnvironmentFault, ResponseInformational
from replayproxy.proxy.unquoted import unquoted

_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"proxy-connection"})
_PROTOCOL_ERROR = h2.errors.ErrorCodes.PROTOCOL_ERROR.value
_LEFT = ("stream reset by client", "peer closed connection", "HTTP/2 connection closed")
"""How mitmproxy's messages begin where it was the peer that ended it."""


def _lowered(fields: Fields) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in fields if name.lower() not in _HOP_BY_HOP]


def _without_empty_data(given: CommandGenerator[bool]) -> CommandGenerator[bool]:
    """Leaves out the data of empty DATA frames."""
    answer: Any = None
    while True:
        try:
            command = given.send(answer)
        except StopIteration as end:
            return bool(end.value)
        answer = None
        event = command.event if isinstance(command, _base.ReceiveHttp) else None
        if not isinstance(event, _events.RequestData | _events.ResponseData) or event.data:
            answer = yield command


class AgentHttp2(_http2.Http2Server):
    """The agent's side."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._refused: set[int] = set()
        self._of_head: set[int] = set()

    def handle_h2_event(self, event: h2.events.Event) -> CommandGenerator[bool]:
        if isinstance(event, h2.events.RequestReceived) and dict(event.headers).get(b":method") == b"HEAD":
            self._of_head.add(event.stream_id)
        if isinstance(event, h2.events.RequestReceived) and (why := _unfit(event)):
            yield from self._refuse(event.stream_id, why)
            return False
        refused = getattr(event, "stream_id", None) in self._refused
        if isinstance(event, h2.events.StreamReset):
            self._of_head.discard(event.stream_id)
        if isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
            self._refused.discard(event.stream_id)
        if refused:
            if isinstance(event, h2.events.DataReceived):
                self.h2_conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            return False
        return (yield from _without_empty_data(super().handle_h2_event(event)))

    def _refuse(self, stream_id: int, why: str) -> CommandGenerator[None]:
        """Answers at once. What else comes on this stream is looked through."""
        self._refused.add(stream_id)
        fields, body = problems.problem(HTTPStatus.BAD_REQUEST, Outcome.LOCAL, why)
        self._send_own(stream_id, HTTPStatus.BAD_REQUEST, fields, body)
        yield commands.SendData(self.conn, self.h2_conn.data_to_send())
        yield UnreadableRequestHook(Unreadable(self.context.client, why))

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, ResponseInformational):
            response = event.response
            self._send_head(event.stream_id, response.status_code, response.headers.fields)
            yield commands.SendData(self.conn, self.h2_conn.data_to_send())
        elif isinstance(event, _events.ResponseTrailers):
            trailers = http.Headers(_lowered(event.trailers.fields))
            yield from super()._handle_event(_events.ResponseTrailers(event.stream_id, trailers))
        elif isinstance(event, _events.ResponseProtocolError) and self._answers(event):
            yield commands.SendData(self.conn, self.h2_conn.data_to_send())
        else:
            for command in super()._handle_event(event):
                if isinstance(command, _base.ReceiveHttp) and isinstance(command.event, _events.RequestProtocolError):
                    command = _base.ReceiveHttp(_left(command.event))
                yield command
        if isinstance(event, _base.HttpEvent) and not self.is_open_for_us(event.stream_id):
            self._of_head.discard(event.stream_id)

    def protocol_error(self, message: str, error_code: int = _PROTOCOL_ERROR) -> CommandGenerator[None]:
        if not self.streams:  # where there are some, each of them tells of its end
            yield UnreadableRequestHook(Unreadable(self.context.client, unquoted(message)))
        yield from super().protocol_error(message, error_code)

    def _send_head(self, stream_id: int, status: int, fields: Fields) -> None:
        if self.is_open_for_us(stream_id):
            self.h2_conn.send_headers(stream_id, [(b":status", b"%d" % status), *_lowered(fields)])

    def _answers(self, event: _events.ResponseProtocolError) -> bool:
        """Puts our own answer, or the reset that the environment gave, where no answer has begun."""
        stream_id, status = event.stream_id, event.code.http_status_code()
        if not self.is_open_for_us(stream_id) or self.h2_conn.streams[stream_id].state_machine.headers_sent:
            return False
        outcome = event.outcome if isinstance(event, EnvironmentFault) else OUTCOMES.get(event.code, Outcome.LOCAL)
        if outcome is Outcome.CUT:
            self.h2_conn.reset_stream(stream_id, h2.errors.ErrorCodes.INTERNAL_ERROR.value)
            return True
        if status is None:
            return False
        status = HTTPStatus.GATEWAY_TIMEOUT if outcome is Outcome.TIMED_OUT else status
        fields, body = problems.problem(status, outcome, event.message)
        self._send_own(stream_id, status, fields, body)
        return True

    def _send_own(self, stream_id: int, status: int, fields: Fields, body: bytes) -> None:
        self._send_head(stream_id, status, fields)
        self.h2_conn.send_data(stream_id, b"" if stream_id in self._of_head else body, end_stream=True)
        self._of_head.discard(stream_id)


def _unfit(event: h2.events.RequestReceived) -> str:
    """Why a head that h2 takes would be another request in HTTP/1, or "". There a space ends the method and the target,
    and a length announces bytes that never come."""
    head = {bytes(name): bytes(value) for name, value in event.headers}
    method, path = head.get(b":method", b""), head.get(b":path", b"")
    if not method or min(method) <= 0x20:
        return "the method of this request is none"
    if method != b"CONNECT" and (path[:1] not in (b"/", b"*") or min(path) <= 0x20):
        return "the target of this request is none"
    if event.stream_ended and head.get(b"content-length", b"").strip(b"0"):
        return "a length is told, and the request ends without a body"
    return ""


def _left(event: _events.RequestProtocolError) -> _events.RequestProtocolError:
    """The same, where it was the agent that left."""
    if not event.message.startswith(_LEFT):
        return event
    return _events.RequestProtocolError(event.stream_id, "the agent left", _events.ErrorCode.CLIENT_DISCONNECTED)


class EnvironmentHttp2(_http2.Http2Client):
    """The environment's side."""

    def _handle_event2(self, event: events.Event) -> CommandGenerator[None]:
        for command in super()._handle_event2(event):
            if isinstance(command, _base.ReceiveHttp) and isinstance(command.event, _events.ResponseProtocolError):
                command = _base.ReceiveHttp(_fault(command.event))
            yield command

    def handle_h2_event(self, event: h2.events.Event) -> CommandGenerator[bool]:
        if isinstance(event, h2.events.InformationalResponseReceived):
            status, headers = _http2.parse_h2_response_headers(event.headers)
            reason = HTTPStatus(status).phrase.encode() if status in HTTPStatus else b""
            response = http.Response(b"HTTP/1.1", status, reason, headers, None, None, 0, None)
            yield _base.ReceiveHttp(ResponseInformational(event.stream_id, response))
            return False
        return (yield from _without_empty_data(super().handle_h2_event(event)))


def _fault(event: _events.ResponseProtocolError) -> _events.ResponseProtocolError:
    """A stream that the environment ended is cut; anything else is no HTTP/2 that can be carried."""
    if event.code is _events.ErrorCode.HTTP_1_1_REQUIRED:
        return event  # the agent is to be told just that
    if event.message.startswith(_LEFT):
        what = event.message.replace("by client", "by the environment").replace("peer", "the environment")
        return EnvironmentFault(event.stream_id, what, Outcome.CUT)
    return EnvironmentFault(event.stream_id, event.message, Outcome.INVALID)
