"""Entries of HAR 1.2 as exchanges: our own (`core.har`) as they were, those of browsers as near as they tell.

What HAR calls optional may be missing; what is needed and missing, or of the wrong type, is `NotHar` with the entry's
number. A body that HAR holds decoded is kept decoded: its Content-Encoding goes, its Content-Length is made right, and
the exchange says so, because what is replayed must agree with itself.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus, urlsplit

from replayproxy.core.canonical import body_of, field
from replayproxy.core.harread_own import own_entry
from replayproxy.core.harvalues import Members, NotHar
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

AS_DECODED = "imported: body as decoded"
_BODYLESS = (204, 304)
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*\Z")
_REFUSED = re.compile(
    r"refused|block|resolv|unreach|no such host|dns|ERR_CONNECTION|ERR_NAME|ERR_ADDRESS", re.IGNORECASE
)

type EnvOf = Callable[[str], str]
"""From an origin (scheme://authority) to the environment's name."""


def read_entry(given: Any, number: int, env_of: EnvOf, notes: Counter[str], *, own: bool) -> Exchange:
    """The exchange of one entry; its instants are wall time where the file is not ours. Raises NotHar."""
    at = f"entry {number}"
    members = Members(given, at)
    if not own:
        members = Members({name: value for name, value in members.given.items() if name != "_replayproxy"}, at)
    aside = members.object("_replayproxy", {})
    ours = aside is not None and bool(aside.given)
    notes = Counter() if ours else notes  # what HAR itself does not tell is told beside it
    asked = Members(members.need("request", dict), f"{at}: request")
    url = asked.need("url", str)
    origin, target = _split_url(url, asked.at)
    times = _times(members, at)
    request = _request(asked, url, target, times, notes)
    answer = members.object("response", None)
    response = None if answer is None else _response(answer, request.method, f"{at}: response", notes)
    outcome, error = _outcome(members, answer, response, notes)
    exchange = Exchange(
        seq=0, order=(max(times.head, 0), 0), env="" if ours else env_of(origin), lane=MAIN_LANE, request=request,
        response=response,
        outcome=outcome, times=times, carrier="option", upstream=origin, error=error, notes=(),
    )  # fmt: skip
    talk = _websocket(members, times, notes)
    if talk is not None:
        exchange = replace(exchange, websocket=talk)
    if aside is not None and ours:
        return own_entry(exchange, members, aside)
    return _settled(exchange, answer, notes)


def _settled(exchange: Exchange, answer: Members | None, notes: Counter[str]) -> Exchange:
    """Framing that fits the bodies that are there."""
    request, response = exchange.request, exchange.response
    request, _ = _framed(request, request.body, always=False)
    changed = False
    if response is not None and response.body is not None and not _bodyless(request.method, response.status):
        response, changed = _framed(response, response.body, always=True)
    kept = (AS_DECODED,) if changed else ()
    if changed:
        notes[AS_DECODED] += 1
    return replace(exchange, request=request, response=response, notes=kept)


def _bodyless(method: bytes, status: int) -> bool:
    return method == b"HEAD" or status in _BODYLESS or 100 <= status < 200


def _framed[M: (Request, Response)](message: M, body: Body | None, *, always: bool) -> tuple[M, bool]:
    """The message with fields that say how long its body is, and whether they had to be changed."""
    if body is None:
        return message, False
    size = b"%d" % body.size
    coded = field(message.fields, b"content-encoding") if always else None
    length = field(message.fields, b"content-length")
    chunked = field(message.fields, b"transfer-encoding") is not None
    if coded is None and (length == size or (length is None and (chunked or not (always or body.size)))):
        return message, False
    dropped = {b"transfer-encoding"} | ({b"content-encoding"} if always else set())
    fields: list[tuple[bytes, bytes]] = []
    for name, value in message.fields:
        lowered = name.lower()
        if lowered == b"content-length":
            if not any(known.lower() == lowered for known, _ in fields):
                fields.append((name, size))
        elif lowered not in dropped:
            fields.append((name, value))
    if length is None:
        fields.append((b"Content-Length", size))
    return replace(message, fields=tuple(fields)), coded is not None or length is not None


def _split_url(url: str, at: str) -> tuple[str, bytes]:
    """(origin, target): the origin of a WebSocket is that of its handshake."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise NotHar(f"{at}.url {url[:80]!r} is no URL: {error}") from error
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    if scheme not in ("http", "https") or not parts.hostname:
        raise NotHar(f"{at}.url {url[:80]!r} is not absolute, or not of HTTP")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default = {"http": 80, "https": 443}[scheme]
    origin = f"{scheme}://{host}" + (f":{port}" if port not in (None, default) else "")
    rest = url.partition("://")[2]
    tail = rest[len(re.split(r"[/?#]", rest, maxsplit=1)[0]) :].partition("#")[0]
    raw = (tail if tail.startswith("/") else f"/{tail}").encode("utf-8", "surrogatepass")
    return origin, b"".join(bytes((byte,)) if 0x21 <= byte < 0x7F else b"%%%02X" % byte for byte in raw)


def _times(members: Members, at: str) -> Times:
    started = members.need("startedDateTime", str)
    try:
        begun = datetime.fromisoformat(started)
    except ValueError as error:
        raise NotHar(f"{at}.startedDateTime {started[:40]!r} is no instant") from error
    begun = begun if begun.tzinfo else begun.replace(tzinfo=UTC)
    since = begun - datetime(1970, 1, 1, tzinfo=UTC)
    head = max(0, (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000)
    timings = members.object("timings", {})
    assert timings is not None

    def spent(name: str) -> int:
        return round(max(0.0, min(timings.number(name, 0.0), 1e9)) * 1e6)

    sent = head + spent("send")
    first = sent + spent("blocked") + spent("dns") + spent("connect") + spent("wait")
    done = first + spent("receive")
    return Times(head=head, wall=head, c_in=sent, fwd=sent, first=first, up_end=done, c_out=done)


def _raw(text: str) -> bytes:
    """Header text as bytes: latin-1 where it can be, as it was on the wire."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _headers(message: Members, notes: Counter[str]) -> tuple[Fields, Mapping[bytes, bytes]]:
    """(fields, pseudo-fields of HTTP/2). Chromium joins what was sent repeatedly by line feeds."""
    fields: list[tuple[bytes, bytes]] = []
    pseudo: dict[bytes, bytes] = {}
    for item in message.items("headers"):
        header = Members(item, f"{message.at}.headers")
        name = _raw(header.need("name", str))
        for value in _raw(header.text("value", "")).split(b"\n"):
            stripped = value.strip(b" \t\r")
            if name.startswith(b":"):
                pseudo[name] = stripped
            elif _TOKEN.match(name) and _VALUE.match(stripped):
                fields.append((name, stripped))
            else:
                notes["header fields that HTTP cannot carry, left out"] += 1
    return tuple(fields), pseudo


def _version(text: str) -> bytes:
    """Browsers write h2, HTTP/2.0, http/2.0 and more."""
    found = re.search(r"([0-9](?:\.[0-9])?)\Z", text)
    if found is None or found.group(1) in ("1.1", "1"):
        return b"HTTP/1.1"
    return b"HTTP/" + {"2": "2.0", "3": "3.0"}.get(found.group(1), found.group(1)).encode()


def _request(asked: Members, url: str, target: bytes, times: Times, notes: Counter[str]) -> Request:
    method = _raw(asked.need("method", str))
    if not _TOKEN.match(method):
        raise NotHar(f"{asked.at}.method is no method")
    fields, pseudo = _headers(asked, notes)
    if field(fields, b"host") is None:
        host = pseudo.get(b":authority") or _raw(urlsplit(url).netloc.rpartition("@")[2])
        fields = ((b"Host", host), *fields)
    post = asked.object("postData", None)
    data = b"" if post is None else _post(post, notes)
    return Request(
        method=method, target=target, version=_version(asked.text("httpVersion", "HTTP/1.1")), fields=fields,
        body=None if data is None else body_of(data),
    )  # fmt: skip


def _post(post: Members, notes: Counter[str]) -> bytes | None:
    text = post.given.get("text")
    if isinstance(text, str) and (text or not post.given.get("params")):
        if post.text("encoding", "") == "base64":
            return _unbase64(text, post.at)
        return _encoded(text, post.text("mimeType", ""))
    if text is not None and not isinstance(text, str):
        raise NotHar(f"{post.at}.text is no text")
    params = post.items("params")
    if not params:
        return b""
    if "urlencoded" not in post.text("mimeType", ""):
        notes["request bodies that the file does not hold"] += 1
        return None
    pairs = [Members(item, f"{post.at}.params") for item in params]
    joined = "&".join(f"{quote_plus(p.need('name', str))}={quote_plus(p.text('value', ''))}" for p in pairs)
    return joined.encode()


def _response(answer: Members, method: bytes, at: str, notes: Counter[str]) -> Response | None:
    status = answer.need("status", int)
    if status in (0, -1):
        return None
    if not 100 <= status <= 999:
        raise NotHar(f"{at}.status is {status}")
    fields, _ = _headers(answer, notes)
    content = answer.object("content", {})
    assert content is not None
    version = _version(answer.text("httpVersion", "HTTP/1.1"))
    reason = _raw(answer.text("statusText", "")) if version.startswith(b"HTTP/1") else b""
    return Response(
        status=status, reason=reason if _VALUE.match(reason) else b"", version=version, fields=fields,
        body=_answer_body(content, method, status, fields, notes),
    )  # fmt: skip


def _answer_body(content: Members, method: bytes, status: int, fields: Fields, notes: Counter[str]) -> Body | None:
    text = content.given.get("text")
    if text is None:
        if content.number("size", 0.0) > 0 and not _bodyless(method, status):
            notes["answers whose body the file does not hold"] += 1
            return None
        return body_of(b"")
    if not isinstance(text, str):
        raise NotHar(f"{content.at}.text is no text")
    if content.text("encoding", "") == "base64":
        return body_of(_unbase64(text, content.at))
    return body_of(_encoded(text, (field(fields, b"content-type") or b"").decode("latin-1")))


def _unbase64(text: str, at: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotHar(f"{at}.text is no base64") from error


def _encoded(text: str, kind: str) -> bytes:
    """Text in the charset that its type names; UTF-8 where it names none, or one that cannot hold it."""
    named = re.search(r"charset=\"?([A-Za-z0-9._-]+)", kind, re.IGNORECASE)
    try:
        if named and codecs.lookup(named.group(1)).name not in ("utf-8", "utf-7"):
            return text.encode(named.group(1))
    except (LookupError, UnicodeError):
        pass
    return text.encode("utf-8", "surrogatepass")


def _outcome(
    members: Members, answer: Members | None, response: Response | None, notes: Counter[str]
) -> tuple[Outcome, str]:
    if response is not None:
        return Outcome.ANSWERED, ""
    said = [given.text(name, "") for given in (answer, members) if given is not None
            for name in ("_error", "_failureText", "statusText")]  # fmt: skip
    error = next(filter(None, said), "")
    outcome = Outcome.REFUSED if _REFUSED.search(error) else Outcome.CUT
    notes[f"entries without an answer ({outcome.value})"] += 1
    return outcome, error[:500]


def _websocket(members: Members, times: Times, notes: Counter[str]) -> WebSocket | None:
    if "_webSocketMessages" not in members.given:
        return None
    messages = []
    for item in members.items("_webSocketMessages"):
        said = Members(item, f"{members.at}._webSocketMessages")
        opcode = said.given.get("opcode", 1)
        if opcode not in (1, 2):
            notes["WebSocket frames that are no messages, left out"] += 1
            continue
        data = said.need("data", str)
        wall = round(said.number("time", times.wall / 1e9) * 1e9)
        payload = _unbase64(data, said.at) if opcode == 2 else data.encode("utf-8", "surrogatepass")
        messages.append(
            Message(
                from_agent=said.need("type", str) == "send", text=opcode == 1, payload=payload,
                at=times.head + max(0, wall - times.wall),
            )
        )  # fmt: skip
    # HAR does not know how it ended; a close without a code by the agent is the least that any client does.
    return WebSocket(messages=tuple(messages), close_code=1005, closed_by_agent=True)
