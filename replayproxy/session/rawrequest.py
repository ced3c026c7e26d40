"""A request as a person types or pastes it: head, blank line, body; lines may end in LF alone."""

from __future__ import annotations

import re

from replayproxy.core.canonical import body_of, field
from replayproxy.core.values import Fields, Request
from replayproxy.errors import WrongUsage

_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+)(?: (HTTP/\d(?:\.\d)?))?\Z")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*\Z", re.DOTALL)
_HINT = "METHOD TARGET HTTP/1.1, header lines, a blank line, the body"


def read_request(raw: bytes) -> Request:
    """The request, its target in origin form. Raises WrongUsage for what is none."""
    head, body = _split(raw)
    lines = re.split(rb"\r?\n", head)
    match = _LINE.match(lines[0])
    if not match:
        raise WrongUsage(f"the request begins with {_shown(lines[0])}, which is no request line", hint=_HINT)
    fields = tuple(_field(line) for line in lines[1:])
    return Request(
        method=match[1],
        target=_origin_form(match[2]),
        version=match[3] or b"HTTP/1.1",
        fields=fields,
        body=body_of(_body(fields, body)),
        agent_host=field(fields, b"host"),
    )


def _split(raw: bytes) -> tuple[bytes, bytes]:
    raw = raw.lstrip(b"\r\n")
    blank = re.search(rb"\r?\n\r?\n", raw)
    head, body = (raw[: blank.start()], raw[blank.end() :]) if blank else (raw.rstrip(b"\r\n"), b"")
    if not head:
        raise WrongUsage("there is no request on standard input", hint=_HINT)
    return head, body


def _field(line: bytes) -> tuple[bytes, bytes]:
    match = _FIELD.match(line)
    if not match:
        raise WrongUsage(f"{_shown(line)} is no header line", hint=_HINT)
    return match[1], match[2]


def _body(fields: Fields, rest: bytes) -> bytes:
    coding = (field(fields, b"transfer-encoding") or b"").lower()
    if coding.rpartition(b",")[2].strip() == b"chunked":
        return _dechunked(rest)
    length = field(fields, b"content-length")
    if length is None:
        return b"" if rest in (b"\n", b"\r\n") else rest
    if not length.isdigit():
        raise WrongUsage(f"Content-Length is {_shown(length)}")
    size = int(length)
    if len(rest) < size:
        raise WrongUsage(
            f"the body has {len(rest)} bytes, and Content-Length says {size}", hint="leave Content-Length out"
        )
    if rest[size:].strip(b"\r\n"):
        raise WrongUsage(
            f"{len(rest) - size} bytes follow the {size} of Content-Length", hint="one request, and nothing behind it"
        )
    return rest[:size]  # an editor's last line break is no part of it


def _dechunked(rest: bytes) -> bytes:
    out: list[bytes] = []
    at = 0
    while True:
        match = re.compile(rb"([0-9A-Fa-f]{1,16})[^\r\n]*\r?\n").match(rest, at)
        if not match:
            raise WrongUsage("the chunks of the body cannot be read", hint="a plain body, and no Transfer-Encoding")
        size, start = int(match[1], 16), match.end()
        if size == 0:
            return b"".join(out)
        if len(rest) < start + size:
            raise WrongUsage(f"a chunk of {size} bytes has {len(rest) - start}")
        out.append(rest[start : start + size])
        at = start + size
        at += 2 if rest[at : at + 2] == b"\r\n" else 1


def _origin_form(target: bytes) -> bytes:
    if not re.match(rb"https?://", target):
        return target
    rest = target.partition(b"://")[2]
    at = next((index for index, byte in enumerate(rest) if byte in b"/?"), len(rest))
    path = rest[at:]
    return path if path.startswith(b"/") else b"/" + path


def _shown(raw: bytes) -> str:
    text = raw[:60].decode("utf-8", "backslashreplace")
    return repr(text + ("…" if len(raw) > 60 else ""))
