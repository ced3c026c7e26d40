"""Runs of other stores into one, record by record as they are, numbered anew.

A run is one machine's: runs of one name that were begun elsewhere or at another time are never joined, the second is
called NAME@NODE. What is there already is left out, so a merge that is done again, or goes on, adds what is new.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from replayproxy.core.values import UNATTRIBUTED, Episode, Event, Run
from replayproxy.errors import DamagedRecord, Problem, StoreTrouble, UnknownAddress, WrongUsage
from replayproxy.storage import cold, locks
from replayproxy.storage.environment import Environment
from replayproxy.storage.frame import Broken, open_blob, pressed
from replayproxy.storage.intake import Intake
from replayproxy.storage.layout import u64
from replayproxy.storage.reach import Reach
from replayproxy.storage.reader import Reader
from replayproxy.storage.scans import Chain, seal_trouble, under
from replayproxy.storage.store import Store, open_store


@dataclass(slots=True, kw_only=True)
class Merged:
    """What came in. `runs`: the names here of those that did; `renamed`: name here -> what it was called; `left`: what
    was not taken, and why."""

    runs: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    count: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)


class Merger:
    """Takes stores in, one after the other; nothing of them is seen before `publish`."""

    def __init__(self, into: Store) -> None:
        self.told = Merged()
        self._into = into.env
        self._reader = into.reader()
        self._intake = Intake(into)
        self._came: dict[
            str, tuple[Run, str]
        ] = {}  # the runs of this merge by the names they have here, and their nodes
        self._episodes: dict[tuple[int, str], Episode] = {}

    def take(self, source: Store) -> None:
        """Raises StoreTrouble when somebody writes to it, DamagedRecord when a record is not what was written."""
        env = source.env
        if env is self._into:
            raise WrongUsage(f"{env.path} cannot be merged into itself", hint="--into another directory")
        if locks.living(env.path):
            raise StoreTrouble(f"{env.path} is being written to", hint="merge it when its recorder has ended")
        reader = source.reader()
        for run in reader.runs():
            self._run(env, reader, run)

    def publish(self) -> Merged:
        """All of it is there, and on disk, when it returns."""
        self._intake.publish()
        return self.told

    def give_up(self) -> None:
        """What was taken and not published stays hidden, and is `gc`'s."""
        self._intake.give_up()

    def _run(self, env: Environment, reader: Reader, run: Run) -> None:
        machine = reader.machine(run)
        made, is_new = self._place(env, run, machine.name if machine else "")
        if is_new:
            self.told.runs.append(made.name)
            self.told.count["runs"] += 1
            if made.name != run.name:
                self.told.renamed[made.name] = run.name
            if machine is not None:
                self._intake.put("machines", u64(made.key), machine.encoded())
        with env.reading() as txn:
            reach = Reach(txn, env.dbs, env.dictionaries)
            for episode in _stored(env, txn, run):
                self._episode(env, txn, reach, made, episode)
            self._judgements(env, txn, reach, run, made, is_new=is_new)
            for address in reach.blobs:
                raw = txn.get(address, db=env.dbs["blobs"]) or b""
                try:
                    open_blob(address, raw)
                except Broken as broken:
                    raise _damaged(env, f"something of run {run.name}", broken) from broken
                self._intake.blob(address, raw)

    def _place(self, env: Environment, run: Run, node: str) -> tuple[Run, bool]:
        """The run of that name here that is the same one, or a new one; and whether it is new."""
        for name in (run.name, f"{run.name}@{node}") if node else (run.name,):
            known = self._known(name)
            if known is None:
                made = self._intake.run(replace(run, name=name))
                self._came[name] = made, node
                return made, True
            if known[0].opened_wall == run.opened_wall and known[1] == node:
                return known[0], False
        raise WrongUsage(
            f"run {run.name} of {env.path} is another than the one of that name in {self._into.path}",
            hint="export it, and import it with --run NAME",
        )

    def _known(self, name: str) -> tuple[Run, str] | None:
        if name in self._came:
            return self._came[name]
        try:
            run = self._reader.run(name)
        except UnknownAddress:
            return None
        machine = self._reader.machine(run)
        return run, machine.name if machine else ""

    def _episode(self, env: Environment, txn: Any, reach: Reach, run: Run, episode: Episode) -> None:
        known = self._episodes.get((run.key, episode.name)) or self._there(run, episode.name)
        if known is not None:
            if (known.seal, known.opened, known.opened_wall) != (episode.seal, episode.opened, episode.opened_wall):
                self.told.left[f"{run.name}/{episode.name}: another one of that name is there"] += 1
            else:
                self.told.left["episodes that are there already"] += 1
            return
        self._episodes[run.key, episode.name] = episode
        number, chain = u64(self._intake.episode(run, episode).key), Chain()
        where = f"{run.name}/{episode.name}"
        for db in ("exchanges", "snapshots", "events"):
            for key, raw in under(txn, env.dbs[db], u64(episode.key)):
                try:
                    if db == "exchanges":
                        raw = pressed(raw, env.dictionaries)
                        reach.exchange(key, raw)
                        chain.exchange(key, raw)
                    elif db == "snapshots":
                        reach.snapshot(raw)
                        chain.snapshot(key, raw)
                    else:
                        cold.decode(Event, raw)
                except Broken as broken:
                    raise _damaged(env, where, broken) from broken
                self._intake.put(db, number + key[8:], raw)
                self.told.count[db] += 1
        if episode.seal is not None and (trouble := seal_trouble(episode.seal, chain.seal())):
            raise _damaged(env, where, trouble)
        self.told.count["episodes"] += 1

    def _there(self, run: Run, name: str) -> Episode | None:
        try:
            return self._reader.episode(run, name)
        except UnknownAddress:
            return None

    def _judgements(self, env: Environment, txn: Any, reach: Reach, run: Run, made: Run, *, is_new: bool) -> None:
        """A check names its run, and speaks of all that was in it: it is of no use elsewhere."""
        check = txn.get(u64(run.key), db=env.dbs["checks"])
        trials = list(under(txn, env.dbs["trials"], u64(run.key))) if "trials" in env.dbs else []
        if check is None and not trials:
            return
        judged = [("trials", u64(made.key) + key[8:], raw) for key, raw in trials]
        if check is not None:
            judged.insert(0, ("checks", u64(made.key), check))
        if not is_new or made.name != run.name:
            if self._has(judged):
                self.told.left["checks that are there already"] += 1
            elif self._is_judged(made):
                self.told.left[f"the check of {made.name}, which has one of its own here"] += 1
            else:
                self.told.left[f"the check of {made.name} (run `replayproxy check` again)"] += 1
            return
        for db, key, raw in judged:
            try:
                reach.document(raw)
            except Broken as broken:
                raise _damaged(env, f"what was judged of run {run.name}", broken) from broken
            self._intake.put(db, key, raw)
            self.told.count[db] += 1

    def _is_judged(self, made: Run) -> bool:
        """Whether the check of the run there speaks of all that the run holds when the merge is done."""
        if any(run == made.key for run, _ in self._episodes):
            return False
        try:
            verdicts = (self._reader.check(made) or {}).get("verdicts", {})
        except DamagedRecord:
            return False
        names = {episode.name for episode in self._reader.episodes(made)} - {UNATTRIBUTED}
        return bool(names) and names <= set(verdicts)

    def _has(self, records: Sequence[tuple[str, bytes, bytes]]) -> bool:
        """Whether each of them lies in the store there, byte for byte."""
        with self._into.reading() as txn:
            return all(txn.get(key, db=self._into.dbs[db]) == raw for db, key, raw in records)


@contextmanager
def merging(into: Path) -> Iterator[Merger]:
    """A merger into the store there, made where there is none. Of one that was made for a merge that is refused,
    nothing stays."""
    made = [place for place in (into, *into.parents) if _is_missing(place)]
    try:
        with open_store(into, create=True) as target:
            merger = Merger(target)
            try:
                yield merger
            finally:
                merger.give_up()
    except BaseException:
        if made:
            _unmake(into, made[1:])
        raise


def _is_missing(place: Path) -> bool:
    try:
        place.lstat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def _unmake(directory: Path, parents: Sequence[Path]) -> None:
    # Somebody else may have begun to record there meanwhile: then it stays.
    with suppress(Problem, OSError), locks.alone(directory):
        with open_store(directory) as store:
            is_empty = not store.reader().runs()
        if is_empty:
            shutil.rmtree(directory)
    for parent in parents:
        with suppress(OSError):  # not empty
            parent.rmdir()


def _stored(env: Environment, txn: Any, run: Run) -> list[Episode]:
    """The run's episodes that are not removed, the bucket too, as their records say."""
    found = []
    for key, raw in under(txn, env.dbs["episodes"], u64(run.key)):
        if txn.get(key, db=env.dbs["removed"]) is not None:
            continue
        try:
            found.append(cold.decode_episode(raw)[0])
        except Broken as broken:
            raise _damaged(env, f"an episode of run {run.name}", broken) from broken
    return found


def _damaged(env: Environment, what: str, why: object) -> DamagedRecord:
    return DamagedRecord(f"{what} in {env.path} is damaged: {why}; nothing was merged", hint="replayproxy fsck")
