"""Recordings written by hand: exchanges and states at given milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from replayproxy.core import prolly
from replayproxy.core.values import UNATTRIBUTED, Episode, EpisodeState, Event, Exchange, Run, Trace
from replayproxy.detect.finding import Finding
from replayproxy.detect.judge import Judgement, judge_run
from replayproxy.detect.source import Source
from replayproxy.testing import MS, WALL0, run, snapshot, trace

type State = Mapping[str, Mapping[str, Any]]


class Hand:
    """Collects episodes; `judge()` judges them as one run."""

    def __init__(self, the_run: Run | None = None) -> None:
        self.run = the_run or run()
        self.nodes: dict[bytes, bytes] = {}
        self.traces: dict[str, Trace] = {}

    def episode(
        self, name: str, exchanges: Sequence[Exchange], states: Sequence[tuple[float, State]] = (), *,
        opened_ms: float = 0, ended_ms: float | None = None, snapshot_name: str = "app", more: Mapping[str, Any] = {},
        canaries: Sequence[str] = (), **given: Any,
    ) -> None:  # fmt: skip
        """`states`: (ms, state); the first is the start snapshot. `more`: members of every snapshot."""
        shots = []
        for number, (at_ms, state) in enumerate(states):
            tree = prolly.build(state)
            self.nodes |= tree.nodes
            when = "start" if number == 0 else "write"
            wrote = [e for e in exchanges if e.request.method != b"GET" and e.order[0] < at_ms * MS]
            after = wrote[-1] if number and wrote else None
            shots.append(snapshot(number, tree.root, name=snapshot_name, when=when, at_ms=at_ms, after=after, **more))
        last = max([*(e.times.c_out or 0 for e in exchanges), *(s.done for s in shots), 0])
        given.setdefault("state", EpisodeState.SEALED)
        episode = Episode(
            key=len(self.traces) + 1, run_key=0, name=name, opened=round(opened_ms * MS),
            opened_wall=WALL0 + round(opened_ms * MS),
            ended=last if ended_ms is None else round(ended_ms * MS), **given,
        )  # fmt: skip
        marks = [
            Event(at=1, wall=1, kind="mark", detail={"label": "canary", "data": {"canary": one, "for": ""}})
            for one in canaries
        ]
        self.traces[name] = trace(exchanges, snapshots=shots, run=self.run, episode=episode, events=marks)

    def judge(self, **more: Any) -> Judgement:
        bucket = self.traces.get(UNATTRIBUTED)
        return judge_run(
            Source(
                run=self.run, episodes=[t.episode for n, t in self.traces.items() if n != UNATTRIBUTED],
                trace=lambda episode: self.traces[episode.name], load=self.nodes.__getitem__, bucket=bucket,
            ),
            **more,
        )  # fmt: skip

    def findings(self) -> tuple[Finding, ...]:
        return self.judge().findings


def with_interval(exchange: Exchange, fwd_ms: float, up_end_ms: float | None) -> Exchange:
    """The exchange with its interval at the environment set."""
    end = None if up_end_ms is None else round(up_end_ms * MS)
    return replace(exchange, times=replace(exchange.times, fwd=round(fwd_ms * MS), up_end=end))
