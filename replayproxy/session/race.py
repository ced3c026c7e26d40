"""Race: which two requests of a recorded episode may go wrong together, and whether they do on a live environment.

For each pair the two orders are sent first, one request after the other, and what they leave is the yardstick: an
outcome of both together that is neither is shown, k of N times. What is sent, to where, and what may be overwritten is
decided as in a re-drive; a race that was shown is kept as a trial of its run, so that `check` and `show` tell it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from replayproxy.core.bindings import drawn_from
from replayproxy.core.chaos import unblamed
from replayproxy.core.names import archive_splits
from replayproxy.core.schedule import why_not_sent
from replayproxy.core.shown import count
from replayproxy.core.values import UNATTRIBUTED, RowChange, Snapshot, Trace
from replayproxy.detect.finding import Grade
from replayproxy.detect.ops import Effect
from replayproxy.detect.pairs import Risky, risky_pairs
from replayproxy.detect.source import Extractor
from replayproxy.detect.states import States, TooMuchChanged, usable
from replayproxy.detect.views import Views
from replayproxy.errors import CannotJudge, Exit, WrongUsage
from replayproxy.session import trials
from replayproxy.session.race_ground import Ground
from replayproxy.session.race_tries import NOT_SHOWN, SHOWN, UNDECIDED, Raced, Tries
from replayproxy.session.redrive import prepared, reachable
from replayproxy.session.redrive_keep import Keeper
from replayproxy.session.redrive_once import Ask as RedriveAsk
from replayproxy.session.redrive_once import Redriven
from replayproxy.session.redrive_targets import Words
from replayproxy.storage import Reader, Store

__all__ = ["NOT_SHOWN", "SHOWN", "UNDECIDED", "Ask", "Race", "Raced", "race", "run_race"]


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
            f"{count(sum(why_not_sent(e) is None for e in trace.exchanges), 'exchange')} looked at",
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
            tries = Tries(ground, ground.contest(risky, drawn), ask.times, f"pair {number} of {len(chosen)}", say)
            done.raced.append(await tries.run(trace))
    finally:
        ground.close()
        await keeper.close()
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
    return unblamed(reader.trace(resolved.run, episode))


# -- predicting --------------------------------------------------------------------------------------------------------


def _predicted(reader: Reader, trace: Trace, drawn: Mapping[int, set[int]]) -> list[Risky]:
    states = States(reader.node)
    extract = Extractor(trace.run, states).extract(trace, Views())
    sendable = [e for e in trace.exchanges if why_not_sent(e) is None]
    ops = {op.seq: op for op in extract.ops}
    writes = {op.seq: (op.fwd, op.end) for op in extract.ops if op.effect is not Effect.NONE}
    return risky_pairs(sendable, ops, _changed(trace.snapshots, writes, states), drawn)


def _changed(
    snapshots: Sequence[Snapshot], writes: Mapping[int, tuple[int, int]], states: States
) -> dict[int, list[RowChange]]:
    """The rows that each write changed, where every snapshot was read around it and nothing else ran between."""
    found: dict[int, list[RowChange]] = {}
    told: dict[int, int] = {}
    names = {shot.name for shot in snapshots}
    for name in sorted(names):
        for seq, before, after in _around([s for s in snapshots if s.name == name and usable(s)], writes):
            try:
                found.setdefault(seq, []).extend(states.changes(before.root or b"", after.root or b""))
                told[seq] = told.get(seq, 0) + 1
            except TooMuchChanged:
                continue  # it tells too little about one row: the path says what there is to say
    return {seq: rows for seq, rows in found.items() if rows or told.get(seq) == len(names)}


def _around(
    shots: Sequence[Snapshot], writes: Mapping[int, tuple[int, int]]
) -> Iterator[tuple[int, Snapshot, Snapshot]]:
    """Each write that was the only one between two readings, with these."""
    seen: set[int] = set()
    for before, after in pairwise(sorted(shots, key=lambda s: s.begun)):
        between = [seq for seq, (begun, ended) in writes.items() if ended > before.begun and begun < after.done]
        if len(between) != 1 or between[0] in seen:
            continue
        # One that was under way while a reading was taken may be in it already: it then seems to change nothing.
        begun, ended = writes[between[0]]
        if begun >= before.done and ended <= after.begun:
            seen.add(between[0])
            yield between[0], before, after


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


def _kept(store: Store, done: Race) -> str:
    documents = [
        trials.trial(
            one.finding.id, "race", wall=time.time_ns(), k=len(one.shown), n=len(one.attempts),
            confirmed=one.finding.grade is Grade.CONFIRMED,
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
