"""Fixtures that every part's tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replayproxy.storage import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A fresh store in a directory of its own."""
    opened = open_store(tmp_path / "store", create=True)
    yield opened
    opened.close()
