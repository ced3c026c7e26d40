"""Will this wiring record what the agent does? Tried, not guessed: each environment, listener and snapshot is used.

What is sent to an environment is one GET of its base URL directly and one through each listener by each client that
is on this machine. Nothing is written, and nothing is kept: the recording goes to a store that is thrown away.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import aiohttp

from replayproxy.core.prolly import diff
from replayproxy.core.values import Exchange, Snapshot, SnapshotStatus
from replayproxy.errors import Exit, Problem, worst
from replayproxy.session.addresses import plainly
from replayproxy.session.camera import Plan
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.recorder import Recorder
from replayproxy.session.wiring import DYNAMIC, EnvSpec
from replayproxy.state.capture import Capture
from replayproxy.storage import open_store

EPISODE = "doctor"
LIMIT = 5.0
type Level = Literal["ok", "WARN", "FAIL", "----"]

NODE = "fetch(process.argv[1]).then(r => r.arrayBuffer()).then(() => {}, e => { console.error(e); process.exit(1) })"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was tried. `exit`: what a FAIL does to the exit code."""

    level: Level
    what: str
    text: str
    exit: int = 0


@dataclass(slots=True)
class Diagnosis:
    """`proves`: for each kind of finding, how far this wiring can show it."""

    checks: list[Check] = field(default_factory=list)
    proves: dict[str, str] = field(default_factory=dict)

    def add(self, level: Level, what: str, text: str, code: int = 0) -> None:
        self.checks.append(Check(level=level, what=what, text=text, exit=code))

    @property
    def exit(self) -> int:
        return worst(*(check.exit for check in self.checks))

    def document(self) -> dict[str, Any]:
        return {
            "ok": self.exit == 0,
            "checks": [{"level": one.level, "what": one.what, "text": one.text} for one in self.checks],
            "proves": dict(self.proves),
        }


async def diagnose(options: RecordOptions) -> Diagnosis:
    """Tries everything; what fails is a check that says so, never an exception."""
    found = Diagnosis()
    reached = [spec for spec in options.envs if await _reach(spec, found)]
    answers = await _canaries(replace(options, envs=tuple(reached)), found) if reached else {}
    _links(answers, found)
    snapshots = await _snapshots(options, found)
    found.proves.update(proofs(options, snapshots))
    return found


# -- environments ------------------------------------------------------------------------------------------------


async def _reach(spec: EnvSpec, found: Diagnosis) -> bool:
    if spec.upstream == DYNAMIC:
        found.add("----", spec.name, f"{spec.name} is dynamic: its upstreams come with the episodes, none was tried")
        return False
    began = time.monotonic()
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LIMIT)) as http:
            async with http.get(spec.upstream + "/", ssl=_tls(spec), allow_redirects=False) as answer:
                ms = (time.monotonic() - began) * 1000
                version = f"HTTP/{answer.version.major}.{answer.version.minor}" if answer.version else "HTTP"
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        reason = _why(error)
        found.add("FAIL", spec.name, f"{spec.name} at {spec.upstream} does not answer: {reason}", Exit.WORLD)
        return False
    kind = "TLS" if spec.upstream.startswith("https") else "plain"
    found.add("ok", spec.name, f"{spec.name} answers in {ms:.0f} ms, {version}, {kind}")
    return True


def _why(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        return plainly(error.os_error)
    return plainly(error) if isinstance(error, OSError) else str(error)


def _tls(spec: EnvSpec) -> ssl.SSLContext | bool:
    if spec.insecure:
        return False
    return ssl.create_default_context(cafile=str(spec.ca)) if spec.ca else True


# -- listeners ---------------------------------------------------------------------------------------------------


async def _canaries(options: RecordOptions, found: Diagnosis) -> Mapping[str, list[Exchange]]:
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
        if lost:
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
            for env, url in recorder.addresses.plain_urls().items():
                sent[env] = await _by_each_client(url + "/")
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


async def _by_each_client(url: str) -> dict[str, bool]:
    ran = {"aiohttp": await _by_aiohttp(url)}
    if curl := shutil.which("curl"):
        ran["curl"] = await _by_command(curl, "-s", "-o", "/dev/null", "--max-time", "5", "--noproxy", "*", url)
    if node := shutil.which("node"):
        ran["node"] = await _by_command(node, "-e", NODE, url)
    return ran


async def _by_aiohttp(url: str) -> bool:
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LIMIT)) as http:
            async with http.get(url, allow_redirects=False) as answer:
                await answer.read()
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False
    return True


async def _by_command(*words: str) -> bool:
    """False: the client could not do it, for a reason of its own (an old node has no fetch)."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError:
        return False
    try:
        return await asyncio.wait_for(process.wait(), LIMIT * 2) == 0
    except TimeoutError:
        process.kill()
        await process.wait()
        return False


def _agents(exchanges: Sequence[Exchange], client: str) -> bool:
    """Whether one of the exchanges is this client's, by its User-Agent."""
    agents = b" ".join(v.lower() for one in exchanges for n, v in one.request.fields if n.lower() == b"user-agent")
    return client.encode() in agents or (client == "node" and b"undici" in agents)


def _links(answers: Mapping[str, list[Exchange]], found: Diagnosis) -> None:
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


# -- snapshots ---------------------------------------------------------------------------------------------------


async def _snapshots(options: RecordOptions, found: Diagnosis) -> list[Snapshot]:
    """Reads each twice, as a recording would."""
    if not options.snapshots:
        found.add("----", "snapshots", "no snapshot: only answers are seen -> --snapshot NAME=SPEC")
        return []
    nodes: dict[bytes, bytes] = {}
    capture = Capture(
        options.snapshots, save=nodes.update, now=time.monotonic_ns, wall=time.time_ns,
        envs=[env.name for env in options.envs],
    )  # fmt: skip
    context = {"episode": EPISODE, "task": EPISODE, "seed": "0"}
    taken = []
    for name in capture.names():
        first, second = [await capture.take(name, when="probe", n=n, mode="free", context=context) for n in (0, 1)]
        _compared(first, second, nodes, options.plan, found)
        taken.append(second)
    capture.close()
    return taken


def _compared(a: Snapshot, b: Snapshot, nodes: Mapping[bytes, bytes], plan: Plan, found: Diagnosis) -> None:
    bad = next((one for one in (a, b) if one.status is SnapshotStatus.MISSING), None)
    if bad is not None:
        found.add("FAIL", a.name, f"snapshot {a.name} cannot be read: {bad.reason}", Exit.UNJUDGED)
        return
    assert a.root is not None
    assert b.root is not None
    ms = (b.done - b.begun) / 1e6
    head = f"snapshot {a.name}: {b.rows:,} rows, {'atomic' if b.atomic else 'not atomic'}, {ms:.0f} ms"
    if a.root == b.root:
        found.add("ok", a.name, f"{head}; two reads equal")
    else:
        first = next(iter(diff(a.root, b.root, nodes.__getitem__)), None)
        where = f" ({first.table}/{first.key})" if first else ""
        found.add(
            "WARN", a.name, f"{head}; two reads differ{where}: something else writes, or the reading is not stable"
        )
    cap = plan.limit * 1000
    if plan.mode == "hold" and ms > cap:
        found.add("WARN", a.name, f"hold waits {cap:.0f} ms and {a.name} takes {ms:.0f}: snapshots will come late")
    elif plan.mode == "hold":
        found.add("ok", a.name, f"hold adds about {ms:.0f} ms to each write (cap {cap:.0f})")
    tried = "it can be written; restore was not tried" if b.can_restore else "it cannot be written back"
    found.add("----", a.name, f"restore of {a.name}: {tried}")


def proofs(options: RecordOptions, snapshots: Sequence[Snapshot]) -> dict[str, str]:
    """What the wiring allows to be shown, at best."""
    good = [one for one in snapshots if one.status is not SnapshotStatus.MISSING and options.plan.when]
    state = "proven" if any(one.atomic for one in good) else "confirmed" if good else ""
    starts = "no (no snapshot)" if not state else state if "start" in options.plan.when else "no (no start snapshot)"
    restorable = all(one.can_restore for one in good) if good else False
    redrive = (
        "answers and state" if restorable or (good and options.resets)
        else "answers only (no snapshot)" if options.resets
        else "no (nothing restores: --snapshot or --reset)"
    )  # fmt: skip
    return {
        "stale-read": state or "from traffic only (no snapshot)",
        "state-bleed": state or "fresh ids only (no snapshot)",
        "dirty-reset": starts,
        "nondeterminism": "proven" if starts == state else starts,
        "race": "no (one lane, unless lanes are marked)",
        "redrive": redrive,
    }
