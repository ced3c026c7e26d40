"""A state endpoint for an environment whose state is a dict: mount it, and `http:` snapshots can read and restore.

app.mount("/__state__", state_endpoint(lambda: world.state, world.load))     # Starlette, FastAPI, any ASGI host
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

type Message = MutableMapping[str, Any]
type App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


def state_endpoint(get: Callable[[], Any], set: Callable[[Any], Any] | None = None) -> App:
    """An ASGI app: GET answers `get()` as JSON, PUT calls `set` with the body's JSON value and answers 204.

    Either may be a coroutine function. Without `set`, and for other methods, the answer is 405; 400 when the body
    is not JSON. What `get` and `set` raise is the host's to answer, as in any handler.
    """
    allowed = b"GET, HEAD, PUT" if set is not None else b"GET, HEAD"

    async def app(
        scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"a state endpoint does not speak {scope['type']}")
        method = scope["method"]
        if method in ("GET", "HEAD"):
            body = json.dumps(await _called(get), ensure_ascii=False).encode("utf-8", "surrogatepass")
            await _answer(send, 200, b"" if method == "HEAD" else body, length=len(body))
        elif method == "PUT" and set is not None:
            given = await _body(receive)
            if given is None:
                return  # the client left in the middle of the state: half a state is none
            try:
                value = json.loads(given)
            except (ValueError, RecursionError) as error:
                await _answer(send, 400, json.dumps({"title": f"the body is not JSON: {error}"}).encode())
                return
            await _called(set, value)
            await _answer(send, 204, b"")
        else:
            await _answer(send, 405, json.dumps({"title": f"{method} is not allowed"}).encode(), (b"allow", allowed))

    return app


async def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


async def _body(receive: Callable[[], Awaitable[Message]]) -> bytes | None:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _answer(
    send: Callable[[Message], Awaitable[None]],
    status: int,
    body: bytes,
    *fields: tuple[bytes, bytes],
    length: int | None = None,
) -> None:
    headers = [*fields]
    if status != 204:
        size = len(body) if length is None else length
        headers += [(b"content-type", b"application/json"), (b"content-length", str(size).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _lifespan(receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
