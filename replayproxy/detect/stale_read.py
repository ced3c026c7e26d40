"""Stale reads: a read returned a value although everyone who had written it was surely overwritten before it began.

Looks at the cells that changed while an episode ran, or that its writes set; asks `history` about each read of them.
Without snapshots only what an own write echoed can be missed, and then nothing can be proven, because writers that
did not pass the proxy would go unnoticed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from replayproxy.detect.agreement import Agreement, Pair
from replayproxy.detect.cells import Row, Shown
from replayproxy.detect.history import ALWAYS, NO_LINE, Blind, History, Reading, State, Verdict, Version, judge
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import ABSENT, PRESENCE, PRESENT, Op
from replayproxy.detect.timeline import Timeline, cell

COVERAGE_GATE = 0.99
"""The share of state changes that recorded writes must explain before a stale read counts as proven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One cell in one answer. `pair` None: there is no state to compare with."""

    op: Op
    row: Row
    column: str
    value: Any
    pointer: str
    pair: Pair | None

    @property
    def normal(self) -> str:
        return str(self.value) if self.column == PRESENCE else normal(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """A cell read out of date, before it is folded with what follows from the same write."""

    sight: Sight
    verdict: Verdict
    writer: Op | None
    current: Any
    unknown_beside: int


@dataclass(slots=True)
class Judged:
    """What came of one episode's reads of one state."""

    stale: list[Stale] = field(default_factory=list)
    current: int = 0
    bare: int = 0  # of the current ones, those that only say that a row is there: itself, or its key
    unknown: int = 0
    mapped: int = 0  # reads that show a row as a snapshot beside them does
    declared: int = 0


def look(timeline: Timeline, own: Sequence[Op], agreement: Agreement) -> Judged:
    """Judges the reads of one episode (`own`), and adds to what is known of the members of answers."""
    result = Judged()
    reads = [op for op in own if op.reads]
    if timeline.shots:
        _learn(timeline, reads, agreement)
    effects = _effects(timeline)
    rows = {row for row, _ in effects} | {change.row for change in timeline.changes}
    sights = _sights(timeline, reads, rows, agreement, result)
    for (row, column), seen in sights.items():
        history = _history(timeline, effects, row, column, seen)
        verdicts = judge(history)
        unknown = sum(verdict.state is State.UNKNOWN for verdict in verdicts)
        for verdict in verdicts:
            _count(timeline, result, verdict, unknown)
    return result


def _count(timeline: Timeline, result: Judged, verdict: Verdict, unknown: int) -> None:
    if verdict.state is State.UNKNOWN:
        result.unknown += 1
    elif verdict.state is State.CURRENT:
        result.current += 1
        sight: Sight = verdict.reading.ref
        result.bare += sight.column == PRESENCE or str(sight.value) == sight.row.key
    else:
        stale = _stale(timeline, verdict, unknown)
        if _declared(stale):
            result.declared += 1
        else:
            result.stale.append(stale)


# What the reads showed


def _pair(op: Op, one: Shown, column: str) -> Pair:
    at = one.at.rpartition("/")[0] + "/*" if one.listed else one.at
    return Pair(env=op.env, table=one.row.table, pointer=at, column=column, query=op.query)


def _learn(timeline: Timeline, reads: Sequence[Op], agreement: Agreement) -> None:
    for op in reads:
        near = list(timeline.near(op.fwd, op.end))
        for one in op.rows:
            for index in near if timeline.shows(one.row) else ():
                if timeline.quiet(one.row, op.fwd, op.end, index):
                    _compare(timeline, op, one, index, agreement)
                    break


def _compare(timeline: Timeline, op: Op, one: Shown, index: int, agreement: Agreement) -> None:
    content = timeline.row_at(one.row, index)
    since = op.fwd - (timeline.writes.ended_before(op.fwd) or timeline.line.done[0])
    shown = {PRESENCE: PRESENT}
    if isinstance(content, dict):
        shown |= {column: normal(value) for column, value in one.members.items() if column in content}
    for column, value in shown.items():
        pair = _pair(op, one, column)
        if value == cell(content, column):
            agreement.agree(pair, value)
        else:
            before = {held for at, held in timeline.values(one.row, column) if at <= index}
            agreement.disagree(pair, since_write=since, earlier=value in before)


def _sights(
    timeline: Timeline, reads: Sequence[Op], rows: set[Row], agreement: Agreement, result: Judged
) -> dict[tuple[Row, str], list[Sight]]:
    found: dict[tuple[Row, str], list[Sight]] = defaultdict(list)
    for op in reads:
        result.mapped += _as_the_state(timeline, op)
        for one in op.rows:
            if one.row in rows:
                for sight in _shown(op, one, with_pair=timeline.shows(one.row)):
                    if sight.pair is None or not agreement.dropped(sight.pair):
                        found[one.row, sight.column].append(sight)
    for row, sight in _not_there(timeline, reads, rows, found):
        found[row, PRESENCE].append(sight)
    return found


def _as_the_state(timeline: Timeline, op: Op) -> bool:
    """Whether the read agrees with a snapshot beside it: in a column, beyond the row's key, or in a row's absence."""
    for index in timeline.near(op.fwd, op.end):
        if op.absent is not None and timeline.shows(op.absent) and timeline.row_at(op.absent, index) is None:
            return True
        for one in op.rows:
            content = timeline.row_at(one.row, index) if timeline.shows(one.row) else None
            if isinstance(content, dict) and any(
                column in content and str(value) != one.row.key and normal(value) == cell(content, column)
                for column, value in one.members.items()
            ):
                return True
    return False


def _shown(op: Op, one: Shown, *, with_pair: bool) -> Iterator[Sight]:
    yield Sight(
        op=op, row=one.row, column=PRESENCE, value=PRESENT, pointer=one.at,
        pair=_pair(op, one, PRESENCE) if with_pair else None,
    )  # fmt: skip
    for column, value in one.members.items():
        yield Sight(
            op=op, row=one.row, column=column, value=value, pointer=one.pointer(column),
            pair=_pair(op, one, column) if with_pair else None,
        )  # fmt: skip


def _not_there(
    timeline: Timeline, reads: Sequence[Op], rows: set[Row], found: dict[tuple[Row, str], list[Sight]]
) -> list[tuple[Row, Sight]]:
    """Reads that said or implied that a row is not there, if the same request shows it at another time.

    A row may be hidden by a right, a filter or a page. What the same request has shown, unchanged, in a list not
    longer than another one, is not hidden by any of these.
    """
    askers: dict[tuple[str, int], list[Op]] = defaultdict(list)
    for op in reads:
        if op.method == "GET" and (op.rows or op.absent is not None or op.status == 200):
            askers[op.target, op.who].append(op)
    missing: list[tuple[Row, Sight]] = []
    for row in rows:
        seen = {(sight.op.target, sight.op.who): sight for sight in found.get((row, PRESENCE), ())}
        for asked, sight in seen.items():
            for op in _leaving_out(timeline, row, askers[asked]):
                gone = Sight(op=op, row=row, column=PRESENCE, value=ABSENT, pointer="", pair=sight.pair)
                missing.append((row, gone))
    return missing


def _leaving_out(timeline: Timeline, row: Row, askers: Sequence[Op]) -> Iterator[Op]:
    longest = max((len(op.rows) for op in askers), default=0)
    for op in askers:
        shorter = op.absent is None and len(op.rows) < longest and all(one.row != row for one in op.rows)
        if op.absent == row or (shorter and _as_shown(timeline, row, op, askers)):
            yield op


def _as_shown(timeline: Timeline, row: Row, op: Op, askers: Sequence[Op]) -> bool:
    """Whether the row, when this list left it out, was what it was when the same list showed it."""
    if not timeline.shows(row):
        return False
    contents = []
    for asker in (op, *(other for other in askers if any(one.row == row for one in other.rows))):
        near = list(timeline.near(asker.fwd, asker.end))
        if near:
            contents.append(timeline.row_at(row, near[0]))
    return len(contents) > 1 and contents[0] is not None and any(content == contents[0] for content in contents[1:])


# What is known of a cell


def _effects(timeline: Timeline) -> dict[tuple[Row, str], list[tuple[Op, str]]]:
    found: dict[tuple[Row, str], list[tuple[Op, str]]] = defaultdict(list)
    for op, row, column, value, _ in timeline.effects():
        found[row, column].append((op, value))
    return found


def _history(
    timeline: Timeline,
    effects: dict[tuple[Row, str], list[tuple[Op, str]]],
    row: Row,
    column: str,
    sights: Sequence[Sight],
) -> History:
    known = effects.get((row, column), [])
    versions = [Version(inv=op.fwd, end=op.end, value=value, ref=op) for op, value in known]
    said = {(op.episode, op.seq) for op, _ in known}
    if timeline.shows(row):
        said |= timeline.accounted
    writes = timeline.writes
    blind = [op for op in writes.closed if (op.episode, op.seq) not in said]
    blind += [op for op in writes.floating if (op.episode, op.seq) not in said and op.touches(row, writes.paths)]
    if not timeline.shows(row):
        versions += _found_at_first(timeline, sights)
    return History(
        versions=versions,
        blind=[Blind(inv=op.fwd, end=op.end) for op in blind],
        readings=[Reading(fwd=s.op.fwd, up_end=s.op.end, value=s.normal, ref=s) for s in sights],
        line=timeline.line if timeline.shows(row) else NO_LINE,
        runs=timeline.values(row, column),
    )


def _found_at_first(timeline: Timeline, sights: Sequence[Sight]) -> list[Version]:
    """Without snapshots: what all reads before the first write showed was there from the beginning."""
    first = min((op.fwd for op in timeline.writes.all), default=None)
    early = [sight for sight in sights if first is not None and sight.op.end < first]
    if not early or len({sight.normal for sight in early}) != 1:
        return []
    return [Version(inv=ALWAYS, end=min(sight.op.end for sight in early), value=early[0].normal)]


def _stale(timeline: Timeline, verdict: Verdict, unknown: int) -> Stale:
    sight: Sight = verdict.reading.ref
    writer: Op | None = verdict.by.ref if verdict.by else None
    if writer is None and verdict.by_snapshot is not None:
        earlier = [c for c in timeline.changes if c.row == sight.row and c.gap < verdict.by_snapshot]
        writer = earlier[-1].by if earlier else None
    return Stale(
        sight=sight, verdict=verdict, writer=writer, current=_current(timeline, sight, writer), unknown_beside=unknown
    )


def _current(timeline: Timeline, sight: Sight, writer: Op | None) -> Any:
    """The value that the read should have shown, as the state or the write spelled it."""
    if sight.column == PRESENCE:
        return ABSENT if sight.value == PRESENT else PRESENT
    near = next(timeline.near(sight.op.fwd, sight.op.end), None) if timeline.shows(sight.row) else None
    if near is not None and timeline.line.done[near] < sight.op.fwd:
        content = timeline.row_at(sight.row, near)
        shows_old = cell(content, sight.column) == sight.normal
        if not shows_old:
            return content.get(sight.column) if isinstance(content, dict) else None
    return writer.asked.get(sight.column) if writer else None


def _declared(stale: Stale) -> bool:
    """Whether the answer says that it may be this old. A cache must drop what its own client has just written to."""
    fresh = stale.sight.op.fresh_for
    if not fresh or stale.verdict.delta > fresh * 1e9:
        return False
    writer, op = stale.writer, stale.sight.op
    own = writer is not None and (writer.episode, writer.lane) == (op.episode, op.lane)
    return not (own and writer is not None and _path(writer) == _path(op))


def _path(op: Op) -> str:
    return op.target.partition("?")[0].rstrip("/")
