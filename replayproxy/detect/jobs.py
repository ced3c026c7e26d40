"""Columns that change by themselves: a job of the environment's own, or somebody who does not pass the proxy.

A change between two snapshots is explained where some write ran between them. It is by itself all the same where no
such write is about its row, unless that kind of write has this side effect every time. What such a column shows is no
proof against a reset, nor that the environment answers by chance: its job may have been a little earlier or later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from replayproxy.core.templates import template_of
from replayproxy.detect.finding import Finding, Grade, Kind
from replayproxy.detect.ops import Op
from replayproxy.detect.race_double import mentions
from replayproxy.detect.timeline import Change, Timeline, cell, columns

type Cells = tuple[str, str]
"""Table and column."""

type Doing = tuple[str, str, str]
"""A kind of write: environment, method, template of the path."""


_DOUBTED = frozenset({Kind.NONDETERMINISM, Kind.DIRTY_RESET, Kind.LOST_UPDATE, Kind.RACE})


class Jobs:
    """Fed with every timeline of a run; asked at its end."""

    def __init__(self) -> None:
        self._surely: set[Cells] = set()
        self._beside: Counter[tuple[Doing, Cells]] = Counter()  # side effects of writes that ran alone
        self._alone: Counter[Doing] = Counter()

    def note(self, timeline: Timeline) -> None:
        for op in timeline.writes.closed:
            if (op.episode, op.seq) in timeline.accounted and op.ok:
                self._alone[kind_of(op)] += 1
        for change in timeline.changes:
            if change.before is None or change.after is None or not by_itself(timeline, change):
                continue
            for column in columns(change.before, change.after):
                if cell(change.before, column) != cell(change.after, column):
                    if change.by is None:
                        self._surely.add((change.row.table, column))
                    else:
                        self._beside[kind_of(change.by), (change.row.table, column)] += 1

    def cells(self) -> set[Cells]:
        """The columns that change by themselves, as far as the recording shows."""
        return self._surely | {
            at for (doing, at), times in self._beside.items() if times < 2 or times < self._alone[doing]
        }

    def doubted(self, finding: Finding) -> Finding:
        """The finding, of a lower grade where it rests on such a column alone."""
        if finding.grade is not Grade.PROVEN or finding.kind not in _DOUBTED:
            return finding
        cells = self.cells()
        column = finding.pointer.rpartition("/")[2]
        if finding.kind is Kind.DIRTY_RESET:
            tables = {row.rpartition("/")[0] for row in finding.effect.get("rows", ())}
            known = finding.sub == "content" and bool(tables) and all((table, column) in cells for table in tables)
        elif finding.pointer.startswith("state/") or finding.kind is not Kind.NONDETERMINISM:
            known = (finding.pointer.lstrip("/").removeprefix("state/").partition("/")[0], column) in cells
        else:
            known = column in {name for _, name in cells}
        if not known:
            return finding
        doubt = f"whether a job of the environment's own wrote it: {column} changed while no write was about it"
        return replace(finding, grade=Grade.SUSPECTED, cannot_say=f"{finding.cannot_say}; {doubt}")


def by_itself(timeline: Timeline, change: Change) -> bool:
    """Whether none of the writes that ran meanwhile is about the changed row, by all that it names."""
    return not any(_about(timeline, op, change) for op in change.possible)


def _about(timeline: Timeline, op: Op, change: Change) -> bool:
    row = change.row
    return (
        op.place is None or op.is_reset or op.touches(row, timeline.writes.paths) or row in op.about
        or mentions(op.asked, row) or any(at == row for at, _ in op.sets)
        or any(mentions(content, row) for content in _named(timeline, op))
        or bool(_refers_to(change) & {named.key for named in op.about})
    )  # fmt: skip


def _named(timeline: Timeline, op: Op) -> Iterator[Any]:
    """The rows that the write's path names: what they refer to it may change too."""
    for row in op.about:
        for index in timeline.near(op.fwd, min(op.end, op.answered or op.fwd)):
            yield timeline.row_at(row, index)


def _refers_to(change: Change) -> set[str]:
    """What the row refers to: a write of its parent may change it."""
    return {
        str(value) for content in (change.before, change.after) if isinstance(content, Mapping)
        for value in content.values() if isinstance(value, str | int) and not isinstance(value, bool)
    }  # fmt: skip


def kind_of(op: Op) -> Doing:
    return op.env, op.method, template_of(op.target.partition("?")[0].encode())
