"""Exchanges made from a seed: what an agent sends and what an environment answers, as raw bytes, within HTTP/1.1.

Left out is what the closed list of docs/recording.md says is changed: folded lines and white space around values,
marks, links and cookies that are rewritten, and what is refused (two framings, names that are no tokens).
"""

from __future__ import annotations

import gzip
import random
import zlib
from dataclasses import dataclass

TOKEN = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
METHODS = (
    b"GET",
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"PATCH",
    b"DELETE",
    b"OPTIONS",
    b"PROPFIND",
    b"BREW",
    b"get",
    b"M-x",
)
STATUSES = (200, 200, 200, 201, 202, 204, 206, 301, 304, 400, 404, 409, 418, 429, 500, 503, 599, 799)
INTERIM = (b"102 Processing", b"103 Early Hints", b"103 Early Hints", b"150 ")
CODINGS = (b"gzip", b"deflate", b"br", b"gzip, br", b"aws-chunked", b"identity", b"x-odd")
NAMES = (
    b"X-B",
    b"x-b",
    b"X-b",
    b"Accept",
    b"User-Agent",
    b"Cookie",
    b"ETag",
    b"Cache-Control",
    b"DATE",
    b"Expires",
    b"Vary",
)

type Pairs = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Said:
    """One exchange. `request` names the host as `HOST`. `closes`: the environment ends its connection after it."""

    number: int
    method: bytes
    request: bytes
    answer: bytes
    closes: bool


def lines(fields: Pairs) -> bytes:
    return b"".join(name + b": " + value + b"\r\n" for name, value in fields)


def value(r: random.Random) -> bytes:
    """A field's value: any byte but control characters, no white space at its ends."""
    kind = r.random()
    if kind < 0.1:
        return b""
    if kind < 0.75:
        return bytes(r.choices(TOKEN, k=r.randint(1, 30)))
    inner = bytes(r.choice(range(0x20, 0x100)) for _ in range(r.randint(0, 20))).replace(b"\x7f", b"~")
    return b"a" + inner + b"\xffz"


def fields(r: random.Random) -> Pairs:
    made: Pairs = []
    for _ in range(r.choice((0, 1, 2, 3, 5, 12))):
        name = r.choice(NAMES) if r.random() < 0.6 else b"x" + bytes(r.choices(TOKEN, k=r.randint(1, 12)))
        made.append((name, value(r)))
    return made


def target(r: random.Random, number: int) -> bytes:
    """Percent-encodings, dots, doubled slashes, empty parameters, bytes above 0x7f; unlike others by its number."""
    pieces = (
        b"a%2Fb",
        b"%7Eu",
        b"~u",
        b"..",
        b".",
        b"",
        b"caf\xc3\xa9",
        b"\xff",
        b"x;y=1",
        b"%zz",
        b"a+b",
        b"'q'",
        b"[1]",
    )
    path = b"/".join([b"", b"n%d" % number, *r.choices(pieces, k=r.randint(0, 4))])
    if r.random() < 0.5:
        asked = (b"a=1", b"a=2", b"tag=", b"tag", b"", b"q=%27a%27", b"\xc3\xa9=\xfe", b"?", b"=", b"u=http://h/x?y")
        path += b"?" + b"&".join(r.choices(asked, k=r.randint(0, 4)))
    return path


def content(r: random.Random) -> bytes:
    size = r.choice((0, 1, 2, 10, 200, 3000, 5000, 20_000)) if r.random() < 0.98 else r.choice((66_000, 200_000))
    kind = r.random()
    if kind < 0.3:
        return b'{"n": %d, "pad": "%s"}' % (r.randint(0, 2**80), b"p" * size)
    return r.randbytes(size) if kind < 0.7 else b"text \xe9\r\n" * (size // 8)


def coded(r: random.Random, body: bytes) -> tuple[Pairs, bytes]:
    """With a content coding that fits the bytes, or one that does not."""
    if r.random() < 0.6:
        return [], body
    coding = r.choice(CODINGS)
    if r.random() < 0.5:
        body = {b"gzip": gzip.compress(body, mtime=0), b"deflate": zlib.compress(body)}.get(coding, body)
    return [(b"Content-Encoding", coding)], body


def chunked(r: random.Random, body: bytes) -> bytes:
    out, at = [], 0
    while at < len(body):
        size = r.choice((1, 2, 7, 100, 4096, len(body)))
        part = body[at : at + size]
        extension = r.choice((b"", b"", b";ext=1", b';a;b="c"'))
        out.append((b"%x" if r.random() < 0.5 else b"%X") % len(part) + extension + b"\r\n" + part + b"\r\n")
        at += size
        if len(out) > 40:
            size = len(body) - at
            out += [b"%x\r\n" % size + body[at:] + b"\r\n"] if size else []
            break
    trailers: Pairs = [(b"X-T" + bytes(r.choices(TOKEN, k=2)), value(r)) for _ in range(r.choice((0, 0, 0, 1, 2)))]
    return b"".join(out) + b"0\r\n" + lines(trailers) + b"\r\n"


def said(r: random.Random, number: int) -> Said:
    method = r.choice(METHODS)
    asked = fields(r)
    framed = b""
    if method not in (b"GET", b"HEAD", b"get") or r.random() < 0.1:
        coding, body = coded(r, content(r))
        asked += coding
        if r.random() < 0.4:
            asked.append((b"Transfer-Encoding", b"chunked"))
            framed = chunked(r, body)
        else:
            asked.append((r.choice((b"Content-Length", b"content-length")), b"%d" % len(body)))
            framed = body
    asked.insert(r.randint(0, len(asked)), (r.choice((b"Host", b"host", b"HOST")), b"HOST"))
    head = method + b" " + target(r, number) + b" HTTP/1.1\r\n" + lines(asked) + b"\r\n"
    return Said(number, method, head + framed, *answer(r, method))


def answer(r: random.Random, method: bytes) -> tuple[bytes, bool]:
    status = r.choice(STATUSES)
    reason = r.choice((b"OK", b"Fine By Me", b"Caf\xe9", b"No"))
    told, framed, closes = fields(r), b"", False
    bodyless = method == b"HEAD" or status in (204, 304)
    coding, body = coded(r, content(r))
    if status != 204:
        told += coding
        if r.random() < 0.4:
            told.append((b"Transfer-Encoding", r.choice((b"chunked", b"Chunked"))))
            framed = chunked(r, body)
        elif not bodyless and r.random() < 0.1:
            framed, closes = body, True
        elif not bodyless or r.random() < 0.7:
            told.append((r.choice((b"Content-Length", b"content-LENGTH")), b"%d" % len(body)))
            framed = body
    if not closes and r.random() < 0.05:
        told.append((b"Connection", r.choice((b"close", b"keep-alive"))))
        closes = told[-1][1] == b"close"
    r.shuffle(told)
    interims = b"".join(
        b"HTTP/1.1 %s\r\n%s\r\n" % (r.choice(INTERIM), lines([(b"Link", b"</a>; rel=x"), (b"X-I", value(r))]))
        for _ in range(r.choice((0, 0, 0, 0, 1, 2)))
    )
    whole = interims + b"HTTP/1.1 %d %s\r\n%s\r\n" % (status, reason, lines(told)) + (b"" if bodyless else framed)
    return whole, closes
