"""Judgements across episodes: dirty starts, flows of values, and the bleeds that both show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from replayproxy.core.values import UNATTRIBUTED, RowChange, Snapshot, Trace
from replayproxy.detect import bleed
from replayproxy.detect.cells import Row
from replayproxy.detect.dirty import Dirt, Survivor, sightings
from replayproxy.detect.finding import STRENGTH, Finding, Grade, Kind
from replayproxy.detect.flows import Flow
from replayproxy.detect.reference import References, Start, start_of
from replayproxy.detect.shown_values import ShownValues
from replayproxy.detect.source import Beside, Extractor, Source, Summary, at_work, instance_of
from replayproxy.detect.states import Series, States
from replayproxy.detect.sweep import Swept
from replayproxy.detect.views import Views
from replayproxy.detect.written import leaver

NO_REFERENCE = "no reference"
AT_WORK = "other episodes were at work on the instance"


class Across:
    """Dirty starts and flows of one run, after the sweep. `why`: episode -> why its start was not judged ("": it was).
    `clean_starts`: the episodes all of whose starts equal their references."""

    def __init__(self, source: Source, states: States, swept: Swept, references: References, near: Beside) -> None:
        self._source = source
        self._beside = near
        self._states = states
        self._swept = swept
        self._references = references
        self._values = ShownValues(source, states, swept.summaries)
        self.why: dict[str, str] = {}
        self.clean_starts: set[str] = set()
        self.findings: list[Finding] = []

    def run(self) -> None:
        flows: dict[str, list[Flow]] = defaultdict(list)
        for flow in self._swept.provenance.evidence():
            if flow.made.episode != UNATTRIBUTED:
                flows[flow.episode].append(flow)
        for summary in self._swept.summaries.values():
            if not summary.sealed:
                self.why[summary.name] = f"the episode is {summary.episode.state}"
                continue
            dirts = self._starts(summary)
            if dirts or flows[summary.name]:
                self._judge(summary, dirts, flows[summary.name])

    # Starts

    def _starts(self, summary: Summary) -> list[Dirt]:
        reasons, dirts = [], []
        for series in summary.series:
            why, dirt = self._start(summary, series)
            reasons.append(why)
            if dirt is not None:
                dirts.append(dirt)
        if not reasons:
            reasons = ["no snapshots"]
        self.why[summary.name] = min(reasons, key=lambda why: why != "")
        if not dirts and all(why == "" for why in reasons):
            self.clean_starts.add(summary.name)
        return dirts

    def _start(self, summary: Summary, series: Series) -> tuple[str, Dirt | None]:
        snapshot = summary.usable_start(series.name)
        if snapshot is None:
            missing = summary.starts.get(series.name)
            return _no_start(missing), None
        start = start_of(summary.episode, snapshot)
        reference = self._references.of(summary.group, series.name)
        if reference is None:
            return NO_REFERENCE, None
        residue = self._references.residue(reference, start)
        if residue is not None and not residue.changes:
            return "", None
        busy = at_work(summary, snapshot, series, self._beside)
        instance = instance_of(summary.span, series, snapshot)
        survivors = [
            self._survivor(series.name, instance, change, snapshot.done)
            for change in (residue.changes if residue is not None else ())
        ]
        if busy:
            # What those at work did belongs to them, and what nobody is known to have done may.
            earlier = {n for n, other in self._swept.summaries.items() if other.span.before(summary.span)}
            survivors = [s for s in survivors if s.writer is not None and s.writer.episode in earlier]
            if not survivors:
                return AT_WORK, None
        return "", Dirt(
            episode=summary.name, series=series.name, instance=instance, start=snapshot, reference=reference,
            survivors=tuple(survivors), too_much=residue is None,
            only_counters=residue is not None and residue.only_counters, at_work=tuple(sorted(busy)),
            unchanged_since=self._unchanged_since(summary, series.name, start),
        )  # fmt: skip

    def _survivor(self, series: str, instance: str, change: RowChange, until: int) -> Survivor:
        ledger, row = self._swept.ledger, Row(change.table, change.key)
        writer, maker = leaver(ledger.writers(series, instance, row), change.before, change.after, until)
        return Survivor(change=change, writer=writer, maker=maker, perhaps=ledger.perhaps(series, instance, row))

    def _unchanged_since(self, summary: Summary, series: str, start: Start) -> str | None:
        """The episode before on this instance, if it wrote and its last state is this start."""
        earlier = [
            other for other in self._swept.summaries.values()
            if other.span.before(summary.span) and other.writes and other.last.get(series) == start.root
            and other.span.shares(summary.span, [env for s in summary.series if s.name == series for env in s.envs])
        ]  # fmt: skip
        last = max(earlier, key=lambda other: other.span.opened_wall, default=None)
        return last.name if last is not None else None

    # Findings

    def _judge(self, summary: Summary, dirts: Sequence[Dirt], flows: Sequence[Flow]) -> None:
        trace = self._source.trace(summary.episode)
        found = [finding for dirt in dirts for finding in self._left(summary, dirt, trace, flows)]
        told = {_from(f): f for f in found if f.kind is Kind.STATE_BLEED}
        for finding in self._values.findings(summary, trace, flows):
            before = told.get(_from(finding))
            if before is None:
                found.append(finding)
            elif STRENGTH[finding.grade] < STRENGTH[before.grade]:
                # The same bleed, shown better by a value than by the rows.
                found[found.index(before)] = replace(finding, covers=finding.covers | before.covers)
        bleeds = [f for f in found if f.kind is Kind.STATE_BLEED and f.grade is Grade.PROVEN]
        shown = {name for f in bleeds for name in _from(f)}
        for finding in found:
            # What was left and then read is one fault: the bleed tells it.
            left = _from(finding)
            if finding.kind is not Kind.DIRTY_RESET or not left or not shown.issuperset(left):
                self.findings.append(finding)

    def _left(self, summary: Summary, dirt: Dirt, trace: Trace, flows: Sequence[Flow]) -> list[Finding]:
        extractor = Extractor(self._source.run, self._states)
        ops = extractor.extract(trace, Views()).ops
        envs = next(s.envs for s in summary.series if s.name == dirt.series)
        own = [op for op in ops if op.env in envs]
        seen = sightings(dirt, own, [e for e in trace.exchanges if e.env in envs])
        return bleed.from_dirt(self._source.run.name, dirt, seen, flows, envs)


def _from(finding: Finding) -> tuple[str, ...]:
    """The episodes that it came from."""
    names = finding.effect.get("from") or ()
    return (names,) if isinstance(names, str) else tuple(names)


def _no_start(snapshot: Snapshot | None) -> str:
    if snapshot is None:
        return "no start snapshot"
    return f"start snapshot {snapshot.status}" + (f": {snapshot.reason}" if snapshot.reason else "")
