"""However an exchange is torn, it ends once, nothing hangs, and the next one is right."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from replayproxy.core.values import Outcome
from tests.proxy.wire import Peer, wire

REQUESTS = (
    b"GET /rp/e/%d HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /rp/e/%d HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /rp/e/%d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
)
ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nworld",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nwor\r\n2\r\nld\r\n0\r\nX-T: 1\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nworld\r\n0\r\n\r\n",
)


async def dribble(peer: Peer, data: bytes, dice: random.Random) -> None:
    """Sends the data in pieces, at times only a part of it, and then leaves."""
    whole = dice.random() < 0.6
    end = len(data) if whole else dice.randrange(len(data))
    at = 0
    while at < end:
        step = dice.choice((1, 3, 20, 1000))
        await peer.send(data[at : min(at + step, end)])
        at += step
        if dice.random() < 0.3:
            await asyncio.sleep(0)
    if not whole:
        if dice.random() < 0.5:
            peer.abort()
        else:
            peer.close()
        raise ConnectionError


@pytest.mark.parametrize("seed", range(4))
async def test_torn_exchanges_end_once_and_leave_nothing_behind(seed: int) -> None:
    dice = random.Random(seed)
    async with wire() as w:

        async def answerer(peer: Peer, request: bytes) -> None:
            await dribble(peer, dice.choice(ANSWERS), dice)

        _, listener, _ = await w.between(answerer)

        async def agent(number: int) -> None:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                peer = await w.agent(listener)
                for turn in range(3):
                    await dribble(peer, dice.choice(REQUESTS) % (number * 10 + turn), dice)
                    head = await peer.read_head()
                    while head.startswith(b"HTTP/1.1 103"):
                        head = await peer.read_head()
                    if b"chunked" in head:
                        assert b"world" in (await peer.read_chunked()).replace(b"\r\n2\r\n", b"")
                    elif b"Content-Length: 5\r\n" in head:
                        assert await peer.read(5) == b"world"
                    else:
                        assert head.startswith(b"HTTP/1.1 204"), head

        await asyncio.gather(*(agent(number) for number in range(60)))
        await w.scribe.until(lambda: not w.engine.in_flight())
        assert len(w.scribe.exchanges) == len(w.scribe.tickets)
        assert len({e.order for e in w.scribe.exchanges}) == len(w.scribe.tickets)
        assert [(where, repr(error)) for _, where, error in w.scribe.faults] == []
        outcomes = {e.outcome for e in w.scribe.exchanges}
        assert {Outcome.ANSWERED, Outcome.CUT, Outcome.HALF_SENT} <= outcomes
        assert outcomes <= {Outcome.ANSWERED, Outcome.CUT, Outcome.HALF_SENT, Outcome.CLIENT_GONE}
