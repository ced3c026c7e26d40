"""A recorded request as the bytes that go on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from replayproxy.core.canonical import all_fields, field
from replayproxy.core.values import Body, Fields, Request

PIECE = 256 * 1024

type Pieces = Callable[[Body], Iterator[bytes]]
"""Where the bytes of a body that is not held in memory come from (`storage.Reader.pieces`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is written: `head` up to the empty line, then `body`, framed. `keeps`: nothing in it ends the connection.
    `apart`: the body comes from the store, so the next piece may block."""

    head: bytes
    body: Callable[[], Iterator[bytes]]
    head_only: bool
    keeps: bool
    apart: bool


def message(request: Request, *, host: bytes | None, pieces: Pieces) -> Message:
    """The recorded request: target, fields in order, case and number, body in its chunks. `host` replaces the value
    of Host in place (None: it stays). What came by HTTP/2 goes out as HTTP/1.1, the one framing we write."""
    over_h1 = request.version.startswith(b"HTTP/1.")
    version = request.version if over_h1 else b"HTTP/1.1"
    fields = with_host(request.fields if over_h1 else _one_cookie(request.fields), host, needed=not over_h1)
    chunked = b"chunked" in b",".join(all_fields(fields, b"transfer-encoding")).lower()
    size = request.body.size if request.body else 0
    if size and not chunked and field(fields, b"content-length") is None:
        fields = (*fields, (b"content-length", str(size).encode()))
    head = [b" ".join((request.method, request.target, version))]
    head += [name + b": " + value for name, value in fields]
    return Message(
        head=b"\r\n".join(head) + b"\r\n\r\n",
        body=lambda: _body(request, chunked, pieces),
        head_only=request.method == b"HEAD",
        keeps=version != b"HTTP/1.0" and b"close" not in b",".join(all_fields(fields, b"connection")).lower(),
        apart=request.body is not None and request.body.inline is None,
    )


def _one_cookie(fields: Fields) -> Fields:
    """HTTP/2 sends a cookie header in crumbs; HTTP/1.1 knows only one."""
    crumbs = all_fields(fields, b"cookie")
    if len(crumbs) < 2:
        return fields
    first = next(at for at, (name, _) in enumerate(fields) if name.lower() == b"cookie")
    whole = (fields[first][0], b"; ".join(crumbs))
    rest = [pair for pair in fields if pair[0].lower() != b"cookie"]
    return (*rest[:first], whole, *rest[first:])


def with_host(fields: Fields, host: bytes | None, *, needed: bool = False) -> Fields:
    """Host in its place and case, with another value; added in front only where the framing `needed` it."""
    if host is None:
        return fields
    if needed and field(fields, b"host") is None:
        return ((b"host", host), *fields)
    return tuple((name, host if name.lower() == b"host" else value) for name, value in fields)


def _body(request: Request, chunked: bool, pieces: Pieces) -> Iterator[bytes]:
    body = request.body
    if body is None:
        return
    data = iter((body.inline,)) if body.inline is not None else pieces(body)
    if not chunked:
        for piece in data:
            yield from (piece[at : at + PIECE] for at in range(0, len(piece), PIECE))
        return
    sizes = [chunk.size for chunk in body.chunks if chunk.size]
    if sum(sizes) != body.size:
        sizes = [body.size] if body.size else []  # a binding changed the body, or it was passed on as one block
    yield from _chunks(data, sizes)
    yield b"0\r\n" + b"".join(name + b": " + value + b"\r\n" for name, value in request.trailers) + b"\r\n"


def _chunks(data: Iterator[bytes], sizes: list[int]) -> Iterator[bytes]:
    """The data in chunks of these sizes; a chunk is written as it comes, never gathered first."""
    left = b""
    for size in sizes:
        yield b"%x\r\n" % size
        while size:
            left = left or next(data)
            yield left[:size]
            left, size = left[size:], size - min(size, len(left))
        yield b"\r\n"
