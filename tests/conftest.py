"""Fixtures that every part's tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from replayproxy.storage import Store, open_store

# A shell that starts the suite in the background has its interrupts ignored, and so has all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A fresh store in a directory of its own."""
    opened = open_store(tmp_path / "store", create=True)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    """A `record` or `replay` that a signal ends leaves signals ignored; the tests' own process, and what it starts,
    go on."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
