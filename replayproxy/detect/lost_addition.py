"""Additions that were acknowledged and do not add up.

An action (`POST /invoices/7/refund {"amount": 50}`) that, whenever it ran alone between two snapshots, changed a number
by what it asked, or by one and the same step, adds to that number. Between two snapshots that no writer of the number
was beside, all additions that were answered with success must be in it, and those without an answer may be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from replayproxy.detect.added_steps import Action, Steps, Window, action_of, chained, is_action, numbers
from replayproxy.detect.cells import Row
from replayproxy.detect.lost_write import may_set
from replayproxy.detect.ops import Effect, Op
from replayproxy.detect.race_claims import row_of
from replayproxy.detect.timeline import Timeline

MOST_ADDITIONS = 64
MOST_SUMS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """`expected`: what the number should be at least known to be; `agreed`: how often the actions were seen alone."""

    window: Window
    expected: Decimal
    agreed: int
    twice: bool  # more than was acknowledged: a write without success was done all the same
    doubt: str = ""  # why it may be right as it is


def windows(timeline: Timeline) -> Iterator[Window]:
    """Where more than one addition came between two quiet snapshots, or one that has no answer beside one that has."""
    by_row: dict[Row, list[Op]] = defaultdict(list)
    for op in timeline.writes.all:
        row = row_of(op)
        if row is not None and is_action(op) and not op.refused and timeline.shows(row):
            by_row[row].append(op)
    for row, ops in by_row.items():
        if len(ops) < 2:
            continue
        for column in sorted(numbers(timeline.row_at(row, 0))):
            ops = _once(ops)
            setters = [op for op in timeline.writes.all if op in ops or may_set(timeline, op, row, column)]
            yield from _split(timeline, row, column, ops, setters)


def _once(ops: Sequence[Op]) -> list[Op]:
    """The writes without those that repeat one of them under its idempotency key."""
    first: dict[object, Op] = {}
    for op in ops:
        first.setdefault(op.once or (op.episode, op.seq), op)
    return list(first.values())


def _split(
    timeline: Timeline, row: Row, column: str, ops: Sequence[Op], setters: Sequence[Op]
) -> Iterator[Window]:  # fmt: skip
    closed = [op for op in setters if op.effect is Effect.DONE]
    free = [op for op in setters if op.effect is not Effect.DONE]
    quiet = [
        index for index, (begun, done) in enumerate(zip(timeline.line.begun, timeline.line.done, strict=True))
        if not any(op.fwd <= done and op.end >= begun for op in closed)
    ]  # fmt: skip
    for before, after in pairwise(quiet):
        begin, end = timeline.line.done[before], timeline.line.begun[after]
        inside = [op for op in closed if begin < op.fwd and op.end < end]
        still = [op for op in free if op.fwd < timeline.line.done[after]]
        if len(inside) + len(still) < 2 or not inside or any(op not in ops for op in (*inside, *still)):
            continue
        was, found = (numbers(timeline.row_at(row, index)).get(column) for index in (before, after))
        if was is not None and found is not None:
            yield Window(
                row=row, column=column, done=tuple(inside), open=tuple(still), before=before, after=after, was=was,
                found=found, actions=frozenset(action_of(op, row, column) for op in (*inside, *still)),
                others={k: v for k, v in numbers(timeline.row_at(row, after)).items() if k != column},
            )  # fmt: skip


def missing(window: Window, steps: Steps) -> Missing | None:
    """What does not add up; None: it does, or nobody can tell."""
    done = [steps.of(action_of(op, window.row, window.column), op) for op in window.done]
    still = [steps.of(action_of(op, window.row, window.column), op) for op in window.open]
    if None in done or None in still or len(done) + len(still) > MOST_ADDITIONS:
        return None
    sums = [value for value in done if value is not None]
    perhaps = [value for value in still if value is not None]
    if not all(map(steps.known, window.actions)) and not _answered_so(window):
        return None
    expected, delta = window.was + sum(sums), window.found - window.was
    allowed = _sums(perhaps, sum(sums, Decimal(0)))
    agreed = min(steps.agreed(action) for action in window.actions)
    twice = bool(perhaps) and allowed is not None and delta in allowed and delta != sum(sums)
    if twice and not _retried(window):
        return None  # what an agent did not wait for was done: it may have been
    if twice:
        return Missing(window=window, expected=expected, agreed=agreed, twice=True)
    # Only a sum of some of them is the mark of a lost one; any other number has a writer that is not known.
    some_of = _sums(sums, Decimal(0))
    if allowed is None or some_of is None or delta in allowed or delta not in some_of or (delta == 0 and not agreed):
        return None
    return Missing(
        window=window, expected=expected, agreed=agreed, twice=False, doubt=_bounded(window, expected, steps)
        or _once_for_all(window, steps),
    )  # fmt: skip


def _retried(window: Window) -> bool:
    """Whether a write that failed, or was sent again, is among those without success."""
    return any(
        op.status is not None or any(again.asked == op.asked and again.fwd > op.fwd for again in window.done)
        for op in window.open
    )


def _bounded(window: Window, expected: Decimal, steps: Steps) -> str:
    """Why the number may have stopped at a bound; "" it has been seen beyond, or no bound would lie there."""
    up = expected > window.found
    if steps.beyond(window.row.table, window.column, window.found, up=up):
        return ""
    digits = str(abs(int(window.found))).rstrip("0")
    if window.found in window.others.values() or window.found == 0 or (len(digits) <= 1 and abs(window.found) >= 10):
        return f"whether {window.column} may go beyond {window.found.normalize():f}: it was never seen to"
    return ""


def _once_for_all(window: Window, steps: Steps) -> str:
    """Why one of them may rightly have done nothing: a client's second like of one thing is no second like."""
    asked: set[tuple[Action, int, str]] = set()
    for op in window.done:
        action = action_of(op, window.row, window.column)
        same = action, op.who, repr(sorted(op.asked.items(), key=str))
        if same in asked and steps.fixed(action) and action not in steps.repeated:
            return "whether the same client may do so twice: it was not seen to"
        asked.add(same)
    return ""


def _answered_so(window: Window) -> bool:
    """Whether all answers show the number with what was asked added to what was there."""
    told = [
        (numbers(op.said)[window.column], next(iter(numbers(op.asked).values())))
        for op in window.done if window.column in numbers(op.said) and len(numbers(op.asked)) == 1
    ]  # fmt: skip
    return len(told) == len(window.done) and chained(told, {window.was})


def _sums(values: Sequence[Decimal], start: Decimal) -> set[Decimal] | None:
    """The sums of some, none or all of the values, each added to `start`; None: too many to list."""
    found = {start}
    for value in values:
        found |= {one + value for one in found}
        if len(found) > MOST_SUMS:
            return None
    return found
