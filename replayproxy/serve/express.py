"""The short way of a request whose recorded answer only has to be written: no task, no request object, no waiting.

Nearly every request of a replay is of this kind, and what aiohttp does for one that a handler has to answer costs more
than to find and to write the answer. It is the same look-up by the same code as the long way (`Origin`), which takes
over wherever this one finds anything that it does not know; nothing has happened then.
"""

from __future__ import annotations

from aiohttp.http_parser import RawRequestMessage

from replayproxy.core.script import Heard
from replayproxy.serve.bodies import EMPTY
from replayproxy.serve.discretion import Discretion, cleaned
from replayproxy.serve.doors import Entrance
from replayproxy.serve.stage import Stage, lane_of
from replayproxy.serve.visit import Dialect, is_marked, origin_form


class Express:
    """Of one door. `answer` is for a request without a body, on a connection that waits for one. Where it raises,
    nothing was claimed."""

    def __init__(self, stage: Stage, dialect: Dialect, discreet: Discretion, entrance: Entrance) -> None:
        self._stage, self._dialect, self._entrance = stage, dialect, entrance
        self._redactor, self._env = discreet.redactor, entrance.door.env

    def answer(self, message: RawRequestMessage) -> bytes | None:
        """The bytes to be written; the answer is then given. None: the long way."""
        stage, headers = self._stage, message.headers
        if stage.known is not None or message.should_close or message.upgrade or "Expect" in headers:
            return None
        target = origin_form(message.path.encode("utf-8", "surrogateescape"))
        marks = self._dialect.take_marks(target, message.raw_headers if is_marked(headers) else (), self._entrance)
        method = message.method.encode()
        if stage.resets is not None and stage.resets.may_be(self._env, method, marks.target):
            return None
        name, lane = stage.whose(marks.claims), lane_of(marks.claims)
        if name is None or self._entrance.why_not or stage.why_not(name, lane):
            return None
        scene = stage.scene_now(name)
        if scene is None:
            return None
        heard = cleaned(self._redactor, self._env, Heard(method, marks.target, message.raw_headers, EMPTY), scene.shown)
        asked = scene.replayer.script.known(self._env, heard)
        return None if asked is None else scene.at_once(asked, lane)
