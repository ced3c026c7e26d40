"""The control API: JSON over HTTP on a loopback port, by which a harness opens and ends episodes.

No web page can drive it: a request that carries an `Origin`, whose body is not `application/json`, or that reaches a
tokenless API by a host name other than loopback's own, is refused. Every error is an RFC 9457 document. What is
done lies behind `Desk`; this file only takes words apart and puts answers together.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from aiohttp import web

from replayproxy.serve.connection import connections
from replayproxy.serve.keepable import finite, why_not_kept
from replayproxy.serve.metrics import CONTENT_TYPE, Reading, exposition

MAX_BODY = 4 * 1024 * 1024


class Refused(Exception):
    """An answer other than 2xx: becomes a problem document with `members` beside the usual ones."""

    def __init__(self, status: int, title: str, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.document = {"type": "about:blank", "title": title, "status": status, "detail": detail, **members}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """The body of `POST /v1/episodes`, checked for its shape only."""

    episode: str | None = None
    task: str | None = None
    seed: int | None = None
    attempt: int | None = None
    group: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    envs: Mapping[str, str] = field(default_factory=dict)
    snapshots: Mapping[str, str] = field(default_factory=dict)
    instance: Mapping[str, str] = field(default_factory=dict)
    url_style: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRequest:
    step: int | None = None
    label: str | None = None
    data: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    reward: float | None = None
    outcome: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    label: str = ""


class Desk(Protocol):
    """What the API does. Every method may raise Refused."""

    async def open(self, wanted: OpenRequest, reached_by: str) -> dict[str, Any]:
        """-> {episode, urls}, after the start snapshot. `reached_by`: the host by which the caller came."""

    async def mark(self, name: str, mark: MarkRequest) -> dict[str, Any]: ...

    async def snapshot(self, name: str, label: str) -> list[dict[str, Any]]: ...

    async def end(self, name: str, end: EndRequest) -> dict[str, Any]:
        """-> {state, verdict, mask, reasons, coverage}; everything is on disk when it returns."""

    async def verdict(self, name: str) -> dict[str, Any]:
        """What `end` tells of the verdict, for an episode that may still be open."""

    def describe_all(self) -> list[dict[str, Any]]: ...

    def describe(self, name: str) -> dict[str, Any]: ...

    def health(self) -> dict[str, Any]: ...


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and finite(value)


def _mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


SHAPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "episode": (_text, "a text"),
    "task": (_text, "a text"),
    "seed": (_integer, "an integer"),
    "attempt": (_integer, "an integer"),
    "group": (_text, "a text"),
    "meta": (_mapping, "an object"),
    "envs": (_texts, "an object of texts"),
    "snapshots": (_texts, "an object of texts"),
    "instance": (_texts, "an object of texts"),
    "url_style": (lambda value: value in ("path", "port"), '"path" or "port"'),
    "step": (_integer, "an integer"),
    "label": (_text, "a text"),
    "data": (lambda value: True, "anything"),
    "reward": (_number, "a number"),
    "outcome": (_text, "a text"),
}


def _shaped[T](kind: type[T], document: Mapping[str, Any]) -> T:
    """The request value; null means absent. A member that is not known is refused, never ignored."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    given = {}
    for name, value in document.items():
        if name not in known:
            raise Refused(422, "unknown member", f"{name!r} is none of {', '.join(sorted(known))}", member=name)
        if value is None:
            continue
        fits, wanted = SHAPES[name]
        if not fits(value):
            raise Refused(422, "wrong type", f"{name} must be {wanted}", member=name)
        given[name] = value
    return kind(**given)


async def _body(request: web.Request) -> Mapping[str, Any]:
    try:
        raw = await request.read()
    except web.RequestPayloadError as wrong:
        raise Refused(400, "not readable", f"the body cannot be read: {wrong}") from None
    if not raw:
        return {}
    try:
        document = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as wrong:
        raise Refused(400, "not JSON", f"the body is no JSON: {wrong}") from None
    if not isinstance(document, dict):
        raise Refused(422, "wrong type", "the body must be an object")
    if why := why_not_kept(document):
        raise Refused(422, "cannot be kept", f"the body {why}")
    return document


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _json(document: Any, status: int = 200, kind: str = "application/json") -> web.Response:
    # default=str: a meta value that JSON lacks came from a config file (a TOML date), and is shown as text.
    return web.Response(status=status, body=json.dumps(document, default=str).encode(), content_type=kind)


def application(
    desk: Desk,
    *,
    token: str | None,
    hosts: frozenset[str] = frozenset(),
    figures: Callable[[], Reading] | None = None,
) -> web.Application:
    """The API over `desk`. `hosts`: names besides loopback's by which it may be reached without a token. `figures`:
    what `/metrics` shows; None: there is none."""

    async def opened(request: web.Request) -> web.Response:
        wanted = _shaped(OpenRequest, await _body(request))
        return _json(await desk.open(wanted, _host_of(request)), 201)

    async def listed(_request: web.Request) -> web.Response:
        return _json({"episodes": desk.describe_all()})

    async def one(request: web.Request) -> web.Response:
        return _json(desk.describe(request.match_info["name"]))

    async def mark(request: web.Request) -> web.Response:
        return _json(await desk.mark(request.match_info["name"], _shaped(MarkRequest, await _body(request))))

    async def snapshot(request: web.Request) -> web.Response:
        wanted = _shaped(SnapshotRequest, await _body(request))
        return _json({"snapshots": await desk.snapshot(request.match_info["name"], wanted.label)})

    async def end(request: web.Request) -> web.Response:
        return _json(await desk.end(request.match_info["name"], _shaped(EndRequest, await _body(request))))

    async def verdict(request: web.Request) -> web.Response:
        return _json(await desk.verdict(request.match_info["name"]))

    async def health(_request: web.Request) -> web.Response:
        return _json(desk.health())

    app = web.Application(middlewares=[_problems, _guard(token, hosts)], client_max_size=MAX_BODY)
    app.router.add_post("/v1/episodes", opened)
    app.router.add_get("/v1/episodes", listed)
    app.router.add_get("/v1/episodes/{name}", one)
    app.router.add_get("/v1/episodes/{name}/verdict", verdict)
    app.router.add_post("/v1/episodes/{name}/mark", mark)
    app.router.add_post("/v1/episodes/{name}/snapshot", snapshot)
    app.router.add_post("/v1/episodes/{name}/end", end)
    app.router.add_get("/v1/health", health)
    if figures is not None:

        async def metrics(_request: web.Request) -> web.Response:
            return web.Response(body=exposition(figures()), headers={"Content-Type": CONTENT_TYPE})

        app.router.add_get("/metrics", metrics)
    return app


type Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns every way of not succeeding into a problem document."""
    try:
        return await handler(request)
    except Refused as refused:
        answer = _json(refused.document, refused.status, "application/problem+json")
        if refused.status == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer
    except web.HTTPException as known:
        detail = (
            f"{request.method} {request.path} is not part of this API" if known.status in (404, 405) else known.reason
        )
        document = {"type": "about:blank", "title": known.reason, "status": known.status, "detail": detail}
        return _json(document, known.status, "application/problem+json")
    except Exception as fault:
        document = {
            "type": "about:blank", "title": "internal error", "status": 500,
            "detail": f"{type(fault).__name__}: {fault}; this is a fault of replayproxy",
        }  # fmt: skip
        return _json(document, 500, "application/problem+json")


def _guard(token: str | None, hosts: frozenset[str]) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if "Origin" in request.headers:
            raise Refused(403, "web pages are refused", "a request with an Origin header is refused")
        if token is not None:
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode("utf-8", "replace"), f"Bearer {token}".encode()):
                raise Refused(
                    401, "token wanted", "Authorization: Bearer with the token of REPLAYPROXY_TOKEN is needed"
                )
        elif not _is_own_host(_host_of(request), hosts):
            # A page whose name was made to point at 127.0.0.1 sends no Origin with a GET.
            raise Refused(403, "unknown host", f"{_host_of(request)!r} is not how this API is reached; use its address")
        has_body = request.can_read_body or "Content-Type" in request.headers
        if has_body and request.content_type != "application/json":
            raise Refused(415, "not JSON", "the body must be application/json")
        return await handler(request)

    return guard


def _host_of(request: web.Request) -> str:
    """The host part of the Host header, without brackets."""
    host = request.headers.get("Host", "")
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _is_own_host(host: str, hosts: frozenset[str]) -> bool:
    if host.lower() in ("localhost", "") or host in hosts:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class ControlServer:
    """The API on a socket of the caller's, in the running loop."""

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=1.0)
        self._listener: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        """Accepts when it returns."""
        await self._runner.setup()
        assert self._runner.server is not None
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(connections(self._runner.server, loop), sock=listening, backlog=256)

    async def stop(self) -> None:
        """Calls under way get a second to end."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()
