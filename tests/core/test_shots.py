from __future__ import annotations

from dataclasses import replace

from replayproxy.core.shots import Progress, match_snapshots
from replayproxy.core.values import Exchange, Snapshot, SnapshotStatus
from replayproxy.testing import exchange, snapshot, trace

ROOT = b"r" * 32


def shots(*given: tuple[str, int | None]) -> list[Snapshot]:
    return [replace(snapshot(n, ROOT, when=when), after_seq=after) for n, (when, after) in enumerate(given)]


def test_snapshots_meet_by_occasion_and_by_the_exchange_they_followed() -> None:
    a, b = shots(("start", None), ("write", 2), ("end", None)), shots(("start", None), ("write", 3), ("end", None))
    matched = match_snapshots(a, b, {1: 0, 2: 1}, {1: 0, 3: 1})
    assert [(x.n, y.n, after) for x, y, after in matched.pairs] == [(0, 0, -1), (1, 1, 1), (2, 2, 1)]
    assert matched.undecided == []


def test_a_snapshot_after_an_exchange_that_only_one_side_has_is_nobodys_fellow() -> None:
    matched = match_snapshots(shots(("write", 1)), shots(("write", 1), ("write", 2)), {1: 0}, {1: 0})
    assert ([(x.n, y.n) for x, y, _ in matched.pairs], matched.undecided) == ([(0, 0)], [])


def test_what_one_side_lacks_is_named() -> None:
    missing = snapshot(0, None, when="start")
    matched = match_snapshots([missing], shots(("start", None)), {}, {})
    assert matched.undecided == ["snapshot app at start (s0) is missing on A: no answer in 30 s"]
    taken = shots(("end", None))
    both = match_snapshots([missing, *taken], [missing, *taken], {}, {})
    assert both.undecided == []
    assert both.notes == ["snapshot app at start (s0) is missing on both sides: no answer in 30 s"]
    lacking = match_snapshots(shots(("start", None), ("end", None)), shots(("start", None)), {}, {})
    assert lacking.undecided == ["snapshot app at end (s1) is only in A"]


def test_a_state_that_neither_side_could_read_leaves_it_undecided() -> None:
    missing = snapshot(0, None, when="start")
    matched = match_snapshots([missing], [missing], {}, {})
    assert matched.undecided == ["state of app not compared: no snapshot of it is on both sides"]
    undeclared = replace(missing, reason="undeclared")
    assert match_snapshots([undeclared], [undeclared], {}, {}).undecided == []


def test_a_name_that_one_side_never_had_is_a_note() -> None:
    matched = match_snapshots(shots(("start", None)), [], {}, {})
    assert (matched.undecided, matched.notes) == ([], ["state of app not compared: only A has snapshots of it"])


def test_snapshots_that_are_nobodys_evidence_are_left_out() -> None:
    matched = match_snapshots(shots(("before-restore", None), ("probe", None)), [], {}, {})
    assert matched.pairs == []


def writes(*spans: tuple[str, float, float]) -> list[tuple[str, Exchange]]:
    made = [exchange("POST", "/x", lane=lane, at_ms=at, took_ms=took) for lane, at, took in spans]
    return [(one.lane, one) for one in trace(made).exchanges]


def test_progress_is_how_many_writes_each_lane_had_done() -> None:
    progress = Progress(writes(("a", 0, 10), ("b", 5, 10), ("a", 100, 10)))
    assert progress.at(snapshot(0, ROOT, at_ms=50)) == {"a": 1, "b": 1}
    assert progress.at(snapshot(0, ROOT, at_ms=200)) == {"a": 2, "b": 1}
    assert progress.at(snapshot(0, ROOT, at_ms=7)) is None, "a write was in flight"
    assert progress.at(snapshot(0, ROOT, at_ms=50, status=SnapshotStatus.TORN)) is None
