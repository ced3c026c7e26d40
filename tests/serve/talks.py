"""Recorded conversations for tests, and an agent that speaks them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from replayproxy.core.values import Exchange, Message, Outcome, WebSocket
from replayproxy.testing import MS, exchange
from tests.serve.staged import Staged

UPGRADE = (
    ("Host", "env.test"), ("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)  # fmt: skip
SWITCHED = (
    ("upgrade", "websocket"), ("Connection", "Upgrade"), ("X-Session", "s1"),
    ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), ("Sec-WebSocket-Extensions", "permessage-deflate"),
)  # fmt: skip


def agent(payload: str | bytes, at_ms: float = 0.0) -> Message:
    return message(payload, from_agent=True, at_ms=at_ms)


def env(payload: str | bytes, at_ms: float = 0.0) -> Message:
    return message(payload, from_agent=False, at_ms=at_ms)


def message(payload: str | bytes, *, from_agent: bool, at_ms: float) -> Message:
    raw = payload.encode() if isinstance(payload, str) else payload
    return Message(from_agent=from_agent, text=isinstance(payload, str), payload=raw, at=round(at_ms * MS))


def talk(
    *messages: Message,
    code: int | None = 1000,
    reason: str = "",
    by_agent: bool | None = True,
    target: str = "/ws",
    **more: Any,
) -> Exchange:
    """A recorded conversation. `code` None: it was open at the end; 1006: it ended without a close frame."""
    outcome = Outcome.ANSWERED
    if code is None:
        outcome, by_agent = Outcome.OPEN_AT_END, None
    elif code == 1006:
        outcome = Outcome.CLIENT_GONE if by_agent else Outcome.CUT
    said = WebSocket(messages=messages, close_code=code, close_reason=reason, closed_by_agent=by_agent)
    return exchange(
        "GET", target, status=101, headers=SWITCHED, request_headers=UPGRADE, outcome=outcome, websocket=said,
        closed_by_agent=by_agent, **more,
    )  # fmt: skip


@asynccontextmanager
async def connected(
    staged: Staged, target: str = "/ws", **options: Any
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with aiohttp.ClientSession() as session:
        url = staged.url() + target
        async with session.ws_connect(url, max_msg_size=0, autoclose=False, **options) as socket:
            yield socket
