"""Reads a store, from any process and any thread, beside a recorder or without one.

Every call looks at one moment: its transactions are short. Whatever is damaged raises DamagedRecord that names the
run, the episode and the exchange, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from replayproxy.core.canonical import VIEW_LIMIT
from replayproxy.core.shown import count
from replayproxy.core.values import (
    UNATTRIBUTED,
    Body,
    Episode,
    EpisodeState,
    Event,
    Exchange,
    Run,
    Snapshot,
    Trace,
)
from replayproxy.errors import DamagedRecord, Problem, UnknownAddress
from replayproxy.storage import cold
from replayproxy.storage.codec import decode_exchange
from replayproxy.storage.contents import Contents
from replayproxy.storage.frame import Broken
from replayproxy.storage.layout import (
    META_LAST_CHECK,
    episode_key,
    episode_name_key,
    exchange_order,
    number,
    u64,
)
from replayproxy.storage.machines import Machine, decoded
from replayproxy.storage.resolve import Resolved, resolve
from replayproxy.storage.scans import Chain, keys_under, seal_trouble, under

AT_ONCE = 64
"""Exchanges read in one transaction by `exchanges`: a slow caller must not keep old pages from being used again."""


class Reader(Contents):
    """See the module. Made by `Store.reader`."""

    # Runs and episodes

    def runs(self) -> list[Run]:
        """Every run that is not removed, the oldest first."""
        with self._env.reading() as txn:
            records = list(under(txn, self._env.dbs["runs"], b""))
            removed = {key for key in keys_under(txn, self._env.dbs["removed"], b"") if len(key) == 8}
        listed = [self._run(key, raw) for key, raw in records if key not in removed]
        return sorted(listed, key=lambda run: (run.opened_wall, run.key))

    def run(self, name: str) -> Run:
        """The run of that name; `latest` is the one opened last. Raises UnknownAddress."""
        if name == "latest":
            listed = self.runs()
            if not listed:
                raise UnknownAddress(f"{self._env.path} holds no run")
            return listed[-1]
        with self._env.reading() as txn:
            key = txn.get(name.encode("utf-8", "replace"), db=self._env.dbs["run-names"]) if name else None
            raw = None if key is None else txn.get(key, db=self._env.dbs["runs"])
        if key is None:
            raise UnknownAddress(f"no run {name!r} in {self._env.path}", hint="replayproxy ls")
        if raw is None:
            raise self._damaged(f"run {name}", "its record is missing")
        return self._run(key, raw)

    def episodes(self, run: Run) -> list[Episode]:
        """Every episode of the run that is not removed, in the order of opening, without `unattributed`."""
        with self._env.reading() as txn:
            records = list(under(txn, self._env.dbs["episodes"], u64(run.key)))
            removed = set(keys_under(txn, self._env.dbs["removed"], u64(run.key)))
        living: dict[int, bool] = {}
        listed = [self._episode(run, key, raw, living) for key, raw in records if key not in removed]
        return [episode for episode in listed if episode.name != UNATTRIBUTED]

    def episode(self, run: Run, name: str) -> Episode:
        """The episode of that name, `unattributed` too where something is in it. Raises UnknownAddress."""
        with self._env.reading() as txn:
            key = txn.get(
                episode_name_key(run.key, name.encode("utf-8", "replace").decode()), db=self._env.dbs["episode-names"]
            )
            full = episode_key(run.key, number(key)) if key is not None else b""
            raw = txn.get(full, db=self._env.dbs["episodes"]) if key is not None else None
        if key is None:
            raise UnknownAddress(f"no episode {name!r} in run {run.name}", hint=f"replayproxy ls {run.name}")
        if raw is None:
            raise self._damaged(f"{run.name}/{name}", "its record is missing")
        return self._episode(run, full, raw, {})

    def _run(self, key: bytes, raw: bytes) -> Run:
        try:
            run = cold.decode(Run, raw)
            if run.key != number(key):
                raise Broken("it lies under the key of another record")
        except Broken as broken:
            raise self._damaged(f"run {number(key)}", broken) from broken
        return run

    def _episode(self, run: Run, key: bytes, raw: bytes, living: dict[int, bool]) -> Episode:
        try:
            episode, session = cold.decode_episode(raw)
            if episode_key(episode.run_key, episode.key) != key:
                raise Broken("it lies under the key of another record")
        except Broken as broken:
            raise self._damaged(f"episode {number(key[8:])} of run {run.name}", broken) from broken
        if episode.state is EpisodeState.SEALED:
            return replace(episode, state=EpisodeState.INCOMPLETE) if episode.faults else episode
        if session not in living:
            living[session] = self._env.is_writing(session)
        if episode.state is EpisodeState.OPEN and not living[session]:
            return replace(episode, state=EpisodeState.INCOMPLETE)
        return episode

    # What an episode holds

    def count(self, episode: Episode) -> int:
        """How many exchanges it holds."""
        if episode.seal is not None:
            return episode.seal.exchanges
        with self._env.reading() as txn:
            return sum(1 for _ in keys_under(txn, self._env.dbs["exchanges"], u64(episode.key)))

    def exchanges(self, episode: Episode, *, bodies: int = 0) -> Iterator[Exchange]:
        """In order, numbered from 1. Bodies of at most `bodies` bytes that lie apart are loaded. Memory stays flat.

        A sealed episode that lacks some raises at its end: DamagedRecord, or UnknownAddress where it was removed.
        """
        seq, start = 0, u64(episode.key)
        while True:
            with self._env.reading() as txn:
                records = list(islice(self._records(txn, episode, start), AT_ONCE))
                self._know(txn, records)
            for key, raw in records:
                seq += 1
                yield self._exchange(episode, key, raw, seq, bodies)
            if len(records) < AT_ONCE:
                break
            start = records[-1][0] + b"\0"
        if episode.seal is not None and seq < episode.seal.exchanges:
            raise self._lacking(
                episode, f"it was sealed with {count(episode.seal.exchanges, 'exchange')}, {seq} are there"
            )

    def _records(self, txn: Any, episode: Episode, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        prefix = u64(episode.key)
        with txn.cursor(self._env.dbs["exchanges"]) as cursor:
            if not cursor.set_range(start):
                return
            for key, raw in cursor.iternext():
                if key[:8] != prefix:
                    return
                yield key, raw

    def _know(self, txn: Any, exchanges: list[tuple[bytes, bytes]]) -> None:
        self._env.dictionaries.know_of(txn, self._env.dbs["meta"], (raw for _, raw in exchanges))

    def exchange(self, episode: Episode, seq: int, *, bodies: int = 0) -> Exchange:
        """The exchange of that number. Raises UnknownAddress."""
        with self._env.reading() as txn:
            keys = keys_under(txn, self._env.dbs["exchanges"], u64(episode.key))
            key = next(islice(keys, max(seq - 1, 0), None), None) if seq > 0 else None
            keys.close()  # type: ignore[attr-defined]
            raw = None if key is None else txn.get(key, db=self._env.dbs["exchanges"])
            if key is not None and raw is not None:
                self._know(txn, [(key, raw)])
        if key is None or raw is None:
            raise UnknownAddress(f"no exchange {seq} in {self.address(episode)}: it has {self.count(episode)}")
        return self._exchange(episode, key, raw, seq, bodies)

    def _exchange(self, episode: Episode, key: bytes, raw: bytes, seq: int, bodies: int) -> Exchange:
        try:
            exchange = decode_exchange(raw, exchange_order(key), seq, self._env.dictionaries)
        except Broken as broken:
            raise self._damaged(f"{self.address(episode)}#{seq}", broken) from broken
        return self._with_bodies(episode, exchange, bodies)

    def _with_bodies(self, episode: Episode, exchange: Exchange, limit: int) -> Exchange:
        request, response, talk = exchange.request, exchange.response, exchange.websocket
        log = talk.log.body if talk is not None and talk.log is not None else None

        def wanted(body: Body | None) -> bool:
            return body is not None and body.inline is None and body.size <= limit

        if not (wanted(request.body) or (response is not None and wanted(response.body)) or wanted(log)):
            return exchange

        def loaded(body: Body | None) -> Body | None:
            if body is None or not wanted(body):
                return body
            return replace(body, inline=self.body(body))

        try:
            if talk is not None and talk.log is not None and talk.log.body.size <= limit:
                talk = replace(talk, messages=tuple(self.messages(talk)))
            return replace(
                exchange,
                request=replace(request, body=loaded(request.body)),
                response=response and replace(response, body=loaded(response.body)),
                websocket=talk,
            )
        except DamagedRecord as damaged:
            raise self._damaged(f"{self.address(episode)}#{exchange.seq}", damaged.what) from damaged

    def snapshots(self, episode: Episode) -> list[Snapshot]:
        """In order, with the numbers of the exchanges they refer to."""
        with self._env.reading() as txn:
            records = list(under(txn, self._env.dbs["snapshots"], u64(episode.key)))
            keys = list(keys_under(txn, self._env.dbs["exchanges"], u64(episode.key))) if records else []
        return self._snapshots(episode, records, keys)

    def _snapshots(
        self, episode: Episode, records: list[tuple[bytes, bytes]], exchanges: list[bytes]
    ) -> list[Snapshot]:
        seqs = {exchange_order(key): seq for seq, key in enumerate(exchanges if records else (), 1)}
        found = []
        for key, raw in records:
            try:
                shot = cold.decode(Snapshot, raw)
                if shot.n != int.from_bytes(key[8:], "big"):
                    raise Broken("it lies under the key of another record")
            except Broken as broken:
                where = f"{self.address(episode)}/s{int.from_bytes(key[8:], 'big')}"
                raise self._damaged(where, broken) from broken
            flying = tuple(sorted(seqs[order] for order in shot.in_flight if order in seqs))
            found.append(replace(shot, after_seq=shot.after and seqs.get(shot.after), in_flight_seq=flying))
        return found

    def events(self, episode: Episode) -> list[Event]:
        """In the order of their instants."""
        with self._env.reading() as txn:
            records = [raw for _, raw in under(txn, self._env.dbs["events"], u64(episode.key))]
        try:
            return [cold.decode(Event, raw) for raw in records]
        except Broken as broken:
            raise self._damaged(f"an event of {self.address(episode)}", broken) from broken

    def trace(self, run: Run, episode: Episode, *, bodies: int = VIEW_LIMIT) -> Trace:
        """The whole episode, bodies up to `bodies` bytes loaded, all of one moment.

        A sealed episode whose records are not those it was sealed with raises DamagedRecord.
        """
        chain, prefix = Chain(), u64(episode.key)
        with self._env.reading() as txn:
            exchanges = list(under(txn, self._env.dbs["exchanges"], prefix))
            snapshots = list(under(txn, self._env.dbs["snapshots"], prefix))
            self._know(txn, exchanges)
        for key, raw in exchanges:
            chain.exchange(key, raw)
        for key, raw in snapshots:
            chain.snapshot(key, raw)
        read = [self._exchange(episode, key, raw, seq, bodies) for seq, (key, raw) in enumerate(exchanges, 1)]
        shots = self._snapshots(episode, snapshots, [key for key, _ in exchanges])
        if episode.seal is not None and (trouble := seal_trouble(episode.seal, chain.seal())):
            raise self._lacking(episode, trouble)
        return Trace(run=run, episode=episode, exchanges=read, snapshots=shots, events=self.events(episode))

    def _lacking(self, episode: Episode, trouble: str) -> Problem:
        key, removed = episode_key(episode.run_key, episode.key), self._env.dbs["removed"]
        with self._env.reading() as txn:
            there = txn.get(key, db=self._env.dbs["episodes"]) is not None
            marked = txn.get(key, db=removed) is not None or txn.get(key[:8], db=removed) is not None
        if there and not marked:
            return self._damaged(self.address(episode), trouble)
        return UnknownAddress(f"{episode.name} was removed from {self._env.path} while it was read")

    def machine(self, run: Run) -> Machine | None:
        """Which machine recorded a run; None where that was not kept: before there was a place for it, or imported."""
        if "machines" not in self._env.dbs:
            return None
        with self._env.reading() as txn:
            raw = txn.get(u64(run.key), db=self._env.dbs["machines"])
        try:
            return None if raw is None else decoded(raw)
        except Broken as broken:
            raise self._damaged(f"the machine of run {run.name}", broken) from broken

    # Judgements

    def check(self, run: Run) -> dict[str, Any] | None:
        """The check document last saved for a run."""
        with self._env.reading() as txn:
            raw = txn.get(u64(run.key), db=self._env.dbs["checks"])
        return None if raw is None else self._document(f"the check of run {run.name}", raw)

    def findings(self, run: Run) -> list[dict[str, Any]]:
        """The findings of the check last saved for a run."""
        return list((self.check(run) or {}).get("findings", ()))

    def last_check(self) -> tuple[Run, dict[str, Any]] | None:
        """The check document last saved in this store, and its run; of an archive the only one. `F1` and so on refer
        to it."""
        with self._env.reading() as txn:
            key = txn.get(META_LAST_CHECK, db=self._env.dbs["meta"])
            if key is None:
                saved = list(islice(keys_under(txn, self._env.dbs["checks"], b""), 2))
                key = saved[0] if len(saved) == 1 else None
            record = None if key is None else txn.get(key, db=self._env.dbs["runs"])
            raw = None if key is None else txn.get(key, db=self._env.dbs["checks"])
        if key is None or record is None or raw is None:
            return None
        run = self._run(key, record)
        return run, self._document(f"the check of run {run.name}", raw)

    def trials(self, run: Run) -> list[dict[str, Any]]:
        """What came of sending findings of a run again, in the order of time. They stay through a new check."""
        if "trials" not in self._env.dbs:
            return []
        with self._env.reading() as txn:
            records = [raw for _, raw in under(txn, self._env.dbs["trials"], u64(run.key))]
        return [self._document(f"a trial of run {run.name}", raw) for raw in records]

    def resolve(self, address: str) -> Resolved:
        """What an address names in this store. Raises UnknownAddress."""
        return resolve(self, address)

    # Words

    def address(self, episode: Episode) -> str:
        """RUN/EPISODE, for messages."""
        with self._env.reading() as txn:
            raw = txn.get(u64(episode.run_key), db=self._env.dbs["runs"])
        try:
            return f"{cold.decode(Run, raw or b'').name}/{episode.name}"
        except Broken:
            return f"run {episode.run_key}/{episode.name}"

    def _document(self, what: str, raw: bytes) -> dict[str, Any]:
        try:
            return cold.decode_document(raw)
        except Broken as broken:
            raise self._damaged(what, broken) from broken
