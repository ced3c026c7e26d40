"""`mask`: which rollouts the trainer should leave out, and the file of rollouts with that written into it.

Every line keeps its bytes and its place; what is added stands before its last brace. Nothing is written when a line is
no JSON object, when more is masked or unmatched than allowed, or when the process ends in the middle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from replayproxy.core.jsonsplice import inserted, renewed
from replayproxy.errors import worst
from replayproxy.session.mask_marks import ADDED, Demands, How, Mark, Marks, also_given, masked_before
from replayproxy.session.mask_report import Report
from replayproxy.session.mask_verdicts import Verdicts
from replayproxy.session.rollouts import Document, Field, field, lines, opened
from replayproxy.session.rollouts_join import Join
from replayproxy.session.rollouts_out import WholeFile

type Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """What `mask` did with a file. `out` None: nothing was written."""

    judged: Verdicts
    join: Join
    source: Path
    out: Path | None
    demands: Demands
    report: Report

    @property
    def why(self) -> list[str]:
        return [why for _, why in self.report.failures(self.demands)]

    @property
    def exit(self) -> int:
        return worst(*(code for code, _ in self.report.failures(self.demands)))


def mask_lines(
    judged: Verdicts, join: Join, demands: Demands, source: Path, out: Path | None, *,
    reward: str, progress: Progress | None = None,
) -> Masked:  # fmt: skip
    """Masks a file of JSON lines. `out` None, or `--how list`: nothing is written. `reward`: the field of a rollout by
    which its group is compared; where it has none, its episode's is."""
    report, marks, reward_of = Report(), Marks(judged, demands), field(reward)
    if out is None or demands.how is How.LIST:
        _each(source, join, marks, report, reward_of, None, demands.how, progress)
        return Masked(judged=judged, join=join, source=source, out=None, demands=demands, report=report)
    with WholeFile(out, like=source) as file:
        _each(source, join, marks, report, reward_of, file.write, demands.how, progress)
        kept = not report.failures(demands)
        if kept:
            file.keep()
    return Masked(judged=judged, join=join, source=source, out=out if kept else None, demands=demands, report=report)


def _each(
    source: Path, join: Join, marks: Marks, report: Report, reward: Field,
    write: Callable[[bytes], None] | None, how: How, progress: Progress | None,
) -> None:  # fmt: skip
    size, seen = source.stat().st_size, 0
    with opened(source) as file:
        for line in lines(file, str(source)):
            document, raw = line.document, line.raw
            if document is None:
                report.blank += 1
            else:
                match = join.match(document)
                mark, added = marks.matched(match)
                given = masked_before(document)
                report.see(line.number, match, mark, reward(document), given=given)
                if how is How.ANNOTATE and write is not None:
                    raw = annotated(raw, document, also_given(mark) if given else mark, added)
                elif mark.masked and how is How.DROP:
                    raw = b""
            if write is not None:
                write(raw)
            seen += len(line.raw)
            if progress is not None and line.number % 1000 == 0:
                progress(seen, size)


def annotated(raw: bytes, document: Document, mark: Mark, added: bytes) -> bytes:
    """The line with its mark. Members of these names that it has already get the new values where they stand."""
    if ADDED.isdisjoint(document):
        return inserted(raw, added, empty=not document)
    return renewed(raw, mark.members())
