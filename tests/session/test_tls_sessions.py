"""Listeners that speak TLS, recorded and replayed whole: HTTP/1.1 and HTTP/2, by real clients."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

from replayproxy.core.values import EnvWiring, Run
from replayproxy.session.replay_options import ReplayOptions, specs
from replayproxy.session.wiring import EnvSpec
from replayproxy.storage import open_store
from tests.proxy.h2_server import H2Environment
from tests.session.test_replay_forward import Lab, answer
from tests.session.tls_server import TlsFiles, https_site, make_tls_files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def lab(tmp_path: Path, files: TlsFiles) -> Lab:
    return Lab(tmp_path, files)


HTTPX = (
    "import httpx, json, os, sys\n"
    "trust = __import__('ssl').create_default_context(cafile=os.environ['SSL_CERT_FILE'])\n"
    "with httpx.Client(http2=True, verify=trust, trust_env=True, http1=True) as http:\n"
    "    got = [http.get(sys.argv[2] + '/a?x=1'), http.post(sys.argv[2] + '/b', json={'n': 1}),\n"
    "           http.get(sys.argv[2] + '/hints')]\n"
    "    json.dump([[g.http_version, g.status_code, list(map(list, g.headers.items())), g.text] for g in got],\n"
    "              open(sys.argv[1], 'w'))\n"
)


def by_curl(out: Path, url: str, *more: str) -> str:
    words = " ".join(more)
    return (
        f"set -e; curl -sSf {words} -i {url}/a?x=1 > {out}-a; curl -sSf {words} -i -d n=1 {url}/b > {out}-b; "
        f"curl -sSf {words} -w '%{{http_version}}' -o {out}-c {url}/a > {out}-version"
    )


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize(("http2", "version"), [(True, "2"), (False, "1.1")])
async def test_curl_gets_the_same_over_the_protocol_of_the_recording(
    lab: Lab, tmp_path: Path, files: TlsFiles, *, http2: bool, version: str, forward: bool
) -> None:
    offer = "--http2" if http2 else "--http1.1"
    given = {} if forward else {"forward": None}
    async with H2Environment(files) as environment:
        url = environment.url
        lab.envs = (EnvSpec(name="app", upstream=url, ca=files.ca, tls=not forward),)
        await lab.record(
            by_curl(tmp_path / "rec", url if forward else "$REPLAYPROXY_URL_APP", offer), episode="e", **given
        )
    # The client offers HTTP/2 in any case: which is spoken, the recording decides.
    came = await lab.replay(by_curl(tmp_path / "rep", url if forward else "$REPLAYPROXY_URL_APP", "--http2"), **given)
    assert came.receipt["reproduced"] is True, came.receipt
    assert (came.receipt["served"]["exact"], came.receipt["upstream_contacts"]) == (3, 0)
    assert (tmp_path / "rep-version").read_text() == version
    for one in ("a", "b", "c"):
        assert (tmp_path / f"rep-{one}").read_bytes() == (tmp_path / f"rec-{one}").read_bytes(), one


async def test_httpx_over_http2_is_recorded_and_replayed(lab: Lab, tmp_path: Path, files: TlsFiles) -> None:
    async with H2Environment(files, ("h2",)) as environment:
        lab.envs = (EnvSpec(name="app", upstream=environment.url, ca=files.ca, tls=True),)
        script = f'{sys.executable} -c "$CODE" %s $REPLAYPROXY_URL_APP'
        code = f"CODE={quoted(HTTPX)}; "
        await lab.record(code + script % (tmp_path / "rec"), episode="e", forward=None)
    came = await lab.replay(code + script % (tmp_path / "rep"), forward=None)
    assert came.receipt["reproduced"] is True, came.receipt
    recorded = (tmp_path / "rec").read_text()
    assert recorded == (tmp_path / "rep").read_text()
    assert recorded.count("HTTP/2") == 3


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


async def test_an_http2_recording_is_asked_again_by_an_http1_client(lab: Lab, tmp_path: Path, files: TlsFiles) -> None:
    async with H2Environment(files) as environment:
        lab.envs = (EnvSpec(name="app", upstream=environment.url, ca=files.ca, tls=True),)
        call = "curl -sSf %s -H 'Cookie: a=1; b=2' $REPLAYPROXY_URL_APP/a -o %s"
        await lab.record(call % ("--http2", tmp_path / "rec"), episode="e", forward=None)
    came = await lab.replay(call % ("--http1.1", tmp_path / "rep"), forward=None)
    assert came.receipt["reproduced"] is True, came.receipt
    assert (tmp_path / "rep").read_bytes() == (tmp_path / "rec").read_bytes()


async def test_links_and_prefixes_lead_to_the_tls_listener_in_replay_too(
    lab: Lab, tmp_path: Path, files: TlsFiles
) -> None:
    async def redirects(request: web.Request) -> web.StreamResponse:
        if request.path == "/a":
            return web.Response(status=302, headers={"Location": f"{request.scheme}://{request.host}/b"})
        return await answer(request)

    call = "curl -sSfL -w '%{url_effective}' -o /dev/null $REPLAYPROXY_URL_APP/rp/e1/a"
    async with https_site(redirects, None) as plain:
        lab.envs = (EnvSpec(name="app", upstream=plain, tls=True),)
        await lab.record(f"{call} > {tmp_path}/rec", forward=None)
    came = await lab.replay(f"{call} > {tmp_path}/rep", forward=None)
    assert came.receipt["reproduced"] is True, came.receipt
    for one in ("rec", "rep"):
        url = (tmp_path / one).read_text()
        assert url.startswith("https://127.0.0.1:")
        assert url.endswith("/rp/e1/b")


async def test_an_answer_that_was_cut_over_http2_is_cut_again(lab: Lab, tmp_path: Path, files: TlsFiles) -> None:
    script = f"curl -sS --http2 $REPLAYPROXY_URL_APP/half -o {tmp_path}/%s; test $? = 92"
    async with H2Environment(files) as environment:
        lab.envs = (EnvSpec(name="app", upstream=environment.url, ca=files.ca, tls=True),)
        await lab.record(script % "rec", episode="e", forward=None)
    came = await lab.replay(script % "rep", forward=None)
    assert (came.receipt["reproduced"], came.command_exit) == (True, 0)
    assert (tmp_path / "rep").read_bytes() == (tmp_path / "rec").read_bytes() == b"part"


async def test_a_run_keeps_which_listeners_spoke_tls_and_http2(lab: Lab, files: TlsFiles) -> None:
    async with H2Environment(files) as environment:
        lab.envs = (EnvSpec(name="app", upstream=environment.url, ca=files.ca, tls=True),)
        await lab.record("curl -sSf --http2 $REPLAYPROXY_URL_APP/a", episode="e", forward=None)
    with open_store(lab.store) as store:
        wired = store.reader().run("r").envs["app"]
    assert (wired.options["tls"], wired.options["h2"]) == (True, True)
    assert wired.listener.startswith("https://")


def test_an_environment_that_only_the_forward_proxy_met_gets_no_listener() -> None:
    met = EnvWiring(name="x", upstream="https://x.example", options={"forward": True})
    tls = EnvWiring(name="app", upstream="http://h:1", options={"tls": True})
    run = Run(key=1, name="r", opened_wall=1, envs={"x": met, "app": tls})
    assert [(one.name, one.tls) for one in specs(run, ReplayOptions())] == [("app", True)]
    asked = ReplayOptions(envs={"x": EnvSpec(name="x", upstream="dynamic")})
    assert [one.name for one in specs(run, asked)] == ["x", "app"]


async def test_an_ipv6_literal_works_everywhere(lab: Lab, tmp_path: Path, files: TlsFiles) -> None:
    host = "::1"
    calls = "set -e; curl -g -sSf -i %s/a > {0}-plain; curl -g -sSf -i %s/b > {0}-tunnel; "
    calls += "curl -g -sSf -i $REPLAYPROXY_URL_APP/c > {0}-own"
    async with https_site(answer, None, host) as plain, https_site(answer, files, host) as secure:
        lab.envs = (EnvSpec(name="app", upstream=secure, ca=files.ca, tls=True, host=host),)
        script = calls.replace("%s", plain, 1).replace("%s", secure, 1)
        await lab.record(script.format(tmp_path / "rec"), episode="e", forward=(host, 0))
    came = await lab.replay(script.format(tmp_path / "rep"), forward=(host, 0))
    assert came.receipt["reproduced"] is True, came.receipt
    assert came.receipt["upstream_contacts"] == 0
    for one in ("plain", "tunnel", "own"):
        assert (tmp_path / f"rep-{one}").read_bytes() == (tmp_path / f"rec-{one}").read_bytes()


async def test_the_same_requests_over_either_version_are_the_same_in_diff_and_in_replay(
    lab: Lab, tmp_path: Path, files: TlsFiles
) -> None:
    async with H2Environment(files) as environment:
        lab.envs = (EnvSpec(name="app", upstream=environment.url, ca=files.ca, tls=True),)
        for run, offer in (("r", "--http2"), ("other", "--http1.1")):
            cookies = "-H 'Cookie: a=1; b=2' -H 'Authorization: Bearer abcdefgh'"
            calls = [f"curl -sSf {offer} {cookies} $REPLAYPROXY_URL_APP/{path}" for path in ("a", "b -d n=1")]
            await lab.record("; ".join(calls), episode="e", forward=None, run=run)
    came = await lab.replay("; ".join(calls), forward=None)
    assert came.receipt["reproduced"] is True, came.receipt
    words = [sys.executable, "-m", "replayproxy", "diff", "r", "other", "--store", str(lab.store), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert (document["verdict"], document["roots"], done.returncode) == ("same", [], 0), document
