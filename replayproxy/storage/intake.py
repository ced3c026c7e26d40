"""Puts whole runs or episodes into a store so that none of them is seen before all of it is there.

Until `publish` what came in is marked as removed and has no name: a process that is killed meanwhile leaves a store
that lists nothing of it, verifies, and can be recorded into. `publish` is one transaction.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import lmdb

from replayproxy.core.names import why_not_a_name
from replayproxy.core.values import UNATTRIBUTED, Episode, EpisodeState, Event, Exchange, Run
from replayproxy.errors import StoreTrouble, WrongUsage
from replayproxy.storage import cold, locks
from replayproxy.storage.batch import Batch
from replayproxy.storage.environment import Environment
from replayproxy.storage.filesystem import refuse_network
from replayproxy.storage.frame import pressed
from replayproxy.storage.layout import episode_key, episode_name_key, u64
from replayproxy.storage.numbers import Numbers
from replayproxy.storage.scans import seal_of
from replayproxy.storage.store import Store
from replayproxy.storage.trouble import not_written

GROUP_BYTES = 8 * 1024 * 1024


class Intake:
    """See the module. One import of one caller; may run beside a recorder."""

    def __init__(self, store: Store, *, wall: Callable[[], int] = time.time_ns) -> None:
        env = store.env
        if env.readonly:
            raise StoreTrouble(f"{env.path} is read-only")
        refuse_network(env.path)
        self._env: Environment = env
        # What is not published yet looks to `gc` as if it had been removed: it is kept away until then.
        self._let_go = weakref.finalize(self, locks.drop, locks.share(env.path))
        env.complete()
        self._press = env.press()
        self._numbers = Numbers(env)
        self._wall = u64(wall())
        self._hidden: list[bytes] = []
        self._runs: set[bytes] = set()
        self._given: set[bytes] = set()
        self._names: list[tuple[str, bytes, bytes, str]] = []  # database, name, number, how it is called
        self._batch = Batch(env, press=self._press)
        self._size = self._events = 0

    def run(self, run: Run, *, append: bool = False) -> Run:
        """The run with its number here. A taken name is WrongUsage at once; with `append`, the run that has it."""
        if reason := why_not_a_name(run.name, of="run"):
            raise WrongUsage(f"{run.name!r} cannot name a run: {reason}", hint="--run NAME")
        with self._env.reading() as txn:
            taken = txn.get(run.name.encode(), db=self._env.dbs["run-names"])
            raw = None if taken is None else txn.get(taken, db=self._env.dbs["runs"])
        if taken is not None and not append:
            raise _taken("a run", run.name, "--run NAME, or --append")
        if raw is not None:
            return cold.decode(Run, raw)
        made = replace(run, key=self._numbers.next())
        key = u64(made.key)
        self._hide(key)
        self._runs.add(key)
        self.put("runs", key, cold.encode(made))
        self._names.append(("run-names", run.name.encode(), key, f"a run named {run.name!r}"))
        return made

    def episode(self, run: Run, episode: Episode) -> Episode:
        """The episode with its number here; unsealed until `seal`. A name taken in the run is WrongUsage."""
        name = episode_name_key(run.key, episode.name)
        if episode.name != UNATTRIBUTED and (reason := why_not_a_name(episode.name)):
            raise WrongUsage(f"{episode.name!r} cannot name an episode: {reason}")
        if self.has(run, episode.name) or name in self._given:
            raise _taken("an episode", f"{run.name}/{episode.name}", "another --run")
        self._given.add(name)
        made = replace(episode, key=self._numbers.next(), run_key=run.key)
        key = episode_key(run.key, made.key)
        if u64(run.key) in self._runs:  # it is as little seen as its run, name and all
            self.put("episode-names", name, u64(made.key))
        else:  # hidden first: a commit may come between any two of these
            self._hide(key)
            self._names.append(("episode-names", name, u64(made.key), f"an episode named {run.name}/{episode.name}"))
        self.put("episodes", key, cold.encode_episode(made, self._numbers.session))
        return made

    def update_run(self, run: Run) -> None:
        self.put("runs", u64(run.key), cold.encode(run))

    def has(self, run: Run, episode: str) -> bool:
        """Whether the run has an episode of that name already."""
        with self._env.reading() as txn:
            known = txn.get(episode_name_key(run.key, episode), db=self._env.dbs["episode-names"])
        return known is not None

    def _hide(self, key: bytes) -> None:
        self._hidden.append(key)
        self.put("removed", key, self._wall)

    def put(self, db: str, key: bytes, value: bytes) -> None:
        """A record, which needs no dictionary, as it is; an exchange's is compressed as others are here."""
        self._batch.put(db, key, pressed(value, None, self._press) if db == "exchanges" else value)
        self._grown(len(value))

    def blob(self, address: bytes, raw: bytes) -> None:
        """A blob as an archive holds it, unless the store has it."""
        handle = self._env.dbs["blobs"]
        with self._env.reading(buffers=True) as txn:
            known = txn.get(address, db=handle) is not None
        if not known:
            self.put("blobs", address, raw)

    def exchange(self, episode: Episode, exchange: Exchange) -> None:
        """A value: large bodies are put apart, as a recording does."""
        before = len(self._batch.steps)
        self._batch.exchange(episode.key, exchange)
        answer = exchange.response.body if exchange.response else None
        held = [body.size for body in (exchange.request.body, answer) if body is not None]
        self._grown(1024 + sum(held) + 64 * (len(self._batch.steps) - before))

    def event(self, episode: Episode, event: Event) -> None:
        self._events += 1
        self._batch.event(episode.key, event, self._numbers.session, self._events)
        self._grown(256)

    def seal(self, episode: Episode) -> Episode:
        """Seals what came in of it; nothing may be put into it afterwards."""
        self._commit()
        with self._env.reading() as txn:
            seal = seal_of(txn, self._env.dbs, episode.key)
        sealed = replace(episode, state=EpisodeState.SEALED, seal=seal)
        key = episode_key(sealed.run_key, sealed.key)
        self.put("episodes", key, cold.encode_episode(sealed, self._numbers.session))
        return sealed

    def _grown(self, size: int) -> None:
        self._size += size
        if self._size >= GROUP_BYTES:
            self._commit()

    def _commit(self) -> None:
        batch, self._batch, self._size = self._batch, Batch(self._env, press=self._press), 0
        self._written(batch)

    def _written(self, batch: Batch) -> None:
        try:
            batch.commit()
        except (lmdb.Error, OSError) as error:
            raise not_written(self._env.path, error) from error
        self._env.fill_up()

    def publish(self) -> None:
        """All of it is seen, and on disk, when it returns. A name that was taken meanwhile is WrongUsage: then nothing
        of it is seen."""
        self._commit()
        dbs = self._env.dbs
        with self._env.changing() as txn:
            for db, name, key, called in self._names:
                if not txn.put(name, key, overwrite=False, db=dbs[db]):
                    raise WrongUsage(f"{called} was made meanwhile", hint="--run NAME")
            for key in self._hidden:
                txn.delete(key, db=dbs["removed"])
        done: Future[Any] = Future()
        batch = Batch(self._env)
        batch.flush(done)
        self._written(batch)
        self._let_go()

    def give_up(self) -> None:
        """Lets `gc` at what came in and was not published. Nothing may be put in afterwards."""
        self._let_go()


def _taken(what: str, name: str, hint: str) -> WrongUsage:
    return WrongUsage(f"{what} named {name!r} exists already", hint=hint)
