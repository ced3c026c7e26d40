"""The bytes of an answer: what a recorded exchange puts on the wire, decided before a byte is sent.

| what was recorded | what the agent gets |
|---|---|
| a whole answer | status line, fields and body as they were; the connection is kept where the bytes allow it |
| HEAD, 204, 304 | the fields as they were (also Content-Length), no body |
| cut by the environment after n bytes of body | the same n bytes, then the close |
| cut before any answer | the close |
| a fault that `--chaos` put in | the same again; a reset as a close |
| refused, not HTTP, timed out (no answer) | the proxy's own 502, 502, 504, as while recording |
| the agent left, or the stream was open at the end | what had reached the agent, then nothing until it leaves |

What a proxy may change is not undone: chunk extensions are gone, and an answer recorded over HTTP/2 is served as
HTTP/1.1, in chunks where it told no length; the front makes HTTP/2 of it again.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from http.client import responses
from typing import NamedTuple

from replayproxy.core.chaos import truncated_at
from replayproxy.core.script import is_bodyless
from replayproxy.core.values import Body, Exchange, Fields, Outcome, Response


class Framing(Enum):
    NONE = "none"  # no body follows
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"  # the body ends with the connection


class Ending(Enum):
    KEEP = "keep"  # the connection can take another request
    CLOSE = "close"
    HOLD = "hold"  # nothing more comes until the agent leaves


class Plan(NamedTuple):
    """An answer ready to be sent. `whole`: the framing of the body is to be brought to its end."""

    head: bytes
    body: Body | None
    framing: Framing
    ending: Ending
    whole: bool = True
    trailers: Fields = ()


HELD = frozenset({Outcome.CLIENT_GONE, Outcome.OPEN_AT_END})
"""The agent left, or its stream was still open: the answer is held open until this agent leaves, too."""

HOLD_AT_LEAST = 60.0
"""Seconds for which an answer that the recorded agent left is held open for this one to leave, at the least."""


def hold_limit(exchange: Exchange) -> float:
    """Seconds for which this answer is held open at its end."""
    times = exchange.times
    last = max(filter(None, (times.head, times.first, times.up_end, times.c_out)))
    return max(HOLD_AT_LEAST, 4 * (last - times.head) / 1e9)


_BROKEN = frozenset({Outcome.CUT, Outcome.INVALID, Outcome.TIMED_OUT})

OWN_STATUS = {Outcome.REFUSED: 502, Outcome.INVALID: 502, Outcome.TIMED_OUT: 504}
"""What the agent got from the proxy where there was no answer of the environment."""


def lines(fields: Fields) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in fields])


def head_of(response: Response, fields: Fields) -> bytes:
    """Status line and fields. `fields` are the agent's view of them."""
    version = response.version if response.version.startswith(b"HTTP/1.") else b"HTTP/1.1"
    head = b"%b %d %b\r\n%b\r\n" % (version, response.status, response.reason, lines(fields))
    return _interim(response) + head if response.informational else head


def _interim(response: Response) -> bytes:
    """The 1xx answers that came before; 100 is given when the request's body is read."""
    return b"".join(
        b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, responses.get(status, "").encode(), lines(fields))
        for status, fields in response.informational
        if status != 100
    )


def plan(exchange: Exchange, fields: Fields, aside: bytes = b"") -> Plan:
    """How this exchange is answered; `fields` are its answer's, as the agent is to see them. It must be servable.

    `aside`: the front makes HTTP/2 of it, and takes a field of this name for Content-Length. Over HTTP/2 trailers may
    follow a body whose length was told, and here only chunks can carry them.
    """
    response, outcome = exchange.response, exchange.outcome
    if response is None:
        if outcome in HELD:
            return Plan(head=b"", body=None, framing=Framing.NONE, ending=Ending.HOLD, whole=False)
        if outcome is Outcome.CUT or (outcome is Outcome.LOCAL and exchange.injected):
            return Plan(head=b"", body=None, framing=Framing.NONE, ending=Ending.CLOSE, whole=False)
        raise ValueError(f"exchange {exchange.seq} has no answer, and its outcome is {outcome}")
    framed = _framed(exchange.request.method, response)
    if aside and loses_trailers(response, framed.framing):
        renamed = ((aside if name.lower() == b"content-length" else name, value) for name, value in fields)
        fields, framed = tuple(renamed), framed._replace(framing=Framing.CHUNKED, unsaid=True, fits=True)
    if framed.unsaid:
        fields = (*fields, (b"Transfer-Encoding", b"chunked"))
    if outcome in HELD:
        return _held(response, fields, framed)
    kept = truncated_at(exchange.notes)
    broken = outcome in _BROKEN or kept is not None
    body = response.body if kept is None or response.body is None else _beginning(response.body, kept)
    return Plan(
        head=head_of(response, fields),
        body=None if framed.framing is Framing.NONE else body,
        framing=framed.framing,
        ending=Ending.CLOSE if broken or framed.closes or not framed.fits else Ending.KEEP,
        whole=not broken,
        trailers=response.trailers,
    )


def loses_trailers(response: Response, framing: Framing) -> bool:
    """Whether this framing cannot carry the trailers that there are."""
    return bool(response.trailers) and framing is Framing.LENGTH


def _held(response: Response, fields: Fields, framed: _Framed) -> Plan:
    body = response.body
    streamed = bool(body and body.chunks) or (not (body and body.size) and framed.framing is not Framing.LENGTH)
    if not streamed:
        # It was held in the proxy as one block: the agent left before it saw any of it.
        return Plan(head=b"", body=None, framing=Framing.NONE, ending=Ending.HOLD, whole=False)
    return Plan(
        head=head_of(response, fields), body=_without_end(body, framed), framing=framed.framing,
        ending=Ending.HOLD, whole=False,
    )  # fmt: skip


def _beginning(body: Body, size: int) -> Body:
    """Its first bytes, in the pieces in which they passed."""
    chunks, left = [], size
    for chunk in body.chunks:
        if left > 0:
            chunks.append(replace(chunk, size=min(chunk.size, left)))
            left -= chunk.size
    kept = None if body.inline is None else body.inline[:size]
    return replace(body, size=min(size, body.size), inline=kept, chunks=tuple(chunks))


def _without_end(body: Body | None, framed: _Framed) -> Body | None:
    """The body without its last piece where that would complete it: the agent had left before it got that."""
    if body is None or framed.framing is not Framing.LENGTH or not framed.fits:
        return body
    left_out = body.chunks[-1].size
    kept = None if body.inline is None else body.inline[: body.size - left_out]
    return Body(size=body.size - left_out, digest=body.digest, inline=kept, pieces=body.pieces, chunks=body.chunks[:-1])


class _Framed(NamedTuple):
    """What the fields say of where the body ends."""

    framing: Framing
    closes: bool  # the fields announce that the connection ends
    fits: bool  # the body that was kept is as long as its header says; else only the close can end it
    unsaid: bool = False  # HTTP/2 needs no field for it; in HTTP/1.1 only chunks can tell a cut from an end


def _framed(method: bytes, response: Response) -> _Framed:
    chunked = keeps = closes = False
    lengths: list[bytes] = []
    for name, value in response.fields:
        if len(name) not in _LENGTHS:
            continue
        lowered = name.lower()
        if lowered == b"content-length":
            lengths.append(value.strip())
        elif lowered == b"transfer-encoding":
            chunked = value.lower().rpartition(b",")[2].strip() == b"chunked"
        elif lowered == b"connection":
            named = [token.strip() for token in value.lower().split(b",")]
            closes, keeps = closes or b"close" in named, keeps or b"keep-alive" in named
    closes = closes or (response.version == b"HTTP/1.0" and not keeps)
    if is_bodyless(method, response.status):
        return _Framed(framing=Framing.NONE, closes=closes, fits=True)
    if chunked:
        return _Framed(framing=Framing.CHUNKED, closes=closes, fits=True)
    if not lengths and response.version.startswith(b"HTTP/2"):
        return _Framed(framing=Framing.CHUNKED, closes=closes, fits=True, unsaid=True)
    if not lengths:
        return _Framed(framing=Framing.CLOSE, closes=True, fits=True)
    size = b"%d" % (response.body.size if response.body else 0)
    return _Framed(framing=Framing.LENGTH, closes=closes, fits=all(length == size for length in lengths))


_LENGTHS = frozenset(map(len, (b"content-length", b"transfer-encoding", b"connection")))


def whole_body(plan: Plan) -> bytes | None:
    """The framed body of a plan in one block; None when its bytes are in the store. Pauses are not in it."""
    body = plan.body
    if body is None or body.size == 0:
        data: bytes = b""
    elif body.inline is None:
        return None
    else:
        data = body.inline
    if plan.framing is not Framing.CHUNKED:
        return data
    out = []
    at = 0
    for size, _ in chunks_of(body):
        out.append(b"%x\r\n%b\r\n" % (size, data[at : at + size]))
        at += size
    return b"".join(out) + last_chunk(plan)


def chunks_of(body: Body | None) -> list[tuple[int, int | None]]:
    """(size, instant) of the pieces in which a body passed; one that passed as a block is one piece."""
    if body is None or body.size == 0:
        return []
    passed: list[tuple[int, int | None]] = [(chunk.size, chunk.at) for chunk in body.chunks if chunk.size]
    return passed if sum(size for size, _ in passed) == body.size else [(body.size, None)]


def last_chunk(plan: Plan) -> bytes:
    """What ends a chunked body; nothing where it was never ended."""
    return b"0\r\n%b\r\n" % lines(plan.trailers) if plan.whole else b""


def problem(status: int, reason: str, document: bytes, mark: tuple[bytes, bytes], *, head_only: bool) -> bytes:
    """A whole answer of our own: an RFC 9457 document with a header that says whose it is."""
    head = b"HTTP/1.1 %d %b\r\nContent-Type: application/problem+json\r\n%b: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (status, reason.encode(), *mark, len(document)) + (b"" if head_only else document)
