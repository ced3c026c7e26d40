"""Heads that never end: mitmproxy would keep them in memory for as long as they come.

Two mixins for its HTTP/1 connections. A connection whose waiting bytes grow beyond `HEAD_LIMIT` without being a head, a
chunk's first line or trailers, or whose request's head takes longer than `HEAD_SECONDS`, is ended, and says why.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mitmproxy.connection import Client
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import _base, _events, _http1

from replayproxy.core import bounds
from replayproxy.core.values import Outcome
from replayproxy.proxy import backlog, problems

if TYPE_CHECKING:
    _Base = _http1.Http1Connection
else:
    _Base = object


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What an agent sent is no HTTP request at all."""

    client: Client
    why: str


@dataclass
class UnreadableRequestHook(commands.StartHook):  # type: ignore[no-untyped-call]
    """The agent has been told so. (A hook of ours, `unreadable_request`; mitmproxy wants one argument.)"""

    data: Unreadable
    blocking = False


class Bounded(_Base):
    """Looks at what is left waiting whenever bytes came."""

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.Wakeup):
            yield from self.woken()
            return
        yield from super()._handle_event(event)
        if self._waits(event):
            yield from self.incomplete(too_long=len(self.buf) > bounds.HEAD_LIMIT)

    def _waits(self, event: events.Event) -> bool:
        """Whether bytes came, and some are left that do not make a whole yet."""
        came = isinstance(event, events.DataReceived) and self.buf
        return bool(came) and self.state in (self.read_headers, self.read_body)

    @abstractmethod
    def incomplete(self, *, too_long: bool) -> CommandGenerator[None]:
        """Bytes wait for more of a head, or of the lines between chunks."""

    def woken(self) -> CommandGenerator[None]:
        yield from ()


class BoundedAgent(Bounded):
    """What an agent sends: a head that is too long or too slow is answered, and the connection closed."""

    _timed: Any = None  # the number of the request whose head is being waited for

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        # `Bounded`'s own, written out: one generator less for each event.
        if isinstance(event, events.Wakeup):
            yield from self.woken()
        else:
            yield from super(Bounded, self)._handle_event(event)
            if self._waits(event):
                yield from self.incomplete(too_long=len(self.buf) > bounds.HEAD_LIMIT)
        backlog.tell(self.context.client, len(self.buf) if self.state == self.wait else 0)

    def incomplete(self, *, too_long: bool) -> CommandGenerator[None]:
        if self.state == self.read_body:
            if too_long:
                message = f"a chunk's first line or the trailers are longer than {bounds.HEAD_LIMIT} bytes"
                code = _events.ErrorCode.GENERIC_CLIENT_ERROR
                yield commands.CloseConnection(self.conn)
                assert self.stream_id is not None
                yield _base.ReceiveHttp(_events.RequestProtocolError(self.stream_id, message, code))
        elif too_long:
            yield from self._refuse(431, f"the request's head is longer than {bounds.HEAD_LIMIT} bytes")
        elif self._timed != self.stream_id:
            self._timed = self.stream_id
            yield commands.RequestWakeup(bounds.HEAD_SECONDS)

    def woken(self) -> CommandGenerator[None]:
        if self.state == self.read_headers and self.buf and self._timed == self.stream_id:
            yield from self._refuse(408, f"the request's head took longer than {bounds.HEAD_SECONDS:g} s")

    def _refuse(self, status: int, why: str) -> CommandGenerator[None]:
        method = bytes(self.buf).partition(b" ")[0]
        yield commands.SendData(self.conn, problems.assembled(status, Outcome.LOCAL, why, method))
        yield commands.CloseConnection(self.conn)
        self.state = self.done
        yield UnreadableRequestHook(Unreadable(self.context.client, why))


class BoundedEnvironment(Bounded):
    """What an environment sends: a head or a chunk's line that is too long is an invalid answer."""

    def incomplete(self, *, too_long: bool) -> CommandGenerator[None]:
        if too_long and self.stream_id is not None:
            what = "a chunk's first line or the trailers" if self.state == self.read_body else "the answer's head"
            yield commands.CloseConnection(self.conn)
            message = f"{what} of the environment: longer than {bounds.HEAD_LIMIT} bytes"
            error = _events.ErrorCode.GENERIC_SERVER_ERROR
            self.state = self.done
            yield _base.ReceiveHttp(_events.ResponseProtocolError(self.stream_id, message, error))
