"""Values to records and back, exactly: bytes stay bytes, `None` stays apart from empty, order stays.

An exchange is a JSON list by position (short, many of them); runs, episodes, snapshots and events are JSON objects of
the members that differ from their defaults (few, readable). Wire bytes are latin-1 text inside JSON. Instants are
written as distances from the head's arrival. Decoding raises `Broken` for any damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, cast

from replayproxy.core.canonical import digest
from replayproxy.core.values import (
    Body,
    Chunk,
    Exchange,
    Fields,
    Log,
    Message,
    Outcome,
    Request,
    Response,
    Times,
    WebSocket,
)
from replayproxy.storage.frame import Broken, Shelf, content_of, open_record, seal_content
from replayproxy.storage.layout import INLINE_LIMIT, PIECE_SIZE
from replayproxy.storage.sink import TalkSink

_EXTRAS = (
    "error", "cut_at", "upstream", "agent_connection", "env_connection", "held_ns", "closed_by_agent", "notes",
    "is_reset", "is_probe",
)  # fmt: skip
_EXTRA_DEFAULT = {f.name: f.default for f in fields(Exchange) if f.name in _EXTRAS}
_INSTANTS = ("c_in", "fwd", "first", "up_end", "c_out")
assert MISSING not in _EXTRA_DEFAULT.values()
_get_extras = attrgetter(*_EXTRAS)
_USUAL = tuple(_EXTRA_DEFAULT[name] for name in _EXTRAS)
_NOTHINGS = digest(b"")
_EMPTY = Body(size=0, digest=_NOTHINGS, inline=b"")


def _text(raw: bytes) -> str:
    return raw.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _flat(pairs: Fields) -> list[str]:
    return [part.decode("latin-1") for pair in pairs for part in pair]


def _paired(flat: list[str]) -> Fields:
    return _fields(tuple(flat)) if flat else ()


@lru_cache(maxsize=512)
def _fields(flat: tuple[str, ...]) -> Fields:
    """Of an episode most requests have the same header fields: they are one object, made once."""
    raw = [part.encode("latin-1") for part in flat]
    return tuple(zip(raw[::2], raw[1::2], strict=True))


def pieces_of(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(content address, bytes) of every piece of a body that is stored apart."""
    for at in range(0, len(data), PIECE_SIZE):
        piece = data[at : at + PIECE_SIZE]
        yield digest(piece), piece


def settle(body: Body | None, put: Callable[[bytes, bytes], None]) -> Body | None:
    """The body as it is stored: small ones inline, larger ones as pieces that were given to `put`."""
    if body is None or body.inline is None or len(body.inline) < INLINE_LIMIT:
        return body
    addresses = []
    for address, piece in pieces_of(body.inline):
        put(address, piece)
        addresses.append(address)
    return replace(body, inline=None, pieces=tuple(addresses))


def settle_talk(talk: WebSocket | None, put: Callable[[bytes, bytes], None]) -> WebSocket | None:
    """The conversation as it is stored: a short one in its record, a longer one as pieces that were given to `put`."""
    if talk is None or (talk.log is not None and not talk.messages):
        return talk
    sink = TalkSink(put)
    for message in talk.messages:
        sink.add(message)
    messages, log = sink.close()
    return replace(talk, messages=messages, log=log)


def bodies_of(exchange: Exchange) -> Iterator[tuple[str, Body]]:
    """Every body that an exchange's record refers to, by what it is: what has to go along where the record goes."""
    response, talk = exchange.response, exchange.websocket
    named = (
        ("request", exchange.request.body),
        ("response", response.body if response else None),
        ("messages", talk.log.body if talk and talk.log else None),
    )
    yield from ((name, body) for name, body in named if body is not None)


def _body(body: Body | None, head: int, tail: list[bytes]) -> list[Any] | None:
    if body is None:
        return None
    inline = body.inline
    known = inline is not None and (body.digest == _NOTHINGS if not inline else digest(inline) == body.digest)
    if inline is not None:
        tail.append(inline)
        if known and not body.pieces and not body.chunks:
            return [body.size, None, len(inline), "", []]
    return [
        body.size,
        None if known else _text(body.digest),
        None if inline is None else len(inline),
        _text(b"".join(body.pieces)),
        [part for chunk in body.chunks for part in (chunk.size, chunk.at - head)],
    ]


class _Tail:
    """Hands out the bytes after the JSON, in order."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise Broken("its bytes are cut")
        piece, self._at = self._data[self._at : end], end
        return piece

    def done(self) -> None:
        if self._at != len(self._data):
            raise Broken("it has bytes left over")


def _open_body(stored: list[Any] | None, head: int, tail: _Tail) -> Body | None:
    if stored is None:
        return None
    size, named, length, joined, chunks = stored
    if length == 0 and size == 0 and named is None and not joined and not chunks:
        return _EMPTY
    inline = None if length is None else tail.take(length)
    return Body(
        size=size,
        digest=_bytes(named) if named is not None else digest(cast("bytes", inline)),
        inline=inline,
        pieces=_addresses(_bytes(joined)) if joined else (),
        chunks=_chunks(chunks, head) if chunks else (),
    )


def _addresses(joined: bytes) -> tuple[bytes, ...]:
    return tuple(joined[at : at + 32] for at in range(0, len(joined), 32))


def _chunks(flat: list[int], head: int) -> tuple[Chunk, ...]:
    return tuple(Chunk(size=size, at=at + head) for size, at in zip(flat[::2], flat[1::2], strict=True))


def _request(request: Request, head: int, tail: list[bytes]) -> list[Any]:
    return [
        _text(request.method),
        _text(request.target),
        _text(request.version),
        _flat(request.fields),
        _body(request.body, head, tail),
        None if request.agent_host is None else _text(request.agent_host),
        _flat(request.trailers),
    ]


def _open_request(stored: list[Any], head: int, tail: _Tail) -> Request:
    method, target, version, pairs, body, host, trailers = stored
    return Request(
        method=_bytes(method),
        target=_bytes(target),
        version=_bytes(version),
        fields=_paired(pairs),
        body=_open_body(body, head, tail),
        agent_host=None if host is None else _bytes(host),
        trailers=_paired(trailers),
    )


def _response(response: Response | None, head: int, tail: list[bytes]) -> list[Any] | None:
    if response is None:
        return None
    return [
        response.status,
        _text(response.reason),
        _text(response.version),
        _flat(response.fields),
        _body(response.body, head, tail),
        _flat(response.trailers),
        [[status, _flat(pairs)] for status, pairs in response.informational],
    ]


def _open_response(stored: list[Any] | None, head: int, tail: _Tail) -> Response | None:
    if stored is None:
        return None
    status, reason, version, pairs, body, trailers, informational = stored
    return Response(
        status=status,
        reason=_bytes(reason),
        version=_bytes(version),
        fields=_paired(pairs),
        body=_open_body(body, head, tail),
        trailers=_paired(trailers),
        informational=tuple((early, _paired(flat)) for early, flat in informational) if informational else (),
    )


def _websocket(talk: WebSocket | None, head: int, tail: list[bytes]) -> list[Any] | None:
    if talk is None:
        return None
    said = []
    for message in talk.messages if talk.log is None else ():
        tail.append(message.payload)
        said.append([message.from_agent | message.text << 1, len(message.payload), message.at - head])
    stored: list[Any] = [said, talk.close_code, talk.close_reason, talk.closed_by_agent]
    if (log := talk.log) is not None:
        stored.append([_body(log.body, head, tail), log.count, _text(log.said)])
    return stored


def _open_websocket(stored: list[Any] | None, head: int, tail: _Tail) -> WebSocket | None:
    if stored is None:
        return None
    said, code, reason, by_agent, *apart = stored
    return WebSocket(
        messages=tuple(
            Message(from_agent=bool(kind & 1), text=bool(kind & 2), payload=tail.take(length), at=at + head)
            for kind, length, at in said
        ),
        close_code=code,
        close_reason=reason,
        closed_by_agent=by_agent,
        log=_open_log(apart[0], head, tail) if apart else None,
    )


def _open_log(stored: list[Any], head: int, tail: _Tail) -> Log:
    body, count, said = stored
    opened = _open_body(body, head, tail)
    assert opened is not None
    return Log(body=opened, count=count, said=_bytes(said))


def _distance(at: int | None, head: int) -> int | None:
    return None if at is None else at - head


def encode_exchange(exchange: Exchange) -> bytes:
    """The record, compressed without a dictionary."""
    return seal_content(*exchange_content(exchange))


def exchange_content(exchange: Exchange) -> tuple[int, bytes]:
    """Flags and content of its record. `seq` is not in it: the order of arrival is, and numbers come from that."""
    tail: list[bytes] = []
    t = exchange.times
    document = [
        *exchange.order,
        exchange.env,
        exchange.lane,
        exchange.outcome.value,
        exchange.carrier,
        [t.head, t.wall, *(_distance(getattr(t, name), t.head) for name in _INSTANTS)],
        _request(exchange.request, t.head, tail),
        _response(exchange.response, t.head, tail),
        _websocket(exchange.websocket, t.head, tail),
        {n: v for n, v, usual in zip(_EXTRAS, _get_extras(exchange), _USUAL, strict=True) if v != usual},
    ]
    return content_of(document, b"".join(tail))


def decode_exchange(raw: bytes, order: tuple[int, int], seq: int, shelf: Shelf | None = None) -> Exchange:
    """The exchange, numbered `seq`. `order` is what its key says; a record under another's key is Broken. `shelf`: the
    dictionaries that it may need."""
    document, rest = open_record(raw, shelf)
    try:
        return _open_exchange(document, _Tail(rest), order, seq)
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"its shape is wrong: {error}") from error


def _open_exchange(document: Any, tail: _Tail, order: tuple[int, int], seq: int) -> Exchange:
    at, worker, env, lane, outcome, carrier, instants, request, response, talk, extras = document
    if (at, worker) != order:
        raise Broken("it lies under the key of another record")
    head, wall, c_in, fwd, first, up_end, c_out = instants
    extras["notes"] = tuple(extras.get("notes", ()))
    exchange = Exchange(
        seq=seq,
        order=order,
        env=env,
        lane=lane,
        outcome=Outcome(outcome),
        carrier=carrier,
        times=Times(
            head=head,
            wall=wall,
            c_in=None if c_in is None else c_in + head,
            fwd=None if fwd is None else fwd + head,
            first=None if first is None else first + head,
            up_end=None if up_end is None else up_end + head,
            c_out=None if c_out is None else c_out + head,
        ),
        request=_open_request(request, head, tail),
        response=_open_response(response, head, tail),
        websocket=_open_websocket(talk, head, tail),
        **extras,
    )
    tail.done()
    return exchange
