"""Exchanges as entries of HAR 1.2, as browsers write and read them. `core.harread` is the way back.

What HAR has no place for lies under `_replayproxy`, a custom member that other readers skip: order, lane, outcome,
instants to the nanosecond, a body's bytes where HAR holds its decoded text, chunks, trailers, 1xx answers. Wire bytes
that are no text are latin-1 there and base64 where they are bodies. `lost` counts what other readers will not see.
"""

from __future__ import annotations

import base64
from collections import Counter
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote_plus

from replayproxy.core.canonical import all_fields, decoded, field, media_type, split_query, split_target
from replayproxy.core.values import MAIN_LANE, Body, Exchange, Fields, Outcome, Request, Response, Times, WebSocket

VERSION = "1.2"
FORMAT = 1
"""Of what lies under `_replayproxy`."""

EXTRAS = (
    "agent_connection", "env_connection", "error", "cut_at", "held_ns", "closed_by_agent", "is_reset", "is_probe",
)  # fmt: skip
INSTANTS = ("c_in", "fwd", "first", "up_end", "c_out")
_URL_SAFE = frozenset(b"!#$%&'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnopqrstuvwxyz~")
_ASIDE = " (only under _replayproxy)"


def log(entries: list[dict[str, Any]], about: dict[str, Any], version: str) -> dict[str, Any]:
    """The document of one episode; `about` says which."""
    return {
        "log": {
            "version": VERSION,
            "creator": {"name": "replayproxy", "version": version or "0"},
            "pages": [],
            "entries": entries,
            "_replayproxy": {"format": FORMAT, **about},
        }
    }


def entry(exchange: Exchange, origin: str, lost: Counter[str]) -> dict[str, Any]:
    """One entry. `origin` is the environment's; bodies and messages are loaded."""
    talk, response = exchange.websocket, exchange.response
    base = origin.replace("http", "ws", 1) if talk is not None and origin.startswith("http") else origin
    url = base + text_of_target(exchange.request.target)
    timings = _timings(exchange.times)
    made: dict[str, Any] = {
        "startedDateTime": moment(exchange.times.wall),
        "time": round(sum(value for value in timings.values() if value > 0), 6),
        "request": _request(exchange.request, url),
        "response": _response(response, exchange),
        "cache": {},
        "timings": timings,
        "_replayproxy": aside(exchange, decodes=True),
    }
    if talk is not None:
        made["_resourceType"] = "websocket"
        made["_webSocketMessages"] = _messages(talk, exchange.times)
    _count(exchange, lost)
    return made


def moment(wall: int) -> str:
    """ISO 8601 with microseconds, UTC."""
    seconds, rest = divmod(wall, 10**9)
    try:
        at = datetime.fromtimestamp(seconds, tz=UTC)
    except (ValueError, OverflowError, OSError):
        at, rest = datetime.fromtimestamp(0, tz=UTC), 0
    return f"{at:%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"


def text_of_target(target: bytes) -> str:
    """A target as the end of a URL: bytes that a URL cannot hold are percent-encoded (the raw ones are kept aside)."""
    return "".join(chr(byte) if byte in _URL_SAFE else f"%{byte:02X}" for byte in target)


def _timings(times: Times) -> dict[str, float]:
    return {
        "blocked": -1,
        "dns": -1,
        "connect": -1,
        "send": _ms(times.head, times.c_in),
        "wait": _ms(times.c_in, times.first),
        "receive": _ms(times.first, times.c_out if times.c_out is not None else times.up_end),
        "ssl": -1,
    }


def _ms(begun: int | None, done: int | None) -> float:
    return -1 if begun is None or done is None else max(0, done - begun) / 1e6


def _text(raw: bytes) -> str:
    return raw.decode("latin-1")


def _headers(fields: Fields) -> list[dict[str, str]]:
    return [{"name": _text(name), "value": _text(value)} for name, value in fields]


def _plain(raw: bytes) -> str | None:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _request(request: Request, url: str) -> dict[str, Any]:
    query = split_target(request.target)[1]
    made: dict[str, Any] = {
        "method": _text(request.method),
        "url": url,
        "httpVersion": _text(request.version),
        "cookies": _cookies(request.fields),
        "headers": _headers(request.fields),
        "queryString": _pairs(query or b""),
        "headersSize": -1,
        "bodySize": -1 if request.body is None else request.body.size,
    }
    if request.body is not None and request.body.inline:
        made["postData"] = _post(request.fields, request.body.inline)
    return made


def _post(fields: Fields, data: bytes) -> dict[str, Any]:
    kind = _text(field(fields, b"content-type") or b"application/octet-stream")
    form = media_type(fields) == b"application/x-www-form-urlencoded"
    made: dict[str, Any] = {"mimeType": kind, "params": _pairs(data) if form else []}
    text = _plain(data)
    if text is not None:
        return made | {"text": text}
    # HAR knows no coding here; Playwright reads this one as it reads that of an answer.
    return made | {"text": base64.b64encode(data).decode(), "encoding": "base64"}


def _pairs(raw: bytes) -> list[dict[str, str]]:
    def plain(part: bytes | None) -> str:
        return unquote_plus((part or b"").decode("latin-1"), "utf-8", "replace")

    return [{"name": plain(name), "value": plain(value)} for name, value in split_query(raw)] if raw else []


def _cookies(fields: Fields) -> list[dict[str, Any]]:
    found = []
    for line in all_fields(fields, b"cookie"):
        for part in line.split(b";"):
            name, _, value = part.strip().partition(b"=")
            if name:
                found.append({"name": _text(name), "value": _text(value)})
    return found


def _set_cookies(fields: Fields) -> list[dict[str, Any]]:
    found = []
    for line in all_fields(fields, b"set-cookie"):
        first, *attributes = line.split(b";")
        name, _, value = first.strip().partition(b"=")
        cookie: dict[str, Any] = {"name": _text(name), "value": _text(value), "httpOnly": False, "secure": False}
        for attribute in attributes:
            key, _, given = attribute.strip().partition(b"=")
            match key.lower():
                case b"path" | b"domain":
                    cookie[_text(key.lower())] = _text(given)
                case b"samesite":
                    cookie["sameSite"] = _text(given)
                case b"httponly":
                    cookie["httpOnly"] = True
                case b"secure":
                    cookie["secure"] = True
        found.append(cookie)
    return found


def _response(response: Response | None, exchange: Exchange) -> dict[str, Any]:
    if response is None:
        return {
            "status": 0, "statusText": "", "httpVersion": "", "cookies": [], "headers": [],
            "content": {"size": 0, "mimeType": "x-unknown"}, "redirectURL": "", "headersSize": -1, "bodySize": -1,
            "_error": exchange.error or exchange.outcome.value,
        }  # fmt: skip
    return {
        "status": response.status,
        "statusText": _text(response.reason),
        "httpVersion": _text(response.version),
        "cookies": _set_cookies(response.fields),
        "headers": _headers(response.fields),
        "content": _content(response),
        "redirectURL": _text(field(response.fields, b"location") or b""),
        "headersSize": -1,
        "bodySize": -1 if response.body is None else response.body.size,
    }


def _content(response: Response) -> dict[str, Any]:
    """HAR wants the decoded body."""
    kind = _text(field(response.fields, b"content-type") or b"") or "x-unknown"
    raw = response.body.inline if response.body else None
    if raw is None:
        return {"size": 0, "mimeType": kind, "comment": "the body was not kept"}
    plain = decoded(response.fields, raw)
    data = raw if plain is None else plain
    made: dict[str, Any] = {"size": len(data), "compression": len(data) - len(raw), "mimeType": kind}
    text = _plain(data)
    if text is not None:
        return made | {"text": text}
    return made | {"text": base64.b64encode(data).decode(), "encoding": "base64"}


def _messages(talk: WebSocket, times: Times) -> list[dict[str, Any]]:
    """As Chromium writes them: seconds since the epoch, opcode 1 text, 2 bytes in base64."""
    listed = []
    for message in talk.messages:
        text = _plain(message.payload) if message.text else None
        listed.append({
            "type": "send" if message.from_agent else "receive",
            "time": (times.wall + message.at - times.head) / 1e9,
            "opcode": 1 if text is not None else 2,
            "data": base64.b64encode(message.payload).decode() if text is None else text,
        })  # fmt: skip
    return listed


# What HAR has no place for


def _flat(fields: Fields) -> list[list[str]]:
    return [[_text(name), _text(value)] for name, value in fields]


def aside(exchange: Exchange, *, decodes: bool) -> dict[str, Any]:
    """What must be kept beside an exchange in a format that knows nothing of it. `decodes`: bodies are shown decoded
    there, so that the bytes of those that were coded are kept too."""
    times, request, response, talk = exchange.times, exchange.request, exchange.response, exchange.websocket
    made: dict[str, Any] = {
        "seq": exchange.seq,
        "order": list(exchange.order),
        "env": exchange.env,
        "lane": exchange.lane,
        "outcome": exchange.outcome.value,
        "carrier": exchange.carrier,
        "upstream": exchange.upstream,
        "target": _text(request.target),
        "times": {"head": times.head, "wall": times.wall}
        | {name: at for name in INSTANTS if (at := getattr(times, name)) is not None},
        "request": _message_aside(request.body, request.trailers, None, times.head),
    }
    if request.agent_host is not None:
        made["agent_host"] = _text(request.agent_host)
    if response is not None:
        plain = decoded(response.fields, response.body.inline) if response.body and response.body.inline else None
        shown = plain if decodes and (response.body is None or plain != response.body.inline) else None
        made["response"] = _message_aside(response.body, response.trailers, shown, times.head)
        if response.informational:
            made["response"]["informational"] = [[status, _flat(fields)] for status, fields in response.informational]
    if talk is not None:
        made["websocket"] = {
            "close_code": talk.close_code, "close_reason": talk.close_reason, "closed_by_agent": talk.closed_by_agent,
            "messages": [[int(message.text), message.at - times.head] for message in talk.messages],
        }  # fmt: skip
    for name in (
        "agent_connection",
        "env_connection",
        "error",
        "cut_at",
        "held_ns",
        "closed_by_agent",
        "is_reset",
        "is_probe",
    ):
        value = getattr(exchange, name)
        # A cut after 0 bytes, and an end that was not the agent's, are things that are known.
        if value not in ("", None, 0, False) or (value is not None and name in ("closed_by_agent", "cut_at")):
            made[name] = value
    if exchange.notes:
        made["notes"] = list(exchange.notes)
    return made


def _message_aside(body: Body | None, trailers: Fields, decoded_as: bytes | None, head: int) -> dict[str, Any]:
    made: dict[str, Any] = {"captured": body is not None}
    if body is not None and body.chunks:
        made["chunks"] = [[chunk.size, chunk.at - head] for chunk in body.chunks]
    if trailers:
        made["trailers"] = _flat(trailers)
    if body is not None and body.inline is not None and decoded_as is not None:
        made["body"] = base64.b64encode(body.inline).decode()
    return made


def _count(exchange: Exchange, lost: Counter[str]) -> None:
    request, response = exchange.request, exchange.response
    bodies = [body for body in (request.body, response.body if response else None) if body is not None]
    lost["times and order of chunks" + _ASIDE] += any(body.chunks for body in bodies)
    lost["trailers" + _ASIDE] += bool(request.trailers or (response and response.trailers))
    lost["1xx answers" + _ASIDE] += bool(response and response.informational)
    lost["lanes" + _ASIDE] += exchange.lane != MAIN_LANE
    lost["half-sent requests" + _ASIDE] += exchange.outcome is Outcome.HALF_SENT
    lost["answers that did not end as they should" + _ASIDE] += (
        response is not None and exchange.outcome is not Outcome.ANSWERED
    )
    lost["bodies that were not kept"] += (request.body is None) + (response is not None and response.body is None)
    if request.body is not None and request.body.inline and _plain(request.body.inline) is None:
        lost["request bodies that are no text (base64, which HAR does not know there)"] += 1
    if response is not None and response.body is not None and response.body.inline:
        plain = decoded(response.fields, response.body.inline)
        lost["answers whose coding could not be undone (raw, in base64)"] += plain is None
        lost["bytes of coded answers" + _ASIDE] += plain not in (None, response.body.inline)
    for words in [words for words, count in lost.items() if not count]:
        del lost[words]
