"""The replay origin: HTTP servers that answer from the stage, byte for byte, and from nowhere else.

Here a request finds its episode; `playing` finds its answer there, and `giving` sends it.

Rules of this file: nothing here can connect anywhere. Whatever fails in our own code becomes a local error answer
and a fault of the episode; it is never passed on to anybody. An answer that has begun and cannot go on is cut.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import PayloadEncodingError
from aiohttp.http_parser import RawRequestMessage

from replayproxy.core.misses import no_episode_document
from replayproxy.core.replayer import Grade, Serve
from replayproxy.core.script import Heard
from replayproxy.core.shown import json_bytes
from replayproxy.core.values import MAIN_LANE, Body
from replayproxy.serve.bodies import EMPTY, read_body
from replayproxy.serve.connection import connections
from replayproxy.serve.discretion import Discretion
from replayproxy.serve.doors import UNKNOWN, Door, Entrance, FrontDoor
from replayproxy.serve.express import Express
from replayproxy.serve.giving import Giver
from replayproxy.serve.meeting import meet, turn_away
from replayproxy.serve.playing import Player
from replayproxy.serve.sending import INSTANT, Pace
from replayproxy.serve.stage import Stage, lane_of
from replayproxy.serve.visit import (
    CLOSED,
    KEPT,
    Asked,
    Dialect,
    Marks,
    Visit,
    Watch,
    is_marked,
    origin_form,
)
from replayproxy.serve.wire import HELD, Ending, problem

BACKLOG = 4096
"""With asyncio's 100, a burst of agents waits for seconds."""

_SILENT = logging.getLogger(__name__)
_SILENT.setLevel(logging.CRITICAL + 1)
"""aiohttp would print a traceback for a request that it cannot read; here that is a miss like any other."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(slots=True)
class _Open:
    door: Door | FrontDoor
    server: web.Server
    listener: asyncio.Server


class Origin:
    """The servers of one replay, in the running loop."""

    def __init__(
        self,
        stage: Stage,
        *,
        dialect: Dialect,
        now: Callable[[], int],
        pace: Pace = INSTANT,
        watch: Watch | None = None,
    ) -> None:
        self.stage = stage
        self._discreet = Discretion(stage.redactor)
        self._dialect = dialect
        self._now = now
        self._watch = watch or Watch()
        self._open: list[_Open] = []
        self._told: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._giver = Giver(
            stage.reader, dialect=dialect, now=now, pace=pace, watch=self._watch, stopping=self._stopping
        )
        self._player = Player(self._giver, self._discreet)

    async def listen(self, door: Door | FrontDoor, bound: socket.socket) -> None:
        """Accepts at `bound` when it returns."""
        fixed = Entrance(door=door) if isinstance(door, Door) else None
        hidden = b"" if isinstance(door, Door) else door.header.lower().encode()

        async def handler(request: web.BaseRequest) -> web.StreamResponse:
            came = fixed or _through(door, request)
            return await self._visit(Visit(came, cast("Asked", request), hidden))

        loop = asyncio.get_running_loop()

        def factory(message: RawRequestMessage, *parts: Any) -> web.BaseRequest:
            if message.method == "UNKNOWN":
                # aiohttp answers 400 by itself, without a call of the handler; the receipt must not lose it.
                self._unreadable(door)
            return Asked(message, *parts, loop)

        server = web.Server(
            handler, request_factory=factory, handler_cancellation=True, access_log=None, logger=_SILENT,
            auto_decompress=False, max_line_size=2**20, max_field_size=2**20, max_headers=10**5,
        )  # fmt: skip
        express = None if fixed is None or self._giver.pace.speed else Express(
            self.stage, self._dialect, self._discreet, fixed
        ).answer  # fmt: skip
        made = connections(server, loop, lenient=True, express=express)
        listener = await loop.create_server(made, sock=bound, backlog=BACKLOG)
        self._open.append(_Open(door, server, listener))

    def close(self, door: Door | FrontDoor) -> None:
        """Stops accepting at one door; connections that exist go on."""
        for one in self._open:
            if one.door == door:
                one.listener.close()

    async def stop(self, grace: float = 2.0) -> None:
        """Stops accepting; answers under way have `grace` seconds to end, then they are cut."""
        self._stopping.set()
        for one in self._open:
            one.listener.close()
            one.server.pre_shutdown()
        await asyncio.gather(*(one.server.shutdown(grace) for one in self._open))
        await asyncio.gather(*self._told)
        self._open.clear()

    def _unreadable(self, door: Door | FrontDoor) -> None:
        reason = "a request that cannot be read as HTTP: answered 400"
        self._watch.miss(no_episode_document(self.stage.run.name, "(unreadable)", reason, ""))
        name = door.port_episode if isinstance(door, Door) else None
        if name is None:
            self.stage.stray("(unreadable)", reason)
        elif (scene := self.stage.scene_now(name)) is not None:
            scene.replayer.unreadable(reason, self._now())
        else:
            task = asyncio.ensure_future(self._unreadable_there(name, reason))
            self._told.add(task)
            task.add_done_callback(self._told.discard)

    async def _unreadable_there(self, name: str, reason: str) -> None:
        """It counts for the episode whose port it came to, also while that is not in memory."""
        try:
            scene = None if self.stage.why_not(name, MAIN_LANE) else await self.stage.scene(name)
        except Exception as error:
            self.stage.faults.append(f"{type(error).__name__}: {self._discreet.redactor.text(str(error))}")
            self._watch.fault("(unreadable)", error)
            return
        if scene is None:
            self.stage.stray("(unreadable)", reason)
        else:
            scene.replayer.unreadable(reason, self._now())

    async def _visit(self, visit: Visit) -> web.StreamResponse:
        try:
            return self._kept(visit, await self._answer(visit))
        except asyncio.CancelledError:
            self._broke_off(visit)
            raise
        except (ConnectionError, web.RequestPayloadError, PayloadEncodingError):
            self._broke_off(visit)
            return CLOSED
        except Exception as error:
            return await self._fault(visit, error)
        finally:
            visit.leave()

    def _broke_off(self, visit: Visit) -> None:
        """The agent left, or its request's body cannot be read to its end."""
        if visit.scene is None:
            return
        if visit.serve is not None:
            if (
                not visit.whole
                and not (visit.sender and visit.sender.whole)
                and visit.serve.entry.exchange.outcome not in HELD
            ):
                visit.scene.replayer.left(visit.serve, self._now())
        elif visit.reading is not None:
            method, target, lane = visit.reading
            visit.scene.replayer.half_sent(visit.door.env, method, target, lane, self._now())

    async def _fault(self, visit: Visit, error: Exception) -> web.StreamResponse:
        line = self._discreet.redactor.text(visit.line)
        text = f"{type(error).__name__}: {self._discreet.redactor.text(str(error))} (answering {line})"
        if visit.scene is not None:
            visit.scene.replayer.fault(text, self._now())
        else:
            self.stage.faults.append(text)
        self._watch.fault(line, error)
        writer = visit.request.writer
        if getattr(writer, "output_size", 0):
            return CLOSED  # part of an answer is out: only a cut tells the agent that the rest is missing
        document = json_bytes({
            "type": "about:blank", "title": "replay failed", "status": 500,
            "detail": f"a fault of replayproxy, not of the environment: {text}",
        })  # fmt: skip
        await writer.write(
            problem(500, "Replay Failed", document, (b"Replay-Local", b"fault"), head_only=visit.is_head)
        )
        return CLOSED

    async def _answer(self, visit: Visit) -> Ending:
        request, env = visit.request, visit.door.env
        target = origin_form(request.head.path.encode("utf-8", "surrogateescape"))
        marked = request.raw_headers if is_marked(request.headers) else ()
        marks = self._dialect.take_marks(target, marked, visit.entrance)
        method = request.head.method.encode()
        if self.stage.resets is not None and self.stage.resets.may_be(env, method, marks.target):
            heard = Heard(method, marks.target, visit.fields, await self._body(visit))
            if reset := self.stage.resets.answer(env, await self._discreet.heard(env, heard, None)):
                return await self._giver.give(visit, Serve(reset, Grade.EXACT, 0), marks)
        else:
            heard = None
        claims, name = marks.claims, self.stage.whose(marks.claims)
        if self.stage.known is not None:
            head = Heard(method, marks.target, visit.fields, None)
            if self.stage.known.is_probe(env, head):
                return await self._probed(visit, marks, heard or await self._whole(visit, head))
            body = _Once(lambda: self._whole(visit, head), heard)
            claims, name = await self.stage.whose_by_rules(claims, env, heard or head, body)
            heard = body.heard
        lane = lane_of(claims)
        if name is None and self.stage.awaits_frame(env, marks.target) and "Sec-WebSocket-Key" in request.headers:
            return await self._meet(visit, Heard(method, marks.target, visit.fields, EMPTY), lane, marks)
        if why := visit.entrance.why_not or self.stage.why_not(name, lane):
            await self._refuse(visit, marks, lane, why)
            return Ending.KEEP
        assert name is not None
        scene = visit.enter(self.stage.scene_now(name) or await self.stage.scene(name))
        if heard is None:
            visit.reading = (method, self._discreet.target(env, method, marks.target), lane)
            heard = Heard(method, marks.target, visit.fields, await self._body(visit))
            visit.reading = None
        return await self._player.play(visit, scene, heard, lane, marks)

    async def _meet(self, visit: Visit, heard: Heard, lane: str, marks: Marks) -> Ending:
        """Plays a conversation whose first message tells its episode."""
        try:
            met = await meet(visit.request, self._now())
        except ValueError as error:
            await self._refuse(visit, marks, lane, str(error))
            return Ending.CLOSE
        said = met.first.payload if met.first else b""
        name = await self.stage.whose_frame(visit.door.env, heard.target, said) if met.first else None
        silent = None if met.first else "no message came that could tell its episode"
        if why := silent or visit.entrance.why_not or self.stage.why_not(name, lane):
            target = self._discreet.target(visit.door.env, b"GET", marks.target)
            asked = f"GET {target.decode('utf-8', 'backslashreplace')}"
            self.stage.stray(asked, why)
            self._watch.miss(no_episode_document(self.stage.run.name, asked, why, lane))
            await turn_away(met.socket, why)
            return Ending.CLOSE
        assert name is not None
        scene = visit.enter(self.stage.scene_now(name) or await self.stage.scene(name))
        return await self._player.play(visit, scene, heard, lane, marks, met)

    async def _body(self, visit: Visit) -> Body | None:
        request = visit.request
        if "Expect" in request.headers and request.headers["Expect"].lower() == "100-continue":
            await request.writer.write(CONTINUE)
        return await self._discreet.body(visit.fields, request.content)

    async def _whole(self, visit: Visit, head: Heard) -> Heard:
        return head._replace(body=await self._body(visit))

    async def _probed(self, visit: Visit, marks: Marks, heard: Heard) -> Ending:
        """A probe gets what a recorded one got, and counts for no receipt, with an answer or without."""
        probes = self.stage.probes
        heard = await self._discreet.heard(visit.door.env, heard, None)
        if probes is not None and (entry := probes.answer(visit.door.env, heard)):
            return await self._giver.give(visit, Serve(entry, Grade.EXACT, 0), marks)
        why = "a rule says that it is a probe, and none like it was recorded"
        line = self._discreet.redactor.text(visit.line)
        await self._giver.say_none(visit, no_episode_document(self.stage.run.name, line, why, ""))
        return Ending.KEEP

    async def _refuse(self, visit: Visit, marks: Marks, lane: str, why: str) -> None:
        if not visit.request.content.at_eof():
            await read_body(visit.request.content)
        method = visit.request.head.method.encode()
        target = self._discreet.target(visit.door.env, method, marks.target)
        asked = f"{visit.request.method} {target.decode('utf-8', 'backslashreplace')}"
        self.stage.stray(asked, why)
        await self._giver.say_miss(visit, no_episode_document(self.stage.run.name, asked, why, lane))

    def _kept(self, visit: Visit, ending: Ending) -> web.StreamResponse:
        return KEPT if ending is Ending.KEEP and not visit.request.head.should_close else CLOSED


class _Once:
    """The whole request, read when it is first needed."""

    def __init__(self, read: Callable[[], Awaitable[Heard]], heard: Heard | None) -> None:
        self._read, self.heard = read, heard

    async def __call__(self) -> Heard:
        if self.heard is None:
            self.heard = await self._read()
        return self.heard


def _through(door: Door | FrontDoor, request: web.BaseRequest) -> Entrance:
    """How a request came in through the front; one that came past it belongs nowhere."""
    assert isinstance(door, FrontDoor)
    return door.entrance(request.headers) or Entrance(door=UNKNOWN, asked="the origin itself, past the front")
