"""Values for tests, with times that fit together: what a test does not care about need not be written down.

from replayproxy.testing import exchange, trace
trace([exchange("POST", "/deals", body=b'{"id": 1}', at_ms=0), exchange("GET", "/deals/1", at_ms=10)])
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from replayproxy.core.canonical import body_of
from replayproxy.core.values import (
    MAIN_LANE,
    Body,
    Chunk,
    EnvWiring,
    Episode,
    EpisodeState,
    Event,
    Exchange,
    Fields,
    Outcome,
    Request,
    Response,
    Run,
    Seal,
    Snapshot,
    SnapshotStatus,
    Times,
    Trace,
    WebSocket,
)

MS = 1_000_000
"""Nanoseconds of a millisecond."""

WALL0 = 1_700_000_000_000_000_000
"""The wall clock at which these tests' monotonic clock stood at 0."""

type Content = bytes | str | Mapping[str, Any] | Sequence[Any] | Body | None
"""A body as a test may write it: bytes as they are, text as UTF-8, anything else as JSON, None: not captured."""


def body(content: Content) -> Body | None:
    """The body that `content` stands for."""
    if content is None or isinstance(content, Body):
        return content
    if isinstance(content, bytes):
        return body_of(content)
    return body_of((content if isinstance(content, str) else json.dumps(content)).encode())


def fields(pairs: Mapping[str, str] | Sequence[tuple[str | bytes, str | bytes]]) -> Fields:
    """Header fields from a mapping or from pairs; text is latin-1, as on the wire."""

    def raw(part: str | bytes) -> bytes:
        return part if isinstance(part, bytes) else part.encode("latin-1")

    listed = list(pairs.items()) if isinstance(pairs, Mapping) else list(pairs)
    return tuple((raw(name), raw(value)) for name, value in listed)


def _headers(
    given: Mapping[str, str] | Sequence[tuple[str | bytes, str | bytes]] | None, content: Content, host: str | None
) -> Fields:
    if given is not None:
        return fields(given)
    head: Fields = ((b"Host", host.encode()),) if host else ()
    made = body(content)
    if made is None or made.size == 0:
        return head
    kind = b"application/octet-stream"
    if not isinstance(content, bytes | Body) or (made.inline or b"")[:1] in (b"{", b"["):
        kind = b"text/plain" if isinstance(content, str) and content[:1] not in ("{", "[") else b"application/json"
    return (*head, (b"Content-Type", kind), (b"Content-Length", str(made.size).encode()))


def request(
    method: str = "GET",
    target: str | bytes = "/x",
    body_: Content = b"",
    *,
    headers: Mapping[str, str] | Sequence[tuple[str | bytes, str | bytes]] | None = None,
    host: str = "env.test",
) -> Request:
    """A request as the environment is to see it. Without `headers`: Host, and what the body needs."""
    return Request(
        method=method.encode(),
        target=target if isinstance(target, bytes) else target.encode(),
        version=b"HTTP/1.1",
        fields=_headers(headers, body_, host),
        body=body(body_),
    )


REASONS = {200: b"OK", 201: b"Created", 204: b"No Content", 404: b"Not Found", 409: b"Conflict", 500: b"Server Error"}


def response(
    status: int = 200,
    body_: Content = b"",
    *,
    headers: Mapping[str, str] | Sequence[tuple[str | bytes, str | bytes]] | None = None,
) -> Response:
    """The environment's answer. Without `headers`: what the body needs."""
    return Response(
        status=status,
        reason=REASONS.get(status, b"Whatever"),
        version=b"HTTP/1.1",
        fields=_headers(headers, body_, None),
        body=body(body_),
    )


def times(at_ms: float, took_ms: float = 1.0) -> Times:
    """Instants in their right order: the head at `at_ms`, the last byte to the agent `took_ms` later."""
    head, took = round(at_ms * MS), round(took_ms * MS)
    return Times(
        head=head,
        wall=WALL0 + head,
        c_in=head + took // 10,
        fwd=head + took // 5,
        first=head + took // 2,
        up_end=head + took * 4 // 5,
        c_out=head + took,
    )


def exchange(
    method: str = "GET",
    target: str | bytes = "/x",
    *,
    status: int | None = 200,
    body: Content = b"",
    sent: Content = b"",
    headers: Mapping[str, str] | Sequence[tuple[str | bytes, str | bytes]] | None = None,
    request_headers: Mapping[str, str] | Sequence[tuple[str | bytes, str | bytes]] | None = None,
    at_ms: float = 0.0,
    took_ms: float = 1.0,
    seq: int = 0,
    worker: int = 0,
    env: str = "app",
    lane: str = MAIN_LANE,
    outcome: Outcome = Outcome.ANSWERED,
    chunks: Sequence[tuple[int, float]] = (),
    websocket: WebSocket | None = None,
    **more: Any,
) -> Exchange:
    """One exchange: `sent` is the request's body, `body` the answer's; `status` None: there is no answer.

    `chunks` are (size, at_ms) of the answer's body as it passed. `more` are further members of `Exchange`.
    """
    answer = None if status is None else response(status, body, headers=headers)
    if answer is not None and answer.body is not None and chunks:
        passed = tuple(Chunk(size=size, at=round(at * MS)) for size, at in chunks)
        answer = replace(answer, body=replace(answer.body, chunks=passed))
    return Exchange(
        seq=seq,
        order=(round(at_ms * MS), worker),
        env=env,
        lane=lane,
        request=request(method, target, sent, headers=request_headers),
        response=answer,
        outcome=outcome,
        times=times(at_ms, took_ms),
        carrier=more.pop("carrier", "prefix"),
        websocket=websocket,
        **more,
    )


def snapshot(
    n: int,
    root: bytes | None,
    *,
    name: str = "app",
    when: str = "write",
    at_ms: float = 0.0,
    took_ms: float = 0.5,
    after: Exchange | None = None,
    **more: Any,
) -> Snapshot:
    """A snapshot that was taken; `root` None: it is missing. `more` are further members of `Snapshot`."""
    begun = round(at_ms * MS)
    more.setdefault("status", SnapshotStatus.MISSING if root is None else SnapshotStatus.TAKEN)
    more.setdefault("reason", "no answer in 30 s" if root is None else "")
    more.setdefault("atomic", True)
    more.setdefault("can_restore", True)
    return Snapshot(
        n=n,
        name=name,
        env=more.pop("env", name.partition(".")[0]),
        when=when,
        root=root,
        begun=begun,
        done=begun + round(took_ms * MS),
        wall=WALL0 + begun,
        after=after.order if after else None,
        after_seq=after.seq or None if after else None,
        **more,
    )


def run(name: str = "r", *, key: int = 0, envs: Sequence[str] = ("app",), **more: Any) -> Run:
    """A run whose environments are `envs`."""
    wiring = {env: EnvWiring(name=env, upstream=f"http://{env}.test") for env in envs}
    more.setdefault("opened_wall", WALL0)
    return Run(key=key, name=name, envs=wiring, **more)


def episode(name: str = "e", *, key: int = 0, run_key: int = 0, **more: Any) -> Episode:
    """An episode that is open; see `trace` for a sealed one."""
    more.setdefault("opened_wall", WALL0)
    return Episode(key=key, run_key=run_key, name=name, **more)


def trace(
    exchanges: Sequence[Exchange],
    *,
    snapshots: Sequence[Snapshot] = (),
    events: Sequence[Event] = (),
    run: str | Run = "r",
    episode: str | Episode = "e",
    **more: Any,
) -> Trace:
    """A sealed episode of these exchanges, numbered by arrival. `more` are further members of `Episode`.

    If two exchanges stand at the same instant, all are moved: the n-th by n times 10 ms (give every one its `at_ms`
    where snapshots refer to them). The `after_seq` and `in_flight_seq` of snapshots are filled in.
    """
    spread = _spread(exchanges)
    numbered = [replace(e, seq=seq) for seq, e in enumerate(sorted(spread, key=lambda e: e.order), 1)]
    seqs = {e.order: e.seq for e in numbered}
    shots = [
        replace(
            s,
            after_seq=s.after_seq if s.after is None else seqs.get(s.after, s.after_seq),
            in_flight_seq=s.in_flight_seq or tuple(seqs[order] for order in s.in_flight if order in seqs),
        )
        for s in snapshots
    ]
    the_run = run if isinstance(run, Run) else globals()["run"](run)
    if isinstance(episode, str):
        last = max((e.times.c_out or e.times.head for e in numbered), default=0)
        more.setdefault("state", EpisodeState.SEALED)
        more.setdefault("ended_by", "end")
        more.setdefault("seal", Seal(exchanges=len(numbered), snapshots=len(shots), chain=b"\0" * 32))
        more.setdefault("opened_wall", WALL0)
        more.setdefault("key", 1)
        episode = Episode(run_key=the_run.key, name=episode, ended=last, ended_wall=WALL0 + last, **more)
    return Trace(run=the_run, episode=episode, exchanges=numbered, snapshots=shots, events=tuple(events))


def _spread(exchanges: Sequence[Exchange]) -> Sequence[Exchange]:
    if len({e.order for e in exchanges}) == len(exchanges):
        return exchanges
    return [shifted(e, index * 10.0) for index, e in enumerate(exchanges)]


def shifted(exchange: Exchange, by_ms: float) -> Exchange:
    """The same exchange, all its instants moved."""
    by = round(by_ms * MS)
    t = exchange.times

    def moved(at: int | None) -> int | None:
        return None if at is None else at + by

    return replace(
        exchange,
        order=(exchange.order[0] + by, exchange.order[1]),
        times=Times(
            head=t.head + by,
            wall=t.wall + by,
            c_in=moved(t.c_in),
            fwd=moved(t.fwd),
            first=moved(t.first),
            up_end=moved(t.up_end),
            c_out=moved(t.c_out),
        ),
    )
