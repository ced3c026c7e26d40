"""Validators (ETag, Last-Modified): opaque names of a representation, compared by what they tell apart.

For each URI the validators of A must be those of B under one injective renaming. Then the runs agree on which of
their answers are one representation and which are not, which is all that a validator says. A validator that stays
while the other run's changes, or the other way round, breaks the renaming and is a difference.
"""

from __future__ import annotations

from collections.abc import Iterable

from replayproxy.core.canonical import field
from replayproxy.core.difference import Difference
from replayproxy.core.renaming import Renaming
from replayproxy.core.values import Exchange

_KINDS = {"etag": "etag", "if-match": "etag", "if-none-match": "etag", "if-range": "etag",
          "last-modified": "last-modified", "if-modified-since": "last-modified",
          "if-unmodified-since": "last-modified"}  # fmt: skip


class Validators:
    """The renaming of each URI, worked out when the first validator differs."""

    def __init__(self, pairs: Iterable[tuple[Exchange, Exchange]]) -> None:
        self._pairs = pairs
        self._by_uri: dict[tuple[str, str], Renaming] | None = None
        self._values: set[tuple[str, str]] = set()

    def explains(self, difference: Difference, uri: str) -> bool:
        """Whether a header's value is the other's under the renaming of its URI (a condition: of any URI)."""
        kind = _KINDS[str(difference.tokens[-1] if isinstance(difference.tokens[-1], str) else difference.tokens[-2])]
        known = self._known()
        lists = [split_validators(text) for text in (difference.a, difference.b)]
        if len(lists[0]) != len(lists[1]):
            return False
        own = known.get((kind, uri))
        for a, b in zip(*lists, strict=True):
            at_home = own is not None and own.knows(a, b)
            if a != b and not at_home and not (difference.asked and (_bare(a), _bare(b)) in self._values):
                return False
        return True

    def knows(self, a: str, b: str) -> bool:
        """Whether a token of a body is a validator that differed so in a header."""
        return self._by_uri is not None and (a, b) in self._values

    def _known(self) -> dict[tuple[str, str], Renaming]:
        if self._by_uri is None:
            self._by_uri = {}
            for a, b in self._pairs:
                self._learn(a, b, self._by_uri)
        return self._by_uri

    def _learn(self, a: Exchange, b: Exchange, known: dict[tuple[str, str], Renaming]) -> None:
        if a.response is None or b.response is None:
            return
        for kind in ("etag", "last-modified"):
            x, y = (field(e.response.fields, kind.encode()) for e in (a, b) if e.response)
            if x is None or y is None or x.startswith(b"W/") is not y.startswith(b"W/"):
                continue
            left, right = x.decode("latin-1"), y.decode("latin-1")
            renaming = known.setdefault((kind, uri_of(a)), Renaming(chains=True))
            if renaming.admit(left, right) and left != right:
                self._values.add((_bare(left), _bare(right)))


def uri_of(exchange: Exchange) -> str:
    """The URI whose representation an exchange is about."""
    return f"{exchange.env} {exchange.request.target.decode('latin-1')}"


def split_validators(text: str) -> list[str]:
    """The members of an If-Match list; a date is one member though it has a comma."""
    return [part.strip() for part in text.split(",")] if '"' in text else [text.strip()]


def _bare(validator: str) -> str:
    return validator.removeprefix("W/").strip('"')
