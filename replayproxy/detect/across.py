"""Judgements across episodes: dirty starts, flows of values, and the bleeds that both show."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence

from replayproxy.core import jsonvalue
from replayproxy.core.values import UNATTRIBUTED, RowChange, Snapshot, Trace
from replayproxy.detect import bleed
from replayproxy.detect.bleed import Baseline
from replayproxy.detect.cells import Row
from replayproxy.detect.dirty import Dirt, Survivor, sightings
from replayproxy.detect.finding import Finding, Grade, Kind, Witness, witness
from replayproxy.detect.provenance import Flow, in_text, key_of
from replayproxy.detect.reference import References, Start, start_of
from replayproxy.detect.source import Beside, Extractor, Source, Summary, at_work, instance_of
from replayproxy.detect.states import Series, States
from replayproxy.detect.sweep import Swept
from replayproxy.detect.views import Views
from replayproxy.detect.written import leaver

MAX_ROOTS = 32
"""Start states that are searched for a value; the most recent before it was made."""

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
        self._values: OrderedDict[bytes, frozenset[str]] = OrderedDict()
        self._before: dict[str, list[bytes]] = {}
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

    def _concurrent(self, summary: Summary, maker: str) -> bool:
        return self._swept.summaries[maker].span.overlaps(summary.span)

    def _judge(self, summary: Summary, dirts: Sequence[Dirt], flows: Sequence[Flow]) -> None:
        trace = self._source.trace(summary.episode)
        run = self._source.run.name
        extractor = Extractor(self._source.run, self._states)
        ops = extractor.extract(trace, Views()).ops
        found: list[Finding] = []
        for dirt in dirts:
            envs = next(s.envs for s in summary.series if s.name == dirt.series)
            own = [op for op in ops if op.env in envs]
            exchanges = [e for e in trace.exchanges if e.env in envs]
            seen = sightings(dirt, own, exchanges)
            found += bleed.from_dirt(run, dirt, seen, flows, envs)
        told = {f.effect.get("from") for f in found if f.kind is Kind.STATE_BLEED}
        by_maker: dict[str, list[Flow]] = defaultdict(list)
        for flow in flows:
            if flow.made.episode not in told:
                # Who shares an instance with others may see all of them; that is one finding.
                together = self._concurrent(summary, flow.made.episode)
                by_maker["" if together else flow.made.episode].append(flow)
        for maker, values in by_maker.items():
            finding = self._flow(summary, values, trace, concurrent=maker == "")
            if finding is not None:
                found.append(finding)
        shown = {f.effect.get("from") for f in found if f.kind is Kind.STATE_BLEED and f.grade is Grade.PROVEN}
        for finding in found:
            # What was left and then read is one fault: the bleed tells it.
            left = finding.effect.get("from")
            if finding.kind is not Kind.DIRTY_RESET or not left or not shown.issuperset(left):
                self.findings.append(finding)

    def _flow(self, summary: Summary, flows: Sequence[Flow], trace: Trace, *, concurrent: bool) -> Finding | None:
        baselines = {f: self._baseline(f, self._swept.summaries[f.made.episode], summary) for f in flows}
        return bleed.from_flows(
            self._source.run.name, flows, baselines, concurrent, lambda flow: self._witnesses(summary, flow, trace)
        )

    def _witnesses(self, reader: Summary, flow: Flow, trace: Trace) -> list[Witness]:
        run, maker = self._source.run.name, self._swept.summaries[flow.made.episode]
        made = next((e for e in self._source.trace(maker.episode).exchanges if e.seq == flow.made.seq), None)
        read = next((e for e in trace.exchanges if e.seq == flow.seq), None)
        return [
            witness(run, name, exchange, role, pointer=pointer, value=flow.value)
            for name, exchange, role, pointer in (
                (maker.name, made, "write", ""), (reader.name, read, "read", flow.pointer),
            )
            if exchange is not None
        ]  # fmt: skip

    def _baseline(self, flow: Flow, maker: Summary, reader: Summary) -> Baseline:
        """Looks for the value in the states that were there before it was made, and after."""
        value = key_of(flow.value)
        if maker.name not in self._before:
            self._before[maker.name] = [s.root for s in self._starts_before(maker) if s.root is not None]
        before = self._before[maker.name]
        own = [root for name in maker.starts if (s := maker.usable_start(name)) and (root := s.root)]
        if not own:
            return Baseline(free=False, kept=False, checked=0)
        roots = list(dict.fromkeys([*own, *before]))[:MAX_ROOTS]
        free = not any(value in self._held(root) for root in roots)
        later = [s.root for name in reader.starts if (s := reader.usable_start(name)) and s.root is not None]
        kept = any(value in self._held(root) for root in [*maker.last.values(), *later])
        return Baseline(free=free, kept=kept, checked=len(roots))

    def _starts_before(self, maker: Summary) -> list[Snapshot]:
        found = [
            snapshot
            for summary in self._swept.summaries.values()
            if summary.span.opened_wall <= maker.span.opened_wall
            for name in summary.starts
            if (snapshot := summary.usable_start(name)) is not None
        ]
        return sorted(found, key=lambda snapshot: -snapshot.wall)[: 4 * MAX_ROOTS]

    def _held(self, root: bytes) -> frozenset[str]:
        """Every value with much chance in it that a state holds."""
        held = self._values.pop(root, None)
        if held is None:
            held = frozenset(_long_values(self._states.rows(root)))
        self._values[root] = held
        while len(self._values) > MAX_ROOTS:
            self._values.popitem(last=False)
        return held


def _no_start(snapshot: Snapshot | None) -> str:
    if snapshot is None:
        return "no start snapshot"
    return f"start snapshot {snapshot.status}" + (f": {snapshot.reason}" if snapshot.reason else "")


def _long_values(rows: Mapping[str, Mapping[str, object]]) -> set[str]:
    found: set[str] = set()
    for content in rows.values():
        for key, row in content.items():
            found |= {key_of(token) for token in in_text(key)}
            for path, leaf in jsonvalue.leaves(row):
                if isinstance(leaf, str):
                    found |= {key_of(token) for token in in_text(leaf)}
                elif isinstance(leaf, int) and leaf > 1 << 46:
                    found.add(str(leaf))
                found |= {key_of(t) for name in path if isinstance(name, str) for t in in_text(name)}
    return found
