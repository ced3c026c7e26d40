"""`check`: judges recorded runs, saves what came out, and says with which code to exit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from replayproxy.core.rules import Rule
from replayproxy.core.values import UNATTRIBUTED, Episode, Run, Trace
from replayproxy.detect.finding import Grade, Kind
from replayproxy.detect.judge import Judgement, judge_run
from replayproxy.detect.reference import Given, Reference, References, start_of
from replayproxy.detect.source import Source
from replayproxy.detect.states import States, envs_of, starts, whole
from replayproxy.detect.verdicts import Word, rate, wilson
from replayproxy.errors import DamagedRecord, Exit, Problem, UnknownAddress, WrongUsage, worst
from replayproxy.session.look import Stores
from replayproxy.storage import Reader, open_store

DETECTORS = 1
"""The number of the set of detectors; it changes when an unchanged recording may be judged otherwise."""

NO_GRADE = "none"

type Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What the caller takes for a failure."""

    fail_on: frozenset[Grade] = frozenset({Grade.PROVEN, Grade.CONFIRMED})
    max_failure_rate: float = 0.05
    require: tuple[Kind, ...] = ()
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One run's judgement, and the episodes of it that were asked about (None: all)."""

    judgement: Judgement
    only: frozenset[str] | None
    demands: Demands
    saved: str = ""  # why the document could not be saved; "" it was

    @property
    def episodes(self) -> list[str]:
        return [name for name in self.judgement.words if self.only is None or name in self.only]

    def to_json(self) -> dict[str, Any]:
        """The document of `check --json` for one run."""
        return document(self.judgement, self.demands, self.only)

    @property
    def exit(self) -> int:
        return int(exit_code(self.judgement, self.demands, self.only))


def fail_on(text: str) -> frozenset[Grade]:
    """The grades of `--fail-on`. Raises WrongUsage."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words == [NO_GRADE]:
        return frozenset()
    unknown = [word for word in words if word not in set(Grade)]
    if unknown or not words:
        raise WrongUsage(
            f"--fail-on: {(unknown or [text])[0]!r} is no grade", hint=f"{', '.join(Grade)}, or {NO_GRADE} alone"
        )
    return frozenset(Grade(word) for word in words)


def required(text: str | None) -> tuple[Kind, ...]:
    """The kinds of `--require`. Raises WrongUsage."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word not in set(Kind):
            raise WrongUsage(f"--require: {word!r} is no kind of finding", hint=", ".join(Kind))
    return tuple(dict.fromkeys(Kind(word) for word in words))


def check(
    stores: Stores, paths: Sequence[Path], addresses: Sequence[str], demands: Demands, *, rules: Sequence[Rule] = (),
    today: date | None = None, now: int, progress: Progress | None = None,
) -> list[Checked]:  # fmt: skip
    """Judges every run that is named, whole, and saves its document: F1, F2, .. are then those of the last one.

    `paths` are those of the stores, in the same order.
    """
    found = []
    for reader, run, only in _asked(stores, addresses):
        source = replace(_source(stores, reader, run, progress), rules=rules, today=today)
        judgement = judge_run(source, given=_given(stores, demands.reference, source))
        path = paths[stores.readers.index(reader)]
        saved = _save(path, run, document(judgement, demands, None) | {"checked_wall": now})
        found.append(Checked(judgement=judgement, only=only, demands=demands, saved=saved))
    return found


def _asked(stores: Stores, addresses: Sequence[str]) -> list[tuple[Reader, Run, frozenset[str] | None]]:
    asked: dict[tuple[int, int], tuple[Reader, Run, set[str] | None]] = {}
    for text in addresses:
        one = stores.find(text)
        at = one.resolved
        if at.finding is not None or at.seq is not None or at.snapshot is not None:
            raise WrongUsage(f"{text} is no run and no episode", hint="check takes RUN or RUN/EPISODE")
        if at.episode is not None and at.episode.name == UNATTRIBUTED:
            raise WrongUsage("traffic without an episode is never judged", hint=f"replayproxy show {text}")
        key = id(one.reader), at.run.key
        _, _, names = asked.setdefault(key, (one.reader, at.run, set()))
        if at.episode is None:
            asked[key] = (one.reader, at.run, None)
        elif names is not None:
            names.add(at.episode.name)
    return [(reader, run, None if names is None else frozenset(names)) for reader, run, names in asked.values()]


def _source(stores: Stores, reader: Reader, run: Run, progress: Progress | None) -> Source:
    episodes = reader.episodes(run)
    seen: set[str] = set()

    def trace(episode: Episode) -> Trace:
        seen.add(episode.name)
        if progress is not None:
            progress(len(seen), len(episodes))
        return reader.trace(run, episode)

    def load(address: bytes) -> bytes:
        try:
            return reader.node(address)
        except DamagedRecord:
            # A reference may lie in another of the stores.
            for other in stores.readers:
                if other is not reader:
                    try:
                        return other.node(address)
                    except DamagedRecord:
                        continue
            raise

    return Source(run=run, episodes=episodes, trace=trace, load=load, bucket=_bucket(reader, run))


def _bucket(reader: Reader, run: Run) -> Trace | None:
    try:
        return reader.trace(run, reader.episode(run, UNATTRIBUTED))
    except UnknownAddress:
        return None


def _save(path: Path, run: Run, told: Mapping[str, Any]) -> str:
    """Why it could not be saved; a store that may only be read is judged all the same."""
    try:
        with open_store(path) as store:
            writer = store.writer(exclusive=False)
            try:
                writer.put_check(run.key, told)
                writer.flush().result()
            finally:
                writer.close()
    except (Problem, OSError) as trouble:
        return str(trouble)
    return ""


# The reference that was named


def _given(stores: Stores, text: str | None, source: Source) -> Given | None:
    if text is None:
        return None
    one = stores.find(text)
    at, reader = one.resolved, one.reader
    if at.seq is not None or at.finding is not None:
        raise WrongUsage(f"--reference {text} has no state", hint="RUN, RUN/EPISODE or RUN/EPISODE/sN")
    if at.episode is None:
        return _common(reader, at.run, text, source)
    shots = [s for s in reader.snapshots(at.episode) if at.snapshot in (None, s.n)]
    chosen = {s.name: s for s in shots if whole(s)} if at.snapshot is not None else {
        name: s for name, s in starts(shots).items() if whole(s)
    }  # fmt: skip
    if not chosen:
        raise UnknownAddress(f"--reference {text}: no state was read there", hint=f"replayproxy show {text}")
    task, seed = at.episode.task, at.episode.seed
    group = None if at.snapshot is not None or (task is None and seed is None) else (task, seed)
    return {
        (group, name): Reference(root=s.root, wall=s.wall, agree=1, starts=1, given=True)
        for name, s in chosen.items() if s.root is not None
    }  # fmt: skip


def _common(reader: Reader, run: Run, text: str, source: Source) -> Given:
    """Of a run: for each task and seed the start that more than half of its episodes have."""
    groups: dict[tuple[tuple[str | None, int | None], str], list[Any]] = {}
    for episode in reader.episodes(run):
        for name, snapshot in starts(reader.snapshots(episode)).items():
            if whole(snapshot) and envs_of(run, name):
                groups.setdefault(((episode.task, episode.seed), name), []).append(start_of(episode, snapshot))
    references = References(States(source.load), ())
    found: dict[tuple[tuple[str | None, int | None] | None, str], Reference] = {}
    for key, all_starts in groups.items():
        common = references.common(all_starts, enough=1)
        if common is not None:
            found[key] = Reference(
                root=common.root, wall=common.wall, agree=common.agree, starts=common.starts, given=True
            )
    if not found:
        raise UnknownAddress(f"--reference {text}: no task and seed has a common start there")
    return found


# What is told


def document(judgement: Judgement, demands: Demands, only: Collection[str] | None) -> dict[str, Any]:
    """The document of one run. A finding keeps the number that it has in the whole run."""
    names = [name for name in judgement.words if only is None or name in only]
    counted = [name for name in judgement.counted if only is None or name in only]
    share = rate(judgement.words, judgement.lost, counted)
    interval = share.interval
    return {
        "run": judgement.run,
        "findings": [
            {"number": f"F{number}", **finding.to_json()}
            for number, finding in enumerate(judgement.findings, 1)
            if only is None or finding.episode in only
        ],
        "verdicts": {name: judgement.words[name].value for name in names},
        "coverage": {name: judgement.coverage[name].to_json() for name in names},
        "failure_rate": share.value,
        "interval": None if interval is None else list(interval),
        "failures": {"poisoned": share.poisoned, "lost": share.lost, "of": share.episodes},
        "max_failure_rate": demands.max_failure_rate,
        "suspected_from": {name: source for name, source in judgement.caught.items() if name in names},
        "lost_exchanges": {name: list(seqs) for name, seqs in judgement.lost.items() if name in names},
        "incomplete": [name for name in judgement.incomplete if name in names],
        "open": [name for name in judgement.open_yet if name in names],
        "references": [dict(one) for one in judgement.references],
        "snapshots": {"missing": judgement.missing, "torn": judgement.torn, "late": judgement.late},
        "exchanges": judgement.exchanges,
        "notes": list(judgement.notes),
        "why": reasons(judgement, demands, only),
        "detectors": DETECTORS,
        "exit": int(exit_code(judgement, demands, only)),
    }


def exit_code(judgement: Judgement, demands: Demands, only: Collection[str] | None) -> int:
    """0 as hoped, 1 a failing finding or rate, 3 not all could be judged; 3 is the stronger."""
    return worst(*(code for code, _ in _reasons(judgement, demands, only)))


def reasons(judgement: Judgement, demands: Demands, only: Collection[str] | None) -> list[str]:
    """Why the exit code is not 0."""
    return [why for _, why in _reasons(judgement, demands, only)]


def _reasons(judgement: Judgement, demands: Demands, only: Collection[str] | None) -> list[tuple[int, str]]:
    names = [name for name in judgement.words if only is None or name in only]
    counted = [name for name in judgement.counted if name in names]
    found: list[tuple[int, str]] = []
    grades = Counter(f.grade for f in judgement.findings if f.episode in names and f.grade in demands.fail_on)
    if grades:
        told = ", ".join(f"{grades[grade]} {grade}" for grade in Grade if grades[grade])
        found.append((Exit.DIFFERENT, f"{told} {'finding' if sum(grades.values()) == 1 else 'findings'}"))
    share = rate(judgement.words, judgement.lost, counted)
    if share.value is not None and share.value > demands.max_failure_rate:
        found.append((Exit.DIFFERENT, f"failure rate {share.value:.1%} is above {demands.max_failure_rate:.1%}"))
    if not counted:
        found.append((Exit.UNJUDGED, "no sealed episode with an exchange"))
    elif all(judgement.words[name] is Word.UNKNOWN for name in names):
        found.append((Exit.UNJUDGED, "no check could run"))
    for what, which in (("incomplete", judgement.incomplete), ("still open", judgement.open_yet)):
        number = sum(name in names for name in which)
        if number:
            found.append((Exit.UNJUDGED, f"{number} {'episode is' if number == 1 else 'episodes are'} {what}"))
    for kind in demands.require:
        lacking = [name for name in counted if kind.value not in judgement.coverage[name].checked]
        if lacking:
            found.append((Exit.UNJUDGED, f"{kind} was not looked for in {len(lacking)} of {len(counted)} episodes"))
    return found


def merged(parts: Sequence[Checked]) -> dict[str, Any]:
    """The document of several runs: one per run under `runs`, and all of them together, episodes by address."""
    if len(parts) == 1:
        return parts[0].to_json()
    told = [part.to_json() for part in parts]
    poisoned, lost, of = (sum(one["failures"][key] for one in told) for key in ("poisoned", "lost", "of"))
    share = (poisoned + lost) / of if of else None
    return {
        "run": None,
        "runs": told,
        "findings": [finding for one in told for finding in one["findings"]],
        "verdicts": {f"{one['run']}/{name}": word for one in told for name, word in one["verdicts"].items()},
        "coverage": {f"{one['run']}/{name}": seen for one in told for name, seen in one["coverage"].items()},
        "failure_rate": share,
        "interval": _interval(poisoned + lost, of),
        "failures": {"poisoned": poisoned, "lost": lost, "of": of},
        "exit": worst(*(part.exit for part in parts)),
    }


def _interval(hits: int, of: int) -> list[float] | None:
    return list(wilson(hits, of)) if of else None
