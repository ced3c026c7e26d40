"""An https environment behind a plain listener, with each listener's own trust."""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from mitmproxy.certs import CertStore

from replayproxy.core.values import Outcome
from replayproxy.proxy.listeners import EnvOptions
from tests.proxy.wire import Environment, Peer, Wire, says

GET = b"GET /rp/e1/a HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA with a certificate for 127.0.0.1: ca.pem and server.pem in that folder."""
    folder = tmp_path_factory.mktemp("ca")
    store = CertStore.from_store(folder, "test", 2048)
    entry = store.get_cert("127.0.0.1", [_ip("127.0.0.1")])
    (folder / "ca.pem").write_bytes(store.default_ca.to_pem())
    (folder / "server.pem").write_bytes(
        entry.cert.to_pem() + (folder / "test-ca.pem").read_bytes().split(b"-----BEGIN CERT")[0]
    )
    return folder


def _ip(text: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(text))


async def secure(w: Wire, folder: Path, options: EnvOptions, name: str) -> tuple[Peer, Environment]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    environment = await w.environment(says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), ssl=context)
    url = f"https://127.0.0.1:{environment.port}"
    w.scribe.urls[name] = url
    return await w.agent(await w.engine.listen(name, url, options=options)), environment


async def test_each_listener_verifies_by_its_own_options(w: Wire, authority: Path) -> None:
    trusted, environment = await secure(w, authority, EnvOptions(ca=authority / "ca.pem"), "trusted")
    insecure, _ = await secure(w, authority, EnvOptions(insecure=True), "insecure")
    unknown, _ = await secure(w, authority, EnvOptions(), "unknown")
    for _ in range(2):
        assert (await trusted.ask(GET)).endswith(b"ok")
        assert (await insecure.ask(GET)).endswith(b"ok")
    assert (await unknown.ask(GET)).startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    await w.scribe.exchange(5)
    by_env = {exchange.env: exchange for exchange in w.scribe.exchanges}
    assert by_env["trusted"].outcome is by_env["insecure"].outcome is Outcome.ANSWERED
    assert by_env["trusted"].upstream == f"https://127.0.0.1:{environment.port}"
    assert environment.connections == 1, "the two requests shared a connection"
    assert (by_env["unknown"].outcome, by_env["unknown"].response) == (Outcome.REFUSED, None)
    assert "certificate" in by_env["unknown"].error.lower()
    assert "upstream-refused" in w.scribe.kinds()
    assert w.scribe.faults == []


async def test_tls_on_a_plain_listener_is_closed_and_told(w: Wire) -> None:
    _, _, agent = await w.between(says(b""))
    hello = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="x.test").do_handshake()
    await agent.send(hello.read())
    assert await agent.read_to_end() == b""
    await w.scribe.until(lambda: "unreadable-request" in w.scribe.kinds())
    assert w.scribe.faults == []


async def test_a_dynamic_listener_may_be_sent_to_an_https_environment(w: Wire, authority: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.pem")
    environment = await w.environment(says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), ssl=context)
    w.scribe.urls["app"] = f"https://127.0.0.1:{environment.port}"
    listener = await w.engine.listen("app", "dynamic", options=EnvOptions(insecure=True))
    agent = await w.agent(listener)
    assert (await agent.ask(GET)).endswith(b"ok")
    assert environment.requests == [b"GET /a HTTP/1.1\r\nHost: %s\r\n\r\n" % environment.authority]
