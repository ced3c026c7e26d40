"""The two ends of HTTP/2 and TLS, made of h2 alone: an agent and an environment that send what they are told.

Nothing is validated or put right on either side, so what arrives is what was sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions

if TYPE_CHECKING:
    from tests.cases.h2lab import Desk

type Pairs = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True)
class Ask:
    """A request. `ends` False: it is never whole."""

    path: bytes = b"/x"
    fields: Pairs = ()
    pieces: Sequence[bytes] = ()
    method: bytes = b"GET"
    trailers: Pairs = ()
    ends: bool = True


@dataclass(frozen=True)
class Say:
    """An answer. Of `pieces` a number is a pause in seconds. `then`: end, reset, gone (the connection), or stay."""

    pieces: Sequence[bytes | float] = (b"ok",)
    fields: Pairs = ()
    status: int = 200
    interims: Sequence[tuple[int, Pairs]] = ()
    trailers: Pairs = ()
    then: str = "end"


@dataclass
class Heard:
    """What one side heard of the other on a stream; `ended` is "", "whole", "reset" or "closed"."""

    head: Pairs = ()
    pieces: list[tuple[bytes, float]] = field(default_factory=list)
    trailers: Pairs = ()
    interims: list[Pairs] = field(default_factory=list)
    ended: str = ""

    @property
    def body(self) -> bytes:
        return b"".join(data for data, _ in self.pieces)

    @property
    def status(self) -> int:
        return int(dict(self.head).get(b":status", b"0"))

    def all(self, name: bytes) -> list[bytes]:
        return [value for one, value in self.head if one == name]

    @property
    def said(self) -> tuple[Any, ...]:
        """Everything but when it came, and in what pieces."""
        return self.interims, self.head, self.body, self.trailers, self.ended


def _pairs(headers: Any) -> Pairs:
    return tuple((bytes(name), bytes(value)) for name, value in headers)


class End:
    """One end of a connection. Reads by itself from `start` on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client: bool) -> None:
        self.reader, self.writer = reader, writer
        checks = {
            f"{what}_{way}_headers": False for what in ("validate", "normalize") for way in ("inbound", "outbound")
        }
        self.http = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=client, header_encoding=False, **checks)  # type: ignore[arg-type]
        )
        self.heard: dict[int, Heard] = {}
        self.changed = asyncio.Condition()
        self.http.initiate_connection()
        self.flush()

    def start(self) -> None:
        self.task = asyncio.create_task(self._read())

    def flush(self) -> None:
        self.writer.write(self.http.data_to_send())

    def on_whole(self, stream: int) -> None:
        """The other side has said all of this stream."""

    async def _read(self) -> None:
        with suppress(ConnectionError, h2.exceptions.ProtocolError):
            while data := await self.reader.read(65536):
                for event in self.http.receive_data(data):
                    self._take(event)
                self.flush()
                async with self.changed:
                    self.changed.notify_all()
        for one in self.heard.values():
            one.ended = one.ended or "closed"
        async with self.changed:
            self.changed.notify_all()

    def _take(self, event: Any) -> None:
        stream = getattr(event, "stream_id", 0)
        one = self.heard.setdefault(stream, Heard()) if stream else Heard()
        if isinstance(event, h2.events.InformationalResponseReceived):
            one.interims.append(_pairs(event.headers))
        elif isinstance(event, h2.events.ResponseReceived | h2.events.RequestReceived):
            one.head = _pairs(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            one.pieces.append((event.data, time.monotonic()))
            with suppress(h2.exceptions.StreamClosedError):
                self.http.acknowledge_received_data(event.flow_controlled_length, stream)
        elif isinstance(event, h2.events.TrailersReceived):
            one.trailers = _pairs(event.headers)
        elif isinstance(event, h2.events.StreamReset):
            one.ended = one.ended or "reset"
        elif isinstance(event, h2.events.StreamEnded):
            one.ended = "whole"
            self.on_whole(stream)

    async def until(self, condition: Callable[[], Any], within: float = 5.0) -> None:
        async with asyncio.timeout(within), self.changed:
            await self.changed.wait_for(condition)

    async def send_body(self, stream: int, data: bytes, *, end: bool) -> None:
        """As much at a time as the other side lets us."""
        at = 0
        while True:
            window = min(self.http.local_flow_control_window(stream), self.http.max_outbound_frame_size)
            part = data[at : at + window]
            at += len(part)
            last = at >= len(data)
            if part or (last and end):
                self.http.send_data(stream, part, end_stream=last and end)
                self.flush()
                await self.writer.drain()
            if last:
                return
            if not part:
                await self.until(lambda: self.http.local_flow_control_window(stream) > 0)

    def close(self) -> None:
        self.writer.transport.abort()
        self.task.cancel()


class Agent(End):
    """`authority`: what it names as the host."""

    authority = b""

    async def send(self, one: Ask) -> int:
        """Gives its stream."""
        stream = self.http.get_next_available_stream_id()
        heard = self.heard[stream] = Heard()
        head = ((b":method", one.method), (b":scheme", b"https"), (b":authority", self.authority), (b":path", one.path))
        bare = not one.pieces and not one.trailers
        self.http.send_headers(stream, [*head, *one.fields], end_stream=bare and one.ends)
        self.flush()
        for number, piece in enumerate(one.pieces, 1):
            if heard.ended:
                return stream
            last = number == len(one.pieces) and not one.trailers and one.ends
            await self.send_body(stream, piece, end=last)
        if one.trailers:
            self.http.send_headers(stream, list(one.trailers), end_stream=True)
            self.flush()
        return stream

    async def ask(self, one: Ask, within: float = 10.0) -> Heard:
        heard = self.heard[await self.send(one)]
        await self.until(lambda: heard.ended, within)
        return heard

    def reset(self, stream: int) -> None:
        self.http.reset_stream(stream, 8)
        self.flush()


type Handler = Callable[[Heard], Say]


class Site:
    """An environment. `asked`: what reached it, as pairs whatever it speaks; `raw`: HTTP/1.1 as it came."""

    def __init__(self, desk: Desk, way: str, handler: Handler, host: str = "127.0.0.1") -> None:
        self.desk, self.handler, self.host = desk, handler, host
        self.protocol, _, tunnel = way.partition(" ")
        self.forward = bool(tunnel)
        self.asked: list[Heard] = []
        self.raw: list[bytes] = []
        self.url = ""
        self.over = asyncio.Event()
        self.ends: list[SiteEnd] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Site:
        context = self.desk.files.context("h2") if self.protocol == "h2" else None
        self._server = await asyncio.start_server(self._serve, self.host, 0, ssl=context, limit=2**24)
        shown = f"[{self.host}]" if ":" in self.host else self.host
        self.url = f"http{'s' if context else ''}://{shown}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.over.set()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()

    @property
    def authority(self) -> bytes:
        return self.url.partition("://")[2].encode()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if self.protocol == "h2":
            end = SiteEnd(reader, writer, client=False)
            end.site = self
            self.ends.append(end)
            end.start()
            await asyncio.wait([end.task])
            return
        with suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
            while True:  # a ValueError is a chunk that never came
                await self._answer_h1(await self._read_h1(reader), writer)

    def spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_h1(self, reader: asyncio.StreamReader) -> Heard:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        method, path, _ = first.split(b" ", 2)
        fields = tuple((name, value) for name, _, value in (line.partition(b": ") for line in lines))
        named = {name.lower(): value for name, value in fields}
        heard, body = Heard(), b""
        if b"transfer-encoding" in named:
            while size := int((await reader.readline()).split(b";")[0], 16):
                body += (await reader.readexactly(size + 2))[:-2]
            while (line := await reader.readline()) != b"\r\n":
                heard.trailers += ((line.partition(b": ")[0], line.partition(b": ")[2][:-2]),)
        else:
            body = await reader.readexactly(int(named.get(b"content-length", b"0")))
        heard.head = ((b":method", method), (b":path", path), *fields)
        heard.pieces, heard.ended = [(body, time.monotonic())], "whole"
        self.raw.append(head + body)
        return heard

    async def _answer_h1(self, heard: Heard, writer: asyncio.StreamWriter) -> None:
        self.asked.append(heard)
        one = self.handler(heard)
        if one.then == "silence":
            await self.over.wait()
            return
        for status, fields in one.interims:
            writer.write(b"HTTP/1.1 %d \r\n%s\r\n" % (status, _lines(fields)))
        if one.then == "reset" and not one.pieces:
            writer.transport.abort()
            return
        names = {name.lower() for name, _ in one.fields}
        bodyless = dict(heard.head)[b":method"] == b"HEAD" or one.status in (204, 304)
        chunked = b"content-length" not in names and not bodyless
        framing = b"Transfer-Encoding: chunked\r\n" if chunked else b""
        writer.write(b"HTTP/1.1 %d Fine\r\n%s%s\r\n" % (one.status, _lines(one.fields), framing))
        for piece in one.pieces if not bodyless else ():
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            elif piece:
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
                await writer.drain()
        if one.then in ("reset", "gone"):
            await asyncio.sleep(0.05)
            writer.transport.abort()
        elif one.then == "stay":
            await self.over.wait()
        elif chunked:
            writer.write(b"0\r\n%s\r\n" % _lines(one.trailers))


def _lines(fields: Pairs) -> bytes:
    return b"".join(name + b": " + value + b"\r\n" for name, value in fields)


class SiteEnd(End):
    site: Site

    def on_whole(self, stream: int) -> None:
        heard = self.heard[stream]
        self.site.asked.append(heard)
        self.site.spawn(self._answer(stream, self.site.handler(heard), dict(heard.head)[b":method"]))

    async def _answer(self, stream: int, one: Say, method: bytes) -> None:
        if one.then == "silence":
            return
        with suppress(h2.exceptions.ProtocolError, ConnectionError, TimeoutError):
            for status, fields in one.interims:
                self.http.send_headers(stream, [(b":status", b"%d" % status), *fields])
            if one.then != "reset" or one.pieces:
                bare = method == b"HEAD" or one.status in (204, 304)
                bare = bare or (not one.pieces and not one.trailers and one.then == "end")
                self.http.send_headers(stream, [(b":status", b"%d" % one.status), *one.fields], end_stream=bare)
                self.flush()
                if bare:
                    return
                for piece in one.pieces:
                    if isinstance(piece, float):
                        await asyncio.sleep(piece)
                    else:
                        await self.send_body(stream, piece, end=False)
            if one.then == "reset":
                self.http.reset_stream(stream, 2)
            elif one.then == "gone":
                self.writer.transport.abort()
                return
            elif one.trailers:
                self.http.send_headers(stream, list(one.trailers), end_stream=True)
            elif one.then == "end":
                self.http.end_stream(stream)
            self.flush()
