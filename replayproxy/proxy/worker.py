"""A worker process of `record --workers N`: a proxy engine whose scribe is the recorder at the other end of a socket.

    python -m replayproxy.proxy.worker CHANNEL SOCKETS RECORDER

The first two are numbers of inherited socket pairs: one for the frames, one over which listening sockets are handed;
RECORDER is a process id. The process ends when the recorder says so, or is gone.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from replayproxy.core.hostlist import HostList
from replayproxy.core.limits import Limits
from replayproxy.proxy.accepting import SharedSocket
from replayproxy.proxy.ca import Authority
from replayproxy.proxy.engine import ProxyEngine
from replayproxy.proxy.forward import ForwardOptions
from replayproxy.proxy.frames import Channel, Message, Word
from replayproxy.proxy.listeners import Listener
from replayproxy.proxy.naming import its_options
from replayproxy.proxy.remote import FarTicket, RemoteScribe
from replayproxy.proxy.scribe import Ticket

_ORPHANED = 70
_SET_DEATH_SIGNAL = 1


class Worker:
    """What the recorder says is done in the order in which it comes."""

    def __init__(self, sockets: socket.socket) -> None:
        self.channel = Channel(self._hear, self._orphaned)
        self._sockets = sockets
        self._scribe = RemoteScribe(self.channel)
        self._to_do: asyncio.Queue[Message] = asyncio.Queue()
        self._engine: ProxyEngine | None = None
        self._listeners: dict[int, Listener] = {}
        self._done = False
        self._deeds: dict[int, Callable[..., Coroutine[Any, Any, None]]] = {
            Word.OPTIONS: self._start, Word.LISTEN: self._listen, Word.CLOSE: self._close, Word.STOP: self._stop,
            Word.LISTEN_FORWARD: self._listen_forward,
        }  # fmt: skip

    def _hear(self, message: Message) -> None:
        if self._scribe.hear(message):
            return
        if message[0] == Word.RELEASE:
            self._release(*message[1:])
        else:
            self._to_do.put_nowait(message)

    def _orphaned(self) -> None:
        """Whatever passes from here on nobody would record."""
        if not self._done:
            os._exit(_ORPHANED)

    async def run(self) -> None:
        while not self._done:
            word, *values = await self._to_do.get()
            await self._deeds[word](*values)

    async def _start(self, limits: tuple[float | None, float | None, float | None], authority: str | None) -> None:
        connect, answer, idle = limits
        self._engine = ProxyEngine(
            self._scribe, now=time.monotonic_ns, wall=time.time_ns,
            limits=Limits(connect=connect, answer=answer, idle=idle),
            authority=Authority(Path(authority)) if authority is not None else None,
        )  # fmt: skip
        await self._engine.start()
        self.channel.say(Word.READY, os.getpid())

    async def _listen(
        self,
        number: int,
        env: str,
        upstream: str,
        port_episode: str | None,
        advertise: str | None,
        options: tuple[Any, str | None, bool, bool],
    ) -> None:
        assert self._engine is not None
        self._listeners[number] = await self._engine.adopt(
            self._handed(), env, upstream, port_episode=port_episode, advertise=advertise, options=its_options(options)
        )
        self.channel.say(Word.LISTENS, number)

    async def _listen_forward(
        self, number: int, passes: tuple[tuple[str, int | None], ...], aside: tuple[tuple[str, int], ...],
        challenge: bool,
    ) -> None:  # fmt: skip
        assert self._engine is not None
        self._listeners[number] = await self._engine.adopt_forward(
            self._handed(),
            ForwardOptions(
                naming=self._scribe.naming, passes=HostList(passes), aside=set(aside), challenge=challenge,
                on_passed=lambda host: self.channel.say(Word.PASSED, host),
            ),
        )  # fmt: skip
        self.channel.say(Word.LISTENS, number)

    def _handed(self) -> SharedSocket:
        _, handed, _, _ = socket.recv_fds(self._sockets, 1, 1)
        return SharedSocket(fileno=handed[0])

    async def _close(self, number: int) -> None:
        assert self._engine is not None
        await self._engine.unlisten(self._listeners.pop(number))
        self.channel.say(Word.CLOSED, number)

    def _release(self, numbers: list[int], streams_only: bool) -> None:
        assert self._engine is not None
        wanted = set(numbers)

        def ours(ticket: Ticket) -> bool:
            return isinstance(ticket, FarTicket) and ticket.number in wanted

        self._engine.release(ours, streams_only=streams_only)

    async def _stop(self, grace: float) -> None:
        if self._engine is not None:
            await self._engine.stop(grace)
        self._done = True
        self.channel.say(Word.STOPPED)
        self.channel.close()


async def work(channel: int, sockets: int) -> None:
    """Until the recorder says that it is over."""
    worker = Worker(socket.socket(fileno=sockets))
    loop = asyncio.get_running_loop()
    await loop.create_unix_connection(lambda: worker.channel, sock=socket.socket(fileno=channel))
    await worker.run()
    # What was said last is on its way; the recorder closes its end once it has heard it.
    while worker.channel.waiting:  # noqa: ASYNC110  a transport tells nobody when its buffer is empty
        await asyncio.sleep(0.005)


def end_with(recorder: int) -> None:
    """A worker that stands still (SIGSTOP, a debugger) hears of no closed socket, and would outlive its recorder with
    the listening sockets in its hand: the system kills it."""
    if sys.platform == "linux":
        # It comes when the THREAD ends that started us: workers are started from the recorder's main thread.
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != recorder:  # it was gone before that held
        os._exit(_ORPHANED)


def main() -> None:
    end_with(int(sys.argv[3]))
    # A terminal's Ctrl-C and a service manager's SIGTERM reach every process; when to end, the recorder says.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()  # for the reasons of `cli.common.settle`
    gc.set_threshold(3_000, 10, 10)
    asyncio.run(work(int(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    main()
