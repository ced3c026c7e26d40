"""The demo's plot: which commands run, what must come of them, and what is told at the end.

Every step is a command that a user could type; nothing is looked at but their documents. The demo has succeeded
exactly when the seeded faults were found where they were seeded, and nothing was found on the clean episodes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from replayproxy.demo.stage import Ran, Stage

AGENT = (sys.executable, "-m", "replayproxy.demo.agent")
ROLLOUTS = (sys.executable, "-m", "replayproxy.demo.rollouts")

# fault -> (the instance it is switched on in, the kinds of finding that are it, the episodes that it falls on)
SEEDED: dict[str, tuple[str, frozenset[str], frozenset[str]]] = {
    "leaky-reset": ("leaky", frozenset({"state-bleed", "dirty-reset"}), frozenset({"b"})),
    "stale-cache": ("stale", frozenset({"stale-read"}), frozenset({"win"})),
    "nondeterminism": ("random", frozenset({"nondeterminism"}), frozenset({"score-1", "score-2", "score-3"})),
    "double-booking": ("double", frozenset({"race"}), frozenset({"pair"})),
}
MUST = {
    "leaky-reset": "state-bleed", "stale-cache": "stale-read", "nondeterminism": "nondeterminism",
    "double-booking": "race",
}  # fmt: skip


class Spoiled(Exception):
    """A step did not do what the story needs; the text says which, and what it told."""


@dataclass(slots=True)
class Told:
    """What came of the steps, by name of the step."""

    faults: tuple[str, ...]
    recorded: dict[str, Any] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    clean_findings: list[dict[str, Any]] = field(default_factory=list)
    clean_episodes: int = 0
    replay: dict[str, Any] | None = None
    redrive: dict[str, Any] | None = None
    diff: dict[str, Any] | None = None
    race: dict[str, Any] | None = None
    answers: int = 0
    other_than_2xx: int = 0

    def missing(self) -> list[str]:
        """The seeded faults that were not found where they were seeded."""
        return [
            fault for fault in self.faults
            if not any(f["kind"] == MUST[fault] and f["episode"] in SEEDED[fault][2] for f in self.findings)
        ]  # fmt: skip

    def unexpected(self) -> list[dict[str, Any]]:
        """Findings that no seeded fault accounts for."""
        lawful = [SEEDED[fault] for fault in self.faults]
        seeded = [f for f in self.findings if any(f["kind"] in k and f["episode"] in e for _, k, e in lawful)]
        return [f for f in self.findings if f not in seeded] + self.clean_findings

    @property
    def as_seeded(self) -> bool:
        return not self.missing() and not self.unexpected()


def play(stage: Stage, faults: Sequence[str], say: Callable[[str], None]) -> Told:
    """Runs the whole story. Raises Spoiled when a step fails that no fault can explain."""
    told = Told(faults=tuple(faults))
    instances: dict[str, list[str]] = {SEEDED[fault][0]: [fault] for fault in faults}
    stage.start({"a": [], "b": [], **instances})

    say("record   50 clean episodes, two at a time")
    told.recorded["clean"] = _record(stage, "clean", "clean", ["a", "b"])
    say("record   episodes with " + ", ".join(faults))
    told.recorded["demo"] = _record(stage, "demo", "faults", list(instances))
    stage.stop()

    if "leaky-reset" in faults:
        _leaky(stage, told, say)
    _redrive(stage, told, say)
    if "double-booking" in faults:
        _race(stage, told, say)
    say("check    both runs")
    checked = _step(stage.command("check", "clean"), (0, 1), "check clean")
    told.clean_findings, told.clean_episodes = _findings(checked), len(checked["verdicts"])
    # Last: F1, which the demo ends with, is the last check's.
    told.findings = _findings(_step(stage.command("check", "demo"), (0, 1), "check demo"))
    return told


def _record(stage: Stage, run: str, plan: str, instances: list[str]) -> Any:
    words = [word for name in instances for word in ("--instance", f"{name}={stage.url(name)}")]
    ran = stage.command("record", "--run", run, "--env", "app=dynamic", "--", *ROLLOUTS, "--plan", plan, *words)
    return _step(ran, (0,), f"record {run}")


def _leaky(stage: Stage, told: Told, say: Callable[[str], None]) -> None:
    """B is replayed with nothing to talk to, recorded again on a fresh instance, and compared with itself there."""
    say("replay   demo/b, every instance stopped")
    told.replay = _step(stage.command("replay", "demo/b", "--", *AGENT, "--task", "crm-renewal"), (0,), "replay demo/b")
    stage.start({"fresh": []})
    say("record   b again, five times, on a fresh instance")
    told.recorded["again"] = _record(stage, "again", "again", ["fresh"])
    stage.stop()
    say("diff     demo/b with again/b-1")
    told.diff = _step(stage.command("diff", "demo/b", "again/b-1"), (1,), "diff demo/b again/b-1")
    for run in ("demo", "again"):
        listed = _step(stage.command("ls", run), (0,), f"ls {run}")
        told.rewards |= {f"{run}/{row['episode']}": row["reward"] for row in listed["episodes"]}
    for name in ("a", "b"):
        shown = _step(stage.command("show", f"demo/{name}"), (0,), f"show demo/{name}")
        told.answers += len(shown["exchanges"])
        told.other_than_2xx += sum(not 200 <= (row["status"] or 0) < 300 for row in shown["exchanges"])


def _redrive(stage: Stage, told: Told, say: Callable[[str], None]) -> None:
    """A clean episode goes to a fresh instance, its start state put back first."""
    say("redrive  clean/crm-new-s1-a1 to a fresh instance")
    stage.start({"live": []})
    url = stage.url("live")
    ran = stage.command(
        "redrive", "clean/crm-new-s1-a1", "--env", f"app={url}", "--snapshot", f"app=http:{url}/admin/state"
    )
    told.redrive = _step(ran, (0,), "redrive clean/crm-new-s1-a1")
    stage.stop()


def _race(stage: Stage, told: Told, say: Callable[[str], None]) -> None:
    """The bookings of the two assistants go to a fresh instance of the same build, together."""
    say("race     demo/pair on a fresh instance, its two bookings sent together, 5 times")
    stage.start({"again": ["double-booking"]})
    url = stage.url("again")
    ran = stage.command(
        "race", "demo/pair", "--env", f"app={url}", "--snapshot", f"app=http:{url}/admin/state", "--pairs", "1",
        "--times", "5",
    )  # fmt: skip
    told.race = _step(ran, (0, 1), "race demo/pair")
    stage.stop()


def _step(ran: Ran, lawful: Sequence[int], what: str) -> Any:
    if ran.code not in lawful or ran.document is None:
        raise Spoiled(f"`replayproxy {what}` ended with {ran.code}: {ran.told.strip()} {ran.document}".strip())
    return ran.document


def _findings(document: Any) -> list[dict[str, Any]]:
    return [dict(finding) for finding in document["findings"]]
