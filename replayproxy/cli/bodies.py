"""Requests and answers for people: readable, as a curl command, as the bytes that passed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from replayproxy.cli.common import safe
from replayproxy.core.canonical import Kind, all_fields, decoded, field, view
from replayproxy.core.values import Body, Exchange, Fields, Request, Response
from replayproxy.storage import Reader

SHOWN_BYTES = 64 * 1024
"""Of a body that is shown as text; `--body` and `--wire` give all of it."""

CURL_BYTES = 100_000
"""A longer body does not fit a command line everywhere."""

_CURLS_OWN = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection", b"expect"})


def text_of(fields: Fields, body: Body | None) -> list[str]:
    """A body's lines: JSON indented, text as it is, anything else by its size."""
    if body is None:
        return ["(not captured)"]
    if body.size == 0:
        return []
    if body.inline is None:
        return [f"({body.size:,} bytes: --body)"]
    seen = view(fields, body)
    if seen.kind is Kind.JSON and body.size <= SHOWN_BYTES:
        return list(_indented(seen.value))
    data = decoded(fields, body.inline)
    if data is None:
        return [f"({body.size:,} bytes, {safe(field(fields, b'content-encoding') or b'')})"]
    try:
        shown = data[:SHOWN_BYTES].decode("utf-8", "strict" if len(data) <= SHOWN_BYTES else "ignore")
    except UnicodeDecodeError:
        return [f"({body.size:,} bytes, binary)"]
    lines = safe(shown, lines=True).split("\n")
    return [*lines, f"({len(data):,} bytes in all: --body)"] if len(data) > SHOWN_BYTES else lines


def _indented(value: Any, indent: str = "", head: str = "", tail: str = "") -> Iterator[str]:
    """JSON over several lines, every number with the digits that were sent."""
    if not value or not isinstance(value, dict | list):
        shown = str(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else json.dumps(
            value, ensure_ascii=False
        )  # fmt: skip
        yield safe(f"{indent}{head}{shown}{tail}")
        return
    if isinstance(value, dict):
        brackets, items = "{}", [(json.dumps(name, ensure_ascii=False) + ": ", item) for name, item in value.items()]
    else:
        brackets, items = "[]", [("", item) for item in value]
    yield safe(f"{indent}{head}{brackets[0]}")
    for at, (label, item) in enumerate(items, 1):
        yield from _indented(item, indent + "  ", label, "," if at < len(items) else "")
    yield f"{indent}{brackets[1]}{tail}"


def request_wire(request: Request) -> bytes:
    return b" ".join((request.method, request.target, request.version)) + b"\r\n" + _fields(request.fields)


def response_wire(response: Response) -> bytes:
    line = response.version + b" " + str(response.status).encode()
    return (line + b" " + response.reason if response.reason else line) + b"\r\n" + _fields(response.fields)


def _fields(fields: Fields) -> bytes:
    return b"".join(name + b": " + value + b"\r\n" for name, value in fields) + b"\r\n"


def wire(reader: Reader, exchange: Exchange) -> Iterator[bytes]:
    """The request's bytes, then the answer's, chunked where they were."""
    request, response = exchange.request, exchange.response
    yield request_wire(request)
    yield from _framed(reader, request.fields, request.body, request.trailers)
    if response is None:
        return
    for status, fields in response.informational:
        yield response.version + b" " + str(status).encode() + b"\r\n" + _fields(fields)
    yield response_wire(response)
    yield from _framed(reader, response.fields, response.body, response.trailers)


def _framed(reader: Reader, fields: Fields, body: Body | None, trailers: Fields) -> Iterator[bytes]:
    if body is None:
        return
    coding = b",".join(all_fields(fields, b"transfer-encoding")).lower()
    if b"chunked" not in coding:
        yield from reader.pieces(body)
        return
    rest = b"".join(reader.pieces(body))
    for size in [chunk.size for chunk in body.chunks] or [len(rest)]:
        if size:
            yield b"%x\r\n%b\r\n" % (size, rest[:size])
        rest = rest[size:]
    yield b"0\r\n" + _fields(trailers)


def curl(reader: Reader, exchange: Exchange, upstream: str) -> str:
    """A shell command that sends the request to `upstream` again, byte for byte where curl can."""
    request = exchange.request
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(upstream)) if "://" in upstream else "http://UPSTREAM"
    method = request.method.decode("latin-1")
    parts = ["curl", "-sS", "-i", "--path-as-is", "-g"]
    parts += ["--head"] if method == "HEAD" else ["-X", _quoted(request.method)]
    for name, value in request.fields:
        if name.lower() not in _CURLS_OWN:
            parts += ["-H", _quoted(name + b": " + value if value else name + b";")]
    for name in (b"user-agent", b"accept"):
        if field(request.fields, name) is None:
            parts += ["-H", _quoted(name + b":")]
    before, data = _curl_body(reader, request)
    parts += data
    parts.append(_quoted(origin.encode() + request.target))
    return before + " ".join(parts)


def _curl_body(reader: Reader, request: Request) -> tuple[str, list[str]]:
    if request.body is None or request.body.size == 0:
        return "", []
    head = [] if field(request.fields, b"content-type") is not None else ["-H", "'content-type:'"]
    if request.body.size > CURL_BYTES:
        return "", [*head, "--data-binary", "@BODY"]
    data = reader.body(request.body)
    if _is_plain(data):
        return "", [*head, "--data-raw", _quoted(data)]
    return "printf '%b' '" + "".join(f"\\0{byte:03o}" for byte in data) + "' | ", [*head, "--data-binary", "@-"]


def _is_plain(data: bytes) -> bool:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\n\t " for char in text)


def _quoted(raw: bytes) -> str:
    """As one word of a shell, whatever bytes it holds."""
    if _is_plain(raw):
        return shlex.quote(raw.decode("utf-8"))
    return "$'" + "".join(chr(b) if 0x20 <= b < 0x7F and b not in b"'\\" else f"\\x{b:02x}" for b in raw) + "'"


def body_json(reader: Reader, body: Body | None) -> dict[str, Any] | None:
    """A body as `show --json` prints it: text where it is UTF-8, else base64; null: not captured."""
    if body is None:
        return None
    import base64

    shown: dict[str, Any] = {"size": body.size, "digest": body.digest.hex(), "chunks": len(body.chunks)}
    data = reader.body(body)
    try:
        return shown | {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return shown | {"base64": base64.b64encode(data).decode()}


def fields_json(fields: Fields) -> list[list[str]]:
    return [[safe(name), value.decode("utf-8", "backslashreplace")] for name, value in fields]
