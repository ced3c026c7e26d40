"""mitmproxy's flow files: exchanges as flows, and flows as exchanges.

What a flow has no place for lies in its metadata under `replayproxy` (JSON), so that our own flows come back as they
were; `replayproxy.run`, `.episode` and `.lane` stand beside it for people and scripts. Files of older mitmproxys are
brought up to date by mitmproxy itself. Its format is a plain data notation: nothing in a file is ever run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

from mitmproxy import connection, flow, http, websocket
from mitmproxy.exceptions import FlowReadException
from mitmproxy.io import FlowReader, FlowWriter

from replayproxy.core import har
from replayproxy.core.canonical import body_of, field
from replayproxy.core.harread_own import own_exchange
from replayproxy.core.harvalues import Members, NotHar
from replayproxy.core.shapes import wrong_member
from replayproxy.core.shown import json_bytes
from replayproxy.core.values import (
    MAIN_LANE,
    Body,
    Exchange,
    Fields,
    Message,
    Outcome,
    Request,
    Response,
    Times,
    WebSocket,
)
from replayproxy.proxy.head import take_marks
from replayproxy.proxy.unquoted import unquoted

_ASIDE, _RUN, _EPISODE, _LANE = "replayproxy", "replayproxy.run", "replayproxy.episode", "replayproxy.lane"
_KEY, _INCOMPLETE = "replayproxy.key", "replayproxy.incomplete"
_REFUSED = re.compile(r"refused|unreach|resolve|not known|no route|timed out|connect", re.IGNORECASE)
_LOOKS = re.compile(rb"[0-9]{1,12}:[0-9]{1,12}:")


class NotFlows(ValueError):
    """The file is damaged, cut, or no flow file; the text says which flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A flow as an exchange. `episode`: what it says itself, None: nothing. `run`: where it was recorded by us, and
    `key` names the key of the tokens in it. `whole` False: its episode was incomplete there."""

    exchange: Exchange
    episode: str | None
    run: str | None = None
    key: str | None = None
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A flow that is no exchange; `what` is how such are called."""

    what: str


def looks_like_flows(head: bytes) -> bool:
    """Whether a file that begins so may be a flow file."""
    return _LOOKS.match(head) is not None


# Out


class FlowFile:
    """Writes exchanges to a stream, as flows. Bodies and messages are loaded."""

    def __init__(self, out: BinaryIO) -> None:
        self._writer = FlowWriter(out)  # type: ignore[no-untyped-call]

    def add(
        self, exchange: Exchange, *, origin: str, run: str, episode: str, key: str | None = None, whole: bool = True
    ) -> None:
        """`key` names the key of the tokens that stand for secrets in it, `whole` says that its episode is sealed."""
        made = as_flow(exchange, origin=origin, run=run, episode=episode)
        if key is not None:
            made.metadata[_KEY] = key
        if not whole:
            made.metadata[_INCOMPLETE] = True
        self._writer.add(made)


def as_flow(exchange: Exchange, *, origin: str, run: str, episode: str) -> http.HTTPFlow:
    """The exchange as a flow; what a flow has no place for lies in its metadata. `origin`: scheme://authority."""
    at = urlsplit(origin)
    host, tls = at.hostname or "unknown.invalid", at.scheme == "https"
    port = at.port or (443 if tls else 80)
    begun = exchange.times.wall / 1e9
    name = f"replayproxy:{run}/{episode}#{exchange.seq}"
    client = connection.Client(peername=("127.0.0.1", 0), sockname=("127.0.0.1", 0), timestamp_start=begun)
    server = connection.Server(address=(host, port))
    made = http.HTTPFlow(client, server)
    # Ids made from the address: the same recording gives the same file.
    made.id, client.id, server.id = (str(uuid5(NAMESPACE_URL, name + tail)) for tail in ("", "client", "server"))
    made.timestamp_created = begun
    made.request = _flow_request(exchange, host, port, at.scheme)
    made.response = _flow_response(exchange)
    if exchange.outcome is not Outcome.ANSWERED:
        made.error = flow.Error(exchange.error or exchange.outcome.value, begun)
    if exchange.websocket is not None:
        made.websocket = _flow_websocket(exchange, exchange.websocket)
    made.metadata = {
        _RUN: run, _EPISODE: episode, _LANE: exchange.lane,
        _ASIDE: json_bytes(har.aside(exchange, decodes=False)).decode(),
    }  # fmt: skip
    return made


def _seconds(exchange: Exchange, at: int | None) -> float | None:
    return None if at is None else (exchange.times.wall + at - exchange.times.head) / 1e9


def _flow_request(exchange: Exchange, host: str, port: int, scheme: str) -> http.Request:
    request = exchange.request
    return http.Request(
        host=host, port=port, method=request.method, scheme=scheme.encode(), authority=b"", path=request.target,
        http_version=request.version, headers=http.Headers(request.fields),
        content=None if request.body is None else request.body.inline,
        trailers=http.Headers(request.trailers) if request.trailers else None,
        timestamp_start=_seconds(exchange, exchange.times.head) or 0.0,
        timestamp_end=_seconds(exchange, exchange.times.c_in),
    )  # fmt: skip


def _flow_response(exchange: Exchange) -> http.Response | None:
    response = exchange.response
    if response is None:
        return None
    begun = exchange.times.first if exchange.times.first is not None else exchange.times.head
    return http.Response(
        http_version=response.version, status_code=response.status, reason=response.reason,
        headers=http.Headers(response.fields), content=None if response.body is None else response.body.inline,
        trailers=http.Headers(response.trailers) if response.trailers else None,
        timestamp_start=_seconds(exchange, begun) or 0.0, timestamp_end=_seconds(exchange, exchange.times.up_end),
    )  # fmt: skip


def _flow_websocket(exchange: Exchange, talk: WebSocket) -> websocket.WebSocketData:
    return websocket.WebSocketData(
        messages=[
            websocket.WebSocketMessage(
                1 if one.text else 2, one.from_agent, one.payload, _seconds(exchange, one.at)
            )
            for one in talk.messages
        ],
        closed_by_client=talk.closed_by_agent, close_code=talk.close_code, close_reason=talk.close_reason,
        timestamp_end=_seconds(exchange, exchange.times.c_out),
    )  # fmt: skip


# In


class _Whole:
    """A file of which no more is asked than is there: a length in it is somebody's claim."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size

    def read(self, length: int) -> bytes:
        return self._file.read(max(0, min(length, self._size - self._file.tell())))

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, at: int) -> int:
        return self._file.seek(at)


def read_flows(file: BinaryIO, size: int) -> Iterator[Found | Skipped]:
    """Every flow, in the order of the file; memory holds one. Raises NotFlows."""
    whole: Any = _Whole(file, size)
    flows, number = iter(FlowReader(whole).stream()), 0
    while True:
        number += 1
        try:
            one = next(flows, None)
            if one is None:
                return
            found = _found(one)
        except (FlowReadException, NotHar) as error:
            raise NotFlows(f"flow {number} is damaged, or the file is cut: {error}") from error
        except OSError:
            raise
        except Exception as error:  # whatever mitmproxy makes of a state that it never wrote
            raise NotFlows(f"flow {number} is not what mitmproxy writes: {type(error).__name__}") from error
        yield found


def _found(one: flow.Flow) -> Found | Skipped:
    if not isinstance(one, http.HTTPFlow):
        return Skipped(what=f"{one.type} flows")
    if one.request.data.method.upper() == b"CONNECT":
        return Skipped(what="CONNECT requests")
    own = one.metadata.get(_ASIDE)
    exchange, claimed = _exchange(one, own=isinstance(own, str))
    if isinstance(own, str):
        exchange = own_exchange(exchange, Members(json.loads(own), "its metadata"))
        return Found(
            exchange=exchange, episode=_word(one, _EPISODE), run=_word(one, _RUN), key=_word(one, _KEY),
            whole=_INCOMPLETE not in one.metadata,
        )  # fmt: skip
    if (wrong := wrong_member(exchange)) is not None:
        raise NotHar(f"its {wrong} is not of the right type")
    return Found(exchange=exchange, episode=claimed)


def _word(one: flow.Flow, name: str) -> str | None:
    word = one.metadata.get(name)
    return word if isinstance(word, str) else None


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else max(0, round(seconds * 1e9))


def _exchange(one: http.HTTPFlow, *, own: bool) -> tuple[Exchange, str | None]:
    """The exchange, its identity marks taken off as a recorder does, and the episode that they name. Our `own` flows
    are past that."""
    asked, answer = one.request, one.response
    host = f"[{asked.host}]" if ":" in asked.host else asked.host
    default = {"http": 80, "https": 443}.get(asked.scheme)
    authority = host if asked.port == default else f"{host}:{asked.port}"
    fields: Fields = tuple(asked.data.headers.fields)
    if not own and field(fields, b"host") is None:
        fields = ((b"Host", asked.data.authority or authority.encode("utf-8", "surrogateescape")), *fields)
    marks = take_marks(asked.data.path, () if own else fields, prefixed=not own)
    head = _ns(asked.data.timestamp_start) or 0
    sent = _ns(asked.data.timestamp_end)
    first = _ns(answer.data.timestamp_start) if answer is not None else None
    done = _ns(answer.data.timestamp_end) if answer is not None else None
    outcome, error = _outcome(one)
    exchange = Exchange(
        seq=0, order=(head, 0), env="", lane=marks.claims.lane or MAIN_LANE, outcome=outcome, error=error,
        request=Request(
            method=asked.data.method, target=marks.target, version=asked.data.http_version,
            fields=fields if own else marks.fields,
            body=_body(asked.data.content), trailers=_trailers(asked.data.trailers),
        ),
        response=None if answer is None else Response(
            status=answer.data.status_code, reason=answer.data.reason, version=answer.data.http_version,
            fields=tuple(answer.data.headers.fields), body=_body(answer.data.content),
            trailers=_trailers(answer.data.trailers),
        ),
        times=Times(head=head, wall=head, c_in=sent, fwd=sent, first=first, up_end=done, c_out=done),
        carrier="option", upstream=f"{asked.scheme}://{authority}", websocket=_websocket(one),
    )  # fmt: skip
    claims = marks.claims
    return exchange, claims.prefix or claims.header or claims.baggage


def _body(content: bytes | None) -> Body | None:
    return None if content is None else body_of(content)


def _trailers(trailers: Any) -> Fields:
    return tuple(trailers.fields) if trailers is not None else ()


def _outcome(one: http.HTTPFlow) -> tuple[Outcome, str]:
    if one.error is not None:
        message = unquoted(str(one.error.msg))[:500]
        if one.websocket is not None or one.response is not None:
            return Outcome.CUT, message
        return (Outcome.REFUSED if _REFUSED.search(message) else Outcome.CUT), message
    if one.response is None:
        return Outcome.OPEN_AT_END, "the flow has no answer"
    return Outcome.ANSWERED, ""


def _websocket(one: http.HTTPFlow) -> WebSocket | None:
    talk = one.websocket
    if talk is None:
        return None
    said = tuple(
        Message(from_agent=m.from_client, text=m.is_text, payload=m.content, at=_ns(m.timestamp) or 0)
        for m in talk.messages
        if not m.dropped
    )
    code = talk.close_code
    return WebSocket(
        messages=said, close_code=None if code is None else int(code), close_reason=talk.close_reason or "",
        closed_by_agent=talk.closed_by_client,
    )  # fmt: skip
