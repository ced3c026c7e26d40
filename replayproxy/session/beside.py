"""Processes beside this one that take part of its work: each does one call at a time and says what came of it.

They are programs of their own, so that no open store crosses a fork and no script of the caller's runs again, and they
have a process group of their own: an interrupt at the terminal is for us to answer. They know only what a call brings
with it, and end when we do, however that is. One that dies costs time and nothing else: its call comes back `Lost`, and
whoever asked does it here.

    asked:  u64 length | pickle of (function, arguments)
    told:   u64 length | pickle of (whether it was done, what came of it)
"""

from __future__ import annotations

import gc
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, Any

PROGRAM = (sys.executable, "-P", "-m", "replayproxy.session.beside")

_PATIENCE = 3
"""After so many deaths no process is started again: something kills them, or they cannot live here."""

_LENGTH = struct.Struct(">Q")


class Lost(Exception):
    """The call was not done: its process is gone, or it failed there. Done here, the same fault shows, or none."""


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


class Crew:
    """At most `size` processes, each started when there is work for it. `begin` is what each calls first.

    Functions and what they are given are told by pickle, functions by their name: they stand at the top of a module.
    """

    def __init__(self, size: int, begin: Callable[..., None], *given: Any) -> None:
        self._begin = (begin, given)
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="beside")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._living: set[subprocess.Popen[bytes]] = set()
        self._deaths = 0
        self._over = False

    def submit[T](self, call: Callable[..., T], *given: Any) -> Future[T]:
        """What the call gives, or Lost."""
        return self._threads.submit(self._ask, call, given)

    @property
    def pids(self) -> list[int]:
        with self._lock:
            return [process.pid for process in self._living]

    def dismiss(self) -> None:
        """Waits for what is under way; what nobody has begun is not done any more."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._living:
            _close(process)

    def kill(self) -> None:
        """At once. Nothing is lost: they only read."""
        with self._lock:
            self._over = True
            for process in self._living:
                process.kill()
        self.dismiss()

    # In a thread of its own for each process

    def _ask(self, call: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        process = self._mine()
        try:
            done, told = _answer(process, call, given)
        except (OSError, EOFError) as gone:
            self._bury(process)
            raise Lost("its process is gone") from gone
        if not done:
            raise Lost(told)
        return told

    def _mine(self) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] | None = getattr(self._own, "process", None)
        if process is not None:
            return process
        with self._lock:
            if self._over or self._deaths >= _PATIENCE:
                raise Lost("no process is started any more")
            process = subprocess.Popen(PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
            self._living.add(process)
        self._own.process = process
        begin, given = self._begin
        try:
            done, told = _answer(process, begin, given)
        except (OSError, EOFError) as gone:
            done, told = False, str(gone)
        if not done:
            self._bury(process)
            raise Lost(told)
        return process

    def _bury(self, process: subprocess.Popen[bytes]) -> None:
        self._own.process = None
        with self._lock:
            self._living.discard(process)
            self._deaths += 1
        process.kill()
        _close(process)


def _close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    for pipe in (process.stdin, process.stdout):
        try:
            pipe.close()
        except OSError:
            pass  # what could not be told any more
    process.wait()


def _answer(process: subprocess.Popen[bytes], call: Callable[..., Any], given: tuple[Any, ...]) -> tuple[bool, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    _put(process.stdin, (call, given))
    told: tuple[bool, Any] = pickle.loads(_get(process.stdout))
    return told


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
    except BaseException:
        made.kill()
        raise
    made.dismiss()


# In the other process


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Until `source` ends."""
    while True:
        try:
            asked = _get(source)
        except EOFError:
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
        except BrokenPipeError:
            return


def main() -> None:
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not speak for us
    gc.set_threshold(20_000, 20, 20)  # as in every command that works something off (`cli.main`)
    serve(sys.stdin.buffer, sink)


if __name__ == "__main__":
    main()
