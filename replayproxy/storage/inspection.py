"""What is looked at in a store to find its damages, stage by stage: every record, and LMDB's own pages."""

from __future__ import annotations

import importlib
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import lmdb

from replayproxy.core.prolly import children
from replayproxy.core.shapes import wrong_member
from replayproxy.core.values import Episode, Event, Exchange, Run, Snapshot
from replayproxy.storage import cold, environment, locks
from replayproxy.storage.codec import bodies_of, decode_exchange
from replayproxy.storage.contents import Readable
from replayproxy.storage.dictionaries import Dictionaries, open_dictionary
from replayproxy.storage.frame import Broken, NoDictionary, open_blob
from replayproxy.storage.layout import (
    DATA_FILE,
    META_DICTIONARY,
    META_LAST_CHECK,
    dictionary_key,
    dictionary_number,
    episode_name_key,
    exchange_order,
    number,
    u64,
)
from replayproxy.storage.machines import decoded
from replayproxy.storage.scans import Chain, keys_under, seal_trouble, under

MOST_PAGES = 50
"""Damages of pages that are listed: where one is, there are often thousands."""

RECORDS = ("runs", "episodes", "exchanges", "snapshots", "seals", "events", "checks", "trials", "blobs")
"""The stages that an archive has too; the others look at LMDB's own pages."""

type Damage = dict[str, str]


def damage(kind: str, address: str, why: object, *, gone: bool = False) -> Damage:
    """`gone`: it belongs to a run or an episode that is marked as removed: nobody reads it any more."""
    told = {"kind": kind, "address": address, "why": str(why)}
    return {**told, "removed": "yes"} if gone else told


class Scan:
    """One reading of a store, at one moment. A stage is a method that yields damages. `spare`: more transactions of the
    same moment as `txn`."""

    def __init__(self, env: Readable, txn: Any, spare: Sequence[Any] = ()) -> None:
        self._env, self._txn, self._dbs, self._spare = env, txn, env.dbs, list(spare)
        # Of the same moment as the records: `gc` may delete one while this reads on.
        self._shelf = Dictionaries(self._dictionary)
        self._unreadable: dict[int, str] = {}  # dictionaries, and why
        self._runs: dict[int, str] = {}
        self._episodes: dict[int, str] = {}
        self._gone: set[int] = set()  # episodes that are marked as removed, or their run is
        self._seals: list[Episode] = []
        self._nodes: set[bytes] = set()
        self.read: Counter[str] = Counter()
        self.stages: dict[str, Callable[[], Iterator[Damage]]] = {
            "pages": self.pages,
            "counts": self.counts,
            "runs": self.runs,
            "episodes": self.episodes,
            "dictionaries": self.dictionaries,
            "exchanges": self.exchanges,
            "snapshots": self.snapshots,
            "seals": self.seals,
            "events": self.events,
            "checks": self.checks,
            "trials": self.trials,
            "machines": self.machines,
            "blobs": self.blobs,
        }

    def go_on(self) -> None:
        """After an error of LMDB, which reads nothing more in the transaction that met it."""
        if self._spare:
            self._txn = self._spare.pop()

    def _dictionary(self, number_: int) -> bytes | None:
        if number_ in self._unreadable:
            raise NoDictionary(number_, self._unreadable[number_])
        # Not in the transaction in which the records that need it are being read on.
        txn = self._spare[-1] if self._spare else self._txn
        try:
            found: bytes | None = txn.get(dictionary_key(number_), db=self._dbs["meta"])
        except lmdb.Error as error:
            del self._spare[-1:]
            why = self._unreadable[number_] = f"cannot be read: {error}"
            raise NoDictionary(number_, why) from error
        return found

    def _all(self, db: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for key, value in under(self._txn, self._dbs[db], prefix):
            self.read[db] += 1
            yield key, value

    def _has(self, db: str, key: bytes) -> bool:
        return self._txn.get(key, db=self._dbs[db]) is not None

    def _is_gone(self, run: bytes, episode: bytes = b"") -> bool:
        return self._has("removed", run) or (bool(episode) and self._has("removed", run + episode))

    def pages(self) -> Iterator[Damage]:
        """The tree of pages itself, if nobody is writing: one wrong bit in it can lose records without a trace."""
        assert isinstance(self._env, environment.Environment)
        if locks.living(self._env.path):
            return
        verify: Callable[[str], list[str]] = importlib.import_module("lmdb.verify").verify
        before = self._env.env.info()["last_txnid"]
        troubles = verify(str(self._env.path))
        if before == self._env.env.info()["last_txnid"]:  # else a writer came meanwhile: it read pages in motion
            for trouble in troubles[:MOST_PAGES]:
                yield damage("file", DATA_FILE, trouble)

    def counts(self) -> Iterator[Damage]:
        """Does every database hold as many records as its root says?"""
        for name, db in self._dbs.items():
            expected = self._txn.stat(db)["entries"]
            found = sum(1 for _ in keys_under(self._txn, db, b""))
            if expected != found:
                yield damage("file", name, f"{found} records are there, its root says {expected}")

    def runs(self) -> Iterator[Damage]:
        for key, raw in self._all("runs"):
            try:
                run = cold.decode(Run, raw)
                if u64(run.key) != key:
                    raise Broken("it lies under the key of another record")
            except Broken as broken:
                self._runs[number(key)] = f"run {number(key)}"
                yield damage("run", f"run {number(key)}", broken, gone=self._is_gone(key))
                continue
            self._runs[run.key] = run.name
            if not self._has("removed", key) and self._txn.get(run.name.encode(), db=self._dbs["run-names"]) != key:
                yield damage("name", run.name, "its name leads to another run, or nowhere")
        for name, key in self._all("run-names"):
            if not self._has("runs", key):
                yield damage("name", name.decode("utf-8", "backslashreplace"), "the run it names is not there")

    def episodes(self) -> Iterator[Damage]:
        for key, raw in self._all("episodes"):
            run, gone = number(key[:8]), self._is_gone(key[:8], key[8:])
            if gone:
                self._gone.add(number(key[8:]))
            where = f"{self._runs.get(run, f'run {run}')}/episode {number(key[8:])}"
            try:
                episode, _ = cold.decode_episode(raw)
                if u64(episode.run_key) + u64(episode.key) != key:
                    raise Broken("it lies under the key of another record")
            except Broken as broken:
                self._episodes[number(key[8:])] = where
                yield damage("episode", where, broken, gone=gone)
                continue
            where = f"{self._runs.get(run, f'run {run}')}/{episode.name}"
            self._episodes[episode.key] = where
            if episode.seal is not None:
                self._seals.append(episode)
            if not self._has("runs", key[:8]):
                yield damage("episode", where, "its run is not there")
            named = self._txn.get(episode_name_key(run, episode.name), db=self._dbs["episode-names"])
            # Names in a removed run lead nobody anywhere: `gc` may have been killed among them.
            if named != key[8:] and not gone:
                yield damage("name", where, "its name leads to another episode, or nowhere")
        for name, key in self._all("episode-names"):
            if not self._has("episodes", name[:8] + key) and not self._has("removed", name[:8]):
                shown = name[8:].decode("utf-8", "backslashreplace")
                where = f"{self._runs.get(number(name[:8]), f'run {number(name[:8])}')}/{shown}"
                yield damage("name", where, "the episode it names is not there")

    def _numbered(self, db: str) -> Iterator[tuple[str, int, bytes, bytes]]:
        """Every record of an episode-wise database: the episode's address, the record's number in it, key, value."""
        current, seq = b"", 0
        for key, raw in self._all(db):
            seq = seq + 1 if key[:8] == current else 1
            current = key[:8]
            yield self._episodes.get(number(current), f"episode {number(current)}"), seq, key, raw

    def _orphan(self, key: bytes, where: str, seq: int) -> Iterator[Damage]:
        if seq == 1 and number(key[:8]) not in self._episodes:
            yield damage("episode", where, "it has records, and is not there itself")

    def dictionaries(self) -> Iterator[Damage]:
        for key, raw in under(self._txn, self._dbs["meta"], META_DICTIONARY):
            try:
                found = dictionary_number(key)
                self.read["dictionaries"] += 1
                open_dictionary(found, raw)
            except (Broken, struct.error) as broken:
                yield damage("dictionary", key[len(META_DICTIONARY) :].hex(), broken)

    def exchanges(self) -> Iterator[Damage]:
        lost: Counter[tuple[int, str, str, bool]] = Counter()
        for where, seq, key, raw in self._numbered("exchanges"):
            yield from self._orphan(key, where, seq)
            gone = number(key[:8]) in self._gone
            try:
                exchange = decode_exchange(raw, exchange_order(key), seq, self._shelf)
                if (wrong := wrong_member(exchange)) is not None:
                    raise Broken(f"its {wrong} is of the wrong type")
            except NoDictionary as missing:
                lost[missing.number, where, missing.why, gone] += 1
                continue
            except Broken as broken:
                yield damage("exchange", f"{where}#{seq}", broken, gone=gone)
                continue
            yield from self._bodies(f"{where}#{seq}", exchange, gone=gone)
        for (number_, where, why, gone), count in lost.items():  # one line an episode: there may be very many exchanges
            told = f"{count} of its exchanges need dictionary {number_}, which {why}"
            yield damage("exchange", where, told, gone=gone)

    def _bodies(self, where: str, exchange: Exchange, *, gone: bool) -> Iterator[Damage]:
        for which, body in bodies_of(exchange):
            missing = sum(not self._has("blobs", address) for address in body.pieces)
            if missing:
                told = f"{missing} of {len(body.pieces)} pieces of its {which} are missing"
                yield damage("body", where, told, gone=gone)

    def snapshots(self) -> Iterator[Damage]:
        for where, _, key, raw in self._numbered("snapshots"):
            address, gone = f"{where}/s{int.from_bytes(key[8:], 'big')}", number(key[:8]) in self._gone
            try:
                shot = cold.decode(Snapshot, raw)
                if shot.n != int.from_bytes(key[8:], "big"):
                    raise Broken("it lies under the key of another record")
            except Broken as broken:
                yield damage("snapshot", address, broken, gone=gone)
                continue
            for root in (shot.root, shot.aside):
                if root is not None and (missing := self._missing_nodes(root)):
                    told = f"{missing} nodes of its state are missing or damaged"
                    yield damage("snapshot", address, told, gone=gone)

    def _missing_nodes(self, root: bytes) -> int:
        """Walks a state's tree; what an earlier snapshot shares with it is not walked again unless it was damaged."""
        missing, todo = 0, [root]
        while todo:
            address = todo.pop()
            if address in self._nodes:
                continue
            raw = self._txn.get(address, db=self._dbs["blobs"])
            try:
                todo += children(open_blob(address, raw or b""))
                self._nodes.add(address)
            except (Broken, ValueError):
                missing += 1
        return missing

    def seals(self) -> Iterator[Damage]:
        for episode in self._seals:
            chain = Chain()
            for key, raw in under(self._txn, self._dbs["exchanges"], u64(episode.key)):
                chain.exchange(key, raw)
            for key, raw in under(self._txn, self._dbs["snapshots"], u64(episode.key)):
                chain.snapshot(key, raw)
            assert episode.seal is not None
            if trouble := seal_trouble(episode.seal, chain.seal()):
                yield damage("seal", self._episodes[episode.key], trouble, gone=episode.key in self._gone)

    def events(self) -> Iterator[Damage]:
        for where, seq, key, raw in self._numbered("events"):
            yield from self._orphan(key, where, seq)
            try:
                cold.decode(Event, raw)
            except Broken as broken:
                yield damage("event", f"event {seq} of {where}", broken, gone=number(key[:8]) in self._gone)

    def checks(self) -> Iterator[Damage]:
        for key, raw in self._all("checks"):
            try:
                cold.decode_document(raw)
            except Broken as broken:
                run = self._runs.get(number(key), f"run {number(key)}")
                yield damage("check", run, broken, gone=self._is_gone(key))
        last = self._txn.get(META_LAST_CHECK, db=self._dbs["meta"])
        if last is not None and not self._has("checks", last):
            yield damage("check", self._runs.get(number(last), "?"), "the last check is not there")

    def trials(self) -> Iterator[Damage]:
        for key, raw in self._all("trials") if "trials" in self._dbs else ():
            where = f"a trial of {self._runs.get(number(key[:8]), f'run {number(key[:8])}')}"
            if not self._has("runs", key[:8]):
                yield damage("trial", where, "its run is not there")
            try:
                cold.decode_document(raw)
            except Broken as broken:
                yield damage("trial", where, broken, gone=self._is_gone(key[:8]))

    def machines(self) -> Iterator[Damage]:
        for key, raw in self._all("machines") if "machines" in self._dbs else ():
            where = f"the machine of {self._runs.get(number(key), f'run {number(key)}')}"
            if not self._has("runs", key):
                yield damage("machine", where, "its run is not there")
            try:
                decoded(raw)
            except Broken as broken:
                yield damage("machine", where, broken, gone=self._is_gone(key))

    def blobs(self) -> Iterator[Damage]:
        for address, raw in self._all("blobs"):
            try:
                open_blob(address, raw)
            except Broken as broken:
                yield damage("blob", address.hex(), broken)
