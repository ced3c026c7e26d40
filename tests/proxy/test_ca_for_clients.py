"""What clients need of the authority: a bundle, a server that they trust, the hash that Chromium takes."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest
from mitmproxy.certs import CertStore

from replayproxy.proxy.ca import Authority
from tests.needs import program


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("store") / "ca")


async def served(authority: Authority, client: ssl.SSLContext) -> bytes:
    """The certificate that a client of a server of ours sees."""
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=authority.server_context(["127.0.0.1", "crm.test"])
    )
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    seen = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    server.close()
    return bytes(seen)


async def test_who_trusts_the_bundle_trusts_a_server_of_ours_and_nobody_else_does(authority: Authority) -> None:
    await served(authority, ssl.create_default_context(cafile=str(authority.bundle({}))))
    with pytest.raises(ssl.SSLCertVerificationError):
        await served(authority, ssl.create_default_context())
    assert sorted(one.name for one in authority.folder.glob("tmp*")) == []


async def test_the_hash_is_of_the_key_of_what_is_served(authority: Authority) -> None:
    openssl = program("openssl")
    seen = await served(authority, ssl.create_default_context(cafile=str(authority.certificate)))
    words = (["x509", "-inform", "DER", "-pubkey", "-noout"], ["pkey", "-pubin", "-outform", "DER"])
    for word in words:
        seen = subprocess.run([openssl, *word], input=seen, capture_output=True, check=True).stdout
    assert authority.key_hash == b64encode(sha256(seen).digest()).decode()


def test_another_s_authority_has_no_hash_and_breaks_nothing(tmp_path: Path) -> None:
    made = Authority(tmp_path / "ca")
    CertStore.create_store(tmp_path / "other", "replayproxy", 3072)
    for one in (tmp_path / "other").iterdir():
        one.replace(made.folder / one.name)
    assert Authority(made.folder).key_hash == ""


def test_a_bundle_holds_each_file_once(authority: Authority, tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_text("# mine\n")
    named = dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"), str(own))
    assert authority.bundle(named).read_text().count("# mine") == 1
    system = ssl.get_default_verify_paths().cafile
    again = authority.bundle({"SSL_CERT_FILE": system} if system else {}).read_bytes()
    assert again == authority.bundle({}).read_bytes()
