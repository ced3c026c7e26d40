"""The secrets that an episode has shown so far: where else they stand, in another coding, they are replaced too.

Bounded: those shown last by each side are kept. What the agent sent and what the environment gave are kept apart,
because in replay the second are tokens already: what is remembered of the first must not depend on them.
"""

from __future__ import annotations

import base64
import re
from bisect import bisect_right
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from replayproxy.core.redact_token import TOKEN
from replayproxy.core.secretnames import is_secret_name

SHORTEST, LONGEST = 8, 4096
KEPT = 64
"""Secrets remembered of each side of an episode, those shown last, and at most learned from one message."""

# Words and numbers stand everywhere for other reasons; a value with a quote, or JSON, cannot be replaced as a span.
_COMMON = re.compile(rb"[a-z]{1,15}|[A-Z]?[a-z]{1,14}|-?[0-9.eE+-]+|[A-Z]{1,15}")
_UNFIT = re.compile(rb"[\"\x00-\x1f\x7f]|\A[\[{<]")

type Form = tuple[bytes, bytes]
"""What a secret looks like in a text, and what is put in its place."""


def is_learned(value: bytes, *, sure: bool) -> bool:
    """Whether a secret is looked for elsewhere. `sure`: a credential, where any word may be one."""
    if not SHORTEST <= len(value) <= LONGEST or _UNFIT.search(value) or TOKEN.search(value):
        return False
    if is_secret_name(value.decode("latin-1")):
        return False  # a member's name would be lost, and with it what is a secret
    return not (re.fullmatch(rb"[0-9.]+", value) if sure else _COMMON.fullmatch(value))


def forms(value: bytes, token: bytes) -> Iterator[Form]:
    """A secret as it is, percent-encoded, with JSON's escaped slash, and in base64 (where its token is, too)."""
    seen = {value}
    yield value, token
    text = value.decode("latin-1")
    for coded in (quote(text, safe="", encoding="latin-1"), quote_plus(text, encoding="latin-1")):
        for form in (coded.encode(), re.sub(r"%[0-9A-F]{2}", lambda m: m[0].lower(), coded).encode()):
            if form not in seen:
                seen.add(form)
                yield form, token
    if b"/" in value:
        yield value.replace(b"/", b"\\/"), token
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole, new = encode(value), base64.b64encode(token)
        if whole in seen:
            continue
        seen.add(whole)
        yield whole, new
        if whole.endswith(b"="):
            yield whole.rstrip(b"="), new.rstrip(b"=")
            yield whole.replace(b"=", b"%3D"), new.replace(b"=", b"%3D")


class Known:
    """What was learned, oldest first. What is read of it
    is whole at any time; of two threads that learn at once one may have to learn again."""

    def __init__(self) -> None:
        self._sides: tuple[dict[bytes, tuple[Form, ...]], dict[bytes, tuple[Form, ...]]] = ({}, {})
        self.forms: tuple[Form, ...] = ()
        self._whole: dict[bytes, bytes] = {}

    def learn(self, value: bytes, token: bytes, *, of_answer: bool, sure: bool) -> bool:
        """Remembers it, if it is worth it and new, and says so; the oldest of its side may go."""
        if value in self._sides[of_answer]:
            self._renew(value, of_answer)
            return False
        if not is_learned(value, sure=sure):
            return False
        side = {**self._sides[of_answer], value: tuple(forms(value, token))}
        while len(side) > KEPT:
            del side[next(iter(side))]
        self._sides = (self._sides[0], side) if of_answer else (side, self._sides[1])
        # The longest first: a secret that begins with another is replaced as a whole.
        every = [form for one in self._sides for made in one.values() for form in made]
        self.forms = tuple(sorted(dict.fromkeys(every), key=lambda form: -len(form[0])))
        self._whole = dict(reversed(self.forms))
        return True

    def _renew(self, value: bytes, of_answer: bool) -> None:
        """What is shown again is not the oldest: a credential that is in every request outlasts those of one each."""
        side = self._sides[of_answer]
        if 2 * len(side) < KEPT or next(reversed(side)) == value:
            return
        side = {one: made for one, made in side.items() if one != value} | {value: side[value]}
        self._sides = (self._sides[0], side) if of_answer else (side, self._sides[1])

    def copy(self) -> Known:
        """The same knowledge, to be added to apart."""
        made = Known()
        made.become(self)
        return made

    def become(self, other: Known) -> None:
        """From now on what the other knows."""
        self._sides, self.forms, self._whole = other._sides, other.forms, other._whole

    def in_text(self, text: bytes) -> bool:
        for form, _ in self.forms:  # noqa: SIM110 - a generator costs twice as much, and every exchange asks
            if form in text:
                return True
        return False

    def replaced(self, text: bytes) -> bytes:
        """A text with every known secret in it replaced."""
        if (whole := self._whole.get(text)) is not None:
            return whole
        every = self.forms
        # Most texts that are asked about are shorter than most forms, and there may be very many.
        for form, new in every[bisect_right(every, -len(text), key=lambda form: -len(form[0])) :]:
            if form in text:
                text = text.replace(form, new)
        return text
