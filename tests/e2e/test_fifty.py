"""Each seeded fault of the demo's suite in fifty episodes, not in one: found in every one that it falls on.

The fifty clean episodes are those of `replayproxy demo`; see `test_demo`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replayproxy.demo.stage import Stage
from replayproxy.storage import open_store

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

EACH = 50

HARNESS = f"""
import sys
from replayproxy.demo.rollouts import Rollout, run

def rollout(name, task, attempt, instance):
    return Rollout(name=name, task=task, seed=7, attempt=attempt, instance=instance)

many = range(1, {EACH} + 1)
plan = [rollout("before", "crm-renewal", 0, "leaky"), rollout("a", "crm-new", 1, "leaky")]
plan += [rollout(f"b-{{n}}", "crm-renewal", n, "leaky") for n in many]
plan += [rollout(f"win-{{n}}", "crm-win", n, "stale") for n in many]
plan += [rollout(f"score-{{n}}", "crm-score", n, "random") for n in many]
run(plan, dict(pair.split("=", 1) for pair in sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("fifty")
    stage = Stage(folder=folder, store=folder / "store")
    try:
        stage.start({"stale": ["stale-cache"], "leaky": ["leaky-reset"], "random": ["nondeterminism"]})
        urls = [f"{name}={instance.url}" for name, instance in stage.instances.items()]
        ran = stage.command("record", "--run", "r", "--env", "app=dynamic", "--", sys.executable, "-c", HARNESS, *urls)
        assert ran.code == 0, ran.told
        yield stage
    finally:
        stage.stop()


def checked(stage: Stage, *words: str) -> Any:
    ran = stage.command("check", "r", *words)
    assert ran.code == 1, ran.told
    return ran.document


def first_answers(stage: Stage) -> dict[str, Any]:
    """What each episode of the random instance was told first."""
    with open_store(stage.store) as store:
        reader = store.reader()
        run = reader.resolve("r").run
        traces = [reader.trace(run, e) for e in reader.episodes(run) if e.name.startswith("score")]
    replies = {trace.episode.name: trace.exchanges[0].response for trace in traces}
    bodies = {name: reply.body for name, reply in replies.items() if reply is not None}
    return {name: json.loads(body.inline or b"")["score"] for name, body in bodies.items() if body is not None}


def test_every_stale_read_and_every_other_answer_is_found_and_nothing_else(recorded: Stage) -> None:
    document = checked(recorded)
    found = Counter((f["kind"], f["episode"].partition("-")[0]) for f in document["findings"])
    assert found[("stale-read", "win")] == EACH
    scores = [f for f in document["findings"] if f["episode"].startswith("score")]
    assert {f["kind"] for f in scores} == {"nondeterminism"}
    answers = first_answers(recorded)
    times = Counter(answers.values())
    alone = {episode for episode, score in answers.items() if times[score] == 1}
    missed = alone - {f["episode"] for f in scores}
    assert len(missed) <= (max(times.values()) == 1), "if all differ, the first is the one that the others differ from"
    assert {f["kind"] for f in document["findings"] if f["episode"].startswith("win")} == {"stale-read"}


def test_every_episode_that_read_what_another_left_is_found_with_its_writer(recorded: Stage) -> None:
    document = checked(recorded, "--reference", "r/before")
    bled = {f["episode"]: f for f in document["findings"] if f["kind"] == "state-bleed"}
    assert set(bled) == {f"b-{n}" for n in range(1, EACH + 1)}
    first = bled["b-1"]
    assert next(e["address"] for e in first["exchanges"] if e["role"] == "write").startswith("r/a#")
    assert document["verdicts"]["before"] != "poisoned"
    assert document["verdicts"]["a"] != "poisoned"
