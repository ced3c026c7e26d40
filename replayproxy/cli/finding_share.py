"""A finding to hand on: its exchanges as curl commands, and the whole of it as Markdown for an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from replayproxy.cli.bodies import curl
from replayproxy.cli.common import safe
from replayproxy.core.redact_token import TOKEN
from replayproxy.session.evidence import Evidence, evidence
from replayproxy.session.look import Found
from replayproxy.session.trials import told_of
from replayproxy.storage import Reader


def told_and_seen(found: Found) -> tuple[dict[str, Any], Evidence]:
    """A finding as its trials leave it, and what it rests on."""
    named = found.resolved
    told = told_of(named.finding or {}, found.reader.trials(named.run))
    return told, evidence(found.reader, told)


def curl_lines(reader: Reader, seen: Evidence) -> Iterator[str]:
    """Each exchange of a finding in the order of time: a comment with what it was, then the command. A shell takes the
    whole as a script."""
    shown, secret = 0, False
    for item in seen.items:
        told = item.witness or {}
        if item.snapshot is not None:
            continue
        asked = f"{told.get('method', '')} {told.get('target', '')}".strip()
        yield f"# {safe(item.role)}  {safe(item.address)}  {safe(asked)} -> {told.get('status') or 'no answer'}"
        if item.exchange is None or item.run is None:
            yield "# it is no longer in the store"
            continue
        shown += 1
        wiring = item.run.envs.get(item.exchange.env)
        command = curl(reader, item.exchange, item.exchange.upstream or (wiring.upstream if wiring else ""))
        secret = secret or bool(TOKEN.search(command.encode()))
        yield command
    if not shown:
        yield "# this finding names no exchange that is in the store"
    if secret:
        yield "# credentials are tokens (rp-secret-..): put your own in their place"


def markdown_lines(label: str, finding: Mapping[str, Any], block: Iterable[str], curls: Iterable[str]) -> Iterator[str]:
    """A heading, the block, and the commands folded: nothing in it is taken for markup."""
    lines, commands = list(block), list(curls)
    fence = fence_for([*lines, *commands])
    kind = safe(str(finding.get("kind") or "finding"))
    yield f"### `{safe(label)}` {kind}, {safe(str(finding.get('grade') or ''))}"
    yield from ["", f"{fence}text", *lines, fence, ""]
    yield from ["<details><summary>The exchanges as curl</summary>", "", f"{fence}sh", *commands, fence, "</details>"]


def readme_lines(file: str, finding: Mapping[str, Any], block: Iterable[str]) -> Iterator[str]:
    """What is written beside an archive that holds a finding: how it is opened, and the finding itself."""
    lines = list(block)
    fence = fence_for(lines)
    yield from [f"# {safe(str(finding.get('kind') or 'finding'))}, {safe(str(finding.get('grade') or ''))}", ""]
    name, script = safe(file), safe(f"{file.removesuffix('.replay')}.sh")
    yield from [
        f"`{name}` holds this finding of replayproxy, with the exchanges, states and episodes that it rests on, byte",
        "for byte but for credentials, which were replaced by tokens before anything was stored. One command opens it:",
        "", "```", f"replayproxy show {name}", "```", "",
        f"- `replayproxy show {name} --state`: the states that it compares, as a table",
        f"- `replayproxy show {name} --curl`: its exchanges as commands; `{script}` beside this file has them too",
        f"- `replayproxy ls {name}`: the episodes that are in it; `replayproxy show {name}/EPISODE` shows one",
        f"- `replayproxy import {name}`: into a store; from there they are replayed, or sent again",
        "", f"{fence}text", *lines, fence,
    ]  # fmt: skip


def fence_for(lines: Iterable[str]) -> str:
    """A fence that no line can end."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    return "`" * max(4, longest + 1)
