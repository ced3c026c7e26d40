"""What `blame` reads of a run: episodes and timelines, each once, and which episodes came before on an instance."""

from __future__ import annotations

from replayproxy.core.values import UNATTRIBUTED, Episode, Run, Snapshot, Trace
from replayproxy.detect.late import settle
from replayproxy.detect.lineage import Cell
from replayproxy.detect.ops import Op
from replayproxy.detect.source import Extract, Extractor
from replayproxy.detect.spans import Span, in_time, span_of
from replayproxy.detect.states import States, envs_of, records, starts, usable
from replayproxy.detect.timeline import Shot, Timeline, cell
from replayproxy.detect.views import Views
from replayproxy.errors import UnknownAddress
from replayproxy.storage import Reader

MOST_EPISODES = 100
"""Earlier episodes of an instance that are looked into."""


class Recorded:
    """One run, of which as little is read as is asked for."""

    def __init__(self, reader: Reader, run: Run) -> None:
        self.reader, self.run = reader, run
        self.states = States(reader.node)
        self.episodes = {episode.name: episode for episode in reader.episodes(run)}
        self._extractor = Extractor(run, self.states)
        self._spans = in_time(span_of(run, episode) for episode in self.episodes.values())
        self._known: dict[str, tuple[Trace, Extract]] = {}
        self._bucket_ops: list[Op] | None = None

    def read(self, name: str) -> tuple[Trace, Extract]:
        """An episode and what its exchanges did."""
        if name not in self._known:
            trace = self.reader.trace(self.run, self.episodes[name])
            self._known[name] = trace, self._extractor.extract(trace, Views())
        return self._known[name]

    def _span(self, name: str) -> Span:
        return next(span for span in self._spans if span.name == name)

    def before(self, episode: Episode, env: str) -> list[str]:
        """The episodes of the instance that had ended before, the latest first."""
        own = self._span(episode.name)
        earlier = [s for s in self._spans if s.before(own) and s.shares(own, [env])]
        return [span.name for span in reversed(earlier)][:MOST_EPISODES]

    def timeline(self, name: str, env: str) -> Timeline:
        """Of one episode, with the writes of those that ran beside it."""
        _, extract = self.read(name)
        own = self._span(name)
        beside = [s.name for s in self._spans if s.name != name and s.overlaps(own) and s.shares(own, [env])]
        ops = [op for other in [name, *beside] for op in self.read(other)[1].ops if op.env == env]
        series = [one for one in records(extract.summary.series) if env in one.envs]
        shots = [
            Shot(episode=name, snapshot=shot) for shot in extract.snapshots if series and shot.name == series[0].name
        ]
        ordered = sorted(shots, key=lambda shot: shot.snapshot.begun)
        name_of = series[0].name if series else ""
        return settle(Timeline(ordered, ops, self.states, paths=not ordered, name=name_of))

    def shots(self, episode: Episode) -> list[Snapshot]:
        """Its snapshots that hold a state, in order."""
        return [shot for shot in self.reader.snapshots(episode) if usable(shot)]

    def first(self, name: str, env: str) -> Snapshot | None:
        """The start snapshot of an environment."""
        found = starts(self.reader.snapshots(self.episodes[name]))
        return next((shot for series, shot in found.items() if env in envs_of(self.run, series)), None)

    def left(self, name: str, env: str, of: Cell, wanted: str) -> bool:
        """Whether an episode's last reading holds the value; True where there is none to tell."""
        shots = [s for s in self.shots(self.episodes[name]) if env in envs_of(self.run, s.name) and "." not in s.name]
        return not shots or cell(self.states.row(shots[-1].root or b"", of.row), of.column) == wanted

    def resets(self) -> list[Op]:
        """The resets of the run, in order; they belong to no episode."""
        if self._bucket_ops is None:
            try:
                bucket = self.reader.episode(self.run, UNATTRIBUTED)
            except UnknownAddress:
                self._bucket_ops = []
            else:
                found = [x for x in self.reader.exchanges(bucket) if x.is_reset]
                self._bucket_ops = self._extractor.ops(found, UNATTRIBUTED)
        return self._bucket_ops
