"""Answers as representations: which URI they show, asked by whom and how, and what their validators say.

A strong ETag names one representation of its URI for good (RFC 9110, 8.8.1 and 8.8.3); a weak one may stay when a
change does not matter; Last-Modified tells seconds apart, so it is as good as an ETag only in an answer given some time
after it. What was put back by a reset may bear the old names again: validators are compared only between resets.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from replayproxy.core.canonical import all_fields, by_name, field, media_type
from replayproxy.core.times import SECOND, parse_text
from replayproxy.core.values import Exchange, Fields, Outcome
from replayproxy.detect.history import NEVER

SETTLED = 2 * SECOND
"""So long after Last-Modified, by the environment's own Date, another change would have moved it."""

_CREDENTIALS = (b"authorization", b"cookie", b"x-api-key", b"api-key")
_VIEWER = re.compile(
    rb"(?:^|-)(?:tenant|org|organi[sz]ation|account|workspace|user|role|variant|experiment|language)(?:-|$)"
)
_HITS = (b"x-cache", b"x-cache-status", b"x-proxy-cache", b"cf-cache-status", b"cache-status")
_HIT = re.compile(rb"\b(?:HIT|STALE|UPDATING|REVALIDATED)\b|;\s*hit\b", re.I)
_TAG = re.compile(r'(W/)?("[^"]*")\Z')


def requester(fields: Fields) -> tuple[bytes, ...]:
    """Equal for requests with equal credentials."""
    named = by_name(fields)
    return tuple(value for name in _CREDENTIALS for value in named.get(name, ()))


def viewer(fields: Fields) -> tuple[bytes, ...]:
    """The same, and equal in what else says for whom an answer is made."""
    return (*requester(fields), *(value for name, value in fields if _says_for_whom(name)))


@lru_cache(maxsize=1024)
def _says_for_whom(name: bytes) -> bool:
    return bool(_VIEWER.search(name.lower())) and name.lower() != b"user-agent"


@dataclass(frozen=True, slots=True)
class Tag:
    """An ETag. `text`: with its quotes, without `W/`."""

    text: str
    weak: bool

    def __str__(self) -> str:
        return f"{'W/' if self.weak else ''}{self.text}"


def tag(text: str) -> Tag | None:
    """None: not written as an ETag is."""
    found = _TAG.match(text.strip())
    return Tag(found[2], found[1] is not None) if found else None


def tag_of(fields: Fields) -> Tag | None:
    """The one ETag of an answer."""
    values = all_fields(fields, b"etag")
    return tag(values[0].decode("latin-1")) if len(values) == 1 else None


def modified_of(fields: Fields) -> str | None:
    """The Last-Modified of an answer, if another change since would surely have moved it."""
    text, date = (field(fields, name) for name in (b"last-modified", b"date"))
    if text is None or date is None:
        return None
    spelled = text.decode("latin-1").strip()
    changed, given = parse_text(spelled), parse_text(date.decode("latin-1").strip())
    return spelled if changed and given and given.at - changed.at >= SETTLED else None


def shows(exchange: Exchange) -> bool:
    """Whether it is a whole answer 200 to GET: a representation of its URI."""
    response = exchange.response
    return (
        response is not None and response.status == 200 and exchange.request.method == b"GET"
        and exchange.outcome is Outcome.ANSWERED and not exchange.is_reset and response.body is not None
    )  # fmt: skip


def varied(exchange: Exchange) -> frozenset[bytes] | None:
    """The request headers that the answer names in Vary; None: it may vary by anything."""
    listed = b",".join(all_fields(exchange.response.fields, b"vary")) if exchange.response else b""
    names = frozenset(name.strip().lower() for name in listed.split(b",") if name.strip())
    return None if b"*" in names else names


def asked_by(exchange: Exchange, names: Iterable[bytes]) -> tuple[tuple[bytes, tuple[bytes, ...]], ...]:
    """What a request said in these headers."""
    return tuple((name, all_fields(exchange.request.fields, name)) for name in sorted(names))


def subject(exchange: Exchange) -> Hashable:
    """The URI and the requester. A GET with a body asks for what the body says."""
    sent = exchange.request.body
    asked = sent.digest if sent is not None and sent.size else b""
    return exchange.env, exchange.request.target, asked, requester(exchange.request.fields)


def form(exchange: Exchange) -> Hashable | None:
    """What sort of representation the answer is: its media type, coding, language and what it was chosen by. Two that
    differ in it may lawfully be two bodies. None: that is not known."""
    names = varied(exchange)
    if names is None or exchange.response is None:
        return None
    fields = exchange.response.fields
    coding = b",".join(all_fields(fields, b"content-encoding")).strip().lower()
    return media_type(fields), coding, all_fields(fields, b"content-language"), asked_by(exchange, names)


def from_cache(exchange: Exchange) -> bool:
    """Whether the answer says that it came out of a cache."""
    if exchange.response is None:
        return False
    fields = exchange.response.fields
    return bool(all_fields(fields, b"age")) or any(
        _HIT.search(value) for name in _HITS for value in all_fields(fields, name)
    )


class Spells:
    """The stretches of time in which nothing was put back: what a validator names holds within one of them."""

    def __init__(self, exchanges: Iterable[Exchange], instants: Iterable[int] = ()) -> None:
        """`instants`: when an episode began that may have reset the instance."""
        breaks = [(at, at) for at in instants]
        breaks += [_interval(exchange) for exchange in exchanges if exchange.is_reset]
        breaks.sort()
        self._begun = [begin for begin, _ in breaks]
        self._latest: list[int] = []
        for _, end in breaks:
            self._latest.append(max(end, self._latest[-1]) if self._latest else end)

    def of(self, exchange: Exchange) -> int | None:
        """The number of the stretch that an exchange lies in; None: something was put back while it ran."""
        begin, end = _interval(exchange)
        number = bisect_right(self._begun, end)
        return None if number and self._latest[number - 1] >= begin else number


def _interval(exchange: Exchange) -> tuple[int, int]:
    times = exchange.times
    return times.fwd if times.fwd is not None else times.head, NEVER if times.up_end is None else times.up_end
