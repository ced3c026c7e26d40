"""What `reproduce` prints: the verdict first, how it came about, what cannot be said, the next command last."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from replayproxy.cli.common import beside, count, safe
from replayproxy.session.reproduce import Reproduced

_BETWEEN = {
    "reset": "the environment's reset was sent between the two",
    "nothing": "nothing was put back between the two",
}


def text(label: str, one: Reproduced) -> Iterator[str]:
    """The lines for people."""
    came, finding = one.came, one.finding
    grade = "   confirmed" if came.confirmed else ""
    yield f"{safe(label)}: {came.verdict.upper()}   {safe(came.told)}{grade}"
    yield f"  finding    {safe(str(finding.get('kind')))}  {safe(str(finding.get('title') or ''))}"
    yield from _exchanges(finding)
    yield from _evidence(came.evidence)
    for reason in came.reasons:
        yield from beside(["  because  "], [safe(reason)])
    for before in one.before:
        yield f"  kept       the state found is {safe(before)}"
    if one.unsaved and came.n:
        yield f"  not kept   {safe(one.unsaved)}"
    yield f"  next       {_next(label, one)}"


def _exchanges(finding: Mapping[str, Any]) -> Iterator[str]:
    for one in finding.get("exchanges") or ():
        where = f"  {safe(str(one['pointer']))}" if one.get("pointer") else ""
        sent = safe(f"{one.get('method', '')} {one.get('target', '')}")
        yield f"  {safe(str(one.get('role', ''))):<10} {safe(str(one.get('address', '')))}  {sent}{where}"


def _evidence(evidence: Mapping[str, Any]) -> Iterator[str]:
    if evidence.get("minimal"):
        minimal = [safe(str(one)) for one in evidence["minimal"]]
        shown = ", ".join(minimal[:6]) + (", .." if len(minimal) > 6 else "")
        made = evidence.get("tries")
        tries = f", found in {made} {'try' if made == 1 else 'tries'}" if made else ""
        yield f"  enough     {len(minimal)} of {count(evidence['of'], 'exchange')}: {shown}{tries}"
    if evidence.get("between") in _BETWEEN:
        yield f"  between    {_BETWEEN[evidence['between']]}"
    if evidence.get("rows"):
        yield f"  start has  {', '.join(safe(str(row)) for row in evidence['rows'])}"
    if evidence.get("outside_snapshots"):
        yield "  start      equal in every snapshot: what went over is outside their scope (memory, cache, session)"
    for outcome in evidence.get("outcomes") or ():
        values = ", ".join(safe(json.dumps(value, ensure_ascii=False, default=str)) for value in outcome["values"])
        repeats = ", ".join(map(str, outcome["repeats"]))
        yield f"  outcome    {count(outcome['times'], 'time')} (repeats {repeats})" + (f"  {values}" if values else "")
    if evidence.get("values"):
        values = ", ".join(safe(json.dumps(value, ensure_ascii=False, default=str)) for value in evidence["values"])
        yield f"  it showed  {values}   to be expected {safe(json.dumps(evidence.get('expected'), default=str))}"


def _next(label: str, one: Reproduced) -> str:
    if one.came.confirmed:
        return f"replayproxy check {safe(one.run.name)}"
    return f"replayproxy show {safe(label)}"
