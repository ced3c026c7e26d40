"""Streams over HTTP/2 and TLS: pieces as they come, large bodies, and who ended what."""

from __future__ import annotations

import asyncio
import time

import pytest

from replayproxy.core.canonical import digest
from replayproxy.core.values import Outcome
from replayproxy.storage import Store
from tests.cases.h2lab import WAYS, Ask, Desk, Heard, Pairs, Say, Site, both, recorded, replayed

ways = pytest.mark.parametrize("way", WAYS)
SSE: Pairs = ((b"content-type", b"text/event-stream"),)
EVENTS = [b"id: %d\ndata: a\ndata: b\n\n" % n for n in range(4)]


@ways
@pytest.mark.parametrize("method", [b"GET", b"POST"])
async def test_events_reach_the_agent_as_they_come_and_are_kept_whole(
    store: Store, desk: Desk, way: str, method: bytes
) -> None:
    spread = [part for one in EVENTS for part in (one, 0.1)]
    async with Site(desk, way, lambda heard: Say(spread, SSE)) as site:
        (heard,), (kept,) = await both(store, site, Ask(b"/events", method=method))
    assert [data for data, _ in heard.pieces if data] == EVENTS
    came = [at for data, at in heard.pieces if data]
    assert came[-1] - came[0] > 0.2, "none was held back until the last"
    assert [chunk.size for chunk in kept.response.body.chunks] == [len(one) for one in EVENTS]


@ways
@pytest.mark.parametrize("ends", ["agent", "environment"])
async def test_an_endless_stream_is_kept_up_to_its_end_with_who_ended_it(
    store: Store, desk: Desk, way: str, ends: str
) -> None:
    def handler(heard: Heard) -> Say:
        if heard.all(b":path") == [b"/after"]:
            return Say()
        pieces = (EVENTS[0], 0.05, EVENTS[1], 0.05)
        return Say(pieces, SSE, then="reset" if ends == "environment" else "stay")

    async with Site(desk, way, handler) as site:
        async with recorded(store, site) as on:
            agent = await on.agent()
            stream = await agent.send(Ask(b"/events"))
            live = agent.heard[stream]
            await agent.until(lambda: len(live.body) == len(EVENTS[0] + EVENTS[1]))
            assert (await agent.ask(Ask(b"/after"))).body == b"ok", "other streams go on"
            if ends == "agent":
                agent.reset(stream)
            kept = await on.on.exchanges(count=2)
    one = next(one for one in kept if one.request.target == b"/events")
    assert one.outcome is (Outcome.CLIENT_GONE if ends == "agent" else Outcome.CUT)
    assert one.closed_by_agent is (ends == "agent")
    assert one.response.body.inline == EVENTS[0] + EVENTS[1]
    async with replayed(store, site) as again:
        agent = await again.agent()
        stream = await agent.send(Ask(b"/events"))
        told = agent.heard[stream]
        await agent.until(lambda: len(told.body) == len(live.body))
        assert (await agent.ask(Ask(b"/after"))).body == b"ok"
        if ends == "environment":
            await agent.until(lambda: told.ended)
        assert told.said == live.said if ends == "environment" else not told.ended


@ways
@pytest.mark.parametrize("sized", [True, False])
async def test_large_bodies_pass_both_ways(store: Store, desk: Desk, way: str, *, sized: bool) -> None:
    body = bytes(range(251)) * 6000
    length: Pairs = ((b"content-length", b"%d" % len(body)),) if sized else ()
    async with Site(desk, way, lambda heard: Say((body,), length)) as site:
        asked = (Ask(b"/up", length, (body,), b"PUT"), Ask(b"/down"))
        live, kept = await both(store, site, *asked)
        assert site.asked[0].body == body
    assert [heard.body == body for heard in live] == [True, True]
    for one in (kept[0].request.body, kept[0].response.body, kept[1].response.body):
        assert (one.size, one.digest) == (len(body), digest(body))


LEAVES = {
    "whole": (Ask(b"/step", (), (b"0123456789",), b"POST"), Outcome.CLIENT_GONE),
    "half": (Ask(b"/step", ((b"content-length", b"10"),), (b"012",), b"POST", ends=False), Outcome.HALF_SENT),
    "half of unknown length": (Ask(b"/step", (), (b"012",), b"POST", ends=False), Outcome.HALF_SENT),
    "nothing but the head": (Ask(b"/step", (), (), b"POST", ends=False), Outcome.HALF_SENT),
}


@ways
@pytest.mark.parametrize("by", ["reset", "close"])
async def test_an_agent_that_leaves_before_the_answer_is_kept_with_what_it_did(
    store: Store, desk: Desk, way: str, by: str
) -> None:
    async with Site(desk, way, lambda heard: Say((), then="silence")) as site:
        async with recorded(store, site) as on:
            for number, (ask, _) in enumerate(LEAVES.values(), 1):
                agent = await on.agent()
                stream = await agent.send(ask)
                if ask.ends:
                    async with asyncio.timeout(5):
                        while not site.asked:
                            await asyncio.sleep(0.01)
                else:
                    await asyncio.sleep(0.1)
                agent.reset(stream) if by == "reset" else agent.close()
                kept = await on.on.exchanges(count=number)
            assert len(site.asked) == 1, "what was half-sent had no effect"
    for one, (ask, outcome) in zip(kept, LEAVES.values(), strict=True):
        assert (one.outcome, one.response, one.closed_by_agent) == (outcome, None, True)
        assert one.request.body.inline == b"".join(ask.pieces)
    async with replayed(store, site) as again:
        agent = await again.agent()
        held = agent.heard[await agent.send(LEAVES["whole"][0])]
        other = await agent.ask(Ask(b"/step", (), (b"012",), b"POST"))
        assert other.status == 470, "never matched as a whole request"
        assert not held.ended, "held, as recorded, until this agent leaves"


@ways
@pytest.mark.parametrize("sent", [b"", b"part"])
async def test_an_answer_that_the_environment_ends_is_ended_again(
    store: Store, desk: Desk, way: str, sent: bytes
) -> None:
    cut = Say((sent,) if sent else (), then="reset")
    async with Site(desk, way, lambda heard: cut if heard.all(b":path") == [b"/cut"] else Say()) as site:
        async with recorded(store, site) as on:
            live = await on.ask(Ask(b"/cut"), Ask(b"/after"))
            first, second = await on.on.exchanges(count=2)
        assert (live[0].body, live[0].ended) == (sent, "reset"), "its own stream alone"
        assert (first.outcome, second.outcome) == (Outcome.CUT, Outcome.ANSWERED)
    async with replayed(store, site) as again:
        told = await again.ask(Ask(b"/cut"), Ask(b"/after"))
    assert [one.said for one in told] == [one.said for one in live]


@ways
async def test_streams_of_one_connection_do_not_wait_for_each_other(store: Store, desk: Desk, way: str) -> None:
    async with Site(desk, way, lambda heard: Say((0.4, heard.all(b":path")[0]))) as site:
        for room in (recorded, replayed):
            async with room(store, site) as on:
                agent = await on.agent()
                began = time.monotonic()
                told = await asyncio.gather(*(agent.ask(Ask(b"/%d" % n)) for n in range(12)))
                assert [one.body for one in told] == [b"/%d" % n for n in range(12)]
                assert time.monotonic() - began < 3, "in turn it would take 4.8 s"
