"""An environment with every lawful habit, histories drawn by chance: nothing that is told of it may be a certainty."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replayproxy.detect.finding import CONVINCING, Blame, Finding
from tests.detect.lawful import HABITS, Plan, plan, record


def wrong(one: Plan) -> list[tuple[str, ...]]:
    """The certainties. What an agent sent once more without a key, because it had not waited for the answer, was done
    twice indeed, and nobody blames the environment for that."""

    def is_repeat(finding: Finding) -> bool:
        return finding.sub == "applied-twice" and finding.blame is Blame.INFRASTRUCTURE and one.timeouts > 0

    judged = record(one).judge()
    return [
        (f.kind.value, f.sub, f.grade.value, f.episode, f.title)
        for f in judged.findings if f.grade in CONVINCING and not is_repeat(f)
    ]  # fmt: skip


@pytest.mark.parametrize("block", range(6))
def test_no_history_of_a_lawful_environment_gives_a_certainty(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        one = plan(seed)
        assert wrong(one) == [], one


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 10**6), habits=st.sets(st.sampled_from(HABITS), max_size=8), lanes=st.integers(1, 6),
    mode=st.sampled_from(["hold", "free", "late", "fuzzy"]), shape=st.sampled_from(["turn", "two", "shared"]),
)  # fmt: skip
def test_whatever_habits_come_together(seed: int, habits: set[str], lanes: int, mode: str, shape: str) -> None:
    one = Plan(
        seed=seed, habits=tuple(sorted(habits)), lanes=lanes, episodes=3, mode=mode, shape=shape,
        timeouts=(seed % 3) / 20, snapshots=seed % 7 != 0, steps=10,
    )  # fmt: skip
    assert wrong(one) == []
