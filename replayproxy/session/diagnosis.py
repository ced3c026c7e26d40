"""What doctor found: checks with what to do about them, the canaries, and what the wiring can show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from replayproxy.errors import worst
from replayproxy.session.canary import Canary

type Level = Literal["ok", "WARN", "FAIL", "----"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was tried. `exit`: what a FAIL does to the exit code."""

    level: Level
    what: str
    text: str
    exit: int = 0


@dataclass(slots=True)
class Diagnosis:
    """`proves`: for each kind of finding, how far this wiring can show it, without the snapshots in `unread`, which
    gave nothing. `clients`: each canary and its end."""

    checks: list[Check] = field(default_factory=list)
    proves: dict[str, str] = field(default_factory=dict)
    clients: Sequence[Canary] = ()
    unread: list[str] = field(default_factory=list)

    def add(self, level: Level, what: str, text: str, code: int = 0) -> None:
        self.checks.append(Check(level=level, what=what, text=text, exit=code))

    @property
    def exit(self) -> int:
        return worst(*(check.exit for check in self.checks))

    def document(self) -> dict[str, Any]:
        return {
            "ok": self.exit == 0,
            "checks": [{"level": one.level, "what": one.what, "text": one.text} for one in self.checks],
            "clients": [one.document() for one in self.clients],
            "proves": dict(self.proves),
        }
