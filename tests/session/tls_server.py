"""An https server with a CA of its own, HTTP/1.1 by aiohttp."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from cryptography import x509
from mitmproxy.certs import CertStore


@dataclass(frozen=True)
class TlsFiles:
    """`ca`: what clients are to trust; `server`: certificate and key for 127.0.0.1, ::1 and localhost."""

    ca: Path
    server: Path

    def context(self, *protocols: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        context.set_alpn_protocols(list(protocols or ("http/1.1",)))
        return context


def make_tls_files(folder: Path) -> TlsFiles:
    store = CertStore.from_store(folder, "test", 2048)
    names = [x509.DNSName("localhost")]
    ips = [x509.IPAddress(ipaddress.ip_address(one)) for one in ("127.0.0.1", "::1")]
    entry = store.get_cert("localhost", [*names, *ips])
    files = TlsFiles(ca=folder / "ca.pem", server=folder / "server.pem")
    files.ca.write_bytes(store.default_ca.to_pem())
    key = (folder / "test-ca.pem").read_bytes().split(b"-----BEGIN CERT")[0]
    files.server.write_bytes(entry.cert.to_pem() + key)
    return files


@asynccontextmanager
async def https_site(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], files: TlsFiles | None, host: str = "127.0.0.1"
) -> AsyncIterator[str]:
    """The URL of a running server; plain without `files`."""
    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, 0, ssl_context=files.context() if files else None)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    shown = f"[{host}]" if ":" in host else host
    yield f"{'https' if files else 'http'}://{shown}:{port}"
    await runner.cleanup()
