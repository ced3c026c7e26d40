"""Says on stderr that the store takes nothing, and when it does again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from replayproxy.storage import Writer
from replayproxy.storage.trouble import not_written

EVERY = 0.5
QUIET = 60.0
"""A disk on the edge takes a small commit and not the next large one: so many seconds between two complaints."""


class StoreWatch:
    """One line when commits fail, one when they succeed again."""

    def __init__(self, writer: Writer, path: Path, say: Callable[[str], None]) -> None:
        self._writer, self._path, self._say = writer, path, say
        self._told = False
        self._quiet_until = float("-inf")

    def look(self, at: float) -> None:
        """`at`: seconds of a clock that only goes forward."""
        failed = self._writer.failed
        if failed is not None and not self._told and at >= self._quiet_until:
            self._told, self._quiet_until = True, at + QUIET
            self._say(f"{not_written(self._path, failed, again=True)}; the traffic goes on")
        elif failed is None and self._told:
            self._told = False
            self._say(f"{self._path} can be written again; what waited is stored")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            self.look(time.monotonic())
