"""The messages of a WebSocket, as `show RUN/EPISODE#SEQ` lists them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from itertools import islice
from typing import Any

from replayproxy.cli.common import count, safe
from replayproxy.core.canonical import VIEW_LIMIT
from replayproxy.core.values import Exchange, Message, Outcome, WebSocket
from replayproxy.storage import Reader

SHOWN = 2_000
"""Characters of a message that are shown to people."""

LISTED = 1_000
"""So many messages of a conversation that is too long to be held are put into a document, cut to `SHOWN` bytes."""


def talk_lines(reader: Reader, exchange: Exchange) -> Iterator[str]:
    """Number, direction, time, type, size and beginning of each message, then the end."""
    talk = exchange.websocket
    if talk is None:
        return
    yield ""
    head = exchange.times.head
    for number, message in enumerate(reader.messages(talk), 1):
        mark = ">" if message.from_agent else "<"
        kind = "text" if message.text else "binary"
        at, size = f"{(message.at - head) / 1e9:9.3f}", f"{len(message.payload):,}"
        yield f"{mark} {number:>4} {at}  {kind:<6} {size:>7}  {_beginning(message)}".rstrip()
    yield talk_summary(talk, exchange.outcome)


def talk_summary(talk: WebSocket, outcome: Outcome) -> str:
    """How much was said, and how it ended."""
    return f"{count(talk.count, 'message')}, {_end(talk, outcome)}"


def _beginning(message: Message) -> str:
    if not message.text:
        more = "…" if len(message.payload) > 16 else ""
        return message.payload[:16].hex(" ") + more
    shown = safe(message.payload[: 4 * SHOWN])
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"


def _end(talk: WebSocket, outcome: Outcome) -> str:
    if talk.close_code is None:
        return "what followed is not known" if outcome is Outcome.LOST else "open at the end"
    by = {True: " by the agent", False: " by the environment", None: ""}[talk.closed_by_agent]
    how = {1005: "without a code", 1006: "without a close frame"}.get(talk.close_code, "")
    return f"closed{by}: {talk.close_code} {how or safe(talk.close_reason)}".rstrip()


def talk_json(reader: Reader, talk: WebSocket) -> dict[str, Any]:
    """The same as a document. Messages of a very long conversation are cut in number and size (`cut`)."""
    long = talk.log is not None and talk.log.body.size > VIEW_LIMIT
    messages = islice(reader.messages(talk), LISTED) if long else reader.messages(talk)
    return {
        "count": talk.count, "cut": long,
        "close_code": talk.close_code, "close_reason": talk.close_reason, "closed_by_agent": talk.closed_by_agent,
        "messages": [_message(number, message, long=long) for number, message in enumerate(messages, 1)],
    }  # fmt: skip


def _message(number: int, message: Message, *, long: bool) -> dict[str, Any]:
    data = message.payload[:SHOWN] if long else message.payload
    found = {
        "number": number, "from_agent": message.from_agent, "text": message.text, "at": message.at,
        "size": len(message.payload), "payload": data.decode("utf-8", "backslashreplace"),
    }  # fmt: skip
    return found if message.text else found | {"base64": base64.b64encode(data).decode()}
