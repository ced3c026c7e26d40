"""A recording without a proxy, for tests of what is behind the seam: a clock of their own, providers of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from replayproxy.core.extract import compile_extractors
from replayproxy.core.identity import Claims, EpisodeBook
from replayproxy.core.redact import Redactor
from replayproxy.core.values import Episode, Exchange, Fields, Outcome, Run, Snapshot
from replayproxy.proxy.listeners import EnvOptions, Listener
from replayproxy.proxy.scribe import Ticket
from replayproxy.session.addresses import Addresses
from replayproxy.session.camera import Plan
from replayproxy.session.episodes import Episodes
from replayproxy.session.identities import Identities
from replayproxy.session.recording import Recording
from replayproxy.session.secrecy import shown_as
from replayproxy.session.wiring import EnvSpec, Reset
from replayproxy.state.capture import Capture
from replayproxy.state.loader import Loaded
from replayproxy.state.provider import Reading, StateUnreadable
from replayproxy.storage import Store
from replayproxy.testing import MS, exchange

URL = "http://127.0.0.1:9000"


class Clock:
    """Nanoseconds that pass when a test says so, and one at each look."""

    def __init__(self) -> None:
        self.at = 1_000 * MS

    def __call__(self) -> int:
        self.at += 1
        return self.at

    def wall(self) -> int:
        return self.at + 10**18


class Table:
    """A provider over a dict; `gate` set: a reading waits until it is released."""

    atomic, can_restore, scope = True, True, "instance"

    def __init__(self, rows: Mapping[str, Any] | None = None) -> None:
        self.rows = dict(rows or {"1": {"v": 1}})
        self.readings = 0
        self.fails: str | None = None
        self.wait: Callable[[], object] | None = None

    def capture(self) -> Reading:
        self.readings += 1
        if self.wait is not None:
            self.wait()
        if self.fails:
            raise StateUnreadable(self.fails)
        return Reading(rows={"t": dict(self.rows)})

    def restore(self, rows: Any) -> None:
        raise AssertionError("nothing here restores")

    def close(self) -> None:
        pass


class FakeEngine:
    """The proxy as the desk sees it: it hands out listeners and remembers which were closed."""

    def __init__(self) -> None:
        self.port = 4000
        self.closed: list[Listener] = []
        self.recording: Recording | None = None
        self.streams: list[Ticket] = []
        self.fails: Exception | None = None

    async def listen(
        self, env: str, upstream: str, *, host: str, port: int, port_episode: str | None, advertise: str | None,
        options: EnvOptions | None,
    ) -> Listener:  # fmt: skip
        if self.fails:
            raise self.fails
        self.port += 1
        origin = advertise.replace("{port}", str(self.port)) if advertise else f"http://{host}:{self.port}"
        path = "" if upstream == "dynamic" else EnvSpec(name=env, upstream=upstream).path
        return Listener(
            env=env, url=origin + path, origin=origin, upstream=upstream, bound=(host, port or self.port),
            port_episode=port_episode,
        )  # fmt: skip

    async def unlisten(self, listener: Listener) -> None:
        self.closed.append(listener)

    def release(self, wanted: Callable[[Ticket], bool], *, streams_only: bool = False) -> int:
        assert self.recording is not None
        chosen = [ticket for ticket in self.streams if wanted(ticket)]
        for ticket in chosen:
            self.streams.remove(ticket)
            self.recording.finished(ticket, made(ticket, outcome=Outcome.OPEN_AT_END))
        return len(chosen)


def made(ticket: Ticket, method: str = "GET", target: str = "/x", **given: Any) -> Exchange:
    """The exchange that the proxy would hand over for a ticket."""
    attribution = ticket.attribution
    flat = exchange(
        method, target, env=ticket.env, lane=attribution.lane,
        carrier=attribution.carrier if attribution.episode else attribution.reason, **given,
    )  # fmt: skip
    times = flat.times
    moved = {
        slot: None if getattr(times, slot) is None else getattr(times, slot) + ticket.order[0]
        for slot in ("head", "c_in", "fwd", "first", "up_end", "c_out")
    }
    return replace(flat, order=ticket.order, is_reset=ticket.is_reset, times=replace(times, **moved))


class Kit:
    """A recording with its desk over a real store."""

    def __init__(
        self,
        store: Store,
        *,
        envs: Sequence[EnvSpec] = (EnvSpec(name="app", upstream=URL),),
        tables: Mapping[str, Table] | None = None,
        plan: Plan | None = None,
        resets: Sequence[Reset] = (),
        undeclared: str | None = None,
        option: str | None = None,
        url_style: str = "path",
        allowed: Sequence[str] = (),
        rules: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.store, self.clock = store, Clock()
        self.writer = store.writer()
        self.run = self.writer.open_run(Run(key=0, name="r", opened_wall=1))
        self.engine = FakeEngine()
        loaded = [Loaded.of(name, lambda t=table: t, "test") for name, table in (tables or {}).items()]  # type: ignore[misc]
        book = EpisodeBook(undeclared=undeclared, option=option)
        named = [{"name": f"r{n}", "action": "extract", "fills": "alias", **rule} for n, rule in enumerate(rules)]
        self.recording = Recording(
            writer=self.writer, run=self.run, envs=envs, book=book,
            identities=Identities(compile_extractors(named), book, shown_as(Redactor(b"k" * 32))),
            capture=Capture(
                loaded, save=self.writer.put_nodes, now=self.clock, wall=self.clock.wall, envs=[e.name for e in envs]
            ),
            plan=plan or Plan(), now=self.clock, wall=self.clock.wall, resets=resets,
        )  # fmt: skip
        self.engine.recording = self.recording
        self.addresses = Addresses(engine=self.engine, envs=envs)
        self.desk = Episodes(self.recording, self.engine, self.addresses, url_style=url_style, allowed=allowed)

    async def open(self, name: str = "e", **given: Any) -> None:
        """A declared episode, with its start snapshot."""
        now = self.clock()
        live = self.recording.ledger.open(Episode(key=0, run_key=0, name=name, opened=now, opened_wall=now, **given))
        await self.desk.start(live)

    def arrive(
        self, method: str = "GET", target: str = "/x", *, env: str = "app", fields: Fields = (), **claims: Any
    ) -> Ticket:
        return self.recording.arrive(
            Claims(**claims), env=env, listener="l", method=method.encode(), target=target.encode(), at=self.clock(),
            fields=fields,
        )  # fmt: skip

    async def pass_through(
        self, method: str = "GET", target: str = "/x", *, env: str = "app", given: Any = None, **claims: Any
    ) -> int:
        """One whole exchange; gives how long its answer was held."""
        ticket = self.arrive(method, target, env=env, **claims)
        one = made(ticket, method, target, **(given or {}))
        await self.recording.before_forward(ticket, one.request)
        held = await self.recording.hold(ticket, one)
        self.recording.finished(ticket, one)
        return held

    async def stored(self, name: str = "e") -> list[Exchange]:
        await asyncio.wrap_future(self.writer.flush())
        reader = self.store.reader()
        return list(reader.exchanges(reader.episode(reader.run("r"), name)))

    async def snapshots(self, name: str = "e") -> list[Snapshot]:
        await asyncio.wrap_future(self.writer.flush())
        reader = self.store.reader()
        return reader.snapshots(reader.episode(reader.run("r"), name))

    async def episode(self, name: str = "e") -> Episode:
        await asyncio.wrap_future(self.writer.flush())
        reader = self.store.reader()
        return reader.episode(reader.run("r"), name)

    def close(self) -> None:
        self.recording.camera.capture.close()
        self.writer.close()
