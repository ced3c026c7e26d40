"""An MCP server of the official SDK over streamable HTTP: a few tools whose notes lie in SQLite."""

from __future__ import annotations

import argparse
import sqlite3

import uvicorn
from mcp.server.mcpserver import MCPServer

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--db", required=True)
parser.add_argument("--json", action="store_true", help="answer with JSON instead of SSE")
parser.add_argument("--changed", action="store_true", help="a tool behaves differently")
given = parser.parse_args()

database = sqlite3.connect(given.db, isolation_level=None, check_same_thread=False)
database.execute("CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL, done INTEGER NOT NULL)")
server = MCPServer("notes")


@server.tool()
def add_note(text: str) -> dict[str, object]:
    """Add a note."""
    stored = text.upper() if given.changed else text
    row = database.execute("INSERT INTO notes (text, done) VALUES (?, 0)", (stored,))
    return {"id": row.lastrowid, "text": stored}


@server.tool()
def list_notes() -> dict[str, object]:
    """All notes, oldest first."""
    rows = database.execute("SELECT id, text, done FROM notes ORDER BY id").fetchall()
    return {"notes": [{"id": i, "text": t, "done": bool(d)} for i, t, d in rows]}


@server.tool()
def finish_note(note: int) -> dict[str, object]:
    """Mark a note as done."""
    changed = database.execute("UPDATE notes SET done=1 WHERE id=?", (note,)).rowcount
    if not changed:
        raise ValueError(f"no note {note}")
    return {"id": note, "done": True}


app = server.streamable_http_app(json_response=given.json)
uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning")
