"""`show F3`: a finding as a block that a person takes in at a glance. From the saved check, and from the store."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from replayproxy.cli.common import safe
from replayproxy.cli.finding_lines import COLUMNS, evidence_lines
from replayproxy.cli.moments import clock
from replayproxy.cli.shorten import short
from replayproxy.session.evidence import Compared, Evidence

LABEL = 12

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


def _values(finding: Mapping[str, Any]) -> Iterator[str]:
    values, pointer = finding.get("values"), safe(str(finding.get("pointer") or ""))
    if isinstance(values, Sequence) and not isinstance(values, str) and len(values) == 2:
        lead = f"{pointer}   " if pointer else ""
        one, other = short(values[0], 60), short(values[1], 60)
        both = f"{one} and {other}" if finding.get("kind") == "race" else f"expected {one}   there was {other}"
        yield from _told("values", lead + both)
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
    states = "   --state" if finding.get("snapshots") else ""
    yield f"  {'share':<{LABEL}}replayproxy show {name} --md   --curl{states}"
    if ".replay" not in label:
        yield f"  {'':<{LABEL}}replayproxy export {name} --out {name}.replay"
    fingerprint = safe(str(finding.get("fingerprint") or "-"))
    yield f"  {'id':<{LABEL}}{safe(str(finding.get('id')))}   fingerprint {fingerprint}"
    yield f"  {'next':<{LABEL}}{_next(finding)}"


def _next(finding: Mapping[str, Any]) -> str:
    """Who wrote what was read or claimed; of two that were answered differently, how they differ; else a look at the
    first exchange."""
    exchanges = [w for w in finding.get("exchanges") or () if w.get("address")]
    asked = asked_about(finding)
    if finding.get("kind") == "nondeterminism" and asked is not None:
        sibling = next((str(w["address"]) for w in exchanges if w.get("role") == "witness"), None)
        if sibling is not None:
            both = (address.rpartition("#")[0] for address in (sibling, asked[0]))
            return f"replayproxy diff {' '.join(map(safe, both))}"
    if asked is not None:
        return f"replayproxy blame '{safe(asked[0])}' '{safe(asked[1])}'"
    if exchanges:
        return f"replayproxy show '{safe(str(exchanges[0]['address']))}'"
    return f"replayproxy show '{safe(str(finding.get('run')))}/{safe(str(finding.get('episode')))}'"


def asked_about(finding: Mapping[str, Any]) -> tuple[str, str] | None:
    """Address and pointer of the value in an answer that a finding is about; None: it names none."""
    for witness in reversed(finding.get("exchanges") or ()):
        if witness.get("role") not in ("read", "claim") or not witness.get("address") or witness.get("status") == 304:
            continue  # a 304 has no value of its own
        pointer = str(witness.get("pointer") or finding.get("pointer") or "").removeprefix("body")
        if pointer.startswith("/"):
            return str(witness["address"]), pointer
    return None


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


def _word(name: str) -> str:
    return safe(name.replace("_", " "))
