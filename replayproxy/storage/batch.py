"""What the writer's thread commits together: encoded records, and the steps that must read before they write.

Every step may be applied again after a failed commit and then has the same effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import lmdb

from replayproxy.core.values import Episode, EpisodeState, Event, Exchange, Run, Snapshot
from replayproxy.storage import cold
from replayproxy.storage.codec import encode_exchange, settle
from replayproxy.storage.environment import Environment
from replayproxy.storage.frame import seal_blob
from replayproxy.storage.layout import (
    META_LAST_CHECK,
    episode_key,
    episode_name_key,
    event_key,
    exchange_key,
    snapshot_key,
    u64,
)
from replayproxy.storage.scans import seal_of


@dataclass(slots=True)
class Step:
    """One change of the store. `outcome` is what `future` resolves to once the change is on disk."""

    apply: Callable[[Any], Any]
    episode: int | None = None
    future: Future[Any] | None = None
    outcome: Any = None
    error: Exception | None = None


@dataclass(slots=True)
class Batch:
    """Steps in order. `durable`: the commit must be synced before anybody is told."""

    env: Environment
    steps: list[Step] = field(default_factory=list)
    blobs: set[bytes] = field(default_factory=set)
    cost: int = 0
    count: int = 0
    durable: bool = False

    def put(self, db: str, key: bytes, value: bytes, episode: int | None = None) -> None:
        handle = self.env.dbs[db]
        self.steps.append(Step(apply=lambda txn: txn.put(key, value, db=handle), episode=episode))

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
        request, response = exchange.request, exchange.response
        stored = replace(
            exchange,
            request=replace(request, body=settle(request.body, self.blob)),
            response=response and replace(response, body=settle(response.body, self.blob)),
        )
        self.put("exchanges", exchange_key(episode, exchange.order), encode_exchange(stored), episode)

    def snapshot(self, episode: int, snapshot: Snapshot) -> None:
        self.put("snapshots", snapshot_key(episode, snapshot.n), cold.encode(snapshot), episode)

    def event(self, episode: int, event: Event, session: int, count: int) -> None:
        self.put("events", event_key(episode, event.at, session, count), cold.encode(event), episode)

    def open_episode(self, episode: Episode, session: int) -> None:
        self.put("episodes", episode_key(episode.run_key, episode.key), cold.encode_episode(episode, session))
        self.put("episode-names", episode_name_key(episode.run_key, episode.name), u64(episode.key))

    def update_run(self, run: Run) -> None:
        self.put("runs", u64(run.key), cold.encode(run))

    def check(self, run_key: int, document: Mapping[str, Any]) -> None:
        self.put("checks", u64(run_key), cold.encode_document(document))
        self.put("meta", META_LAST_CHECK, u64(run_key))

    def update_episode(self, episode: Episode, future: Future[Any] | None, *, seal: bool = False) -> None:
        cold.encode_episode(episode, 0)  # what cannot be encoded fails here, before the transaction
        dbs = self.env.dbs
        self.durable |= seal
        self.steps.append(
            Step(apply=lambda txn: update_episode(txn, dbs, episode, seal=seal), episode=episode.key, future=future)
        )

    def remove(self, run_key: int, key: int | None, wall: int) -> None:
        dbs = self.env.dbs
        self.steps.append(Step(apply=lambda txn: remove(txn, dbs, run_key, key, wall)))

    def flush(self, future: Future[Any]) -> None:
        self.durable = True
        self.steps.append(Step(apply=lambda txn: None, future=future))

    def commit(self, run_of: Callable[[int], int | None]) -> None:
        """All steps or none. Raises lmdb.Error and OSError, after which it may be called again.

        A step that fails for another reason is our own fault: it is left out, its future gets the error, and the
        episode it belongs to carries a fault from then on. `run_of` gives an open episode's run.
        """
        with self.env.writing() as txn:
            for step in self.steps:
                try:
                    step.error, step.outcome = None, step.apply(txn)
                except (lmdb.Error, OSError):
                    raise
                except Exception as error:
                    step.error = error
                    if step.episode is not None:
                        add_fault(txn, self.env.dbs, run_of(step.episode), step.episode, str(error))
        self.env.fill_up()
        if self.durable:
            self.env.env.sync(True)

    def fault(self, run_key: int | None, key: int, reason: str) -> None:
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


def add_fault(txn: Any, dbs: dict[str, Any], run_key: int | None, key: int, reason: str) -> None:
    if run_key is None:
        return
    raw = txn.get(episode_key(run_key, key), db=dbs["episodes"])
    if raw is not None:
        stored, _ = cold.decode_episode(raw)
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
