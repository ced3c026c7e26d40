"""Canaries: one request by each client in each way, and what became of it - seen, never assumed.

Each goes to a stand-in of doctor's own through a real recorder over a store that is thrown away. It is `recorded` when
the store holds it, `passed-by` when the stand-in saw one that the store does not hold, and `failed` when it arrived
nowhere or the client did not get its answer.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from replayproxy.errors import WrongUsage
from replayproxy.session.canary_clients import CLIENTS, Client, Style, Transport, Way
from replayproxy.session.canary_find import Found, find
from replayproxy.session.canary_run import Seen, Sent, through_a_recorder
from replayproxy.session.canary_standin import HOST
from replayproxy.session.proxied import PROXY_VARIABLES

WHOLE_SECONDS = 20.0
"""For finding the clients, the listeners and all canaries together; what has no time left by then is not tried."""

NONE = "none"
NO_TIME = "no time was left: --clients tries fewer"

type Result = Literal["recorded", "passed-by", "failed", "not-found"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """One that was sent. `named`: the user asked for it by name, so that it has to be recorded."""

    client: Client
    style: Style
    transport: Transport
    result: Result
    version: str = ""
    python: str = ""
    episode: bool = False
    hint: str = ""
    named: bool = False

    def document(self) -> dict[str, Any]:
        return {
            "client": self.client.name, "version": self.version or None, "style": self.style,
            "transport": self.transport, "result": self.result, "episode": self.episode, "hint": self.hint,
            "python": self.python or None,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be tried: for each client its ways."""

    ways: Mapping[str, tuple[Way, ...]]
    python: str | None = None
    named: bool = False
    clients: Sequence[Client] = CLIENTS


def wanted(text: str | None, python: str | None = None, clients: Sequence[Client] = CLIENTS) -> Wanted:
    """`--clients NAME[:STYLE],..`; None is all of them, `none` nothing. Raises WrongUsage."""
    if text is None:
        return Wanted(ways={one.name: one.ways for one in clients}, python=python, clients=clients)
    known = {one.name: one for one in clients}
    ways: dict[str, tuple[Way, ...]] = {}
    for word in text.split(",") if text.strip() != NONE else ():
        name, _, style = word.strip().partition(":")
        if name not in known:
            raise WrongUsage(f"--clients {word.strip()!r}: no such client", hint=f"{', '.join(known)}, or {NONE}")
        those = tuple(way for way in known[name].ways if style in ("", way[0]))
        if not those:
            styles = ", ".join(dict.fromkeys(way[0] for way in known[name].ways))
            raise WrongUsage(f"--clients {word.strip()}: {name} is not tried in that style", hint=styles)
        ways[name] = tuple(dict.fromkeys((*ways.get(name, ()), *those)))
    return Wanted(ways=ways, python=python, named=True, clients=clients)


async def find_clients(asked: Wanted) -> dict[str, Found]:
    """Those of the wanted that are there. Raises WrongUsage when `--python` is none."""
    return await find([one for one in asked.clients if one.name in asked.ways], asked.python)


async def canaries(asked: Wanted, there: Mapping[str, Found], *, seconds: float = WHOLE_SECONDS) -> list[Canary]:
    """All that are wanted, in the order of the table. Raises Problem or OSError when they cannot be sent at all."""
    rows = [(one, way) for one in asked.clients for way in asked.ways.get(one.name, ())]
    if not rows:
        return []
    # A browser may still be writing to its profile while it is being ended.
    with tempfile.TemporaryDirectory(prefix="replayproxy-doctor-", ignore_cleanup_errors=True) as folder:
        sent, seen = await through_a_recorder(Path(folder), rows, there, seconds)
    return [_judged(one, seen, named=asked.named) for one in sent]


def _judged(sent: Sent, seen: Seen, *, named: bool) -> Canary:
    """What became of one, by what the store and the stand-in saw."""
    style, transport = sent.way
    known = Canary(client=sent.client, style=style, transport=transport, result="not-found", named=named)
    if sent.found is None:
        return replace(known, hint=f"{sent.client.needs} is not there")
    known = replace(known, version=sent.found.version, python=sent.found.python)
    if sent.ended is None:
        return replace(known, result="failed", hint=NO_TIME)
    recorded = seen.kept.get(sent.id, ())
    if seen.arrived.get(sent.id, 0) > len(recorded):
        return replace(known, result="passed-by", hint=sent.client.past)
    if sent.ended.code != 0 or not recorded:
        return replace(known, result="failed", hint=_why_failed(sent, bool(recorded)))
    versions = {exchange.request.version.decode("latin-1") for _, exchange in recorded}
    if transport == "h2" and not all(version.startswith("HTTP/2") for version in versions):
        return replace(known, result="failed", hint=f"recorded, but it spoke {', '.join(sorted(versions))}")
    if all(in_episode for in_episode, _ in recorded):
        return replace(known, result="recorded", episode=True)
    return replace(known, result="recorded", hint=_NAMELESS if style == "forward" else _DROPS)


_DROPS = "in no episode, its URLs drop the base path: --url-style port"
_NAMELESS = "in no episode, it sends no proxy user: --episode NAME"


def _why_failed(sent: Sent, recorded: bool) -> str:
    assert sent.ended is not None
    words = sent.ended.last_words
    if sent.ended.code == 0:
        why = sent.client.distrusts or "it ended well, and nothing arrived anywhere"
    elif sent.ended.code is None:
        why = words
    else:
        where = "it was recorded, but the client failed" if recorded else f"it ended with {sent.ended.code}"
        why = f"{where}: {words}" if words else where
    if sent.way[0] != "forward" and not recorded and proxied(os.environ):
        why += "; a proxy variable is set that NO_PROXY does not take back: NO_PROXY=127.0.0.1"
    return why


def proxied(environ: Mapping[str, str]) -> bool:
    """Whether clients that obey proxy variables would look for a listener of ours behind somebody's proxy."""
    if not any(environ.get(name) for one in PROXY_VARIABLES for name in (one, one.upper())):
        return False
    exceptions = ",".join(environ.get(name, "") for name in ("no_proxy", "NO_PROXY")).split(",")
    return not {HOST, "*", "127.0.0.0/8"} & {one.strip() for one in exceptions}
