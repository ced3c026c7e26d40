"""Requests, answers and exchanges as plain tuples, and back: what a worker process tells of them.

A body in a parcel is None (not captured), or (its bytes, or None where they were told piece by piece; its chunks as
size and instant in turn). Its digest is not worked out before the recorder has it.
"""

from __future__ import annotations

from typing import Any

from replayproxy.core.values import Body, Exchange, Outcome, Request, Response, Times, WebSocket

type Parcel = tuple[Any, ...]


def body(value: Body | None) -> Parcel | None:
    if value is None:
        return None
    return value.inline, tuple(part for chunk in value.chunks for part in (chunk.size, chunk.at))


def request(value: Request) -> Parcel:
    return (
        value.method, value.target, value.version, value.fields, value.agent_host, value.trailers, body(value.body),
    )  # fmt: skip


def open_request(parcel: Parcel, its_body: Body | None) -> Request:
    method, target, version, fields, agent_host, trailers, _ = parcel
    return Request(
        method=method, target=target, version=version, fields=fields, body=its_body, agent_host=agent_host,
        trailers=trailers,
    )  # fmt: skip


def response(value: Response | None) -> Parcel | None:
    if value is None:
        return None
    return (
        value.status, value.reason, value.version, value.fields, value.trailers, value.informational, body(value.body),
    )  # fmt: skip


def open_response(parcel: Parcel, its_body: Body | None) -> Response:
    status, reason, version, fields, trailers, informational, _ = parcel
    return Response(
        status=status, reason=reason, version=version, fields=fields, body=its_body, trailers=trailers,
        informational=informational,
    )  # fmt: skip


def times(value: Times) -> Parcel:
    return value.head, value.wall, value.c_in, value.fwd, value.first, value.up_end, value.c_out


def open_times(parcel: Parcel) -> Times:
    head, wall, c_in, fwd, first, up_end, c_out = parcel
    return Times(head=head, wall=wall, c_in=c_in, fwd=fwd, first=first, up_end=up_end, c_out=c_out)


def websocket(value: WebSocket | None) -> Parcel | None:
    """Without the messages, which were told one by one."""
    if value is None:
        return None
    # mitmproxy's codes are of an enumeration's type, which is no plain value.
    code = None if value.close_code is None else int(value.close_code)
    return code, value.close_reason, value.closed_by_agent


def exchange(value: Exchange, *, with_request: bool) -> Parcel:
    """Without what the ticket says: order, environment, lane, carrier."""
    return (
        request(value.request) if with_request else None, response(value.response), value.outcome.value,
        times(value.times), websocket(value.websocket), value.error, value.cut_at, value.upstream,
        value.agent_connection, value.env_connection, value.held_ns, value.closed_by_agent, value.notes,
    )  # fmt: skip


def open_exchange(
    parcel: Parcel, *, its_request: Request, its_response: Response | None, talk: WebSocket | None, **more: Any
) -> Exchange:
    """`more`: what the ticket says."""
    _, _, outcome, instants, _, error, cut_at, upstream, agent, env, held_ns, closed_by_agent, notes = parcel
    return Exchange(
        seq=0, request=its_request, response=its_response, outcome=Outcome(outcome), times=open_times(instants),
        websocket=talk, error=error, cut_at=cut_at, upstream=upstream, agent_connection=agent, env_connection=env,
        held_ns=held_ns, closed_by_agent=closed_by_agent, notes=notes, **more,
    )  # fmt: skip
