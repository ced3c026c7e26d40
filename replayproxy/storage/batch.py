"""What the writer's thread commits together: encoded records, and the steps that must read before they write.

Every step may be applied again after a failed commit and then has the same effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import lmdb

from replayproxy.core.values import Episode, EpisodeState, Event, Exchange, Run, Snapshot
from replayproxy.errors import StoreTrouble, UnknownAddress
from replayproxy.storage import cold
from replayproxy.storage.codec import exchange_content, settle, settle_talk
from replayproxy.storage.environment import Environment
from replayproxy.storage.frame import PLAIN, Broken, Press, seal_blob, seal_content
from replayproxy.storage.layout import (
    META_LAST_CHECK,
    episode_key,
    episode_name_key,
    event_key,
    exchange_key,
    snapshot_key,
    trial_key,
    u64,
)
from replayproxy.storage.learning import put_anew
from replayproxy.storage.scans import keys_under, seal_of


@dataclass(slots=True)
class Step:
    """One change of the store. `outcome` is what `future` resolves to once the change is on disk."""

    apply: Callable[[Any], Any]
    episode: tuple[int, int] | None = None  # its run's number and its own: who gets a fault when this fails
    future: Future[Any] | None = None
    outcome: Any = None
    error: Exception | None = None


@dataclass(slots=True)
class Batch:
    """Steps in order. `press` compresses exchanges, `wrote` is told of each (key, record, content)."""

    env: Environment
    press: Press = PLAIN
    wrote: Callable[[bytes, bytes, bytes], None] | None = None
    steps: list[Step] = field(default_factory=list)
    blobs: set[bytes] = field(default_factory=set)
    cost: int = 0
    count: int = 0

    def put(self, db: str, key: bytes, value: bytes, future: Future[Any] | None = None) -> None:
        handle = self.env.dbs[db]
        self.steps.append(Step(apply=lambda txn: txn.put(key, value, db=handle), future=future))

    def blob(self, address: bytes, data: bytes) -> None:
        """Compressed and put only when the store does not have it yet."""
        if address in self.blobs:
            return
        self.blobs.add(address)
        with self.env.reading(buffers=True) as txn:
            known = txn.get(address, db=self.env.dbs["blobs"]) is not None
        if not known:
            self.put("blobs", address, seal_blob(data))

    def exchange(self, episode: int, exchange: Exchange) -> None:
        flags, content = exchange_content(self._settled(exchange))
        key, record = exchange_key(episode, exchange.order), seal_content(flags, content, self.press)
        handle = self.env.dbs["exchanges"]
        self.steps.append(Step(apply=lambda txn: put_exchange(txn, handle, key, record)))
        if self.wrote is not None:
            self.wrote(key, record, content)

    def _settled(self, exchange: Exchange) -> Exchange:
        """With what is large in it put apart. Nearly always nothing is, and the exchange is stored as it came."""
        request, response, talk = exchange.request, exchange.response, exchange.websocket
        sent, given = settle(request.body, self.blob), settle(response.body, self.blob) if response else None
        said = settle_talk(talk, self.blob)
        if sent is not request.body:
            exchange = replace(exchange, request=replace(request, body=sent))
        if response is not None and given is not response.body:
            exchange = replace(exchange, response=replace(response, body=given))
        return exchange if said is talk else replace(exchange, websocket=said)

    def put_anew(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Exchanges that lie there without a dictionary, compressed with that of the batch."""
        handle = self.env.dbs["exchanges"]
        self.steps.append(Step(apply=lambda txn: put_anew(txn, handle, records)))

    def snapshot(self, episode: int, snapshot: Snapshot) -> None:
        self.put("snapshots", snapshot_key(episode, snapshot.n), cold.encode(snapshot))

    def event(self, episode: int, event: Event, session: int, count: int) -> None:
        self.put("events", event_key(episode, event.at, session, count), cold.encode(event))

    def open_episode(self, episode: Episode, session: int, future: Future[Any]) -> None:
        self.put("episodes", episode_key(episode.run_key, episode.key), cold.encode_episode(episode, session))
        self.put("episode-names", episode_name_key(episode.run_key, episode.name), u64(episode.key), future)

    def update_run(self, run: Run) -> None:
        self.put("runs", u64(run.key), cold.encode(run))

    def check(self, run_key: int, document: Mapping[str, Any], future: Future[Any]) -> None:
        record, dbs = cold.encode_document(document), self.env.dbs
        self.steps.append(Step(apply=lambda txn: put_check(txn, dbs, run_key, record), future=future))

    def trial(self, run_key: int, document: Mapping[str, Any], future: Future[Any]) -> None:
        wall, record, dbs = int(document["wall"]), cold.encode_document(document), self.env.dbs
        self.steps.append(Step(apply=lambda txn: put_trial(txn, dbs, run_key, wall, record), future=future))

    def update_episode(self, episode: Episode, future: Future[Any] | None, *, seal: bool = False) -> None:
        cold.encode_episode(episode, 0)  # what cannot be encoded fails here, before the transaction
        dbs = self.env.dbs
        where = episode.run_key, episode.key
        self.steps.append(
            Step(apply=lambda txn: update_episode(txn, dbs, episode, seal=seal), episode=where, future=future)
        )

    def annotate(self, run_key: int, change: Callable[[Episode], Episode], keys: Iterable[int],
                 future: Future[Any]) -> None:  # fmt: skip
        dbs, listed = self.env.dbs, tuple(keys)
        self.steps.append(Step(apply=lambda txn: annotate(txn, dbs, run_key, listed, change), future=future))

    def remove(self, run_key: int, key: int | None, wall: int) -> None:
        dbs = self.env.dbs
        self.steps.append(Step(apply=lambda txn: remove(txn, dbs, run_key, key, wall)))

    def flush(self, future: Future[Any]) -> None:
        self.steps.append(Step(apply=lambda txn: None, future=future))

    def commit(self) -> None:
        """All steps or none, on disk when it returns. Raises lmdb.Error and OSError; it may be called again then.

        A step that fails for another reason (an episode that is not there, a record that is damaged) is left out,
        its future gets the error, and the episode it belongs to carries a fault from then on.
        """
        with self.env.writing() as txn:
            self.press.keep(txn, self.env.dbs["meta"])
            for step in self.steps:
                try:
                    step.error, step.outcome = None, step.apply(txn)
                except (lmdb.Error, OSError):
                    raise
                except Exception as error:
                    step.error = error
                    if step.episode is not None:
                        add_fault(txn, self.env.dbs, *step.episode, str(error))

    def tell(self) -> None:
        """Resolves the futures of a batch that is on disk."""
        for step in self.steps:
            if step.future is not None and not step.future.done():
                if step.error is not None:
                    step.future.set_exception(step.error)
                else:
                    step.future.set_result(step.outcome)

    def refuse(self, trouble: StoreTrouble) -> None:
        """Tells those who wait that it is not on disk; it may get there later all the same."""
        for step in self.steps:
            if step.future is not None and not step.future.done():
                step.future.set_exception(trouble)

    def fault(self, run_key: int, key: int, reason: str) -> None:
        """Marks an episode as one of which something could not be stored."""
        dbs = self.env.dbs
        self.steps.append(Step(apply=lambda txn: add_fault(txn, dbs, run_key, key, reason)))


def update_episode(txn: Any, dbs: dict[str, Any], episode: Episode, *, seal: bool = False) -> Episode:
    """Writes the episode's record anew and gives it as a reader sees it. A fault once noted, and a seal, stay."""
    key = episode_key(episode.run_key, episode.key)
    raw = txn.get(key, db=dbs["episodes"])
    if raw is None:
        raise LookupError(f"no episode {episode.key} in run {episode.run_key}")
    stored, session = cold.decode_episode(raw)
    kept = replace(episode, faults=tuple(dict.fromkeys((*stored.faults, *episode.faults))))
    if seal:
        kept = replace(kept, state=EpisodeState.SEALED, seal=seal_of(txn, dbs, episode.key))
    elif kept.seal is None and stored.seal is not None:
        kept = replace(kept, state=stored.state, seal=stored.seal)
    elif kept.seal is not None:
        kept = replace(kept, state=EpisodeState.SEALED)
    txn.put(key, cold.encode_episode(kept, session), db=dbs["episodes"])
    return replace(kept, state=EpisodeState.INCOMPLETE) if kept.seal and kept.faults else kept


def put_exchange(txn: Any, exchanges: Any, key: bytes, record: bytes) -> None:
    # Behind all others LMDB fills each page to its end when it is told so; else it leaves room for one record.
    if not txn.put(key, record, append=True, db=exchanges):
        txn.put(key, record, db=exchanges)


def put_check(txn: Any, dbs: dict[str, Any], run_key: int, record: bytes) -> None:
    _refuse_gone(txn, dbs, run_key)
    txn.put(u64(run_key), record, db=dbs["checks"])
    txn.put(META_LAST_CHECK, u64(run_key), db=dbs["meta"])


def _refuse_gone(txn: Any, dbs: dict[str, Any], run_key: int) -> None:
    # `rm` and `gc` may have come between the reading of the run and this: what is said of no run is damage.
    if txn.get(u64(run_key), db=dbs["runs"]) is None:
        raise UnknownAddress("the run was removed meanwhile")


def put_trial(txn: Any, dbs: dict[str, Any], run_key: int, wall: int, record: bytes) -> None:
    """Under the next free number of its instant; applied again after a failed commit it is still there once."""
    _refuse_gone(txn, dbs, run_key)
    last = -1
    for key in keys_under(txn, dbs["trials"], trial_key(run_key, wall, 0)[:16]):
        if bytes(txn.get(key, db=dbs["trials"])) == record:
            return
        last = int.from_bytes(key[16:], "big")
    txn.put(trial_key(run_key, wall, last + 1), record, db=dbs["trials"])


def annotate(
    txn: Any, dbs: dict[str, Any], run_key: int, keys: Iterable[int], change: Callable[[Episode], Episode]
) -> int:
    """Writes what `change` makes of these episodes; how many it changed. Every record is read and encoded before the
    first is written: when one cannot be, none is."""
    written = []
    for key in keys:
        where = episode_key(run_key, key)
        raw = txn.get(where, db=dbs["episodes"])
        if raw is None or txn.get(where, db=dbs["removed"]) is not None:
            raise LookupError(f"no episode {key} in run {run_key}")
        stored, session = cold.decode_episode(raw)
        if stored.seal is None:
            raise LookupError(f"episode {stored.name} is not sealed")
        changed = change(stored)
        if changed != stored:
            written.append((where, cold.encode_episode(changed, session)))
    for where, record in written:
        txn.put(where, record, db=dbs["episodes"])
    return len(written)


def add_fault(txn: Any, dbs: dict[str, Any], run_key: int, key: int, reason: str) -> None:
    raw = txn.get(episode_key(run_key, key), db=dbs["episodes"])
    try:
        stored, _ = cold.decode_episode(raw or b"")
    except Broken:
        return  # a record that is not there, or damaged, cannot say that more is wrong: readers see it anyway
    update_episode(txn, dbs, replace(stored, faults=(*stored.faults, reason)))


def remove(txn: Any, dbs: dict[str, Any], run_key: int, key: int | None, wall: int) -> None:
    """Marks a run or an episode as removed; its name is free again, its records stay."""
    if key is None:
        txn.put(u64(run_key), u64(wall), db=dbs["removed"])
        run = cold.decode(Run, txn.get(u64(run_key), db=dbs["runs"]))
        _forget(txn, dbs["run-names"], run.name.encode(), run_key)
        return
    marked = episode_key(run_key, key)
    txn.put(marked, u64(wall), db=dbs["removed"])
    episode, _ = cold.decode_episode(txn.get(marked, db=dbs["episodes"]))
    _forget(txn, dbs["episode-names"], episode_name_key(run_key, episode.name), key)


def _forget(txn: Any, names: Any, name: bytes, key: int) -> None:
    if txn.get(name, db=names) == u64(key):  # removed twice: the name may be another's by now
        txn.delete(name, db=names)
