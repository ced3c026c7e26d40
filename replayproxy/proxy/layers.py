"""Our subclasses of mitmproxy's HTTP/1 layers: what stock mitmproxy loses on the way, they keep.

| stock mitmproxy 12.3 | here |
|---|---|
| a 1xx answer is taken for the answer; the real one goes to the next request | passed on and kept aside |
| trailers raise, and the agent hangs | passed on and kept |
| a chunked 304 is followed by a stray last chunk | nothing follows it |
| a buffered answer that is cut becomes an invented 502 | the agent gets the head and the part, then the close |
| a connection that ends before any answer becomes a 502 | the agent's connection is closed |
| a WebSocket that ends without a close frame reaches the other side as a clean Close 1000 | it ends without one |
| a head that never ends is kept in memory | it is refused, see `bounds` |
| HTML error pages | problem documents that are marked as ours |

`proxy.install` puts them in place, for the whole process. A stream without a recording (`Live`) behaves the same.
"""

from __future__ import annotations

import re
from typing import Any

from mitmproxy import http
from mitmproxy.connection import ConnectionState
from mitmproxy.net.http import http1
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers import websocket as websocket_layers
from mitmproxy.proxy.layers.http import _base, _events, _http1

from replayproxy.core.values import Outcome
from replayproxy.proxy import problems
from replayproxy.proxy.bounds import BoundedAgent, BoundedEnvironment, Unreadable, UnreadableRequestHook

_INFORMATIONAL = re.compile(rb"HTTP/1\.\d 1(?!01)\d\d")


class ResponseInformational(_base.HttpEvent):
    """A 1xx answer other than 101: it precedes the answer and never is it."""

    def __init__(self, stream_id: int, response: http.Response) -> None:
        self.stream_id = stream_id
        self.response = response


class EnvironmentFault(_events.ResponseProtocolError):
    """A protocol error that knows how the exchange ended. Any other one of the environment's is INVALID."""

    def __init__(self, stream_id: int, message: str, outcome: Outcome) -> None:
        super().__init__(stream_id, message, _events.ErrorCode.GENERIC_SERVER_ERROR)
        self.outcome = outcome


class RequestRefused(_events.RequestProtocolError):
    """The head of a request is such that it cannot be passed on; 400 has been answered."""


def _last_chunk(trailers: http.Headers | None) -> bytes:
    return b"0\r\n%s\r\n" % (bytes(trailers) if trailers else b"")


def _head_of(response: http.Response) -> bytes:
    return bytes(http1.assemble_response_head(response))  # type: ignore[no-untyped-call]


def _is_chunked(message: http.Message) -> bool:
    return "chunked" in message.headers.get("transfer-encoding", "").lower()


class AgentHttp1(BoundedAgent, _http1.Http1Server):
    """The agent's side."""

    _trailers: http.Headers | None = None

    def send(self, event: _base.HttpEvent) -> CommandGenerator[None]:
        if isinstance(event, ResponseInformational):
            yield commands.SendData(self.conn, _head_of(event.response))
        elif isinstance(event, _events.ResponseHeaders) and event.response.status_code == 100:
            # Stock takes it for the answer, and then suppresses the document that says why there is none.
            yield commands.SendData(self.conn, _head_of(event.response))
        elif isinstance(event, _events.ResponseTrailers):
            self._trailers = event.trailers
        elif isinstance(event, _events.ResponseEndOfMessage) and self._trailers and self._may_end_chunked():
            yield commands.SendData(self.conn, _last_chunk(self._trailers))
            self._trailers = None
            yield from self.mark_done(response=True)
        elif isinstance(event, _events.ResponseEndOfMessage) and self.response and self.response.status_code == 304:
            # It has no body whatever its fields say; stock would send the last chunk of one, into the next answer.
            yield from self.mark_done(response=True)
        elif isinstance(event, EnvironmentFault) and self.conn.connected and not self.response:
            # A cut is passed on as one: without the proxy the agent would have got no answer either.
            if event.outcome is not Outcome.CUT:
                status = 504 if event.outcome is Outcome.TIMED_OUT else 502
                yield commands.SendData(
                    self.conn, problems.assembled(status, event.outcome, event.message, self._method())
                )
            yield commands.CloseConnection(self.conn)
        elif isinstance(event, _events.ResponseProtocolError) and self.conn.connected and not self.response:
            code = event.code.http_status_code()
            if code is not None:
                outcome = OUTCOMES.get(event.code, Outcome.LOCAL)
                yield commands.SendData(self.conn, problems.assembled(code, outcome, event.message, self._method()))
            yield commands.CloseConnection(self.conn)
        else:
            self._trailers = None
            yield from super().send(event)

    def _method(self) -> bytes:
        return self.request.data.method if self.request else b""

    def _may_end_chunked(self) -> bool:
        assert self.request is not None
        assert self.response is not None
        return self.request.method.upper() != "HEAD" and _is_chunked(self.response)

    def read_headers(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        for command in super().read_headers(event):
            # The body's errors come through here too when head and body arrive together.
            in_head = self.state == self.read_headers
            if (
                in_head
                and isinstance(command, _base.ReceiveHttp)
                and isinstance(command.event, _events.RequestProtocolError)
            ):
                refused = RequestRefused(self.stream_id, command.event.message, command.event.code)
                command = _base.ReceiveHttp(refused)
            yield command
        cut_off = isinstance(event, events.ConnectionClosed) and bool(self.buf)
        if (self.state == self.done and self.request is None and isinstance(event, events.DataReceived)) or cut_off:
            yield UnreadableRequestHook(Unreadable(self.context.client, "no HTTP request"))

    def read_body(self, event: events.Event) -> CommandGenerator[None]:
        for command in super().read_body(event):
            if _is(command, _events.RequestEndOfMessage) and (trailers := _trailers_of(self)):
                yield _base.ReceiveHttp(_events.RequestTrailers(self.stream_id, trailers))
            elif self._is_refusal(command, event):
                message = "the body of this request cannot be read"
                yield commands.SendData(self.conn, problems.assembled(400, Outcome.HALF_SENT, message, self._method()))
            elif _is(command, _events.RequestProtocolError) and isinstance(event, events.ConnectionClosed):
                message = "the agent closed the connection in the middle of its request"
                code = _events.ErrorCode.CLIENT_DISCONNECTED
                command = _base.ReceiveHttp(_events.RequestProtocolError(self.stream_id, message, code))
            yield command

    def _is_refusal(self, command: commands.Command, event: events.Event) -> bool:
        """Whether the connection is given up because of what the agent just sent, and it has had no answer yet."""
        return (
            isinstance(command, commands.CloseConnection)
            and isinstance(event, events.DataReceived)
            and self.response is None
            and self.state == self.read_body
        )


OUTCOMES = {
    _events.ErrorCode.CONNECT_FAILED: Outcome.REFUSED,
    _events.ErrorCode.GENERIC_SERVER_ERROR: Outcome.INVALID,
    _events.ErrorCode.RESPONSE_VALIDATION_FAILED: Outcome.INVALID,
}


class EnvironmentHttp1(BoundedEnvironment, _http1.Http1Client):
    """The environment's side."""

    _trailers: http.Headers | None = None

    def send(self, event: _base.HttpEvent) -> CommandGenerator[None]:
        if isinstance(event, _events.RequestHeaders) and event.request.is_http2:
            event = _framed(event)
        if isinstance(event, _events.RequestTrailers):
            self._trailers = event.trailers
        elif isinstance(event, _events.RequestEndOfMessage) and self._trailers:
            assert self.request is not None
            if _is_chunked(self.request):
                yield commands.SendData(self.conn, _last_chunk(self._trailers))
            self._trailers = None
            yield from self.mark_done(request=True)
        else:
            self._trailers = None
            yield from super().send(event)

    def read_headers(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        if isinstance(event, events.ConnectionClosed) and self.stream_id is not None:
            where = "in the middle of the answer's head" if self.buf else "before any answer"
            if self.conn.state & ConnectionState.CAN_WRITE:
                yield commands.CloseConnection(self.conn)
            fault = EnvironmentFault(self.stream_id, f"the environment closed the connection {where}", Outcome.CUT)
            yield _base.ReceiveHttp(fault)
            return
        while self.request and self.stream_id is not None and _INFORMATIONAL.match(bytes(self.buf)):
            head = self.buf.maybe_extract_lines()
            if not head:
                return
            try:
                response = http1.read_response_head([bytes(line) for line in head])
            except ValueError as error:
                yield commands.CloseConnection(self.conn)
                message = f"Cannot parse HTTP response: {error}"
                yield _base.ReceiveHttp(EnvironmentFault(self.stream_id, message, Outcome.INVALID))
                return
            yield _base.ReceiveHttp(ResponseInformational(self.stream_id, response))
        yield from super().read_headers(event)

    def read_body(self, event: events.Event) -> CommandGenerator[None]:
        for command in super().read_body(event):
            assert self.stream_id is not None or not isinstance(command, _base.ReceiveHttp)
            if _is(command, _events.ResponseEndOfMessage) and (trailers := _trailers_of(self)):
                assert self.stream_id is not None
                yield _base.ReceiveHttp(_events.ResponseTrailers(self.stream_id, trailers))
            elif _is(command, _events.ResponseProtocolError) and isinstance(event, events.ConnectionClosed):
                assert self.stream_id is not None
                message = "the environment closed the connection in the middle of the answer's body"
                command = _base.ReceiveHttp(EnvironmentFault(self.stream_id, message, Outcome.CUT))
            yield command


def _framed(event: _events.RequestHeaders) -> _events.RequestHeaders:
    """HTTP/2 ends a body without saying so in its head. In HTTP/1 one of unknown length must be chunked; stock sends
    it without any framing."""
    request = event.request
    if event.end_stream or "content-length" in request.headers or _is_chunked(request):
        return event
    request = request.copy()
    request.headers["transfer-encoding"] = "chunked"
    return _events.RequestHeaders(event.stream_id, request, event.end_stream)


def _is(command: commands.Command, kind: type[_base.HttpEvent]) -> bool:
    return isinstance(command, _base.ReceiveHttp) and isinstance(command.event, kind)


def _trailers_of(connection: _http1.Http1Connection) -> http.Headers | None:
    trailers = getattr(connection.body_reader, "trailers", ())
    return http.Headers(trailers) if trailers else None


class AgentWebSocket(websocket_layers.WebsocketConnection):
    """Either side of a WebSocket: an end without a close frame stays one (1006), instead of a clean Close 1000."""

    def send2(self, event: Any) -> commands.SendData:
        if getattr(event, "code", None) == 1006:
            return commands.SendData(self.conn, b"")
        return super().send2(event)
