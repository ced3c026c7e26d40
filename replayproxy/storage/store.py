"""A store: one directory that holds one LMDB environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from replayproxy.core.redact import Redactor
from replayproxy.errors import UnknownAddress, WrongUsage
from replayproxy.storage import environment, locks
from replayproxy.storage.filesystem import refuse_network
from replayproxy.storage.layout import DATA_FILE, LOCK_FILE, WRITERS_LOCK
from replayproxy.storage.reader import Reader
from replayproxy.storage.writer import Writer

# What may lie in a directory that is to become a store: the remains of one whose making was cut off, the demo's mark.
_UNFINISHED = frozenset({".gitignore", LOCK_FILE, WRITERS_LOCK, "made-by-demo", "secret.key"})


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the store is when nobody says so: REPLAYPROXY_STORE, else ./.replayproxy."""
    return Path(environ.get("REPLAYPROXY_STORE") or ".replayproxy")


class Store:
    """An open store. Opening the same directory twice in a process gives two of these on one environment."""

    def __init__(self, opened: environment.Environment) -> None:
        self.path = opened.path
        self._env: environment.Environment | None = opened

    @property
    def env(self) -> environment.Environment:
        if self._env is None:
            raise ValueError("the store is closed")
        return self._env

    def reader(self) -> Reader:
        return Reader(self.env)

    def writer(self, *, exclusive: bool = True, redactor: Redactor | None = None) -> Writer:
        """`exclusive`: the one recorder; a second is StoreTrouble that names the holder's pid, and so is a network
        file system. Others (check, redrive
        --save, rm) commit beside it in short transactions. `redactor`: takes secrets out of all that is put."""
        if exclusive:
            refuse_network(self.path)
        return Writer(self.env, exclusive=exclusive, redactor=redactor)

    def is_written(self, run_key: int) -> bool:
        """Whether a writer that lives, of any process, has opened that run."""
        return run_key in locks.written_runs(self.path)

    def close(self) -> None:
        """Its readers and writers must not be used any more; writers are closed before."""
        if self._env is not None:
            opened, self._env = self._env, None
            environment.release(opened)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_store(path: Path, *, create: bool = False) -> Store:
    """Opens a store without changing a byte of it.

    `create` makes one where none is, readable by its owner only and ignored by git. Without it a missing store is
    UnknownAddress. A cut file, a newer format or damage at the root is StoreTrouble.
    """
    directory = Path(path)
    if not _is_there(directory):
        if not create:
            raise UnknownAddress(f"there is no store at {directory}", hint="--store DIR, or record first")
        _make(directory)
    return Store(environment.acquire(directory.resolve(), create=create))


def _is_there(directory: Path) -> bool:
    try:
        return (directory / DATA_FILE).exists()
    except OSError as error:  # a name that is too long, a directory that may not be entered
        raise WrongUsage(f"{directory} cannot be a store: {error.strerror}", hint="name another directory") from error


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        strange = sorted(entry.name for entry in directory.iterdir() if entry.name not in _UNFINISHED)
        if strange and not (directory / DATA_FILE).exists():
            raise WrongUsage(
                f"{directory} is no store and not empty ({strange[0]})", hint="name an empty or new directory"
            )
        ignore = directory / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", "ascii")
    except OSError as error:  # a file in the way, no right, a name that is too long, a file system like /proc
        raise WrongUsage(f"{directory} cannot hold a store: {error.strerror}", hint="name another directory") from error
