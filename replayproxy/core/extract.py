"""What the extracting rules find in an exchange: ids, and what else tells whose it is. Pure; the caller decides.

Rules of this file: nothing raises for what was on the wire; what is no JSON, too long or not there is no value. A body
is decoded and parsed at most once for all rules, and only where a rule asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from replayproxy.core.canonical import decoded
from replayproxy.core.decoding import VALUE_LIMIT, decode
from replayproxy.core.extractrule import ExtractRule, extract_rules
from replayproxy.core.extractsource import at_pointer, documents, in_answer, in_head, parsed
from replayproxy.core.redact_token import TOKEN
from replayproxy.core.values import Fields
from replayproxy.errors import WrongUsage

BODY_LIMIT = 1024 * 1024
"""Rules are not applied to a longer body, which is counted."""

FRAME_LIMIT = 64 * 1024
KEPT = 4096
"""Endpoints whose rules are remembered."""

REDACTED = re.compile(TOKEN.pattern.decode())
"""What stands in a recording, and so comes back in a replay, in place of a secret value."""

NO = frozenset({"false", "null", ""})
"""The values of `end` and `probe` that say no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One value and the rule that found it. `redacted`: it is the token that stands for the whole source value, which
    cannot be decoded any more."""

    rule: ExtractRule
    value: str
    redacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """All that was found, in the order of the rules. `too_large`: a body that a rule asked for was not looked at."""

    found: tuple[Found, ...] = ()
    too_large: bool = False

    def first(self, fills: str) -> Found | None:
        return next((one for one in self.found if one.rule.fills == fills), None)

    def value(self, fills: str) -> str | None:
        one = self.first(fills)
        return None if one is None else one.value

    @property
    def episode(self) -> str | None:
        return self.value("episode")

    @property
    def lane(self) -> str | None:
        return self.value("lane")

    @property
    def aliases(self) -> tuple[Found, ...]:
        return tuple(one for one in self.found if one.rule.fills == "alias")

    def says(self, fills: str) -> bool:
        """Whether a rule for `end` or `probe` says yes."""
        return any(one.rule.fills == fills and one.value.lower() not in NO for one in self.found)

    def __bool__(self) -> bool:
        return bool(self.found)

    def __add__(self, other: Extracted) -> Extracted:
        seen = {(one.rule.name, one.value) for one in self.found}
        more = tuple(one for one in other.found if (one.rule.name, one.value) not in seen)
        return Extracted(found=self.found + more, too_large=self.too_large or other.too_large)


NOTHING = Extracted()


@dataclass(frozen=True, slots=True)
class Asks:
    """The rules that apply at one endpoint, by what they look at."""

    head: tuple[ExtractRule, ...] = ()
    body: tuple[ExtractRule, ...] = ()
    answer: tuple[ExtractRule, ...] = ()
    frames: tuple[ExtractRule, ...] = ()

    @property
    def answer_body(self) -> bool:
        return any(rule.source == "answer" for rule in self.answer)

    @property
    def later(self) -> bool:
        """Whether the answer or a message may still name an episode."""
        return any(rule.fills in ("episode", "alias") for rule in (*self.answer, *self.frames))

    @property
    def body_names(self) -> bool:
        return any(rule.fills in ("episode", "alias") for rule in self.body)


class Extractors:
    """The rules of a run. `expired` names those whose last day is over: they are not applied."""

    def __init__(self, rules: Sequence[ExtractRule], today: date | None = None) -> None:
        self.rules = tuple(rule for rule in rules if not _expired(rule, today))
        self.expired = tuple(rule.name for rule in rules if _expired(rule, today))
        self._asks: dict[tuple[str, bytes, bytes], Asks] = {}

    def __bool__(self) -> bool:
        return bool(self.rules)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(rule.name for rule in self.rules)

    def asks(self, env: str, method: bytes, target: bytes) -> Asks:
        path = target.partition(b"?")[0]
        key = (env, method, path)
        known = self._asks.get(key)
        if known is None:
            if len(self._asks) >= KEPT:
                self._asks.clear()
            known = self._asks[key] = self._asked(env, f"{_latin(method)} {_latin(path)}")
        return known

    def _asked(self, env: str, line: str) -> Asks:
        here = [rule for rule in self.rules if rule.env in (None, env) and rule.at.match(line)]
        return Asks(
            head=tuple(rule for rule in here if rule.of_request and rule.source != "body"),
            body=tuple(rule for rule in here if rule.source == "body"),
            answer=tuple(rule for rule in here if rule.of_answer),
            frames=tuple(rule for rule in here if rule.source == "connection"),
        )

    def of_request(self, env: str, method: bytes, target: bytes, fields: Fields, body: bytes | None) -> Extracted:
        """`body` is as it was on the wire; None: not here yet, or not kept."""
        asks = self.asks(env, method, target)
        if not asks.head and (not asks.body or body is None):
            return NOTHING
        found = [one for rule in asks.head for one in _values(rule, in_head(rule, target, fields))]
        if not asks.body or body is None:
            return Extracted(found=tuple(found))
        return Extracted(found=tuple(found), too_large=len(body) > BODY_LIMIT) + _in_body(asks.body, fields, body)

    def of_answer(self, env: str, method: bytes, target: bytes, fields: Fields, body: bytes | None) -> Extracted:
        """What the answer to a request says. `fields` and `body` are the answer's."""
        asks = self.asks(env, method, target)
        if not asks.answer:
            return NOTHING
        found = [
            one for rule in asks.answer if rule.source != "answer" for one in _values(rule, in_answer(rule, fields))
        ]
        in_body = tuple(rule for rule in asks.answer if rule.source == "answer")
        if not in_body or body is None:
            return Extracted(found=tuple(found))
        return Extracted(found=tuple(found), too_large=len(body) > BODY_LIMIT) + _in_body(in_body, fields, body)

    def of_frame(self, env: str, target: bytes, text: bytes, from_agent: bool) -> Extracted:
        """What one WebSocket message says. Only the agent's own messages name anything."""
        asks = self.asks(env, b"GET", target)
        named = [rule for rule in asks.frames if rule.frame is not None]
        if not named or not from_agent or len(text) > FRAME_LIMIT:
            return NOTHING
        value = parsed(text)
        return Extracted(
            found=tuple(one for rule in named for one in _values(rule, at_pointer(value, rule.frame or "")))
        )


def compile_extractors(tables: Sequence[Mapping[str, Any]], today: date | None = None) -> Extractors:
    """The rules as a file or a run holds them. Raises WrongUsage."""
    return Extractors(extract_rules(tables), today)


def run_examples(rules: Iterable[ExtractRule]) -> None:
    """Raises WrongUsage for a rule that has no example, or whose example does not give its value."""
    for rule in rules:
        if rule.example is None:
            raise WrongUsage(
                f"rule {rule.name!r} has no example", hint='example = { request = "GET /x", .., value = "x" }'
            )
        given = example_value(rule)
        if given != rule.example["value"]:
            told = "no value" if given is None else repr(given)
            raise WrongUsage(f"rule {rule.name!r}: its example gives {told}, not {rule.example['value']!r}")


def example_value(rule: ExtractRule) -> str | None:
    """What a rule finds in its own example."""
    example = rule.example or {}
    alone = Extractors([rule])
    method, _, target = str(example.get("request", "")).partition(" ")
    line = (rule.env or "", method.encode(), target.encode())
    fields, answered = _fields(example.get("headers", ())), _fields(example.get("answer-headers", ()))
    body = str(example.get("body", "")).encode()
    found = alone.of_request(*line, fields, body) + alone.of_answer(*line, answered, _answer(example))
    if "frame" in example:
        found += alone.of_frame(line[0], line[2], str(example["frame"]).encode(), True)
    return found.found[0].value if found.found else None


def _answer(example: Mapping[str, Any]) -> bytes:
    return str(example.get("answer", "")).encode()


def _fields(lines: Sequence[str]) -> Fields:
    pairs = (line.partition(":") for line in lines)
    return tuple((name.strip().encode(), value.strip().encode()) for name, _, value in pairs)


def _expired(rule: ExtractRule, today: date | None) -> bool:
    return rule.until is not None and today is not None and today > rule.until


def _values(rule: ExtractRule, raws: Iterable[str]) -> list[Found]:
    """What the rule makes of the values of its source; the first that can be decoded, for ids each of them."""
    found: list[Found] = []
    for raw in raws:
        if REDACTED.fullmatch(raw):
            found.append(Found(rule=rule, value=raw, redacted=True))
        elif len(raw) <= VALUE_LIMIT and (value := decode(raw, rule.decode)) is not None:
            found.append(Found(rule=rule, value=value))
    return found if rule.fills == "alias" else found[:1]


def _in_body(rules: Sequence[ExtractRule], fields: Fields, body: bytes) -> Extracted:
    if not body or len(body) > BODY_LIMIT:
        return NOTHING
    plain = decoded(fields, body)
    if plain is None or len(plain) > BODY_LIMIT:
        return Extracted(too_large=plain is not None)
    values = documents(fields, plain)
    found = (
        one
        for rule in rules
        for one in _values(rule, (raw for each in values for raw in at_pointer(each, str(rule.wanted))))
    )
    return Extracted(found=tuple(found))


def _latin(raw: bytes) -> str:
    return raw.decode("latin-1")
