"""Findings about validators as they are read: `check` and `show` of a recording with both."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from replayproxy.core.values import EpisodeState
from replayproxy.storage import open_store
from tests.cli.conftest import Call
from tests.detect.hand import Hand
from tests.detect.test_revalidated import again, get, patch, state
from tests.detect.test_validator_pairs import NEW, OLD
from tests.detect.test_validator_pairs import get as report


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "store"
    monkeypatch.setenv("REPLAYPROXY_STORE", str(place))
    monkeypatch.chdir(tmp_path)
    hand = Hand()
    exchanges = [get(10), patch(), again(30), report(40, OLD), report(50, NEW)]
    hand.episode("e", exchanges, [(0, state("lead")), (22, state("won"))])
    with open_store(place, create=True) as store:
        writer = store.writer()
        run = writer.open_run(replace(hand.run, key=0, name="r"))
        writer.put_nodes(hand.nodes)
        trace = hand.traces["e"]
        opened = writer.open_episode(replace(trace.episode, key=0, run_key=run.key, state=EpisodeState.OPEN))
        for exchange in trace.exchanges:
            writer.put_exchange(opened.key, exchange)
        for snapshot in trace.snapshots:
            writer.put_snapshot(opened.key, snapshot)
        writer.seal(replace(opened, state=EpisodeState.SEALED)).result(10)
        writer.close()
    return place


def test_both_are_told_with_what_they_rest_on(call: Call, found: Path) -> None:
    assert call("check", "r").code == 1
    first, second = (call("show", name) for name in ("F1", "F2"))
    assert "the 304 for /deals/D-1 was at least" in first.text.splitlines()[0]
    assert "304" in first.text
    assert "e/1" in first.text
    # A 304 has no value whose origin could be asked for.
    assert "next        replayproxy show" in first.text
    assert "NONDETERMINISM (validator)  PROVEN" in second.text
    assert 'ETag "5"' in second.text
    assert "replayproxy reproduce" in second.text
    for name in ("F1", "F2"):
        for form in ("--md", "--curl"):
            assert call("show", name, form).code == 0


def test_a_violated_validator_makes_the_kind_no_checked_one(call: Call, found: Path) -> None:
    run = json.loads(call("check", "r", "--json").text)
    assert sorted(f["sub"] for f in run["findings"]) == ["RYW", "validator"]
    assert "nondeterminism" in run["coverage"]["e"]["not_checked"]
