"""Two requests, or more, released together: each has a connection of its own, and all but its last byte is with the
environment before the last byte of any goes out.

What remains between their arrivals is one pass of the event loop and the kernel, a few ten microseconds on one machine;
no client library comes as near, because it sends head and body when it is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replayproxy.drive.collect import Collector
from replayproxy.drive.message import Message
from replayproxy.drive.origin import Origin
from replayproxy.drive.wire import Answer, Connection, Gate, Reading, connect

READY_LIMIT = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A message and where it goes. `after`: seconds that its last byte waits after the first one's. `limit`: seconds
    until its answer must be whole."""

    origin: Origin
    message: Message
    after: float = 0.0
    limit: float = 60.0


async def volley(loaded: Sequence[Loaded]) -> list[Answer]:
    """Sends each once, released together, and reads what comes; the answers are in the order of the messages.

    Raises OSError when there is no connection for one of them, before anything is sent; never for what the environment
    does afterwards. A message that cannot be written whole (the environment answered or closed early) is released with
    the others all the same.
    """
    connections = await _connected(loaded)
    gates = [Gate() for _ in loaded]
    readings = [
        asyncio.ensure_future(Reading(connection, one.message, Collector(), gate).run(one.limit, None))
        for one, connection, gate in zip(loaded, connections, gates, strict=True)
    ]
    try:
        await _ready(gates, readings)
        await _release(loaded, gates)
        return list(await asyncio.gather(*readings))
    finally:
        for reading in readings:
            reading.cancel()
        for connection in connections:
            connection.close()


async def one_by_one(loaded: Sequence[Loaded]) -> list[Answer]:
    """The same requests in their order, each after the answer to the one before: what a serial history gives."""
    return [(await volley([one]))[0] for one in loaded]


async def _connected(loaded: Sequence[Loaded]) -> list[Connection]:
    opened: list[Connection] = []
    try:
        for one in loaded:
            opened.append(await connect(one.origin))  # noqa: PERF401 - what is open already is closed if one fails
    except OSError:
        for connection in opened:
            connection.close()
        raise
    return opened


async def _ready(gates: Sequence[Gate], readings: Sequence[asyncio.Future[Answer]]) -> None:
    """Returns when all but the last bytes are out, or one of the requests is over before that."""
    all_out = asyncio.ensure_future(asyncio.gather(*(gate.ready.wait() for gate in gates)))
    waits: list[asyncio.Future[Any]] = [all_out, *readings]
    try:
        # After the time limit too they are released: of an environment that does not read on, its answer tells.
        await asyncio.wait(waits, timeout=READY_LIMIT, return_when=asyncio.FIRST_COMPLETED)
    finally:
        all_out.cancel()


async def _release(loaded: Sequence[Loaded], gates: Sequence[Gate]) -> None:
    began = asyncio.get_running_loop().time()
    for one, gate in sorted(zip(loaded, gates, strict=True), key=lambda pair: pair[0].after):
        if one.after:
            await asyncio.sleep(began + one.after - asyncio.get_running_loop().time())
        gate.open.set()
