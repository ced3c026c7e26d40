"""A finding to hand on: its exchanges as curl commands, and the whole of it as Markdown for an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from replayproxy.cli.bodies import curl
from replayproxy.cli.common import safe
from replayproxy.core.redact_token import TOKEN
from replayproxy.session.evidence import Evidence
from replayproxy.storage import Reader


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


def fence_for(lines: Iterable[str]) -> str:
    """A fence that no line can end."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    return "`" * max(4, longest + 1)
