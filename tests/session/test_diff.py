from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from replayproxy.core.rules import Rule
from replayproxy.core.values import Episode
from replayproxy.errors import UnknownAddress, WrongUsage
from replayproxy.session.diff import diff
from replayproxy.session.look import Stores
from replayproxy.storage import Store, Writer
from replayproxy.testing import exchange, run, snapshot
from tests.core.world import World, deals
from tests.session.two_runs import keep, state


@pytest.fixture
def writer(store: Store) -> Iterator[Writer]:
    opened = store.writer()
    yield opened
    opened.close()


def looked(store: Store, a: str, b: str, **more: Any) -> Any:
    return diff(Stores([store.reader()]), a, b, **more)


def rollout(seed: int, amount: Any = 100) -> World:
    world = World(seed, start_ms=seed * 1000)
    deals(world, amount=amount)
    return world


def test_two_episodes_are_compared_by_address(store: Store, writer: Writer) -> None:
    made = writer.open_run(run("nightly"))
    keep(writer, made, "a", rollout(0).done)
    keep(writer, made, "b", rollout(1).done)
    keep(writer, made, "c", rollout(2, amount=101).done)
    writer.flush().result(5)
    same, different = looked(store, "nightly/a", "nightly/b"), looked(store, "latest/a", "nightly/c")
    assert (same.verdict, same.exit, same.roots) == ("same", 0, ())
    assert (different.verdict, different.exit, different.differences) == ("different", 1, 3)
    document = different.to_json()
    assert (document["a"], document["b"], document["verdict"]) == ("nightly/a", "nightly/c", "different")
    (root,) = document["roots"]
    assert (root["a"], root["b"], root["pointer"]) == ("nightly/a#1", "nightly/c#1", "body/amount")
    assert (root["values"], root["consequences"]) == ([100, 101], 2)
    assert document["explained"] == {"fresh-id": 7, "clock": 4, "validator": 2}
    assert document["unpaired"] == []


def test_runs_are_paired_by_task_seed_and_attempt_and_unpaired_ones_are_listed(store: Store, writer: Writer) -> None:
    for name in ("main", "today"):
        made = writer.open_run(run(name))
        for attempt in (1, 2):
            keep(writer, made, f"{name}-{attempt}", rollout(attempt).done, task="crm-7", seed=7, attempt=attempt)
        keep(writer, made, "loose", rollout(5).done)
    keep(writer, made, "new", rollout(6).done, task="crm-9", seed=2)
    writer.flush().result(5)
    found = looked(store, "main", "today")
    assert [(pair.a, pair.b) for pair in found.pairs] == [
        ("main/main-1", "today/today-1"), ("main/main-2", "today/today-2"), ("main/loose", "today/loose"),
    ]  # fmt: skip
    assert (found.verdict, found.exit, found.counts["same"]) == ("same", 0, 3)
    assert found.to_json()["unpaired"] == [
        {"side": "b", "episode": "today/new", "task": "crm-9", "seed": 2, "attempt": None}
    ]  # fmt: skip


def test_only_unpaired_episodes_are_undecided(store: Store, writer: Writer) -> None:
    for name in ("main", "today"):
        keep(writer, writer.open_run(run(name)), f"of-{name}", rollout(0).done)
    writer.flush().result(5)
    found = looked(store, "main", "today")
    assert (found.verdict, found.exit, len(found.only_a), len(found.only_b)) == ("undecided", 3, 1, 1)


def test_the_same_root_in_many_episodes_is_one(store: Store, writer: Writer) -> None:
    for name, amount in (("main", "1200.00"), ("today", 1200)):
        made = writer.open_run(run(name))
        for number in range(4):
            keep(writer, made, f"e{number}", rollout(number, amount=amount if number else 5).done)
    writer.flush().result(5)
    found = looked(store, "main", "today")
    (root,) = found.roots
    assert (root.episodes, root.differences, root.root.note) == (3, 9, "text became number")
    assert (root.a, root.b) == ("main/e1", "today/e1")


def test_an_incomplete_pair_makes_the_exit_code_3_even_beside_a_different_one(store: Store, writer: Writer) -> None:
    for name, amount in (("main", 1), ("today", 2)):
        made = writer.open_run(run(name))
        keep(writer, made, "done", rollout(0, amount=amount).done)
        keep(writer, made, "cut", rollout(0).done, seal=name == "main")
    writer.flush().result(5)
    found = looked(store, "main", "today")
    assert (found.verdict, found.counts["undecided"], found.exit) == ("different", 1, 3)
    assert looked(store, "main/cut", "today/cut").exit == 3
    assert looked(store, "main/done", "today/done").exit == 1


def test_the_reward_is_part_of_an_episode(store: Store, writer: Writer) -> None:
    made = writer.open_run(run("r"))
    for name, reward in (("a", 1.0), ("b", 0.0), ("c", None), ("d", 1.0)):
        keep(writer, made, name, rollout(0).done, reward=reward)
    writer.flush().result(5)
    found = looked(store, "r/a", "r/b")
    assert [(root.root.pointer, root.root.values) for root in found.roots] == [("episode/reward", (1.0, 0.0))]
    assert [looked(store, "r/a", f"r/{name}").verdict for name in "cd"] == ["same", "same"]
    rule = Rule(name="noisy", pointer="episode/reward", reason="the judge is a model")
    ruled = looked(store, "r/a", "r/b", rules=[rule])
    assert (ruled.verdict, ruled.explained) == ("same", {"rule:noisy": 1})


def test_states_of_two_episodes_are_read_from_the_store(store: Store, writer: Writer) -> None:
    made = writer.open_run(run("r"))
    for name, stage in (("a", "won"), ("b", "lead")):
        write = exchange("PATCH", "/deals/42", sent={"stage": "won"}, body={"ok": True}, at_ms=10)
        roots = [state(writer, {"deals": {"42": {"stage": now}}}) for now in ("lead", stage)]
        shots = [snapshot(0, roots[0], when="start", at_ms=1), snapshot(1, roots[1], after=write, at_ms=20)]
        keep(writer, made, name, [write], snapshots=shots)
    writer.flush().result(5)
    found = looked(store, "r/a", "r/b")
    found_state = found.pairs[0].comparison.state
    assert found_state is not None
    assert (found_state.after, found_state.table, found_state.key, found_state.pointer, found_state.values) == (
        (1, 1), "deals", "42", "/stage", ("won", "lead"),
    )  # fmt: skip
    assert found.to_json()["state"]["pointer"] == "/stage"


def test_rules_are_summed_over_the_pairs_and_expire(store: Store, writer: Writer) -> None:
    for name, amount in (("main", 1), ("today", 2)):
        made = writer.open_run(run(name))
        for number in range(2):
            keep(writer, made, f"e{number}", rollout(0, amount=amount).done)
    writer.flush().result(5)
    rules = [Rule(name="amounts", pointer="/**/amount", reason="a known change", until=date(2026, 1, 1)),
             Rule(name="idle", pointer="/nothing", reason="none")]  # fmt: skip
    active = looked(store, "main", "today", rules=rules, today=date(2025, 1, 1))
    assert (active.verdict, active.explained, active.unused_rules) == ("same", {"rule:amounts": 6}, ("idle",))
    expired = looked(store, "main", "today", rules=rules, today=date(2027, 1, 1))
    assert (expired.verdict, list(expired.expired_rules)) == ("different", ["amounts"])


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        ("r", "r/a", WrongUsage), ("r/a#1", "r/a", WrongUsage), ("r/nope", "r/a", UnknownAddress),
        ("nope", "r", UnknownAddress), ("r/unattributed", "r/a", WrongUsage),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_wrong_usage(
    store: Store, writer: Writer, a: str, b: str, error: type[Exception]
) -> None:
    made = writer.open_run(run("r"))
    keep(writer, made, "a", rollout(0).done)
    bucket = writer.open_episode(Episode(key=0, run_key=made.key, name="unattributed"))
    writer.put_exchange(bucket.key, exchange())
    writer.flush().result(5)
    with pytest.raises(error):
        looked(store, a, b)
