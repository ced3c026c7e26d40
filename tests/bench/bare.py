"""The bare proxy: mitmproxy's Master with only what passes traffic on.    python -m tests.bench.bare PORT UPSTREAM"""

from __future__ import annotations

import asyncio
import sys

from mitmproxy.addons.core import Core
from mitmproxy.addons.next_layer import NextLayer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.addons.tlsconfig import TlsConfig
from mitmproxy.master import Master
from mitmproxy.options import Options


async def main(port: int, upstream: str) -> None:
    master = Master(Options())  # type: ignore[no-untyped-call]
    master.addons.add(Core(), Proxyserver(), NextLayer(), TlsConfig())  # type: ignore[no-untyped-call]
    master.options.update(  # type: ignore[no-untyped-call]
        mode=[f"reverse:{upstream}@127.0.0.1:{port}"], ssl_insecure=True, connection_strategy="lazy"
    )
    await master.run()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
