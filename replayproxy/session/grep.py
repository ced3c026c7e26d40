"""`grep`: where a text stands in what was recorded: targets, header fields, bodies (decoded), messages, rows of states.

Streams: one exchange at a time is in memory. What a secret was replaced by is found by its token, never by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from replayproxy.core import jsonvalue, prolly
from replayproxy.core.canonical import decoded
from replayproxy.core.values import Body, Episode, Exchange, Fields, Run, Snapshot
from replayproxy.errors import StoreTrouble, WrongUsage
from replayproxy.session.look import Found
from replayproxy.session.pattern_probe import why_too_slow
from replayproxy.session.porting import bucket
from replayproxy.storage import Reader

AROUND = 30
PLACES = ("request", "answer", "state")
SAID = 80
"""Characters of a wrong expression that are said again."""

BODY_MOST = 64 * 1024 * 1024
"""Bytes of a body that is looked into; of a longer one that is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """`where`: `request target`, `answer body`, `state deals/42`, ..; `snippet`: the text around, `at` where in it the
    match begins, `length` its length."""

    address: str
    where: str
    snippet: str
    at: int
    length: int

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def pattern(text: str, *, ignore_case: bool, regex: bool) -> re.Pattern[str]:
    """What is looked for. Raises WrongUsage for a regular expression that is none, or that could take for ever."""
    if not text:
        raise WrongUsage("there is nothing to look for", hint="grep RUN TEXT")
    if regex:
        try:
            re.compile(text)
        except (re.error, OverflowError) as wrong:
            raise WrongUsage(f"{text[:SAID]!r} is no regular expression: {wrong}") from wrong
        except RecursionError as wrong:
            raise WrongUsage(f"{text[:SAID]!r} is nested too deeply for a regular expression") from wrong
        if why := why_too_slow(text, of_text=True):
            raise WrongUsage(f"{text[:SAID]!r}: {why}", hint="a simpler expression, or a plain text")
    return re.compile(text if regex else re.escape(text), re.IGNORECASE if ignore_case else 0)


def grep(
    found: Found, wanted: re.Pattern[str], places: Sequence[str] = PLACES, skipped: list[str] | None = None
) -> Iterator[Hit]:
    """Every place of a run, an episode, an exchange or a snapshot that holds it, in order; of one place the first.

    `skipped` is given the bodies that are too large to be looked into.
    """
    left = [] if skipped is None else skipped
    named, reader = found.resolved, found.reader
    if named.finding is not None:
        raise WrongUsage(f"{named.text} is a finding", hint="grep RUN, RUN/EPISODE or RUN/EPISODE#SEQ")
    episodes = [named.episode] if named.episode else [*reader.episodes(named.run), *bucket(reader, named.run)]
    for episode in episodes:
        head = f"{named.run.name}/{episode.name}"
        if named.snapshot is None:
            exchanges = [reader.exchange(episode, named.seq)] if named.seq else reader.exchanges(episode)
            for exchange in exchanges:
                yield from _exchange(reader, f"{head}#{exchange.seq}", exchange, wanted, places, left)
        if named.seq is None and "state" in places:
            yield from _states(reader, named.run, episode, named.snapshot, wanted)


def _exchange(
    reader: Reader, address: str, exchange: Exchange, wanted: re.Pattern[str], places: Sequence[str], left: list[str]
) -> Iterator[Hit]:
    request, response = exchange.request, exchange.response
    if "request" in places:
        yield from _hit(address, "request target", _text(request.method + b" " + request.target), wanted)
        yield from _fields(address, "request", request.fields, wanted)
        yield from _body(reader, address, "request body", request.fields, request.body, wanted, left)
    if "answer" in places and response is not None:
        yield from _fields(address, "answer", response.fields, wanted)
        yield from _body(reader, address, "answer body", response.fields, response.body, wanted, left)
    if exchange.websocket is not None:
        for number, message in enumerate(reader.messages(exchange.websocket), 1):
            side = "request" if message.from_agent else "answer"
            if side in places:
                yield from _hit(address, f"{side} message {number}", _text(message.payload), wanted)


def _fields(address: str, side: str, fields: Fields, wanted: re.Pattern[str]) -> Iterator[Hit]:
    for name, value in fields:
        yield from _hit(address, f"{side} header {_text(name)}", f"{_text(name)}: {_text(value)}", wanted)


def _body(
    reader: Reader,
    address: str,
    where: str,
    fields: Fields,
    body: Body | None,
    wanted: re.Pattern[str],
    left: list[str],
) -> Iterator[Hit]:
    if body is None or body.size == 0:
        return
    if body.size > BODY_MOST:
        left.append(f"{address} {where} ({body.size:,} bytes)")
        return
    raw = reader.body(body)
    plain = decoded(fields, raw)
    yield from _hit(address, where, _text(raw if plain is None else plain), wanted)


def _states(reader: Reader, run: Run, episode: Episode, n: int | None, wanted: re.Pattern[str]) -> Iterator[Hit]:
    """Rows of the snapshots; of each series all of the first, then what changed from one to the next."""
    last: dict[str, bytes] = {}
    for shot in reader.snapshots(episode):
        if shot.root is None or (n is not None and shot.n != n):
            continue
        yield from _rows(reader, f"{run.name}/{episode.name}/s{shot.n}", shot, last.get(shot.name), wanted)
        last[shot.name] = shot.root


def _rows(reader: Reader, address: str, shot: Snapshot, before: bytes | None, wanted: re.Pattern[str]) -> Iterator[Hit]:
    assert shot.root is not None
    try:
        if before is None:
            for table, rows in prolly.rows(shot.root, reader.node).items():
                for key, row in rows.items():
                    yield from _row(address, table, key, row, wanted)
        else:
            for change in prolly.diff(before, shot.root, reader.node):
                yield from _row(address, change.table, change.key, change.after, wanted)
    except ValueError as error:
        raise StoreTrouble(f"the state of {address} cannot be read: {error}") from error


def _row(address: str, table: str, key: str, row: Any, wanted: re.Pattern[str]) -> Iterator[Hit]:
    if row is None:
        return
    shown = _text(row) if isinstance(row, bytes) else _text(jsonvalue.canonical(row))
    hits = list(islice(_hit(address, f"state {table}/{key}", shown, wanted), 1))
    yield from hits or _hit(address, f"state {table}/{key}", f"{table}/{key}", wanted)


def _hit(address: str, where: str, text: str, wanted: re.Pattern[str]) -> Iterator[Hit]:
    found = wanted.search(text)
    if found is None:
        return
    begin, end = max(0, found.start() - AROUND), min(len(text), found.end() + AROUND)
    lead = "…" if begin else ""
    snippet = lead + text[begin:end] + ("…" if end < len(text) else "")
    yield Hit(
        address=address, where=where, snippet=snippet, at=found.start() - begin + len(lead),
        length=found.end() - found.start(),
    )  # fmt: skip


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
