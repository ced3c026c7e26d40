"""The running parts of one recording: proxy, control API, snapshots and store, from their start to the last seal."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import date
from typing import Any
from urllib.parse import urlsplit

from replayproxy import __version__
from replayproxy.core.extract import compile_extractors
from replayproxy.core.identity import EpisodeBook
from replayproxy.core.values import EnvWiring, Episode, Run
from replayproxy.errors import Problem, UnknownAddress, WrongUsage
from replayproxy.proxy.ca import Authority
from replayproxy.proxy.engine import ProxyEngine
from replayproxy.proxy.fleet import Fleet
from replayproxy.proxy.forward import ForwardOptions
from replayproxy.proxy.listeners import authority, bind, bound_address
from replayproxy.serve.control import ControlServer, application
from replayproxy.session import secrecy
from replayproxy.session.addresses import Addresses
from replayproxy.session.episodes import Episodes
from replayproxy.session.failfast import FailFast
from replayproxy.session.files import write_whole
from replayproxy.session.forwarding import RecordedNames
from replayproxy.session.identities import Identities
from replayproxy.session.online import Verdicts
from replayproxy.session.proxied import ca_variables, proxy_variables
from replayproxy.session.ready_rules import kept
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.recording import Recording
from replayproxy.session.snapshot_watch import SnapshotWatch
from replayproxy.session.store_watch import StoreWatch
from replayproxy.session.wiring import Reset, is_wildcard
from replayproxy.state.capture import Capture
from replayproxy.storage import Store, Writer

GRACE = 2.0
"""Seconds that exchanges in flight have to end when the recorder stops."""

PROGRESS_SECONDS = 0.5

type Say = Callable[[str], None]


class Recorder:
    """The running parts of one recording."""

    def __init__(
        self, options: RecordOptions, store: Store, writer: Writer, say: Say, progress: Say | None = None
    ) -> None:
        self.options, self.say, self._progress = options, say, progress
        self._store, self._writer = store, writer
        self._tasks: list[asyncio.Task[None]] = []
        self._server: ControlServer | None = None
        self._stopped = False
        used = self._earlier()
        book = EpisodeBook(undeclared=options.undeclared, option=options.episode)
        book.reserve(used)
        if options.episode is not None and book.is_taken(options.episode):
            raise WrongUsage(
                f"--episode {options.episode}: run {options.run} has it already",
                hint=f"--episode {book.free_name(options.episode)}",
            )
        self.run = writer.open_run(self._wired(), append=options.append)
        if options.append:
            secrecy.must_agree(self.run, writer.redactor)
        self.capture = Capture(
            options.snapshots, save=writer.put_nodes, now=time.monotonic_ns, wall=time.time_ns,
            envs=[env.name for env in options.envs], redactor=writer.redactor,
        )  # fmt: skip
        self.recording = Recording(
            writer=writer, run=self.run, envs=options.envs, book=book, capture=self.capture, plan=options.plan,
            now=time.monotonic_ns, wall=time.time_ns, resets=[one.filled(os.environ) for one in options.resets],
            identities=self._identities(book), probe=options.probe, holds=options.when_full == "hold",
            chaos=options.chaos,
        )  # fmt: skip
        self.recording.tally.on_missing = SnapshotWatch(say).missing
        tls = options.forward is not None or any(env.tls for env in options.envs)
        self.authority = Authority(store.path / "ca") if tls else None
        self.engine = self._engine()
        self.addresses = Addresses(
            engine=self.engine, envs=options.envs, host=options.listen, advertised=options.advertised,
            advertised_urls=options.advertised_urls,
        )  # fmt: skip
        self.verdicts = Verdicts(
            store=store.path, run=options.run, config=options.config.path, on_told=self.recording.tally.judged
        ) if options.verdicts else None  # fmt: skip
        self.episodes = Episodes(
            self.recording, self.engine, self.addresses, url_style=options.url_style, allowed=options.allowed,
            verdicts=self.verdicts,
        )  # fmt: skip
        self.control = self.forward = ""

    def _engine(self) -> ProxyEngine | Fleet:
        """The proxy: in this process, or in as many as were asked for."""
        limits = self.options.limits
        if self.options.workers == 1:
            return ProxyEngine(
                self.recording, now=time.monotonic_ns, wall=time.time_ns, limits=limits,
                authority=self.authority,
            )  # fmt: skip
        return Fleet(
            self.recording, workers=self.options.workers, wall=time.time_ns, say=self.say, limits=limits,
            authority=self.authority,
        )  # fmt: skip

    def _earlier(self) -> list[str]:
        """The names that are used up, where a run is appended to."""
        if not self.options.append:
            return []
        reader = self._store.reader()
        try:
            run = reader.run(self.options.run)
        except UnknownAddress:
            return []
        return [episode.name for episode in reader.episodes(run)]

    def _identities(self, book: EpisodeBook) -> Identities:
        """The rules; an expired one is named, and not applied."""
        extractors = compile_extractors(self.options.rules, date.today())  # noqa: DTZ011 - a day, as the user wrote it
        for name in extractors.expired:
            self.say(f"  rule {name} has expired and is not applied")
        return Identities(extractors, book, secrecy.shown_as(self._writer.redactor))

    def _wired(self) -> Run:
        options = self.options
        config: dict[str, Any] = {"secrets": secrecy.wired(self._writer.redactor)}
        if options.config.path is not None:
            config["file"] = str(options.config.path)
        if options.config.path is not None or options.rules:
            config["rule"] = kept(options.rules, date.today())  # noqa: DTZ011
        if options.chaos is not None:
            config["chaos"] = {"rules": [rule.fault.rule for rule in options.chaos.rules], "seed": options.chaos.seed}
        return Run(
            key=0, name=options.run, opened_wall=time.time_ns(), envs=self._wiring({}),
            snapshots={one.name: one.spec for one in options.snapshots}, snapshot_when=options.plan.when,
            snapshot_mode=options.mode_text, url_style=options.url_style, meta=dict(options.meta),
            config=json.loads(json.dumps(config, default=str)), version=__version__,
        )  # fmt: skip

    def _wiring(self, urls: dict[str, str]) -> dict[str, EnvWiring]:
        resets = {one.env: one for one in self.options.resets}
        return {
            env.name: EnvWiring(
                name=env.name, upstream=env.upstream, listener=urls.get(env.name, ""),
                reset=_kept(resets.get(env.name)), reads=env.reads, eventual=dict(env.eventual),
                options={
                    "host": env.host_header, "insecure": env.insecure, "ca": str(env.ca) if env.ca else None,
                    "as": env.variable, **({"tls": True} if env.tls else {}),
                },
            )
            for env in self.options.envs
        }  # fmt: skip

    # -- start ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Everything accepts, `--episode` is open, and the ready file is there when it returns."""
        options = self.options
        await self.engine.start()
        await self.addresses.start()
        await self._start_control()
        await self._start_forward()
        self.run = replace(
            self.run, envs={**self.run.envs, **self._wiring(self.addresses.plain_urls())}, closed_wall=None,
            snapshots={**self.run.snapshots, **{one.name: one.spec for one in options.snapshots}},
        )  # fmt: skip
        self.recording.run = self.run
        self._writer.update_run(self.run)
        self._announce()
        if options.episode is not None:
            await self._open_option(options.episode)
        watches = [self._watch_idle(), StoreWatch(self._writer, options.store, self.say).run(), self._log()]
        if options.fail_fast:
            watches.append(FailFast(self.episodes, self.say).run())
        for watch in watches:
            self._spawn(watch)
        if options.ready_file is not None:
            write_whole(options.ready_file, json.dumps(self.ready()) + "\n")

    async def _start_control(self) -> None:
        options = self.options
        listening = bind(options.control_host, options.control_port, option="--control")
        listening.listen(256)
        host, port = bound_address(listening)
        shown = options.advertised or ("127.0.0.1" if is_wildcard(host) else host)
        self.control = f"http://{authority(shown, port)}"
        hosts = frozenset({options.advertised} - {None})
        app = application(self.episodes, token=options.token, hosts=hosts, figures=self.recording.figures)  # type: ignore[arg-type]
        self._server = ControlServer(app)
        await self._server.start(listening)

    async def _start_forward(self) -> None:
        options = self.options
        if options.forward is None:
            return
        host, port = options.forward
        control = urlsplit(self.control)
        assert control.port is not None
        forward = ForwardOptions(
            naming=RecordedNames(self.recording), passes=options.passes, challenge=options.forward_auth,
            aside={(name, control.port) for name in (control.hostname or "", "127.0.0.1", "localhost")},
            on_passed=self.recording.passed,
        )  # fmt: skip
        listener = await self.engine.listen_forward(forward, host=host, port=port)
        shown = options.advertised or ("127.0.0.1" if is_wildcard(host) else host)
        self.forward = f"http://{authority(shown, listener.bound[1])}"

    def child_variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What a child needs besides the addresses: the way through the forward proxy, and whom to trust."""
        found = proxy_variables(self.forward, environ) if self.forward else {}
        ca = self.authority
        return {**found, **(ca_variables(str(ca.bundle(environ)), ca.key_hash) if ca else {})}

    async def _open_option(self, name: str) -> None:
        now = self.recording.now()
        live = self.recording.ledger.open(
            Episode(key=0, run_key=0, name=name, meta={}, opened=now, opened_wall=self.recording.wall())
        )
        await self.episodes.start(live)

    def ready(self) -> dict[str, Any]:
        return {
            "control": self.control, "envs": self.addresses.plain_urls(), "forward": self.forward or None,
            "token": self.options.token, "pid": os.getpid(), "run": self.run.name,
        }  # fmt: skip

    def _announce(self) -> None:
        options, say = self.options, self.say
        say(f"recording run {self.run.name} into {options.store}")
        width = max((len(env.name) for env in options.envs), default=0)
        for env, url in self.addresses.plain_urls().items():
            say(f"  {env:<{width}}  {url}  ->  {self.recording.envs[env].upstream}")
        if self.forward:
            say(f"  forward proxy  {self.forward}")
        if self.authority is not None:
            say(f"  certificate authority  {self.authority.certificate}")
            if key_hash := self.authority.key_hash:
                say(f"  for Chromium  --ignore-certificate-errors-spki-list={key_hash}")
        say(f"  control API  {self.control}{'  (token demanded)' if options.token else ''}")
        if options.config.path is not None:
            say(f"  config  {options.config.path}")
        if options.chaos is not None:
            say(f"  FAULTS ARE INJECTED  --chaos, {len(options.chaos.rules)} of them, seed {options.chaos.seed}")
        for line in secrecy.told(self._writer.redactor):
            say(f"  {line}")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(self._guarded(work)))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self.recording.fault(None, "watch", error)

    async def _watch_idle(self) -> None:
        while True:
            await asyncio.sleep(min(max(self.options.idle / 4, 0.05), 5.0))
            for name in await self.episodes.end_idle(self.options.idle):
                self.say(f"episode {name}: sealed after {self.options.idle:g} s without traffic")

    async def _log(self) -> None:
        """On a terminal a line that is kept up to date; elsewhere one now and then."""
        every = PROGRESS_SECONDS if self._progress else self.options.log_every
        while every > 0:
            await asyncio.sleep(every)
            if self._progress:
                self._progress(self._standing())
            else:
                self.say(f"{time.strftime('%H:%M:%S')}  {self._standing()}")

    def _standing(self) -> str:
        counts, lives = self.recording.tally, len(self.recording.ledger.lives)
        return (
            f"episodes {lives} open, {counts.sealed} sealed, {len(counts.incomplete)} incomplete   "
            f"exchanges {counts.exchanges:,}   unattributed {counts.unattributed:,}"
        )

    # -- end -----------------------------------------------------------------------------------------------------

    async def stop(self, deadline: float | None) -> None:
        """Every episode is sealed, or named as incomplete, when it returns."""
        self.episodes.stopping = True
        await self.engine.stop(_grace(deadline))
        await self.episodes.end_all(deadline)
        trouble = await self.recording.close(deadline)
        self.episodes.store_trouble = self.episodes.store_trouble or trouble
        await self._close()

    async def _close(self) -> None:
        self._stopped = True
        if self.verdicts is not None:
            await self.verdicts.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.capture.close()
        if self._server is not None:
            await self._server.stop()

    async def abandon(self) -> None:
        """It could not begin, or was given up: what is there is closed, and a run without anything is taken back."""
        if self._stopped:
            return
        await self.engine.stop(0.0)
        await self._close()
        self.take_back()

    def take_back(self) -> None:
        """A run of which nothing was recorded is marked as removed, so that its name is free for the next try."""
        if self.options.append or self.recording.tally.exchanges:
            return
        try:
            self._writer.remove(self.run.key)
        except Problem:
            pass  # the store has its own trouble, which is being told already


def _grace(deadline: float | None) -> float:
    if deadline is None:
        return GRACE
    return max(min(GRACE, deadline - asyncio.get_running_loop().time() - 1.0), 0.0)


def _kept(reset: Reset | None) -> tuple[str, str, str] | None:
    return None if reset is None else (reset.method, reset.url, reset.body)
