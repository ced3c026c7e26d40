"""A proxy between raw ends, for each test anew."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.proxy.wire import Wire, wire


@pytest.fixture
async def w() -> AsyncIterator[Wire]:
    async with wire() as made:
        yield made
