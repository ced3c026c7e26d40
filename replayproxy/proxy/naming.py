"""The forward proxy of a worker process: what an origin is called, and how it is verified, only the recorder knows.

A request to an origin goes to the recorder under the origin itself; the name comes back with the ticket. What TLS to it
must be is asked for when its tunnel opens, or comes before the ticket.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Protocol

from replayproxy.proxy import frames
from replayproxy.proxy.frames import Word
from replayproxy.proxy.listeners import EnvOptions
from replayproxy.proxy.routes import Upstream, parse_upstream

_UNNAMED = "@"
"""Stands before an origin in the place of a name. No environment's name has it."""

PLAIN = EnvOptions()

type Told = tuple[Any, str | None, bool, bool]


class Saying(Protocol):
    """The way to the recorder."""

    def say(self, word: Word, *values: Any, now: bool = False) -> None: ...


def unnamed(env: str) -> Upstream | None:
    """The origin that stands in the place of a name; None: it is a name."""
    return parse_upstream(env[1:]) if env.startswith(_UNNAMED) else None


def told_options(options: EnvOptions) -> Told:
    return options.host_header, str(options.ca) if options.ca else None, options.insecure, options.tls


def its_options(told: Told) -> EnvOptions:
    host_header, ca, insecure, tls = told
    return EnvOptions(host_header=host_header, ca=Path(ca) if ca else None, insecure=insecure, tls=tls)


class FarNaming:
    """The `Naming` of a worker."""

    def __init__(self, channel: Saying) -> None:
        self._channel = channel
        self._options: dict[str, EnvOptions] = {}
        self._asked: dict[str, asyncio.Future[None]] = {}

    def hear(self, message: frames.Message) -> None:
        """ITS: the options of an origin, as they are now."""
        _, origin, told = message
        self._options[origin] = its_options(told)
        if (asked := self._asked.pop(origin, None)) is not None and not asked.done():
            asked.set_result(None)

    def env_of(self, at: Upstream, target: bytes) -> str:
        return _UNNAMED + at.origin

    def options_of(self, at: Upstream) -> EnvOptions:
        return self._options.get(at.origin, PLAIN)

    async def learn(self, at: Upstream) -> None:
        asked = self._asked.get(at.origin)
        if asked is None:
            asked = self._asked[at.origin] = asyncio.get_running_loop().create_future()
            self._channel.say(Word.WHOSE, at.origin, now=True)
        await asyncio.shield(asked)
