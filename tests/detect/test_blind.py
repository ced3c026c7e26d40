"""Snapshots of another state than the one that answers: nothing was looked into, and nothing is called clean."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from replayproxy.detect.verdicts import Word
from tests.detect.bench import Bench, Deployment, script, worker


@dataclass
class Elsewhere(Deployment):
    """Its state is read from a copy that nobody writes to."""

    copy: str = ""

    def state(self) -> dict[str, Any]:
        self.copy = self.copy or json.dumps(super().state())
        return json.loads(self.copy)  # type: ignore[no-any-return]


def judged(agent: Any, kind: type[Deployment]) -> Any:
    bench = Bench(1)
    made = bench.deployment("i", kind=kind)
    plans = ({"name": f"e{n}", "deployment": made, "agents": {"main": agent}, "task": "t", "seed": 1} for n in range(4))
    bench.in_turn(plans)
    return bench.judge()


def test_snapshots_that_show_no_acknowledged_write_check_nothing() -> None:
    found = judged(worker, Elsewhere)
    assert found.findings == ()
    assert set(found.words.values()) == {Word.UNKNOWN}
    (why,) = {w for k, w in found.coverage["e1"].not_checked.items() if k in ("stale-read", "dirty-reset")}
    assert "never change, and show none of" in why


def test_an_episode_that_only_reads_says_nothing_of_its_snapshots() -> None:
    found = judged(script(("GET", "/deals"), ("GET", "/tickets")), Elsewhere)
    assert set(found.words.values()) == {Word.CLEAN}
    assert set(judged(worker, Deployment).words.values()) == {Word.CLEAN}
