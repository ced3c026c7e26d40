"""Processes beside this one that take part of its work: each does one call at a time and says what came of it.

They are programs of their own, so that no open store crosses a fork and no script of the caller's runs again, and they
have a process group of their own: an interrupt at the terminal is for us to answer. They know only what a call brings
with it, and end when we do, however that is. One that dies costs time and nothing else: its call comes back `Lost`, and
whoever asked does it here. Calls and answers go through a socket of their own, which nothing prints into.

    asked:  u64 length | pickle of (function, arguments)
    told:   u64 length | pickle of (whether it was done, what came of it)
"""

from __future__ import annotations

import gc
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

PROGRAM = (sys.executable, "-P", "-m", "replayproxy.session.beside")

_PATIENCE = 3
"""After so many deaths no process is started again: something kills them, or they cannot live here."""

_LENGTH = struct.Struct(">Q")


class Lost(Exception):
    """The call was not done: its process is gone, or it failed there. Done here, the same fault shows, or none."""


def cores() -> int:
    """How many this process may use, or where the system does not say that, how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class _Helper:
    """One process, and our end of the socket to it."""

    process: subprocess.Popen[bytes]
    asked: IO[bytes]
    told: IO[bytes]

    @classmethod
    def start(cls) -> _Helper:
        ours, its = socket.socketpair()
        with ours, its:
            process = subprocess.Popen(
                (*PROGRAM, str(its.fileno())), stdin=subprocess.DEVNULL, stdout=2, pass_fds=(its.fileno(),),
                process_group=0,
            )  # fmt: skip
            return cls(process, ours.makefile("wb"), ours.makefile("rb"))

    def answer(self, call: Callable[..., Any], given: tuple[Any, ...]) -> tuple[bool, Any]:
        _put(self.asked, (call, given))
        told: tuple[bool, Any] = pickle.loads(_get(self.told))
        return told

    def close(self) -> None:
        """It hears that nothing more comes; what it has begun is waited for."""
        for end in (self.asked, self.told):
            try:
                end.close()
            except OSError:
                pass  # what could not be told any more
        self.process.wait()


class Crew:
    """At most `size` processes, each started when there is work for it. `begin` is what each calls first.

    Functions and what they are given are told by pickle, functions by their name: they stand at the top of a module.
    """

    def __init__(self, size: int, begin: Callable[..., None], *given: Any) -> None:
        self._begin = (begin, given)
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="beside")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._living: set[_Helper] = set()
        self._deaths = 0
        self._over = False

    def submit[T](self, call: Callable[..., T], *given: Any) -> Future[T]:
        """What the call gives, or Lost."""
        return self._threads.submit(self._ask, call, given)

    @property
    def pids(self) -> list[int]:
        with self._lock:
            return [helper.process.pid for helper in self._living]

    def dismiss(self) -> None:
        """Waits for what is under way; what nobody has begun is not done any more."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        with self._lock:  # a thread whose end an interrupt has kept us from waiting for may bury one yet
            living = list(self._living)
        for helper in living:
            helper.close()

    def kill(self) -> None:
        """At once. Nothing is lost: they only read."""
        with self._lock:
            self._over = True
            for helper in self._living:
                helper.process.kill()
        self.dismiss()

    # In a thread of its own for each process

    def _ask(self, call: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        helper = self._mine()
        try:
            done, told = helper.answer(call, given)
        except (
            Exception
        ) as gone:  # what it says cannot be read, or there is no room for it: nothing more is asked of it
            self._bury(helper)
            raise Lost("its process is gone") from gone
        if not done:
            raise Lost(told)
        return told

    def _mine(self) -> _Helper:
        helper: _Helper | None = getattr(self._own, "helper", None)
        if helper is not None:
            return helper
        with self._lock:
            if self._over or self._deaths >= _PATIENCE:
                raise Lost("no process is started any more")
            try:
                helper = _Helper.start()
            except OSError as refused:  # too many processes, or files
                self._deaths += 1
                raise Lost(str(refused)) from refused
            self._living.add(helper)
        self._own.helper = helper
        begin, given = self._begin
        try:
            done, told = helper.answer(begin, given)
        except Exception as gone:  # as in `_ask`
            done, told = False, str(gone)
        if not done:
            self._bury(helper)
            raise Lost(told)
        return helper

    def _bury(self, helper: _Helper) -> None:
        self._own.helper = None
        with self._lock:
            self._living.discard(helper)
            self._deaths += 1
        helper.process.kill()
        helper.close()


def _put(pipe: IO[bytes], value: Any) -> None:
    raw = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    pipe.write(_LENGTH.pack(len(raw)))
    pipe.write(raw)
    pipe.flush()


def _get(pipe: IO[bytes]) -> bytes:
    head = pipe.read(_LENGTH.size)
    raw = pipe.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""
    if not raw:
        raise EOFError("it said nothing more")
    return raw


@contextmanager
def crew(size: int, begin: Callable[..., None], *given: Any) -> Iterator[Crew]:
    """Dismissed at the end; killed when the end is an error or an interrupt."""
    made = Crew(size, begin, *given)
    try:
        yield made
        made.dismiss()  # an interrupt may come here as well
    except BaseException:
        made.kill()
        raise


# In the other process


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Until `source` ends."""
    while True:
        try:
            asked = _get(source)
        except (EOFError, ConnectionError):  # the latter where an answer was left unread
            return
        try:
            call, given = pickle.loads(asked)
            told = True, call(*given)
            raw = pickle.dumps(told, pickle.HIGHEST_PROTOCOL)
        except Exception as fault:  # whatever it is, the one who asked does the call again and sees it
            raw = pickle.dumps((False, f"{type(fault).__name__}: {fault}"))
        try:
            sink.write(_LENGTH.pack(len(raw)) + raw)
            sink.flush()
        except ConnectionError:
            return


def main() -> None:
    gc.set_threshold(20_000, 20, 20)  # as in every command that works something off (`cli.main`)
    ours = socket.socket(fileno=int(sys.argv[1]))
    serve(ours.makefile("rb"), ours.makefile("wb"))


if __name__ == "__main__":
    main()
