"""aiohttp's low-level server, one constant answer.    python -m tests.bench.constant PORT"""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web

from tests.bench.upstream import SMALL


async def handler(request: web.BaseRequest) -> web.Response:
    return web.Response(body=SMALL, content_type="application/json")


async def main(port: int) -> None:
    runner = web.ServerRunner(web.Server(handler, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
