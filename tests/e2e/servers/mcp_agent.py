"""The SDK's own client, in both of its wire eras: with a session (SSE answers), and without (plain JSON)."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from itertools import count
from uuid import uuid4

from mcp import ClientSession
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

parser = argparse.ArgumentParser()
parser.add_argument("--era", choices=["session", "stateless"], default="session")
parser.add_argument("--ids", choices=["own", "later", "uuid"], default="own", help="how calls are named")
parser.add_argument("--pause", type=float, default=0.0, help="seconds that it thinks in the middle")
given = parser.parse_args()
URL = os.environ["REPLAYPROXY_URL_NOTES"] + "/mcp"


def named_otherwise():
    """The SDK counts from 1; another client, or another version of it, may not."""
    first = count(1001)
    JSONRPCDispatcher._allocate_id = lambda self: next(first) if given.ids == "later" else str(uuid4())


async def work(call):
    seen = []
    for text in ("milk", "bread", "tea"):
        seen.append(await call("add_note", {"text": text}))
    seen.append(await call("list_notes", {}))
    await asyncio.sleep(given.pause)
    seen.append(await call("finish_note", {"note": 2}))
    seen.append(await call("finish_note", {"note": 99}))
    for text in ("jam", "salt"):
        seen.append(await call("add_note", {"text": text}))
        seen.append(await call("list_notes", {}))
    for note in (1, 3):
        seen.append(await call("finish_note", {"note": note}))
        seen.append(await call("list_notes", {}))
    return seen


async def main():
    if given.era == "session":
        async with streamable_http_client(URL) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            await session.list_tools()
            seen = await work(session.call_tool)
    else:
        async with Client(URL) as client:
            await client.list_tools()
            seen = await work(client.call_tool)
    print(json.dumps([[result.is_error, [c.text for c in result.content]] for result in seen]))


if given.ids != "own":
    named_otherwise()
asyncio.run(main())
