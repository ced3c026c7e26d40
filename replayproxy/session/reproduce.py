"""Reproduce: a finding of a check is shown again on a live environment, or is not, k of n times.

What is sent, to where, and what may be overwritten is decided as in a re-drive. What came out is kept as a trial of the
finding's run (`session.trials`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from replayproxy.core.names import archive_splits
from replayproxy.core.values import Run
from replayproxy.detect.finding import Blame, Kind
from replayproxy.errors import Exit, WrongUsage
from replayproxy.session import reproduce_reads, trials
from replayproxy.session.redrive_once import Ask
from replayproxy.session.reproduce_bleed import bleed
from replayproxy.session.reproduce_case import NOT_SHOWN, SHOWN, UNDECIDED, Came, Case
from replayproxy.session.reproduce_race import side_by_side
from replayproxy.storage import Store

WAYS: Mapping[str, Callable[[Case], Awaitable[Came]]] = {
    Kind.STATE_BLEED: bleed,
    Kind.DIRTY_RESET: bleed,
    Kind.STALE_READ: reproduce_reads.stale_read,
    Kind.NONDETERMINISM: reproduce_reads.nondeterminism,
    Kind.RACE: side_by_side,
    Kind.LOST_UPDATE: side_by_side,
}
EXITS = {SHOWN: Exit.DIFFERENT, NOT_SHOWN: Exit.OK, UNDECIDED: Exit.UNJUDGED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduced:
    """`unsaved`: why the trial could not be kept; "" it was. `before`: where the states found are kept."""

    finding: Mapping[str, Any]
    run: Run
    came: Came
    before: tuple[str, ...]
    unsaved: str
    seconds: float

    @property
    def exit(self) -> int:
        return int(EXITS[self.came.verdict])

    def to_json(self) -> dict[str, Any]:
        """The document of `reproduce --json`."""
        came = self.came
        return {
            "finding": self.finding.get("id"), "kind": self.finding.get("kind"), "run": self.run.name,
            "episode": self.finding.get("episode"), "verdict": came.verdict, "k": came.k, "n": came.n,
            "told": came.told, "grade": "confirmed" if came.confirmed else None, "reasons": list(came.reasons),
            "evidence": dict(came.evidence), "before": list(self.before), "saved": not self.unsaved,
            "seconds": round(self.seconds, 3), "exit": self.exit,
        }  # fmt: skip


async def reproduce(store: Store, finding: str, ask: Ask, say: Callable[[str], None]) -> Reproduced:
    """`finding`: F3 of the last check, or a stable id. Raises the Problem that stands against sending anything."""
    if splits := archive_splits(finding):
        raise WrongUsage(f"{finding}: an archive is not sent anywhere", hint=f"replayproxy import {splits[0][0]}")
    reader = store.reader()
    resolved = reader.resolve(finding)
    if resolved.finding is None:
        raise WrongUsage(f"{finding} is no finding", hint="F3, or the id that show prints; replayproxy check RUN")
    document, run = resolved.finding, resolved.run
    if str(document.get("kind")) not in WAYS:
        raise WrongUsage(f"{finding}: a finding of kind {document.get('kind')!r} is not known", hint="upgrade")
    began = time.monotonic()
    case = Case(store, reader, run, document, ask, say)
    try:
        came = await WAYS[str(document["kind"])](case)
    finally:
        await case.close()
    unsaved = trials.keep(store, run.key, [_trial(document, came)]) if came.n else "nothing was seen"
    return Reproduced(finding=document, run=run, came=came, before=tuple(case.before), unsaved=unsaved,
                      seconds=time.monotonic() - began)  # fmt: skip


def _trial(document: Mapping[str, Any], came: Came) -> dict[str, Any]:
    decided = came.confirmed and came.blame_reason and document.get("blame") == Blame.UNDECIDED
    return trials.trial(
        str(document["id"]), "reproduce", wall=time.time_ns(), k=came.k, n=came.n, told=came.told,
        confirmed=came.confirmed, evidence=came.evidence, blame=Blame.ENVIRONMENT if decided else None,
        blame_reason=came.blame_reason if decided else "",
    )  # fmt: skip


def run_reproduce(store: Store, finding: str, ask: Ask, say: Callable[[str], None]) -> Reproduced:
    """`reproduce` for callers without an event loop."""
    return asyncio.run(reproduce(store, finding, ask, say))
