"""Whole runs: clean ones stay silent, each seeded fault is found where it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replayproxy.core.values import Outcome
from replayproxy.detect.finding import Grade, Kind
from replayproxy.detect.verdicts import Word
from replayproxy.testing import exchange
from tests.detect.bench import Bench, script, worker
from tests.detect.hand import Hand


def shown(judgement):
    return [(f.kind.value, f.sub, f.grade.value, f.episode, f.title) for f in judgement.findings]


def rollouts(bench: Bench, deployment, names, *, tasks: int = 3, agents=None) -> None:
    plans = [
        {
            "name": name, "deployment": deployment, "agents": agents or {"main": worker}, "task": f"t{n % tasks}",
            "seed": 1,
        }
        for n, name in enumerate(names)
    ]  # fmt: skip
    bench.in_turn(iter(plans))


def test_fifty_clean_episodes_two_at_a_time_give_no_finding() -> None:
    bench = Bench(1)
    for name in "ab":
        rollouts(bench, bench.deployment(name), [f"{name}{n}" for n in range(25)])
    judgement = bench.judge()
    assert len(judgement.words) == 50
    assert shown(judgement) == []
    assert set(judgement.words.values()) == {Word.CLEAN}
    first = judgement.coverage["a0"]
    assert set(first.checked) == {"stale-read", "state-bleed", "dirty-reset", "nondeterminism"}


@pytest.mark.parametrize("seed", range(4))
def test_clean_episodes_with_several_lanes_that_overlap_give_no_finding(seed: int) -> None:
    bench = Bench(seed, mode="hold" if seed % 2 else "free")
    lanes = {f"tool-{n}": worker for n in range(3)}
    rollouts(bench, bench.deployment(), [f"e{n}" for n in range(6)], tasks=2, agents=lanes)
    judgement = bench.judge()
    assert shown(judgement) == []


def reader_and_writer():
    """Reads and writes one cell over and over, beside others that do the same."""
    for n in range(8):
        yield "PATCH", "/deals/D-1", {"stage": ("won", "lost", "lead")[n % 3]}
        yield "GET", "/deals/D-1", None
        yield "GET", "/deals", None


@pytest.mark.parametrize("seed", range(4))
def test_contended_cells_of_a_linearizable_environment_are_never_stale(seed: int) -> None:
    bench = Bench(seed, mode="hold" if seed % 2 else "free", snapshots=seed != 3)
    lanes = {f"tool-{n}": reader_and_writer for n in range(4)}
    rollouts(bench, bench.deployment(), ["e0", "e1"], agents=lanes)
    assert shown(bench.judge()) == []


def beside(n: int):
    def agent():
        yield "GET", "/deals", None
        _, made = yield "POST", "/deals", {"stage": "lead", "owner": f"own-{n}", "amount": n}
        yield "PATCH", f"/deals/{made['id']}", {"amount": 700}
        yield "GET", f"/deals/{made['id']}", None

    return agent


def test_parallel_episodes_on_one_instance_are_never_blamed_on_the_environment() -> None:
    bench = Bench(3)
    shared = bench.deployment()
    shared.reset("t", 1)
    for n in range(6):
        bench.episode(f"e{n}", shared, {"main": beside(n)}, reset=False)
    judgement = bench.judge()
    assert {f.grade for f in judgement.findings} <= {Grade.SUSPECTED}
    assert {f.kind for f in judgement.findings} <= {Kind.STATE_BLEED}
    assert all("other episodes wrote" in c.not_checked["nondeterminism"] for c in judgement.coverage.values())


def test_autoincrement_ids_that_go_on_across_resets_are_no_finding() -> None:
    bench = Bench(5)
    rollouts(bench, bench.deployment(autoincrement=True), [f"e{n}" for n in range(8)], tasks=1)
    assert shown(bench.judge()) == []


PATCHER = script(
    ("GET", "/deals/D-1"),
    ("PATCH", "/deals/D-1", {"stage": "won"}),
    ("GET", "/deals/D-1"),
    ("GET", "/tickets/T-1"),
)


def test_a_stale_cache_is_proven_with_write_read_values_and_time() -> None:
    bench = Bench(2)
    rollouts(bench, bench.deployment("i", "stale"), ["e0"], agents={"main": PATCHER})
    judgement = bench.judge()
    (finding,) = judgement.findings
    assert (finding.kind, finding.sub, finding.grade) == (Kind.STALE_READ, "RYW", Grade.PROVEN)
    assert finding.pointer == "/stage"
    assert finding.values == ("won", "lead")
    assert [(w.role, w.address) for w in finding.exchanges] == [("write", "r/e0#2"), ("read", "r/e0#3")]
    assert finding.effect["out_of_date_s"] > 0
    assert finding.snapshots == ("r/e0/s1", "r/e0/s2")
    assert judgement.words["e0"] is Word.POISONED
    assert "stale-read" in judgement.coverage["e0"].checked


def test_without_snapshots_a_missed_own_write_is_suspected_and_says_why() -> None:
    bench = Bench(2, snapshots=False)
    rollouts(bench, bench.deployment("i", "stale"), ["e0"], agents={"main": PATCHER})
    judgement = bench.judge()
    (finding,) = judgement.findings
    assert (finding.kind, finding.grade) == (Kind.STALE_READ, Grade.SUSPECTED)
    assert "no snapshots" in finding.cannot_say
    assert judgement.words["e0"] is Word.SUSPECT


def test_a_hidden_writer_that_puts_the_old_value_back_is_never_a_stale_read() -> None:
    bench = Bench(2)
    deployment = bench.deployment()

    def agent():
        yield "GET", "/deals/D-1", None
        yield "PATCH", "/deals/D-1", {"stage": "won"}
        deployment.tables["deals"]["D-1"]["stage"] = "lead"  # a background job
        yield "GET", "/deals/D-1", None

    rollouts(bench, deployment, ["e0"], agents={"main": agent})
    assert not [f for f in bench.judge().findings if f.grade is Grade.PROVEN]


LOOKER = script(("GET", "/deals"), ("GET", "/tickets"))


def maker():
    yield "GET", "/deals", None
    _, made = yield "POST", "/deals", {"stage": "lead", "owner": "grace", "amount": 12500}
    yield "PATCH", f"/deals/{made['id']}", {"amount": 12900}
    yield "GET", "/deals", None


def leak(bench: Bench, deployment, last) -> None:
    agents = [LOOKER, LOOKER, LOOKER, maker, last]
    bench.in_turn(
        iter([
            {
                "name": name, "deployment": deployment, "agents": {"main": agent},
                "task": "make" if agent is maker else "look",
            }
            for name, agent in zip(["b1", "b2", "b3", "a", "b4"], agents, strict=True)
        ])
    )  # fmt: skip


def test_a_row_that_a_reset_forgot_falls_on_its_reader_and_names_its_maker() -> None:
    bench = Bench(2)
    leak(bench, bench.deployment("i", "leaky"), LOOKER)
    judgement = bench.judge()
    (finding,) = judgement.findings
    assert (finding.kind, finding.grade, finding.episode) == (Kind.STATE_BLEED, Grade.PROVEN, "b4")
    assert [(w.role, w.address) for w in finding.exchanges] == [
        ("write", "r/a#2"), ("write", "r/a#3"), ("read", "r/b4#1"),
    ]  # fmt: skip
    assert finding.pointer == "/items/3/id"
    assert finding.effect["from"] == "a"
    assert judgement.words == {
        "b1": Word.CLEAN, "b2": Word.CLEAN, "b3": Word.CLEAN, "a": Word.CLEAN, "b4": Word.POISONED,
    }  # fmt: skip


def test_a_dirty_start_that_nobody_read_is_a_dirty_reset() -> None:
    bench = Bench(2)
    leak(bench, bench.deployment("i", "leaky"), script(("GET", "/tickets")))
    (finding,) = bench.judge().findings
    assert (finding.kind, finding.sub, finding.grade) == (Kind.DIRTY_RESET, "residue", Grade.PROVEN)
    assert finding.episode == "b4"
    assert finding.exchanges[0].address == "r/a#2"
    assert finding.pointer.startswith("/deals/")


def test_a_changed_cell_that_a_reset_left_is_found_although_it_says_little() -> None:
    bench = Bench(2)
    deployment = bench.deployment("i", "noop")
    agents = [LOOKER, LOOKER, LOOKER, script(("PATCH", "/deals/D-1", {"stage": "won"})), LOOKER]
    bench.in_turn(
        iter([
            {"name": f"e{n}", "deployment": deployment, "agents": {"main": agent}} for n, agent in enumerate(agents)
        ])
    )  # fmt: skip
    judgement = bench.judge()
    (finding,) = judgement.findings
    assert (finding.kind, finding.episode, finding.grade) == (Kind.STATE_BLEED, "e4", Grade.PROVEN)
    assert finding.pointer.endswith("/stage")
    assert finding.values == ("lead", "won")


def test_suspicion_spreads_from_a_dirty_start_until_a_start_is_clean_again() -> None:
    bench = Bench(2)
    deployment = bench.deployment("i", "leaky")
    names = ["b1", "b2", "b3", "a", "b4", "other", "b5"]
    agents = [LOOKER, LOOKER, LOOKER, maker, LOOKER, script(("GET", "/tickets")), LOOKER]

    def plans():
        for name, agent in zip(names, agents, strict=True):
            if name == "b5":
                deployment.faults = frozenset()
            task = {"a": "make", "other": "once"}.get(name, "look")
            yield {"name": name, "deployment": deployment, "agents": {"main": agent}, "task": task}

    bench.in_turn(plans())
    judgement = bench.judge()
    assert judgement.caught == {"other": "b4"}
    assert judgement.words["other"] is Word.SUSPECT
    assert judgement.words["b5"] is Word.CLEAN
    assert judgement.coverage["other"].not_checked["dirty-reset"] == "no reference"


SCORER = script(("GET", "/deals/D-1"), ("GET", "/deals/D-1/score"), ("PATCH", "/deals/D-1", {"stage": "won"}))


def test_answers_that_differ_after_equal_starts_and_requests_are_nondeterminism() -> None:
    bench = Bench(2)
    rollouts(bench, bench.deployment("i", "random"), ["e0", "e1", "e2"], tasks=1, agents={"main": SCORER})
    judgement = bench.judge()
    assert {f.kind for f in judgement.findings} == {Kind.NONDETERMINISM}
    assert [f.episode for f in judgement.findings] == ["e1", "e2"]
    first = judgement.findings[0]
    assert first.grade is Grade.PROVEN
    assert first.pointer == "body/score"
    assert [w.address for w in first.exchanges] == ["r/e0#2", "r/e1#2"]


def test_agents_that_ask_differently_are_not_compared_beyond_that() -> None:
    bench = Bench(2)
    deployment = bench.deployment("i", "random")
    for n, first in enumerate(["/deals/D-1", "/deals/D-2"]):
        agent = script(("GET", first), ("GET", "/deals/D-1/score"))
        rollouts(bench, deployment, [f"e{n}"], tasks=1, agents={"main": agent})
        bench.run()
    assert shown(bench.judge()) == []


def test_without_start_snapshots_nondeterminism_is_not_claimed() -> None:
    bench = Bench(2, snapshots=False)
    rollouts(bench, bench.deployment("i", "random"), ["e0", "e1"], tasks=1, agents={"main": SCORER})
    judgement = bench.judge()
    assert shown(judgement) == []
    assert "no start snapshot" in judgement.coverage["e0"].not_checked["nondeterminism"]


def test_an_episode_in_which_nothing_was_recorded_is_never_clean() -> None:
    hand = Hand()
    for number in range(3):
        asked = [exchange("GET", "/d/1", body={"a": 1}, at_ms=number * 1000 + 10)] if number else []
        state = {"d": {"1": {"a": 1}}}
        hand.episode(f"e{number}", asked, [(number * 1000, state)], opened_ms=number * 1000, task="t", seed=1)
    judgement = hand.judge()
    assert judgement.words == {"e0": "unknown", "e1": "clean", "e2": "clean"}
    assert judgement.coverage["e0"].checked == ()
    assert judgement.coverage["e0"].not_checked["dirty-reset"] == "no exchanges"


def test_refusals_are_no_equal_answers() -> None:
    hand = Hand()
    for number in range(2):
        refused = exchange("GET", "/x", status=None, outcome=Outcome.REFUSED, at_ms=number * 1000 + 10)
        hand.episode(f"e{number}", [refused], [(number * 1000, {})], opened_ms=number * 1000, task="t", seed=1)
    judgement = hand.judge()
    assert judgement.words == {"e0": "unknown", "e1": "unknown"}
    assert "nondeterminism" in judgement.coverage["e1"].not_checked


def test_with_other_findings_verdicts_spread_and_rate_are_said_anew() -> None:
    bench = Bench(2)
    rollouts(bench, bench.deployment("i", "leaky"), [f"e{n}" for n in range(8)], tasks=2)
    judgement = bench.judge()
    assert Word.POISONED in judgement.words.values()
    assert judgement.with_findings(judgement.findings) == judgement
    silent = judgement.with_findings(())
    assert set(silent.words.values()) == {Word.CLEAN}
    assert silent.caught == {}
    assert (silent.rate.poisoned, silent.rate.episodes) == (0, judgement.rate.episodes)
    doubtful = judgement.with_findings([replace(f, grade=Grade.SUSPECTED) for f in judgement.findings])
    assert {doubtful.words[f.episode] for f in judgement.findings} == {Word.SUSPECT}
    assert doubtful.caught == {}
