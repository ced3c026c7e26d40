"""Chosen runs and episodes of a store into an archive: records as they lie there, and every blob they lead to.

Run and episode records are the exception: they name their own numbers, and are written anew with those of the archive.
So are records that need a dictionary, without it: it is made of other episodes as well. Their checksums stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from replayproxy.core.prolly import children
from replayproxy.core.values import Body, Episode, Event, Run, Snapshot
from replayproxy.errors import DamagedRecord
from replayproxy.storage import cold
from replayproxy.storage.archive import ArchiveWriter
from replayproxy.storage.codec import bodies_of, decode_exchange
from replayproxy.storage.frame import Broken, open_blob, pressed
from replayproxy.storage.layout import episode_key, exchange_order, trial_key, u64
from replayproxy.storage.reader import AT_ONCE, Reader
from replayproxy.storage.scans import Chain, seal_trouble, under

NOBODY = 0
"""The writer's number of every episode in an archive: no writer has it."""


class Packer:
    """Fills one archive; memory holds the addresses of the blobs that are in it already. `count`: what went in."""

    def __init__(self, out: ArchiveWriter) -> None:
        self.count: Counter[str] = Counter()
        self._out = out
        self._runs = self._episodes = 0
        self._blobs: set[bytes] = set()

    def run(
        self, reader: Reader, run: Run, episodes: Iterable[Episode], *, whole: bool,
        check: Mapping[str, Any] | None = None, trials: Sequence[Mapping[str, Any]] = (), roots: Iterable[bytes] = (),
    ) -> None:  # fmt: skip
        """`whole`: all its episodes are among them, so that the check last saved for the run speaks of what is there;
        so do the trials of its findings. Else `check` and `trials` are what is said of those that are there. `roots`:
        states of others that belong to it.

        Raises DamagedRecord when a record is not what was written: nothing is archived that would not be believed.
        """
        self._runs += 1
        key = u64(self._runs)
        self._put(b"R", key, cold.encode(replace(run, key=self._runs)), "runs")
        if whole:
            with reader.env.reading() as txn:
                saved = txn.get(u64(run.key), db=reader.env.dbs["checks"])
                tried = list(under(txn, reader.env.dbs["trials"], u64(run.key))) if "trials" in reader.env.dbs else []
            for raw in (saved, *(raw for _, raw in tried)):
                try:
                    cold.decode_document(raw) if raw is not None else None
                except Broken as broken:
                    told = f"what was judged of {run.name} in {reader.env.path} is damaged: {broken}"
                    raise DamagedRecord(told, hint="replayproxy fsck") from broken
            if saved is not None:
                self._put(b"C", key, saved, "checks")
            for at, raw in tried:
                self._put(b"T", key + at[8:], raw, "trials")
        elif check is not None:
            self._put(b"C", key, cold.encode_document(check), "checks")
            for number, trial in enumerate(trials):
                place = trial_key(self._runs, max(0, int(trial.get("wall", 0))), number)
                self._put(b"T", place, cold.encode_document(trial), "trials")
        for root in roots:
            self._tree(reader, root, lambda why: DamagedRecord(f"a reference in {reader.env.path} is damaged: {why}"))
        for episode in episodes:
            self._episode(reader, run, episode)

    def _put(self, kind: bytes, key: bytes, value: bytes, what: str) -> None:
        self._out.put(kind, key, value)
        self.count[what] += 1

    def _episode(self, reader: Reader, run: Run, episode: Episode) -> None:
        self._episodes += 1
        stored = replace(_stored(reader, episode), run_key=self._runs, key=self._episodes)
        self._put(b"E", episode_key(self._runs, self._episodes), cold.encode_episode(stored, NOBODY), "episodes")
        address, number, chain = f"{run.name}/{episode.name}", u64(self._episodes), Chain()

        def damaged(what: str, why: object) -> DamagedRecord:
            return DamagedRecord(f"{address}{what} in {reader.env.path} is damaged: {why}", hint="replayproxy fsck")

        def damage_of(what: str) -> Callable[[object], DamagedRecord]:
            return lambda why: damaged(what, why)

        for seq, (key, raw) in enumerate(_records(reader, "exchanges", episode), 1):
            try:
                raw = pressed(raw, reader.env.dictionaries)
                exchange = decode_exchange(raw, exchange_order(key), seq)
            except Broken as broken:
                raise damaged(f"#{seq}", broken) from broken
            chain.exchange(key, raw)
            for _, body in bodies_of(exchange):
                self._body(reader, body, damage_of(f"#{seq}"))
            self._put(b"X", number + key[8:], raw, "exchanges")
        for key, raw in _records(reader, "snapshots", episode):
            try:
                shot = cold.decode(Snapshot, raw)
            except Broken as broken:
                raise damaged(f"/s{int.from_bytes(key[8:], 'big')}", broken) from broken
            chain.snapshot(key, raw)
            for root in (shot.root, shot.aside):
                self._tree(reader, root, damage_of(f"/s{shot.n}"))
            self._put(b"S", number + key[8:], raw, "snapshots")
        if stored.seal is not None and (trouble := seal_trouble(stored.seal, chain.seal())):
            raise damaged("", trouble)
        for key, raw in _records(reader, "events", episode):
            try:
                cold.decode(Event, raw)
            except Broken as broken:
                raise damaged(": an event", broken) from broken
            self._put(b"V", number + key[8:], raw, "events")

    def _body(self, reader: Reader, body: Body, damaged: Callable[[object], DamagedRecord]) -> None:
        for address in body.pieces:
            if address not in self._blobs:
                self._blob(reader, address, damaged)

    def _tree(self, reader: Reader, root: bytes | None, damaged: Callable[[object], DamagedRecord]) -> None:
        todo = [] if root is None else [root]
        while todo:
            address = todo.pop()
            if address in self._blobs:
                continue
            try:
                todo += children(self._blob(reader, address, damaged))
            except ValueError as error:
                raise damaged(error) from error

    def _blob(self, reader: Reader, address: bytes, damaged: Callable[[object], DamagedRecord]) -> bytes:
        with reader.env.reading() as txn:
            raw = txn.get(address, db=reader.env.dbs["blobs"])
        try:
            data = open_blob(address, raw or b"")
        except Broken as broken:
            raise damaged("a piece of it is missing" if raw is None else broken) from broken
        self._blobs.add(address)
        self._put(b"B", address, raw, "blobs")
        return data


def _stored(reader: Reader, episode: Episode) -> Episode:
    """The episode as its record says, not as its reader sees it (a seal with a fault reads as incomplete)."""
    with reader.env.reading() as txn:
        raw = txn.get(episode_key(episode.run_key, episode.key), db=reader.env.dbs["episodes"])
    return cold.decode_episode(raw)[0]


def _records(reader: Reader, db: str, episode: Episode) -> Iterator[tuple[bytes, bytes]]:
    """An episode's records in order, in short transactions: a recorder beside it must not keep old pages for this."""
    prefix = start = u64(episode.key)
    while True:
        with reader.env.reading() as txn:
            found = list(islice(_from(txn, reader.env.dbs[db], start, prefix), AT_ONCE))
        yield from found
        if len(found) < AT_ONCE:
            return
        start = found[-1][0] + b"\0"


def _from(txn: Any, db: Any, start: bytes, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    if start == prefix:
        yield from under(txn, db, prefix)
        return
    with txn.cursor(db) as cursor:
        if not cursor.set_range(start):
            return
        for key, value in cursor.iternext():
            if key[:8] != prefix:
                return
            yield key, value
