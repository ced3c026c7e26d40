"""Opens and ends the episodes of a recording: what the control API, `--episode`, idleness and the recorder's end do."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from replayproxy.core.redact_records import clean_episode
from replayproxy.core.shown import count
from replayproxy.core.values import Episode, EpisodeState, Event, SnapshotStatus
from replayproxy.errors import Problem
from replayproxy.proxy.scribe import Ticket
from replayproxy.serve.control import EndRequest, MarkRequest, OpenRequest, Refused
from replayproxy.session.addresses import Addresses
from replayproxy.session.admission import Admission
from replayproxy.session.desk_documents import ended_document, row
from replayproxy.session.judging import Judging
from replayproxy.session.lives import Live
from replayproxy.session.online import Verdicts
from replayproxy.session.recording import Recording

STREAMS_SETTLE = 2.0
"""Seconds after which a stream or WebSocket that is still open is cut from its episode."""

SETTLE = 30.0
"""Seconds for which `end` waits for any other exchange in flight."""

REMEMBERED = 10_000


class Engine(Protocol):
    """The part of the proxy that episodes need."""

    async def unlisten(self, listener: Any) -> None: ...

    def release(self, wanted: Callable[[Ticket], bool], *, streams_only: bool = False) -> int: ...


class Episodes:
    """The desk of the control API. `sealed` remembers what became of the last ended episodes."""

    def __init__(
        self,
        recording: Recording,
        engine: Engine,
        addresses: Addresses,
        *,
        url_style: str = "path",
        allowed: Sequence[str] = (),
        verdicts: Verdicts | None = None,
    ) -> None:
        self.recording, self.engine, self.addresses = recording, engine, addresses
        self.judging = Judging(recording, verdicts)
        self.url_style = url_style
        self.stopping = self.proxy_stopped = False
        self.store_trouble: str | None = None
        self.sealed: OrderedDict[str, Episode] = OrderedDict()
        self._counts: dict[str, int] = {}
        recording.on_end = self._end_by_rule
        self._admission = Admission(recording.run.name, recording.book, recording.envs, allowed)

    # -- opening -------------------------------------------------------------------------------------------------

    async def open(self, wanted: OpenRequest, reached_by: str) -> dict[str, Any]:
        if self.stopping:
            raise Refused(503, "stopping", "the recorder is being stopped")
        admit = self._admission
        name = admit.name(wanted)
        envs = {env: admit.upstream(env, url) for env, url in wanted.envs.items()}
        for env in wanted.instance:
            admit.known(env, "instance")
        snapshots = {one: admit.spec(one, spec) for one, spec in wanted.snapshots.items()}
        recording = self.recording
        live = recording.ledger.open(
            Episode(
                key=0, run_key=0, name=name, task=wanted.task, seed=wanted.seed, attempt=wanted.attempt,
                group=wanted.group, meta=dict(wanted.meta), envs=envs, instance=dict(wanted.instance),
                opened=recording.now(), opened_wall=recording.wall(),
            ),
            by_api=True,
        )  # fmt: skip
        live.own_snapshots.update(snapshots)
        if (wanted.url_style or self.url_style) == "port":
            await self._listen(live)
        await self.start(live)
        return {"episode": name, "urls": self.addresses.urls(live.episode, live.listeners, reached_by)}

    async def start(self, live: Live) -> None:
        """The start snapshot, where one is configured."""
        if "start" in self.recording.camera.plan.when:
            await self.recording.camera.take(live, "start")

    async def _listen(self, live: Live) -> None:
        """Listeners of the episode's own. Without them there is no way into it, so it is given up when one fails."""
        try:
            live.listeners += await self.addresses.listen_for(live.episode.name, live.episode.envs)
        except Problem as problem:
            self.recording.ledger.mark_fault(live, f"no listener: {problem.what}")
            await self.end_live(live, by="stop")
            raise Refused(503, problem.title, problem.what) from None

    # -- while it is open ----------------------------------------------------------------------------------------

    def _open(self, name: str) -> Live:
        live = self.recording.ledger.lives.get(name)
        if live is not None and live.ending is None:
            return live
        if live is not None or self.recording.book.is_sealed(name):
            raise Refused(409, "sealed", f"episode {name!r} has ended")
        raise Refused(404, "no such episode", f"there is no episode {name!r} in run {self.recording.run.name}")

    async def mark(self, name: str, mark: MarkRequest) -> dict[str, Any]:
        live = self._open(name)
        given = {"step": mark.step, "label": mark.label, "data": mark.data}
        live.last_active = at = self.recording.now()
        detail = {key: value for key, value in given.items() if value is not None}
        event = Event(at=at, wall=self.recording.wall(), kind="mark", detail=detail)
        self.recording.writer.put_event(live.episode.key, event)
        return {}

    async def snapshot(self, name: str, label: str) -> list[dict[str, Any]]:
        live = self._open(name)
        live.last_active = self.recording.now()
        taken = await self.recording.camera.take(live, "mark", label=label)
        return [
            {
                "snapshot": f"s{one.n}", "name": one.name, "status": str(one.status), "reason": one.reason,
                "rows": one.rows if one.status is not SnapshotStatus.MISSING else None,
            }
            for one in taken
        ]  # fmt: skip

    # -- ending --------------------------------------------------------------------------------------------------

    async def end(self, name: str, end: EndRequest) -> dict[str, Any]:
        live = self.recording.ledger.lives.get(name)
        if live is None and (sealed := self.sealed.get(name)) is not None:
            # A harness that lost our answer asks again; one that says something else is told that it is too late.
            if (end.reward, end.outcome) in ((None, None), (sealed.reward, sealed.outcome)):
                return ended_document(sealed, await self.judging.of_sealed(sealed))
            raise Refused(409, "sealed", f"episode {name!r} has ended already")
        if live is None or live.ending is None:
            live = self._open(name)
        sealed = await self.end_live(live, by="end", reward=end.reward, outcome=end.outcome, meta=end.meta)
        return ended_document(sealed, await self.judging.of_sealed(sealed))

    # -- judging -------------------------------------------------------------------------------------------------

    async def verdict(self, name: str) -> dict[str, Any]:
        """What is known against an episode now: of an open one, of what is over in it."""
        live = self.recording.ledger.lives.get(name)
        if live is not None and live.ending is None:
            return await self.judging.so_far(live)
        sealed = await asyncio.shield(live.ending) if live is not None and live.ending else self.sealed.get(name)
        if sealed is None:
            raise Refused(404, "no such episode", f"there is no episode {name!r} in run {self.recording.run.name}")
        return ended_document(sealed, await self.judging.of_sealed(sealed))

    async def end_live(
        self,
        live: Live,
        *,
        by: str,
        reward: float | None = None,
        outcome: str | None = None,
        meta: Mapping[str, Any] | None = None,
        deadline: float | None = None,
    ) -> Episode:
        """Ends it once, however many ask. `deadline` is an instant of the loop's clock."""
        if live.ending is None:
            live.ending = asyncio.ensure_future(self._end(live, by, reward, outcome, dict(meta or {}), deadline))
        # Shielded: a caller that leaves must not leave the episode half ended.
        episode: Episode = await asyncio.shield(live.ending)
        return episode

    def _end_by_rule(self, live: Live) -> None:
        """A rule said that this exchange was the last. `live.ending` keeps the work from being collected."""
        if live.ending is None:
            live.ending = asyncio.ensure_future(self._end(live, "end", None, None, {}, None))

    async def _end(
        self,
        live: Live,
        by: str,
        reward: float | None,
        outcome: str | None,
        meta: dict[str, Any],
        deadline: float | None,
    ) -> Episode:
        recording = self.recording
        recording.book.end(live.episode.name)
        live.episode = replace(
            live.episode, ended=recording.now(), ended_wall=recording.wall(), ended_by=by,
            reward=live.episode.reward if reward is None else reward, outcome=outcome,
            meta={**live.episode.meta, **meta},
        )  # fmt: skip
        for listener in live.listeners:
            await self.engine.unlisten(listener)
        await self._settle(live, deadline)
        if recording.prober is not None:
            await recording.prober.settle(live, _left(deadline, STREAMS_SETTLE))
        if "end" in recording.camera.plan.when:
            await recording.camera.take(live, "end", seconds=_left(deadline))
        if live.readings:
            await live.until_read(live.readings, _left(deadline))
            recording.camera.give_up_all(live)
        return await self._seal(live)

    async def _settle(self, live: Live, deadline: float | None) -> None:
        """Nothing of the episode is in flight when it returns."""

        def ours(ticket: Ticket) -> bool:
            episode = self.recording.attribution(ticket).episode
            return episode is not None and episode.key == live.episode.key

        # Once the proxy has stopped, what has not landed never will.
        if self.proxy_stopped or await live.settle(_left(deadline, STREAMS_SETTLE)):
            return
        self.engine.release(ours, streams_only=True)
        if not await live.settle(_left(deadline, SETTLE)):
            self.engine.release(ours)
            # Workers have to be asked; one that stands still is killed meanwhile, and what it carried is lost by name.
            if not await live.settle(_left(deadline, SETTLE)):
                self.recording.ledger.mark_fault(
                    live, f"{count(len(live.flights), 'exchange')} did not end with the episode"
                )

    async def _seal(self, live: Live) -> Episode:
        """Everything of the episode is on disk when it returns, or it is incomplete and says why."""
        recording, tally = self.recording, self.recording.tally
        ambiguous = live.lane_ambiguous()
        tally.lane_ambiguous += ambiguous
        self._counts[live.episode.name] = live.exchanges
        recording.ledger.retire(live)
        try:
            episode = await asyncio.wrap_future(recording.writer.seal(live.episode))
        except Exception as error:
            self.store_trouble = self.store_trouble or str(error)
            fault = f"not sealed: {error}"
            episode = replace(live.episode, state=EpisodeState.INCOMPLETE, faults=(*live.episode.faults, fault))
        recording.camera.capture.forget(live.context, live.own_snapshots.values())
        if episode.faults or episode.state is not EpisodeState.SEALED:
            tally.incomplete.append(episode.name)
            tally.why_incomplete[episode.name] = next(iter(episode.faults), "not sealed")
            episode = replace(episode, state=EpisodeState.INCOMPLETE)
        else:
            tally.sealed += 1
            if not live.exchanges:
                tally.empty.append(episode.name)
        self._remember(episode)
        return episode

    def _remember(self, episode: Episode) -> None:
        self.sealed[episode.name] = episode
        self.judging.sealed(episode)
        while len(self.sealed) > REMEMBERED:
            self._counts.pop(self.sealed.popitem(last=False)[0], None)

    async def end_all(self, deadline: float | None) -> None:
        """The recorder has stopped its proxy: every open episode ends, side by side."""
        self.stopping = self.proxy_stopped = True
        lives = list(self.recording.ledger.lives.values())
        if deadline is not None:
            for live in lives:  # also for those whose end was asked for before anybody knew of a deadline
                asyncio.get_running_loop().call_at(deadline, live.hurry.set)
        await asyncio.gather(*(self.end_live(live, by="stop", deadline=deadline) for live in lives))

    async def end_idle(self, idle: float) -> list[str]:
        """Ends the episodes in which nothing has happened for `idle` seconds and nothing is in flight."""
        limit = self.recording.now() - int(idle * 1e9)
        quiet = [
            live for live in self.recording.ledger.lives.values()
            if live.ending is None and not live.flights and live.last_active < limit
        ]  # fmt: skip
        await asyncio.gather(*(self.end_live(live, by="idle") for live in quiet))
        return [live.episode.name for live in quiet]

    # -- looking -------------------------------------------------------------------------------------------------

    def describe_all(self) -> list[dict[str, Any]]:
        lives = [self._row(live.episode, live.exchanges) for live in self.recording.ledger.lives.values()]
        return [*(self._row(one, self._counts.get(one.name, 0)) for one in self.sealed.values()), *lives]

    def describe(self, name: str) -> dict[str, Any]:
        live = self.recording.ledger.lives.get(name)
        if live is not None:
            urls = self.addresses.urls(live.episode, live.listeners) if live.ending is None else {}
            extra = {"urls": urls, "in_flight": len(live.flights), "snapshots": live.snapshots}
            return {**self._row(live.episode, live.exchanges), **extra}
        if name in self.sealed:
            return {**self._row(self.sealed[name], self._counts.get(name, 0)), "urls": {}}
        raise Refused(404, "no such episode", f"there is no episode {name!r} in run {self.recording.run.name}")

    def _row(self, episode: Episode, exchanges: int) -> dict[str, Any]:
        return row(clean_episode(self.recording.writer.redactor, episode), exchanges)

    def instances(self) -> dict[str, int]:
        """How many instances of each dynamic environment there were, as far as they are remembered."""
        seen: dict[str, set[str]] = {}
        for episode in (*self.sealed.values(), *(live.episode for live in self.recording.ledger.lives.values())):
            for env, upstream in episode.envs.items():
                seen.setdefault(env, set()).add(episode.instance.get(env, upstream))
        return {env: len(found) for env, found in seen.items()}

    def health(self) -> dict[str, Any]:
        tally = self.recording.tally
        failed = self.recording.writer.failed
        return {
            "status": "stopping" if self.stopping else "failing" if failed else "ok",
            "run": self.recording.run.name,
            "envs": self.addresses.plain_urls(),
            "episodes": {
                "open": len(self.recording.ledger.lives), "sealed": tally.sealed, "incomplete": len(tally.incomplete),
            },
            "exchanges": tally.exchanges,
            "unattributed": tally.unattributed,
            "faults": list(tally.faults),
            "store": "ok" if failed is None else str(failed),
        }  # fmt: skip


NO_LIMIT = 3600.0


def _left(deadline: float | None, at_most: float = NO_LIMIT) -> float:
    """Seconds until the deadline, never negative, and at most so many."""
    return at_most if deadline is None else min(max(deadline - asyncio.get_running_loop().time(), 0.0), at_most)
