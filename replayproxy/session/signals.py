"""SIGINT and SIGTERM of a command that runs until it is told to end: once is the normal end, twice gives up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

ENDING = (signal.SIGINT, signal.SIGTERM)

SAME_SECONDS = 0.2


@dataclass(slots=True)
class Signals:
    """The first is the normal end, the second calls `give_up`. `number`: the first, None as yet; `began`: when it came.

    One that follows within `SAME_SECONDS` is the same once more: `timeout`, and whoever passes a terminal's Ctrl-C on,
    signals the process and its group.
    """

    give_up: Callable[[], None]
    number: int | None = None
    began: float = 0.0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def installed(self) -> Iterator[Signals]:
        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.add_signal_handler(number, self.take, number)
        try:
            yield self
        finally:
            for number in ENDING:
                loop.remove_signal_handler(number)
            if self.number is not None and loop.time() - self.began < SAME_SECONDS:
                # All was done that fast, and the same signal may still be on its way. (Python itself takes a handler of
                # its own away when it ends, but leaves one that is ignored.)
                signal.signal(self.number, signal.SIG_IGN)

    def take(self, number: int) -> None:
        now = asyncio.get_running_loop().time()
        if self.number is None:
            self.number, self.began = number, now
            self.came.set()
        elif now - self.began >= SAME_SECONDS:
            self.give_up()
