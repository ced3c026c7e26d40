"""Small servers of the wire shapes of MCP, tau2, verifiers and OpenEnv, and agents that carry no mark of ours."""

from __future__ import annotations

import itertools
import json
from typing import Any

import aiohttp
from aiohttp import WSMsgType, web

# -- MCP: with a session (SSE answers), and without (plain JSON) -------------------------------------------------------


def mcp_server() -> web.Application:
    notes: dict[str, list[str]] = {}
    numbers = itertools.count(1)

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        stateless = "Mcp-Method" in request.headers
        session = request.headers.get("Mcp-Session-Id") or f"session-{next(numbers):04d}-of-this-server"
        whose = request.headers["Authorization"] if stateless else session
        mine = notes.setdefault(whose, [])
        if asked["method"] == "tools/call":
            mine.append(asked["params"]["arguments"]["text"])
        told = {"jsonrpc": "2.0", "id": asked["id"], "result": {"structuredContent": {"notes": list(mine)}}}
        if stateless:
            return web.json_response(told)
        headers = {"Content-Type": "text/event-stream", "Mcp-Session-Id": session}
        stream = web.StreamResponse(headers=headers)
        await stream.prepare(request)
        await stream.write(f"event: message\ndata: {json.dumps(told)}\n\n".encode())
        return stream

    app = web.Application()
    app.router.add_post("/mcp", answer)
    return app


async def mcp_call(client: aiohttp.ClientSession, url: str, n: int, headers: dict[str, str], **asked: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": n, **asked}
    async with client.post(f"{url}/mcp", json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        text = await answer.text()
        told = json.loads(text.partition("data: ")[2] or text)
        return answer.headers.get("Mcp-Session-Id"), told["result"]["structuredContent"]["notes"]


async def mcp_agent(url: str, name: str) -> None:
    async with aiohttp.ClientSession() as client:
        client_info = {"clientInfo": {"name": name, "version": "1"}}
        session, _ = await mcp_call(client, url, 0, {}, method="initialize", params=client_info)
        headers = {"Mcp-Session-Id": session}
        for n in range(1, 4):
            call = {"name": "add_note", "arguments": {"text": f"note {n}"}}
            _, notes = await mcp_call(client, url, n, headers, method="tools/call", params=call)
            assert notes == [f"note {k}" for k in range(1, n + 1)]


async def stateless_mcp_agent(url: str, name: str) -> None:
    headers = {
        "Authorization": f"Bearer key-of-{name}",
        "Mcp-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
    }
    async with aiohttp.ClientSession() as client:
        for n in range(1, 4):
            call = {"name": "add_note", "arguments": {"text": f"note {n}"}, "_meta": {"envelope": 1}}
            given = {**headers, "Mcp-Name": "add_note"}
            _, notes = await mcp_call(client, url, n, given, method="tools/call", params=call)
            assert notes == [f"note {k}" for k in range(1, n + 1)]


# -- tau2: the environment's id is in the path -------------------------------------------------------------------------


def tau2_server() -> web.Application:
    calls: dict[str, int] = {}

    async def start(request: web.Request) -> web.Response:
        name = f"env-{len(calls) + 1}"
        calls[name] = 0
        return web.json_response({"env_id": name})

    async def tool(request: web.Request) -> web.Response:
        calls[request.match_info["env"]] += 1
        return web.json_response({"calls": calls[request.match_info["env"]]})

    async def trajectory(request: web.Request) -> web.Response:
        return web.json_response({"length": calls[request.match_info["env"]]})

    app = web.Application()
    app.router.add_post("/start_environment", start)
    app.router.add_post("/{env}/tools/{tool}", tool)
    app.router.add_get("/{env}/trajectory", trajectory)
    return app


async def tau2_agent(url: str, name: str) -> None:
    async with aiohttp.ClientSession() as client:
        async with client.post(f"{url}/start_environment", json={"domain": name}) as answer:
            env = (await answer.json())["env_id"]
        for n in range(1, 4):
            async with client.post(f"{url}/{env}/tools/get_user", json={"n": n}) as answer:
                assert await answer.json() == {"calls": n}
        async with client.get(f"{url}/{env}/trajectory") as answer:
            assert await answer.json() == {"length": 3}


# -- verifiers: a shared tool server, the rollout in the query ---------------------------------------------------------


def verifiers_server() -> web.Application:
    states: dict[str, int] = {}

    async def answer(request: web.Request) -> web.Response:
        mine = request.query["vf_state_signature"]
        states[mine] = states.get(mine, 0) + 1
        return web.json_response({"jsonrpc": "2.0", "id": 1, "result": {"n": states[mine]}})

    app = web.Application()
    app.router.add_post("/mcp", answer)
    return app


async def verifiers_agent(url: str, name: str) -> None:
    query = f"vf_state_url=http%3A%2F%2F127.0.0.1%3A9%2Fstate&vf_state_route=trace&vf_state_signature=signed-for-{name}"
    async with aiohttp.ClientSession() as client:
        for n in range(1, 4):
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "tick"}}
            async with client.post(f"{url}/mcp?{query}", json=body) as answer:
                assert (await answer.json())["result"] == {"n": n}


# -- OpenEnv: the session is the connection ----------------------------------------------------------------------------


def openenv_server() -> web.Application:
    sessions: dict[str, int] = {}

    async def socket(request: web.Request) -> web.WebSocketResponse:
        talk = web.WebSocketResponse()
        await talk.prepare(request)
        steps = 0
        async for message in talk:
            asked = message.json()
            if asked["type"] == "close":
                break
            steps = 0 if asked["type"] == "reset" else steps + (asked["type"] == "step")
            await talk.send_json({"type": "observation", "data": {"observation": {"steps": steps}, "done": False}})
        await talk.close()
        return talk

    async def rpc(request: web.Request) -> web.Response:
        asked = await request.json()
        if asked["method"] == "openenv/session/create":
            session = f"session-{len(sessions) + 1:04d}"
            sessions[session] = 0
            result: Any = {"session_id": session}
        else:
            sessions[asked["params"]["session_id"]] += 1
            result = {"calls": sessions[asked["params"]["session_id"]]}
        return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    async def health(request: web.Request) -> web.Response:
        return web.json_response({"status": "healthy"})

    app = web.Application()
    app.router.add_get("/ws", socket)
    app.router.add_post("/mcp", rpc)
    app.router.add_get("/health", health)
    return app


async def openenv_agent(url: str, name: str, *, named: bool = True) -> None:
    async with aiohttp.ClientSession() as client:
        async with client.get(f"{url}/health") as answer:
            assert await answer.json() == {"status": "healthy"}
        async with client.ws_connect(f"{url}/ws") as talk:
            data = {
                "seed": len(name),
                **({"episode_id": name} if named else {"scenario": name, "api_key": f"key-of-{name}"}),
            }
            await talk.send_json({"type": "reset", "data": data})
            assert (await talk.receive_json())["data"]["observation"] == {"steps": 0}
            for n in range(1, 4):
                await talk.send_json({"type": "step", "data": {"action": n}})
                assert (await talk.receive_json())["data"]["observation"] == {"steps": n}
            await talk.send_json({"type": "close"})
            assert (await talk.receive()).type is WSMsgType.CLOSE


async def openenv_rpc_agent(url: str, name: str) -> None:
    async def call(client: aiohttp.ClientSession, n: int, method: str, **params: Any) -> Any:
        async with client.post(
            f"{url}/mcp", json={"jsonrpc": "2.0", "id": n, "method": method, "params": params}
        ) as got:
            assert got.status == 200, await got.text()
            return (await got.json())["result"]

    async with aiohttp.ClientSession() as client:
        session = (await call(client, 0, "openenv/session/create", scenario=name))["session_id"]
        for n in range(1, 4):
            assert await call(client, n, "tools/call", session_id=session, name="look") == {"calls": n}
