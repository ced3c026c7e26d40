"""Exchanges over HTTP/2 made from a seed: what an agent sends, what an environment answers, within what HTTP/2 allows.

Left out is what the closed list of docs/recording.md says is changed: marks, links and cookies that are rewritten.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.cases.generated import STATUSES, coded, content, target, value
from tests.cases.h2lab import Ask, Pairs, Say

NAMES = (
    b"accept", b"user-agent", b"cookie", b"cookie", b"etag", b"cache-control", b"date", b"expires", b"vary", b"te",
    b"set-cookie", b"server", b"x-b", b"x-b", b"x-replay-other", b"priority", b"forwarded", b"age",
)  # fmt: skip
TOKEN = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
METHODS = (b"GET", b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"PROPFIND", b"BREW", b"M-x")


@dataclass(frozen=True)
class Said:
    number: int
    ask: Ask
    say: Say


def fields(r: random.Random, *, answer: bool) -> list[tuple[bytes, bytes]]:
    made = []
    for _ in range(r.choice((0, 1, 2, 3, 5, 12))):
        name = r.choice(NAMES) if r.random() < 0.6 else b"x" + bytes(r.choices(TOKEN, k=r.randint(1, 12)))
        if name == b"te":
            made.append((name, b"trailers"))
        elif name == b"set-cookie":
            made.append((name, b"c%d=" % r.randint(0, 3) + bytes(r.choices(TOKEN[-36:], k=8)) + b"; HttpOnly"))
        else:
            made.append((name, value(r)))
    return [pair for pair in made if not (answer and pair[0] == b"te")]


def pieces(r: random.Random, body: bytes) -> tuple[bytes, ...]:
    out: list[bytes] = []
    at = 0
    while at < len(body):
        size = r.choice((1, 7, 100, 4096, 16_384, 16_385, len(body)))
        size = size if len(out) < 20 else len(body)
        out.append(body[at : at + size])
        at += size
    return tuple(out) or r.choice(((), (b"",)))


def trailers(r: random.Random) -> Pairs:
    return tuple((b"x-t" + bytes(r.choices(TOKEN, k=2)), value(r)) for _ in range(r.choice((0, 0, 0, 1, 2))))


def said(r: random.Random, number: int) -> Said:
    method = r.choice(METHODS)
    asked = fields(r, answer=False)
    parts: tuple[bytes, ...] = ()
    tail: Pairs = ()
    if method not in (b"GET", b"HEAD") or r.random() < 0.1:
        coding, body = coded(r, content(r))
        asked += [(name.lower(), coding) for name, coding in coding]
        if r.random() < 0.5:
            asked.insert(r.randint(0, len(asked)), (b"content-length", b"%d" % len(body)))
        parts, tail = pieces(r, body), trailers(r)
    path = target(r, number).replace(b" ", b"%20")
    return Said(number, Ask(path, tuple(asked), parts, method, tail), answer(r, method))


def answer(r: random.Random, method: bytes) -> Say:
    status = r.choice(STATUSES)
    told = fields(r, answer=True)
    bare = method == b"HEAD" or status in (204, 304)
    coding, body = coded(r, content(r))
    if status != 204:
        told += [(name.lower(), coding) for name, coding in coding]
        if r.random() < 0.5:
            told.append((b"content-length", b"%d" % len(body)))
    r.shuffle(told)
    interims = [
        (r.choice((102, 103, 103, 150)), ((b"link", b"</a>; rel=x"), (b"x-i", value(r))))
        for _ in range(r.choice((0, 0, 0, 1, 2)))
    ]
    tail = () if bare else trailers(r)
    return Say(() if bare else pieces(r, body), tuple(told), status, interims, tail)
