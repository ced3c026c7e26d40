"""Who claimed what: writes after which one cell of a row names a holder, and refusals that show that only one may.

A claim is recognised by its own words: it is answered with success, its path names a row of the state
(`/slots/8/book`), and its answer, or else its request, gives a value to a column of that row that names a holder. No
configuration is needed for that. Whether a second holder is a fault is another question: the environment's own
refusals answer it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from replayproxy.detect.cells import Row
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import Effect, Op
from replayproxy.detect.race_names import empty, is_holder, is_owner, spelled
from replayproxy.detect.timeline import Timeline

TAKEN = frozenset({409, 423, 422})
"""Answers that refuse a claim because of what the state is."""

type Rule = tuple[str, str, str]
"""Environment, table and column of a cell that names a holder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A write that says that it gave the row to `holder` (its normal value). `result`: what it says it made."""

    op: Op
    row: Row
    column: str
    holder: str
    shown: Any
    result: str

    @property
    def rule(self) -> Rule:
        return self.op.env, self.row.table, self.column

    def same(self, other: Claim) -> bool:
        """Whether it is the other one again: a retry that is answered with what it had got already."""
        if self.op.once and self.op.once == other.op.once:
            return True
        return self.holder == other.holder and self.result == other.result


type Declared = frozenset[Rule]

type Claims = Mapping[tuple[Row, str], list[Claim]]
"""Row and column -> the claims of that cell, in order of their beginning."""


def row_of(op: Op) -> Row | None:
    """The row of the state that a write's path names."""
    return op.about[-1] if op.about and not op.is_reset else None


def claims(
    timeline: Timeline, writes: Iterable[Op], declared: Declared = frozenset()
) -> dict[tuple[Row, str], list[Claim]]:
    """The claims of each cell, in order of their beginning."""
    found: dict[tuple[Row, str], list[Claim]] = {}
    for op in writes:
        row = row_of(op)
        if row is None and not timeline.shots and op.place is not None:
            row = Row(op.place.table, "")  # the path stands for the row, as all that is known of it
        if row is None or not op.ok or op.method == "DELETE" or (timeline.shots and not timeline.shows(row)):
            continue
        for column in _columns(timeline, op.env, row, declared) if timeline.shots else _words(op):
            value = _given(op, column)
            if value is not None:
                claim = Claim(op=op, row=row, column=column, holder=normal(value), shown=value, result=_result(op, row))
                found.setdefault((row, column), []).append(claim)
    return found


def _columns(timeline: Timeline, env: str, row: Row, declared: Declared) -> list[str]:
    content = timeline.row_at(row, 0)
    if content is None:
        content = timeline.row_at(row, len(timeline.shots) - 1)
    if not isinstance(content, Mapping):
        return []
    return [name for name in content if is_holder(name) or is_owner(name) or (env, row.table, name) in declared]


def _words(op: Op) -> list[str]:
    """Without snapshots: what the write's own words call a holder."""
    return sorted(name for name in {*op.said, *op.asked} if is_holder(name))


def _given(op: Op, column: str) -> Any | None:
    """The holder that the write names; None: it names none, or is not about the holder.

    A write of another column is answered with the whole row, holder and all: that is no claim. So a plain PATCH or PUT
    must have asked for the column, and an action below the row (`/slots/8/book`) may leave it to the answer.
    """
    asked, said = op.asked.get(column), op.said.get(column)
    action = not op.about or _last(op) != spelled(op.about[-1].key)
    if column not in op.asked and not action:
        return None
    value = said if column in op.said else asked
    if isinstance(value, list | dict) or empty(value):
        return None
    if action and column not in op.asked and not _speaks_of_claims(op):
        return None
    return value


_ACTS = ("book", "reserv", "hold", "claim", "take", "lock", "lease", "rent", "checkout", "check_out", "assign",
         "acquire", "occupy", "grab", "allocate", "confirm")  # fmt: skip


_JOINS = ("join", "enrol", "regist", "attend", "rsvp", "sign")


def takes_a_place(op: Op) -> bool:
    """Whether the action below the row is one by which a place in it is taken."""
    return _last(op).startswith((*_ACTS, *_JOINS))


def _speaks_of_claims(op: Op) -> bool:
    """Whether the action below the row is one by which something is taken."""
    return _last(op).startswith(_ACTS)


def _last(op: Op) -> str:
    """The last segment of the path."""
    return spelled(op.target.partition("?")[0].rstrip("/").rpartition("/")[2])


_RESULTS = ("booking_id", "reservation_id", "hold_id", "claim_id", "confirmation", "confirmation_id", "code", "id")


def _result(op: Op, row: Row) -> str:
    """The id of what the write made, beyond the row itself; "" if its answer names none."""
    by_name = {spelled(name): value for name, value in op.said.items()}
    for name in _RESULTS:
        value = by_name.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value) != row.key and value != "":
            return str(value)
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The environment refused a claim of a held row. `own`: it was held by the very one that asked."""

    episode: str
    seq: int
    own: bool


class Refusals:
    """The rules that the environment has shown: cells of which a second claim was refused while they were held."""

    def __init__(self) -> None:
        self._seen: dict[Rule, list[Refusal]] = {}

    def note(
        self, timeline: Timeline, own: Iterable[Op], held: Claims, declared: Declared = frozenset()
    ) -> None:  # fmt: skip
        for op in own:
            row = row_of(op)
            if row is None or op.status not in TAKEN or op.effect is not Effect.DONE or not timeline.shows(row):
                continue
            if timeline.writes.answered_before(op):
                continue
            for column in _columns(timeline, op.env, row, declared):
                asked = op.asked.get(column)
                if empty(asked) and not _speaks_of_claims(op):
                    continue
                claimed = held.get((row, column), ())
                holder = _holder(timeline, op, row, column, claimed)
                # What is refused only once two have it is no thing for one.
                if holder is not None and len({claim.holder for claim in claimed if claim.op.fwd < op.end}) <= 1:
                    self._add((op.env, row.table, column), op, own=not empty(asked) and normal(asked) == holder)

    def _add(self, rule: Rule, op: Op, *, own: bool) -> None:
        seen = self._seen.setdefault(rule, [])
        if len(seen) < 8 and own not in {one.own for one in seen}:
            seen.append(Refusal(episode=op.episode, seq=op.seq, own=own))

    def of(self, rule: Rule, *, own: bool = False) -> Refusal | None:
        """A refusal under the rule; `own`: one that refused the very holder, so that no repeat is lawful."""
        return next((one for one in self._seen.get(rule, ()) if one.own or not own), None)


def _holder(timeline: Timeline, op: Op, row: Row, column: str, claimed: Iterable[Claim]) -> str | None:
    """Who held the row when the write was refused: by the answer, by a snapshot, by a claim that had been answered."""
    said = op.said.get(column)
    if not empty(said) and not isinstance(said, list | dict):
        return normal(said)
    for index in timeline.near(op.fwd, op.end):
        content = timeline.row_at(row, index)
        value = content.get(column) if isinstance(content, Mapping) else None
        if timeline.line.done[index] < op.fwd and not empty(value):
            return normal(value)
    earlier = [claim.holder for claim in claimed if claim.op.end < op.fwd]
    return earlier[-1] if earlier else None
