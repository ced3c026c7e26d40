"""From a recording of the demo's environment, with its forgotten table, to the file that a trainer reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from replayproxy.demo.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Run `demo`: eight episodes on an instance whose reset forgets a table, and on one whose cache is stale."""
    folder = tmp_path_factory.mktemp("mask")
    made = Stage(folder=folder, store=folder / "store")
    made.start({"leaky": ["leaky-reset"], "stale": ["stale-cache"]})
    words = [word for name in ("leaky", "stale") for word in ("--instance", f"{name}={made.url(name)}")]
    try:
        ran = made.command(
            "record", "--run", "demo", "--env", "app=dynamic", "--",
            sys.executable, "-m", "replayproxy.demo.rollouts", "--plan", "faults", *words,
        )  # fmt: skip
        assert ran.code == 0, ran.told
    finally:
        made.stop()
    return made


def rollouts(stage: Stage) -> tuple[Path, list[dict[str, Any]]]:
    """What the harness wrote: one line a rollout, each clean one sampled four times, for the limit."""
    listed = stage.command("ls", "demo").document["episodes"]
    path = stage.folder / "rollouts.jsonl"
    rows = [
        {"rollout_id": row["episode"], "sample": n, "reward": row["reward"], "messages": [{"role": "user"}]}
        for row in listed for n in range(1 if row["episode"] in ("b", "win") else 4)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, rows


def test_a_poisoned_episode_is_masked_in_the_trainers_file(stage: Stage) -> None:
    path, rows = rollouts(stage)
    ran = stage.command("mask", "demo", str(path))
    assert ran.code == 0, ran.told
    told = ran.document
    assert told["judged"] == "it was never checked"
    assert told["on"] == ["rollout_id=episode"]
    assert (told["lines"], told["masked"], told["unmatched"]) == (len(rows), 2, 0)
    made = [json.loads(line) for line in Path(told["out"]).read_text().splitlines()]
    masked = {line["rollout_id"]: line["mask_reasons"] for line in made if line["mask_sample"]}
    assert masked.keys() == {"b", "win"}
    assert masked["b"][0]["kind"] in ("state-bleed", "dirty-reset")
    assert masked["win"][0]["kind"] == "stale-read"
    assert [{name: line[name] for name in row} for line, row in zip(made, rows, strict=True)] == rows
    shown = stage.command("show", masked["b"][0]["finding"])
    assert shown.code == 0


def test_what_was_not_recorded_fails_it(stage: Stage) -> None:
    path, _ = rollouts(stage)
    with path.open("a") as out:
        out.write('{"rollout_id": "never-recorded", "reward": 1.0}\n')
    ran = stage.command("mask", "demo", str(path), "--on", "rollout_id=episode", "--out", str(path) + ".masked")
    assert ran.code == 3
    assert ran.document["unmatched"] == 1
    assert not Path(str(path) + ".masked").exists()


def test_rewards_that_come_later_are_said_and_the_run_is_judged_with_them(stage: Stage) -> None:
    path = stage.folder / "later.jsonl"
    path.write_text('{"id": "b", "judge": {"score": 0.0}}\n')
    ran = stage.command("annotate", "demo", str(path), "--on", "id=episode", "--set", "reward=judge.score")
    assert (ran.code, ran.document["changed"]) == (0, 1)
    rows = {row["episode"]: row for row in stage.command("ls", "demo").document["episodes"]}
    assert (rows["b"]["reward"], rows["b"]["annotated"]["said"]) == (0.0, {"reward": 1.0})
    assert stage.command("fsck").document["damaged"] == []
    told = stage.command("mask", "demo").document
    assert told["judged"] == "1 of its episodes were annotated after the last check"
