"""What our HTTP/2 layer keeps of the streams of a connection, which may live for days."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path

import h2.connection
import pytest
from mitmproxy.proxy.context import Context

from replayproxy.proxy.ca import Authority
from replayproxy.proxy.http2 import AgentHttp2
from replayproxy.proxy.listeners import EnvOptions
from tests.proxy.h2_server import H2Environment
from tests.proxy.wire import wire
from tests.session.tls_server import make_tls_files


class Heads(H2Environment):
    """Answers each HEAD without a body."""

    def answer(self, http: h2.connection.H2Connection, stream: int, head: Mapping[bytes, bytes], body: bytes) -> None:
        if head[b":path"] == b"/ok":
            http.send_headers(stream, [(b":status", b"200")], end_stream=True)
        else:
            super().answer(http, stream, head, body)


async def test_nothing_is_kept_of_a_stream_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers: list[AgentHttp2] = []
    real = AgentHttp2.__init__

    def made(layer: AgentHttp2, context: Context) -> None:
        real(layer, context)
        layers.append(layer)

    monkeypatch.setattr(AgentHttp2, "__init__", made)
    authority, files = Authority(tmp_path / "ca"), make_tls_files(tmp_path)
    async with wire(authority=authority) as w, Heads(files) as environment:
        w.scribe.urls["app"] = environment.url
        listener = await w.engine.listen("app", environment.url, options=EnvOptions(tls=True, ca=files.ca))
        trust = ssl.create_default_context(cafile=authority.certificate)
        async with Heads.agent(listener.bound, trust, careless=True) as agent:
            assert (await agent.ask(b"HEAD", b"/rp/e1/ok")).status == 200
            (layer,) = layers
            refused = await agent.ask(b"HEAD", b"/rp/e1/a b")
            assert (refused.status, refused.body) == (400, b"")
            assert (await agent.ask(b"HEAD", b"/rp/e1/reset")).was_reset
            stream = agent.begin(b"HEAD", b"/rp/e1/silence", None)
            async with asyncio.timeout(5):
                while stream not in layer._of_head:
                    await asyncio.sleep(0.01)
            agent.reset(stream)
            assert (await agent.ask(b"HEAD", b"/rp/e1/ok")).status == 200
            assert (layer._of_head, layer._refused) == (set(), set())
        assert w.scribe.faults == []
