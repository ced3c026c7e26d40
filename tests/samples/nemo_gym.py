"""A server of NeMo Gym's wire shape: a signed Starlette cookie on every answer, and an agent that has nothing else."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable
from typing import Any

import aiohttp
import itsdangerous
from aiohttp import web

COOKIE = "StatefulCounterResourcesServer___counter"


class Nemo:
    """`clock` gives the seconds that are signed into the cookie."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._signer = _Signer("not-so-secret", clock)
        self._token = itsdangerous.URLSafeSerializer("not-so-secret", salt="nemo-gym-mcp-session-token")
        self.counters: dict[str, int] = {}
        self.app = web.Application()
        self.app.router.add_route("*", "/{tool:.*}", self.answer)

    def _session(self, request: web.Request) -> str:
        token = request.headers.get("X-NeMo-Gym-Session-Token")
        if token:
            return str(self._token.loads(token))
        cookie = request.cookies.get(COOKIE)
        if cookie:
            return str(json.loads(base64.b64decode(self._signer.unsign(cookie)))["session_id"])
        return str(uuid.uuid4())  # a lost cookie is no error there: it is a new session

    async def answer(self, request: web.Request) -> web.Response:
        session = self._session(request)
        asked = await request.json()
        self.counters[session] = self.counters.get(session, 0) + int(asked.get("by", 0))
        told: dict[str, Any] = {"count": self.counters[session]}
        if request.path == "/seed_session":
            told = {"mcp": {"url_path": "/mcp", "headers": {"X-NeMo-Gym-Session-Token": self._token.dumps(session)}}}
        if request.path == "/verify":
            told = {"reward": float(self.counters[session])}
        answer = web.json_response(told)
        text = base64.b64encode(json.dumps({"session_id": session}).encode())
        signed = self._signer.sign(text).decode()
        answer.headers["Set-Cookie"] = f"{COOKIE}={signed}; path=/; Max-Age=1209600; httponly; samesite=lax"
        return answer


class _Signer(itsdangerous.TimestampSigner):
    def __init__(self, secret: str, clock: Callable[[], int]) -> None:
        super().__init__(secret)
        self._clock = clock

    def get_timestamp(self) -> int:
        return self._clock()


class Session:
    """An agent's session: a cookie jar, and no other mark."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def call(self, tool: str, **asked: Any) -> Any:
        headers = asked.pop("headers", {})
        async with self._client.post(f"{self._url}/{tool}", json=asked, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    def lose_cookie(self) -> None:
        self._client.cookie_jar.clear()
