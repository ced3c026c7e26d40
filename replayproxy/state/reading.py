"""One provider in a thread of its own: one reading at a time, and those who wait before it begins share it."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from replayproxy.core.prolly import NoRow
from replayproxy.errors import Problem
from replayproxy.state.growing import GrowingState
from replayproxy.state.loader import Loaded
from replayproxy.state.provider import Provider, Scope, StateUnreadable, reason_of

type Save = Callable[[Mapping[bytes, bytes]], None]
type Clock = Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """What a reading gave. `root` None: nothing, for `reason`."""

    begun: int
    done: int
    wall: int
    root: bytes | None = None
    aside: bytes | None = None
    rows: int = 0
    reason: str = ""
    atomic: bool = False
    can_restore: bool = False
    scope: Scope = "instance"


class _Request:
    """A reading that is asked for and has not begun: more may join it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.begun = loop.create_future()
        self.shot: asyncio.Future[Shot] = loop.create_future()

    def tell(self, future: asyncio.Future[Any], value: Any) -> None:
        def settle() -> None:
            if not future.done():
                future.set_result(value)

        try:
            self.loop.call_soon_threadsafe(settle)
        except RuntimeError:
            pass  # the loop has closed: nobody waits any more


class Source:
    """A provider bound to its words in braces. All methods but the thread's own belong to one event loop."""

    def __init__(self, loaded: Loaded, *, save: Save, now: Clock, wall: Clock) -> None:
        self._loaded = loaded
        self._save, self._now, self._wall = save, now, wall
        self._provider: Provider | None = None
        self._state = GrowingState()
        self._lock = threading.Lock()
        self._next: _Request | None = None
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def read(self, limit: float) -> Shot:
        """A reading that begins after this call, or the reason why there is none; never raises for the provider."""
        asked = self._now()
        request = self._join()
        try:
            await asyncio.wait_for(asyncio.shield(request.begun), limit)
            return await asyncio.wait_for(asyncio.shield(request.shot), limit)
        except TimeoutError:
            return Shot(begun=asked, done=self._now(), wall=self._wall(), reason=f"no answer in {limit:g} s")

    def close(self) -> None:
        """The provider is closed once the reading that runs has come back; nobody waits for that."""
        if self._thread is not None:
            self._wake.put(False)

    def _join(self) -> _Request:
        with self._lock:
            if self._next is None:
                self._next = _Request(asyncio.get_running_loop())
                self._wake.put(True)
            request = self._next
        if self._thread is None:
            # A daemon: a provider that never answers must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, name=f"snapshot {self._loaded.name}", daemon=True)
            self._thread.start()
        return request

    def _run(self) -> None:
        while self._wake.get():
            with self._lock:
                request, self._next = self._next, None
            assert request is not None
            request.tell(request.begun, None)
            request.tell(request.shot, self._take())
        self._drop()

    def _take(self) -> Shot:
        begun, wall = self._now(), self._wall()
        done = begun
        try:
            if self._provider is None:
                self._provider = self._loaded.make(self._loaded.context)
            provider = self._provider
            reading = provider.capture()
            done = self._now()
            grown = self._state.take(reading)
            if grown.nodes:
                self._save(grown.nodes)
            return Shot(
                begun=begun,
                done=done,
                wall=wall,
                root=grown.root,
                aside=grown.aside,
                rows=grown.rows,
                atomic=provider.atomic,
                can_restore=provider.can_restore,
                scope=provider.scope,
            )
        except BaseException as error:
            # What the provider thinks it gave and what we kept may differ now: the next reading starts anew.
            self._drop()
            return Shot(begun=begun, done=max(done, self._now()), wall=wall, reason=_why(error))

    def _drop(self) -> None:
        provider, self._provider, self._state = self._provider, None, GrowingState()
        try:
            if provider is not None:
                provider.close()
        except Exception:
            pass  # it has failed already, or the run is over: there is nobody whom a second fault would help


def _why(error: BaseException) -> str:
    if isinstance(error, NoRow):
        return f"the state holds what no snapshot can keep: {error}"
    if isinstance(error, StateUnreadable):
        return str(error)
    if isinstance(error, Problem):
        return error.what
    return reason_of(error)


async def in_thread[T](work: Callable[[], T], limit: float) -> T:
    """The result of blocking work; TimeoutError when it takes longer (it then goes on, and nobody looks)."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(cast("T", value))

    def run() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = work(), None
        except BaseException as error:
            outcome = None, error
        try:
            loop.call_soon_threadsafe(settle, *outcome)
        except RuntimeError:
            pass  # the loop has closed: nobody waits any more

    # Not the loop's own pool: the interpreter would wait for its threads at exit, and a provider may hang.
    threading.Thread(target=run, name="restore", daemon=True).start()
    return await asyncio.wait_for(result, limit)
