"""`show F3`: a finding with its evidence, from the document that the check saved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from replayproxy.cli.common import columns, safe
from replayproxy.cli.moments import clock

_LISTS = (("ruled out", "ruled_out"), ("assumes", "assumptions"))


def finding_text(label: str, finding: Mapping[str, Any]) -> Iterator[str]:
    """The verdict, the exchanges in the order of their times, what was compared, what was ruled out, what to do."""
    kind = " ".join(str(finding.get(name) or "") for name in ("kind",)).replace("-", " ").upper()
    sub = f" ({safe(finding['sub'])})" if finding.get("sub") and finding["sub"] != finding.get("kind") else ""
    grade = str(finding.get("grade") or "").upper()
    title = safe(str(finding.get("title") or f"falls on {finding.get('episode')}"))
    because = f" ({safe(finding['blame_reason'])})" if finding.get("blame_reason") else ""
    yield f"{label}  {kind}{sub}  {grade}  {title}"
    yield f"  falls on    {safe(str(finding.get('run')))}/{safe(str(finding.get('episode')))}   lane {_lane(finding)}"
    yield f"  blame       {safe(str(finding.get('blame') or 'undecided'))}{because}"
    yield from (f"  {line}" for line in _witnesses(finding.get("exchanges") or ()))
    yield from _values(finding)
    for name, value in (finding.get("times") or {}).items():
        yield f"  {_word(name):<11} {_short(value)}"
    for name, value in (finding.get("effect") or {}).items():
        yield f"  {_word(name):<11} {_short(value)}"
    if finding.get("snapshots"):
        yield f"  snapshots   {', '.join(map(safe, finding['snapshots']))}"
    for name, member in _LISTS:
        if finding.get(member):
            yield f"  {name:<11} {' · '.join(safe(str(item)) for item in finding[member])}"
    if finding.get("cannot_say"):
        yield f"  cannot say  {safe(str(finding['cannot_say']))}"
    if finding.get("count", 1) > 1:
        yield f"  seen        {finding['count']} times, shown once"
    if finding.get("reproduce"):
        yield f"  reproduce   {safe(str(finding['reproduce']))}"
    yield f"  id          {safe(str(finding.get('id')))}"
    first = next((str(w.get("address")) for w in finding.get("exchanges") or () if w.get("address")), "")
    yield f"  next        replayproxy show {label} --md" + (f"   replayproxy show '{safe(first)}'" if first else "")


def _lane(finding: Mapping[str, Any]) -> str:
    return safe(str(finding.get("lane") or "-"))


def _witnesses(exchanges: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        (
            safe(str(w.get("address", ""))), safe(str(w.get("role", ""))),
            f"{safe(str(w.get('method', '')))} {safe(str(w.get('target', '')))}".strip(),
            "" if w.get("status") is None else str(w["status"]), clock(w["wall"]) if w.get("wall") else "",
            f"{safe(str(w.get('pointer') or ''))} = {_short(w.get('value'))}" if w.get("pointer") else "",
        )
        for w in exchanges
    ]  # fmt: skip
    return columns(rows) if rows else []


def _values(finding: Mapping[str, Any]) -> Iterator[str]:
    values = finding.get("values")
    if isinstance(values, Sequence) and not isinstance(values, str) and len(values) == 2:
        pointer = safe(str(finding.get("pointer") or ""))
        yield f"  values      {pointer}   expected {_short(values[0])}   there was {_short(values[1])}".replace(
            "values         ", "values      "
        )
    elif finding.get("pointer"):
        yield f"  pointer     {safe(str(finding['pointer']))}"


def _word(name: str) -> str:
    return safe(name.replace("_", " "))


def _short(value: Any, width: int = 160) -> str:
    text = safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
    quoted = f'"{text}"' if isinstance(value, str) else text
    return quoted if len(quoted) <= width else quoted[: width - 1] + "…"
