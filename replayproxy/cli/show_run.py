"""`show RUN`: how it was wired, then its episodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from replayproxy.cli.common import safe
from replayproxy.cli.ls_text import run_text
from replayproxy.cli.moments import moment
from replayproxy.core.values import EnvWiring, Run
from replayproxy.session import secrecy
from replayproxy.session.listing import listing
from replayproxy.storage import Reader


def run_lines(reader: Reader, run: Run) -> Iterator[str]:
    """The wiring and the episodes."""
    closed = f" to {moment(run.closed_wall)}" if run.closed_wall else ""
    version = f"   replayproxy {safe(run.version)}" if run.version else ""
    yield f"{safe(run.name)}   {safe(run.origin)}   {moment(run.opened_wall)}{closed} UTC{version}"
    for wiring in run.envs.values():
        yield "  env       " + "   ".join(_wiring(wiring))
    for name, spec in run.snapshots.items():
        yield f"  snapshot  {safe(name)} = {safe(spec)}"
    if run.snapshots:
        yield f"  taken     {','.join(run.snapshot_when)}   {safe(run.snapshot_mode)}"
    if run.meta:
        yield "  meta      " + "   ".join(f"{safe(name)}={safe(str(value))}" for name, value in run.meta.items())
    for line in secrecy.holding(run):
        yield f"  secrets   {line}"
    for fault in run.faults:
        yield f"  fault     {safe(fault)}"
    yield from run_text(listing(reader, run))


def _wiring(wiring: EnvWiring) -> Iterator[str]:
    yield f"{safe(wiring.name)} {safe(wiring.upstream)}"
    if wiring.listener:
        yield f"listener {safe(wiring.listener)}"
    if wiring.reset:
        yield "reset " + safe(" ".join(part for part in wiring.reset if part))
    if wiring.reads:
        yield "reads " + ", ".join(safe(line) for line in wiring.reads)
    if wiring.eventual:
        yield "eventual " + ", ".join(f"{safe(line)} within {s:g} s" for line, s in wiring.eventual.items())


def run_json(reader: Reader, run: Run) -> dict[str, Any]:
    """The run with its wiring, and what `ls RUN --json` says."""
    return {
        "run": run.name, "origin": run.origin, "version": run.version, "opened_wall": run.opened_wall,
        "closed_wall": run.closed_wall, "url_style": run.url_style, "snapshot_when": list(run.snapshot_when),
        "snapshot_mode": run.snapshot_mode, "snapshots": dict(run.snapshots), "meta": dict(run.meta),
        "config": dict(run.config), "faults": list(run.faults),
        "envs": {
            name: {
                "upstream": wiring.upstream, "listener": wiring.listener, "reads": list(wiring.reads),
                "eventual": dict(wiring.eventual),
                "reset": list(wiring.reset) if wiring.reset else None, "options": dict(wiring.options),
            }
            for name, wiring in run.envs.items()
        },
        **listing(reader, run).to_json(),
    }  # fmt: skip
