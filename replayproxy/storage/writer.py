"""The one way into a store: a queue, and a thread that encodes, compresses and commits in groups.

Callers (the recorder's event loop) only hash and queue. What is queued is committed within 50 ms; when `seal`'s or
`flush`'s future resolves, everything queued before it is on disk. When a commit fails (disk full, directory removed),
the batch is kept and tried again, `failed` says why, and the queue fills up.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import lmdb

from replayproxy.core.names import why_not_a_name
from replayproxy.core.values import UNATTRIBUTED, Body, Episode, Event, Exchange, Run, Snapshot
from replayproxy.errors import StoreTrouble, WrongUsage
from replayproxy.storage import cold, locks
from replayproxy.storage.batch import Batch
from replayproxy.storage.environment import Environment
from replayproxy.storage.layout import (
    META_NEXT_KEY,
    META_SESSION,
    U64_MAX,
    episode_name_key,
    number,
    u64,
)
from replayproxy.storage.sink import BodySink

QUEUE_BYTES = 64 * 1024 * 1024
QUEUE_ITEMS = 50_000
GROUP_SECONDS = 0.05
GROUP_BYTES = 8 * 1024 * 1024
RETRY_SECONDS = 0.25
GIVE_UP_SECONDS = 5.0
KEYS_AT_ONCE = 1024


@dataclass(slots=True)
class _Work:
    """Something queued. `prepare` runs in the thread; `episode` gets a fault when it cannot."""

    prepare: Callable[[Batch], None]
    cost: int = 256
    episode: tuple[int, int] | None = None  # its run's number and its own
    future: Future[Any] | None = None
    urgent: bool = False


class Writer:
    """See the module. Made by `Store.writer`; may be called from any thread of the process that made it."""

    def __init__(self, env: Environment, *, exclusive: bool, now: Callable[[], int] = time.time_ns) -> None:
        if env.readonly:
            raise StoreTrouble(f"{env.path} is read-only")
        self.failed: BaseException | None = None
        self._env, self._wall = env, now
        recorder = locks.take_recorder(env.path) if exclusive else None
        try:
            if exclusive:
                locks.sweep(env.path)
            self.session, self._next, self._last = self._reserve(session=True)
            self._locks = locks.WriterLocks(env.path, self.session, recorder)
        except BaseException:
            if recorder is not None:
                locks.drop(recorder)
            raise
        self._state = threading.Condition()
        self._queue: deque[_Work] = deque()
        self._cost = self._count = self._events = 0
        self._closing = self._closed = False
        self._names: set[tuple[int, str]] = set()
        self._keys_guard = threading.Lock()
        self._open: dict[int, int] = {}  # episodes that were opened here and not yet sealed -> their runs
        self._thread = threading.Thread(target=self._work, name="replayproxy-writer", daemon=True)
        self._thread.start()

    # Runs and episodes

    def open_run(self, run: Run, *, append: bool = False) -> Run:
        """On disk when it returns. A taken name is WrongUsage; with `append` it gives the run that has it."""
        if reason := why_not_a_name(run.name, of="run"):
            raise WrongUsage(f"{run.name!r} cannot name a run: {reason}")
        made = replace(run, key=self._key())
        dbs = self._env.dbs
        with self._writing() as txn:
            taken = txn.get(run.name.encode(), db=dbs["run-names"])
            if taken is None:
                txn.put(u64(made.key), cold.encode(made), db=dbs["runs"])
                txn.put(run.name.encode(), u64(made.key), db=dbs["run-names"])
                return made
            if append:
                return cold.decode(Run, txn.get(taken, db=dbs["runs"]))
        raise WrongUsage(f"a run named {run.name!r} exists already", hint="another --run, or --append")

    def update_run(self, run: Run) -> None:
        self._put(_Work(lambda batch: batch.update_run(run)))

    def open_episode(self, episode: Episode) -> Episode:
        """Gives it its key at once; it is written with the next commit. A name taken in its run is WrongUsage."""
        name, run_key = episode.name, episode.run_key
        if name != UNATTRIBUTED and (reason := why_not_a_name(name)):
            raise WrongUsage(f"{name!r} cannot name an episode: {reason}")
        with self._env.reading() as txn:
            taken = txn.get(episode_name_key(run_key, name), db=self._env.dbs["episode-names"]) is not None
        with self._state:
            if taken or (run_key, name) in self._names:
                raise WrongUsage(f"an episode named {name!r} exists already", hint=f"{name}-a2")
            self._names.add((run_key, name))
        made = replace(episode, key=self._key())
        self._open[made.key] = run_key
        future: Future[None] = Future()
        # Once it is committed the database answers whether the name is taken: the set stays small.
        future.add_done_callback(lambda done: done.exception() or self._names.discard((run_key, name)))
        self._put(_Work(lambda batch: batch.open_episode(made, self.session, future)))
        return made

    def update_episode(self, episode: Episode) -> None:
        """A fault once noted stays, and so does a seal."""
        self._put(_Work(lambda batch: batch.update_episode(episode, None), episode=(episode.run_key, episode.key)))

    def seal(self, episode: Episode) -> Future[Episode]:
        """Counts and chains what is stored of the episode; resolves, to the episode as a reader sees it, once that
        and all before it is on disk. Nothing may be put into it afterwards."""
        self._where(episode.key)
        del self._open[episode.key]
        future: Future[Episode] = Future()
        self._put(_Work(lambda batch: batch.update_episode(episode, future, seal=True), future=future, urgent=True))
        return future

    def remove(self, run_key: int, episode_key: int | None = None) -> None:
        """Marks: no longer listed, the name free again; the records stay."""
        wall = self._wall()
        self._put(_Work(lambda batch: batch.remove(run_key, episode_key, wall)))

    # What an episode holds

    def put_exchange(self, episode_key: int, exchange: Exchange) -> None:
        """`order` is its key: the same order again replaces the record. An episode that this writer has not opened,
        or has sealed, is a ValueError."""
        where = self._where(episode_key)
        at, worker = exchange.order
        if not (0 <= at <= U64_MAX and 0 <= worker < 1 << 16):
            raise ValueError(f"{exchange.order} is no arrival key")
        cost = 1024 + _held(exchange.request.body) + (_held(exchange.response.body) if exchange.response else 0)
        if exchange.websocket:
            cost += sum(64 + len(message.payload) for message in exchange.websocket.messages)
        self._put(_Work(lambda batch: batch.exchange(episode_key, exchange), cost=cost, episode=where))

    def put_snapshot(self, episode_key: int, snapshot: Snapshot) -> None:
        """As for exchanges; `n` is its key. Its tree's nodes are put before it."""
        where = self._where(episode_key)
        self._put(_Work(lambda batch: batch.snapshot(episode_key, snapshot), episode=where))

    def put_event(self, episode_key: int, event: Event) -> None:
        """Of any episode, a sealed one too."""
        self._events += 1
        count = self._events
        self._put(_Work(lambda batch: batch.event(episode_key, event, self.session, count)))

    def put_nodes(self, nodes: Mapping[bytes, bytes]) -> None:
        """Snapshot tree nodes, or any blobs, by content address."""
        held = dict(nodes)

        def prepare(batch: Batch) -> None:
            for address, data in held.items():
                batch.blob(address, data)

        if held:
            self._put(_Work(prepare, cost=sum(len(data) + 96 for data in held.values())))

    def put_blob(self, address: bytes, data: bytes) -> None:
        self._put(_Work(lambda batch: batch.blob(address, data), cost=len(data) + 96))

    def body_sink(self) -> BodySink:
        return BodySink(self.put_blob)

    def put_check(self, run_key: int, document: Mapping[str, Any]) -> None:
        """Keeps the check document of a run, and that it is the last one."""
        self._put(_Work(lambda batch: batch.check(run_key, document)))

    # The queue

    def room(self) -> bool:
        """False while the queue is full: a put would wait."""
        return self._cost < QUEUE_BYTES and self._count < QUEUE_ITEMS

    def flush(self) -> Future[None]:
        """Resolves once everything queued so far is on disk."""
        future: Future[None] = Future()
        self._put(_Work(lambda batch: batch.flush(future), future=future, urgent=True))
        return future

    def close(self) -> None:
        """Everything queued is on disk when it returns; else StoreTrouble says how much is not."""
        if self._env.pid != os.getpid():
            return  # a forked child has a copy of this object, but neither the thread nor the locks
        with self._state:
            if self._closed:
                return
            self._closed = self._closing = True
            self._state.notify_all()
        self._thread.join()
        self._locks.release()
        if self._count or self.failed or self._env.moved():
            reason = self.failed or "it was removed or replaced"
            raise StoreTrouble(f"{self._env.path} cannot be written, {self._count} records are lost: {reason}")

    def _where(self, episode: int) -> tuple[int, int]:
        if episode not in self._open:
            raise ValueError(f"episode {episode} is not open in this writer")
        return self._open[episode], episode

    def _put(self, work: _Work) -> None:
        self._env.check_process()
        with self._state:
            while not self.room() and self.failed is None and not self._closing:
                self._state.wait()
            if self._closing:
                raise StoreTrouble(f"the writer of {self._env.path} is closed")
            if not self.room():
                raise StoreTrouble(f"{self._env.path} cannot be written: {self.failed}")
            self._queue.append(work)
            self._cost += work.cost
            self._count += 1
            if len(self._queue) == 1 or work.urgent or self._cost >= GROUP_BYTES:
                self._state.notify_all()

    # Keys

    def _writing(self) -> Any:
        return _Writing(self._env)

    def _key(self) -> int:
        with self._keys_guard:
            if self._next == self._last:
                _, self._next, self._last = self._reserve(session=False)
            self._next += 1
            return self._next - 1

    def _reserve(self, *, session: bool) -> tuple[int, int, int]:
        """Numbers no other writer will give: (session, first key, behind the last key)."""
        meta = self._env.dbs["meta"]
        with self._writing() as txn:
            first = number(txn.get(META_NEXT_KEY, db=meta) or u64(1))
            txn.put(META_NEXT_KEY, u64(first + KEYS_AT_ONCE), db=meta)
            last = number(txn.get(META_SESSION, db=meta) or u64(0)) + session
            txn.put(META_SESSION, u64(last), db=meta)
        return last, first, first + KEYS_AT_ONCE

    # The thread

    def _work(self) -> None:
        try:
            committed = 0.0
            while (works := self._take(committed)) is not None:
                batch = self._prepared(works)
                if not self._committed(batch):
                    return
                committed = time.monotonic()
            self._env.env.sync(True)
        except BaseException as error:  # our own fault: nobody may go on believing that things are written
            with self._state:
                self.failed = error
                self._closing = True
                self._state.notify_all()
            self._fail_queued(error)

    def _take(self, committed: float) -> list[_Work] | None:
        """What is to be committed next; None when the writer was closed and nothing is left."""
        with self._state:
            while not self._queue and not self._closing:
                self._state.wait()
            due = committed + GROUP_SECONDS
            while not self._closing and self._cost < GROUP_BYTES and not any(work.urgent for work in self._queue):
                left = due - time.monotonic()
                if left <= 0:
                    break
                self._state.wait(left)
            works = list(self._queue)
            self._queue.clear()
            return works or None

    def _prepared(self, works: list[_Work]) -> Batch:
        batch = Batch(self._env)
        for work in works:
            batch.cost += work.cost
            batch.count += 1
            try:
                work.prepare(batch)
            except Exception as error:  # one value that cannot be encoded must not keep the others from the disk
                if work.future is not None:
                    work.future.set_exception(error)
                if work.episode is not None:
                    batch.fault(*work.episode, f"not stored: {error}")
        return batch

    def _committed(self, batch: Batch) -> bool:
        """Commits, trying again for as long as it takes; False when the writer was closed and it cannot be done."""
        began = time.monotonic()
        while True:
            try:
                if self._env.moved():
                    raise StoreTrouble(f"{self._env.path} was removed or replaced while it was written to")
                batch.commit()
                if self._env.moved():
                    raise StoreTrouble(f"{self._env.path} was removed or replaced while it was written to")
                self._env.fill_up()
            except (lmdb.Error, OSError, StoreTrouble) as error:
                waited = time.monotonic() - began
                self._not_now(batch, error, tell=waited >= GIVE_UP_SECONDS or isinstance(error, StoreTrouble))
                if self._closing and waited >= RETRY_SECONDS:
                    self._fail_queued(error)
                    return False
                continue
            with self._state:
                self.failed = None
                self._cost -= batch.cost
                self._count -= batch.count
                self._state.notify_all()
            _resolve(batch)
            return True

    def _not_now(self, batch: Batch, error: Exception, *, tell: bool) -> None:
        with self._state:
            self.failed = error
            self._state.notify_all()
        if tell or self._closing:
            told = StoreTrouble(f"{self._env.path} cannot be written: {error}", hint="free space; it is tried again")
            for step in batch.steps:
                if step.future is not None and not step.future.done():
                    step.future.set_exception(told)
        with self._state:
            self._state.wait_for(lambda: self._closing, timeout=RETRY_SECONDS)

    def _fail_queued(self, error: BaseException) -> None:
        with self._state:
            waiting = list(self._queue)
        for work in waiting:
            if work.future is not None and not work.future.done():
                work.future.set_exception(StoreTrouble(f"{self._env.path} cannot be written: {error}"))


def _held(body: Body | None) -> int:
    return 0 if body is None else len(body.inline or b"") + 32 * len(body.chunks)


def _resolve(batch: Batch) -> None:
    for step in batch.steps:
        if step.future is not None and not step.future.done():
            if step.error is not None:
                step.future.set_exception(step.error)
            else:
                step.future.set_result(step.outcome)


class _Writing:
    """A write transaction in which LMDB's errors become StoreTrouble."""

    def __init__(self, env: Environment) -> None:
        self._env, self._inner = env, env.writing()

    def __enter__(self) -> Any:
        return self._inner.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool | None:
        try:
            return self._inner.__exit__(kind, error, trace)
        except lmdb.Error as trouble:
            raise StoreTrouble(f"{self._env.path} cannot be written: {trouble}", hint="free space") from trouble
