"""What an environment was seen to do by right, which makes something that looks like a race lawful.

A service may let a claim be taken over, take back an approval when the row changes, mark a row instead of deleting it,
keep its holds where no snapshot looks. Each such habit shows itself where one write ran alone, or one claim came long
after another: what was seen there is no fault where two are side by side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from replayproxy.core.times import parse_text
from replayproxy.detect.ops import PRESENCE
from replayproxy.detect.race_names import empty
from replayproxy.detect.timeline import Timeline, cell, columns

type Column = tuple[str, str, str]
"""Environment, table and column."""

MOST_VALUES = 4


class Habits:
    """Fed with every timeline of a run; asked at its end."""

    def __init__(self) -> None:
        self._derived: set[Column] = set()  # changed by a PATCH that names other columns
        self._left: dict[Column, set[str]] = defaultdict(set)  # values that a PATCH of other columns left

    def note(self, timeline: Timeline) -> None:
        """What PATCHes that ran alone did to columns that they do not name."""
        for change in timeline.changes:
            op = change.by
            if op is None or not op.ok or op.method != "PATCH" or not op.asked or change.row not in op.about:
                continue
            for column in columns(change.before, change.after) - {PRESENCE, *op.asked}:
                key = op.env, change.row.table, column
                before = cell(change.before, column)
                if before != cell(change.after, column):
                    self._derived.add(key)
                elif len(self._left[key]) < MOST_VALUES:
                    self._left[key].add(before)

    def doubt(self, env: str, table: str, column: str, old: str) -> str:
        """Why a column that went back to `old` under a PATCH of others may be meant to; "" it is not."""
        key = env, table, column
        if column == PRESENCE:
            return ""
        if key in self._derived:
            return f"a PATCH of other columns, alone, was seen to change {column} too"
        if _default(old) and not self._left.get(key, set()) - {old}:
            return f"whether a PATCH of other columns resets {column}: none was seen alone to leave it"
        return ""


def _default(value: str) -> bool:
    """Whether a value is one that a service puts a column back to."""
    return value.removeprefix("'").lower() in _DEFAULTS


_DEFAULTS = frozenset(
    ["", "0", "null", "(no value)", "false", "no", "none", "new", "open", "draft", "pending", "todo", "unverified",
     "unconfirmed", "inactive", "requested", "submitted", "default"]
)  # fmt: skip


def ever_held(timeline: Timeline, table: str, column: str) -> bool:
    """Whether any snapshot shows a holder in the column: else the environment keeps its holders elsewhere."""
    rows = timeline.states.rows(timeline.shots[0].root).get(table, {})
    contents = [*rows.values(), *(change.after for change in timeline.changes if change.row.table == table)]
    return any(isinstance(row, Mapping) and not empty(row.get(column)) for row in contents)


def alike(said: str, held: str) -> bool:
    """Whether two normal values may be one that the environment only spells otherwise: trimmed, in lower case, rounded,
    in another time zone."""
    a, b = said.removeprefix("'"), held.removeprefix("'")
    letters = ["".join(c for c in text.casefold() if c.isalnum()) for text in (a, b)]
    if letters[0] == letters[1] and letters[0]:
        return True
    try:
        return abs(float(a) - float(b)) < 1
    except ValueError:
        times = parse_text(a), parse_text(b)
        return times[0] is not None and times[1] is not None and abs(times[0].at - times[1].at) < 10**9
