"""`mask` on a Parquet file: the members that a line would get, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from replayproxy.session.mask import Masked, Progress
from replayproxy.session.mask_marks import (
    ADDED,
    EPISODE,
    MASK,
    REASONS,
    VERDICT,
    Demands,
    How,
    Mark,
    Marks,
    also_given,
    masked_before,
)
from replayproxy.session.mask_report import Report
from replayproxy.session.mask_verdicts import Verdicts
from replayproxy.session.rollouts import Document, field, outermost
from replayproxy.session.rollouts_join import Join
from replayproxy.session.rollouts_out import WholeFile
from replayproxy.session.rollouts_parquet import TableOut, documents, mask_columns, table_file, tables


def mask_table(
    judged: Verdicts, join: Join, demands: Demands, source: Path, out: Path | None, *,
    reward: str, progress: Progress | None = None,
) -> Masked:  # fmt: skip
    """As `mask_lines`; a row is what a line is there."""
    seen = _Rows(join, Marks(judged, demands), reward, progress)
    report = seen.report
    if out is None or demands.how is How.LIST:
        with table_file(source) as file:
            for table in tables(file):
                seen.rows(table, file.metadata.num_rows)
        return Masked(judged=judged, join=join, source=source, out=None, demands=demands, report=report)
    with WholeFile(out, like=source) as whole, table_file(source) as file:
        dropped = demands.how is How.DROP
        columns = {} if dropped else mask_columns(MASK, REASONS, EPISODE, VERDICT)
        with TableOut(whole.file, file, columns, whole.trouble) as written:
            for table in tables(file):
                marks = seen.rows(table, file.metadata.num_rows)
                _write(written, table, marks, demands.how)
        kept = not report.failures(demands)
        if kept:
            whole.keep()
    return Masked(judged=judged, join=join, source=source, out=out if kept else None, demands=demands, report=report)


class _Rows:
    """Joins row after row and counts them."""

    def __init__(self, join: Join, marks: Marks, reward: str, progress: Progress | None) -> None:
        self.report = Report(unit="row")
        self._join, self._marks, self._progress = join, marks, progress
        self._reward = field(reward)
        fields = [*(pair.line for pair in join.on), reward]
        self._needed = list(dict.fromkeys([*(one for name in fields for one in outermost(name)), *sorted(ADDED)]))

    def rows(self, table: Any, of: int) -> list[tuple[Mark, bool]]:
        """The mark of each row, and whether somebody else had masked it."""
        found = [self._row(document) for document in documents(table, self._needed)]
        if self._progress is not None:
            self._progress(self.report.lines, of)
        return found

    def _row(self, document: Document) -> tuple[Mark, bool]:
        match = self._join.match(document)
        mark, _ = self._marks.matched(match)
        given = masked_before(document)
        self.report.see(self.report.lines + 1, match, mark, self._reward(document), given=given)
        return mark, given


def _write(out: TableOut, table: Any, marks: Sequence[tuple[Mark, bool]], how: How) -> None:
    if how is How.DROP:
        out.keep(table, [not mark.masked for mark, _ in marks])
        return
    rows = [(also_given(mark) if given else mark).values() for mark, given in marks]
    out.write(table, {name: [row[name] for row in rows] for name in (MASK, REASONS, EPISODE, VERDICT)})
