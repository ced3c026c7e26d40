"""Two clients of the memory server, each an episode with a canary in what it says; TOGETHER=1: at the same time."""

from __future__ import annotations

import asyncio
import os

import replayproxy_client as replayproxy
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def rollout(name: str, said: asyncio.Event, heard: asyncio.Event) -> None:
    async with replayproxy.episode(episode=name, task="errands") as ep:
        canary = await ep.acanary()
        async with streamable_http_client(ep.url("memory") + "/mcp") as (read, write), ClientSession(read, write) as me:
            await me.initialize()
            await me.call_tool("remember", {"text": f"Ring the plumber on Friday. {canary}"})
            said.set()
            await heard.wait()
            await me.call_tool("recall", {})


async def main() -> None:
    a, b = asyncio.Event(), asyncio.Event()
    if os.environ.get("TOGETHER") == "1":
        # Each looks only after the other has spoken.
        await asyncio.gather(rollout("first", a, b), rollout("second", b, a))
    else:
        b.set()
        await rollout("first", a, b)
        await rollout("second", b, a)


asyncio.run(main())
