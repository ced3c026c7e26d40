"""The one way into a store.

Callers (the recorder's event loop) only hash and queue. Secrets are taken out of every record on its way in: of an
exchange, which may be large, in the writer's thread. What is queued is committed within 50 ms; when `seal`'s or
`flush`'s future resolves, everything queued before it is on disk. When commits fail, `failed` says why, nothing that
was queued is given up, and the queue fills (`storage.committer`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from replayproxy.core.names import why_not_a_name
from replayproxy.core.redact import Known, Redactor
from replayproxy.core.redact_records import clean_episode, clean_event, clean_run, clean_snapshot
from replayproxy.core.values import UNATTRIBUTED, Body, Episode, Event, Exchange, Fields, Run, Snapshot
from replayproxy.errors import StoreTrouble, WrongUsage
from replayproxy.storage import cold, locks, machines
from replayproxy.storage.batch import Batch
from replayproxy.storage.committer import Committer, Work
from replayproxy.storage.environment import Environment
from replayproxy.storage.layout import U64_MAX, episode_name_key, number, u64
from replayproxy.storage.numbers import Numbers
from replayproxy.storage.redacting_sink import RedactingSink
from replayproxy.storage.sink import BodySink, TalkSink
from replayproxy.storage.trouble import why


class Writer:
    """See the module. Made by `Store.writer`; may be called from any thread of the process that made it."""

    def __init__(
        self,
        env: Environment,
        *,
        exclusive: bool,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
        redactor: Redactor | None = None,
    ) -> None:
        if env.readonly:
            raise StoreTrouble(f"{env.path} is read-only")
        self._env, self._wall = env, wall
        self._machine = machines.here(os.environ, wall=wall, monotonic=monotonic)
        self.redactor = redactor or Redactor(None)
        self._known: dict[int, Known] = {}
        self._grown: dict[bytes, int] = {}  # bodies too large to hold with secrets in them, by digest: few
        recorder = locks.take_recorder(env.path) if exclusive else None
        shared = None
        try:
            shared = locks.share(env.path)
            if exclusive:
                locks.sweep(env.path)
            env.forget_the_dead()
            env.complete()
            self._numbers = Numbers(env)
            self._locks = locks.WriterLocks(env.path, self._numbers.session, recorder, shared)
        except BaseException:
            for held in (recorder, shared):
                if held is not None:
                    locks.drop(held)
            raise
        self._names: set[tuple[int, str]] = set()
        self._open: dict[int, int] = {}  # episodes that were opened here and not yet sealed -> their runs
        self._events = 0
        self._closed = False
        self._queue = Committer(env, recorder=exclusive, learns=redactor is None or not redactor.keeps)

    # Runs and episodes

    def open_run(self, run: Run, *, append: bool = False) -> Run:
        """On disk when it returns, and `Store.is_written` until the writer is closed. A taken name is WrongUsage; with
        `append` it gives the run that has it."""
        opened = self._opened(run, append)
        self._locks.writes(opened.key)
        return opened

    def _opened(self, run: Run, append: bool) -> Run:
        if reason := why_not_a_name(run.name, of="run"):
            raise WrongUsage(f"{run.name!r} cannot name a run: {reason}")
        made = replace(run, key=self._numbers.next())
        dbs = self._env.dbs
        with self._env.changing() as txn:
            taken = txn.get(run.name.encode(), db=dbs["run-names"])
            if taken is None:
                txn.put(u64(made.key), cold.encode(clean_run(self.redactor, made)), db=dbs["runs"])
                txn.put(run.name.encode(), u64(made.key), db=dbs["run-names"])
                txn.put(u64(made.key), self._machine.encoded(), db=dbs["machines"])
                return made
            if append:
                return cold.decode(Run, txn.get(taken, db=dbs["runs"]))
        raise WrongUsage(f"a run named {run.name!r} exists already", hint="another --run, or --append")

    def update_run(self, run: Run) -> None:
        stored = clean_run(self.redactor, run)
        self._queue.put(Work(lambda batch: batch.update_run(stored)))

    def open_episode(self, episode: Episode) -> Episode:
        """Gives it its key at once; it is written with the next commit. A name taken in its run is WrongUsage, but
        for the bucket of unattributed traffic: an appended run goes on with the one it has."""
        name, run_key = episode.name, episode.run_key
        if name != UNATTRIBUTED and (reason := why_not_a_name(name)):
            raise WrongUsage(f"{name!r} cannot name an episode: {reason}")
        with self._env.reading() as txn:
            taken = txn.get(episode_name_key(run_key, name), db=self._env.dbs["episode-names"])
        if (run_key, name) in self._names or (taken is not None and name != UNATTRIBUTED):
            raise WrongUsage(f"an episode named {name!r} exists already", hint=f"{name}-a2")
        self._names.add((run_key, name))
        made = replace(episode, key=self._numbers.next() if taken is None else number(taken))
        self._open[made.key] = run_key
        future: Future[Any] = Future()
        future.add_done_callback(lambda done: self._named(run_key, name, done))
        stored = self._clean(made, None)
        self._queue.put(Work(lambda batch: batch.open_episode(stored, self._numbers.session, future)))
        return made

    def _named(self, run_key: int, name: str, done: Future[Any]) -> None:
        # Once it is committed the database answers whether the name is taken: the set stays small.
        if done.exception() is None:
            self._names.discard((run_key, name))

    def update_episode(self, episode: Episode) -> None:
        """A fault once noted stays, and so does a seal."""
        where = episode.run_key, episode.key
        known = self._known.get(episode.key)
        self._queue.put(Work(lambda batch: batch.update_episode(self._clean(episode, known), None), episode=where))

    def seal(self, episode: Episode) -> Future[Episode]:
        """Counts and chains what is stored of the episode; resolves, to the episode as a reader sees it, once that
        and all before it is on disk. Nothing may be put into it afterwards."""
        self._where(episode.key)
        del self._open[episode.key]
        known = self._known.pop(episode.key, None)
        future: Future[Episode] = Future()
        self._queue.put(
            Work(
                lambda batch: batch.update_episode(self._clean(episode, known), future, seal=True),
                future=future, urgent=True,
            )
        )  # fmt: skip
        return future

    def _clean(self, episode: Episode, known: Known | None) -> Episode:
        return clean_episode(self.redactor, episode, known)

    def annotate(self, run_key: int, keys: Iterable[int], change: Callable[[Episode], Episode]) -> Future[int]:
        """What `change` makes of these sealed episodes, all in one transaction or none; resolves to how many it
        changed. An episode that is removed, or not sealed, is a LookupError, and nothing is written."""
        future: Future[int] = Future()

        def cleaned(stored: Episode) -> Episode:
            made = self._clean(change(stored), None)
            # A secret is stored by its token: said again it differs from what is stored until it is cleaned.
            return stored if replace(made, annotated=stored.annotated) == stored else made

        self._queue.put(Work(lambda batch: batch.annotate(run_key, cleaned, keys, future), future=future, urgent=True))
        return future

    def remove(self, run_key: int, episode_key: int | None = None) -> None:
        """Marks: no longer listed, the name free again; the records stay."""
        wall = self._wall()
        self._queue.put(Work(lambda batch: batch.remove(run_key, episode_key, wall)))

    # What an episode holds

    def put_exchange(self, episode_key: int, exchange: Exchange) -> None:
        """`order` is its key: the same order again replaces the record. An episode that this writer has not opened,
        or has sealed, is a ValueError."""
        where = self._where(episode_key)
        at, worker = exchange.order
        if not (0 <= at <= U64_MAX and 0 <= worker < 1 << 16):
            raise ValueError(f"{exchange.order} is no arrival key")
        known = self.known(episode_key)

        def prepare(batch: Batch) -> None:
            batch.exchange(episode_key, self.redactor.exchange(exchange, known, self._grown))

        self._queue.put(Work(prepare, cost=_cost(exchange), episode=where))

    def put_snapshot(self, episode_key: int, snapshot: Snapshot) -> None:
        """As for exchanges; `n` is its key. Its tree's nodes are put before it."""
        where = self._where(episode_key)
        known = self._known.get(episode_key)
        self._queue.put(
            Work(
                lambda batch: batch.snapshot(episode_key, clean_snapshot(self.redactor, snapshot, known)),
                episode=where,
            )
        )

    def put_event(self, episode_key: int, event: Event) -> None:
        """Of any episode, a sealed one too."""
        self._events += 1
        session, count = self._numbers.session, self._events
        known = self._known.get(episode_key)
        self._queue.put(
            Work(lambda batch: batch.event(episode_key, clean_event(self.redactor, event, known), session, count))
        )

    def put_nodes(self, nodes: Mapping[bytes, bytes]) -> None:
        """Snapshot tree nodes, or any blobs, by content address."""
        held = dict(nodes)

        def prepare(batch: Batch) -> None:
            for address, data in held.items():
                batch.blob(address, data)

        if held:
            self._queue.put(Work(prepare, cost=sum(len(data) + 96 for data in held.values())))

    def put_blob(self, address: bytes, data: bytes) -> None:
        self._queue.put(Work(lambda batch: batch.blob(address, data), cost=len(data) + 96))

    def body_sink(self) -> BodySink:
        """For bytes that hold no secret: they go into the store as they are."""
        return BodySink(self.put_blob)

    def redacting_sink(self, episode_key: int | None, fields: Fields, *, of_answer: bool) -> RedactingSink:
        """For a body as it came, of a head with these fields."""
        # A replay reads such a request before it knows whose it is: what its own head shows has to do.
        known = self.known(episode_key) if of_answer and episode_key in self._open else None
        return RedactingSink(
            self.body_sink,
            lambda: self.redactor.stretch(fields, known, of_answer=of_answer),
            self._grown.__setitem__,
        )

    def talk_sink(self, episode_key: int | None = None) -> TalkSink:
        """For the messages of a conversation as they came."""
        if self.redactor.keeps:
            return TalkSink(self.put_blob)
        known = self.known(episode_key) if episode_key in self._open else Known()
        return TalkSink(self.put_blob, lambda message: self.redactor.message(message, known))

    def known(self, episode_key: int) -> Known:
        """The secrets that an open episode has shown: they are learned, and looked for, in the writer's thread."""
        known = self._known.get(episode_key)
        if known is None:
            known = self._known[episode_key] = Known()
        return known

    def put_check(self, run_key: int, document: Mapping[str, Any]) -> Future[None]:
        """Keeps the check document of a run, and that it is the last one; resolves once that is on disk, to
        UnknownAddress where the run is gone."""
        future: Future[None] = Future()
        self._queue.put(Work(lambda batch: batch.check(run_key, document, future), future=future))
        return future

    def put_trial(self, run_key: int, document: Mapping[str, Any]) -> Future[None]:
        """Keeps what came of sending a finding again (`session.trials`): beside the check, and through the next one.
        `document["wall"]` is its place in time. Resolves as `put_check`."""
        held = dict(document)
        if not 0 <= int(held["wall"]) <= U64_MAX:
            raise ValueError(f"{held['wall']} is no instant")
        future: Future[None] = Future()
        self._queue.put(Work(lambda batch: batch.trial(run_key, held, future), future=future))
        return future

    # The queue

    @property
    def failed(self) -> BaseException | None:
        """Why the last commit failed; None when it did not. It is tried again until it succeeds."""
        return self._queue.failed

    def room(self) -> bool:
        """False while the queue is full: a put would wait."""
        return self._queue.room()

    @property
    def waiting(self) -> int:
        """How many records are queued and not yet on disk."""
        return self._queue.count

    def ample(self) -> bool:
        """False while the queue is at least half full: then no more should be begun."""
        return self._queue.ample()

    def flush(self) -> Future[None]:
        """Resolves once everything queued so far is on disk."""
        future: Future[None] = Future()
        self._queue.put(Work(lambda batch: batch.flush(future), future=future, urgent=True))
        return future

    def close(self) -> None:
        """Everything queued is on disk when it returns; else StoreTrouble says how much is not."""
        if self._closed or self._env.pid != os.getpid():
            return  # a forked child has a copy of this object, but neither the thread nor the locks
        self._closed = True
        self._queue.close()
        self._locks.release()
        lost, reason = self._queue.count, self.failed
        try:
            if reason is None and self._env.moved():
                reason = StoreTrouble("it was removed or replaced")
        except OSError as error:  # not even looked at any more
            reason = error
        if lost or reason is not None:
            told = why(reason or RuntimeError("the writer ended"))
            raise StoreTrouble(f"{self._env.path} cannot be written, {lost} records are lost: {told}")

    def _where(self, episode: int) -> tuple[int, int]:
        if episode not in self._open:
            raise ValueError(f"episode {episode} is not open in this writer")
        return self._open[episode], episode


def _cost(exchange: Exchange) -> int:
    response, talk = exchange.response, exchange.websocket
    messages = sum(64 + len(message.payload) for message in talk.messages) if talk else 0
    return 1024 + _held(exchange.request.body) + _held(response.body if response else None) + messages


def _held(body: Body | None) -> int:
    return 0 if body is None else len(body.inline or b"") + 32 * len(body.chunks)
