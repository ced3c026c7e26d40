"""What the resets of environment 1 leave undone, and what its instances share, with the look-alikes of both."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

from replayproxy.demo.environment import _now
from tests.faults import suite_faults, suite_masks, suite_races
from tests.faults.injector import Injector, tell_start
from tests.faults.ledger import MARK, episode_of

if TYPE_CHECKING:
    from tests.faults.suite import Marked


class BadReset(Injector):
    """Whatever a bad reset left is told by the state itself, compared with the right start."""

    def after_reset(self, suite: Marked, task: str, seed: int) -> None:
        tell_start(suite, self.fault, task, seed)


class Table(BadReset):
    """The notes are not emptied."""

    def bad_reset(self, suite: Marked, task: str, seed: int) -> None:
        notes = dict(suite.more["notes"])
        suite.clean(task, seed)
        self.forget(suite)
        suite.more["notes"] = {**notes, **suite.more["notes"]}


class Counter(BadReset):
    """The numbers of the notes go on where they were."""

    def bad_reset(self, suite: Marked, task: str, seed: int) -> None:
        numbers = suite.more["numbers"]
        suite.clean(task, seed)
        self.forget(suite)
        suite.more["numbers"] = numbers


class Cart(Injector):
    """The carts are not emptied. No snapshot shows them."""

    def bad_reset(self, suite: Marked, task: str, seed: int) -> None:
        suite.clean(task, seed)


class Memory(Injector):
    """Notes are remembered in the process by their text, and what was remembered comes with a new list of notes."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.remembered: list[tuple[str, dict[str, Any]]] = []

    def bad_reset(self, suite: Marked, task: str, seed: int) -> None:
        suite.clean(task, seed)

    def forget(self, suite: Marked) -> None:
        super().forget(suite)
        self.remembered.clear()

    def made(self, suite: Marked, note: dict[str, Any]) -> None:
        self.remembered.append((MARK.get(), dict(note)))

    def rows(self, suite: Marked, table: str, rows: Any, target: str) -> Any:
        if table != "notes":
            return rows
        episode = episode_of(MARK.get())
        foreign = [(mark, note) for mark, note in self.remembered[-4:] if episode_of(mark) != episode]
        for mark, note in foreign:
            suite.ledger.act(fault=self.fault, mark=MARK.get(), given=note["id"], by=(mark,), spot="/items")
        return {**rows, **{note["id"]: note for _, note in foreign}}


class Unseeded(BadReset):
    """The amounts are drawn anew."""

    def bad_reset(self, suite: Marked, task: str, seed: int) -> None:
        suite.clean(task, seed)
        self.forget(suite)
        suite.database.execute("UPDATE deals SET amount = ? WHERE id='D-2'", (self.rng.randrange(50, 900) * 10,))
        suite.database.execute("UPDATE deals SET amount = ? WHERE id='D-5'", (self.rng.randrange(50, 900) * 10,))


class Partial(BadReset):
    """The rows that are there already are not put back: INSERT OR IGNORE."""

    def bad_reset(self, suite: Marked, task: str, seed: int) -> None:
        deals = [tuple(row) for row in suite.database.execute("SELECT * FROM deals")]
        suite.clean(task, seed)
        self.forget(suite)
        suite.database.executemany("INSERT OR REPLACE INTO deals VALUES (?,?,?,?,?,?,?)", deals)


class TableAndUnseeded(Unseeded):
    """The notes are not emptied, and the amounts are drawn anew."""

    def bad_reset(self, suite: Marked, task: str, seed: int) -> None:
        notes = dict(suite.more["notes"])
        super().bad_reset(suite, task, seed)
        suite.more["notes"] = {**notes, **suite.more["notes"]}


class UnseededTime(BadReset):
    """A look at noise: the time at which a deal was made is that of another day."""

    def bad_reset(self, suite: Marked, task: str, seed: int) -> None:
        suite.clean(task, seed)
        self.forget(suite)
        at = f"2025-{self.rng.randrange(1, 13):02d}-{self.rng.randrange(1, 29):02d}T09:00:00Z"
        suite.database.execute("UPDATE deals SET created_at = ? WHERE id='D-2'", (at,))


class UnseededId(BadReset):
    """A note refers to another id than it should."""

    def bad_reset(self, suite: Marked, task: str, seed: int) -> None:
        suite.clean(task, seed)
        self.forget(suite)
        suite.more["notes"]["N-1"]["ref"] = self.minted(suite)


class NoOp(BadReset):
    """Nothing is reset."""

    def bad_reset(self, suite: Marked, task: str, seed: int) -> None:
        self.forget(suite)


class Late(BadReset):
    """The reset answers at once, and the tickets are put back `seconds` later."""

    def bad_reset(self, suite: Marked, task: str, seed: int) -> None:
        suite.clean(task, seed)
        self.forget(suite)
        rows = [tuple(row) for row in suite.database.execute("SELECT * FROM tickets")]
        suite.database.execute("DELETE FROM tickets")
        work = asyncio.create_task(self._seed(suite, rows, self.resets[id(suite)], MARK.get()))
        suite.background.add(work)
        work.add_done_callback(suite.background.discard)

    async def _seed(self, suite: Marked, rows: list[Any], count: int, mark: str) -> None:
        await asyncio.sleep(self.seconds)
        if self.resets[id(suite)] == count:
            before, lo = suite.whole(), time.monotonic_ns()
            suite.database.executemany("INSERT OR REPLACE INTO tickets VALUES (?,?,?,?,?)", rows)
            suite.ledger.changed(before, suite.whole(), lo, time.monotonic_ns(), mark)
            self.left.pop(id(suite), None)


# Look-alikes


class Catalogue(Injector):
    """Every instance has the same rows with ids full of chance, and every agent sees them."""

    def after_reset(self, suite: Marked, task: str, seed: int) -> None:
        rng = random.Random("catalogue")
        for number in range(3):
            key = f"N-{rng.getrandbits(64):016x}"
            suite.more["notes"][key] = {"id": key, "text": f"catalogue {number}", "ref": key[2:], "number": number}


class SameUuid(Injector):
    """A seeded generator mints the same uuids in each episode of a task and seed."""

    def minted(self, suite: Marked) -> str:
        from tests.faults.suite import minted_for

        return minted_for(*suite.task_seed, len(suite.more["notes"]))


class NilUuid(Injector):
    """Every note refers to nothing, by the nil uuid."""

    def minted(self, suite: Marked) -> str:
        return "00000000-0000-0000-0000-000000000000"


class Renamed(Injector):
    """The seeded notes have other ids each time."""

    def after_reset(self, suite: Marked, task: str, seed: int) -> None:
        for number in range(2):
            key = f"N-{random.getrandbits(64):016x}"
            suite.more["notes"][key] = {"id": key, "text": f"seeded {number}", "ref": "", "number": number}


class Reordered(Injector):
    """The rows are put in in another order."""

    def after_reset(self, suite: Marked, task: str, seed: int) -> None:
        rows = [tuple(row) for row in suite.database.execute("SELECT * FROM slots")]
        self.rng.shuffle(rows)
        suite.database.execute("DELETE FROM slots")
        suite.database.executemany("INSERT INTO slots VALUES (?,?,?,?)", rows)


class Clocks(Injector):
    """The rows say when they were put in."""

    def after_reset(self, suite: Marked, task: str, seed: int) -> None:
        now = _now()
        suite.database.execute("UPDATE deals SET created_at=?, updated_at=?", (now, now))


FAULTS: dict[str, type[Injector]] = {
    "none": Injector, "rng": suite_faults.Rng, "shuffle": suite_faults.Shuffle, "jitter": suite_faults.Jitter,
    "tie": suite_faults.Tie, "fresh-ids": suite_faults.FreshIds, "seeded": Injector,
    "rounding": suite_faults.Rounding, "legal-order": suite_faults.LegalOrder,
    "ttl": suite_faults.Cached, "old-copy": suite_faults.OldCopy, "lag": suite_faults.Lag,
    "one-verb": suite_faults.OneVerb, "list-only": suite_faults.ListOnly, "overlap": suite_faults.Overlap,
    "accepted": suite_faults.Accepted, "declared": suite_faults.Declared, "reverted": suite_faults.Reverted,
    "table": Table, "memory": Memory, "cart": Cart, "counter": Counter,
    "catalogue": Catalogue, "same-uuid": SameUuid, "nil-uuid": NilUuid,
    "gap": suite_races.Gap, "write-back": suite_races.WriteBack, "adds": suite_races.Adds,
    "retry": suite_races.Retry, "done-500": suite_races.DoneThen500, "one-wins": Injector, "replayed": Injector,
    "stale+race": suite_masks.StaleAndRace, "bleed+reset": TableAndUnseeded, "masked-time": suite_masks.MaskedTime,
    "masked-id": suite_masks.MaskedId, "old-time": suite_masks.OldTime, "unseeded-time": UnseededTime,
    "unseeded-id": UnseededId, "unseeded": Unseeded, "partial": Partial, "no-op": NoOp, "late": Late,
    "renamed": Renamed, "reordered": Reordered, "clocks": Clocks,
}  # fmt: skip
