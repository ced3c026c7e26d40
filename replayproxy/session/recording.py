"""The recorder itself: what the proxy tells becomes records of a run, each in the episode that its carriers named.

Rules of this file: everything runs on the event-loop thread. Whatever goes wrong in here is a fault of the episode
it befell (incomplete) or, where none is known, of the run; it is never the traffic's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from replayproxy.core.chaos import Chaos
from replayproxy.core.effects import is_write
from replayproxy.core.identity import CONTRADICTION, SEALED, Attribution, Claims, EpisodeBook, with_key
from replayproxy.core.values import Event, Exchange, Fields, Request, Response, Run
from replayproxy.errors import Problem, StoreTrouble
from replayproxy.proxy.scribe import AGENT_TLS_REFUSED, ESCAPING_LINKS, BodySink, TalkSink, Ticket
from replayproxy.serve.metrics import Reading
from replayproxy.session.camera import Camera, Plan
from replayproxy.session.connections import Connections
from replayproxy.session.identities import Identities
from replayproxy.session.ledger import Ledger
from replayproxy.session.lives import Live, only_listens
from replayproxy.session.matter import UNNAMED, Matter, fills, settled
from replayproxy.session.matters import Matters
from replayproxy.session.prober import Prober, Tools
from replayproxy.session.resets import Resets
from replayproxy.session.tally import Tally
from replayproxy.session.wiring import DYNAMIC, EnvSpec, Reset
from replayproxy.state.capture import Capture
from replayproxy.storage import Writer
from replayproxy.storage.trouble import why

LOSING = frozenset(
    {"arrive", "requestheaders", "request", "responseheaders", "response", "error", "websocket_end", "mitmproxy"}
)
"""Where a fault that names no exchange may have cost one, of whichever episode."""

FULL_WAIT = 0.005


class Recording:
    """One run being recorded: the `Scribe` of the proxy. `Episodes` opens and ends what is in it."""

    def __init__(
        self,
        *,
        writer: Writer,
        run: Run,
        envs: Sequence[EnvSpec],
        book: EpisodeBook,
        capture: Capture,
        plan: Plan,
        now: Callable[[], int],
        wall: Callable[[], int],
        resets: Sequence[Reset] = (),
        identities: Identities | None = None,
        probe: bool = False,
        holds: bool = True,
        chaos: Chaos | None = None,
    ) -> None:
        self.writer, self.run, self.book = writer, run, book
        self.envs: Mapping[str, EnvSpec] = {env.name: env for env in envs}
        self.now, self.wall, self._holds = now, wall, holds
        self.tally = Tally(run=run.name)
        self.ledger = Ledger(writer, run, book, self.tally, now=now, wall=wall)
        self.camera = Camera(
            capture, plan=plan, keep=self.ledger.keep_snapshot, others=self.ledger.open_and_lately, now=now, wall=wall
        )
        self._chaos = chaos
        self.tally.chaos = tuple(rule.fault.rule for rule in chaos.rules) if chaos is not None else ()
        self.prober = Prober(run, self._tools()) if probe else None
        self._resets = Resets(resets)
        self.matters = Matters(identities, self._begun, self.tally)
        self.on_end: Callable[[Live], None] | None = None
        """Called with an episode that a rule ends."""
        self._trouble: str | None = None
        """Why something could not be stored, though the store may take everything again by the end."""
        self._last_order: dict[int, int] = {}
        self._connections = Connections(self.ledger.put_event, now=now, wall=wall)

    async def close(self, deadline: float | None) -> str | None:
        """After the last episode: the bucket and the run are on disk. Gives what kept them from it. `deadline` is an
        instant of the loop's clock."""
        run = replace(self.run, closed_wall=self.wall(), faults=(*self.run.faults, *self.tally.faults))
        try:
            if (sealing := self.ledger.seal_bucket()) is not None:
                await _by(deadline, asyncio.wrap_future(sealing))
            self.writer.update_run(run)
            await _by(deadline, asyncio.wrap_future(self.writer.flush()))
        except (Problem, TimeoutError, ValueError) as error:
            return str(error) or "the store did not answer in time"
        return self._trouble

    # -- the proxy's seam ----------------------------------------------------------------------------------------

    def arrive(
        self,
        claims: Claims,
        *,
        env: str,
        listener: str,
        method: bytes,
        target: bytes,
        at: int,
        fields: Fields = (),
        worker: int = 0,
    ) -> Ticket:
        """A request's head is here: who it belongs to, where it goes, and its place in the order.

        The machine has one monotonic clock, so `at` orders the requests of all workers; only those of one worker can
        have come at the same instant.
        """
        del listener
        order = self._order(at, worker)
        if self._resets.by_head(env, method, target):
            attribution = Attribution(episode=None, reason="reset", carrier="", lane="main")
            return self._ticket(order, attribution, env, is_reset=True)
        if not self.matters.wanted(claims):
            attribution = self._begun(order, self.book.attribute(claims, at=at, wall=self.wall()), at)
            return self._with_fault(self._ticket(order, attribution, env), method, target)
        matter = self.matters.arrived(
            order, claims, env=env, method=method, target=target, fields=fields, at=at, wall=self.wall()
        )
        ticket = self._ticket(order, matter.attribution or UNNAMED, env, is_probe=matter.found.says("probe"))
        return ticket if ticket.is_probe else self._with_fault(ticket, method, target)

    def _with_fault(self, ticket: Ticket, method: bytes, target: bytes) -> Ticket:
        """What `--chaos` has for this request. It has nothing for one whose episode its head does not tell."""
        episode, lane = ticket.attribution.episode, ticket.attribution.lane
        live = self.ledger.lives.get(episode.name) if self._chaos is not None and episode is not None else None
        if self._chaos is None or live is None or ticket.stopped:
            return ticket
        name, place = live.episode.name, live.places[lane]
        fault = self._chaos.fault(episode=name, lane=lane, place=place, method=method, target=target)
        return replace(ticket, fault=fault) if fault else ticket

    def _begun(self, order: tuple[int, int], attribution: Attribution, at: int) -> Attribution:
        """From now on the exchange is under way in its episode."""
        if attribution.opened and attribution.episode is not None:
            seen = self.ledger.first_seen(attribution.episode)
            self.camera.undeclared_start(seen)
            attribution = with_key(attribution, seen.episode)
        if attribution.episode is not None and (live := self.ledger.lives.get(attribution.episode.name)) is not None:
            live.arrive(order, attribution.lane, at)
        return attribution

    def _order(self, at: int, worker: int = 0) -> tuple[int, int]:
        last = self._last_order[worker] = max(at, self._last_order.get(worker, 0) + 1)
        return (last, worker)

    def follows(self, ticket: Ticket) -> tuple[bool, bool]:
        """(whether rules look at its bodies, whether its episode has snapshots of its environment)."""
        live = self.live_of(ticket)
        return self.matters.of(ticket) is not None, live is not None and bool(self.camera.names(live, ticket.env))

    def _ticket(
        self,
        order: tuple[int, int],
        attribution: Attribution,
        env: str,
        *,
        is_reset: bool = False,
        is_probe: bool = False,
    ) -> Ticket:
        spec = self.envs.get(env)
        # A user's own mitmproxy has environments that nobody named before, and finds its own way to them.
        upstream = spec.upstream if spec else None
        reads = spec.reads if spec else ()
        note = ""
        if upstream == DYNAMIC:
            upstream = attribution.episode.envs.get(env) if attribution.episode else None
            if upstream is None:
                why = attribution.reason or f"episode {attribution.episode and attribution.episode.name} names none"
                note = f"environment {env} is dynamic, and this request has no upstream: {why}"
        known = self.ledger.lives.get(attribution.episode.name) if attribution.episode else None
        return Ticket(
            stopped=known.stopped if known is not None else "",
            order=order,
            attribution=attribution,
            env=env,
            upstream=upstream,
            reads=reads,
            is_reset=is_reset,
            is_probe=is_probe,
            note=note,
        )

    def passed(self, host: str) -> None:
        """A request, or a tunnel, of `--pass` went by unrecorded."""
        self.tally.passed[host] += 1

    def sink(self, ticket: Ticket, fields: Fields, *, answer: bool) -> BodySink:
        sink: BodySink = self.writer.body_sink()
        if not self.writer.redactor.keeps:
            episode = ticket.attribution.episode
            sink = self.writer.redacting_sink(episode.key if episode else None, fields, of_answer=answer)
        return self.matters.sink(ticket, sink, answer=answer)

    def talk(self, ticket: Ticket) -> TalkSink:
        episode = ticket.attribution.episode
        return self.matters.talk(ticket, self.writer.talk_sink(episode.key if episode else None))

    async def before_forward(self, ticket: Ticket, request: Request) -> None:
        self.matters.request(ticket, request)
        live = self.live_of(ticket)
        if live is not None and (flight := live.flights.get(ticket.order)) is not None:
            flight.listens = only_listens(request)

    async def hold(self, ticket: Ticket, exchange: Exchange) -> int:
        """A write's answer waits here for the snapshots that show its effect."""
        self.matters.told(ticket, exchange)
        live = self.live_of(ticket)
        flight = live.flights.get(ticket.order) if live else None
        if live is None or flight is None:
            return 0
        flight.judged = True
        flight.ended = exchange.times.up_end
        if not self._is_followed(live, ticket, exchange):
            return 0
        begun = self.now()
        await self.camera.hold(live, self.camera.after_write(live, exchange))
        return self.now() - begun if self.camera.plan.mode == "hold" else 0

    def _is_followed(self, live: Live, ticket: Ticket, exchange: Exchange) -> bool:
        """Whether a snapshot follows this exchange; the cheap question comes first."""
        return (
            self.camera.wants(live, exchange.env)
            and is_write(exchange.request, ticket.reads)
            and not self._resets.equal(exchange)
        )

    def finished(self, ticket: Ticket, exchange: Exchange) -> None:
        """Stores the exchange where it belongs."""
        if exchange.request.version.startswith(b"HTTP/2"):
            self._note_h2(exchange.env)
        matter = self.matters.told(ticket, exchange)
        if matter is not None:
            exchange = settled(matter, exchange)
        live = self.live_of(ticket)
        if live is not None:
            self._landed(live, ticket, exchange)
        if live is None or self._resets.equal(exchange):
            self._put_aside(ticket, exchange)
            self.matters.forget(ticket)
            return
        if matter is not None:
            exchange = self._learnt(live, matter, exchange)
        self._need_room()
        self.writer.put_exchange(live.episode.key, exchange)
        self.tally.exchange(exchange, attributed=True)
        self._connections.used_by(exchange, live.episode.key)
        if self.prober is not None:
            self.prober.saw(live, ticket, exchange, self.envs.get(exchange.env))
        if matter is not None:
            self.matters.forget(ticket)
            if matter.found.says("end") and self.on_end is not None:
                self.on_end(live)

    def _need_room(self) -> None:
        if self.writer.room():
            return
        lost, failed = "queue full: an exchange was not stored", self.writer.failed
        # A store that is slow costs the episode; one that takes nothing is trouble of its own, also when it ends well.
        raise (
            RuntimeError(lost)
            if failed is None
            else StoreTrouble(f"{lost}, the store cannot be written: {why(failed)}")
        )

    def _tools(self) -> Tools:
        return Tools(
            camera=self.camera, keep=self._keep_probe, sink=self._probe_sink, order=self._order, now=self.now,
            wall=self.wall, fault=self._probe_failed,
        )  # fmt: skip

    def _probe_failed(self, live: Live, error: BaseException) -> None:
        told = self.writer.redactor.text(f"{type(error).__name__}: {error}")[:200]
        self.ledger.put_event(
            live.episode.key, Event(at=self.now(), wall=self.wall(), kind="probe", detail={"trouble": told})
        )

    def _keep_probe(self, live: Live, exchange: Exchange) -> None:
        if self.writer.room() and self.ledger.lives.get(live.episode.name) is live:
            self.writer.put_exchange(live.episode.key, exchange)
            self.tally.asked_again += 1

    def _probe_sink(self, live: Live, exchange: Exchange, response: Response) -> BodySink:
        if self.writer.redactor.keeps:
            return self.writer.body_sink()
        return self.writer.redacting_sink(live.episode.key, response.fields, of_answer=True)

    def _note_h2(self, env: str) -> None:
        """Replay offers HTTP/2 where it was spoken, and only there."""
        wired = self.run.envs.get(env)
        if wired is not None and not wired.options.get("h2"):
            wired = replace(wired, options={**wired.options, "h2": True})
            self.run = replace(self.run, envs={**self.run.envs, env: wired})
            self.writer.update_run(self.run)

    def _learnt(self, live: Live, matter: Matter, exchange: Exchange) -> Exchange:
        """What an exchange says of its episode is kept with it, and what contradicts is told."""
        assert self.matters.identities is not None
        changes, refused = fills(matter, live.episode)
        aliases = self.matters.identities.new_aliases(matter, live.episode)
        if aliases != live.episode.aliases:
            changes["aliases"] = aliases
        if changes:
            self.ledger.update(live, **changes)
        where = f"{self.run.name}/{live.episode.name}"
        for note in matter.notes:
            if note.startswith(CONTRADICTION):
                self.tally.contradiction(where, note)
                detail = {"what": note, "order": list(exchange.order)}
                self.ledger.put_event(
                    live.episode.key, Event(at=self.now(), wall=self.wall(), kind=CONTRADICTION, detail=detail)
                )
        return replace(exchange, notes=(*exchange.notes, *refused)) if refused else exchange

    def _landed(self, live: Live, ticket: Ticket, exchange: Exchange) -> None:
        flight = live.flights.get(ticket.order)
        judged = flight is None or flight.judged
        live.land(exchange, self.now())
        # An answer that streamed, or whose agent left, was never held; its effect is looked for all the same.
        if not judged and live.ending is None and self._is_followed(live, ticket, exchange):
            self.camera.after_write(live, exchange)

    def _put_aside(self, ticket: Ticket, exchange: Exchange) -> None:
        if ticket.is_reset or self._resets.equal(exchange):
            exchange = replace(exchange, is_reset=True, carrier="reset")
        elif self.attribution(ticket).episode is not None:
            exchange = replace(exchange, carrier=SEALED)  # it outlived its episode
        self._need_room()
        key = self.ledger.bucket().key
        self.writer.put_exchange(key, exchange)
        head = self.writer.redactor.request(replace(exchange.request, body=None), env=exchange.env)
        self.tally.exchange(replace(exchange, request=head), attributed=False)  # its first line is shown at the end
        self._connections.used_by(exchange, key)

    def live_of(self, ticket: Ticket) -> Live | None:
        """The episode of a ticket for as long as it is not sealed."""
        episode = self.attribution(ticket).episode
        live = self.ledger.lives.get(episode.name) if episode is not None else None
        return live if live is not None and episode is not None and live.episode.key == episode.key else None

    def attribution(self, ticket: Ticket) -> Attribution:
        """Whose a ticket is, as far as it is known by now."""
        return self.matters.attribution(ticket)

    # -- events --------------------------------------------------------------------------------------------------

    def event(self, ticket: Ticket | None, kind: str, detail: Mapping[str, Any], at: int) -> None:
        live = self.live_of(ticket) if ticket is not None else None
        if kind == AGENT_TLS_REFUSED:
            self.tally.tls_refused[str(detail.get("sni", ""))] += 1
        if kind != ESCAPING_LINKS:
            self._connections.event(live.episode.key if live else None, kind, detail, at)
            return
        count = int(detail.get("count", 0))
        self.tally.escaping += count
        if live is not None:
            live.episode = replace(live.episode, escaping_links=live.episode.escaping_links + count)

    def figures(self) -> Reading:
        """What there is to count, now."""
        tally, counted = self.tally, self.tally.figures
        return Reading(
            exchanges=counted.exchanges, unattributed=tally.unattributed, findings=counted.findings,
            episodes={"open": len(self.ledger.lives), "sealed": tally.sealed, "incomplete": len(tally.incomplete)},
            snapshots=counted.snapshots, added=counted.added, queue=self.writer.waiting,
        )  # fmt: skip

    # -- faults and the queue ------------------------------------------------------------------------------------

    def fault(self, ticket: Ticket | None, where: str, error: BaseException) -> None:
        """Evidence is missing from here on. Never raises."""
        told = self.writer.redactor.text(str(error))
        text = " ".join(f"{where}: {told or type(error).__name__}".split())[:200]
        if isinstance(error, StoreTrouble):
            self._trouble = self._trouble or told
        try:
            live = self.live_of(ticket) if ticket is not None else None
            if ticket is not None and where in ("finished", "requestheaders"):
                self.matters.forget(ticket)
            if live is not None and ticket is not None:
                if where == "finished":
                    live.give_up(ticket.order)
                self.ledger.mark_fault(live, text)
                return
            self.tally.fault(text)
            if ticket is None and where in LOSING:
                # It is not known whose exchange is missing, so none of the open episodes can claim to be whole.
                for each in tuple(self.ledger.lives.values()):
                    self.ledger.mark_fault(each, text)
        except Exception:
            # The store cannot take the mark either. The episode stays unsealed, and so incomplete, and the exit code
            # comes from the tally.
            self.tally.fault(text)

    def room(self) -> bool:
        # With `--when-full pass` nobody reads slower, nor is told to, with every word of a worker anew. Of a store that
        # takes nothing no room comes by waiting.
        return not self._holds or self.writer.ample() or self.writer.failed is not None

    async def wait_room(self) -> None:
        while not self.room():  # noqa: ASYNC110 - the room comes from another thread, and seldom
            await asyncio.sleep(FULL_WAIT)


async def _by[T](deadline: float | None, work: asyncio.Future[T]) -> T:
    left = None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0.2)
    return await asyncio.wait_for(work, left)
