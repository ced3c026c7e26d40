"""One request on the wire and the answer to it: bytes out as recorded, bytes in as they come.

Nothing here knows redirects, cookies, retries or content codings: what a client library does on its own is what makes
a re-driven request another request. A message is written at most once; a connection that fails is never tried again.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import h11

from replayproxy.core.canonical import all_fields
from replayproxy.core.values import Fields, Outcome, Response
from replayproxy.drive.collect import Collector, Head
from replayproxy.drive.message import Message
from replayproxy.drive.origin import Origin

CONNECT_LIMIT = 10.0
READ = 64 * 1024
HEAD_LIMIT = 1024 * 1024
KEPT_FOR_NS = 1_000_000_000
"""How long an unused connection counts as good. Servers that say keep-alive close after two seconds at the earliest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one message. `left`: it was closed from our side. `reusable`: the environment said keep-alive and
    the answer ended where its framing says."""

    response: Response | None
    outcome: Outcome
    error: str = ""
    cut_at: int | None = None
    fwd: int
    first: int | None = None
    up_end: int
    left: bool = False
    reusable: bool = False


type Leave = Callable[[Collector], Awaitable[None]]
"""Returns when the answer is to be closed from our side; it is given what comes, to look at how much there is."""


class Gate:
    """Keeps the last byte of a message back: all else has been written when `ready` is set, and the last byte follows
    when `open` is."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.open = asyncio.Event()


class Connection:
    """An open connection. `since`: when it was last used."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.since = time.monotonic_ns()

    def good(self) -> bool:
        """Whether a request may be written to it: not closed by the other side, nothing unread, not idle for long."""
        idle = time.monotonic_ns() - self.since
        unread = bool(getattr(self.reader, "_buffer", b""))
        return idle < KEPT_FOR_NS and not (self.reader.at_eof() or unread or self.writer.is_closing())

    def close(self) -> None:
        self.writer.close()


async def connect(origin: Origin) -> Connection:
    """Raises OSError when there is no connection within `CONNECT_LIMIT` seconds; TLS failures are OSErrors too."""
    name = origin.host if origin.tls is not None else None
    try:
        async with asyncio.timeout(CONNECT_LIMIT):
            reader, writer = await asyncio.open_connection(
                origin.host, origin.port, ssl=origin.tls, server_hostname=name
            )
    except TimeoutError:
        raise OSError(f"no connection within {CONNECT_LIMIT:g} s") from None
    return Connection(reader, writer)


class Lines:
    """The connections of one repetition. A lane keeps its own to each environment."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, Origin], list[Connection]] = {}

    async def send(
        self, lane: str, origin: Origin, message: Message, *, limit: float, body: Collector | None = None,
        leave: Leave | None = None,
    ) -> Answer:  # fmt: skip
        """Sends once and reads what comes. Never raises for what the environment does.

        `limit`: seconds until the answer must be whole. `body`: what takes the answer's body, and may be looked at
        meanwhile. `leave`: when to close it from our side.
        """
        try:
            connection = self._kept(lane, origin) or await connect(origin)
        except OSError as refused:
            now = time.monotonic_ns()
            return Answer(response=None, outcome=Outcome.REFUSED, error=str(refused), fwd=now, up_end=now)
        reading = Reading(connection, message, body or Collector())
        answer = None
        try:
            answer = await reading.run(limit, leave)
        finally:
            if answer is not None and answer.reusable and message.keeps:
                connection.since = time.monotonic_ns()
                self._idle.setdefault((lane, origin), []).append(connection)
            else:
                connection.close()
        return answer

    def _kept(self, lane: str, origin: Origin) -> Connection | None:
        idle = self._idle.get((lane, origin), [])
        while idle:
            connection = idle.pop()
            if connection.good():
                return connection
            connection.close()
        return None

    def close(self) -> None:
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()


class Reading:
    """One message written and its answer read. With a `gate` the message is on its way when its last byte goes."""

    def __init__(self, connection: Connection, message: Message, body: Collector, gate: Gate | None = None) -> None:
        self._connection = connection
        self._message = message
        self._body = body
        self._gate = gate
        self._h11 = _reader_for(message)
        self._head: h11.Response | None = None
        self._informational: list[tuple[int, Fields]] = []
        self._trailers: Fields = ()
        self._fwd = time.monotonic_ns()
        self._first: int | None = None
        self._eof = False
        self._fault: Exception | None = None

    async def run(self, limit: float, leave: Leave | None) -> Answer:
        self._fwd = time.monotonic_ns()
        reading = asyncio.ensure_future(self._read())
        writing = asyncio.ensure_future(self._write(reading))
        waiting: list[asyncio.Future[Any]] = [reading]
        if leave is not None:
            waiting.append(asyncio.ensure_future(leave(self._body)))
        try:
            done, _ = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if self._fault is not None:
                raise self._fault
            if reading in done:
                return self._ended(reading.exception(), writing.done() and writing.result())
            if done:
                return self._answer(Outcome.CLIENT_GONE, left=True)
            return self._answer(Outcome.TIMED_OUT, error=f"no whole answer within {limit:g} s", left=True)
        finally:
            await _cancelled(writing, *waiting)

    async def _write(self, reading: asyncio.Future[None]) -> bool:
        """Whether all of it could be written. What the environment says when it will not read on is still its answer;
        a body that our store cannot give is our own trouble and ends the whole."""
        writer = self._connection.writer
        try:
            body = self._message.body()
            piece: bytes | None = self._message.head + next(body, b"")
            last = b""
            while piece is not None:
                if self._gate is not None and piece:
                    piece, last = last + piece[:-1], piece[-1:]
                writer.write(piece)
                await writer.drain()
                # Pieces of a large body come from the store; the loop must go on reading meanwhile.
                piece = await asyncio.to_thread(next, body, None) if self._message.apart else next(body, None)
            if self._gate is not None:
                writer.transport.set_write_buffer_limits(high=0)
                await writer.drain()  # now all but the last byte is with the system, not in a buffer of ours
                self._gate.ready.set()
                await self._gate.open.wait()
                self._fwd = time.monotonic_ns()
                writer.write(last)
                await writer.drain()
        except OSError:
            return False
        except Exception as fault:
            self._fault = fault
            reading.cancel()
            return False
        return True

    async def _read(self) -> None:
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                data = await self._connection.reader.read(READ)
                self._eof = not data
                self._h11.receive_data(data)
            elif isinstance(event, h11.InformationalResponse):
                self._informational.append((event.status_code, tuple(event.headers.raw_items())))
            elif isinstance(event, h11.Response):
                self._head, self._first = event, time.monotonic_ns()
                self._body.begin(Head(status=event.status_code, fields=tuple(event.headers.raw_items())))
            elif isinstance(event, h11.Data):
                self._body.write(bytes(event.data))
                if event.chunk_end:
                    self._body.chunk_ended(time.monotonic_ns())
            elif isinstance(event, h11.EndOfMessage):
                self._trailers = tuple(event.headers.raw_items())
                return
            else:  # ConnectionClosed before any answer, or h11.PAUSED
                raise EOFError("the connection was closed before an answer came")

    def _ended(self, error: BaseException | None, written: bool) -> Answer:
        if error is None:
            at_end = self._h11.their_state is h11.DONE and self._h11.trailing_data == (b"", False)
            keeps = written and at_end and _says_keep_alive(self._head)
            return self._answer(Outcome.ANSWERED, reusable=keeps)
        if isinstance(error, h11.RemoteProtocolError) and not self._eof:
            return self._answer(Outcome.INVALID, error=str(error))
        if isinstance(error, h11.RemoteProtocolError | EOFError | OSError):
            return self._answer(Outcome.CUT, error=str(error))
        raise error

    def _answer(self, outcome: Outcome, *, error: str = "", left: bool = False, reusable: bool = False) -> Answer:
        now = time.monotonic_ns()
        head = self._head
        response = None
        if head is not None:
            response = Response(
                status=head.status_code,
                reason=bytes(head.reason),
                version=b"HTTP/" + bytes(head.http_version),
                fields=tuple(head.headers.raw_items()),
                body=self._body.close(now),
                trailers=self._trailers,
                informational=tuple(self._informational),
            )
        cut = outcome in (Outcome.CUT, Outcome.TIMED_OUT, Outcome.INVALID)
        return Answer(
            response=response, outcome=outcome, error=error, cut_at=self._body.size if cut and response else None,
            fwd=self._fwd, first=self._first, up_end=now, left=left, reusable=reusable,
        )  # fmt: skip


def _reader_for(message: Message) -> h11.Connection:
    """h11 reads answers only. It is told of a request of the same kind, because HEAD decides how an answer ends; our
    own bytes never pass through it: it would refuse or tidy what was recorded."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
    method = b"HEAD" if message.head_only else b"GET"
    connection.send(h11.Request(method=method, target=b"/", headers=[(b"Host", b"-")]))
    connection.send(h11.EndOfMessage())
    return connection


def _says_keep_alive(head: h11.Response | None) -> bool:
    """Only a server that says so is trusted to keep the connection: one that silently closes after each answer may
    do so just as the next request is written, and a request is never written twice."""
    if head is None:
        return False
    fields: Fields = tuple(head.headers.raw_items())
    return b"keep-alive" in b",".join(all_fields(fields, b"connection")).lower()


async def _cancelled(*futures: asyncio.Future[Any]) -> None:
    for future in futures:
        future.cancel()
    for future in futures:
        try:
            await future
        except (asyncio.CancelledError, OSError, EOFError, h11.ProtocolError, ssl.SSLError):
            pass  # what a cancelled half of an exchange says no longer matters; the answer is already made
