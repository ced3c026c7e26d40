"""Additions that were acknowledged and do not add up.

An action (`POST /invoices/7/refund {"amount": 50}`) that, whenever it ran alone between two snapshots, changed a number
by what it asked, or by one and the same step, adds to that number. Between two snapshots that no writer of the number
was beside, all additions that were answered with success must be in it, and those without an answer may be.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any

from replayproxy.detect.cells import Row
from replayproxy.detect.lost_write import may_set
from replayproxy.detect.ops import Effect, Op
from replayproxy.detect.race_claims import row_of
from replayproxy.detect.race_row import VERSIONS
from replayproxy.detect.timeline import Timeline

type Action = tuple[str, str, str, str]
"""Environment, last segment of the path, table and column."""

MOST_ADDITIONS = 64
MOST_SUMS = 20_000


@dataclass(slots=True)
class _Step:
    """What an action was seen to do to a number. `by`: the member that is added, with its sign; "" a fixed step."""

    by: tuple[str, int] | None = None
    step: Decimal = Decimal(0)
    agreed: int = 0
    broken: bool = False


class Steps:
    """What the actions of a run add, learned where one ran alone."""

    def __init__(self) -> None:
        self._seen: dict[Action, _Step] = defaultdict(_Step)
        self._idle: set[Action] = set()  # actions that, alone, left the number as it was

    def note(self, timeline: Timeline) -> None:
        for change in timeline.changes:
            op = change.by
            if op is None or not op.ok or row_of(op) != change.row or not is_action(op):
                continue
            for column in sorted(_numbers(change.before).keys() & _numbers(change.after).keys()):
                before, after = _numbers(change.before)[column], _numbers(change.after)[column]
                if before != after:
                    self._learn(action_of(op, change.row, column), op, before, after - before)
        for op in timeline.writes.closed:
            if (op.episode, op.seq) in timeline.accounted and op.ok and is_action(op):
                self._note_idle(timeline, op, op.about[-1])
        self._note_answers(timeline)

    def _note_answers(self, timeline: Timeline) -> None:
        """Answers that show another value of the number plus what was asked: it adds, whoever was beside it.

        All of an action's answers must be so. One alone may be chance: of a counter all small numbers have been seen.
        """
        told: dict[tuple[Row, Action, str], list[tuple[Decimal, Decimal]]] = defaultdict(list)
        for op in timeline.writes.closed:
            row = row_of(op)
            asked = _numbers(op.asked)
            if row is None or not op.ok or not is_action(op) or len(asked) != 1 or not timeline.shows(row):
                continue
            ((name, amount),) = asked.items()
            for column, value in _numbers(op.said).items():
                told[row, action_of(op, row, column), name].append((value, amount))
        for (row, action, name), answers in told.items():
            step = self._seen[action]
            known = _shown(timeline, row, action[3])
            if step.by in (None, (name, 1)) and (step.by or not step.agreed) and chained(answers, known):
                step.by = name, 1
                step.agreed += sum(value - amount not in (0, value) for value, amount in answers)

    def _note_idle(self, timeline: Timeline, op: Op, row: Row) -> None:
        before = next(iter(timeline.near(op.fwd, op.end)))
        was, now = (_numbers(timeline.row_at(row, index)) for index in (before, before + 1))
        self._idle |= {action_of(op, row, column) for column, value in was.items() if now.get(column) == value}

    def _learn(self, action: Action, op: Op, before: Decimal, delta: Decimal) -> None:
        step = self._seen[action]
        members = [
            (name, sign) for name, value in sorted(_numbers(op.asked).items()) for sign in (1, -1)
            if value and delta == sign * value
        ]  # fmt: skip
        if step.agreed == 0:
            # From nothing, adding and setting look alike.
            if before != 0 or not members:
                step.by, step.step, step.agreed = (members[0] if members else None), delta, 1
        elif (step.by in members) if step.by is not None else delta == step.step:
            step.agreed += 1
        else:
            step.broken = True

    def of(self, action: Action, op: Op) -> Decimal | None:
        """What the write adds, if that is known."""
        step = self._seen.get(action)
        if (step is not None and step.broken) or action in self._idle:
            return None
        if step is None or not step.agreed:
            return _by_word(action, op)
        if step.by is None:
            return step.step
        value = _numbers(op.asked).get(step.by[0])
        return None if value is None else step.by[1] * value

    def agreed(self, action: Action) -> int:
        step = self._seen.get(action)
        return 0 if step is None or step.broken else step.agreed


_ADDS = re.compile(r"refund|add|increment|deposit|credit|top_?up|earn|receive|restock|donate|contribute")
_TAKES = re.compile(r"debit|withdraw|spend|consume|decrement|redeem|deduct")


def _by_word(action: Action, op: Op) -> Decimal | None:
    """What an action that was never seen alone adds to the number that its answer shows, if its name says that it adds:
    enough for a suspicion."""
    asked = _numbers(op.asked)
    if len(asked) != 1 or action[3] not in op.said:
        return None
    (amount,) = asked.values()
    return amount if _ADDS.fullmatch(action[1]) else -amount if _TAKES.fullmatch(action[1]) else None


def _shown(timeline: Timeline, row: Row, column: str) -> set[Decimal]:
    """The values of a number that the snapshots show."""
    shown = (_numbers(timeline.row_at(row, index)).get(column) for index, _ in timeline.values(row, column))
    return {value for value in shown if value is not None}


def chained(answers: Sequence[tuple[Decimal, Decimal]], known: set[Decimal]) -> bool:
    """Whether each value that was answered is one that was there, or was answered to another, plus what was asked."""
    there = known | {value for value, _ in answers}
    return all(amount != 0 and value - amount in there for value, amount in answers)


def is_action(op: Op) -> bool:
    return op.method == "POST" and bool(op.about) and not op.target.partition("?")[0].endswith("/" + op.about[-1].key)


def action_of(op: Op, row: Row, column: str) -> Action:
    return op.env, op.target.partition("?")[0].rstrip("/").rpartition("/")[2], row.table, column


def _numbers(content: Any) -> dict[str, Decimal]:
    """The members that are numbers; a row's version counts its changes, and is no sum."""
    if not isinstance(content, Mapping):
        return {}
    return {
        name: Decimal(str(value)) for name, value in content.items()
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool) and name not in VERSIONS
    }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Additions to one number between two snapshots beside which nobody wrote it. `open`: those without an answer."""

    row: Row
    column: str
    done: tuple[Op, ...]
    open: tuple[Op, ...]
    before: int
    after: int
    was: Decimal
    found: Decimal
    actions: frozenset[Action] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """`expected`: what the number should be at least known to be; `agreed`: how often the actions were seen alone."""

    window: Window
    expected: Decimal
    agreed: int
    twice: bool  # more than was acknowledged: a write without success was done all the same


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
        for column in sorted(_numbers(timeline.row_at(row, 0))):
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
        was, found = (_numbers(timeline.row_at(row, index)).get(column) for index in (before, after))
        if was is not None and found is not None:
            yield Window(
                row=row, column=column, done=tuple(inside), open=tuple(still), before=before, after=after, was=was,
                found=found, actions=frozenset(action_of(op, row, column) for op in (*inside, *still)),
            )  # fmt: skip


def missing(window: Window, steps: Steps) -> Missing | None:
    """What does not add up; None: it does, or nobody can tell."""
    done = [steps.of(action_of(op, window.row, window.column), op) for op in window.done]
    still = [steps.of(action_of(op, window.row, window.column), op) for op in window.open]
    if None in done or None in still or len(done) + len(still) > MOST_ADDITIONS:
        return None
    sums = [value for value in done if value is not None]
    perhaps = [value for value in still if value is not None]
    if not all(map(steps.agreed, window.actions)) and not _answered_so(window):
        return None
    expected, delta = window.was + sum(sums), window.found - window.was
    allowed = _sums(perhaps, sum(sums, Decimal(0)))
    agreed = min(steps.agreed(action) for action in window.actions)
    twice = bool(perhaps) and allowed is not None and delta in allowed and delta != sum(sums)
    if twice:
        return Missing(window=window, expected=expected, agreed=agreed, twice=True)
    # Only a sum of some of them is the mark of a lost one; any other number has a writer that is not known.
    some_of = _sums(sums, Decimal(0))
    if allowed is None or some_of is None or delta in allowed or delta not in some_of or (delta == 0 and not agreed):
        return None
    return Missing(window=window, expected=expected, agreed=agreed, twice=False)


def _answered_so(window: Window) -> bool:
    """Whether all answers show the number with what was asked added to what was there."""
    told = [
        (_numbers(op.said)[window.column], next(iter(_numbers(op.asked).values())))
        for op in window.done if window.column in _numbers(op.said) and len(_numbers(op.asked)) == 1
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
