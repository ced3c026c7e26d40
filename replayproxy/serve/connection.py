"""An agent's connection: aiohttp's, with a second reader for the heads that aiohttp's own refuses.

aiohttp reads with llhttp, which is fast and knows a closed list of methods and no byte above 0x7f in a target. The
recorder lets more pass, and what was recorded must be answered. So a head that llhttp refuses is read again, by the
recorder's rules; the connection then stays with that reader. Most connections never meet it.

Rules of this file: what is not refused for its framing is read; nothing here is passed on to anybody, so that a lenient
reading can smuggle nothing. A head that is too long or too slow ends its connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError, LineTooLong
from aiohttp.http_parser import HttpRequestParserPy, RawRequestMessage
from aiohttp.http_writer import HttpVersion
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import RequestHandler
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from replayproxy.core import bounds
from replayproxy.core.shown import json_bytes

_VERSION = re.compile(rb"HTTP/(\d)\.(\d)")
_LENGTH = re.compile(rb"[0-9]{1,19}")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BEGINS = re.compile(rb"[\r\n]*[!-~]")
_LONGEST = 2**63
_NOWHERE = URL("/")

type Express = Callable[[RawRequestMessage], bytes | None]
"""The bytes of an answer, or None where it takes a handler. Where it raises, it takes one, too: nothing was claimed."""


class HeadTooLong(BadHttpMessage):
    """All of it together; aiohttp counts each line for itself."""


class _Lenient(HttpRequestParserPy):
    """Reads heads as the recorder does: any method, any bytes in a target, folded lines, line feeds alone."""

    lax = True

    def feed_data(self, data: bytes, *_: Any, **__: Any) -> Any:
        read = super().feed_data(data, SEP=b"\n")  # aiohttp's own lax mode, for answers
        if getattr(self._payload_parser, "_chunk_size", 0) >= _LONGEST:
            raise BadHttpMessage("a chunk is longer than any body")
        return read

    def parse_message(self, lines: list[bytes]) -> RawRequestMessage:
        method, target, version = _request_line(lines[0])
        fields = _fields(lines[1:])
        named: dict[bytes, list[bytes]] = {}
        for name, value in fields:
            named.setdefault(name.lower(), []).append(value)
        chunked = _is_chunked(named)
        tokens = [token.strip().lower() for value in named.get(b"connection", ()) for token in value.split(b",")]
        closes = b"close" in tokens or (version < (1, 1) and b"keep-alive" not in tokens)
        headers = CIMultiDict((_text(name), _text(value)) for name, value in fields)
        return RawRequestMessage(
            _text(method), _text(target), HttpVersion(*version), CIMultiDictProxy(headers), tuple(fields),
            closes, None, False, chunked, _NOWHERE,
        )  # fmt: skip


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _request_line(line: bytes) -> tuple[bytes, bytes, tuple[int, int]]:
    parts = line.split()
    found = _VERSION.fullmatch(parts[2]) if len(parts) == 3 else None
    if found is None:
        raise BadHttpMessage(f"no request line: {line[:100]!r}")
    return parts[0], parts[1], (int(found[1]), int(found[2]))


def _fields(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    fields: list[tuple[bytes, bytes]] = []
    for line in lines:
        if not line:
            break
        name, colon, value = line.partition(b":")
        if line[:1] in (b" ", b"\t") and fields:
            fields[-1] = (fields[-1][0], fields[-1][1] + b"\r\n " + line.strip())
        elif not colon or not _TOKEN.fullmatch(name):
            raise BadHttpMessage(f"no header line: {line[:100]!r}")
        else:
            fields.append((name, value.strip()))
    return fields


def _is_chunked(named: dict[bytes, list[bytes]]) -> bool:
    """Refuses what leaves open where the body ends."""
    lengths, codings = named.get(b"content-length", []), named.get(b"transfer-encoding", [])
    if lengths and codings:
        raise BadHttpMessage("both Content-Length and Transfer-Encoding")
    if len(lengths) > 1 or not all(_LENGTH.fullmatch(length) and int(length) < _LONGEST for length in lengths):
        raise BadHttpMessage("the Content-Length is none")
    if len(codings) > 1 or not all(c.lower().rpartition(b",")[2].strip() == b"chunked" for c in codings):
        raise BadHttpMessage("the Transfer-Encoding does not end with chunked")
    return bool(codings)


class _Reader:
    """aiohttp's parser, and `_Lenient` from the first head on that it refuses (None: then nothing is read again).
    `late(True)`: a head has begun and not ended. `at_once`: whether a request without a body has been answered."""

    def __init__(
        self, fast: Any, lenient: Callable[[], _Lenient] | None, late: Callable[[bool], None],
        at_once: Callable[[RawRequestMessage], bool],
    ) -> None:  # fmt: skip
        self._parser, self._make, self._late, self._at_once = fast, lenient, late, at_once
        self._fast = True
        self._head = b""  # of the message that has begun
        self._body: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> Any:
        in_body = self._body is not None and not self._body.is_eof()
        try:
            read = self._parser.feed_data(data)
        except HttpProcessingError:
            if not self._fast or in_body or self._make is None or not _BEGINS.match(self._head + data):
                raise
            self._fast, self._parser = False, self._make()
            data, self._head = self._head + data, b""
            read = self._parser.feed_data(data)
        messages = read[0]
        if messages:
            self._body = messages[-1][1]
            self._ended(data, upgraded=read[1])
            if len(messages) == 1 and self._body is EMPTY_PAYLOAD and not read[1] and self._at_once(messages[0][0]):
                self._parser.message_consumed()  # it stops at 32 that nobody took
                return (), False, b""
        elif data and not in_body:
            self._begun(data)
        return read

    def _ended(self, data: bytes, *, upgraded: bool) -> None:
        """A message's head has ended. Behind one without a body the next may have begun, in the same bytes."""
        came, rest = self._head + data, b""
        if self._body is EMPTY_PAYLOAD and not upgraded and not came.endswith(b"\r\n\r\n"):
            ends = [at + len(blank) for blank in (b"\n\r\n", b"\n\n") if (at := came.rfind(blank)) >= 0]
            if not ends:
                return  # the message came earlier, and was held back
            rest = came[max(ends) :].lstrip(b"\r\n")
        if self._head:
            self._late(False)
        self._head = rest
        if rest:
            self._late(True)

    def _begun(self, data: bytes) -> None:
        if not self._head:
            self._late(True)
        self._head += data
        if len(self._head) > bounds.HEAD_LIMIT:
            raise HeadTooLong(f"the request's head is longer than {bounds.HEAD_LIMIT} bytes")


class Connection(RequestHandler):
    """See the module. What it answers by itself is a problem document."""

    __slots__ = ("_express", "_overdue")

    def __init__(
        self, manager: web.Server, *, loop: asyncio.AbstractEventLoop, lenient: bool, express: Express | None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(manager, loop=loop, **options)
        self._overdue: asyncio.TimerHandle | None = None
        self._express = express
        self._parser = cast("Any", _Reader(self._parser, self._lenient if lenient else None, self._late, self._at_once))

    def _at_once(self, message: RawRequestMessage) -> bool:
        """Answers by the short way where the connection is idle: nothing is under way on it, or still to be sent."""
        waiter, transport = self._waiter, self.transport
        if self._express is None or waiter is None or waiter.done() or self._messages or transport is None:
            return False
        if transport.get_write_buffer_size():
            return False
        try:
            data = self._express(message)
        except Exception:  # nothing was claimed; the long way meets it too, and there it is told
            return False
        if data is None:
            return False
        # aiohttp sets it behind each request that it answers itself; it would take the connection for an idle one.
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        transport.write(data)
        return True

    def _lenient(self) -> _Lenient:
        return _Lenient(
            self, self._loop, self._read_bufsize, max_line_size=bounds.HEAD_LIMIT, max_field_size=bounds.HEAD_LIMIT,
            max_headers=self.max_headers, payload_exception=web.RequestPayloadError, auto_decompress=False,
        )  # fmt: skip

    def _late(self, begun: bool) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        if begun:
            self._overdue = self._loop.call_later(bounds.HEAD_SECONDS, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._late(False)
        super().connection_lost(exc)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("part of an answer is out")
        status = 431 if isinstance(exc, HeadTooLong | LineTooLong) else status
        title = HTTPStatus(status).phrase
        # The first line says it; aiohttp goes on with the bytes and a caret under them.
        detail = (message or title).strip().partition("\n")[0].rstrip(":")
        body = json_bytes({"type": "about:blank", "title": title, "status": status, "detail": detail})
        answer = web.Response(status=status, body=body, content_type="application/problem+json")
        answer.headers["Replay-Local"] = "unreadable"
        answer.force_close()
        return answer


def connections(
    server: web.Server, loop: asyncio.AbstractEventLoop, *, lenient: bool = False, express: Express | None = None
) -> Callable[[], Connection]:
    """What `loop.create_server` makes of each connection to `server`. `lenient`: as the recorder reads. `express`: what
    may answer a request without a body before `server` hears of it."""
    options = server._kwargs  # aiohttp has no public way to name another class of connections
    return lambda: Connection(server, loop=loop, lenient=lenient, express=express, **options)
