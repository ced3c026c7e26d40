"""Stale reads: a read returned a value although everyone who had written it was surely overwritten before it began.

Looks at the cells that changed while an episode ran, or that its writes set; asks `history` about each read of them.
Without snapshots only what an own write echoed can be missed, and then nothing can be proven, because writers that
did not pass the proxy would go unnoticed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from replayproxy.detect.agreement import Agreement
from replayproxy.detect.cell_history import Histories
from replayproxy.detect.cells import Row, Shown
from replayproxy.detect.history import ALWAYS, Reading, State, Verdict, judge
from replayproxy.detect.late import missed
from replayproxy.detect.missing import left_out, left_out_of_old_lists
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import ABSENT, PRESENCE, PRESENT, Effect, Op
from replayproxy.detect.set_back import set_back
from replayproxy.detect.sights import Sight, as_the_state, learn, pair_of, sights_of
from replayproxy.detect.timeline import Change, Late, Timeline, cell
from replayproxy.detect.token_order import Token, TokenOrder
from replayproxy.detect.tokens import Tokens

COVERAGE_GATE = 0.99
"""The share of state changes that recorded writes must explain before a stale read counts as proven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """A cell read out of date, before it is folded with what follows from the same write.

    `token`: a version token of the row that says the same; `against`: one that says that the row was not out of date.
    `by_token`: nothing but the token says it. Whether a token counts is known at the end of the run. `unexplained`:
    snapshots show in this column, of some row, a value that no write is known to have set. `change`: where snapshots
    alone say it, what they show of how the row changed. `late`: snapshots agree with the read, and show what the writer
    had been answered for only later.
    """

    sight: Sight
    verdict: Verdict
    writer: Op | None
    current: Any
    unknown_beside: int
    token: Token | None = None
    against: Token | None = None
    by_token: bool = False
    unexplained: bool = False
    change: Change | None = None
    late: bool = False

    def credible(self, agreement: Agreement, tokens: Tokens) -> bool:
        """Whether the member is known to be the column, and the token to be one if nothing else says it."""
        known = self.sight.pair is None or agreement.holds(self.sight.pair)
        return known and (not self.by_token or (self.token is not None and tokens.holds(self.token.key)))


@dataclass(slots=True)
class Judged:
    """What came of one episode's reads of one state."""

    stale: list[Stale] = field(default_factory=list)
    current: int = 0
    bare: int = 0  # of the current ones, those that only say that a row is there: itself, or its key
    unknown: int = 0
    mapped: int = 0  # reads that show a row as a snapshot beside them does
    declared: int = 0
    _latest: dict[tuple[int, Row], int] = field(default_factory=dict)  # by read and row: the begin of a write it shows


def look(timeline: Timeline, own: Sequence[Op], agreement: Agreement, tokens: Tokens, episode: str) -> Judged:
    """Judges the reads of one episode (`own`), and adds to what is known of members of answers and of tokens."""
    result = Judged()
    reads = [op for op in own if op.reads and not op.is_probe]
    if timeline.shots:
        # A 304 shows no value: whether a member is a column is learned from what was shown.
        learn(timeline, [op for op in reads if op.again is None], agreement)
    tokens.learn(timeline, own, episode)
    histories = Histories(timeline)
    effects, rows = histories.effects, histories.rows
    result.mapped = sum(as_the_state(timeline, op) for op in reads)
    sights = sights_of(timeline, reads, rows, agreement)
    missing = [*left_out(timeline, reads, rows, agreement, sights, effects)]
    for row, sight in missing:
        sights[row, PRESENCE].append(sight)
    told = {(row, sight.op.seq) for row, sight in missing}
    unexplained: set[tuple[str, str]] = set()
    for (row, column), seen in sights.items():
        held = histories.steady(row, column)
        if held is not None:
            _count_steady(result, seen, held)
            continue
        history = histories.of(row, column, seen)
        verdicts = judge(history)
        if any(verdict.unexplained for verdict in verdicts):
            unexplained.add((row.table, column))
        verdicts = set_back(timeline, row, column, history, verdicts)
        unknown = sum(verdict.state is State.UNKNOWN for verdict in verdicts)
        for verdict in verdicts:
            _count(timeline, result, verdict, unknown)
    older: dict[int, int] = {}
    for one in result.stale:
        seq, gone = one.sight.op.seq, one.sight.op.fwd - one.verdict.delta
        older[seq] = min(gone, older.get(seq, gone))
    for row, sight in left_out_of_old_lists(timeline, reads, rows, agreement, effects, older):
        if (row, sight.op.seq) in told:
            continue
        history = histories.of(row, PRESENCE, [sight])
        (verdict,) = set_back(timeline, row, PRESENCE, history, judge(history))
        _count(timeline, result, verdict, 0)
    result.stale = [
        replace(one, unexplained=(one.sight.row.table, one.sight.column) in unexplained) for one in result.stale
    ]
    if rows:
        _ask_tokens(timeline, TokenOrder(timeline, own, rows, tokens), reads, rows, result)
    told_of = {(one.sight.op.seq, one.sight.row, one.sight.column) for one in result.stale}
    result.stale += [
        _late(timeline, sight, late) for sight, late in missed(timeline, sights)
        if (sight.op.seq, sight.row, sight.column) not in told_of
    ]  # fmt: skip
    return result


def _count(timeline: Timeline, result: Judged, verdict: Verdict, unknown: int) -> None:
    read: Sight = verdict.reading.ref
    at = read.op.seq, read.row
    result._latest[at] = max(result._latest.get(at, ALWAYS), verdict.earliest)
    if verdict.state is State.UNKNOWN:
        result.unknown += 1
    elif verdict.state is State.CURRENT:
        result.current += 1
        result.bare += read.bare
    else:
        stale = _stale(timeline, verdict, unknown)
        if _declared(timeline, stale):
            result.declared += 1
        else:
            result.stale.append(stale)


def _count_steady(result: Judged, sights: Sequence[Sight], held: str) -> None:
    current = [sight for sight in sights if sight.normal == held]
    result.current += len(current)
    result.bare += sum(sight.bare for sight in current)
    result.unknown += len(sights) - len(current)


# Version tokens


def _ask_tokens(
    timeline: Timeline, order: TokenOrder, reads: Sequence[Op], rows: set[Row], result: Judged
) -> None:  # fmt: skip
    """What the tokens say of each row that was read is put beside what the intervals say."""
    stale: dict[tuple[int, Row], list[int]] = defaultdict(list)
    for index, one_stale in enumerate(result.stale):
        stale[one_stale.sight.op.seq, one_stale.sight.row].append(index)
    for op in reads:
        for one in op.rows:
            said = list(order.of(op, one)) if one.row in rows else []
            old = next((token for token in said if token.old), None)
            mates = stale.get((op.seq, one.row), [])
            for index in mates:
                mate = result.stale[index]
                against = next((token for token in said if _contradicts(token, mate.sight)), None)
                result.stale[index] = replace(mate, token=old, against=against or _torn(result, op, one, old))
            for token in () if mates else said:
                if token.old:  # each: a member that holds a token may not be known to be that column, and another be
                    found = replace(_by_token(timeline, op, one, token), against=_torn(result, op, one, token))
                    if _declared(timeline, found):
                        result.declared += 1
                    else:
                        result.stale.append(found)


def _contradicts(token: Token, sight: Sight) -> bool:
    """Whether the very version that the read shows was seen elsewhere with another value of the cell."""
    shown = token.newest.members.get(sight.column)
    return not token.old and sight.column in token.newest.members and normal(shown) != sight.normal


def _torn(result: Judged, op: Op, one: Shown, old: Token | None) -> Token | None:
    """The token, if the row also shows what was written only after a later token had been seen."""
    return old if old is not None and result._latest.get((op.seq, one.row), ALWAYS) > old.since else None


def _by_token(timeline: Timeline, op: Op, one: Shown, token: Token) -> Stale:
    column = token.key.name
    pair = pair_of(op, one, column) if timeline.shows(one.row) and not token.key.header else None
    sight = Sight(op=op, row=one.row, column=column, value=token.shown, pointer=token.pointer, pair=pair)
    seen = token.newest
    writer = seen.op if seen.op is not None and seen.op.effect is not Effect.NONE else None
    change = _change(timeline, sight, seen.shot) if seen.shot is not None else None
    writer = change.by if change is not None else writer
    verdict = Verdict(
        reading=Reading(fwd=op.fwd, up_end=op.end, value=sight.normal, ref=sight), state=State.STALE,
        delta=op.fwd - token.since, by_snapshot=seen.shot, newer=token.newer,
    )  # fmt: skip
    return Stale(
        sight=sight, verdict=verdict, writer=writer, current=seen.value, unknown_beside=0, token=token, by_token=True,
        change=change,
    )  # fmt: skip


def _change(timeline: Timeline, sight: Sight, shot: int) -> Change | None:
    """The last change before the snapshot by which the cell lost the value that was read, if nobody wrote that value
    later; else the row's last change."""
    earlier = [change for change in timeline.changes if change.row == sight.row and change.gap < shot]
    lost = [
        change for change in earlier
        if cell(change.before, sight.column) == sight.normal != cell(change.after, sight.column)
    ]  # fmt: skip
    at = (sight.row, sight.column)
    if lost and any(
        op.end > timeline.line.begun[lost[-1].gap + 1] and op.sets.get(at) == sight.normal for op in timeline.writes.all
    ):
        lost = []
    return next(reversed(lost or earlier), None)


# Stale reads


def _stale(timeline: Timeline, verdict: Verdict, unknown: int) -> Stale:
    sight: Sight = verdict.reading.ref
    writer: Op | None = verdict.by.ref if verdict.by else None
    change = None
    if writer is None and verdict.by_snapshot is not None:
        change = _change(timeline, sight, verdict.by_snapshot)
        writer = change.by if change is not None else None
    return Stale(
        sight=sight, verdict=verdict, writer=writer, current=_current(timeline, sight, writer), unknown_beside=unknown,
        change=change,
    )  # fmt: skip


def _late(timeline: Timeline, sight: Sight, late: Late) -> Stale:
    """The read is as the state was, and not as the write had been answered."""
    content: Any = timeline.row_at(sight.row, late.gap + 1)
    came = content.get(late.column) if isinstance(content, dict) else None
    reading = Reading(fwd=sight.op.fwd, up_end=sight.op.end, value=sight.normal, ref=sight)
    return Stale(
        sight=sight, verdict=Verdict(reading=reading, state=State.STALE, delta=sight.op.fwd - late.by.end, newer=1),
        writer=late.by, current=late.value if late.column == PRESENCE else came, unknown_beside=0, late=True,
    )  # fmt: skip


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


def _declared(timeline: Timeline, stale: Stale) -> bool:
    """Whether the answer says that it may be this old, or the config that the write shows only after a while. A cache
    must drop what its own client has just written to."""
    if timeline.writes.acting(stale.sight.row, stale.sight.op.fwd):
        return True
    fresh = stale.sight.op.fresh_for
    if not fresh or stale.verdict.delta > fresh * 1e9:
        return False
    writer, op = stale.writer, stale.sight.op
    own = writer is not None and (writer.episode, writer.lane) == (op.episode, op.lane)
    return not (own and writer is not None and _path(writer) == _path(op))


def _path(op: Op) -> str:
    return op.target.partition("?")[0].rstrip("/")
