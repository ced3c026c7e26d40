"""What an action adds to a number, learned where it ran alone, from its answers, and from sums that come out right."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from replayproxy.detect.cells import Row
from replayproxy.detect.ops import Op
from replayproxy.detect.race_claims import row_of
from replayproxy.detect.race_row import VERSIONS
from replayproxy.detect.timeline import Timeline

type Action = tuple[str, str, str, str]
"""Environment, last segment of the path, table and column."""


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
    others: Mapping[str, Decimal] = field(default_factory=dict)  # the row's other numbers


@dataclass(slots=True)
class _Step:
    """What an action was seen to do to a number. `by`: the member that is added, with its sign; "" a fixed step."""

    by: tuple[str, int] | None = None
    step: Decimal = Decimal(0)
    agreed: int = 0
    heard: int = 0  # answers that seem to say so; they may show anybody's value, so they prove nothing
    told: int = 0  # those of them that cannot say that it takes that much away
    fits: int = 0  # sums with others that came out right
    broken: bool = False


class Steps:
    """What the actions of a run add, learned where one ran alone."""

    def __init__(self) -> None:
        self._seen: dict[Action, _Step] = defaultdict(_Step)
        self._idle: set[Action] = set()  # actions that, alone, left the number as it was
        self._range: dict[tuple[str, str], tuple[Decimal, Decimal]] = {}  # of a column: the least and the most
        self._by_whom: set[tuple[Action, Row, int, str]] = set()
        self.repeated: set[Action] = set()  # those that one client did twice to one row, in turn, and both counted

    def note(self, timeline: Timeline) -> None:
        for change in timeline.changes:
            op = change.by
            if op is None or not op.ok or row_of(op) != change.row or not is_action(op):
                for column, value in numbers(change.after).items():
                    self._see(change.row.table, column, value)
                continue
            for column in sorted(numbers(change.before).keys() & numbers(change.after).keys()):
                before, after = numbers(change.before)[column], numbers(change.after)[column]
                self._see(change.row.table, column, before, after)
                if before != after:
                    self._note_whom(action_of(op, change.row, column), change.row, op)
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
            asked = numbers(op.asked)
            if row is None or not op.ok or not is_action(op) or len(asked) != 1 or not timeline.shows(row):
                continue
            ((name, amount),) = asked.items()
            for column, value in numbers(op.said).items():
                told[row, action_of(op, row, column), name].append((value, amount))
        for (row, action, name), answers in told.items():
            step = self._seen[action]
            known = _shown(timeline, row, action[3])
            if step.by in (None, (name, 1)) and (step.by or not step.agreed) and chained(answers, known):
                step.by = name, 1
                step.heard += sum(value - amount not in (0, value) for value, amount in answers)
                there = known | {value for value, _ in answers}
                step.told += sum(value - amount != 0 and value + amount not in there for value, amount in answers)

    def fit(self, window: Window) -> None:
        """Several additions that come out right beside each other say as much as each of them alone."""
        values = [self.of(action_of(op, window.row, window.column), op) for op in window.done]
        if window.open or None in values or sum(value or 0 for value in values) != window.found - window.was:
            return
        if window.found != window.was:
            for action in window.actions:
                self._seen[action].fits += 1

    def _see(self, table: str, column: str, *values: Decimal) -> None:
        low, high = self._range.get((table, column), (values[0], values[0]))
        self._range[table, column] = min(low, *values), max(high, *values)

    def beyond(self, table: str, column: str, value: Decimal, *, up: bool) -> bool:
        """Whether a snapshot shows the column of some row above (`up`) or below the value."""
        low, high = self._range.get((table, column), (value, value))
        return high > value if up else low < value

    def _note_whom(self, action: Action, row: Row, op: Op) -> None:
        mine = action, row, op.who, repr(sorted(op.asked.items(), key=str))
        if mine in self._by_whom:
            self.repeated.add(action)
        self._by_whom.add(mine)

    def fixed(self, action: Action) -> bool:
        """Whether it always adds the same, whatever is asked."""
        step = self._seen.get(action)
        return step is not None and step.by is None

    def _note_idle(self, timeline: Timeline, op: Op, row: Row) -> None:
        before = next(iter(timeline.near(op.fwd, op.end)))
        was, now = (numbers(timeline.row_at(row, index)) for index in (before, before + 1))
        self._idle |= {action_of(op, row, column) for column, value in was.items() if now.get(column) == value}

    def _learn(self, action: Action, op: Op, before: Decimal, delta: Decimal) -> None:
        step = self._seen[action]
        members = [
            (name, sign) for name, value in sorted(numbers(op.asked).items()) for sign in (1, -1)
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
        if step is None or not (step.agreed or step.heard > 0):
            return _by_word(action, op)
        if step.by is None:
            return step.step
        value = numbers(op.asked).get(step.by[0])
        return None if value is None else step.by[1] * value

    def agreed(self, action: Action) -> int:
        """How often the action was seen to do that: alone, or in a sum of two or more that came out right."""
        step = self._seen.get(action)
        return 0 if step is None or step.broken else step.agreed + 2 * step.fits + step.told // 2

    def known(self, action: Action) -> bool:
        step = self._seen.get(action)
        return step is not None and not step.broken and (step.agreed > 0 or step.heard > 0)


_ADDS = re.compile(r"refund|add|increment|deposit|credit|top_?up|earn|receive|restock|donate|contribute")
_TAKES = re.compile(r"debit|withdraw|spend|consume|decrement|redeem|deduct")


def _by_word(action: Action, op: Op) -> Decimal | None:
    """What an action that was never seen alone adds to the number that its answer shows, if its name says that it adds:
    enough for a suspicion."""
    asked = numbers(op.asked)
    if len(asked) != 1 or action[3] not in op.said:
        return None
    (amount,) = asked.values()
    return amount if _ADDS.fullmatch(action[1]) else -amount if _TAKES.fullmatch(action[1]) else None


def _shown(timeline: Timeline, row: Row, column: str) -> set[Decimal]:
    """The values of a number that the snapshots show."""
    shown = (numbers(timeline.row_at(row, index)).get(column) for index, _ in timeline.values(row, column))
    return {value for value in shown if value is not None}


def chained(answers: Sequence[tuple[Decimal, Decimal]], known: set[Decimal]) -> bool:
    """Whether each value that was answered is one that was there, or was answered to another, plus what was asked."""
    there = known | {value for value, _ in answers}
    return all(amount != 0 and value - amount in there for value, amount in answers)


def is_action(op: Op) -> bool:
    return op.method == "POST" and bool(op.about) and not op.target.partition("?")[0].endswith("/" + op.about[-1].key)


def action_of(op: Op, row: Row, column: str) -> Action:
    return op.env, op.target.partition("?")[0].rstrip("/").rpartition("/")[2], row.table, column


def numbers(content: Any) -> dict[str, Decimal]:
    """The members that are numbers; a row's version counts its changes, and is no sum."""
    if not isinstance(content, Mapping):
        return {}
    return {
        name: Decimal(str(value)) for name, value in content.items()
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool) and name not in VERSIONS
    }  # fmt: skip
