"""What a run's judges are given, and what each of its episodes leaves behind for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from replayproxy.core.rules import Rule
from replayproxy.core.values import Episode, EpisodeState, Exchange, Run, Snapshot, SnapshotStatus, Trace
from replayproxy.detect.cells import Paths, Tables
from replayproxy.detect.finding import Finding
from replayproxy.detect.nondeterminism import Ahead
from replayproxy.detect.ops import Effect, Op, op_of
from replayproxy.detect.reference import Group, group_of
from replayproxy.detect.revalidated import Stand
from replayproxy.detect.spans import Span, span_of
from replayproxy.detect.states import Series, States, listing_of, records, seconds, series_of, starts, usable, whole
from replayproxy.detect.verdicts import failed
from replayproxy.detect.views import Views


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A run as its judges see it: which episodes there are, and how to read one. `bucket`: what had no episode."""

    run: Run
    episodes: Sequence[Episode]
    trace: Callable[[Episode], Trace]
    load: Callable[[bytes], bytes]
    bucket: Trace | None = None
    rules: Sequence[Rule] = ()
    today: date | None = None  # the day that rules are measured by
    ahead: Ahead | None = None
    amend: Callable[[Sequence[Finding]], Sequence[Finding]] = tuple
    """What sending findings again has made of them: raised grades, and faults that only a trial showed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is kept of an episode for the whole check: no bodies."""

    episode: Episode
    span: Span
    group: Group
    exchanges: int
    envs: frozenset[str]  # those it used
    first_write: int | None  # when its first write was sent; None: it wrote nothing
    written: int  # how many writes it sent
    lost: tuple[int, ...]
    starts: Mapping[str, Snapshot]
    second: Mapping[str, Snapshot]  # series -> the first whole reading after the start
    last: Mapping[str, bytes]  # series -> the root of its last reading
    series: tuple[Series, ...]
    missing: int
    torn: int
    late: int

    @property
    def name(self) -> str:
        return self.episode.name

    @property
    def writes(self) -> bool:
        return self.first_write is not None

    @property
    def sealed(self) -> bool:
        return self.episode.state is EpisodeState.SEALED

    def usable_start(self, series: str) -> Snapshot | None:
        snapshot = self.starts.get(series)
        return snapshot if snapshot is not None and whole(snapshot) else None


type Beside = Mapping[str, Sequence[Summary]]
"""Episode -> those that were open at the same time and shared an instance with it."""


def beside(summaries: Iterable[Summary]) -> Beside:
    """Linear in the episodes, times how many of them are open at once."""
    found: dict[str, list[Summary]] = {}
    active: list[Summary] = []
    for summary in sorted(summaries, key=lambda s: (s.span.opened_wall, s.span.opened)):
        active = [other for other in active if not other.span.before(summary.span)]
        found[summary.name] = [
            other for other in active
            if other.span.overlaps(summary.span) and other.span.shares(summary.span, summary.span.instances)
        ]  # fmt: skip
        for other in found[summary.name]:
            found[other.name].append(summary)
        active.append(summary)
    return found


def at_work(summary: Summary, snapshot: Snapshot, series: Series, near: Beside) -> set[str]:
    """The episodes beside `summary` that had written to the state when the snapshot was read, and had not ended."""
    if snapshot.scope == "episode":
        return set()
    return {
        other.name for other in near[summary.name]
        if other.first_write is not None and other.first_write <= snapshot.done
        and other.span.opened <= snapshot.done and snapshot.begun <= other.span.ended
        and other.span.shares(summary.span, series.envs)
    }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract:
    """An episode's operations and readings, kept while an episode that overlaps it is still to be judged."""

    summary: Summary
    ops: Sequence[Op]
    snapshots: Sequence[Snapshot]
    probes: Sequence[Op] = ()  # reads that no agent asked for
    paths: frozenset[str] = field(default_factory=frozenset)  # environments whose state no snapshot shows
    stands: Mapping[int, Stand] = field(default_factory=dict)  # what its answers 304 say is current

    @property
    def span(self) -> Span:
        return self.summary.span


class Extractor:
    """Makes extracts; remembers the tables of each environment for episodes that have no snapshot of their own."""

    def __init__(self, run: Run, states: States) -> None:
        self._run = run
        self._states = states
        self._known: dict[str, Tables] = {}

    def extract(self, trace: Trace, views: Views) -> Extract:
        series = series_of(trace.run, trace.snapshots)
        tables = self._tables(trace.snapshots, records(series))
        name = trace.episode.name
        ops = [op_of(self._run, name, e, tables[e.env], views) for e in trace.exchanges if e.env in tables]
        probes = [op for op in ops if op.is_probe and op.effect is Effect.NONE]
        ops = [op for op in ops if not (op.is_probe and op.effect is Effect.NONE)]
        return Extract(
            summary=self._summary(trace, series, ops),
            ops=ops,
            probes=probes,
            snapshots=[snapshot for snapshot in trace.snapshots if usable(snapshot)],
            paths=frozenset(env for env, found in tables.items() if isinstance(found, Paths)),
        )

    def ops(self, exchanges: Sequence[Exchange], episode: str) -> list[Op]:
        """The operations of exchanges in the light of the tables known so far."""
        return [
            op_of(self._run, episode, e, self._known.get(e.env, Paths()), Views())
            for e in exchanges if e.env in self._run.envs
        ]  # fmt: skip

    def _tables(self, snapshots: Sequence[Snapshot], series: Sequence[Series]) -> dict[str, Tables]:
        for one in series:
            root = next((s.root for s in snapshots if s.name == one.name and usable(s) and s.root is not None), None)
            if root is not None:
                found = self._states.tables(root, listing_of(self._run, one.name))
                for env in one.envs:
                    self._known[env] = found
        return {env: self._known.get(env) or Paths() for env in self._run.envs}

    def _summary(self, trace: Trace, series: Sequence[Series], ops: Sequence[Op]) -> Summary:
        last = {s.name: s.root for s in trace.snapshots if usable(s) and s.root is not None}
        return Summary(
            episode=trace.episode, span=span_of(trace.run, trace.episode), group=group_of(trace.episode),
            exchanges=sum(not e.is_probe for e in trace.exchanges),
            envs=frozenset(e.env for e in trace.exchanges) & frozenset(self._run.envs),
            first_write=min((op.fwd for op in ops if op.effect is not Effect.NONE), default=None),
            written=sum(op.effect is not Effect.NONE for op in ops),
            lost=tuple(failed(trace.exchanges)), starts=starts(trace.snapshots),
            second=seconds(trace.snapshots), last=last, series=tuple(series),
            missing=_count(trace, SnapshotStatus.MISSING), torn=_count(trace, SnapshotStatus.TORN),
            late=sum(s.late for s in trace.snapshots),
        )  # fmt: skip


def _count(trace: Trace, status: SnapshotStatus) -> int:
    return sum(snapshot.status is status for snapshot in trace.snapshots)


def instance_of(span: Span, series: Series, snapshot: Snapshot | None) -> str:
    """What tells one state from another: the instances that a series shows, and the episode if it is its own."""
    own = span.name if snapshot is not None and snapshot.scope == "episode" else ""
    return "\n".join([own, *(span.instances.get(env, "") for env in sorted(series.envs))])
