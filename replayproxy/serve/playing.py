"""A request whose episode is known: its recorded answer is found, and given when its turn has come."""

from __future__ import annotations

import asyncio

from replayproxy.core.callids import CALLS
from replayproxy.core.misses import message_document
from replayproxy.core.replayer import Miss, Serve
from replayproxy.core.script import Heard, Identified
from replayproxy.serve.bodies import IN_LINE
from replayproxy.serve.discretion import Discretion
from replayproxy.serve.giving import Giver
from replayproxy.serve.meeting import Met, turn_away
from replayproxy.serve.scene import Scene
from replayproxy.serve.visit import Marks, Visit, host_of
from replayproxy.serve.websocket import Socket, Talk, converse, handshake, no_handshake
from replayproxy.serve.wire import Ending, hold_limit


class Player:
    """Of one origin."""

    def __init__(self, giver: Giver, discreet: Discretion) -> None:
        self._giver, self._discreet = giver, discreet

    async def play(
        self, visit: Visit, scene: Scene, heard: Heard, lane: str, marks: Marks, met: Met | None = None
    ) -> Ending:
        """What becomes of the connection afterwards. `met`: the WebSocket whose handshake is answered already."""
        asked = await self._asked(scene, visit.door.env, heard, lane)
        found = scene.ask(asked, lane)
        if isinstance(found, Miss):
            document = await scene.explain(found)
            if met is not None:
                self._giver.watch.miss(document)
                await turn_away(met.socket, document["detail"])
                return Ending.CLOSE
            await self._giver.say_miss(visit, document)
            return Ending.KEEP
        visit.serve = found
        if not scene.replayer.may_go(found):
            await scene.turn(found)
        if found.entry.exchange.websocket is not None:
            return await self._converse(visit, scene, found, marks, met)
        if met is not None:
            missed = scene.replayer.unlike(
                found, no_handshake("this handshake was refused when recorded"), self._giver.now()
            )
            await turn_away(met.socket, missed.unlike.text)
            return Ending.CLOSE
        if found.renames is not None and (renamed := await scene.renamed(found)) is not None:
            return await self._giver.give(visit, renamed, marks)
        ready = scene.ready[found.entry.at]
        if ready is None or self._giver.pace.speed:
            return await self._giver.give(visit, found, marks)
        return await self._giver.give_ready(visit, ready)

    async def _converse(self, visit: Visit, scene: Scene, serve: Serve, marks: Marks, met: Met | None = None) -> Ending:
        giver, exchange, request = self._giver, serve.entry.exchange, visit.request
        fields = giver.dialect.agent_fields(visit.door, exchange, host_of(request), marks.prefix)
        key = request.headers.get("Sec-WebSocket-Key", "")
        socket = met.socket if met else Socket(handshake(exchange, fields, key))
        visit.whole = True  # the conversation itself judges how it ends
        if met is None and not socket.can_prepare(request):
            miss = scene.replayer.unlike(
                serve, no_handshake("header/sec-websocket-key: no valid WebSocket handshake"), giver.now()
            )
            await giver.say_miss(visit, message_document(scene.replayer.script, miss))
            return Ending.CLOSE
        assert exchange.websocket is not None
        talk = Talk(
            socket, scene, serve, giver.reader.messages(exchange.websocket), pace=giver.pace, now=giver.now,
            stopping=giver.stopping, tell=giver.watch.miss, hold=hold_limit(exchange), first=met.first if met else None,
            clean=lambda message: self._discreet.redactor.message(message, scene.shown),
        )  # fmt: skip
        await converse(request, talk, socket)
        return Ending.CLOSE

    async def _asked(self, scene: Scene, env: str, heard: Heard, lane: str) -> Identified:
        """The request with all that a match may need of it; what is large is worked through in another thread."""
        heard = await self._discreet.heard(env, heard, scene.shown)
        script = scene.replayer.script
        asked = script.known(env, heard)
        if heard.body is None or heard.body.size <= IN_LINE:
            return asked or script.identify(env, heard)
        if asked is None or (asked.ids is None and asked.key.body.startswith(CALLS)):
            asked = await asyncio.to_thread(script.identify, env, heard)
        if scene.replayer.has_equal(asked, lane):
            return asked
        return await asyncio.to_thread(script.loosened, asked)
