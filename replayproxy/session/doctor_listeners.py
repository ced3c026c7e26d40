"""One GET of each environment's base URL through its listener, by a few clients: is it recorded, and where do its links
lead? The recording goes to a store that is thrown away."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import aiohttp

from replayproxy.core.values import Exchange
from replayproxy.errors import Exit, Problem
from replayproxy.session.camera import Plan
from replayproxy.session.canary_process import ended
from replayproxy.session.diagnosis import Diagnosis
from replayproxy.session.proxied import ca_variables, proxy_variables
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.recorder import Recorder
from replayproxy.session.wiring import EnvSpec, address_of
from replayproxy.storage import open_store

EPISODE = "doctor"
LIMIT = 5.0
NODE = "fetch(process.argv[1]).then(r => r.arrayBuffer()).then(() => {}, e => { console.error(e); process.exit(1) })"


async def through_listeners(options: RecordOptions, found: Diagnosis) -> Mapping[str, list[Exchange]]:
    """Sends one request by each client through each listener, and gives what the store then holds."""
    with tempfile.TemporaryDirectory(prefix="replayproxy-doctor-") as folder:
        own = replace(
            options, store=Path(folder) / "store", run="doctor", append=False, episode=EPISODE, snapshots=(),
            plan=Plan(when=()), ready_file=None, log_every=0.0, resets=(),
        )  # fmt: skip
        try:
            sent, seen = await _recorded(own)
        except Problem as problem:
            found.add("FAIL", "listeners", f"the recorder did not start: {problem}", problem.exit)
            return {}
    for env, clients in sent.items():
        exchanges = seen.get(env, [])
        lost = [client for client, ran in clients.items() if ran and not _agents(exchanges, client)]
        names = ", ".join(client for client, ran in clients.items() if ran)
        if not names:
            found.add("FAIL", env, f"{env} by listener URL: no client got an answer", Exit.UNJUDGED)
        elif lost:
            found.add("FAIL", env, f"{env} by listener URL: {', '.join(lost)} not recorded", Exit.UNJUDGED)
        else:
            found.add("ok", env, f"{env} by listener URL: {names} recorded")
    return seen


async def _recorded(options: RecordOptions) -> tuple[dict[str, dict[str, bool]], dict[str, list[Exchange]]]:
    """({environment: {client: whether it ran}}, {environment: what was recorded})."""
    with open_store(options.store, create=True) as store:
        writer = store.writer()
        recorder = Recorder(options, store, writer, lambda line: None)
        sent: dict[str, dict[str, bool]] = {}
        try:
            await recorder.start()
            trusted = recorder.authority.certificate if recorder.authority else None
            for env, url in recorder.addresses.plain_urls().items():
                sent[env] = await _by_each_client(url + "/", trusted)
            await recorder.stop(asyncio.get_running_loop().time() + LIMIT)
        finally:
            await recorder.abandon()
            writer.close()
        reader = store.reader()
        episode = reader.episode(reader.run("doctor"), EPISODE)
        seen: dict[str, list[Exchange]] = {env: [] for env in sent}
        for exchange in reader.exchanges(episode):
            seen[exchange.env].append(exchange)
        return sent, seen


async def _by_each_client(url: str, trusted: Path | None) -> dict[str, bool]:
    """{client: whether it got an answer}. `trusted`: the CA that a child of `record` would be told of."""
    environ = {**os.environ, **(ca_variables(str(trusted)) if trusted else {})}
    words = {
        "curl": ("-s", "-o", "/dev/null", "--max-time", "5", "--noproxy", "*", url),
        "node": ("-e", NODE, url),
    }
    ran = {"aiohttp": await _by_aiohttp(url, trusted)}
    for client, given in words.items():
        if program := shutil.which(client):
            # One that fails does so for a reason of its own: an old node has no fetch.
            ran[client] = (await ended((program, *given), seconds=LIMIT * 2, environ=environ)).code == 0
    return ran


async def _by_aiohttp(url: str, trusted: Path | None) -> bool:
    tls = ssl.create_default_context(cafile=str(trusted)) if trusted else True
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LIMIT)) as http:
            async with http.get(url, allow_redirects=False, ssl=tls) as answer:
                await answer.read()
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False
    return True


def _agents(exchanges: Sequence[Exchange], client: str) -> bool:
    """Whether one of the exchanges is this client's, by its User-Agent."""
    agents = b" ".join(v.lower() for one in exchanges for n, v in one.request.fields if n.lower() == b"user-agent")
    return client.encode() in agents or (client == "node" and b"undici" in agents)


def links(answers: Mapping[str, list[Exchange]], found: Diagnosis) -> None:
    """What in the answers would lead the agent past the proxy, or mix two environments up."""
    cookies: dict[bytes, set[str]] = {}
    for env, exchanges in answers.items():
        if any(note.startswith("escaping-links") for one in exchanges for note in one.notes):
            found.add(
                "WARN",
                env,
                f"{env} links to itself absolutely in its bodies: the agent would leave the proxy -> host=keep",
            )
        for one in exchanges:
            for name, value in one.response.fields if one.response else ():
                if name.lower() == b"set-cookie":
                    cookies.setdefault(value.partition(b"=")[0].strip(), set()).add(env)
    for cookie, envs in cookies.items():
        if len(envs) > 1:
            shown = cookie.decode("latin-1")
            found.add(
                "WARN", "cookies", f"{' and '.join(sorted(envs))} both set cookie {shown!r}: give them different hosts"
            )


def excepted(envs: Sequence[EnvSpec], environ: Mapping[str, str], found: Diagnosis) -> None:
    """An inherited NO_PROXY that names an environment's host: `record` takes only the loopback out of it."""
    variables = proxy_variables("", environ)
    entries = [one for name in ("no_proxy", "NO_PROXY") for one in variables.get(name, "").split(",")]
    for env in envs:
        host = address_of(env.upstream)[0]
        if any(_names(entry.strip().lower(), host.lower()) for entry in entries):
            found.add(
                "WARN", env.name,
                f"NO_PROXY names the host of {env.name}: clients go past a forward proxy to it -> take it out, or use"
                " the listener URL",
            )  # fmt: skip


def _names(entry: str, host: str) -> bool:
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        name = entry.partition(":")[0].removeprefix("*").lstrip(".")
        return bool(name) and (host == name or host.endswith("." + name))
