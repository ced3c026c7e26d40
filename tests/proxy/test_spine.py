from __future__ import annotations
from replayproxy.core.values import Outcome
from tests.proxy.wire import says, wire


async def test_spine() -> None:
    async with wire() as w:
        env, listener, agent = await w.between(says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
        print(listener)
        got = await agent.ask(b"GET /rp/e1/x HTTP/1.1\r\nHost: %s\r\n\r\n" % listener.origin.encode()[7:])
        assert got == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        assert env.requests == [b"GET /x HTTP/1.1\r\nHost: %s\r\n\r\n" % env.authority]
        ex = await w.scribe.exchange()
        print(ex)
        assert ex.outcome is Outcome.ANSWERED
        print(w.scribe.events, w.scribe.faults)
        assert not w.scribe.faults
