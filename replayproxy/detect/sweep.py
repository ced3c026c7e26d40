"""Goes through a run's episodes in the order of time, once, and judges each when all that overlapped it was read.

Memory is bounded by how many episodes were open at the same time. Along the way it notes who wrote which row and who
made which value, for the judgements that look across episodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from replayproxy.core.canaries import planted
from replayproxy.core.values import UNATTRIBUTED, EpisodeState, Trace
from replayproxy.detect import stale_findings
from replayproxy.detect.agreement import Agreement, Pair
from replayproxy.detect.finding import Finding
from replayproxy.detect.jobs import Jobs
from replayproxy.detect.late import settle
from replayproxy.detect.ops import Effect, Op
from replayproxy.detect.provenance import Provenance
from replayproxy.detect.race import Races, declared
from replayproxy.detect.representations import Spells
from replayproxy.detect.revalidated import Stand, as_readings, stands
from replayproxy.detect.source import Extract, Extractor, Source, Summary, instance_of
from replayproxy.detect.spans import Span, in_time, span_of
from replayproxy.detect.stale_grade import doubt_of
from replayproxy.detect.stale_read import Judged, Stale, look
from replayproxy.detect.states import Series, States, records
from replayproxy.detect.timeline import Shot, Timeline
from replayproxy.detect.tokens import Tokens
from replayproxy.detect.validator_pairs import ValidatorPairs
from replayproxy.detect.views import Views
from replayproxy.detect.written import Ledger

NEITHER = (None, None)
"""Neither task nor seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """An episode with reads that look stale, of members not yet known to be columns; decided at the end of the run."""

    episode: str
    timeline: Timeline
    judged: Judged
    own: tuple[Op, ...]


@dataclass(slots=True)
class Swept:
    """What the sweep leaves."""

    summaries: dict[str, Summary] = field(default_factory=dict)
    stale: list[tuple[Finding, Pair | None]] = field(default_factory=list)
    suspicions: list[Suspicion] = field(default_factory=list)
    stale_coverage: dict[str, str] = field(default_factory=dict)  # episode -> why not checked; "" checked
    late: set[str] = field(default_factory=set)  # episodes in which an effect came after its answer
    agreement: Agreement = field(default_factory=Agreement)
    tokens: Tokens = field(default_factory=Tokens)
    ledger: Ledger = field(default_factory=Ledger)
    provenance: Provenance = field(default_factory=Provenance)
    jobs: Jobs = field(default_factory=Jobs)
    races: Races = field(default_factory=lambda: Races(""))
    validators: ValidatorPairs = field(default_factory=ValidatorPairs)

    def stale_reads(self, run: str) -> Iterator[Finding]:
        """What is left of the stale reads now that all is known of the members of answers."""
        yield from (found for found, pair in self.stale if pair is None or self.agreement.holds(pair))
        for one in self.suspicions:
            if any(stale.credible(self.agreement, self.tokens) for stale in one.judged.stale):
                self.stale_coverage[one.episode] = ""
            judged = stale_findings.findings(
                run, one.episode, one.timeline, one.judged, self.agreement, self.tokens, one.own
            )
            yield from (found for found, _ in judged)


class Sweep:
    """See the module."""

    def __init__(self, source: Source, states: States) -> None:
        self._source = source
        self._states = states
        self._extractor = Extractor(source.run, states)
        self._live: list[Extract] = []
        self._waiting: list[Extract] = []
        self._bucket: list[Op] | None = None
        self._resets = [e for e in source.bucket.exchanges if e.is_reset] if source.bucket is not None else []
        self.swept = Swept(
            races=Races(source.run.name, declared(source.run)),
            validators=ValidatorPairs(rules=source.rules, today=source.today),
        )

    def run(self) -> Swept:
        run, provenance = self._source.run, self.swept.provenance
        by_name = {episode.name: episode for episode in self._source.episodes}
        if self._source.bucket is not None:
            provenance.add(run, UNATTRIBUTED, self._source.bucket.exchanges, Views(), judged=False)
        spans = list(in_time(span_of(run, episode) for episode in by_name.values()))
        for number, span in enumerate(spans):
            self._pass(span)
            trace = self._source.trace(by_name[span.name])
            views = Views()
            extract = self._extractor.extract(trace, views)
            extract = replace(extract, stands=self._validators(trace, spans, number, views))
            self.swept.summaries[span.name] = extract.summary
            self._offer(extract.summary)
            provenance.plant(span.name, planted(trace.events))
            provenance.add(run, span.name, trace.exchanges, views, judged=extract.summary.sealed)
            self._live.append(extract)
            self._waiting.append(extract)
        for extract in self._waiting:
            self._judge(extract)
        return self.swept

    def _validators(self, trace: Trace, spans: Sequence[Span], number: int, views: Views) -> dict[int, Stand]:
        """Looks for violated validators; what the answers 304 speak of."""
        run, name, span = self._source.run, trace.episode.name, spans[number]
        began = list(_beginnings(spans, number))
        meanwhile = [e for e in self._resets if span.opened <= (e.times.up_end or e.times.head) <= span.ended]
        spells = Spells((*trace.exchanges, *meanwhile), began)
        if trace.episode.state is EpisodeState.SEALED:
            self.swept.validators.look(run.name, name, trace.exchanges, spells, views, alone=not began)
        return stands(trace.exchanges, spells, views)

    def _offer(self, summary: Summary) -> None:
        """It may have siblings to be compared with, which can be done meanwhile."""
        if self._source.ahead is not None and summary.sealed and summary.exchanges and summary.group[:2] != NEITHER:
            self._source.ahead.offer(summary.episode, summary.group)

    def _pass(self, now: Span) -> None:
        """Judges the episodes that nothing from `now` on can overlap, and lets go of what nobody needs any more."""
        ready = [extract for extract in self._waiting if extract.span.before(now)]
        for extract in ready:
            self._judge(extract)
        self._waiting = [extract for extract in self._waiting if not extract.span.before(now)]
        self._live = [
            extract for extract in self._live
            if not extract.span.before(now) or any(extract.span.overlaps(w.span) for w in self._waiting)
        ]  # fmt: skip

    def _judge(self, extract: Extract) -> None:
        name = extract.summary.name
        if not extract.summary.sealed:
            self.swept.stale_coverage[name] = f"the episode is {extract.summary.episode.state}"
        else:
            reasons = [self._judge_state(extract, one) for one in self._states_of(extract)]
            self.swept.stale_coverage[name] = min(reasons, key=lambda why: why != "", default="no exchanges")

    def _states_of(self, extract: Extract) -> list[Series]:
        """The states to judge against: each series of the system of record, and each environment without one."""
        shown = records([one for one in extract.summary.series if self._shots(extract, one)])
        covered = {env for one in shown for env in one.envs}
        used = {op.env for op in extract.ops}
        bare = [Series(name="", envs=frozenset({env})) for env in sorted(used - covered)]
        return [one for one in shown if one.envs & used] + bare

    def _judge_state(self, extract: Extract, series: Series) -> str:
        """Why nothing can be said about stale reads of this state; "" when it was looked into."""
        timeline, own = self._timeline(extract, series)
        seen = as_readings([*own, *(op for op in extract.probes if op.env in series.envs)], extract.stands)
        judged = look(timeline, seen, self.swept.agreement, self.swept.tokens, extract.summary.name)
        first = next((s for s in extract.snapshots if s.name == series.name), None)
        instance = instance_of(extract.span, series, first)
        self.swept.ledger.note(series.name, instance, extract.summary.name, timeline, own)
        self.swept.jobs.note(timeline)
        self.swept.races.look(extract.summary.name, timeline, own)
        if timeline.late:
            self.swept.late.add(extract.summary.name)
        if judged.stale:
            self._keep(extract.summary.name, timeline, judged, seen)
        known = any(stale.credible(self.swept.agreement, self.swept.tokens) for stale in judged.stale)
        return _why_not(timeline, judged, own, known=known)

    def _keep(self, name: str, timeline: Timeline, judged: Judged, own: list[Op]) -> None:
        """Findings where all is known; the whole evidence only where it is not, because it is large."""
        agreement, tokens = self.swept.agreement, self.swept.tokens
        if all(
            stale.credible(agreement, tokens) and _stands_alone(timeline, stale, agreement) for stale in judged.stale
        ):
            run = self._source.run.name
            self.swept.stale += stale_findings.findings(run, name, timeline, judged, agreement, Tokens(), own)
        else:
            self.swept.suspicions.append(Suspicion(episode=name, timeline=timeline, judged=judged, own=tuple(own)))

    def _timeline(self, extract: Extract, series: Series) -> tuple[Timeline, list[Op]]:
        shots = self._shots(extract, series)
        begin = shots[0].snapshot.begun if shots else extract.span.opened
        own = [op for op in extract.ops if op.env in series.envs]
        beside = [
            other for other in self._live
            if other is not extract and other.span.overlaps(extract.span)
            and other.span.shares(extract.span, series.envs) and not _apart(extract, series)
        ]  # fmt: skip
        ops = list(own)
        for other in beside:
            ops += [op for op in other.ops if _meanwhile(op, series, begin, extract.span.ended)]
            if shots:
                shots += [
                    shot for shot in self._shots(other, series)
                    if begin <= shot.snapshot.begun and shot.snapshot.done <= _end(extract)
                ]  # fmt: skip
        ops += [op for op in self._strays() if _meanwhile(op, series, begin, extract.span.ended)]
        paths = all(env in extract.paths for env in series.envs)
        return settle(Timeline(_in_order(shots), ops, self._states, paths=paths, name=series.name)), own

    def _shots(self, extract: Extract, series: Series) -> list[Shot]:
        return [
            Shot(episode=extract.summary.name, snapshot=snapshot)
            for snapshot in extract.snapshots if snapshot.name == series.name
        ]  # fmt: skip

    def _strays(self) -> list[Op]:
        if self._bucket is None:
            exchanges = self._source.bucket.exchanges if self._source.bucket is not None else ()
            found = self._extractor.ops(exchanges, UNATTRIBUTED)
            # Nobody says what these were about, nor on which instance: each may have set anything.
            self._bucket = [replace(op, place=None, sets={}) for op in found if op.effect is not Effect.NONE]
        return self._bucket


def _beginnings(spans: Sequence[Span], number: int) -> Iterator[int]:
    """When other episodes began on an instance of an episode while it ran: each may have reset it."""
    own = spans[number]
    for other in spans[number + 1 :]:
        if own.before(other):
            return
        if own.overlaps(other) and own.shares(other, own.instances):
            yield other.opened


def _apart(extract: Extract, series: Series) -> bool:
    """Whether the state that the series shows is the episode's own, whoever else uses the instance."""
    mine = [snapshot for snapshot in extract.snapshots if snapshot.name == series.name]
    return bool(mine) and all(snapshot.scope == "episode" for snapshot in mine)


def _meanwhile(op: Op, series: Series, begin: int, end: int) -> bool:
    return op.effect is not Effect.NONE and op.env in series.envs and op.end >= begin and op.fwd <= end


def _end(extract: Extract) -> int:
    return max([extract.span.ended, *(snapshot.done for snapshot in extract.snapshots)])


def _in_order(shots: list[Shot]) -> list[Shot]:
    """By time; a reading that several episodes shared counts once."""
    found: list[Shot] = []
    for shot in sorted(shots, key=lambda shot: (shot.snapshot.begun, shot.snapshot.done)):
        same = found and (found[-1].snapshot.begun, found[-1].root) == (shot.snapshot.begun, shot.root)
        if not same:
            found.append(shot)
    return found


def _stands_alone(timeline: Timeline, stale: Stale, agreement: Agreement) -> bool:
    """Whether no token can change the grade: which members are tokens is known only at the end of the run."""
    if stale.by_token or stale.against is not None:
        return False
    return stale.token is None or not doubt_of(timeline, stale, agreement)


def _why_not(timeline: Timeline, judged: Judged, own: list[Op], *, known: bool) -> str:
    """`known`: a read that looks stale is of a member that is known to be the column, or needs none."""
    if not own:
        return "no exchanges"
    if timeline.too_much:
        return "too much changed between two snapshots"
    if judged.declared or known:
        return ""
    if judged.stale and judged.current == judged.bare:
        return "no read of the kind agreed with the state at a quiet moment"
    if judged.current:
        return ""
    if judged.unknown:
        return "who wrote the values that were read is not known"
    if not timeline.shots:
        return "no snapshots, and no value that a write echoed was read again"
    if not judged.mapped:
        return "no read shows a row as the snapshots do"
    return ""  # rows were read, and nothing changed while they were
