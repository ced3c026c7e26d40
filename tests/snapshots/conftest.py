"""The database of the tests of SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.snapshots.sqlite_kit import SCHEMA


@pytest.fixture
def path(tmp_path: Path) -> Path:
    where = tmp_path / "a b?#.db"
    with closing(sqlite3.connect(where)) as made:
        made.executescript(SCHEMA)
    return where
