"""The tables of `ls`: which runs there are, and what became of the episodes of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from replayproxy.core.effects import is_write
from replayproxy.core.values import Episode, EpisodeState, Run
from replayproxy.session.look import unattributed, verdicts
from replayproxy.session.where import Fields, Value
from replayproxy.storage import Reader

READ_AT_MOST = 5_000
"""Exchanges of a run that are read to count the writes of episodes that no check has counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """One run of the list. `store`: the one that holds it, as it was named."""

    run: Run
    states: Mapping[str, int]
    exchanges: int
    unattributed: int
    verdicts: Mapping[str, int]
    node: str = ""
    store: str = ""

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
            "node": self.node or None,
            "store": self.store or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLine:
    """One episode of a run's list. `why` names the findings that fall on it, `findings` their kinds. `writes` None:
    they were not counted."""

    episode: Episode
    exchanges: int
    writes: int | None
    verdict: str
    why: str
    kinds: tuple[str, ...] = ()
    grades: tuple[str, ...] = ()

    @property
    def took_ns(self) -> int | None:
        return None if self.episode.ended is None else self.episode.ended - self.episode.opened

    def fields(self) -> Fields:
        """What `--where`, `--sort` and `--by` look at."""
        e = self.episode
        opened = _utc(e.opened_wall)
        found: dict[str, Value] = {
            "episode": e.name, "task": e.task, "seed": e.seed, "attempt": e.attempt, "group": e.group,
            "state": e.state.value, "ended_by": e.ended_by, "outcome": e.outcome, "reward": e.reward,
            "exchanges": self.exchanges, "writes": self.writes, "verdict": self.verdict, "why": self.why or None,
            "took": None if self.took_ns is None else self.took_ns / 1e9, "findings": len(self.kinds),
            "kind": self.kinds, "grade": self.grades, "opened": opened, "hour": opened[:13],
            "instance": tuple(e.instance.values()), "alias": tuple(value for _, value in e.aliases),
        }  # fmt: skip
        found |= {f"meta.{name}": _scalar(value) for name, value in e.meta.items()}
        return found | {f"instance.{env}": name for env, name in e.instance.items()}

    def to_json(self) -> dict[str, Any]:
        e = self.episode
        return {
            "episode": e.name,
            "task": e.task,
            "seed": e.seed,
            "attempt": e.attempt,
            "state": e.state.value,
            "exchanges": self.exchanges,
            "writes": self.writes,
            "reward": e.reward,
            "verdict": self.verdict,
            "group": e.group,
            "meta": dict(e.meta),
            "instance": dict(e.instance),
            "ended_by": e.ended_by,
            "outcome": e.outcome,
            "opened_wall": e.opened_wall,
            "took_ns": self.took_ns,
            "faults": list(e.faults),
            "aliases": [list(one) for one in e.aliases],
            "annotated": dict(e.annotated) or None,
            "why": self.why,
        }


_NAMES = """episode task seed attempt group state ended_by outcome reward exchanges writes verdict why took findings
kind grade opened hour instance alias"""

FIELDS = frozenset(_NAMES.split())
"""The fields that every episode has; `meta.X` and `instance.ENV` come from the recording."""


def _utc(wall_ns: int) -> str:
    """`2026-11-30T02:14:07`, which sorts and compares as text."""
    try:
        return datetime.fromtimestamp(wall_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "1970-01-01T00:00:00"


def _scalar(value: Any) -> Value:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A run's episodes. `shown` None: all of them; else those that were asked for, in their order."""

    run: Run
    episodes: tuple[EpisodeLine, ...]
    unattributed: int
    checked: bool
    checked_wall: int | None = None
    detectors: int | None = None
    shown: tuple[EpisodeLine, ...] | None = None

    @property
    def listed(self) -> tuple[EpisodeLine, ...]:
        return self.episodes if self.shown is None else self.shown

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run.name,
            "episodes": [line.to_json() for line in self.listed],
            "of": len(self.episodes),
            "unattributed": self.unattributed,
            "checked": self.checked,
        }


def run_line(reader: Reader, run: Run, store: str = "") -> RunLine:
    episodes = reader.episodes(run)
    judged = verdicts(reader, run)
    states = Counter(str(episode.state) for episode in episodes)
    machine = reader.machine(run)
    return RunLine(
        run=run,
        states={state.value: states[state] for state in EpisodeState if states[state]},
        exchanges=sum(map(reader.count, episodes)),
        unattributed=unattributed(reader, run),
        verdicts=Counter(judged.get(episode.name, "unknown") for episode in episodes) if judged else {},
        node=machine.name if machine else "",
        store=store,
    )


def listing(reader: Reader, run: Run, *, count_writes: bool = False) -> Listing:
    """Linear in the episodes. `count_writes`: the writes that no check has counted are counted whatever it takes, by
    reading their exchanges; else only in small runs."""
    check = reader.check(run) or {}
    judged = verdicts(reader, run)
    why = reasons(check, run)
    fallen = _fallen(check)
    episodes = reader.episodes(run)
    counts = [reader.count(episode) for episode in episodes]
    written: Mapping[str, int] = check.get("writes") or {}
    read = count_writes or sum(counts) <= READ_AT_MOST
    lines = [
        EpisodeLine(
            episode=episode,
            exchanges=count,
            writes=_writes(reader, run, episode, written, read=read),
            verdict=judged.get(episode.name, "unknown"),
            why=", ".join([*why.get(episode.name, ()), *episode.faults]),
            kinds=tuple(str(f.get("kind")) for f in fallen.get(episode.name, ())),
            grades=tuple(str(f.get("grade")) for f in fallen.get(episode.name, ())),
        )
        for episode, count in zip(episodes, counts, strict=True)
    ]
    return Listing(
        run=run, episodes=tuple(lines), unattributed=unattributed(reader, run), checked=bool(check),
        checked_wall=check.get("checked_wall"), detectors=check.get("detectors"),
    )  # fmt: skip


def _writes(reader: Reader, run: Run, episode: Episode, written: Mapping[str, int], *, read: bool) -> int | None:
    if episode.state is EpisodeState.SEALED and isinstance(written.get(episode.name), int):
        return written[episode.name]
    if not read:
        return None
    reads = {name: wiring.reads for name, wiring in run.envs.items()}
    return sum(is_write(x.request, reads.get(x.env, ())) for x in reader.exchanges(episode))


def _fallen(check: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for finding in check.get("findings", ()):
        found.setdefault(str(finding.get("episode") or ""), []).append(finding)
    return found


def reasons(check: Mapping[str, Any], run: Run) -> dict[str, list[str]]:
    """Episode -> the findings that fall on it, as `F3 state-bleed from crm-3-a1`; else where suspicion came from."""
    found: dict[str, list[str]] = {}
    for number, finding in enumerate(check.get("findings", ()), 1):
        name = str(finding.get("episode") or "").removeprefix(f"{run.name}/")
        told = f"F{number} {finding.get('kind', '')}".strip() + _more(finding)
        found.setdefault(name, []).append(told + (" (known)" if "known" in finding else ""))
    for name, source in (check.get("suspected_from") or {}).items():
        found.setdefault(str(name), []).append(f"after {source}, which began dirty")
    return found


def _more(finding: Mapping[str, Any]) -> str:
    effect = finding.get("effect") or {}
    source = effect.get("from")
    if isinstance(source, list) and source:
        source = str(source[0]) + (f" and {len(source) - 1} more" if len(source) > 1 else "")
    if isinstance(source, str) and source:
        return f" from {source}"
    late = effect.get("out_of_date_s")
    if isinstance(late, int | float):
        return f" {finding.get('pointer') or ''}, >= {late:.{1 if late >= 1 else 3}f} s".replace(" ,", ",")
    return f" {finding['pointer']}" if finding.get("pointer") else ""
