"""What ends a command that runs until it is told to end: once is the normal end, twice gives up."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SAME_SECONDS = 0.2


def heard() -> tuple[int, ...]:
    """Those of ENDING that are to end us. A hang-up that is ignored when we start is `nohup`'s, and stays so."""
    return tuple(
        number for number in ENDING if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    )


@dataclass(slots=True)
class Signals:
    """The first is the normal end, the second calls `give_up`. `number`: the first, None as yet; `began`: when it came.

    One that follows within `SAME_SECONDS` is the same once more: `timeout`, and whoever passes a terminal's Ctrl-C on,
    signals the process and its group. A hang-up is nobody's impatience: of one closed terminal several come.
    """

    give_up: Callable[[], None]
    number: int | None = None
    began: float = 0.0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def installed(self) -> Iterator[Signals]:
        """Once this is over after a signal, what else comes is ignored: there is nothing more to give up, and the exit
        code is to tell how it ended."""
        loop = asyncio.get_running_loop()
        numbers = heard()
        for number in numbers:
            loop.add_signal_handler(number, self.take, number)
        try:
            yield self
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
                if self.number is not None:
                    # Python itself takes a handler of its own away when it ends, but leaves one that is ignored.
                    signal.signal(number, signal.SIG_IGN)

    def take(self, number: int) -> None:
        now = asyncio.get_running_loop().time()
        if number == signal.SIGHUP:
            _leave_the_terminal()
        if self.number is None:
            self.number, self.began = number, now
            self.came.set()
        elif number != signal.SIGHUP and now - self.began >= SAME_SECONDS:
            self.give_up()


def _leave_the_terminal() -> None:
    """A line to a terminal that was closed would be an error in the midst of the end."""
    for stream in (1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as wrong:
            if wrong.args[0] == errno.EIO:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream)
                os.close(nowhere)
