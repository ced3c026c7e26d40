"""One episode against a live environment, any number of times: restored before each, sent, compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from typing import Any

from replayproxy.core.bindings import Bindings
from replayproxy.core.compare import Comparison, compare
from replayproxy.core.credentials import Credentials
from replayproxy.core.effects import is_write
from replayproxy.core.rules import Rule
from replayproxy.core.schedule import Plan, settled
from replayproxy.core.values import EpisodeState, Exchange, Request, Run, Snapshot, Trace
from replayproxy.drive.driver import Drive, Driver
from replayproxy.errors import CannotJudge, Problem
from replayproxy.session.ablation import Ablation
from replayproxy.session.redrive_keep import Keeper, Saved
from replayproxy.session.redrive_secrets import SecretBindings
from replayproxy.session.redrive_state import Restored, States
from replayproxy.session.redrive_targets import Targets, Words
from replayproxy.session.redrive_watch import Watch
from replayproxy.session.wiring import Reset
from replayproxy.storage import Reader

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
    ablate: tuple[str, ...] = ()


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
    ablation: Ablation | None = None
    histogram: Mapping[str, Any] = field(default_factory=dict)
    trial: Mapping[str, Any] | None = None

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


class Before(StrEnum):
    """What is done before an episode is sent."""

    RESTORE = "restore"  # its recorded start is put back and read
    RESET = "reset"  # the environment's own reset is sent, and nothing is put back
    NOTHING = "nothing"  # it goes on from the state as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How one time through is gone about. `plan` None: as recorded; `pace` 0: the one that was asked for; `hooks`: sent
    once the start is there; `kept` False: its answers are not saved, whatever --save says."""

    before: Before = Before.RESTORE
    plan: Plan | None = None
    pace: float | None = 0.0
    hooks: tuple[Reset, ...] = ()
    kept: bool = True


RECORDED = Way()


class Session:
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
            await self.keep_found()
            for number in range(1, self._ask.repeat + 1):
                repetition = await self.once(number)
                self._one.repetitions.append(repetition)
                if self._ask.stop_first and repetition.verdict == DIFFERENT:
                    return
        except CannotJudge as problem:
            self._one.problem = problem

    def close(self) -> None:
        self._states.close()

    async def keep_found(self) -> None:
        """The state found is on disk when this returns, unless it was kept before, or cannot be read at all."""
        if not self._targets.loaded:
            self._say(f"{self._trace.address}: without a snapshot the state found cannot be kept")
            return
        if not any(map(self._keeper.is_new, self._targets.loaded)):
            return
        with _kept(self._keeper):
            found = await self._states.found()
            self._one.before = await self._keeper.keep_found(self._trace, self._targets, found)
        self._say(f"the state found is kept as {self._one.before}")

    async def once(self, number: int, way: Way = RECORDED) -> Repetition:
        """One time through. RestoreUnfaithful, and nothing is sent, when the start read back is not as recorded."""
        began = time.monotonic()
        pace = self._ask.pace if way.pace == 0.0 else way.pace
        plan = way.plan or self._plan
        restored = await self._begun(way.before)
        await self._states.hook(way.hooks)
        saved = self._keeper.episode(self._trace, self._targets, number) if way.kept else None
        bindings = SecretBindings(self._targets.authorities, self._writes, self._credentials, self._redactor)
        watch = Watch(self._trace, self._states, restored, self._differs if self._ask.stop_first else None)
        driver = Driver(
            settled(self._trace.exchanges, self._trace.events), plan, self._targets.envs, bindings, watch,
            pieces=self._reader.pieces, pace=pace, limit=self._ask.limit,
            sink=saved.sink if saved else None,
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

    async def _begun(self, before: Before) -> Restored:
        if before is Before.RESTORE:
            return await self._states.restore()
        return await self._states.reset() if before is Before.RESET else Restored()

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

    def between(self, a: Repetition, b: Repetition) -> Comparison:
        """Two times through, compared: what differs although the same was sent."""
        pairs = [(seq, seq) for seq in sorted({*a.drive.live} & {*b.drive.live})]
        return compare(
            a.live, b.live, pairs=pairs, rules=self._rules, authorities_a=self._targets.live,
            authorities_b=self._targets.live, load=self.load, load_b=self.load, today=self._ask.today,
        )  # fmt: skip

    def load(self, address: bytes) -> bytes:
        """A node of a recorded or of a live state."""
        return self._states.load(address)

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
