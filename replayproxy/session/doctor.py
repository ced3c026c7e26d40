"""Will this wiring record what the agent does? Tried, not guessed: each environment, listener and snapshot is used.

What is sent to an environment is one GET of its base URL directly and one through each listener by each client that
is on this machine; the canaries of all the clients go to a stand-in of doctor's own. Nothing is written, and nothing is
kept: the recordings go to stores that are thrown away.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import aiohttp

from replayproxy.core.prolly import diff
from replayproxy.core.shown import count
from replayproxy.core.values import Snapshot, SnapshotStatus
from replayproxy.errors import Exit, Problem
from replayproxy.session.addresses import plainly
from replayproxy.session.camera import Plan
from replayproxy.session.canary import WHOLE_SECONDS, Wanted, canaries, find_clients
from replayproxy.session.canary_find import Found
from replayproxy.session.canary_text import told
from replayproxy.session.diagnosis import Diagnosis
from replayproxy.session.doctor_listeners import EPISODE, LIMIT, excepted, links, through_listeners
from replayproxy.session.reaching import no_tls, trust
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.wiring import DYNAMIC, EnvSpec
from replayproxy.state.capture import Capture


async def diagnose(options: RecordOptions, asked: Wanted) -> Diagnosis:
    """Tries everything; what fails is a check that says so. Raises WrongUsage for a `--python` that is none, before
    anything is sent."""
    found = Diagnosis()
    began = time.monotonic()
    there = await find_clients(asked)
    reached = [spec for spec in options.envs if await _reach(spec, found)]
    answers = await through_listeners(replace(options, envs=tuple(reached)), found) if reached else {}
    links(answers, found)
    excepted(options.envs, os.environ, found)
    await _clients(asked, there, found, WHOLE_SECONDS - (time.monotonic() - began))
    snapshots = await _snapshots(options, found)
    found.proves.update(proofs(options, snapshots))
    return found


# -- environments ------------------------------------------------------------------------------------------------


async def _reach(spec: EnvSpec, found: Diagnosis) -> bool:
    if spec.upstream == DYNAMIC:
        found.add("----", spec.name, f"{spec.name} is dynamic: its upstreams come with the episodes, none was tried")
        return False
    began = time.monotonic()
    secure = spec.upstream.startswith("https:")
    try:
        tls = trust(spec) if secure else False
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LIMIT)) as http:
            async with http.get(spec.upstream + "/", ssl=tls, allow_redirects=False) as answer:
                ms = (time.monotonic() - began) * 1000
                version = f"HTTP/{answer.version.major}.{answer.version.minor}" if answer.version else "HTTP"
    except Problem as problem:
        found.add("FAIL", spec.name, str(problem), problem.exit)
        return False
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        if secure and (failed := _handshake(error)):
            found.add("FAIL", spec.name, str(no_tls(spec, failed)), Exit.WORLD)
            return False
        reason = _why(error)
        found.add("FAIL", spec.name, f"{spec.name} at {spec.upstream} does not answer: {reason}", Exit.WORLD)
        return False
    kind = "TLS" if secure else "plain"
    found.add("ok", spec.name, f"{spec.name} answers in {ms:.0f} ms, {version}, {kind}")
    return True


def _handshake(error: Exception) -> ssl.SSLError | None:
    """What TLS failed by; aiohttp wraps it in two ways."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        inner = error.certificate_error
        return inner if isinstance(inner, ssl.SSLError) else None
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ssl.SSLError):
        return error.os_error
    return error if isinstance(error, ssl.SSLError) else None


def _why(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return plainly(error.os_error)
    return plainly(error) if isinstance(error, OSError) else str(error)


# -- clients -----------------------------------------------------------------------------------------------------


async def _clients(asked: Wanted, there: Mapping[str, Found], found: Diagnosis, seconds: float) -> None:
    """A canary by each client in each way, to a stand-in of ours: none of them reaches an environment."""
    try:
        found.clients = await canaries(asked, there, seconds=max(seconds, 5.0))
    except Problem as problem:
        found.add("FAIL", "clients", f"the canaries' recorder did not start: {problem}", problem.exit)
    except OSError as error:
        found.add("FAIL", "clients", f"the canaries' stand-in did not start: {plainly(error)}", Exit.WORLD)
    found.checks += told(found.clients)


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
        found.unread.append(a.name)
        return
    assert a.root is not None
    assert b.root is not None
    ms = (b.done - b.begun) / 1e6
    head = f"snapshot {a.name}: {count(b.rows, 'row')}, {'atomic' if b.atomic else 'not atomic'}, {ms:.0f} ms"
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
