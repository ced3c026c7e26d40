"""Two faults at once, and faults in places that look like noise: a time, an id."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.faults.injector import Injector, Row, shown_rows
from tests.faults.ledger import MARK, episode_of, number_of
from tests.faults.suite_faults import Cached
from tests.faults.suite_races import Gap

if TYPE_CHECKING:
    from tests.faults.suite import Marked


class StaleAndRace(Cached, Gap):
    """A cache that nothing drops, and slots that are taken after a look."""


class Masked(Injector):
    """The score comes with a time and an id, which are right: they follow from the task and the deal."""

    def extras(self, suite: Marked, key: str) -> dict[str, Any]:
        rng = random.Random(f"{suite.task_seed}/{key}/extras")
        return {"as_of": _day(rng), "assignee": f"U-{rng.getrandbits(64):016x}"}

    def _with(self, suite: Marked, key: str, name: str, given: str) -> dict[str, Any]:
        right = Masked.extras(self, suite, key)
        if not self.strikes():
            return right
        suite.ledger.act(fault=self.fault, mark=MARK.get(), spot=f"/{name}", right=right[name], given=given)
        return right | {name: given}


class MaskedTime(Masked):
    """The time is, with probability `p`, that of another day."""

    def extras(self, suite: Marked, key: str) -> dict[str, Any]:
        return self._with(suite, key, "as_of", _day(self.rng))


class MaskedId(Masked):
    """The id is, with probability `p`, somebody else's."""

    def extras(self, suite: Marked, key: str) -> dict[str, Any]:
        return self._with(suite, key, "assignee", f"U-{self.rng.getrandbits(64):016x}")


class OldTime(Injector):
    """A row that this episode has changed is shown with its earlier `updated_at`, and is current but for that."""

    def row(self, suite: Marked, table: str, key: str, row: Row | None, target: str) -> Row | None:
        versions = suite.ledger.history.get((table, key), [])
        if row is None or len(versions) < 2 or number_of(versions[-1].mark) == 0 or "updated_at" not in row:
            return row
        old = versions[-2].row
        if episode_of(versions[-1].mark) != episode_of(MARK.get()) or old is None or not self.strikes():
            return row
        given = {**row, "updated_at": old["updated_at"]}
        shown_rows(suite, self.fault, table, {key: row}, {key: given})
        return given


def _day(rng: random.Random) -> str:
    return f"2026-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}T{rng.randrange(24):02d}:15:00Z"
