"""`show F3`: a finding as a block that a person takes in at a glance. From the saved check, and from the store."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from replayproxy.cli.common import columns, safe
from replayproxy.cli.drawing import WIDTH as DRAWN
from replayproxy.cli.drawing import Bar, draw
from replayproxy.cli.moments import clock
from replayproxy.session.evidence import Compared, Evidence, Item

COLUMNS = 100
LABEL = 12
WHAT_LEAST = 14
"""Columns that what happened needs beside the drawing; with less, the drawing stands below it."""

_TOLD = frozenset(
    [
        "row",
        "rows",
        "last",
        "confirmed",
        "envs",
        "out_of_date_s",
        "from",
        "outcomes",
        "of",
        "usual",
        "values",
        "row_count",
        "reads",
        "cells",
        "further",
    ]
)
"""What of a finding's effect is told in words of its own, or elsewhere."""


def finding_text(label: str, finding: Mapping[str, Any], seen: Evidence) -> Iterator[str]:
    """The verdict, what happened in the order of time, what speaks for it and against it, what to do. At most
    `COLUMNS` wide but for the commands."""
    yield from _head(label, finding)
    yield from (f"  {line}" for line in evidence_lines(finding, seen))
    yield from _values(finding)
    yield from _effect(finding)
    yield from _told("compare", _compare(finding, seen.compared))
    yield from _told("ruled out", _joined(finding.get("ruled_out")))
    yield from _told("assumes", _joined(finding.get("assumptions")))
    yield from _told("scope", _scope(finding.get("scope") or {}))
    yield from _told("cannot say", str(finding.get("cannot_say") or ""))
    yield from _commands(label, finding)


def _head(label: str, finding: Mapping[str, Any]) -> Iterator[str]:
    kind = str(finding.get("kind") or "").replace("-", " ").upper()
    sub = f" ({safe(finding['sub'])})" if finding.get("sub") and finding["sub"] != finding.get("kind") else ""
    grade = str(finding.get("grade") or "").upper()
    title = safe(str(finding.get("title") or f"falls on {finding.get('episode')}"))
    because = f" ({safe(finding['blame_reason'])})" if finding.get("blame_reason") else ""
    yield from _wrap(f"{safe(label)}  {kind}{sub}  {grade}  {title}", "    ")
    lane = f", lane {safe(str(finding['lane']))}" if finding.get("lane") else ""
    where = f"{safe(str(finding.get('run')))}/{safe(str(finding.get('episode')))}{lane}"
    yield from _wrap(f"  falls on {where}   blame: {safe(str(finding.get('blame') or 'undecided'))}{because}", "    ")
    silenced, known = finding.get("silence"), finding.get("known")
    if silenced:
        yield from _wrap(f"  SILENCED by {silenced.get('what')!r}: {silenced.get('reason')}", "    ")
    if known:
        yield from _wrap(f"  known since {known.get('added')}: {known.get('reason') or 'no reason given'}", "    ")


def evidence_lines(finding: Mapping[str, Any], seen: Evidence) -> list[str]:
    """Each exchange and snapshot on a line of its own, with a drawing of when it was."""
    if not seen.items:
        return []
    run = str(finding.get("run") or "")
    bars = [Bar(label=item.role, begun=item.begun, done=item.done) for item in seen.items]
    drawn = draw(bars, _marker(seen.items))
    rows = [
        (cut(_address(item.address, run), 22), item.role if item.snapshot is None else "state", cut(_asked(item), 26),
         _status(item), clock(item.wall) if item.wall else "")
        for item in seen.items
    ]  # fmt: skip
    left = columns(rows)
    width = max(map(len, left))
    room = COLUMNS - 2 - width - 2 - 2 - (DRAWN + 2)
    what = [_what(item, finding, seen.row) for item in seen.items]
    if room < WHAT_LEAST:
        room = COLUMNS - 2 - width - 2
        head = [f"{line:<{width}}  {cut(text, room)}".rstrip() for line, text in zip(left, what, strict=True)]
        return [*head, *(f"{'':{width - DRAWN - 2}}{one}" for one in drawn)]
    room = min(room, max(map(len, what)))
    return [
        f"{line:<{width}}  {cut(text, room):<{room}}  {one}"
        for line, text, one in zip(left, what, drawn, strict=True)
    ]  # fmt: skip


def _marker(items: Sequence[Item]) -> int | None:
    """The end of the write, where something begins only after it: from then on its value holds."""
    ends = [item.done for item in items if item.role == "write" and item.done is not None]
    if not ends:
        return None
    end = max(ends)
    return end if any(item.begun is not None and item.begun > end for item in items) else None


def _address(address: str, run: str) -> str:
    """`EPISODE/SEQ`, short of the run that the finding is of."""
    return safe(address.removeprefix(f"{run}/").replace("#", "/"))


def _asked(item: Item) -> str:
    if item.snapshot is not None:
        return f"snapshot {safe(item.snapshot.name)}, {item.snapshot.when}"
    told = item.witness or {}
    return f"{safe(str(told.get('method', '')))} {safe(str(told.get('target', '')))}".strip()


def _status(item: Item) -> str:
    if item.exchange is not None:
        return str(item.exchange.response.status) if item.exchange.response else item.exchange.outcome.value
    status = (item.witness or {}).get("status")
    return "" if status is None else str(status)


def _what(item: Item, finding: Mapping[str, Any], row: str) -> str:
    """What it did, showed, or held."""
    column = str(finding.get("pointer") or "").rpartition("/")[2]
    if item.snapshot is not None:
        return _held(item, row, column)
    told = item.witness or {}
    if told.get("pointer"):
        return f"{safe(str(told['pointer']))} = {short(told.get('value'))}"
    if told.get("role") == "write":
        if told.get("value") is not None:
            return f"wrote {short(told['value'])}"
        return f"wrote {row}" if row and not finding.get("pointer", "").startswith("(") else ""
    return ""


def _held(item: Item, row: str, column: str) -> str:
    if item.snapshot is not None and item.snapshot.root is None:
        return f"missing: {safe(item.snapshot.reason)}"
    if not item.has_row:
        return ""
    if item.row is None:
        return f"no {safe(row)}"
    if isinstance(item.row, dict) and column in item.row:
        return f"{safe(row)} /{safe(column)} {short(item.row[column])}"
    return f"has {safe(row)}"


def _values(finding: Mapping[str, Any]) -> Iterator[str]:
    values, pointer = finding.get("values"), safe(str(finding.get("pointer") or ""))
    if isinstance(values, Sequence) and not isinstance(values, str) and len(values) == 2:
        lead = f"{pointer}   " if pointer else ""
        yield from _told("values", f"{lead}expected {short(values[0], 60)}   there was {short(values[1], 60)}")
    elif pointer:
        yield from _told("pointer", pointer)


def _effect(finding: Mapping[str, Any]) -> Iterator[str]:
    effect, times = finding.get("effect") or {}, finding.get("times") or {}
    parts = [f"at least {effect['out_of_date_s']:.3f} s out of date"] if "out_of_date_s" in effect else []
    for name, one in (("reads", "read"), ("cells", "cell"), ("row_count", "row")):
        number = effect.get(name)
        if isinstance(number, int) and number > 1:
            parts.append(f"{number} {one}s")
    if effect.get("further"):
        parts.append(f"{effect['further']} further differences follow from it")
    parts += [
        f"{_word(name)} {short(value, 40)}" for name, value in effect.items()
        if name not in _TOLD and value and isinstance(value, str | int | float) and not name.endswith("root")
    ]  # fmt: skip
    if finding.get("count", 1) > 1:
        parts.append(f"seen {finding['count']} times, shown once")
    yield from _told("extent", " · ".join(parts))
    shown = [f"{_word(name.removesuffix('_s'))} {_instants(value)}" for name, value in times.items()]
    yield from _told("seconds", " · ".join(shown))


def _instants(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " to ".join(_instants(one) for one in value)
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, int | float) else "never"


def _compare(finding: Mapping[str, Any], compared: Compared | None) -> str:
    """The other starts of the task and seed, or how often which answer came."""
    effect = finding.get("effect") or {}
    if compared is not None:
        parts = []
        for word, (number, of) in ((_until(compared), compared.before), ("after it", compared.since)):
            if of:
                parts.append(" ".join(filter(None, (f"in {number} of {of} other starts", word))))
        if not parts:
            return ""
        seed = "" if compared.seed is None else f" seed {compared.seed}"
        return f"{compared.task or 'no task'}{seed}: the same {', '.join(parts)}"
    if "outcomes" in effect and "usual" in effect:
        return (
            f"{effect['of']} episodes asked the same of the same state: {effect['usual']} got the usual answer, "
            f"{effect['outcomes']} different ones came"
        )
    return ""


def _until(compared: Compared) -> str:
    return "" if compared.wall is None else f"before {clock(compared.wall)}"


def _scope(scope: Mapping[str, Any]) -> str:
    parts = []
    mapped = scope.get("cells_mapped")
    if isinstance(mapped, list | tuple) and len(mapped) == 2:
        parts.append(f"{mapped[0]} of {mapped[1]} cells mapped")
    if isinstance(scope.get("write_coverage"), int | float):
        parts.append(f"{scope['write_coverage'] * 100:.0f} % of state changes explained by recorded writes")
    if scope.get("lanes"):
        parts.append(f"{scope['lanes']} lane{'' if scope['lanes'] == 1 else 's'}")
    named = ("cells_mapped", "write_coverage", "lanes")
    for name, value in scope.items():
        if name not in named:
            pair = isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(one, int) for one in value)
            parts.append(f"{_word(name)} {f'{value[0]} of {value[1]}' if pair else short(value, 40)}")
    return " · ".join(parts)


def _commands(label: str, finding: Mapping[str, Any]) -> Iterator[str]:
    last = (finding.get("effect") or {}).get("last")
    if finding.get("reproduce"):
        yield f"  {'reproduce':<{LABEL}}{safe(str(finding['reproduce']))}"
    if last:
        yield from _told("last", str(last))
    name = safe(label)
    yield f"  {'share':<{LABEL}}replayproxy show {name} --md   --curl   --state"
    if ".replay" not in label:
        yield f"  {'':<{LABEL}}replayproxy export {name} --out {name}.replay"
    fingerprint = safe(str(finding.get("fingerprint") or "-"))
    yield f"  {'id':<{LABEL}}{safe(str(finding.get('id')))}   fingerprint {fingerprint}"
    first = next((str(w.get("address")) for w in finding.get("exchanges") or () if w.get("address")), "")
    pointer = str(finding.get("pointer") or "")
    if pointer.startswith("/") and finding.get("exchanges"):
        last_of = str(finding["exchanges"][-1].get("address") or first)
        yield f"  {'next':<{LABEL}}replayproxy blame '{safe(last_of)}' '{safe(pointer)}'"
    elif first:
        yield f"  {'next':<{LABEL}}replayproxy show '{safe(first)}'"


def _joined(items: Any) -> str:
    return " · ".join(str(item) for item in items or ())


def _told(name: str, text: str) -> Iterator[str]:
    if text:
        yield from _wrap(f"  {name:<{LABEL}}{safe(text)}", " " * (LABEL + 2))


def _wrap(text: str, indent: str) -> list[str]:
    if len(text) <= COLUMNS:
        return [safe(text)]
    return textwrap.wrap(
        safe(text), COLUMNS, subsequent_indent=indent, break_long_words=True, break_on_hyphens=False,
        drop_whitespace=True, replace_whitespace=False,
    )  # fmt: skip


def cut(text: str, width: int) -> str:
    """At most `width` wide, cut in the middle."""
    if len(text) <= width:
        return text
    return text[: max(0, width // 2)] + "…" + text[len(text) - max(0, width - width // 2 - 1) :]


def _word(name: str) -> str:
    return safe(name.replace("_", " "))


def short(value: Any, width: int = 160) -> str:
    """A value on one line; text in quotes, nothing as what it is."""
    if value is None:
        return "(nothing)"
    text = safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
    return cut(f'"{text}"' if isinstance(value, str) else text, width)
