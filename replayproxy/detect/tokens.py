"""Version tokens: a member or a header that only ever rises tells by itself which of two answers is the older one.

Whether it does is learned from the recording, from sources that no cache stands before: snapshots that follow each
other, and the answers of writes that follow each other. A name may suggest it (`version`, `updated_at`, `ETag`); what
counts is that it rose at every change that was seen, and that no client ever set it. A token is worth more than an
interval: it knows of writers that nobody recorded, and of a value that was put back to what it had been.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, NamedTuple

from replayproxy.core.templates import template_of
from replayproxy.detect.cells import Row
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import Effect, Op
from replayproxy.detect.timeline import Timeline

MIN_RISES = 3
"""Rises after which a member that is named like a version counts as one."""

MIN_RISES_UNNAMED = 20
"""The same for a member whose name says nothing: an amount may rise a few times by chance."""

_NAMED = re.compile(
    r"version|revision|modified|updated|changed|mtime|etag|generation|(?:^|_)(?:v|rev|seq|ts|lock|timestamp)$", re.I
)
_NUMBER = re.compile(r"\d{1,30}(?:\.\d{1,9})?\Z")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


class Key(NamedTuple):
    """A token of one kind of row: a column of a table (or of a path's template), or a header of a path's template.
    `env`: the environment, or the name of the snapshots that show the table."""

    env: str
    where: str
    name: str
    header: bool = False


class Rank(NamedTuple):
    """A token's value as something that has an order. Numbers and times have none among each other."""

    instant: bool
    value: Decimal


@lru_cache(maxsize=65536)
def _rank_of_text(text: str) -> Rank | None:
    text = text.strip().removeprefix("W/").strip('"')
    if _NUMBER.match(text):
        return Rank(False, Decimal(text))
    try:
        if _INSTANT.match(text):
            at = datetime.fromisoformat(text.replace("Z", "+00:00"))
        elif text[-3:] == "GMT":
            at = parsedate_to_datetime(text)
        else:
            return None
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return Rank(True, Decimal(int(at.timestamp())) + Decimal(at.microsecond) / 1_000_000)
    except (ValueError, OverflowError):
        return None


def rank(value: Any) -> Rank | None:
    """The order of a version, a validator or a time; None for what has none."""
    if isinstance(value, bool) or not isinstance(value, (str, int, Decimal)):
        return None
    text = str(value)
    return _rank_of_text(text) if len(text) <= 64 else None


def later(a: Rank | None, b: Rank | None) -> bool:
    """Whether `a` is surely later than `b`."""
    return a is not None and b is not None and a.instant == b.instant and a.value > b.value


@dataclass(slots=True)
class _Score:
    rises: int = 0
    leaps: bool = False  # a number that rises by a great part of itself: a checksum does, a version hardly
    wrong: bool = False  # it fell, stayed as it was at a change, or was set by a client


@dataclass(slots=True)
class Tokens:
    """What was learned of tokens so far in a run."""

    _scores: dict[Key, _Score] = field(default_factory=dict)

    def holds(self, key: Key) -> bool:
        """Whether the recording shows that it rises at every change."""
        score = self._scores.get(key)
        enough = MIN_RISES if _named(key) and not (score and score.leaps) else MIN_RISES_UNNAMED
        return score is not None and not score.wrong and score.rises >= enough

    def possible(self, key: Key) -> bool:
        """Whether it may turn out to be one: it holds, or is named like one and nothing speaks against it so far."""
        score = self._scores.get(key)
        return self.holds(key) or (_named(key) and not (score is not None and score.wrong))

    def rises(self, key: Key) -> int:
        score = self._scores.get(key)
        return score.rises if score else 0

    def note(self, key: Key, before: Any, after: Any) -> None:
        """The row changed, and the token with it from one value to the other."""
        old, new = rank(before), rank(after)
        if old is None and new is None and key not in self._scores:
            return  # it never was one
        score = self._scores.setdefault(key, _Score())
        if later(new, old):
            score.rises += 1
            score.leaps |= _leaps(old, new)
        else:
            score.wrong = True

    def was_set(self, key: Key) -> None:
        """A client chose its value."""
        self._scores.setdefault(key, _Score()).wrong = True

    # Learning

    def learn(self, timeline: Timeline, own: Iterable[Op], episode: str) -> None:
        """From the state's changes in one episode, and from the answers of its writes."""
        for change in timeline.changes:
            if timeline.shots[change.gap + 1].episode != episode:
                continue  # another episode's reading, which is learned from there
            if isinstance(change.before, dict) and isinstance(change.after, dict):
                for name in change.before.keys() & change.after.keys():
                    key = Key(timeline.name, change.row.table, name)
                    self.note(key, change.before[name], change.after[name])
        last: dict[tuple[str, Row | str], Op] = {}
        for op in sorted((op for op in own if op.effect is Effect.DONE), key=lambda op: op.fwd):
            for one in op.echoed:
                for name in op.asked:
                    if name in one.members and normal(op.asked[name]) == normal(one.members[name]):
                        self.was_set(key_of(timeline, op, one.row, name))
            self._compare(timeline, last, op)

    def _compare(self, timeline: Timeline, last: dict[tuple[str, Row | str], Op], op: Op) -> None:
        """The tokens that a write's answer shows with those of the write before it on the same row or path."""
        if op.method not in ("PUT", "PATCH", "POST") or op.status is None or not 200 <= op.status < 300:
            return
        subjects: list[Row | str] = [one.row for one in op.echoed]
        for subject in [*subjects, op.target]:
            before = last.get((op.env, subject))
            last[op.env, subject] = op
            if before is None or before.end >= op.fwd:
                continue
            if isinstance(subject, str):
                tags, newer = dict(before.validators), dict(op.validators)
                for name in tags.keys() & newer.keys():
                    self.note(header_key(op, name), tags[name], newer[name])
            elif subject.of_path:
                old = next(one.members for one in before.echoed if one.row == subject)
                new = next(one.members for one in op.echoed if one.row == subject)
                for name in old.keys() & new.keys() - op.asked.keys():
                    self.note(key_of(timeline, op, subject, name), old[name], new[name])


def _leaps(old: Rank | None, new: Rank | None) -> bool:
    if old is None or new is None or old.instant:
        return False
    step = new.value - old.value
    return step > 1000 and step * 100 > new.value


def _named(key: Key) -> bool:
    return key.header or bool(_NAMED.search(key.name))


@lru_cache(maxsize=16384)
def _template(path: str) -> str:
    return template_of(path.encode())


def key_of(timeline: Timeline, op: Op, row: Row, name: str) -> Key:
    """The token that a member of a row is."""
    return Key(op.env, _template(row.table), name) if row.of_path else Key(timeline.name, row.table, name)


def header_key(op: Op, name: str) -> Key:
    return Key(op.env, _template(op.target.partition("?")[0]), name, header=True)
