"""Replay: a recorded run or episode answers an agent, with the environment off, until the agent or the user is done."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Protocol

from replayproxy.core.misses import Document
from replayproxy.core.receipt import judged
from replayproxy.core.shown import count
from replayproxy.core.values import UNATTRIBUTED, Episode, EpisodeState, Run
from replayproxy.errors import CannotJudge, Exit, StoreTrouble, UnknownAddress, WrongUsage, worst
from replayproxy.proxy.listeners import authority, bind, bound_address
from replayproxy.serve.control import ControlServer, application
from replayproxy.serve.identity import load_known
from replayproxy.serve.origin import Origin
from replayproxy.serve.ready import ready
from replayproxy.serve.resets import load_probes, load_resets
from replayproxy.serve.stage import Stage
from replayproxy.serve.visit import Watch
from replayproxy.session import child as children
from replayproxy.session import secrecy
from replayproxy.session.addresses import Addresses
from replayproxy.session.closed import Guard
from replayproxy.session.dialect import RecordedDialect
from replayproxy.session.files import write_whole
from replayproxy.session.look import unattributed
from replayproxy.session.origins import Origins
from replayproxy.session.replay_desk import ReplayDesk
from replayproxy.session.replay_doors import Doors
from replayproxy.session.replay_options import ReplayOptions, specs
from replayproxy.session.replay_rules import relaxation
from replayproxy.session.signals import Signals
from replayproxy.session.wiring import parse_advertise
from replayproxy.storage import Reader, Resolved

if TYPE_CHECKING:
    from replayproxy.session.replay_front import ReplayFront

GRACE = 2.0
"""Seconds that answers under way have at the end."""

CHILD_GRACE = 4.0


class Tell(Protocol):
    """What is told while a replay runs."""

    def serving(self, stage: Stage, urls: dict[str, str], control: str) -> None:
        """Every address accepts."""

    def miss(self, document: Document) -> None:
        """A request without a recorded answer; called for each."""

    def interrupted(self) -> None:
        """A second signal came: the process ends when this returns."""


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What came of it. `faults`: what failed in here; `command_exit`: None where no COMMAND ran to its own end."""

    receipt: Document
    exit: int
    command_exit: int | None = None
    faults: list[BaseException] = field(default_factory=list)

    def summary(self) -> Document:
        return {"command_exit": self.command_exit, "exit": self.exit, "receipt": self.receipt}


def chosen(reader: Reader, resolved: Resolved) -> tuple[Run, list[Episode], bool]:
    """The run, its episodes, and whether one of them is to answer everything. Refuses what cannot be replayed."""
    run, episode = resolved.run, resolved.episode
    if resolved.seq is not None or resolved.snapshot is not None or resolved.finding is not None:
        raise WrongUsage("replay takes a run or an episode", hint=f"replayproxy replay {run.name}")
    if episode is not None:
        if episode.name == UNATTRIBUTED:
            raise WrongUsage(f"{run.name}/{UNATTRIBUTED} is no episode: it is never replayed")
        if episode.state is not EpisodeState.SEALED:
            raise CannotJudge(
                f"{run.name}/{episode.name} is {_state(episode)}: it cannot be replayed",
                hint=f"replayproxy show {run.name}/{episode.name}",
            )
        episodes = [episode]
    else:
        episodes = reader.episodes(run)
    sealed = [one for one in episodes if one.state is EpisodeState.SEALED]
    if episodes and not sealed:
        raise CannotJudge(f"no episode of {run.name} is sealed", hint=f"replayproxy ls {run.name}")
    if not any(one.seal is None or one.seal.exchanges for one in sealed):
        if episode is None and (strays := unattributed(reader, run)):
            raise CannotJudge(
                f"{run.name} holds {count(strays, 'exchange')} of no episode, and none in one: what no episode can "
                "claim is never replayed", hint=f"replayproxy show {run.name}/{UNATTRIBUTED}",
            )  # fmt: skip
        raise CannotJudge(f"nothing is recorded in {run.name}{f'/{episode.name}' if episode else ''}")
    return run, episodes, episode is not None


def _state(episode: Episode) -> str:
    reason = f" ({episode.faults[0]})" if episode.faults else ""
    return "still being recorded" if episode.state is EpisodeState.OPEN else f"{episode.state}{reason}"


def unmarked_episode(reader: Reader, run: Run, episodes: Sequence[Episode]) -> str | None:
    """What answers unmarked traffic of a run: its only episode, or the only one that was recorded as `--episode`."""
    if len(episodes) == 1:
        return episodes[0].name
    named: list[str] = []
    for episode in episodes:
        if not episode.declared or episode.seal is None or not episode.seal.exchanges:
            continue
        if reader.exchange(episode, 1).carrier == "option":
            named.append(episode.name)
            if len(named) > 1:
                return None
    return named[0] if named else None


async def replay(
    reader: Reader,
    resolved: Resolved,
    options: ReplayOptions,
    command: Sequence[str],
    *,
    tell: Tell,
    guard: Guard | None = None,
    on_loaded: Callable[[], None] = lambda: None,
    stdout_to_stderr: bool = False,
) -> Replayed:
    """Serves until COMMAND ends, or SIGINT or SIGTERM comes. `guard` makes sure that nothing gets out.
    `on_loaded` is called whenever an episode has been read, until a front opens (`--forward`, TLS).

    Raises Problem for what is refused before anything is served, and `child.NotStarted`.
    """
    run, episodes, sole = chosen(reader, resolved)
    dialect = RecordedDialect(run)
    stage = Stage(
        reader, run, episodes, sole=sole, order=options.order, now=time.monotonic_ns,
        prepare=lambda entry: ready(entry, dialect.is_plain),
        unmarked=None if sole else unmarked_episode(reader, run, episodes),
        rules=relaxation(run, options.rules, date.today()),  # noqa: DTZ011 - a day, as the user wrote it
        redactor=secrecy.load(reader.env.path, run),
    )  # fmt: skip
    stage.resets = load_resets(reader, run)
    stage.on_loaded = on_loaded
    shown = secrecy.shown_as(stage.redactor)
    stage.known = load_known(reader, run, stage.episodes, shown=shown, touched=stage.touched, rules=stage.rules)
    if stage.known is not None:
        stage.probes = load_probes(reader, run)
    if sole:
        await stage.scene(episodes[0].name)
    house = _House(stage, dialect, options, tell, guard)
    with guard.closed() if guard else nullcontext(), house.signals.installed():
        try:
            await house.open()
            code = await house.run(command, stdout_to_stderr=stdout_to_stderr)
        finally:
            await house.close()
    return house.outcome(code)


class _House:
    """The servers of one replay, and what ends it."""

    def __init__(
        self, stage: Stage, dialect: RecordedDialect, options: ReplayOptions, tell: Tell, guard: Guard | None
    ) -> None:
        self._guard = guard
        self._stage, self._options, self._tell = stage, options, tell
        self._faults: list[BaseException] = []
        self.signals = Signals(self._give_up)
        self._over = self.signals.came  # set by a miss too, with --on-miss stop
        self._child: children.Child | None = None
        watch = self._watch = Watch(miss=self._on_miss, fault=lambda _where, error: self._faults.append(error))
        self._origin = Origin(stage, dialect=dialect, now=time.monotonic_ns, pace=options.pace, watch=watch)
        self._front: ReplayFront | None = None
        # The environments are off, and the system may give their ports to us: an agent that names an environment's own
        # address to the forward proxy would then mean one of our listeners.
        self._recorded_ports = Origins.of(stage.run.envs.values(), stage.episodes.values()).ports
        self._doors = Doors(self._origin, lambda: self._front, avoid=self._recorded_ports)
        self._specs = specs(stage.run, options)
        host, urls = parse_advertise(options.advertise, self._specs)
        self._addresses = Addresses(
            engine=self._doors, envs=self._specs, host=options.listen, advertised=host, advertised_urls=urls
        )
        self._control: ControlServer | None = None
        self.control_url = ""

    async def open(self) -> None:
        """Everything accepts when it returns, and the ready file is there."""
        if self._options.forward is not None or any(spec.tls for spec in self._specs):
            # mitmproxy takes over a second to import, which a plain replay need not pay for.
            from replayproxy.session.replay_front import ReplayFront

            self._front = ReplayFront(self._stage, self._origin, self._watch, self._options, self._guard or Guard())
            await self._front.start()
            self._stage.on_loaded = lambda: None  # its connections are cycles, and must not be frozen for good
        await self._addresses.start()
        sock = bind(
            self._options.control_host, self._options.control_port, avoid=self._recorded_ports, option="--control"
        )
        self.control_url = f"http://{authority(*bound_address(sock))}"
        desk = ReplayDesk(self._stage, self._addresses, self._doors, url_style=self._stage.run.url_style)
        hosts = frozenset({self._options.control_host})
        self._control = ControlServer(application(desk, token=self._options.token, hosts=hosts))
        await self._control.start(sock)
        if self._front is not None:
            await self._front.listen_forward(bound_address(sock), self._addresses.advertised)
        if self._options.ready_file is not None:
            write_whole(self._options.ready_file, json.dumps(self._ready()))
        forward = {"forward proxy": self._front.forward} if self._front and self._front.forward else {}
        self._tell.serving(self._stage, {**self._addresses.plain_urls(), **forward}, self.control_url)

    def _ready(self) -> Document:
        return {
            "control": self.control_url,
            "envs": self._addresses.plain_urls(),
            "forward": self._front.forward or None if self._front else None,
            "token": self._options.token,
            "pid": os.getpid(),
        }

    async def run(self, command: Sequence[str], *, stdout_to_stderr: bool) -> int | None:
        """The exit code of COMMAND where it ended by itself."""
        if not command or self._over.is_set():
            await self._over.wait()
            return None
        return await self._run_child(command, stdout_to_stderr)

    async def _run_child(self, command: Sequence[str], stdout_to_stderr: bool) -> int | None:
        urls = self._addresses.plain_urls()
        environ = children.variables(
            control=self.control_url, run=self._stage.run.name, token=self._options.token, urls=urls,
            own={spec.name: spec.variable for spec in self._specs},
        )  # fmt: skip
        environ |= self._front.child_variables(os.environ) if self._front else {}
        child = await children.start(children.filled(command, urls), environ, stdout_to_stderr=stdout_to_stderr)
        self._child = child
        ended, over = asyncio.ensure_future(child.wait()), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({ended, over}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return ended.result()
            await child.stop(self.signals.number or signal.SIGTERM, CHILD_GRACE)
            return None
        finally:
            over.cancel()
            ended.cancel()

    def _give_up(self) -> None:
        """A second signal is impatience: nothing here needs to be put in order."""
        if self._child is not None:
            self._child.kill()
        self._tell.interrupted()
        os._exit(Exit.INTERRUPTED_TWICE)

    def _on_miss(self, document: Document) -> None:
        self._tell.miss(document)
        if self._options.stop_on_miss:
            self._over.set()

    async def close(self) -> None:
        if self._front is not None:
            await self._front.stop()
        await self._origin.stop(GRACE)
        if self._control is not None:
            await self._control.stop()

    def outcome(self, command_exit: int | None) -> Replayed:
        receipt = self._stage.receipt(self._guard.contacts if self._guard else 0)
        receipt["passed"] = self._front.passed.total() if self._front else 0
        # An address that was there when the replay began was removed, and collected, while it ran.
        of_store = (StoreTrouble, UnknownAddress)
        own = [Exit.STORE if isinstance(fault, of_store) else Exit.OURS for fault in self._faults]
        code = worst(judged(receipt), Exit.UNJUDGED if self._stage.asked_incomplete else 0, *own)
        if command_exit and code in (Exit.OK, Exit.DIFFERENT, Exit.UNJUDGED):
            code = command_exit  # what the agent's own end says is not hidden; the receipt is in the summary
        return Replayed(receipt=receipt, exit=code, command_exit=command_exit, faults=self._faults)
