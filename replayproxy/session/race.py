"""Race: which two requests of a recorded episode may go wrong together, and whether they do on a live environment.

For each pair the two orders are sent first, one request after the other, and what they leave is the yardstick: an
outcome of both together that is neither is shown, k of N times. What is sent, to where, and what may be overwritten is
decided as in a re-drive; a race that was shown is kept as a trial of its run, so that `check` and `show` tell it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from replayproxy.core.bindings import drawn_from
from replayproxy.core.names import archive_splits
from replayproxy.core.schedule import why_not_sent
from replayproxy.core.values import UNATTRIBUTED, RowChange, Snapshot, Trace
from replayproxy.detect import racing
from replayproxy.detect.finding import Finding
from replayproxy.detect.ops import Effect
from replayproxy.detect.pairs import Risky, risky_pairs
from replayproxy.detect.source import Extractor
from replayproxy.detect.states import States, TooMuchChanged, usable
from replayproxy.detect.views import Views
from replayproxy.errors import CannotJudge, Exit, WrongUsage
from replayproxy.session import trials
from replayproxy.session.race_finding import Shown, finding_of
from replayproxy.session.race_ground import Attempt, Contest, Ground
from replayproxy.session.redrive import prepared, reachable
from replayproxy.session.redrive_keep import Keeper
from replayproxy.session.redrive_once import Ask as RedriveAsk
from replayproxy.session.redrive_once import Redriven
from replayproxy.session.redrive_targets import Words
from replayproxy.storage import Reader, Store

SHOWN, NOT_SHOWN, UNDECIDED = "shown", "not shown", "undecided"
LARGEST_OFFSET = 0.05
SHARES = (0.0, -0.0, 0.05, -0.05, 0.1, -0.1, 0.25, -0.25, 0.5, -0.5)
"""How much of the first answer's time B's last byte comes after A's; -0.0 is together, B's byte first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """`pairs`: how many of the predicted ones are tried; `only`: this one, by the numbers of its exchanges. `listing`:
    the pairs are predicted and nothing is sent."""

    address: str
    words: Words
    times: int = 20
    pairs: int = 5
    only: tuple[int, int] | None = None
    listing: bool = False
    limit: float = 60.0


@dataclass(slots=True, kw_only=True)
class Raced:
    """What came of one pair. `shown` has what no order of the two explains; `reason`: why nothing can be said."""

    contest: Contest
    serial: racing.Serial | None = None
    orders: list[Attempt] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    reason: str = ""
    finding: Finding | None = None

    @property
    def risky(self) -> Risky:
        return self.contest.risky

    @property
    def verdict(self) -> str:
        if self.shown:
            return SHOWN
        return UNDECIDED if self.reason else NOT_SHOWN


@dataclass(slots=True, kw_only=True)
class Race:
    """All of one episode. `predicted`: by rank. `unsaved`: why the trials could not be kept."""

    trace: Trace
    predicted: list[Risky]
    raced: list[Raced] = field(default_factory=list)
    ready: Redriven | None = None
    unsaved: str = ""
    listed: bool = False

    @property
    def verdict(self) -> str:
        told = {one.verdict for one in self.raced}
        if SHOWN in told:
            return SHOWN
        return UNDECIDED if UNDECIDED in told or not told else NOT_SHOWN

    @property
    def exit(self) -> Exit:
        if self.listed:
            return Exit.OK
        return {SHOWN: Exit.DIFFERENT, NOT_SHOWN: Exit.OK, UNDECIDED: Exit.UNJUDGED}[self.verdict]


async def race(store: Store, ask: Ask, say: Callable[[str], None]) -> Race:
    """Raises the Problem that stands against predicting, or against sending anything."""
    reader = store.reader()
    trace = _trace(reader, ask.address)
    drawn = drawn_from(trace.exchanges)
    found = _predicted(reader, trace, drawn)
    done = Race(trace=trace, predicted=found, listed=ask.listing)
    if ask.listing:
        return done
    chosen = _chosen(trace, found, ask)
    if not chosen:
        raise CannotJudge(
            f"{trace.address} holds no two requests that look risky together: "
            f"{len([e for e in trace.exchanges if why_not_sent(e) is None])} exchanges looked at",
            hint="name two writes yourself: --pair SEQ,SEQ",
        )
    words = RedriveAsk(addresses=(ask.address,), words=ask.words, limit=ask.limit)
    done.ready = ready = prepared(reader, trace, words)
    if ready.problem is not None:
        raise ready.problem
    assert ready.held is not None
    await reachable([ready])
    keeper = Keeper(store, None, ready.held.redactor)
    ground = Ground(reader, keeper, ready, words, (), _once(say))
    try:
        await ground.keep_found()
        for number, risky in enumerate(chosen, 1):
            done.raced.append(await _raced(ground, risky, drawn, ask, say, f"pair {number} of {len(chosen)}"))
    finally:
        ground.close()
        await keeper.close()
    _judge(done, ask)
    done.unsaved = _kept(store, done)
    return done


def _once(say: Callable[[str], None]) -> Callable[[str], None]:
    """Each line once: what is done before every attempt is told before the first."""
    said: set[str] = set()

    def told(line: str) -> None:
        if line not in said:
            said.add(line)
            say(line)

    return told


def _trace(reader: Reader, address: str) -> Trace:
    if splits := archive_splits(address):
        raise WrongUsage(f"{address}: an archive is sent nowhere", hint=f"replayproxy import {splits[0][0]}")
    resolved = reader.resolve(address)
    if resolved.seq is not None or resolved.snapshot is not None or resolved.finding is not None:
        raise WrongUsage(f"{address}: an episode is raced, as a whole", hint="RUN/EPISODE")
    episode = resolved.episode
    if episode is None:
        episodes = [one for one in reader.episodes(resolved.run) if one.name != UNATTRIBUTED]
        if len(episodes) != 1:
            raise WrongUsage(f"{address} has {len(episodes)} episodes: one is raced", hint=f"{address}/EPISODE")
        episode = episodes[0]
    if episode.name == UNATTRIBUTED:
        raise WrongUsage(f"{address}: traffic that belongs to no episode is never sent again", hint="RUN/EPISODE")
    return reader.trace(resolved.run, episode)


# -- predicting --------------------------------------------------------------------------------------------------------


def _predicted(reader: Reader, trace: Trace, drawn: Mapping[int, set[int]]) -> list[Risky]:
    states = States(reader.node)
    extract = Extractor(trace.run, states).extract(trace, Views())
    sendable = [e for e in trace.exchanges if why_not_sent(e) is None]
    ops = {op.seq: op for op in extract.ops}
    writes = {op.seq: (op.fwd, op.end) for op in extract.ops if op.effect is not Effect.NONE}
    changed: dict[int, list[RowChange]] = {}
    for seq, shots in _around(trace.snapshots, writes).items():
        try:
            changed.setdefault(seq, []).extend(states.changes(*(shot.root or b"" for shot in shots)))
        except TooMuchChanged:
            continue  # it tells too little about one row: the paths say what there is to say
    return risky_pairs(sendable, ops, changed, drawn)


def _around(
    snapshots: Sequence[Snapshot], writes: Mapping[int, tuple[int, int]]
) -> dict[int, tuple[Snapshot, Snapshot]]:
    """The two readings around a write that was the only one between them."""
    found: dict[int, tuple[Snapshot, Snapshot]] = {}
    for name in {shot.name for shot in snapshots}:
        own = sorted((s for s in snapshots if s.name == name and usable(s)), key=lambda s: s.begun)
        for before, after in pairwise(own):
            between = [seq for seq, (begun, ended) in writes.items() if ended > before.begun and begun < after.done]
            if len(between) == 1 and between[0] not in found:
                found[between[0]] = before, after
    return found


def _chosen(trace: Trace, found: Sequence[Risky], ask: Ask) -> list[Risky]:
    if ask.only is None:
        return list(found[: ask.pairs])
    known = {e.seq: e for e in trace.exchanges}
    for seq in ask.only:
        if seq not in known:
            raise WrongUsage(f"--pair {ask.only[0]},{ask.only[1]}: {trace.address} has no exchange {seq}")
        if reason := why_not_sent(known[seq]):
            raise WrongUsage(f"--pair {ask.only[0]},{ask.only[1]}: #{seq} cannot be sent again ({reason[0]})")
    a, b = sorted(ask.only, key=lambda seq: (known[seq].times.head, seq))
    if known[a].env != known[b].env:
        raise WrongUsage(f"--pair {a},{b}: they speak to different environments, {known[a].env} and {known[b].env}")
    path = known[a].request.target.decode("utf-8", "replace").partition("?")[0]
    asked = Risky(how="twice" if a == b else "two", a=a, b=b, row=None, path=path, why=("asked for",), rank=0)
    return [next((one for one in found if one.key == (a, b)), asked)]


# -- trying ------------------------------------------------------------------------------------------------------------


async def _raced(
    ground: Ground, risky: Risky, drawn: Mapping[int, set[int]], ask: Ask, say: Callable[[str], None], what: str
) -> Raced:
    one = Raced(contest=ground.contest(risky, drawn))
    strange = False
    try:
        say(f"{what}: #{risky.a} and #{risky.b} in turn, both orders")
        one.orders = [await ground.attempt(one.contest, order) for order in ("ab", "ba", "ab")]
        ab, ba, control = (attempt.outcome for attempt in one.orders)
        one.serial = racing.Serial(ab=(ab, control), ba=(ba,))
        one.reason = one.serial.unsteady()
        if one.reason:
            return one
        say(f"{what}: together, {ask.times} times")
        offset = min(LARGEST_OFFSET, max(attempt.took for attempt in one.orders))
        for number in range(ask.times):
            # Together with B's byte first: the least delay that puts A behind it.
            share = SHARES[number % len(SHARES)]
            after = offset * share or (0.0 if number % len(SHARES) == 0 else -1e-9)
            attempt = await ground.attempt(one.contest, "together", after)
            broken = racing.anomaly(one.serial, attempt.outcome)
            if broken is not None:
                attempt = await ground.settled(attempt)
                strange = True
            one.attempts.append(attempt)
        if strange:
            # What has changed meanwhile (a counter that no restore puts back, a limit that is used up) shows here.
            one.orders.append(await ground.attempt(one.contest, "ab"))
            one.serial = racing.Serial(ab=(ab, control, one.orders[-1].outcome), ba=(ba,))
            one.reason = one.serial.unsteady()
    except CannotJudge as problem:
        one.reason = str(problem)
    return one


def _judge(done: Race, ask: Ask) -> None:
    for one in done.raced:
        if one.serial is None or one.reason or not one.attempts:
            continue
        outcomes = [attempt.outcome for attempt in one.attempts]
        for attempt, same in zip(one.attempts, racing.repeated(one.serial, outcomes), strict=True):
            broken = racing.anomaly(one.serial, attempt.outcome)
            if broken is None and same is not None:
                broken = racing.Anomaly(sub="same-value", pointer=same[0], expected=same[1], found=same[2])
            if broken is not None:
                one.shown.append(Shown(attempt=attempt, anomaly=broken))
        if one.shown:
            one.finding = finding_of(done.trace, one.contest, one.serial, one.attempts, one.shown)


def _kept(store: Store, done: Race) -> str:
    documents = [
        trials.trial(
            one.finding.id, "race", wall=time.time_ns(), k=len(one.shown), n=len(one.attempts), confirmed=True,
            told=f"together {len(one.shown)}/{len(one.attempts)}, in turn 0/{len(one.orders)}",
            evidence=dict(one.finding.effect), found=one.finding, blame=one.finding.blame,
            blame_reason=one.finding.blame_reason,
        )
        for one in done.raced if one.finding is not None
    ]  # fmt: skip
    return trials.keep(store, done.trace.run.key, documents) if documents else ""


def run_race(store: Store, ask: Ask, say: Callable[[str], None]) -> Race:
    """`race` for callers without an event loop."""
    return asyncio.run(race(store, ask, say))
