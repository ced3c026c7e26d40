"""Re-drive: the recorded requests of an episode to a live environment whose start state is the recorded one.

In this order, and nothing of a later step before an earlier one is sure: the words make sense and may be obeyed; the
environments can be reached; the state found is kept; the recorded start is restored and read back; the requests are
sent; answers and states are compared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date

from replayproxy.core.bindings import Bindings, flows
from replayproxy.core.compare import Comparison, compare
from replayproxy.core.credentials import Credentials
from replayproxy.core.effects import is_write
from replayproxy.core.names import archive_splits
from replayproxy.core.rules import Rule, parse_rules
from replayproxy.core.schedule import Plan, plan, settled
from replayproxy.core.values import (
    UNATTRIBUTED,
    Episode,
    EpisodeState,
    Exchange,
    Request,
    Run,
    Snapshot,
    Trace,
)
from replayproxy.drive.driver import Drive, Driver
from replayproxy.drive.wire import connect
from replayproxy.errors import CannotJudge, Problem, WorldTrouble, WrongUsage
from replayproxy.session import secrecy
from replayproxy.session.redrive_keep import Keeper, Saved
from replayproxy.session.redrive_secrets import SecretBindings, credentials
from replayproxy.session.redrive_state import Restored, States
from replayproxy.session.redrive_targets import Targets, Words, targets
from replayproxy.session.redrive_watch import Watch
from replayproxy.storage import Reader, Store

DIFFERENT, UNDECIDED, SAME = "different", "undecided", "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is asked for. `pace` None: at once; else how many times as fast as the agent was. `limit`: seconds that
    an answer may take beyond twice what it took when recorded."""

    addresses: Sequence[str]
    words: Words
    repeat: int = 1
    stop_first: bool = False
    save: str | None = None
    pace: float | None = None
    limit: float = 60.0
    today: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """One time through. `reasons`: why `same` cannot be said, or nothing can. `live`: the answers, as a trace."""

    number: int
    verdict: str
    reasons: tuple[str, ...]
    comparison: Comparison
    drive: Drive
    bindings: Bindings
    restored: Restored
    live: Trace
    saved: str | None
    seconds: float


@dataclass(slots=True, kw_only=True)
class Redriven:
    """What came of one episode. `problem`: why there are fewer repetitions than asked for. `before`: where the state
    found is kept."""

    trace: Trace
    plan: Plan | None = None
    targets: Targets | None = None
    held: Credentials | None = None
    repetitions: list[Repetition] = field(default_factory=list)
    problem: Problem | None = None
    before: str | None = None

    @property
    def verdict(self) -> str:
        """Of all repetitions: one that differs decides, then one that could not be judged."""
        told = {repetition.verdict for repetition in self.repetitions}
        if DIFFERENT in told:
            return DIFFERENT
        return UNDECIDED if UNDECIDED in told or self.problem or not told else SAME

    @property
    def shown(self) -> Repetition | None:
        """The repetition that the verdict is explained by: the first that has it."""
        return next((one for one in self.repetitions if one.verdict == self.verdict), None) or next(
            iter(self.repetitions), None
        )


async def redrive(store: Store, ask: Ask, say: Callable[[str], None]) -> list[Redriven]:
    """Re-drives every episode that the addresses name. Raises the Problem of an episode that is the only one; with
    several the others go on, and each keeps its own."""
    reader = store.reader()
    work = [_prepared(reader, run, episode, ask) for run, episode in _named(reader, ask.addresses)]
    ready = [one for one in work if one.problem is None]
    if not ready:
        assert work[0].problem is not None
        raise work[0].problem
    unused = [set(one.held.unused()) for one in ready if one.held is not None]
    for name in sorted(set.intersection(*unused)) if unused else ():
        say(f"--credential {name}: no recorded credential that is sent has this name, so it was not used")
    rules = parse_rules(ask.words.config.rules)
    redactors = [one.held.redactor for one in ready if one.held is not None]
    keeper = Keeper(store, ask.save, min(redactors, key=lambda redactor: redactor.keeps))
    keeper.check()
    await _reachable(ready)
    try:
        for one in ready:
            await _Session(reader, keeper, one, ask, rules, say).run()
            if one.problem is not None and len(work) == 1 and not one.repetitions:
                raise one.problem
    finally:
        await keeper.close()
    return work


def _named(reader: Reader, addresses: Sequence[str]) -> list[tuple[Run, Episode]]:
    found: dict[int, tuple[Run, Episode]] = {}
    for text in addresses:
        if splits := archive_splits(text):
            raise WrongUsage(f"{text}: an archive is not re-driven", hint=f"replayproxy import {splits[0][0]}")
        resolved = reader.resolve(text)
        if resolved.seq is not None or resolved.snapshot is not None or resolved.finding is not None:
            raise WrongUsage(f"{text}: a run or an episode is re-driven, as a whole", hint="RUN or RUN/EPISODE")
        if resolved.episode is not None and resolved.episode.name == UNATTRIBUTED:
            raise WrongUsage(f"{text}: traffic that belongs to no episode is never re-driven", hint="RUN/EPISODE")
        episodes = [resolved.episode] if resolved.episode is not None else reader.episodes(resolved.run)
        if not episodes:
            raise CannotJudge(f"run {resolved.run.name} has no episode", hint="record one first")
        found |= {episode.key: (resolved.run, episode) for episode in episodes}
    return list(found.values())


def _prepared(reader: Reader, run: Run, episode: Episode, ask: Ask) -> Redriven:
    trace = reader.trace(run, episode)
    one = Redriven(trace=trace)
    if episode.state is not EpisodeState.SEALED:
        why = f" ({'; '.join(episode.faults)})" if episode.faults else ""
        one.problem = CannotJudge(f"{trace.address} is {episode.state}{why}", hint="only a sealed episode is re-driven")
        return one
    one.targets = targets(trace, ask.words)
    exchanges = settled(trace.exchanges, trace.events)
    used = flows(exchanges, one.targets.recorded)
    taken = {loaded.name for loaded in one.targets.loaded}
    shots = [shot for shot in trace.snapshots if shot.when == "write" and shot.name in taken]
    one.plan = plan(exchanges, reads=one.targets.reads, flows=used, snapshots=shots)
    sent = {step.seq for step in one.plan.steps if not step.skip}
    due = [exchange for exchange in trace.exchanges if exchange.seq in sent]
    one.held = credentials(due, ask.words.credential, secrecy.for_redrive(reader.env.path, run))
    if all(step.skip for step in one.plan.steps):
        why = ", ".join(dict.fromkeys(step.skip for step in one.plan.steps))
        what = f"holds nothing that can be sent again (not re-driven: {why})" if why else "holds no exchange"
        one.problem = CannotJudge(f"{trace.address} {what}")
    return one


async def _reachable(ready: Sequence[Redriven]) -> None:
    """Opens and closes one connection to each environment, before anything is overwritten."""
    origins = {(name, target.origin) for one in ready if one.targets for name, target in one.targets.envs.items()}
    for name, where in sorted(origins, key=lambda pair: pair[0]):
        try:
            (await connect(where)).close()
        except OSError as refused:
            raise WorldTrouble(
                f"environment {name} cannot be reached at {where.url}: {refused}", hint="nothing was sent or restored"
            ) from None


class _Session:
    """The repetitions of one episode."""

    def __init__(
        self, reader: Reader, keeper: Keeper, one: Redriven, ask: Ask, rules: Sequence[Rule],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        assert one.targets is not None
        assert one.plan is not None
        self._reader, self._keeper, self._one, self._ask, self._rules, self._say = reader, keeper, one, ask, rules, say
        self._targets, self._plan, self._trace = one.targets, one.plan, one.trace
        assert one.held is not None
        self._credentials, self._redactor = one.held, one.held.redactor
        self._states = States(
            one.trace, one.targets, load=reader.node, save=keeper.save_nodes, say=say, redactor=self._redactor
        )

    async def run(self) -> None:
        try:
            await self._keep_found()
            for number in range(1, self._ask.repeat + 1):
                repetition = await self._repetition(number)
                self._one.repetitions.append(repetition)
                if self._ask.stop_first and repetition.verdict == DIFFERENT:
                    return
        except CannotJudge as problem:
            self._one.problem = problem
        finally:
            self._states.close()

    async def _keep_found(self) -> None:
        if not self._targets.loaded:
            self._say(f"{self._trace.address}: without a snapshot the state found cannot be kept")
            return
        if not any(map(self._keeper.is_new, self._targets.loaded)):
            return
        with _kept(self._keeper):
            found = await self._states.found()
            self._one.before = await self._keeper.keep_found(self._trace, self._targets, found)
        self._say(f"the state found is kept as {self._one.before}")

    async def _repetition(self, number: int) -> Repetition:
        began = time.monotonic()
        restored = await self._states.restore()
        saved = self._keeper.episode(self._trace, self._targets, number)
        bindings = SecretBindings(self._targets.authorities, self._writes, self._credentials, self._redactor)
        watch = Watch(self._trace, self._states, restored, self._differs if self._ask.stop_first else None)
        driver = Driver(
            settled(self._trace.exchanges, self._trace.events), self._plan, self._targets.envs, bindings, watch,
            pieces=self._reader.pieces, pace=self._ask.pace, limit=self._ask.limit, sink=saved.sink if saved else None,
        )  # fmt: skip
        self._states.begin()
        watch.drive, watch.bindings = driver.drive, bindings
        await watch.at("start")
        drive = await driver.run()
        if not drive.stopped:
            await watch.at("end")
        live = self._live(drive, watch.taken, saved, bindings)
        if saved is not None:
            await saved.finish(live.exchanges, watch.taken)
        comparison = self._compare(live, drive, watch, bindings)
        bindings.discreet()
        reasons = self._reasons(restored, watch, comparison)
        return Repetition(
            number=number, verdict=self._verdict(comparison, reasons, restored), reasons=reasons,
            comparison=comparison, drive=drive, bindings=bindings, restored=restored, live=live,
            saved=saved.address if saved else None, seconds=time.monotonic() - began,
        )  # fmt: skip

    def _writes(self, request: Request) -> bool:
        return any(is_write(request, reads) for reads in {(), *self._targets.reads.values()})

    def _live(self, drive: Drive, taken: Sequence[Snapshot], saved: Saved | None, bindings: SecretBindings) -> Trace:
        run = saved.run if saved else Run(key=0, name="live", opened_wall=0, origin="redrive")
        episode = replace(
            saved.episode if saved else self._trace.episode, run_key=run.key, state=EpisodeState.SEALED, faults=()
        )
        # From here on nobody needs the live credentials.
        drive.live = {seq: bindings.clean(e) for seq, e in sorted(drive.live.items(), key=lambda it: it[1].order)}
        exchanges = list(drive.live.values())
        return Trace(run=run, episode=episode, exchanges=exchanges, snapshots=tuple(taken))

    # -- judging -----------------------------------------------------------------------------------------------------

    def _compare(self, live: Trace, drive: Drive, watch: Watch, bindings: Bindings) -> Comparison:
        recorded = replace(self._trace, snapshots=watch.comparable())
        pairs = [(seq, seq) for seq in sorted(drive.live)]
        return self._comparison(recorded, live, pairs, bindings.values())

    def _comparison(
        self, recorded: Trace, live: Trace, pairs: Sequence[tuple[int, int]], values: dict[str, str]
    ) -> Comparison:
        return compare(
            recorded, live, pairs=pairs, rules=self._rules, authorities_a=self._targets.recorded,
            authorities_b=self._targets.live, bindings=values, load=self._reader.node, load_b=self._states.load,
            today=self._ask.today,
        )  # fmt: skip

    def _differs(self, recorded: Exchange, live: Exchange, values: dict[str, str]) -> bool:
        live = self._redactor.exchange(live)  # the credentials of the driver's own copy are still needed
        a = replace(self._trace, exchanges=(recorded,), snapshots=())
        b = replace(self._trace, exchanges=(live,), snapshots=())
        return self._comparison(a, b, [(recorded.seq, live.seq)], values).verdict == DIFFERENT

    def _reasons(self, restored: Restored, watch: Watch, comparison: Comparison) -> tuple[str, ...]:
        reasons = [f"the start state of {env} is not known to be the recorded one: {why}"
                   for env, why in restored.open.items()]  # fmt: skip
        reasons += [f"#{step.seq} was not sent: {step.skip}" for step in self._plan.skipped if step.undecided]
        reasons += watch.missing()
        return (*reasons, *comparison.undecided)

    def _verdict(self, comparison: Comparison, reasons: Sequence[str], restored: Restored) -> str:
        if restored.open or comparison.verdict == UNDECIDED:
            return UNDECIDED
        if comparison.verdict == DIFFERENT and not self._after_a_gap(comparison):
            return DIFFERENT
        return UNDECIDED if reasons else SAME

    def _after_a_gap(self, comparison: Comparison) -> bool:
        """Whether every difference could come of a request that was left out: none of them is before the first."""
        gaps = [step.seq for step in self._plan.skipped if step.undecided]
        if not gaps:
            return False
        return all((root.a or root.b or gaps[0]) >= gaps[0] for root in comparison.roots)


@contextmanager
def _kept(keeper: Keeper) -> Iterator[None]:
    keeper.keeping(True)
    try:
        yield
    finally:
        keeper.keeping(False)


def run_redrive(store: Store, ask: Ask, say: Callable[[str], None]) -> list[Redriven]:
    """`redrive` for callers without an event loop."""
    return asyncio.run(redrive(store, ask, say))
