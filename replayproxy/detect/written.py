"""Who last wrote each row of an instance, across the episodes of a run."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from replayproxy.detect.cells import Row
from replayproxy.detect.normal import normal
from replayproxy.detect.ops import NO_VALUE, PRESENCE, Op
from replayproxy.detect.timeline import Change, Timeline, cell, columns

MAX_ROWS = 100_000
"""Rows whose writers are kept; those written longest ago are forgotten first."""

MAX_WRITERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A row as an episode left it. `by` None: one of several exchanges did it. `whole`: `values` are all columns."""

    episode: str
    by: Op | None
    at: int
    values: Mapping[str, str]
    whole: bool

    def leaves(self, before: Any | None, after: Any | None) -> bool:
        """Whether what differs between two versions of the row is what this write left behind."""
        differing = [c for c in columns(before, after) if cell(before, c) != cell(after, c)]
        if self.whole:
            return all(self.values.get(column, NO_VALUE) == cell(after, column) for column in differing)
        known = [column for column in differing if column in self.values]
        return any(column != PRESENCE for column in known) and all(
            self.values[column] == cell(after, column) for column in known
        )


class Ledger:
    """By series, instance and row: its last writers, in order of time."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[str, str, Row], list[Written]] = OrderedDict()
        self._perhaps: OrderedDict[tuple[str, str, Row], frozenset[str]] = OrderedDict()

    def note(self, series: str, instance: str, episode: str, timeline: Timeline, own: Iterable[Op]) -> None:
        """Adds what `episode` wrote, as its timeline shows it."""
        noted: set[Row] = set()
        for change in timeline.changes:
            by = change.by or change.late or _likely(change)
            if by is None and any(op.episode != episode for op in change.possible):
                self._suppose(series, instance, change)
                continue  # one of several episodes: nobody is named
            if (by is not None and by.episode != episode) or not change.possible:
                continue
            noted.add(change.row)
            self._add(series, instance, change.row, _from_change(episode, by, change, timeline))
        answers: dict[tuple[Row, int], dict[str, str]] = defaultdict(dict)
        for op in own:
            for (row, column), value in op.sets.items():
                answers[row, op.seq][column] = value
        ops = {op.seq: op for op in own}
        for (row, seq), values in answers.items():
            if row not in noted:
                op = ops[seq]
                self._add(
                    series, instance, row,
                    Written(episode=episode, by=op, at=op.fwd, values=values, whole=False),
                )  # fmt: skip

    def _add(self, series: str, instance: str, row: Row, written: Written) -> None:
        key = series, instance, row
        writers = self._rows.pop(key, [])
        writers.append(written)
        self._rows[key] = writers[-MAX_WRITERS:]
        while len(self._rows) > MAX_ROWS:
            self._rows.popitem(last=False)

    def _suppose(self, series: str, instance: str, change: Change) -> None:
        key = series, instance, change.row
        self._perhaps[key] = self._perhaps.get(key, frozenset()) | {op.episode for op in change.possible}
        while len(self._perhaps) > MAX_ROWS:
            self._perhaps.popitem(last=False)

    def perhaps(self, series: str, instance: str, row: Row) -> frozenset[str]:
        """The episodes of which one changed the row, when nobody can say which."""
        return self._perhaps.get((series, instance, row), frozenset())

    def writers(self, series: str, instance: str, row: Row) -> list[Written]:
        return self._rows.get((series, instance, row), [])


def _from_change(episode: str, by: Op | None, change: Change, timeline: Timeline) -> Written:
    values = {column: cell(change.after, column) for column in columns(change.after)}
    at = by.fwd if by is not None else timeline.line.begun[change.gap + 1]
    return Written(episode=episode, by=by, at=at, values=values, whole=True)


def _likely(change: Change) -> Op | None:
    """Of several writes that ran meanwhile, the one whose words name the row or its new values."""
    named = [op for op in change.possible if any(row == change.row for row, _ in op.sets)]
    if not named:
        named = [op for op in change.possible if op.place is not None and op.place.key == change.row.key
                 and op.place.table == change.row.table]  # fmt: skip
    if not named:
        named = [op for op in change.possible if _same_words(op, change)]
    return named[0] if len(named) == 1 else None


def _same_words(op: Op, change: Change) -> bool:
    said = {normal(value) for value in op.asked.values() if isinstance(value, str) and len(value) >= 4}
    new = {cell(change.after, c) for c in columns(change.after) if cell(change.after, c) != cell(change.before, c)}
    return bool(said & new)


def leaver(
    writers: list[Written], before: Any | None, after: Any | None, until: int
) -> tuple[Written | None, Written | None]:
    """Of a row's writers before an instant: the last one, if it left the row so; and who had made the row before it."""
    earlier = sorted((written for written in writers if written.at < until), key=lambda written: written.at)
    if not earlier or not earlier[-1].leaves(before, after):
        return None, None
    last = earlier[-1]
    if before is not None or after is None:
        return last, None
    same = [written for written in earlier if written.episode == last.episode]
    return last, same[0] if same[0] is not last else None
