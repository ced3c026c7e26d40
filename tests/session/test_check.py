from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from replayproxy.core.values import UNATTRIBUTED, Episode
from replayproxy.detect.finding import Grade, Kind
from replayproxy.errors import UnknownAddress, WrongUsage
from replayproxy.session.check import Checked, check, fail_on, required
from replayproxy.session.check_document import Demands, merged
from replayproxy.session.look import looking
from replayproxy.storage import Store
from replayproxy.testing import exchange
from tests.detect.bench import Bench, script
from tests.detect.kept import keep

LOOK = script(("GET", "/deals"), ("GET", "/deals/D-1"))
PATCH = script(("GET", "/deals/D-1"), ("PATCH", "/deals/D-1", {"stage": "won"}), ("GET", "/deals/D-1"))


def bench(*agents, faults: tuple[str, ...] = (), seed: int = 2) -> Bench:
    made = Bench(seed)
    deployment = made.deployment("i", *faults)
    made.in_turn(
        iter([{"name": f"e{n}", "deployment": deployment, "agents": {"main": agent}} for n, agent in enumerate(agents)])
    )
    return made


def judged(store: Store, *addresses: str, demands: Demands | None = None) -> list[Checked]:
    with looking([store.path]) as stores:
        return check(stores, addresses, demands or Demands(), now=5)


def test_a_clean_run_is_0_with_a_verdict_and_coverage_for_each_episode(store: Store) -> None:
    keep(store, bench(LOOK, LOOK, PATCH))
    (one,) = judged(store, "r")
    told = one.to_json()
    assert one.exit == 0
    assert told["findings"] == []
    assert told["verdicts"] == {"e0": "clean", "e1": "clean", "e2": "clean"}
    assert told["coverage"]["e0"]["checked"] == ["stale-read", "state-bleed", "dirty-reset", "nondeterminism"]
    assert set(told["coverage"]["e0"]["not_checked"]) == {"race", "lost-update"}
    assert told["failure_rate"] == 0
    assert told["interval"][0] == 0
    assert 0.5 < told["interval"][1] < 0.6


def test_a_proven_finding_is_1_and_is_the_record_of_the_interface(store: Store) -> None:
    keep(store, bench(PATCH, faults=("stale",)))
    (one,) = judged(store, "r")
    (finding,) = one.to_json()["findings"]
    assert one.exit == 1
    assert finding["id"].startswith("stale-read-")
    assert len(finding["id"]) == len("stale-read-") + 12
    assert {name: finding[name] for name in ("kind", "sub", "grade", "blame", "run", "episode", "lane", "pointer")} == {
        "kind": "stale-read", "sub": "RYW", "grade": "proven", "blame": "environment", "run": "r", "episode": "e0",
        "lane": "main", "pointer": "/stage",
    }  # fmt: skip
    assert finding["values"] == ["won", "lead"]
    assert [(e["role"], e["address"]) for e in finding["exchanges"]] == [("write", "r/e0#2"), ("read", "r/e0#3")]
    assert finding["snapshots"] == ["r/e0/s1", "r/e0/s2"]
    assert finding["assumptions"]
    assert finding["ruled_out"]
    assert finding["reproduce"].startswith(f"replayproxy reproduce {finding['id']} --env app=URL")


def test_a_write_that_todays_config_declares_to_act_later_was_not_missed(store: Store) -> None:
    keep(store, bench(PATCH, faults=("stale",)))
    with looking([store.path]) as stores:
        (one,) = check(stores, ["r"], Demands(), now=5, eventual={"app": {"PATCH /deals/*": 60.0}})
    assert one.to_json()["findings"] == []
    assert one.exit == 0


def test_a_stale_read_says_how_far_its_evidence_reaches(store: Store) -> None:
    keep(store, bench(PATCH, faults=("stale",)))
    (finding,) = judged(store, "r")[0].to_json()["findings"]
    scope = finding["scope"]
    assert 0 < scope["cells_mapped"][0] <= scope["cells_mapped"][1]
    assert (scope["write_coverage"], scope["lanes"]) == (1.0, 1)
    assert {"write_s", "read_s", "before_s", "overwritten_s"} <= set(finding["times"])
    assert finding["effect"]["newer_versions"] == 1
    assert finding["effect"]["out_of_date_s"] == pytest.approx(
        finding["times"]["read_s"][0] - finding["times"]["overwritten_s"], abs=1e-5
    )
    assert any("write coverage 100%" in line for line in finding["ruled_out"])


def test_the_document_is_saved_so_that_findings_and_verdicts_can_be_looked_up(store: Store) -> None:
    run = keep(store, bench(PATCH, faults=("stale",)))
    (one,) = judged(store, "r")
    reader = store.reader()
    saved = reader.check(reader.run("r"))
    assert saved is not None
    assert saved["verdicts"] == {"e0": "poisoned"}
    assert saved["checked_wall"] == 5
    found = reader.resolve("F1").finding
    assert found is not None
    assert found["id"] == one.to_json()["findings"][0]["id"]
    assert reader.resolve(found["id"]).finding == found
    assert run.name == "r"


def test_the_same_evidence_gives_the_same_ids_again(store: Store) -> None:
    keep(store, bench(PATCH, PATCH, faults=("stale",)))
    first, second = (judged(store, "r")[0].to_json()["findings"] for _ in range(2))
    assert first == second
    assert len({finding["id"] for finding in first}) == 2


def test_an_episode_alone_is_judged_with_the_others_as_evidence(store: Store) -> None:
    keep(store, bench(LOOK, LOOK, LOOK, PATCH, LOOK, faults=("noop",)))
    (one,) = judged(store, "r/e4")
    told = one.to_json()
    assert told["verdicts"] == {"e4": "poisoned"}
    assert [finding["kind"] for finding in told["findings"]] == ["state-bleed"]
    assert told["failures"] == {"poisoned": 1, "lost": 0, "of": 1}
    (other,) = judged(store, "r/e0")
    assert other.exit == 0
    assert set(store.reader().check(store.reader().run("r"))["verdicts"]) == {"e0", "e1", "e2", "e3", "e4"}


def test_an_incomplete_episode_is_3_whatever_else_was_found(store: Store) -> None:
    keep(store, bench(PATCH, LOOK, faults=("stale",)), incomplete=("e1",))
    (one,) = judged(store, "r")
    told = one.to_json()
    assert one.exit == 3
    assert told["incomplete"] == ["e1"]
    assert told["verdicts"] == {"e0": "poisoned", "e1": "unknown"}
    assert told["coverage"]["e1"]["checked"] == []
    assert judged(store, "r/e0")[0].exit == 1


def test_a_run_in_which_nothing_was_recorded_is_3(store: Store) -> None:
    keep(store, Bench(1))
    (one,) = judged(store, "r")
    assert one.exit == 3
    assert one.to_json()["why"] == ["no sealed episode with an exchange"]
    assert one.to_json()["failure_rate"] is None


@pytest.mark.parametrize("mark", ["is_reset", "is_probe", None])
def test_a_run_with_traffic_of_no_episode_does_not_pass_unless_it_is_resets_and_probes(
    store: Store, mark: str | None
) -> None:
    run = keep(store, bench(LOOK, LOOK))
    writer = store.writer()
    bucket = writer.open_episode(Episode(key=0, run_key=run.key, name=UNATTRIBUTED, opened=0, opened_wall=0))
    writer.put_exchange(bucket.key, exchange("GET", "/deals", **({mark: True} if mark else {})))
    writer.close()
    (one,) = judged(store, "r")
    assert (one.exit, one.to_json()["unattributed"]) == ((0, 0) if mark else (3, 1))
    assert one.to_json()["why"] == ([] if mark else ["1 exchange is unattributed"])
    assert judged(store, "r/e0")[0].exit == 0


def test_what_is_found_weighs_more_than_traffic_of_no_episode(store: Store) -> None:
    run = keep(store, bench(PATCH, faults=("stale",)))
    writer = store.writer()
    bucket = writer.open_episode(Episode(key=0, run_key=run.key, name=UNATTRIBUTED, opened=0, opened_wall=0))
    writer.put_exchange(bucket.key, exchange("GET", "/other"))
    writer.close()
    assert judged(store, "r")[0].exit == 1


def test_what_no_check_could_look_into_is_3_and_unknown(store: Store) -> None:
    made = Bench(1, snapshots=False)
    made.episode("e0", made.deployment(), {"main": LOOK})
    keep(store, made)
    (one,) = judged(store, "r")
    assert one.to_json()["verdicts"] == {"e0": "unknown"}
    assert one.exit == 3


def test_fail_on_decides_which_grades_are_1(store: Store) -> None:
    keep(store, bench(PATCH, faults=("stale",)))
    lenient = Demands(fail_on=fail_on("none"), max_failure_rate=1.0)
    assert judged(store, "r", demands=lenient)[0].exit == 0
    assert judged(store, "r", demands=replace(lenient, fail_on=fail_on("proven")))[0].exit == 1
    assert judged(store, "r", demands=replace(lenient, fail_on=fail_on("suspected")))[0].exit == 0


def test_a_failure_rate_above_the_budget_is_1_without_a_failing_finding(store: Store) -> None:
    keep(store, bench(PATCH, LOOK, faults=("stale",)))
    rate = Demands(fail_on=frozenset(), max_failure_rate=0.4)
    (one,) = judged(store, "r", demands=rate)
    assert one.exit == 1
    assert one.to_json()["failure_rate"] == 0.5
    assert judged(store, "r", demands=replace(rate, max_failure_rate=0.5))[0].exit == 0


def test_a_kind_that_is_required_and_could_not_be_looked_for_is_3(store: Store) -> None:
    keep(store, bench(LOOK, LOOK))
    assert judged(store, "r", demands=Demands(require=required("stale-read")))[0].exit == 0
    (one,) = judged(store, "r", demands=Demands(require=required("stale-read,dirty-reset")))
    assert one.exit == 3
    assert one.to_json()["why"] == ["dirty-reset was not looked for in 2 of 2 episodes"]
    assert one.to_json()["coverage"]["e0"]["not_checked"]["dirty-reset"] == "no reference"


def test_a_named_reference_stands_for_the_missing_majority(store: Store) -> None:
    keep(store, bench(LOOK), "good")
    keep(store, bench(PATCH, LOOK, faults=("noop",)), "bad")
    assert judged(store, "bad")[0].exit == 0
    for reference in ("good", "good/e0", "good/e0/s0"):
        (one,) = judged(store, "bad", demands=Demands(reference=reference))
        (finding,) = one.to_json()["findings"]
        assert (finding["kind"], finding["episode"]) == ("state-bleed", "e1"), reference
    assert judged(store, "good", demands=Demands(reference="bad/e1"))[0].exit == 1


def test_a_reference_that_holds_no_state_is_refused(store: Store) -> None:
    made = Bench(1, snapshots=False)
    made.episode("e0", made.deployment(), {"main": LOOK})
    keep(store, made)
    for reference in ("r", "r/e0"):
        with pytest.raises(UnknownAddress, match="--reference"):
            judged(store, "r", demands=Demands(reference=reference))
    with pytest.raises(WrongUsage, match="has no state"):
        judged(store, "r", demands=Demands(reference="r/e0#1"))


def test_several_runs_give_one_document_with_addresses(store: Store) -> None:
    keep(store, bench(LOOK), "one")
    keep(store, bench(PATCH, faults=("stale",)), "two")
    told = merged([part.to_json() for part in judged(store, "one", "two/e0", "two")])
    assert told["verdicts"] == {"one/e0": "clean", "two/e0": "poisoned"}
    assert [run["run"] for run in told["runs"]] == ["one", "two"]
    assert told["failure_rate"] == 0.5
    assert told["exit"] == 1


def test_the_document_tells_since_when_and_what_it_did_to_the_rewards(store: Store) -> None:
    made = Bench(2)
    deployment = made.deployment("i", "noop")
    agents = [LOOK, LOOK, LOOK, PATCH, LOOK, LOOK]
    made.in_turn(
        iter([
            {"name": f"e{n}", "deployment": deployment, "agents": {"main": agent}, "reward": float(n > 3)}
            for n, agent in enumerate(agents)
        ])
    )  # fmt: skip
    keep(store, made)
    (one,) = judged(store, "r")
    told = one.to_json()
    assert told["began"]["episode"] == "e4"
    assert told["worst"] == {"number": "F1", "kind": "state-bleed", "exchange": "r/e3#2", "episodes": 2}
    (reward,) = told["rewards"]
    assert (reward["task"], reward["without"], reward["poisoned"], reward["of"]) == ("t", 0.0, 2, 6)
    assert reward["with"] == pytest.approx(1 / 3)


def test_only_runs_and_episodes_can_be_judged(store: Store) -> None:
    keep(store, bench(LOOK))
    for address in ("r/e0#1", "r/e0/s0"):
        with pytest.raises(WrongUsage, match="no run and no episode"):
            judged(store, address)
    with pytest.raises(UnknownAddress):
        judged(store, "nope")


def test_words_that_are_no_grade_and_no_kind_are_refused() -> None:
    assert fail_on("proven, suspected") == {Grade.PROVEN, Grade.SUSPECTED}
    assert required("race") == (Kind.RACE,)
    for wrong in ("sure", "none,proven", ""):
        with pytest.raises(WrongUsage, match="is no grade"):
            fail_on(wrong)
    with pytest.raises(WrongUsage, match="is no kind"):
        required("stale")


def test_a_store_that_cannot_be_written_is_judged_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keep(store, bench(LOOK))

    def refused(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(Store, "writer", refused)
    (one,) = judged(store, "r")
    assert one.exit == 0
    assert one.saved == "read-only"
