"""The injector of environment 1: what it does at each place where the suite asks it, and its entry in the ledger.

`Injector` itself injects nothing. Each kind of fault is a subclass in a file of its own, found by its name.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.faults.ledger import MARK, Cell, State, differing, episode_of, value_in

if TYPE_CHECKING:
    from tests.faults.suite import Marked

type Row = Mapping[str, Any]


class Injector:
    """No fault at all. One is made per run; `p`, `seconds` and `every` as in `matrix.Plan`.

    The carts are the session state that belongs to an instance; `shared` is what all instances of the process have.
    """

    def __init__(self, *, fault: str, p: float, seconds: float, every: int, seed: int) -> None:
        self.fault, self.p, self.seconds, self.every = fault, p, seconds, every
        self.rng = random.Random(f"{fault}/{seed}")
        self.resets: dict[int, int] = {}
        self.carts: dict[int, list[tuple[str, dict[str, Any]]]] = {}
        self.suites: list[Marked] = []
        self.left: dict[int, dict[tuple[str, str], tuple[str, tuple[str, ...]]]] = {}

    def joins(self, suite: Marked) -> None:
        self.suites.append(suite)

    def strikes(self) -> bool:
        return self.rng.random() < self.p

    # Resets

    def reset(self, suite: Marked, task: str, seed: int) -> None:
        """Counts, and leaves a reset that is not to be struck as it should be. The first of an instance never is."""
        count = self.resets[id(suite)] = self.resets.get(id(suite), -1) + 1
        if count and self.turn(sum(self.resets.values())):
            self.bad_reset(suite, task, seed)
        else:
            suite.clean(task, seed)
            self.forget(suite)
        self.after_reset(suite, task, seed)

    def turn(self, count: int) -> bool:
        return self.every == 1 or count % self.every == self.every - 1

    def bad_reset(self, suite: Marked, task: str, seed: int) -> None:
        suite.clean(task, seed)
        self.forget(suite)

    def after_reset(self, suite: Marked, task: str, seed: int) -> None:
        pass

    def forget(self, suite: Marked) -> None:
        self.carts[id(suite)] = []

    # Reads and writes

    async def around(
        self, suite: Marked, request: web.Request, write: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        return await write()

    def wrote(self, suite: Marked, request: web.Request) -> None:
        pass

    def row(self, suite: Marked, table: str, key: str, row: Row | None, target: str) -> Row | None:
        return row

    def rows(self, suite: Marked, table: str, rows: Mapping[str, Row], target: str) -> Mapping[str, Row]:
        return rows

    def dressed(self, response: web.Response, target: str) -> web.Response:
        return response

    # What a reset left: the ledger tells each answer that shows it, until the episode itself writes to the row

    def seen(self, suite: Marked, table: str, shown: Mapping[str, Row], asked: str | None = None) -> None:
        """An answer about the table, or about the row `asked`, showed these rows."""
        for (of, key), (writer, columns) in self.left.get(id(suite), {}).items():
            if of != table or asked not in (None, key):
                continue
            lacking = columns == ("",) and suite.ledger.current((of, key)) is None
            for column in columns if lacking == (key not in shown) else ():
                suite.ledger.act(
                    fault=self.fault, mark=MARK.get(), cell=Cell(table, key, column), by=(writer,) if writer else ()
                )

    def owned(self, suite: Marked, row: tuple[str, str]) -> None:
        self.left.get(id(suite), {}).pop(row, None)

    # Members that no row holds

    def ordered(self, suite: Marked, rows: list[Any]) -> list[Any]:
        return rows

    def number(self, suite: Marked, spot: str, right: int) -> int:
        return right

    def real(self, suite: Marked, spot: str, right: float) -> float:
        return right

    def tied(self, suite: Marked, spot: str, right: str, last: str) -> str:
        return right

    def extras(self, suite: Marked, key: str) -> dict[str, Any]:
        return {}

    def minted(self, suite: Marked) -> str:
        return str(uuid.UUID(int=random.getrandbits(128), version=4))

    def made(self, suite: Marked, note: dict[str, Any]) -> None:
        pass

    # Requests that are sent again

    def repeats(self, suite: Marked) -> bool:
        """Whether a request with a known Idempotency-Key is done again."""
        return False

    def repeated(self, suite: Marked, note: dict[str, Any], mark: str, first: dict[str, Any]) -> None:
        pass

    def told_made(self, suite: Marked, note: dict[str, Any], response: web.Response) -> web.Response:
        return response

    # Carts: state of the session, which no snapshot shows

    def cart(self, suite: Marked) -> list[dict[str, Any]]:
        found = self.carts.setdefault(id(suite), [])
        episode = episode_of(MARK.get())
        for index, (mark, line) in enumerate(found):
            if episode_of(mark) != episode:
                suite.ledger.act(
                    fault=self.fault, mark=MARK.get(), given=line["line"], by=(mark,), spot=f"/items/{index}/line"
                )
        return [line for _, line in found]

    def added(self, suite: Marked, line: dict[str, Any]) -> None:
        self.carts.setdefault(id(suite), []).append((MARK.get(), line))


def tell_start(suite: Marked, fault: str, task: str, seed: int) -> None:
    """Puts each cell in which a start differs from the right one into the ledger, with who had written it."""
    left: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}
    right = right_start(suite, task, seed)
    for cell in differing(right, suite.whole()):
        writer = suite.ledger.writer(cell.row)
        should = right.get(cell.table, {}).get(cell.key)
        suite.ledger.act(
            fault=fault, mark=MARK.get(), cell=cell, by=(writer,) if writer else (), right=value_in(should, cell.column)
        )
        left[cell.row] = writer, (*left.get(cell.row, ("", ()))[1], cell.column)
    suite.injector.left[id(suite)] = left


def right_start(suite: Marked, task: str, seed: int) -> State:
    """What the start should be, found out on a database of its own."""
    from tests.faults.ledger import Ledger
    from tests.faults.suite import Marked as Other

    other = Other(Injector(fault="none", p=0, seconds=0, every=1, seed=0), Ledger())
    other.clean(task, seed)
    try:
        return other.whole()
    finally:
        other.database.close()


def shown_rows(suite: Marked, fault: str, table: str, right: Mapping[str, Row], given: Mapping[str, Row]) -> None:
    """Puts each cell that an answer shows otherwise than the state holds into the ledger."""
    for cell in differing({table: right}, {table: given}):
        held, told = right.get(cell.key), given.get(cell.key)
        suite.ledger.act(
            fault=fault, mark=MARK.get(), cell=cell,
            right=(held is not None) if cell.column == "" else held and held.get(cell.column),
            given=(told is not None) if cell.column == "" else told and told.get(cell.column),
        )  # fmt: skip
