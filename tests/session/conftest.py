"""Fixtures of the session's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from replayproxy.storage import Store
from tests.session.crew_kit import crew
from tests.session.desk_kit import Kit
from tests.session.record_kit import world

__all__ = ["crew", "kit", "world"]  # the fixtures


@pytest.fixture
def kit(store: Store) -> Iterator[Callable[..., Kit]]:
    """Makes a recording over the test's store; closed at its end."""
    kits: list[Kit] = []

    def make(**given: Any) -> Kit:
        kits.append(Kit(store, **given))
        return kits[-1]

    yield make
    for each in kits:
        each.close()
