"""Answers that are the same for every agent, put together before they are asked for.

Most answers are short, whole, and hold no link that leads through the listener. For these nothing is left to be done
when the request comes but to write one block of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from replayproxy.core.script import Entry
from replayproxy.core.values import Fields, Outcome
from replayproxy.serve.wire import Ending, loses_trailers, plan, whole_body


class Ready(NamedTuple):
    """The bytes of an answer, and what follows them."""

    data: bytes
    ending: Ending


def ready(entry: Entry, is_plain: Callable[[Fields], bool]) -> Ready | None:
    """None where the answer depends on its agent, on the store, or on when it is asked for. `is_plain`: every agent
    sees these fields as the environment sent them."""
    exchange = entry.exchange
    response = exchange.response
    if (
        entry.skip
        or response is None
        or exchange.websocket is not None
        or exchange.outcome is not Outcome.ANSWERED
        or not is_plain(response.fields)
    ):
        return None
    planned = plan(exchange, response.fields)
    if loses_trailers(response, planned.framing):
        return None  # an agent over HTTP/2 gets more than one over HTTP/1.1
    body = whole_body(planned)
    return None if body is None else Ready(planned.head + body, planned.ending)
