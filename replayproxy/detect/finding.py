"""A finding: a fault that the recorded evidence shows, and all that a reader needs to believe or refute it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.templates import template_of
from replayproxy.core.values import Exchange, Snapshot


class Kind(StrEnum):
    STALE_READ = "stale-read"
    STATE_BLEED = "state-bleed"
    DIRTY_RESET = "dirty-reset"
    NONDETERMINISM = "nondeterminism"
    RACE = "race"
    LOST_UPDATE = "lost-update"


class Grade(StrEnum):
    """How far the evidence goes, strongest first."""

    PROVEN = "proven"  # the recorded facts contradict every other explanation, under the listed assumptions
    CONFIRMED = "confirmed"  # sending it again showed it again
    STATISTICAL = "statistical"
    SUSPECTED = "suspected"


class Blame(StrEnum):
    ENVIRONMENT = "environment"
    AGENT = "agent"
    INFRASTRUCTURE = "infrastructure"
    UNDECIDED = "undecided"


# What a document has as it is, may have, and has as a list.
_TEXTS = ("sub", "blame_reason", "run", "episode", "lane", "pointer", "reproduce", "title", "cannot_say")
_MORE = ("times", "effect", "scope", "count", "at")
_LISTS = ("snapshots", "assumptions", "ruled_out")
_WITNESS = ("method", "target", "status", "lane", "fwd", "up_end", "wall", "pointer", "value")

STRENGTH = {grade: rank for rank, grade in enumerate(Grade)}
CONVINCING = frozenset({Grade.PROVEN, Grade.CONFIRMED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """An exchange that a finding rests on. `role`: write, read, witness or reset. `fwd` and `up_end` are instants."""

    address: str
    role: str
    method: str = ""
    target: str = ""
    status: int | None = None
    lane: str = ""
    fwd: int | None = None
    up_end: int | None = None
    wall: int | None = None
    pointer: str = ""
    value: Any = None

    def to_json(self) -> dict[str, Any]:
        return {
            "address": self.address, "role": self.role, "method": self.method, "target": self.target,
            "status": self.status, "lane": self.lane, "fwd": self.fwd, "up_end": self.up_end, "wall": self.wall,
            "pointer": self.pointer, "value": plain(self.value),
        }  # fmt: skip

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Witness:
        """What `to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(**{name: document[name] for name in ("address", "role")},
                   **{name: document[name] for name in _WITNESS if name in document})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault as it falls on one episode.

    `values` are two: what was to be expected, and what was there. `covers` names every exchange of the run that the
    fault explains ((episode, seq)), so that no second finding is made of its consequences; `count` how many sightings
    were folded into this one. `at` orders findings of one episode. `scope` says how far the evidence reaches:
    `cells_mapped` [n, of], `write_coverage` (share, null: not known), `lanes` (how many), as far as the judge knows.
    """

    kind: Kind
    sub: str
    grade: Grade
    blame: Blame
    blame_reason: str
    run: str
    episode: str
    lane: str
    pointer: str
    values: tuple[Any, Any]
    exchanges: tuple[Witness, ...]
    snapshots: tuple[str, ...]
    assumptions: tuple[str, ...]
    ruled_out: tuple[str, ...]
    reproduce: str
    title: str
    cannot_say: str
    times: Mapping[str, Any] = field(default_factory=dict)
    effect: Mapping[str, Any] = field(default_factory=dict)
    scope: Mapping[str, Any] = field(default_factory=dict)
    covers: frozenset[tuple[str, int]] = frozenset()
    count: int = 1
    at: int = 0

    @property
    def id(self) -> str:
        """Stable: the same evidence gives the same id, whatever else the check found."""
        content = [
            self.kind, self.sub, self.run, self.episode, self.pointer,
            [[w.role, w.address] for w in self.exchanges], [plain(value) for value in self.values],
        ]  # fmt: skip
        return f"{self.kind}-{blake2b(jsonvalue.canonical(content), digest_size=6).hexdigest()}"

    @property
    def fingerprint(self) -> str:
        """The same fault in another recording has the same one: no run, no episode, no ids, no values."""
        content = [
            self.kind, self.sub, re.sub(r"\d+", "*", self.pointer),
            sorted({(w.role, w.method, template_of(w.target.encode())) for w in self.exchanges}),
        ]  # fmt: skip
        return f"{self.kind}-{blake2b(jsonvalue.canonical(content), digest_size=6).hexdigest()}"

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "kind": self.kind.value, "sub": self.sub, "grade": self.grade.value,
            "blame": self.blame.value, "blame_reason": self.blame_reason, "title": self.title,
            "run": self.run, "episode": self.episode, "lane": self.lane, "pointer": self.pointer,
            "values": [plain(value) for value in self.values],
            "exchanges": [w.to_json() for w in self.exchanges], "snapshots": list(self.snapshots),
            "times": dict(self.times), "assumptions": list(self.assumptions), "ruled_out": list(self.ruled_out),
            "cannot_say": self.cannot_say, "effect": {key: plain(value) for key, value in self.effect.items()},
            "scope": {key: plain(value) for key, value in self.scope.items()}, "fingerprint": self.fingerprint,
            "count": self.count, "at": self.at, "reproduce": self.reproduce,
        }  # fmt: skip

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Finding:
        """The finding that a document tells, with the same id; what it covers is not told. Raises KeyError, TypeError
        or ValueError for what is no such document."""
        given: dict[str, Any] = {name: document[name] for name in _TEXTS}
        given |= {name: document[name] for name in _MORE if name in document}
        expected, found = document["values"]
        given |= {name: tuple(document[name]) for name in _LISTS}
        return cls(
            kind=Kind(document["kind"]),
            grade=Grade(document["grade"]),
            blame=Blame(document["blame"]),
            values=(expected, found),
            exchanges=tuple(map(Witness.from_json, document["exchanges"])),
            **given,
        )


def in_order(findings: Iterable[Finding], opened: Mapping[str, int]) -> list[Finding]:
    """The order that F1, F2, .. follow: by grade, then by time. `opened` gives each episode's place in time."""
    return sorted(findings, key=lambda f: (STRENGTH[f.grade], opened.get(f.episode, 0), f.at, f.id))


def plain(value: Any, limit: int = 400) -> Any:
    """The value as JSON can carry it: exact numbers as int or float where that loses nothing, else as text; long
    strings are cut, with an ellipsis to show it."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= limit else value[:limit] + "…"
    if isinstance(value, Mapping):
        return {str(name): plain(item, limit) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(item, limit) for item in value]
    if isinstance(value, bytes | bytearray):
        return plain(bytes(value).decode("utf-8", "backslashreplace"), limit)
    text = jsonvalue.number_text(value)
    return float(text) if jsonvalue.same(float(text), value) else text


def seconds(**instants: int | tuple[int | None, int | None] | None) -> dict[str, Any]:
    """Instants as seconds after the first of them; a pair is an interval, and what never came is null."""
    flat = [at for given in instants.values() for at in (given if isinstance(given, tuple) else (given,))]
    origin = min((at for at in flat if at is not None), default=0)

    def after(at: int | None) -> float | None:
        return None if at is None else round((at - origin) / 1e9, 6)

    return {
        f"{name}_s": [after(at) for at in given] if isinstance(given, tuple) else after(given)
        for name, given in instants.items()
    }


def exchange_address(run: str, episode: str, seq: int) -> str:
    return f"{run}/{episode}#{seq}"


def snapshot_address(run: str, episode: str, snapshot: Snapshot | int) -> str:
    return f"{run}/{episode}/s{snapshot if isinstance(snapshot, int) else snapshot.n}"


def witness(run: str, episode: str, exchange: Exchange, role: str, *, pointer: str = "", value: Any = None) -> Witness:
    return Witness(
        address=exchange_address(run, episode, exchange.seq),
        role=role,
        method=exchange.request.method.decode("ascii", "replace"),
        target=exchange.request.target.decode("utf-8", "replace"),
        status=exchange.response.status if exchange.response else None,
        lane=exchange.lane,
        fwd=exchange.times.fwd,
        up_end=exchange.times.up_end,
        wall=exchange.times.wall,
        pointer=pointer,
        value=value,
    )
