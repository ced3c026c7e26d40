"""Does what `--chaos` has for a request (`core.chaos` says what that is), and marks the exchange with it."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from http import HTTPStatus

from mitmproxy import http

from replayproxy.core.chaos import LATENCY, RESET, STATUS, TRUNCATE, Fault
from replayproxy.core.values import Outcome, Response
from replayproxy.proxy import problems
from replayproxy.proxy.connections import proxyserver
from replayproxy.proxy.live import Live

_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: on, and 0 seconds. Closing then is a reset."""


def _fault(live: Live, kind: str) -> Fault | None:
    fault = live.ticket.fault if live.ticket is not None else None
    return fault if fault is not None and fault.kind == kind else None


def puts_in(flow: http.HTTPFlow, live: Live) -> bool:
    """Whether the request goes no further than to us: then its answer, or its end, is prepared."""
    if fault := _fault(live, STATUS):
        live.notes.append(fault.note)
        live.local = f"status {fault.value:g} was injected by --chaos, the environment was not asked"
        _answer(flow, live, int(fault.value))
        return True
    if fault := _fault(live, RESET):
        live.notes.append(fault.note)
        live.local = "the connection was ended by --chaos, the environment was not asked"
        return True
    if fault := _fault(live, TRUNCATE):
        live.truncate_at = int(fault.value)
    return False


def _answer(flow: http.HTTPFlow, live: Live, status: int) -> None:
    fields, body = problems.problem(status, Outcome.LOCAL, live.local or "")
    reason = HTTPStatus(status).phrase.encode() if status in set(HTTPStatus) else b""
    version, now = b"HTTP/1.1", time.time()
    live.answer_head(Response(status=status, reason=reason, version=version, fields=fields, body=None))
    content = problems.content(flow.request.data.method, body)
    flow.response = http.Response(version, status, reason, http.Headers(fields), content, None, now, now)


async def delayed(flow: http.HTTPFlow, live: Live) -> bool:
    """Returns when the request may go on. False: its episode has ended meanwhile, so it goes nowhere. Its effect would
    be found in another episode, and its exchange says that it was never sent."""
    fault = _fault(live, LATENCY)
    if fault is None or live.ended:
        return True
    live.notes.append(fault.note)
    live.busy = True
    try:
        await asyncio.sleep(fault.value)
    finally:
        live.busy = False
    if live.ended and flow.killable:
        flow.kill()
    return not live.ended


def ends_here(flow: http.HTTPFlow, live: Live) -> bool:
    """Ends the agent's connection where that is what is to happen; its request is whole by now."""
    if _fault(live, RESET) is None:
        return False
    handler = proxyserver().connections.get(live.agent_connection)
    transport = handler.transports.get(handler.client) if handler and not flow.request.is_http2 else None
    if transport is not None and isinstance(transport.writer, asyncio.StreamWriter):
        end = transport.writer.get_extra_info("socket")
        if end is not None:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    flow.kill()  # type: ignore[no-untyped-call]
    return True
