"""What a finding claims, as far as the ledger can confirm or refute it: which exchanges, which cells."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replayproxy.core.canonical import view
from replayproxy.core.values import Exchange, Trace
from replayproxy.detect.finding import Finding

type Place = tuple[str, int]
"""Episode and number of an exchange."""

SHOWING = ("read", "claim", "witness")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """`reads` and `writes`: the exchanges in these roles. `rows`, `columns`: keys and columns that are named."""

    finding: Finding
    reads: tuple[Place, ...]
    writes: tuple[Place, ...]
    rows: frozenset[str]
    columns: frozenset[str]

    @property
    def places(self) -> tuple[Place, ...]:
        return (*self.reads, *self.writes)


def claim_of(finding: Finding, exchanges: Mapping[Place, Exchange]) -> Claim:
    """The claim of a finding, in the light of the answers that it points into."""
    by_role: dict[bool, list[Place]] = {True: [], False: []}
    rows: set[str] = set()
    columns: set[str] = set()
    for one in finding.exchanges:
        place = place_of(one.address)
        showing = one.role in SHOWING and (one.role != "witness" or place[0] == finding.episode)
        by_role[showing].append(place)
        if place in exchanges and (one.pointer or showing):
            key, name = pointed(exchanges[place], one.pointer or finding.pointer)
            rows |= {key} - {""}
            columns |= {name} - {""}
    for row in finding.effect.get("rows", ()):
        rows.add(str(row).partition("/")[2])
    # A circle of requests names the columns by which one came before the other.
    columns |= set(re.findall(r"-(?:rw|wr|ww) (\w+)->", str(finding.effect.get("cycle", ""))))
    parts = finding.pointer.split("/")
    if len(parts) >= 3:
        rows.add(parts[2])
        columns |= set(parts[3:4])
    return Claim(
        finding=finding, reads=tuple(by_role[True]), writes=tuple(by_role[False]), rows=frozenset(rows),
        columns=frozenset(columns),
    )  # fmt: skip


def place_of(address: str) -> Place:
    episode, _, seq = address.rpartition("/")[2].partition("#")
    return episode, int(seq)


def pointed(exchange: Exchange, pointer: str) -> tuple[str, str]:
    """The key and the column that a pointer into the answer stands for: by the last object on its way that has an id,
    else by the path."""
    key, column = _by_path(exchange), ""
    document: Any = document_of(exchange)
    steps = [step for step in pointer.split("/")[1:] if step]
    if isinstance(document, Mapping) and "id" in document:
        key = str(document["id"])
    for index, step in enumerate(steps):
        document = _step(document, step)
        column = step if index == len(steps) - 1 and not isinstance(document, Mapping | list) else ""
        if isinstance(document, Mapping) and "id" in document:
            key = str(document["id"])
    return key, column


def _step(document: Any, step: str) -> Any:
    if isinstance(document, list):
        return document[int(step)] if step.isdigit() and int(step) < len(document) else None
    return document.get(step) if isinstance(document, Mapping) else None


def _by_path(exchange: Exchange) -> str:
    segments = exchange.request.target.decode().partition("?")[0].strip("/").split("/")
    return segments[1] if len(segments) > 1 else ""


def document_of(exchange: Exchange) -> Any:
    """The JSON of the answer; None when there is none."""
    response = exchange.response
    if response is None or response.body is None:
        return None
    raw = view(response.fields, response.body)
    try:
        return json.loads(response.body.inline or b"") if raw.kind == "json" else None
    except ValueError:
        return None


def numbered(traces: Sequence[Trace]) -> dict[Place, Exchange]:
    return {(trace.episode.name, e.seq): e for trace in traces for e in trace.exchanges}


def marks(exchanges: Mapping[Place, Exchange]) -> dict[str, Place]:
    """Mark -> the exchange that carried it."""
    found = {}
    for place, exchange in exchanges.items():
        for name, value in exchange.request.fields:
            if name.lower() == b"x-call":
                found[value.decode()] = place
    return found
