"""Recorded answers with live values in them, on their way out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from replayproxy.core.canonical import VIEW_LIMIT, all_fields, media_type
from replayproxy.core.mint import EVENT_STREAM, EventRewriter, Renames, is_text, rewrite_answer
from replayproxy.core.replayer import Serve
from replayproxy.core.values import Body, Response

REWRITE_INLINE = 64 * 1024
"""A body above this is rewritten in another thread."""


async def renamed(serve: Serve, load: Callable[[Body], Body]) -> Serve | None:
    """The same answer with its live values; None where nothing in it is to be changed. `load` reads the store."""
    entry, renames = serve.entry, serve.renames
    response = entry.exchange.response
    if response is None or renames is None:
        return None
    whole = await _whole(response, load)
    size = whole.body.size if whole.body is not None and whole.body.inline is not None else 0
    if size > REWRITE_INLINE:
        changed = await asyncio.to_thread(rewrite_answer, whole, renames)
    else:
        changed = rewrite_answer(whole, renames)
    if changed is whole:
        return None
    if changed.body is whole.body:
        changed = replace(changed, body=response.body)
    return serve._replace(entry=replace(entry, exchange=replace(entry.exchange, response=changed)))


async def _whole(response: Response, load: Callable[[Body], Body]) -> Response:
    """The answer with its body at hand, where it is one that can be looked into."""
    body = response.body
    if body is None or body.inline is not None or body.size > VIEW_LIMIT or not is_text(media_type(response.fields)):
        return response
    return replace(response, body=await asyncio.to_thread(load, body))


def event_rewriter(serve: Serve, renames: Renames | None) -> EventRewriter | None:
    """For an event stream that is too long to be held: rewrites it as it passes."""
    response = serve.entry.exchange.response
    if not renames or response is None or media_type(response.fields) != EVENT_STREAM:
        return None
    return None if all_fields(response.fields, b"content-encoding") else EventRewriter(renames)
