"""An environment on SQLite: GET /deals/N reads a row, PUT /deals/N writes it.

python -m tests.bench.environment PORT DB
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys

COLUMNS = ("id", "stage", "owner", "amount", "notes")


class Environment:
    def __init__(self, path: str) -> None:
        self.state = sqlite3.connect(path, isolation_level=None)
        self.state.execute("PRAGMA synchronous=OFF")
        self.writes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, target = head.split(b" ", 2)[:2]
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0] or 0)
                if length:
                    await reader.readexactly(length)
                key = int(target.rpartition(b"/")[2])
                if method == b"PUT":
                    self.writes += 1
                    self.state.execute("UPDATE deals SET amount = ? WHERE id = ?", (self.writes, key))
                row = self.state.execute(f"SELECT {', '.join(COLUMNS)} FROM deals WHERE id = ?", (key,)).fetchone()
                body = json.dumps(dict(zip(COLUMNS, row, strict=True))).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                    % (len(body), body)
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def main(port: int, path: str) -> None:
    server = await asyncio.start_server(Environment(path).serve, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
