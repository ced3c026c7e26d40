"""The stand-in counts each canary once, by whatever protocol it came."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp
import httpx
import pytest

from replayproxy.proxy.ca import Authority
from replayproxy.session.canary_standin import HOST, StandIn, canary_in, page_of, path_of, standin


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("store") / "ca")


@pytest.fixture
async def target(authority: Authority) -> AsyncIterator[StandIn]:
    async with standin(lambda: authority.server_context([HOST])) as made:
        yield made


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


async def test_each_protocol_is_counted(target: StandIn, authority: Authority) -> None:
    async with httpx.AsyncClient(verify=trusting(authority), http2=True, trust_env=False) as client:
        for n, base in enumerate((target.plain, target.secure, target.http2)):
            answer = await client.get(base + path_of(f"c{n}"))
            assert (answer.status_code, answer.text) == (200, "// canary\n")
        assert answer.http_version == "HTTP/2"
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(target.plain + path_of("c3")) as socket:
            await socket.send_str("canary")
            assert await socket.receive_str(timeout=10) == "canary"
    assert target.arrived == {"c0": 1, "c1": 1, "c2": 1, "c3": 1}


async def test_a_page_asks_for_its_canary_from_the_root_and_counts_for_none(target: StandIn) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        page = await client.get(target.plain + page_of("c1"))
        assert f'src="{path_of("c1")}"' in page.text
        assert (await client.get(target.plain + "/favicon.ico")).status_code == 404
    assert not target.arrived


async def test_what_is_no_http2_ends_its_connection(target: StandIn, authority: Authority) -> None:
    port = urlsplit(target.http2).port
    reader, writer = await asyncio.open_connection(HOST, port, ssl=trusting(authority))
    writer.write(b"GET /canary/c1 HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(10):
        assert b"canary" not in await reader.read()
    writer.close()
    assert not target.arrived


@pytest.mark.parametrize(
    ("target", "name"),
    [(b"/canary/c7", "c7"), (b"/api/canary/c7", "c7"), (b"/page/c7", None), (b"/canary/c7/x", None), (b"/\xff", None)],
)
def test_which_canary_a_request_is(target: bytes, name: str | None) -> None:
    assert canary_in(target) == name
