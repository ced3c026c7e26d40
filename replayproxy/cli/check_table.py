"""The table of `check`: per kind what was found, and in how many episodes one could not look, and why."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from replayproxy.cli.common import columns, safe
from replayproxy.detect.finding import Grade, Kind

KINDS = tuple(kind.value for kind in Kind)
GRADES = tuple(grade.value for grade in Grade)
WIDTH = 100
REASONS = 3
"""Reasons that are told per kind; --json has all."""


def table(told: Mapping[str, Any]) -> list[str]:
    """At most `WIDTH` columns wide. The grade `statistical` has a column where something has it."""
    grades = [grade for grade in GRADES if grade != Grade.STATISTICAL or _some(told, grade)]
    head = ["KIND", *(grade.upper() for grade in grades), "EPISODES"]
    rows = [head, *(_row(told, kind, grades) for kind in KINDS)]
    left = columns(rows, right=range(1, len(head)))
    width = max(map(len, left))
    room = WIDTH - width - 2
    lines = [f"{left[0]:<{width}}  COULD NOT LOOK IN"]
    for kind, counts in zip(KINDS, left[1:], strict=True):
        first, *more = list(_blind(told, kind, room))
        lines.append(f"{counts:<{width}}  {first}")
        lines += [f"{'':<{width}}  {line}" for line in more]
    return lines


def _some(told: Mapping[str, Any], grade: str) -> bool:
    return any(finding["grade"] == grade for finding in told["findings"])


def _row(told: Mapping[str, Any], kind: str, grades: list[str]) -> list[str]:
    found = [finding for finding in told["findings"] if finding["kind"] == kind]
    counts = Counter(finding["grade"] for finding in found)
    episodes = len({finding["episode"] for finding in found})
    return [kind, *(f"{counts[grade]:,}" if counts[grade] else "-" for grade in grades), f"{episodes or '-'}"]


def _blind(told: Mapping[str, Any], kind: str, room: int) -> Iterator[str]:
    """Where one could not look for a kind: the number, and each reason with its own."""
    coverage = (seen["not_checked"] for seen in told["coverage"].values())
    why = Counter(_in_part(kind, lacking[kind]) for lacking in coverage if kind in lacking)
    total = len(told["verdicts"])
    hidden = sum(why.values())
    if not why:
        yield f"0 of {total:,}"
        return
    if len(why) == 1:
        yield from _wrapped(f"{hidden:,} of {total:,}: {safe(next(iter(why)))}", room)
        return
    yield f"{hidden:,} of {total:,}:"
    for reason, number in why.most_common(REASONS):
        yield from _wrapped(f"{number:,} {safe(reason)}", room)
    if len(why) > REASONS:
        rest = sum(number for _, number in why.most_common()[REASONS:])
        yield f"{rest:,} for {len(why) - REASONS} more reasons"


def _in_part(kind: str, reason: str) -> str:
    """A bleed is looked for in two ways, and that by values needs neither snapshots nor a reference."""
    whole = kind != Kind.STATE_BLEED or reason == "no exchanges" or reason.startswith("the episode is")
    return reason if whole else f"{reason}, for rows (values were followed)"


def _wrapped(text: str, room: int) -> list[str]:
    return textwrap.wrap(text, max(room, 24), subsequent_indent="  ", max_lines=3, placeholder=" ..") or [text]
