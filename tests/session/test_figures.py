from __future__ import annotations

from replayproxy.core.values import Outcome, Snapshot, SnapshotStatus
from replayproxy.session.figures import ENVS_KEPT, OTHER_ENVS, Durations, Figures
from replayproxy.testing import exchange


def test_a_duration_that_is_a_bound_is_in_its_bucket_and_a_longer_one_is_in_the_next() -> None:
    found = Durations((0.1, 1.0))
    for seconds in (0.0, 0.1, 0.10001, 1.0, 7.0):
        found.add(seconds)
    assert found.counts == [2, 2, 1]
    assert round(found.sum, 5) == 8.20001


def test_only_so_many_environments_get_a_name_of_their_own_whatever_the_agents_ask_for() -> None:
    figures = Figures()
    for n in range(ENVS_KEPT + 50):
        figures.exchange(exchange(env=f"host-{n}:80"), None)
    figures.exchange(exchange(env="host-3:80"), None)
    assert figures.exchanges["host-3:80", "answered"] == 2
    assert figures.exchanges[OTHER_ENVS, "answered"] == 50
    assert len({env for env, _ in figures.exchanges}) == ENVS_KEPT + 1


def test_exchanges_are_told_apart_by_how_they_ended() -> None:
    figures = Figures()
    for outcome in Outcome:
        figures.exchange(exchange(env="crm", outcome=outcome), 2_000_000)
    assert figures.exchanges == {("crm", outcome.value): 1 for outcome in Outcome}
    assert round(figures.added.sum * 1000) == 2 * len(Outcome)


def test_a_snapshot_counts_with_the_time_of_its_reading_unless_there_was_none() -> None:
    figures = Figures()
    for status in SnapshotStatus:
        figures.snapshot(
            Snapshot(n=0, name="crm", env="crm", when="write", status=status, begun=5, done=5 + 30_000_000)
        )
    assert sum(figures.snapshots.counts) == 2
    assert round(figures.snapshots.sum, 6) == 0.06


def test_findings_are_counted_by_kind_and_grade() -> None:
    figures = Figures()
    reason = {"kind": "stale-read", "grade": "proven", "finding": "ab"}
    figures.judged({"verdict": "poisoned", "reasons": [reason, {**reason, "grade": "suspected"}]})
    figures.judged({"verdict": "clean", "reasons": []})
    assert figures.findings == {("stale-read", "proven"): 1, ("stale-read", "suspected"): 1}
