"""Trials: what came of sending a finding again (`reproduce`, `race`, `redrive --repeat`), and what that makes of it.

A trial is kept beside the check of its run and outlives it. Its document has `finding` (an id), `command`, `wall`,
`grade` ("confirmed" or null), `k` of `n`, `told` (one line), `evidence`, and `finding_document` where the trial itself
showed a fault that no check knows; also `blame` and `blame_reason` where sending it again decided whose fault it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from replayproxy.detect.finding import STRENGTH, Blame, Finding, Grade
from replayproxy.errors import Problem
from replayproxy.storage import Store

COMMANDS = ("reproduce", "race", "redrive")

type Trial = Mapping[str, Any]


def trial(
    finding: str, command: str, *, wall: int, k: int, n: int, told: str, confirmed: bool,
    evidence: Mapping[str, Any] | None = None, found: Finding | None = None,
    blame: Blame | None = None, blame_reason: str = "",
) -> dict[str, Any]:  # fmt: skip
    """The document of one trial. `found`: a fault that the trial itself showed."""
    made: dict[str, Any] = {
        "finding": finding, "command": command, "wall": wall, "grade": Grade.CONFIRMED.value if confirmed else None,
        "k": k, "n": n, "told": told, "evidence": dict(evidence or {}),
        "finding_document": None if found is None else found.to_json(),
    }  # fmt: skip
    if blame is not None:
        made |= {"blame": blame.value, "blame_reason": blame_reason}
    return made


def keep(store: Store, run_key: int, documents: Sequence[Trial]) -> str:
    """On disk when it returns. Why not, where the store cannot be written: what was found out is told all the same."""
    try:
        writer = store.writer(exclusive=False)
        try:
            for kept in [writer.put_trial(run_key, document) for document in documents]:
                kept.result()
        finally:
            writer.close()
    except (Problem, OSError) as trouble:
        return str(trouble)
    return ""


def with_trials(findings: Sequence[Finding], trials: Sequence[Trial]) -> list[Finding]:
    """The findings as the trials leave them, in their order, then those that only a trial showed.

    A trial that confirmed raises what is below `confirmed`; one that did not show it again lowers nothing, because a
    fault that comes now and then is one. Each carries the last trial's words as `effect["last"]`. What a trial showed
    of the very exchanges of a finding is that finding, confirmed.
    """
    by_id: dict[str, list[Trial]] = {}
    for one in sorted(trials, key=lambda one: int(one.get("wall", 0))):
        by_id.setdefault(str(one.get("finding")), []).append(one)
    found = {finding.id: finding for finding in findings}
    for one in [one for of in by_id.values() for one in of]:
        if (shown := _shown(one)) is None or shown.id in found:
            continue
        known = next((finding for finding in findings if _is_that(finding, shown)), None)
        if known is None:
            found[shown.id] = shown
        else:
            by_id[known.id] = sorted([*by_id.get(known.id, ()), one], key=lambda one: int(one.get("wall", 0)))
    return [_amended(finding, by_id.get(name, ())) for name, finding in found.items()]


def _shown(one: Trial) -> Finding | None:
    document = one.get("finding_document")
    if not isinstance(document, Mapping):
        return None
    try:
        return Finding.from_json(document)
    except (KeyError, TypeError, ValueError):
        return None  # of a version that wrote findings otherwise: the trial is told, its finding is not guessed


def _is_that(known: Finding, shown: Finding) -> bool:
    """Whether a trial showed again what a check has found by itself: of one kind, and of no other exchanges."""
    exchanges = {one.address for one in shown.exchanges}
    return (known.kind, known.episode) == (shown.kind, shown.episode) and exchanges <= {
        one.address for one in known.exchanges
    }


def _amended(finding: Finding, trials: Sequence[Trial]) -> Finding:
    if not trials:
        return finding
    finding = replace(finding, effect={**finding.effect, "last": str(trials[-1].get("told", ""))})
    confirmed = next((one for one in reversed(trials) if one.get("grade") == Grade.CONFIRMED), None)
    if confirmed is None or STRENGTH[finding.grade] <= STRENGTH[Grade.CONFIRMED]:
        return finding
    finding = replace(finding, grade=Grade.CONFIRMED, effect={**finding.effect, "confirmed": _told(confirmed)})
    if confirmed.get("blame") in set(Blame):
        blame, reason = Blame(confirmed["blame"]), str(confirmed.get("blame_reason") or "")
        finding = replace(finding, blame=blame, blame_reason=reason or finding.blame_reason)
    return finding


def _told(one: Trial) -> str:
    return f"{one.get('k')}/{one.get('n')} by {one.get('command')}"


def told_of(document: Mapping[str, Any], trials: Sequence[Trial]) -> dict[str, Any]:
    """A saved finding's document with what came of sending it again since it was saved."""
    try:
        finding = Finding.from_json(document)
    except (KeyError, TypeError, ValueError):
        return dict(document)
    own = [one for one in trials if one.get("finding") == finding.id]
    amended = with_trials([finding], [{**one, "finding_document": None} for one in own])[0]
    if amended == finding:
        return dict(document)
    changed = amended.to_json()
    return {**document, **{name: changed[name] for name in ("grade", "blame", "blame_reason", "effect")}}
