"""An exchange as judgements see it: an operation with its interval, what it may have done, what it shows.

The environment's effect lies in [fwd, up_end]. An exchange that had no whole answer, or an answer that says nothing
about the effect (5xx, 202), may take effect at any time after it began. Where the config declares that a write acts
within some time after its answer (`eventual`), its interval ends only then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from replayproxy.core.canonical import Kind, View, by_name
from replayproxy.core.effects import acts_within, is_write
from replayproxy.core.values import Exchange, Outcome, Run
from replayproxy.detect.cells import (
    PATHS,
    Place,
    Row,
    Shown,
    Tables,
    asks_for_the_past,
    created,
    lists_nothing,
    members_of,
    query_names,
    shown,
)
from replayproxy.detect.declared import fresh_for
from replayproxy.detect.history import NEVER
from replayproxy.detect.normal import normal
from replayproxy.detect.representations import viewer
from replayproxy.detect.views import Views

PRESENCE = ""
"""The column that stands for the row itself: its value is PRESENT or ABSENT."""
PRESENT, ABSENT = "present", "absent"
NO_VALUE = "(no value)"


class Effect(Enum):
    NONE = "none"  # it cannot have reached the environment, or it is a read
    DONE = "done"  # a write with its answer: whatever it did, it did within its interval
    OPEN = "open"  # a write that may take effect at any time after it began


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """`sets`: (row, column) -> value, as far as request and answer agree on it. `rows`: what a read showed.
    `absent`: the row that a read said is not there. `empty`: a read showed an empty list. `echoed`: the rows that the
    answer of a write shows. `validators`: the answer's ETag and Last-Modified. `fresh_for`: seconds for which it says
    that a cache may keep it; 0.0: it says nothing, infinite: it came out of a cache. `said`: the members of the object
    that a write was answered with; `about`: the rows of the state that its path names. `condition`: the version that a
    write demanded (If-Match), `tag` the one that an answer bears (ETag), `once` the key under which a repeat is the
    same write.
    `again`: the earlier answer that a 304 says is current, `weak`: by a validator that may outlast a change."""

    episode: str
    seq: int
    env: str
    lane: str
    method: str
    target: str
    status: int | None
    fwd: int
    end: int
    effect: Effect
    reads: bool
    place: Place | None
    rows: Sequence[Shown] = ()
    absent: Row | None = None
    empty: bool = False
    echoed: Sequence[Shown] = ()
    validators: Sequence[tuple[str, str]] = ()
    sets: Mapping[tuple[Row, str], str] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)
    fresh_for: float = 0.0
    query: tuple[str, ...] = ()
    is_reset: bool = False
    wall: int = 0
    answered: int | None = None  # when its answer had come; `end` may be later where it acts afterwards
    is_probe: bool = False
    who: int = 0  # equal for requests with equal credentials
    said: Mapping[str, Any] = field(default_factory=dict)
    about: tuple[Row, ...] = ()
    condition: str = ""
    tag: str = ""
    once: str = ""
    again: Op | None = None
    weak: bool = False

    @property
    def ok(self) -> bool:
        """Whether it was answered as done, and whatever it did lies within its interval."""
        return self.effect is Effect.DONE and self.status is not None and 200 <= self.status < 400

    @property
    def refused(self) -> bool:
        """Whether the answer says that nothing was done."""
        return self.effect is Effect.DONE and self.status is not None and 400 <= self.status < 500

    def touches(self, row: Row, paths: bool) -> bool:
        """Whether the write may be about the row, by its path."""
        if self.place is None or self.is_reset:
            return True
        if paths:
            a, b = self.place.table.split("/"), row.table.split("/")
            short = min(len(a), len(b))
            return a[:short] == b[:short]
        return self.place.table == row.table and self.place.key in (None, row.key)


def op_of(run: Run, episode: str, exchange: Exchange, tables: Tables, views: Views) -> Op:
    """The exchange in the light of the tables of its environment's state."""
    wiring = run.envs.get(exchange.env)
    writes = is_write(exchange.request, wiring.reads if wiring else ()) or exchange.websocket is not None
    within = acts_within(exchange.request, wiring.eventual) if wiring and writes else None
    effect = _effect(exchange, writes, declared=within is not None)
    end = exchange.times.up_end
    if within is not None and end is not None and effect is Effect.DONE:
        end += round(within * 1e9)
    place = tables.place(exchange.request.target)
    response = exchange.response
    asked_with = by_name(exchange.request.fields)
    told_with = by_name(response.fields) if response is not None else {}
    whole = response is not None and exchange.outcome is Outcome.ANSWERED
    answer = views.of(response.fields, response.body) if response is not None and whole else None
    status = response.status if response is not None else None
    reads = whole and effect is Effect.NONE and exchange.request.method != b"HEAD" and exchange.times.fwd is not None
    # A path that names no table of the state is a row of its own, which no snapshot shows.
    named, by = (place, tables) if place is not None else (PATHS.place(exchange.request.target), PATHS)
    past = asks_for_the_past(exchange.request.target)
    rows: Sequence[Shown] = ()
    absent: Row | None = None
    if reads and answer is not None and not past and status in (200, 203):
        rows = shown(answer, named, by)
    elif reads and not past and status in (404, 410) and named is not None and named.key is not None and not named.rest:
        absent = Row(named.table, named.key)
    empty = answer is not None and reads and not past and status == 200 and not rows and lists_nothing(answer)
    sets: Mapping[tuple[Row, str], str] = {}
    asked: Mapping[str, Any] = {}
    said: Mapping[str, Any] = {}
    echoed: Sequence[Shown] = ()
    if effect is not Effect.NONE:
        sent = views.of(exchange.request.fields, exchange.request.body)
        asked = _asked(sent)
        if status is not None and 200 <= status < 300 and answer is not None:
            made = created(answer, named, by) if exchange.request.method == b"POST" else None
            echoed = [made] if made else [one for one in shown(answer, named, by) if not one.listed]
            sets = _sets(exchange, named, asked, echoed, made=made is not None)
        said = members_of(answer, named) if answer is not None else {}
    return Op(
        episode=episode, seq=exchange.seq, env=exchange.env, lane=exchange.lane,
        method=exchange.request.method.decode("ascii", "replace"),
        target=exchange.request.target.decode("utf-8", "replace"), status=status,
        fwd=exchange.times.fwd if exchange.times.fwd is not None else exchange.times.head,
        end=NEVER if end is None or effect is Effect.OPEN else end,
        effect=effect, reads=reads and end is not None, place=place, rows=rows, absent=absent, empty=empty,
        echoed=echoed, validators=_validators(told_with) if whole else (), sets=sets, asked=asked,
        fresh_for=fresh_for(told_with), query=query_names(exchange.request.target), is_reset=exchange.is_reset,
        wall=exchange.times.wall, answered=exchange.times.up_end, is_probe=exchange.is_probe,
        who=hash(viewer(exchange.request.fields)),
        said=said, about=tables.named(exchange.request.target), condition=_field(asked_with, b"if-match"),
        tag=_field(told_with, b"etag"), once=_field(asked_with, b"idempotency-key"),
    )  # fmt: skip


type _Fields = Mapping[bytes, Sequence[bytes]]
"""Header fields by lower-case name."""


def _field(fields: _Fields, name: bytes) -> str:
    return b", ".join(fields.get(name, ())).decode("latin-1")


def _effect(exchange: Exchange, writes: bool, *, declared: bool) -> Effect:
    if not writes or exchange.times.fwd is None or exchange.outcome in (Outcome.LOCAL, Outcome.REFUSED):
        return Effect.NONE
    status = exchange.response.status if exchange.response else None
    whole = exchange.outcome is Outcome.ANSWERED and exchange.times.up_end is not None
    if exchange.websocket is not None:
        return Effect.DONE if exchange.times.up_end is not None else Effect.OPEN
    told = status is not None and status < 500 and (declared or status != 202)
    return Effect.DONE if whole and told else Effect.OPEN


def _asked(sent: View) -> dict[str, Any]:
    """The members of a request's body: those of the document, or of the one object in it."""
    if sent.kind is Kind.JSON and isinstance(sent.value, dict):
        inner = [item for item in sent.value.values() if isinstance(item, dict)]
        return dict(inner[0] if len(sent.value) == 1 and inner else sent.value)
    if sent.kind is Kind.FORM:
        return {_text(name): _text(value or b"") for name, value in sent.value}
    return {}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _sets(
    exchange: Exchange, place: Place | None, asked: Mapping[str, Any], echoed: Sequence[Shown], *, made: bool
) -> dict[tuple[Row, str], str]:
    """What the write surely set, by its own words: an echoed member that was asked for, a row made, a row deleted."""
    method = exchange.request.method
    if place is None or place.rest:
        return {}
    if method == b"DELETE":
        return {(Row(place.table, place.key), PRESENCE): ABSENT} if place.key is not None else {}
    if method not in (b"PUT", b"PATCH", b"POST"):
        return {}
    # Only 201 says that the row is new; an answer 200 may repeat what a cache believes of the other members.
    fresh = made and exchange.response is not None and exchange.response.status == 201
    sets = {
        (one.row, column): normal(value)
        for one in echoed for column, value in one.members.items() if fresh or column in asked
    }  # fmt: skip
    return {**sets, **{(one.row, PRESENCE): PRESENT for one in echoed if made or method == b"PUT"}}


def _validators(fields: _Fields) -> list[tuple[str, str]]:
    found = [(name, fields.get(name.lower().encode(), ())) for name in ("ETag", "Last-Modified")]
    return [(name, _text(values[0])) for name, values in found if len(values) == 1]
