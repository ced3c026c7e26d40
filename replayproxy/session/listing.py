"""The tables of `ls`: which runs there are, and what became of the episodes of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from replayproxy.core.values import Episode, EpisodeState, Run
from replayproxy.session.look import unattributed, verdicts
from replayproxy.storage import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """One run of the list."""

    run: Run
    states: Mapping[str, int]
    exchanges: int
    unattributed: int
    verdicts: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run.name,
            "episodes": sum(self.states.values()),
            "exchanges": self.exchanges,
            "unattributed": self.unattributed,
            "states": dict(self.states),
            "verdicts": dict(self.verdicts),
            "origin": self.run.origin,
            "opened_wall": self.run.opened_wall,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLine:
    """One episode of a run's list. `why` names the findings that fall on it."""

    episode: Episode
    exchanges: int
    verdict: str
    why: str

    @property
    def took_ns(self) -> int | None:
        return None if self.episode.ended is None else self.episode.ended - self.episode.opened

    def to_json(self) -> dict[str, Any]:
        e = self.episode
        return {
            "episode": e.name,
            "task": e.task,
            "seed": e.seed,
            "attempt": e.attempt,
            "state": e.state.value,
            "exchanges": self.exchanges,
            "reward": e.reward,
            "verdict": self.verdict,
            "group": e.group,
            "meta": dict(e.meta),
            "ended_by": e.ended_by,
            "outcome": e.outcome,
            "opened_wall": e.opened_wall,
            "faults": list(e.faults),
            "aliases": [list(one) for one in e.aliases],
            "why": self.why,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A run's episodes."""

    run: Run
    episodes: tuple[EpisodeLine, ...]
    unattributed: int
    checked: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run.name,
            "episodes": [line.to_json() for line in self.episodes],
            "unattributed": self.unattributed,
            "checked": self.checked,
        }


def run_line(reader: Reader, run: Run) -> RunLine:
    episodes = reader.episodes(run)
    judged = verdicts(reader, run)
    states = Counter(str(episode.state) for episode in episodes)
    return RunLine(
        run=run,
        states={state.value: states[state] for state in EpisodeState if states[state]},
        exchanges=sum(map(reader.count, episodes)),
        unattributed=unattributed(reader, run),
        verdicts=Counter(judged.get(episode.name, "unknown") for episode in episodes) if judged else {},
    )


def listing(reader: Reader, run: Run) -> Listing:
    judged = verdicts(reader, run)
    why = reasons(reader, run)
    lines = [
        EpisodeLine(
            episode=episode,
            exchanges=reader.count(episode),
            verdict=judged.get(episode.name, "unknown"),
            why=", ".join([*why.get(episode.name, ()), *episode.faults]),
        )
        for episode in reader.episodes(run)
    ]
    return Listing(
        run=run, episodes=tuple(lines), unattributed=unattributed(reader, run), checked=reader.check(run) is not None
    )


def reasons(reader: Reader, run: Run) -> dict[str, list[str]]:
    """Episode -> the findings that fall on it, as `F3 state-bleed`."""
    found: dict[str, list[str]] = {}
    for number, finding in enumerate(reader.findings(run), 1):
        name = str(finding.get("episode") or "").removeprefix(f"{run.name}/")
        found.setdefault(name, []).append(f"F{number} {finding.get('kind', '')}".strip())
    return found
