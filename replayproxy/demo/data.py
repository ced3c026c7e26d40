"""What the demo suite stores: CRM deals, a calendar with slots, helpdesk tickets with billing. One SQLite file.

A reset is part of the environment, and so is its fault: `leaky` leaves out one table's DELETE, which is how real
resets leak (the seed rows are put back over the old ones, and nobody misses what was added).
"""

from __future__ import annotations

import random
import sqlite3
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS deals (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, owner TEXT NOT NULL, stage TEXT NOT NULL,
    amount INTEGER NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS slots (
    id TEXT PRIMARY KEY, day INTEGER NOT NULL, hour INTEGER NOT NULL, holder TEXT);
CREATE TABLE IF NOT EXISTS tickets (
    id TEXT PRIMARY KEY, subject TEXT NOT NULL, status TEXT NOT NULL, invoice TEXT NOT NULL, updated_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS invoices (
    id TEXT PRIMARY KEY, amount INTEGER NOT NULL, charged INTEGER NOT NULL, refunded INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY, seed INTEGER NOT NULL);
"""
TABLES = ("deals", "slots", "tickets", "invoices", "tasks")
SEEDED_AT = "2026-01-05T09:00:00Z"
OWNERS = ("ada", "grace", "joan")


def connect(path: str) -> sqlite3.Connection:
    """The suite's database, with its tables. Every statement is its own transaction unless BEGIN says otherwise."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.row_factory = sqlite3.Row
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.executescript(SCHEMA)
    return database


def seed_rows(task: str, seed: int) -> dict[str, list[tuple[Any, ...]]]:
    """The start state of a task and seed; the same each time."""
    rng = random.Random(f"{task}/{seed}")
    amounts = [rng.randrange(5, 90) * 100 for _ in range(6)]
    return {
        "deals": [
            (f"D-{n}", f"Deal {n}", OWNERS[n % 3], "lead" if n % 2 else "won", amounts[n - 1], SEEDED_AT, SEEDED_AT)
            for n in range(1, 7)
        ],
        "slots": [(f"S-{day}-{hour}", day, hour, None) for day in (1, 2) for hour in (9, 11, 14)],
        "tickets": [
            ("T-1", "Charged twice", "open", "I-1", SEEDED_AT),
            ("T-2", "Cannot log in", "open", "I-2", SEEDED_AT),
        ],
        "invoices": [("I-1", 4900, 9800, 0), ("I-2", 1900, 1900, 0)],
        "tasks": [(task, seed)],
    }


def reset(database: sqlite3.Connection, task: str, seed: int, *, leaky: bool = False) -> None:
    """Back to the start state, in one transaction. `leaky`: the deals table is seeded but not emptied first."""
    emptied = [table for table in TABLES if not (leaky and table == "deals")]
    database.execute("BEGIN IMMEDIATE")
    for table in emptied:
        database.execute(f"DELETE FROM {table}")
    for table, rows in seed_rows(task, seed).items():
        marks = ",".join("?" * len(rows[0]))
        database.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)
    database.execute("COMMIT")


def export(database: sqlite3.Connection) -> dict[str, dict[str, dict[str, Any]]]:
    """The whole state: table -> key -> row, read in one transaction."""
    database.execute("BEGIN")
    try:
        return {
            table: {row["id"]: dict(row) for row in database.execute(f"SELECT * FROM {table} ORDER BY id")}
            for table in TABLES
        }
    finally:
        database.execute("COMMIT")


def restore(database: sqlite3.Connection, state: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Puts back what `export` gave, in one transaction; what cannot be put back leaves the state as it was."""
    database.execute("BEGIN IMMEDIATE")
    try:
        for table in TABLES:
            columns = [row["name"] for row in database.execute(f"PRAGMA table_info({table})")]
            database.execute(f"DELETE FROM {table}")
            database.executemany(
                f"INSERT INTO {table} VALUES ({','.join('?' * len(columns))})",
                [tuple(row[column] for column in columns) for row in state.get(table, {}).values()],
            )
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")
