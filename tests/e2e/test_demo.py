"""The demo ends with 0 exactly when the seeded faults were found, and in time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def demo(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "replayproxy", "demo", *words], capture_output=True, text=True, cwd=path, timeout=200
    )


def test_the_demo_finds_the_seeded_faults_and_nothing_on_fifty_clean_episodes(tmp_path: Path) -> None:
    began = time.monotonic()
    done = demo(tmp_path, "--json")
    took = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["clean_findings"] == []
    assert told["clean_episodes"] == 50
    kinds = {(f["kind"], f["episode"]) for f in told["findings"]}
    assert ("state-bleed", "b") in kinds
    assert ("stale-read", "win") in kinds
    assert ("race", "pair") in kinds
    assert told["race"]["verdict"] == "shown"
    assert any(kind == "nondeterminism" and episode.startswith("score-") for kind, episode in kinds)
    bleed = next(f for f in told["findings"] if f["kind"] == "state-bleed")
    assert any(e["role"] == "write" and e["address"].startswith("demo/a") for e in bleed["exchanges"]), bleed
    assert told["replay"]["reproduced"] is True
    assert told["replay"]["upstream_contacts"] == 0
    assert told["redrive"]["verdict"] == "same"
    assert told["diff"]["verdict"] == "different"
    assert told["rewards"]["demo/b"] == 1.0
    assert [told["rewards"][f"again/b-{n}"] for n in range(1, 6)] == [0.0] * 5
    assert took < 120, "the demo is to take under 60 s; twice that means something is wrong"


@pytest.mark.parametrize("fault", ["stale-cache", "leaky-reset", "nondeterminism", "double-booking"])
def test_each_fault_is_found_alone(tmp_path: Path, fault: str) -> None:
    done = demo(tmp_path, "--fault", fault, "--keep", str(tmp_path / "kept"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "50 clean episodes: 0 findings" in done.stdout
    seen_at_a_glance(tmp_path)


def seen_at_a_glance(path: Path) -> None:
    """The screens of triage on what was really recorded: they fit, and lead from the finding to its exchanges."""

    def said(*words: str, code: int = 0) -> list[str]:
        called = [sys.executable, "-m", "replayproxy", *words, "--store", str(path / "kept")]
        run = subprocess.run(called, capture_output=True, text=True, cwd=path, timeout=60)
        assert run.returncode == code, run.stdout + run.stderr
        return run.stdout.splitlines()

    assert said("show", "F1"), "as the demo proposes at its end"
    report = said("check", "demo", code=1)
    assert report[0].startswith("demo: FAIL")
    assert [line for line in report if len(line) > 100 and "replayproxy" not in line] == []
    block = said("show", "F1")
    drawn = [line for line in block if re.search(r"\[[ =|>a-z0-9]{18}\]$", line)]
    assert len([line for line in drawn if " state " not in line]) >= 2
    assert [line for line in block if len(line) > 100 and "replayproxy" not in line] == []
    assert any(line.startswith("  ruled out ") for line in block)
    number = len([line for line in said("show", "F1", "--curl") if line.startswith("curl ")])
    assert number >= 2
    assert len(said("ls", "demo", "--where", "verdict=poisoned")) >= 3
    said("export", "F1", "--out", "F1.replay")
    assert said("show", "F1.replay")[0].startswith("F1.replay  ")


def test_the_demo_never_writes_over_somebody_elses_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    done = demo(tmp_path, "--keep", str(tmp_path / "mine"))
    assert done.returncode == 2
    assert (tmp_path / "mine" / "file").read_text() == "precious"
