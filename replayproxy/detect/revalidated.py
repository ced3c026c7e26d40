"""Answers 304: what the requester holds is current, says the environment. So it has been shown it once more.

Which representation that is, is known only if the requester was given it under the validator that the request names,
earlier in the same episode, with no reset since, and never another one under the same name. Else a 304 shows nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from replayproxy.core.canonical import all_fields
from replayproxy.core.validators import split_validators
from replayproxy.core.values import Exchange, Outcome
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import Effect, Op
from replayproxy.detect.representations import Spells, asked_by, modified_of, shows, subject, tag, tag_of, varied
from replayproxy.detect.views import Views


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """What a 304 says is current: the answer `seq`. `weak`: the validator may stay when a change does not matter."""

    seq: int
    weak: bool


@dataclass(frozen=True, slots=True)
class _Held:
    """The name of what a requester holds."""

    kind: str
    text: str
    weak: bool = False


def stands(exchanges: Iterable[Exchange], spells: Spells, views: Views) -> dict[int, Stand]:
    """By number of each 304 whose representation is known."""
    ordered = list(exchanges)
    asked = [exchange for exchange in ordered if _is_304(exchange)]
    if not asked:
        return {}
    given: dict[Hashable, list[Exchange]] = defaultdict(list)
    for exchange in ordered:
        if shows(exchange):
            for held in _names(exchange):
                given[spells.of(exchange), subject(exchange), held.kind, held.text].append(exchange)
    found = {}
    for exchange in asked:
        asked_of, spell = _held(exchange), spells.of(exchange)
        if asked_of is not None and spell is not None:
            key = spell, subject(exchange), asked_of.kind, asked_of.text
            stand = _stand(exchange, asked_of, given.get(key, ()), views)
            if stand is not None:
                found[exchange.seq] = stand
    return found


def _is_304(exchange: Exchange) -> bool:
    return (
        exchange.response is not None and exchange.response.status == 304 and exchange.request.method == b"GET"
        and exchange.outcome is Outcome.ANSWERED and not exchange.is_reset
    )  # fmt: skip


def _names(exchange: Exchange) -> Iterator[_Held]:
    """The names under which an answer was given."""
    assert exchange.response is not None
    found, changed = tag_of(exchange.response.fields), modified_of(exchange.response.fields)
    if found is not None:
        yield _Held("etag", found.text, found.weak)
    if changed is not None:
        yield _Held("last-modified", changed)


def _held(exchange: Exchange) -> _Held | None:
    """The validator that the 304 speaks of. A condition by time counts only without one by ETag."""
    assert exchange.response is not None
    texts = [value.decode("latin-1") for value in all_fields(exchange.request.fields, b"if-none-match")]
    current = tag_of(exchange.response.fields)
    if not texts:
        since = all_fields(exchange.request.fields, b"if-modified-since")
        return _Held("last-modified", since[0].decode("latin-1").strip()) if len(since) == 1 else None
    named = [tag(text) for listed in texts for text in split_validators(listed)]
    sent = [one for one in named if one is not None]
    if len(sent) != len(named):
        return None
    if current is not None:
        sent = [one for one in sent if one.text == current.text]
    if len({one.text for one in sent}) != 1:
        return None
    return _Held("etag", sent[0].text, any(one.weak for one in sent) or (current is not None and current.weak))


def _stand(exchange: Exchange, held: _Held, given: Sequence[Exchange], views: Views) -> Stand | None:
    fitting = [one for one in given if _asked_alike(one, exchange)]
    bodies = {views.of(one.response.fields, one.response.body).key for one in fitting if one.response is not None}
    begun = exchange.times.fwd
    before = [one for one in fitting if begun is not None and one.times.up_end is not None and one.times.up_end < begun]
    if len(bodies) != 1 or not before:
        return None
    last = max(before, key=lambda one: one.times.up_end or 0)
    weak = held.weak or any(name.weak for name in _names(last) if name.kind == held.kind)
    return Stand(seq=last.seq, weak=weak)


def _asked_alike(given: Exchange, again: Exchange) -> bool:
    names = varied(given)
    return names is not None and asked_by(given, names) == asked_by(again, names)


def as_readings(ops: Sequence[Op], known: Mapping[int, Stand]) -> list[Op]:
    """The operations, each known 304 as a reading of the rows that the answer it speaks of showed."""
    if not known:
        return list(ops)
    by_seq = {op.seq: op for op in ops}
    wrote: dict[tuple[str, str, str], list[Op]] = defaultdict(list)
    for op in ops:
        told = tag(op.tag) if op.effect is not Effect.NONE else None
        if told is not None:
            wrote[op.env, op.target, told.text].append(op)
    return [_reading(op, by_seq, known, wrote) for op in ops]


def _reading(
    op: Op, by_seq: Mapping[int, Op], known: Mapping[int, Stand], wrote: Mapping[tuple[str, str, str], Sequence[Op]]
) -> Op:  # fmt: skip
    stand = known.get(op.seq)
    given = by_seq.get(stand.seq) if stand is not None else None
    if stand is None or given is None or not op.reads or not given.rows:
        return op
    told = tag(given.tag)
    if told is not None and any(_unlike(given, one) for one in wrote.get((op.env, op.target, told.text), ())):
        return op
    return replace(
        op, rows=given.rows, again=given, weak=stand.weak, fresh_for=max(op.fresh_for, given.fresh_for)
    )  # fmt: skip


def _unlike(given: Op, write: Op) -> bool:
    """Whether the answer of a write shows a row otherwise under the same validator."""
    shown = {one.row: one.members for one in given.rows}
    return any(
        normal(value) != normal(shown[one.row][column])
        for one in write.echoed if one.row in shown
        for column, value in one.members.items() if column in shown[one.row]
    )  # fmt: skip
