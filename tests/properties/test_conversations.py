"""Any recorded conversation replays to an agent that says the same, however early it says it; and to no other."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import ClientWebSocketResponse, WSMsgType
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core.values import Exchange, Message
from replayproxy.storage import Store, open_store
from tests.serve.staged import record, staged
from tests.serve.talks import connected, message, talk

PAYLOADS = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    st.binary(max_size=20),
    st.sampled_from(['{"a": 1}', '{"a":1.0}', "[0.1]", "x" * 5000, b"\x00" * 5000]),
)
SAID = st.lists(st.tuples(st.booleans(), PAYLOADS), max_size=12)
ENDS = st.sampled_from([
    {"code": 1000}, {"code": 4002, "reason": "grün"}, {"code": 1000, "by_agent": False},
    {"code": 1005, "by_agent": False}, {"code": 3999, "reason": "x", "by_agent": False},
])  # fmt: skip


def over_a_store(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs one example on a loop and a store of its own."""

    def run(**drawn: Any) -> None:
        with TemporaryDirectory() as folder, open_store(Path(folder) / "store", create=True) as store:
            asyncio.run(test(store, **drawn))

    functools.update_wrapper(run, test)
    del run.__wrapped__  # type: ignore[attr-defined]
    return run


def recorded(said: list[tuple[bool, str | bytes]], end: dict[str, Any]) -> tuple[Exchange, tuple[Message, ...]]:
    messages = tuple(message(payload, from_agent=by, at_ms=at) for at, (by, payload) in enumerate(said))
    return talk(*messages, **end), messages


async def say(socket: ClientWebSocketResponse, one: Message) -> None:
    await socket.send_frame(one.payload, WSMsgType.TEXT if one.text else WSMsgType.BINARY)


async def hear(socket: ClientWebSocketResponse) -> tuple[bool, bytes]:
    got = await socket.receive(5)
    assert got.type in (WSMsgType.TEXT, WSMsgType.BINARY), got
    return got.type is WSMsgType.TEXT, got.data.encode() if isinstance(got.data, str) else bytes(got.data)


@given(said=SAID, end=ENDS, eager=st.booleans())
@settings(max_examples=40, deadline=None)
def test_it_replays_to_an_agent_that_says_the_same(
    said: list[tuple[bool, str | bytes]], end: dict[str, Any], eager: bool
) -> None:
    replays(said=said, end=end, eager=eager)


@over_a_store
async def replays(store: Store, said: list[tuple[bool, str | bytes]], end: dict[str, Any], eager: bool) -> None:
    one, messages = recorded(said, end)
    run = record(store, {"e": [one]})
    async with staged(store, run) as s:
        async with connected(s) as socket:
            order = sorted(messages, key=lambda each: not each.from_agent) if eager else messages
            for each in order:
                if each.from_agent:
                    await say(socket, each)
                else:
                    assert await hear(socket) == (each.text, each.payload)
            if end.get("by_agent", True):
                await socket.close(code=end["code"], message=end.get("reason", "").encode())
            else:
                got = await socket.receive(5)
                assert got.type is WSMsgType.CLOSE
                assert (got.data or 1005, got.extra or "") == (end["code"], end.get("reason", ""))
                await socket.close()
        receipt = s.receipt()
    assert receipt["reproduced"], receipt
    assert receipt["served"]["exact"] == 1


@given(said=SAID.filter(lambda said: any(by for by, _ in said)), place=st.integers(0, 11))
@settings(max_examples=25, deadline=None)
def test_one_changed_message_closes_and_is_told(said: list[tuple[bool, str | bytes]], place: int) -> None:
    differs(said=said, place=place)


@over_a_store
async def differs(store: Store, said: list[tuple[bool, str | bytes]], place: int) -> None:
    one, messages = recorded(said, {"code": 1000})
    mine = [number for number, each in enumerate(messages, 1) if each.from_agent]
    wrong = mine[place % len(mine)]
    run = record(store, {"e": [one]})
    async with staged(store, run) as s:
        async with connected(s) as socket:
            for number, each in enumerate(messages[:wrong], 1):
                if number == wrong:
                    await say(socket, message("changed \x7f" * 3, from_agent=True, at_ms=0))
                elif each.from_agent:
                    await say(socket, each)
                else:
                    assert await hear(socket) == (each.text, each.payload)
            got = await socket.receive(5)
            assert (got.type, got.data) == (WSMsgType.CLOSE, 4470)
            assert len((got.extra or "").encode()) <= 123
        receipt = s.receipt()
    assert (receipt["missed"], receipt["reproduced"], receipt["served"]["exact"]) == (1, False, 0)
    assert receipt["misses"][0]["message"] == wrong
    assert receipt["misses"][0]["nearest"][0]["message"] == wrong
