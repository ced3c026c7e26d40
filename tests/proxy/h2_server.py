"""An HTTP/2 environment and an HTTP/2 agent on h2, that do what libraries would not."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events

from tests.session.tls_server import TlsFiles

type Pairs = Sequence[tuple[bytes, bytes]]


@dataclass
class Got:
    status: int | None = None
    fields: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    trailers: tuple[tuple[bytes, bytes], ...] = ()
    interim: list[tuple[int, tuple[tuple[bytes, bytes], ...]]] = field(default_factory=list)
    was_reset: bool = False


def _plain(headers: Any) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((bytes(name), bytes(value)) for name, value in headers if not name.startswith(b":"))


def _config(**more: Any) -> h2.config.H2Configuration:
    return h2.config.H2Configuration(header_encoding=False, normalize_inbound_headers=False, **more)


class H2Environment:
    """Answers with the path and the request's body. `/hints`: a 103 before and trailers behind; `/reset`: the stream is
    reset; `/gone`: the connection closed; `/half`: a part, then a reset; `/silence`: nothing."""

    def __init__(self, files: TlsFiles, protocols: tuple[str, ...] = ("h2", "http/1.1")) -> None:
        self._context = files.context(*protocols)
        self.seen: list[Pairs] = []
        self.url = ""
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> H2Environment:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2":
            await self._serve_h2(reader, writer)
            return
        # What a task leaves unhandled would count as a fault of the proxy, which runs in the same loop.
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                target = head.split(b" ")[1]
                lengths = [int(one[15:]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length:")]
                body = target + await reader.readexactly(sum(lengths))
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                )

    async def _serve_h2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h2.connection.H2Connection(_config(client_side=False))
        http.initiate_connection()
        writer.write(http.data_to_send())
        bodies: dict[int, bytearray] = {}
        heads: dict[int, dict[bytes, bytes]] = {}
        while data := await reader.read(65536):
            for event in http.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    pairs = [(bytes(n), bytes(v)) for n, v in event.headers]
                    self.seen.append(pairs)
                    heads[event.stream_id], bodies[event.stream_id] = dict(pairs), bytearray()
                elif isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] += event.data
                    http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    head = heads[event.stream_id]
                    if head[b":path"] == b"/gone":
                        writer.close()
                        return
                    self.answer(http, event.stream_id, head, bytes(bodies[event.stream_id]))
            writer.write(http.data_to_send())

    def answer(self, http: h2.connection.H2Connection, stream: int, head: Mapping[bytes, bytes], body: bytes) -> None:
        _answer(http, stream, head[b":path"], body)

    @staticmethod
    @asynccontextmanager
    async def agent(at: tuple[str, int], trust: ssl.SSLContext, *, careless: bool = False) -> AsyncIterator[H2Agent]:
        """`careless`: it sends heads that are none, too."""
        trust.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection(*at, ssl=trust, server_hostname=at[0])
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        yield H2Agent(reader, writer, b"%s:%d" % (at[0].encode(), at[1]), validate_outbound_headers=not careless)
        writer.transport.abort()


def _answer(http: h2.connection.H2Connection, stream: int, path: bytes, body: bytes) -> None:
    if path == b"/silence":
        return
    if path == b"/reset":
        http.reset_stream(stream, 2)
        return
    if path == b"/hints":
        http.send_headers(stream, [(b":status", b"103"), (b"link", b"</s.css>")])
    http.send_headers(stream, [(b":status", b"200"), (b"content-type", b"text/plain")])
    if path == b"/half":
        http.send_data(stream, b"part")
        http.reset_stream(stream, 2)
        return
    http.send_data(stream, path + body, end_stream=path != b"/hints")
    if path == b"/hints":
        http.send_headers(stream, [(b"x-sum", b"7")], end_stream=True)


class H2Agent:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: bytes, **more: Any
    ) -> None:
        self._reader, self._writer, self._authority = reader, writer, authority
        self._http = h2.connection.H2Connection(_config(**more))
        self._http.initiate_connection()

    async def ask(
        self, method: bytes, path: bytes, fields: Pairs = (), pieces: Sequence[bytes] = (), *, trailers: Pairs = ()
    ) -> Got:
        http, stream = self._http, self._http.get_next_available_stream_id()
        head = [(b":method", method), (b":scheme", b"https"), (b":authority", self._authority), (b":path", path)]
        http.send_headers(stream, [*head, *fields], end_stream=not pieces and not trailers)
        for number, piece in enumerate(pieces, 1):
            http.send_data(stream, piece, end_stream=number == len(pieces) and not trailers)
        if trailers:
            http.send_headers(stream, list(trailers), end_stream=True)
        self._writer.write(http.data_to_send())
        got = Got()
        async with asyncio.timeout(5):
            while data := await self._reader.read(65536):
                for event in http.receive_data(data):
                    if self._take(got, event):
                        return got
                self._writer.write(http.data_to_send())
        got.was_reset = True
        return got

    def _take(self, got: Got, event: h2.events.Event) -> bool:
        if isinstance(event, h2.events.InformationalResponseReceived):
            status = int(dict(event.headers)[b":status"])
            got.interim.append((status, _plain(event.headers)))
        elif isinstance(event, h2.events.ResponseReceived):
            got.status, got.fields = int(dict(event.headers)[b":status"]), _plain(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            got.body += event.data
            self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.TrailersReceived):
            got.trailers = _plain(event.headers)
        elif isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
            got.was_reset = True
            return True
        return isinstance(event, h2.events.StreamEnded)

    def begin(self, method: bytes, path: bytes, part: bytes | None) -> int:
        """Sends a request, whole without a `part`, and never whole with one. Gives its stream."""
        http, stream = self._http, self._http.get_next_available_stream_id()
        head = [(b":method", method), (b":scheme", b"https"), (b":authority", self._authority), (b":path", path)]
        http.send_headers(stream, head, end_stream=part is None)
        if part is not None:
            http.send_data(stream, part)
        self._writer.write(http.data_to_send())
        return stream

    async def part(self, stream: int, size: int) -> bytes:
        """The first bytes of an answer that goes on."""
        got = b""
        async with asyncio.timeout(5):
            while len(got) < size and (data := await self._reader.read(65536)):
                for event in self._http.receive_data(data):
                    if isinstance(event, h2.events.DataReceived) and event.stream_id == stream:
                        got += event.data
        return got[:size]

    def reset(self, stream: int) -> None:
        self._http.reset_stream(stream, 8)
        self._writer.write(self._http.data_to_send())

    def send(self, garbage: bytes) -> None:
        self._writer.write(self._http.data_to_send() + garbage)

    async def read_to_end(self, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while await self._reader.read(65536):
                pass
