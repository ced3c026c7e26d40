"""Where rows changed, told from the pages of two copies: narrow where it can be known, nothing where it cannot."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from replayproxy.state.growing import GrowingState
from replayproxy.state.loader import load
from replayproxy.state.sqlite_pages import Pages, Span

SCHEMA = """
CREATE TABLE deals (id INTEGER PRIMARY KEY, title TEXT, stage TEXT, notes);
CREATE INDEX by_stage ON deals (stage, title);
CREATE TABLE log (what TEXT);
CREATE TABLE pairs (a TEXT, b INTEGER, v, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER);
"""
ROWS = 400


@pytest.fixture
def live() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        made.execute("PRAGMA page_size = 1024")
        made.executescript(SCHEMA)
        made.executemany("INSERT INTO deals VALUES (?, ?, 'new', ?)", [(n, f"t{n}", "x" * 40) for n in range(ROWS)])
        made.executemany("INSERT INTO log VALUES (?)", [(f"line {n}",) for n in range(ROWS)])
        made.executemany("INSERT INTO pairs VALUES (?, ?, 0)", [(f"p{n % 7}", n) for n in range(ROWS)])
        yield made


class Told:
    """What a `Pages` says of each change, by the names of the trees."""

    def __init__(self, live: sqlite3.Connection) -> None:
        self._live, self._pages = live, Pages()

    def __call__(self) -> dict[str, Any] | None:
        trees = dict(self._live.execute("SELECT rootpage, name FROM sqlite_master WHERE rootpage").fetchall())
        found = self._pages.take(self._live.serialize(), list(trees))
        return None if found is None else {trees[root]: spans for root, spans in found.items()}


@pytest.fixture
def told(live: sqlite3.Connection) -> Told:
    made = Told(live)
    assert made() is None  # of the first copy nothing is known
    assert made() == {}
    return made


def holds(spans: list[Span], *rowids: int) -> bool:
    return all(any(first <= rowid <= last for first, last in spans) for rowid in rowids)


def test_an_update_is_told_within_a_few_rows(live: sqlite3.Connection, told: Told) -> None:
    live.execute("UPDATE deals SET notes = upper(notes) WHERE id = 200")
    found = told()
    assert found is not None
    assert list(found) == ["deals"]
    ((first, last),) = found["deals"]
    assert first <= 200 <= last
    assert last - first < 30


def test_far_rows_are_told_apart(live: sqlite3.Connection, told: Told) -> None:
    live.execute("UPDATE deals SET notes = upper(notes) WHERE id IN (3, 390)")
    live.execute("UPDATE log SET what = upper(what) WHERE rowid = 100")
    found = told()
    assert found is not None
    assert set(found) == {"deals", "log"}
    assert holds(found["deals"], 3, 390)
    assert not holds(found["deals"], 200)
    assert holds(found["log"], 100)


def test_an_index_and_a_table_without_rowids_are_trees_of_their_own(live: sqlite3.Connection, told: Told) -> None:
    live.execute("UPDATE pairs SET v = 1 WHERE b = 11")
    assert told() == {"pairs": None}
    live.execute("UPDATE deals SET title = 'z200' WHERE id = 200")
    found = told()
    # An entry of the index may stand in one of its inner pages: then nothing is concluded.
    assert found is None or (found["by_stage"] is None and holds(found["deals"], 200))


def test_a_deleted_row_at_a_leaf_s_end_is_within_the_span(live: sqlite3.Connection, told: Told) -> None:
    live.execute("UPDATE deals SET notes = upper(notes) WHERE id = 200")
    found = told()
    assert found is not None
    ((first, last),) = found["deals"]
    live.execute("DELETE FROM deals WHERE id = ?", (last,))
    live.execute("UPDATE deals SET title = 'z' WHERE id = ?", (first,))
    again = told()
    assert again is None or holds(again["deals"], first, last)


@pytest.mark.parametrize(
    "change",
    ["UPDATE deals SET notes = ? WHERE id = 5", "DELETE FROM deals WHERE id BETWEEN 100 AND 200",
     "CREATE TABLE more (a)", "DROP TABLE log", "VACUUM", "ALTER TABLE log ADD COLUMN at",
     "INSERT INTO log SELECT what FROM log"],
)  # fmt: skip
def test_nothing_is_concluded_where_more_than_leaves_changed(live: sqlite3.Connection, told: Told, change: str) -> None:
    live.execute(change, ("y" * 5000,) if "?" in change else ())
    assert told() is None
    assert told() == {}


def test_a_value_that_changes_in_its_overflow_alone_is_not_missed(live: sqlite3.Connection, told: Told) -> None:
    live.execute("UPDATE deals SET notes = ? WHERE id = 5", ("y" * 5000,))
    assert told() is None
    with live.blobopen("deals", "notes", 5) as blob:
        blob.seek(4900)
        blob.write(b"zz")
    assert told() is None


@pytest.mark.parametrize("rowid", [-(2**63), -1, 0, 127, 128, 2**14, 2**35, 2**56 - 1, 2**56, 2**62, 2**63 - 1])
def test_every_rowid_is_read_as_sqlite_wrote_it(rowid: int) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as live:
        live.execute("CREATE TABLE deals (id INTEGER PRIMARY KEY, notes TEXT)")
        live.execute("INSERT INTO deals VALUES (?, 'a')", (rowid,))
        told = Told(live)
        told()
        live.execute("UPDATE deals SET notes = 'b'")
        assert told() == {"deals": [(rowid, rowid)]}


def test_a_payload_of_any_length_is_stepped_over() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as live:
        live.execute("CREATE TABLE deals (id INTEGER PRIMARY KEY, notes BLOB, n INTEGER)")
        for length in (1, 200, 20_000, 3_000_000):
            live.execute("DELETE FROM deals")
            live.execute("INSERT INTO deals VALUES (77, ?, 1)", (bytes(length),))
            told = Told(live)
            told()
            live.execute("UPDATE deals SET n = n + 1")
            found = told()
            # The number stands in the overflow where the value before it fills the leaf.
            assert found == {"deals": [(77, 77)]} or (found is None and length > 1000)


def test_what_is_no_database_is_no_error() -> None:
    pages = Pages()
    for copy in (b"", b"SQLite format 3\x00" + bytes(84), b"SQLite format 3\x00\x10\x00" + b"\xff" * 8174):
        assert pages.take(copy, [2]) is None
        assert pages.take(copy, [2]) is None


def test_a_tree_that_is_not_one_is_not_believed(live: sqlite3.Connection) -> None:
    copy = bytearray(live.serialize())
    (root,) = live.execute("SELECT rootpage FROM sqlite_master WHERE name = 'deals'").fetchone()
    at = (root - 1) * 1024
    assert copy[at] == 5
    copy[at + 8 : at + 12] = root.to_bytes(4, "big")  # it is its own child
    pages = Pages()
    assert pages.take(copy, [root]) is None
    assert pages.take(bytes(copy), [root]) is None


CHANGES = [
    "INSERT OR REPLACE INTO deals VALUES ({n}, 't{m}', 's{m}', '{pad}')", "DELETE FROM deals WHERE id % 40 = {m}",
    "UPDATE deals SET notes = '{pad}' WHERE id = {n}", "UPDATE deals SET stage = 's{m}' WHERE id % 50 = {m}",
    "UPDATE OR IGNORE deals SET id = id + 1000 WHERE id = {n}", "INSERT INTO log VALUES ('{pad}')",
    "UPDATE log SET what = what || 'x' WHERE rowid = {n}", "DELETE FROM log WHERE rowid BETWEEN {n} AND {n} + 10",
    "INSERT OR REPLACE INTO pairs VALUES ('p{m}', {n}, '{pad}')", "DELETE FROM pairs WHERE b = {n}",
    "INSERT INTO counted (n) VALUES ({n})", "DELETE FROM counted WHERE id = {m}", "DELETE FROM deals WHERE id = {n}",
    "UPDATE deals SET notes = upper(notes), title = lower(title) WHERE id = {n}", "VACUUM", "REINDEX",
    "DELETE FROM deals WHERE id > {n}", "CREATE INDEX IF NOT EXISTS late ON log (what)", "DROP INDEX IF EXISTS late",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_what_is_told_adds_up_to_the_whole_state(tmp_path: Path, seed: int) -> None:
    """Snapshots one after another against a first one of the same file: small pages, so that trees are deep."""
    random_ = random.Random(seed)
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as live:
        live.execute(f"PRAGMA page_size = {random_.choice([512, 1024, 4096])}")
        live.execute(f"PRAGMA auto_vacuum = {random_.choice(['NONE', 'FULL'])}")
        live.execute(f"PRAGMA journal_mode = {random_.choice(['WAL', 'DELETE'])}")
        live.executescript(SCHEMA)
        live.executemany("INSERT INTO deals VALUES (?, ?, 'new', 'x')", [(n * 3 - 90, f"t{n}") for n in range(ROWS)])
        one, grown = load("crm", f"sqlite:{path}").provider, GrowingState()
        grown.take(one.capture())
        for _ in range(15):
            for _ in range(random_.randint(1, 2)):
                pad = "p" * random_.choice([0, 5, 60, 700, 3000])
                live.execute(
                    random_.choice(CHANGES).format(n=random_.randint(-90, 1200), m=random_.randint(0, 30), pad=pad)
                )
            seen = grown.take(one.capture())
            fresh = GrowingState().take(load("crm", f"sqlite:{path}").provider.capture())
            assert (seen.root, seen.aside, seen.rows) == (fresh.root, fresh.aside, fresh.rows)
        one.close()
