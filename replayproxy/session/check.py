"""`check`: judges recorded runs, saves what came out, and says with which code to exit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from types import MappingProxyType
from typing import Any

from replayproxy.core.chaos import unblamed
from replayproxy.core.rules import Rule
from replayproxy.core.values import UNATTRIBUTED, Episode, Run, Trace
from replayproxy.detect.finding import Grade, Kind
from replayproxy.detect.judge import Judgement, judge_run
from replayproxy.detect.reference import Given, Reference, References, start_of
from replayproxy.detect.silence import Silence
from replayproxy.detect.source import Source
from replayproxy.detect.states import States, envs_of, starts, whole
from replayproxy.errors import DamagedRecord, Problem, UnknownAddress, WrongUsage
from replayproxy.session.baseline import Baseline
from replayproxy.session.check_document import Demands, document, exit_code
from replayproxy.session.check_known import NOTHING_KNOWN, Acquaintance, acquainted
from replayproxy.session.comparing import Comparing, ahead
from replayproxy.session.look import Stores
from replayproxy.session.trials import with_trials
from replayproxy.storage import Reader, open_store
from replayproxy.storage.archive import Archive

NO_GRADE = "none"

type Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One run's judgement, and the episodes of it that were asked about (None: all)."""

    judgement: Judgement
    only: frozenset[str] | None
    demands: Demands
    about: Acquaintance = NOTHING_KNOWN
    saved: str = ""  # why the document could not be saved; "" it was

    @property
    def episodes(self) -> list[str]:
        return [name for name in self.judgement.words if self.only is None or name in self.only]

    def to_json(self) -> dict[str, Any]:
        """The document of `check --json` for one run."""
        return document(self.judgement, self.demands, self.only, self.about)

    @property
    def exit(self) -> int:
        return int(exit_code(self.judgement, self.demands, self.only, self.about))


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
    stores: Stores, addresses: Sequence[str], demands: Demands, *, rules: Sequence[Rule] = (),
    today: date | None = None, now: int, progress: Progress | None = None,
    eventual: Mapping[str, Mapping[str, float]] = MappingProxyType({}), silences: Sequence[Silence] = (),
    baseline: Baseline | None = None, claims: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[Checked]:  # fmt: skip
    """Judges every run that is named, whole, and saves its document: F1, F2, .. are then those of the last one.

    `eventual`: what today's config says of writes that act after their answer, by environment; it stands for what the
    run was recorded with. `claims`: the columns that it declares to name a holder, by environment.
    """
    found = []
    for reader, run, only in _asked(stores, addresses):
        amend = partial(with_trials, trials=reader.trials(run))
        source = replace(
            _source(stores, reader, _acting(run, eventual, claims), progress), rules=rules, today=today, amend=amend
        )
        with _ahead(reader, source) as comparing:
            judged = judge_run(replace(source, ahead=comparing), given=_given(stores, demands.reference, source))
        judgement, about = acquainted(judged, silences, baseline or {}, today)
        saved = _save(reader, run, document(judgement, demands, None, about) | {"checked_wall": now})
        found.append(Checked(judgement=judgement, only=only, demands=demands, about=about, saved=saved))
    return found


def _acting(run: Run, eventual: Mapping[str, Mapping[str, float]], claims: Mapping[str, Sequence[str]]) -> Run:
    envs = {
        name: replace(env, eventual=eventual.get(name) or env.eventual, claims=tuple(claims.get(name, ())))
        for name, env in run.envs.items()
    }  # fmt: skip
    return replace(run, envs=envs)


def _ahead(reader: Reader, source: Source) -> AbstractContextManager[Comparing | None]:
    if isinstance(reader.env, Archive):
        return nullcontext()
    return ahead(reader.env.path, source.run.name, len(source.episodes), source.rules, source.today)


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
        return unblamed(reader.trace(run, episode))

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
        return unblamed(reader.trace(run, reader.episode(run, UNATTRIBUTED)))
    except UnknownAddress:
        return None


def _save(reader: Reader, run: Run, told: Mapping[str, Any]) -> str:
    """Why it could not be saved; a store that may only be read is judged all the same."""
    if isinstance(reader.env, Archive):
        return f"{reader.env.path} is an archive, which is only read"
    try:
        with open_store(reader.env.path) as store:
            writer = store.writer(exclusive=False)
            try:
                writer.put_check(run.key, told).result()
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
