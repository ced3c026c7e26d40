"""Several proxy processes behind the same addresses: what a `ProxyEngine` is for one, seen from the recorder.

The recorder binds and listens; each worker gets the listening sockets and accepts from them, so that a worker's end
takes no connection along that it had not accepted. One that ends is replaced, and its exchanges under way are LOST.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from typing import Any

from replayproxy.core.limits import Limits
from replayproxy.errors import WorldTrouble
from replayproxy.proxy.accepting import BACKLOG
from replayproxy.proxy.ca import Authority
from replayproxy.proxy.engine import LONGEST_STOP, parsed
from replayproxy.proxy.forward import ForwardOptions
from replayproxy.proxy.frames import Channel, Message, Word
from replayproxy.proxy.link import Desk, Link
from replayproxy.proxy.listeners import EnvOptions, Listener, asked_by, bind, bound_address, listener_for
from replayproxy.proxy.naming import told_options
from replayproxy.proxy.scribe import Ticket

START_SECONDS = 60.0
"""For a worker to be there; it is a second or two, on a machine with nothing else to do."""

TRIES = 5
"""Workers that may end one after another without having begun; then there is something that a new one does not mend."""

CLOSING_SECONDS = 2.2
"""For a worker that stops to close its connections, after the grace."""

LEAVING_SECONDS = 1.0
"""For a worker that has closed its end to be gone."""

ANSWER_SECONDS = 15.0
"""For a worker to do what it was told. One that stands still for longer would hold up every episode; it is killed."""

HANDED_AT_ONCE = 16
"""Listening sockets on their way to one worker: the system lets only some hundred be under way, and then would wait."""

PROGRAM = (sys.executable, "-P", "-m", "replayproxy.proxy.worker")
"""-P: a `queue.py` in the directory where somebody records is none of ours."""


@dataclass(slots=True, eq=False)
class Shared:
    """A listening socket, and what each worker has to be told of it."""

    number: int
    listener: Listener
    sock: socket.socket
    said: tuple[Any, ...]
    word: Word = Word.LISTEN


@dataclass(slots=True, eq=False)
class Seat:
    """A worker's place. It keeps its number in the order of arrival, whoever sits on it."""

    number: int
    process: asyncio.subprocess.Process
    channel: Channel
    link: Link
    sockets: socket.socket
    ready: asyncio.Future[None]
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    acks: dict[tuple[int, int], asyncio.Future[None]] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)
    handing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(HANDED_AT_ONCE))


class Fleet:
    """`say` is told, in a line, of each worker that ended and was replaced. `desk` is the recorder."""

    def __init__(
        self,
        desk: Desk,
        *,
        workers: int,
        wall: Callable[[], int],
        say: Callable[[str], None],
        limits: Limits | None = None,
        authority: Authority | None = None,
    ) -> None:
        self._desk, self._workers, self._wall, self._say = desk, workers, wall, say
        self._limits, self._authority = limits or Limits(), authority
        self._seats: dict[int, Seat] = {}
        self._shared: dict[Listener, Shared] = {}
        self._numbers = 0
        self._failures = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = self._stopped = False
        self._full = False
        self._forward: ForwardOptions | None = None

    # -- the processes -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Every worker is there when it returns. Raises WorldTrouble."""
        seats = await asyncio.gather(*(self._seated(number) for number in range(1, self._workers + 1)))
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.gather(*(seat.ready for seat in seats))
        except (TimeoutError, ConnectionError):
            raise WorldTrouble("the worker processes did not start", hint="--workers 1") from None

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of the workers that are there."""
        return tuple(seat.process.pid for _, seat in sorted(self._seats.items()))

    @property
    def ready(self) -> int:
        """How many workers accept connections."""
        return len(self._there())

    async def _seated(self, number: int) -> Seat:
        ours, theirs = socket.socketpair()
        handing, handed = socket.socketpair()
        with theirs, handed:
            process = await asyncio.create_subprocess_exec(
                *PROGRAM, str(theirs.fileno()), str(handed.fileno()), str(os.getpid()),
                pass_fds=(theirs.fileno(), handed.fileno()), stdin=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        loop = asyncio.get_running_loop()
        seat: Seat

        def hear(message: Message) -> None:
            self._hear(seat, message)

        channel = Channel(hear, lambda: seat.gone.set())
        seat = self._seats[number] = Seat(
            number=number, process=process, channel=channel, sockets=handing, ready=loop.create_future(),
            link=Link(self._desk, number, channel, self._wall, lambda: self._forward),
        )  # fmt: skip
        await loop.create_unix_connection(lambda: channel, sock=ours)
        channel.say(Word.OPTIONS, astuple(self._limits), str(self._authority.folder) if self._authority else None)
        self._spawn(self._watch(seat))
        return seat

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hear(self, seat: Seat, message: Message) -> None:
        if seat.link.hear(message):
            if not self._full and not self._desk.room():
                self._full = True
                self._spawn(self._until_room())
            return
        word = message[0]
        if word == Word.READY:
            self._spawn(self._equip(seat))
        elif word in (Word.LISTENS, Word.CLOSED):
            ack = seat.acks.pop((int(word), message[1]), None)
            if ack is not None and not ack.done():
                ack.set_result(None)

    async def _equip(self, seat: Seat) -> None:
        """Gives a new worker every listener that there is; others may be opened and closed meanwhile."""
        while not seat.gone.is_set():
            missing = next((one for one in self._shared.values() if one.number not in seat.told), None)
            if missing is None:
                self._failures = 0
                seat.channel.say(Word.ROOM, not self._full)
                if not seat.ready.done():  # an interrupt may have given the start up
                    seat.ready.set_result(None)
                return
            await self._hand(seat, missing)

    async def _until_room(self) -> None:
        """The queue to the disk is full: the workers read slower until it is not."""
        self._tell_all(Word.ROOM, False)
        await self._desk.wait_room()
        self._full = False
        self._tell_all(Word.ROOM, True)

    def _tell_all(self, word: Word, *values: Any) -> None:
        for seat in self._seats.values():
            seat.channel.say(word, *values)

    async def _watch(self, seat: Seat) -> None:
        """What happens when a worker ends, whatever ended it."""
        await seat.gone.wait()
        try:
            code = await asyncio.wait_for(seat.process.wait(), LEAVING_SECONDS)
        except TimeoutError:
            _kill(seat)
            code = await seat.process.wait()
        seat.sockets.close()
        why = f"worker {seat.number} {_ended(code)}"
        lost = seat.link.died(f"the proxy process that carried it is gone: {why}")
        if self._seats.get(seat.number) is seat:
            del self._seats[seat.number]
        if not seat.ready.done():
            self._failures += 1
            seat.ready.set_exception(ConnectionError(why))
            seat.ready.exception()  # it is told below, too, where nobody waits for it
        for ack in seat.acks.values():
            if not ack.done():
                ack.set_result(None)  # a worker that is gone listens nowhere
        if self._stopping:
            return
        await self._replace(seat.number, why, lost)

    async def _replace(self, number: int, why: str, lost: int) -> None:
        how_many = f"{lost} exchange{'' if lost == 1 else 's'} lost"
        if self._failures >= TRIES:
            self._desk.fault(None, "mitmproxy", RuntimeError(f"{why}, and no new one could be started"))
            self._say(f"{why}: {how_many}; no new one could be started")
            if not self._seats:
                for shared in self._shared.values():
                    shared.sock.close()  # nobody accepts any more: agents are refused, and do not wait
            return
        self._say(f"{why}: {how_many}; a new one is started")
        try:
            await self._seated(number)
        except OSError as error:
            self._desk.fault(None, "mitmproxy", error)
            self._say(f"worker {number} could not be started: {error}")

    # -- what an engine does -------------------------------------------------------------------------------------

    async def listen(
        self,
        env: str,
        upstream: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        port_episode: str | None = None,
        advertise: str | None = None,
        options: EnvOptions | None = None,
    ) -> Listener:
        """As `ProxyEngine.listen`: every worker accepts when it returns."""
        target = parsed(upstream)
        sock = bind(host, port, option=asked_by(env))
        sock.listen(BACKLOG)
        wired = options or EnvOptions()
        listener = listener_for(
            env, upstream, target, bound_address(sock), port_episode=port_episode, advertise=advertise, options=wired
        )
        await self._share(listener, sock, Word.LISTEN, env, upstream, port_episode, advertise, told_options(wired))
        return listener

    async def listen_forward(self, options: ForwardOptions, *, host: str = "127.0.0.1", port: int = 0) -> Listener:
        """As `ProxyEngine.listen_forward`. What an origin is called, and how it is verified, stays known here alone."""
        sock = bind(host, port, option="--forward")
        sock.listen(BACKLOG)
        listener = listener_for("", "", None, bound_address(sock), port_episode=None, advertise=None, options=None)
        self._forward = options
        said = options.passes.entries, tuple(sorted(options.aside)), options.challenge
        await self._share(listener, sock, Word.LISTEN_FORWARD, *said)
        return listener

    async def _share(self, listener: Listener, sock: socket.socket, word: Word, *said: Any) -> None:
        self._numbers += 1
        shared = Shared(number=self._numbers, listener=listener, sock=sock, said=(self._numbers, *said), word=word)
        self._shared[listener] = shared
        await asyncio.gather(*(self._hand(seat, shared) for seat in self._there()))

    def _there(self) -> list[Seat]:
        """Those that can be told something. One that is still starting is told everything once it is there."""
        return [seat for seat in self._seats.values() if seat.ready.done() and not seat.gone.is_set()]

    async def _hand(self, seat: Seat, shared: Shared) -> None:
        """Gives a listening socket to a worker, which accepts there when it returns, unless it is gone."""
        seat.told.add(shared.number)
        async with seat.handing:
            if not seat.gone.is_set() and shared.listener in self._shared:
                try:
                    socket.send_fds(seat.sockets, [b"."], [shared.sock.fileno()])
                except OSError:  # it has just ended, and its end has not been heard of
                    _kill(seat)
                    return
                await self._tell(seat, shared.word, Word.LISTENS, *shared.said)

    async def _tell(self, seat: Seat, word: Word, answer: Word, number: int, *more: Any) -> None:
        """Waits until the worker has done so, or is gone."""
        ack = seat.acks[int(answer), number] = asyncio.get_running_loop().create_future()
        seat.channel.say(word, number, *more)
        _, late = await asyncio.wait([ack], timeout=ANSWER_SECONDS)
        if late:
            _kill(seat)
            await ack

    async def unlisten(self, listener: Listener) -> None:
        """Nobody accepts there any more when it returns; connections that exist go on."""
        shared = self._shared.pop(listener, None)
        if shared is not None:
            seats = [seat for seat in self._seats.values() if shared.number in seat.told and not seat.gone.is_set()]
            await asyncio.gather(*(self._tell(seat, Word.CLOSE, Word.CLOSED, shared.number) for seat in seats))
            shared.sock.close()

    def in_flight(self) -> tuple[Ticket, ...]:
        return tuple(ticket for seat in self._seats.values() for ticket in seat.link.in_flight().values())

    def release(self, wanted: Callable[[Ticket], bool], *, streams_only: bool = False) -> int:
        """As `ProxyEngine.release`, but `finished` is called once the workers have answered. Returns how many it may
        be: which of them are streams, the workers know."""
        count = 0
        for seat in self._seats.values():
            numbers = [number for number, ticket in seat.link.in_flight().items() if wanted(ticket)]
            if numbers:
                seat.channel.say(Word.RELEASE, numbers, streams_only, now=True)
                count += len(numbers)
                if not streams_only:
                    self._spawn(self._insist(seat, numbers))
        return count

    async def _insist(self, seat: Seat, numbers: list[int]) -> None:
        """What was released is over soon, or its worker stands still."""
        with suppress(TimeoutError):
            await asyncio.wait_for(seat.gone.wait(), ANSWER_SECONDS)
        if not seat.gone.is_set() and seat.link.in_flight().keys() & set(numbers):
            _kill(seat)

    async def stop(self, grace: float = 5.0) -> None:
        """As `ProxyEngine.stop`. A worker that does not end by itself is killed, and what it had under way LOST."""
        if self._stopped:
            return
        self._stopping = True
        for shared in self._shared.values():
            shared.sock.close()
        self._shared.clear()
        seats = list(self._seats.values())
        for seat in seats:
            seat.channel.say(Word.STOP, grace)
        ends = [asyncio.ensure_future(seat.gone.wait()) for seat in seats]
        if ends:
            await asyncio.wait(ends, timeout=min(grace, LONGEST_STOP) + CLOSING_SECONDS)
        for seat in seats:
            if not seat.gone.is_set():
                _kill(seat)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=1.5)
            for task in late:
                task.cancel()
        self._stopped = True


def _kill(seat: Seat) -> None:
    """It is then with it as with one that anybody killed: `_watch` sees to the rest."""
    with suppress(ProcessLookupError):
        seat.process.kill()


def _ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
