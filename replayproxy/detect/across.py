"""Judgements across episodes: dirty starts, flows of values, and the bleeds that both show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from replayproxy.core.values import UNATTRIBUTED, Trace
from replayproxy.detect import bleed
from replayproxy.detect.dirty import Dirt, sightings
from replayproxy.detect.finding import STRENGTH, Finding, Grade, Kind
from replayproxy.detect.flows import Flow
from replayproxy.detect.reference import References
from replayproxy.detect.shown_values import ShownValues
from replayproxy.detect.source import Beside, Extractor, Source, Summary
from replayproxy.detect.starts import Starts
from replayproxy.detect.states import States
from replayproxy.detect.sweep import Swept
from replayproxy.detect.views import Views


class Across:
    """Dirty starts and flows of one run, after the sweep. `why`: episode -> why its start was not judged ("": it was).
    `clean_starts`: the episodes all of whose starts equal their references."""

    def __init__(self, source: Source, states: States, swept: Swept, references: References, near: Beside) -> None:
        self._source = source
        self._states = states
        self._swept = swept
        self._starts = Starts(source, states, swept, references, near)
        self._values = ShownValues(source, states, swept.summaries, anew=swept.provenance.repeats)
        self.why = self._starts.why
        self.clean_starts = self._starts.clean
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
            dirts = self._starts.of(summary)
            if dirts or flows[summary.name]:
                self._judge(summary, dirts, flows[summary.name])

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
        if dirt.settled is not None:
            until = dirt.settled.done
            dirt = replace(dirt, before_settled=tuple(e.seq for e in trace.exchanges if (e.times.fwd or 0) < until))
        return bleed.from_dirt(self._source.run.name, dirt, seen, flows, envs)


def _from(finding: Finding) -> tuple[str, ...]:
    """The episodes that it came from."""
    names = finding.effect.get("from") or ()
    return (names,) if isinstance(names, str) else tuple(names)
