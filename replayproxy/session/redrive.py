"""Re-drive: the recorded requests of an episode to a live environment whose start state is the recorded one.

In this order, and nothing of a later step before an earlier one is sure: the words make sense and may be obeyed; the
environments can be reached; the state found is kept; the recorded start is restored and read back; the requests are
sent; answers and states are compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from replayproxy.core.bindings import flows
from replayproxy.core.names import archive_splits
from replayproxy.core.rules import parse_rules
from replayproxy.core.schedule import plan, settled
from replayproxy.core.values import (
    UNATTRIBUTED,
    Episode,
    EpisodeState,
    Run,
    Trace,
)
from replayproxy.drive.wire import connect
from replayproxy.errors import CannotJudge, WorldTrouble, WrongUsage
from replayproxy.session import secrecy, trials
from replayproxy.session.ablate import ablate
from replayproxy.session.addresses import plainly
from replayproxy.session.redrive_keep import Keeper
from replayproxy.session.redrive_once import DIFFERENT, SAME, UNDECIDED, Ask, Redriven, Repetition, Session
from replayproxy.session.redrive_secrets import credentials
from replayproxy.session.redrive_targets import targets
from replayproxy.session.redrive_trial import histogram, trials_of
from replayproxy.storage import Reader, Store

__all__ = ["DIFFERENT", "SAME", "UNDECIDED", "Ask", "Redriven", "Repetition", "redrive", "run_redrive"]


async def redrive(store: Store, ask: Ask, say: Callable[[str], None]) -> list[Redriven]:
    """Re-drives every episode that the addresses name. Raises the Problem of an episode that is the only one; with
    several the others go on, and each keeps its own."""
    reader = store.reader()
    work = [prepared(reader, reader.trace(run, episode), ask) for run, episode in _named(reader, ask.addresses)]
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
    await reachable(ready)
    try:
        for one in ready:
            session = Session(reader, keeper, one, ask, rules, say)
            try:
                await session.run()
                if len(one.repetitions) > 1:
                    one.histogram = histogram(session, one)
                    _keep(store, one, trials_of(session, one), say)
                if ask.ablate and one.repetitions and one.problem is None:
                    one.ablation = await ablate(session, one, ask, say)
            finally:
                session.close()
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


def prepared(reader: Reader, trace: Trace, ask: Ask) -> Redriven:
    """What an episode needs to be sent; its `problem` where it cannot be. Raises WrongUsage for wrong words."""
    one, run, episode = Redriven(trace=trace), trace.run, trace.episode
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


def _keep(store: Store, one: Redriven, found: Sequence[Mapping[str, Any]], say: Callable[[str], None]) -> None:
    if not found:
        return
    one.trial = found[0]
    if unsaved := trials.keep(store, one.trace.run.key, found):
        say(f"{one.trace.address}: what the repetitions showed could not be kept: {unsaved}")


async def reachable(ready: Sequence[Redriven]) -> None:
    """Opens and closes one connection to each environment, before anything is overwritten."""
    origins = {(name, target.origin) for one in ready if one.targets for name, target in one.targets.envs.items()}
    for name, where in sorted(origins, key=lambda pair: pair[0]):
        try:
            (await connect(where)).close()
        except OSError as refused:
            raise WorldTrouble(
                f"environment {name} cannot be reached at {where.url}: {plainly(refused)}",
                hint="nothing was sent or restored",
            ) from None


def run_redrive(store: Store, ask: Ask, say: Callable[[str], None]) -> list[Redriven]:
    """`redrive` for callers without an event loop."""
    return asyncio.run(redrive(store, ask, say))
