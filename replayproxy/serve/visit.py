"""One request at the origin: what is known of it while it is answered, and what the origin asks of others."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage

from replayproxy.core.identity import Claims
from replayproxy.core.misses import Document
from replayproxy.core.replayer import Serve
from replayproxy.core.values import Exchange, Fields, Outcome
from replayproxy.serve.doors import Door, Entrance
from replayproxy.serve.scene import Scene
from replayproxy.serve.sending import Sender


class Marks(Protocol):
    """The identity marks of a request, and its target without them."""

    @property
    def claims(self) -> Claims: ...
    @property
    def target(self) -> bytes: ...
    @property
    def prefix(self) -> bytes: ...


class Dialect(Protocol):
    """What the recording proxy did between agent and environment: a replay does the same, by the same code."""

    def take_marks(self, target: bytes, fields: Fields, entrance: Entrance) -> Marks:
        """`fields` may be left out where none of them is a mark."""

    def agent_fields(self, door: Door, exchange: Exchange, agent_host: bytes | None, prefix: bytes) -> Fields:
        """The fields of an answer as the agent of this request is to see them: links and cookie paths put right."""

    def is_plain(self, fields: Fields) -> bool:
        """Whether every agent sees these fields as the environment sent them."""

    def own_answer(self, status: int, outcome: Outcome, detail: str) -> bytes:
        """The answer that the proxy gave in the environment's place."""


class Asked(web.BaseRequest):
    """aiohttp's request, with the parsed head within reach: its raw target has no other public name."""

    ATTRS = web.BaseRequest.ATTRS | frozenset({"head"})

    def __init__(self, message: RawRequestMessage, *parts: Any) -> None:
        super().__init__(message, *parts)
        self.head = message


class _Sent(web.StreamResponse):
    """Tells aiohttp that the answer is on the wire already. Shared: it holds nothing of any request."""

    def __init__(self, keep_alive: bool) -> None:
        self._keep = keep_alive

    @property
    def keep_alive(self) -> bool | None:
        return self._keep

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return request.writer

    async def write_eof(self, data: Any = b"") -> None:
        return None


KEPT, CLOSED = _Sent(True), _Sent(False)


@dataclass(slots=True)
class Visit:
    """One request on its way: what is to be put right when it breaks off.

    `entrance`: how it came in; `hidden`: the front's header that says so, in lower case. `reading`: method, target
    and lane while its body is being read. `whole`: all bytes of its answer are handed over.
    """

    entrance: Entrance
    request: Asked
    hidden: bytes = b""
    scene: Scene | None = None
    serve: Serve | None = None
    sender: Sender | None = None
    reading: tuple[bytes, bytes, str] | None = None
    whole: bool = False

    def enter(self, scene: Scene) -> Scene:
        """It is answered from there, which stays in memory until it has left."""
        self.scene = scene
        scene.users += 1
        return scene

    def leave(self) -> None:
        """It is over, however it ended."""
        if self.scene is not None:
            if self.serve is not None:
                self.scene.done(self.serve)
            self.scene.users -= 1

    @property
    def door(self) -> Door:
        return self.entrance.door

    @property
    def fields(self) -> Fields:
        """The request's header fields as the agent sent them."""
        raw = self.request.raw_headers
        return tuple(pair for pair in raw if pair[0].lower() != self.hidden) if self.hidden else raw

    @property
    def is_head(self) -> bool:
        return self.request.method == "HEAD"

    @property
    def line(self) -> str:
        return f"{self.request.method} {self.request.head.path}"


@dataclass(slots=True)
class Watch:
    """What happens, for whoever looks on. `miss` is called with the document of each miss."""

    miss: Callable[[Document], None] = lambda document: None
    fault: Callable[[str, BaseException], None] = lambda where, error: None


def host_of(request: web.BaseRequest) -> bytes:
    """What the agent calls us; empty where it does not say."""
    return request.headers.get("Host", "").encode("latin-1", "replace")


def is_marked(headers: Container[str]) -> bool:
    """Whether a field carries an identity."""
    return "X-Replay-Lane" in headers or "X-Replay-Episode" in headers or "baggage" in headers


def origin_form(target: bytes) -> bytes:
    """Path and query of a request target that may be absolute."""
    if target.startswith((b"http://", b"https://")):
        path = target.partition(b"://")[2]
        slash = path.find(b"/")
        return path[slash:] if slash != -1 else b"/"
    return target
