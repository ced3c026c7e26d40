"""Who is writing: one recorder at a time, and whether the writer of an open episode still lives.

Locks are `flock`s, which the system drops when the process that holds them ends, however it ends. Every writer holds
`writer-N.lock` (N: its number in the store), in which stand the keys of the runs that it has opened, and shares
`writers.lock`, which `gc` takes for itself alone; the recorder also holds `recorder.lock`, which carries its pid.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from replayproxy.errors import StoreTrouble
from replayproxy.storage.layout import RECORDER_LOCK, WRITERS_LOCK


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock on `path`; None when somebody else does."""
    while True:
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(held)
            return None
        try:
            # A cleaner may have unlinked the file between our open and our lock: then we hold a lock nobody can see.
            if path.stat().st_ino == os.fstat(held).st_ino:
                return held
        except FileNotFoundError:
            pass
        os.close(held)


def share(directory: Path) -> int:
    """A descriptor that keeps `gc` away. StoreTrouble while one is at work."""
    held = os.open(directory / WRITERS_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        os.close(held)
        raise StoreTrouble(f"replayproxy gc is rewriting {directory}", hint="wait until it has ended") from error
    return held


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Nobody writes, and nobody begins to, while it holds. StoreTrouble when somebody writes already."""
    recorder = _recorder(directory)
    with suppress(OSError):  # on a full disk this is what makes room: who comes second gets no pid
        _sign(recorder)
    held = os.open(directory / WRITERS_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreTrouble(f"another command is writing to {directory}", hint="wait until it has ended") from error
        sweep(directory)
        yield
    finally:
        os.close(held)
        with suppress(OSError):  # read-only meanwhile
            os.ftruncate(recorder, 0)
        os.close(recorder)


class WriterLocks:
    """The locks that one writer holds until `release`. `shared`: what `share` gave."""

    def __init__(self, directory: Path, session: int, recorder: int | None, shared: int) -> None:
        self._path = directory / writer_file(session)
        self._recorder = recorder
        self._shared: int | None = shared
        own = _lock(self._path)
        if own is None:
            raise StoreTrouble(f"{self._path} is locked by another process")
        self._own: int | None = own

    def writes(self, run_key: int) -> None:
        """Says for the others that a run of that key is being written."""
        if self._own is not None:
            with suppress(OSError):  # on a full disk what comes next says so
                os.write(self._own, f"{run_key}\n".encode())

    def release(self) -> None:
        if self._own is not None:
            with suppress(OSError):  # a directory that has become read-only: the next recorder sweeps it
                self._path.unlink(missing_ok=True)
            os.close(self._own)
            self._own = None
        if self._shared is not None:
            os.close(self._shared)
            self._shared = None
        if self._recorder is not None:
            with suppress(OSError):
                os.ftruncate(self._recorder, 0)
            os.close(self._recorder)
            self._recorder = None


def writer_file(session: int) -> str:
    return f"writer-{session}.lock"


def take_recorder(directory: Path) -> int:
    """The lock of the one recorder. Raises StoreTrouble that names the holder."""
    held = _recorder(directory)
    try:
        _sign(held)
    except OSError as error:
        os.close(held)
        raise StoreTrouble(f"{directory} cannot be written to: {(error.strerror or str(error)).lower()}") from error
    return held


def _recorder(directory: Path) -> int:
    path = directory / RECORDER_LOCK
    held = _lock(path)
    if held is None:
        pid = path.read_text("ascii", "replace").strip() or "unknown"
        raise StoreTrouble(
            f"another recorder (pid {pid}) is writing to {directory}", hint="stop it, or record with another --store"
        )
    return held


def _sign(held: int) -> None:
    os.ftruncate(held, 0)
    os.pwrite(held, f"{os.getpid()}\n".encode(), 0)


def drop(descriptor: int) -> None:
    os.close(descriptor)


def is_writing(directory: Path, session: int) -> bool:
    """Whether the writer of that number still lives."""
    try:
        probe = os.open(directory / writer_file(session), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(probe)


def living(directory: Path) -> list[int]:
    """The numbers of the writers that live."""
    numbers = [int(path.stem.removeprefix("writer-")) for path in directory.glob("writer-*.lock")]
    return [number for number in numbers if is_writing(directory, number)]


def written_runs(directory: Path) -> set[int]:
    """The keys of the runs that writers which live have opened."""
    found: set[int] = set()
    for session in living(directory):
        with suppress(FileNotFoundError):  # ended meanwhile
            found.update(map(int, (directory / writer_file(session)).read_text("ascii", "replace").split()))
    return found


def sweep(directory: Path) -> None:
    """Removes what writers that were killed have left. Only the recorder calls it."""
    for path in directory.glob("writer-*.lock"):
        held = _lock(path)
        if held is not None:
            path.unlink(missing_ok=True)
            os.close(held)
