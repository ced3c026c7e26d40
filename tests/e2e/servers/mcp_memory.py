"""An MCP server that remembers what its clients tell it: each client's own, or, with --shared, all in one list."""

from __future__ import annotations

import argparse
from collections import defaultdict

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--shared", action="store_true", help="the fault: one list for all sessions")
given = parser.parse_args()

MEMORY: dict[str, list[str]] = defaultdict(list)
server = MCPServer("memory")


def own(ctx: Context) -> list[str]:
    return MEMORY["" if given.shared else (ctx.headers or {}).get("mcp-session-id", "")]


@server.tool()
def remember(text: str, ctx: Context) -> dict[str, object]:
    """Keep a text."""
    own(ctx).append(text)
    return {"kept": len(text)}


@server.tool()
def recall(ctx: Context) -> dict[str, object]:
    """All texts that were kept."""
    return {"texts": list(own(ctx))}


uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=given.port, log_level="warning")
