"""What came of sending a finding again outlives the check, and is believed no further than it goes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from replayproxy.detect.finding import Blame, Finding, Grade, Kind
from replayproxy.session.check import check
from replayproxy.session.check_document import Demands
from replayproxy.session.look import looking
from replayproxy.session.trials import keep as keep_trials
from replayproxy.session.trials import told_of, trial, with_trials
from replayproxy.storage import Store, open_store
from tests.detect.bench import Bench, script
from tests.detect.kept import keep
from tests.detect.test_finding import FINDING

SUSPECTED = replace(FINDING, grade=Grade.SUSPECTED, blame=Blame.UNDECIDED, blame_reason="not known")


def of(finding: Finding, *, k: int, confirmed: bool, wall: int = 1, **more: Any) -> dict[str, Any]:
    return trial(finding.id, "reproduce", wall=wall, k=k, n=5, told=f"{k}/5", confirmed=confirmed, **more)


def test_a_finding_is_read_back_from_its_document() -> None:
    told = json.loads(json.dumps(FINDING.to_json()))
    again = Finding.from_json(told)
    assert again.id == FINDING.id
    assert again.to_json() == told
    with pytest.raises((KeyError, ValueError)):
        Finding.from_json({**told, "kind": "no such kind"})


def test_a_trial_that_confirmed_raises_the_grade_and_its_words_are_told() -> None:
    (found,) = with_trials([SUSPECTED], [of(SUSPECTED, k=5, confirmed=True)])
    assert found.grade is Grade.CONFIRMED
    assert found.effect["last"] == "5/5"
    assert found.effect["confirmed"] == "5/5 by reproduce"
    assert found.blame is Blame.UNDECIDED  # nobody decided it
    assert found.id == SUSPECTED.id


def test_a_trial_may_have_decided_whose_fault_it_is() -> None:
    one = of(SUSPECTED, k=5, confirmed=True, blame=Blame.ENVIRONMENT, blame_reason="alone it is right")
    (found,) = with_trials([SUSPECTED], [one])
    assert (found.blame, found.blame_reason) == (Blame.ENVIRONMENT, "alone it is right")


def test_what_did_not_show_again_raises_nothing_and_lowers_nothing() -> None:
    failed = of(SUSPECTED, k=0, confirmed=False, wall=9)
    (found,) = with_trials([SUSPECTED], [failed])
    assert (found.grade, found.effect["last"]) == (Grade.SUSPECTED, "0/5")
    (found,) = with_trials([SUSPECTED], [failed, of(SUSPECTED, k=2, confirmed=True, wall=3)])
    assert (found.grade, found.effect["last"]) == (Grade.CONFIRMED, "0/5")
    (found,) = with_trials([FINDING], [failed, of(FINDING, k=0, confirmed=False)])
    assert (found.grade, found.effect["last"]) == (Grade.PROVEN, "0/5")


def test_a_trial_of_another_finding_changes_nothing() -> None:
    other = replace(SUSPECTED, pointer="/amount")
    assert with_trials([SUSPECTED], [of(other, k=5, confirmed=True)]) == [SUSPECTED]


def test_a_fault_that_only_a_trial_showed_is_a_finding_once() -> None:
    race = replace(FINDING, kind=Kind.RACE, grade=Grade.CONFIRMED)
    one = of(race, k=3, confirmed=True, found=race)
    found = with_trials([], [one, {**one, "wall": 2, "told": "4/5"}])
    assert [(f.id, f.kind, f.effect["last"]) for f in found] == [(race.id, Kind.RACE, "4/5")]
    assert with_trials([], [{**one, "finding_document": {"kind": "of a later version"}}]) == []


def test_what_a_trial_showed_of_the_exchanges_of_a_finding_is_that_finding() -> None:
    known = replace(SUSPECTED, kind=Kind.RACE)
    shown = replace(known, grade=Grade.CONFIRMED, sub="other", exchanges=known.exchanges[:1])
    (found,) = with_trials([known], [of(shown, k=3, confirmed=True, found=shown)])
    assert (found.id, found.grade, found.effect["last"]) == (known.id, Grade.CONFIRMED, "3/5")
    elsewhere = replace(shown, exchanges=tuple(replace(w, address="r/x#9") for w in shown.exchanges))
    assert len(with_trials([known], [of(elsewhere, k=3, confirmed=True, found=elsewhere)])) == 2


def test_a_saved_finding_is_shown_with_what_came_of_it_since() -> None:
    document = {"number": "F1", **SUSPECTED.to_json()}
    told = told_of(document, [of(SUSPECTED, k=5, confirmed=True), of(FINDING, k=1, confirmed=False, wall=0)])
    assert (told["grade"], told["effect"]["last"], told["number"]) == ("confirmed", "5/5", "F1")
    assert told_of(document, []) == document
    assert told_of({"id": "F9"}, []) == {"id": "F9"}


def test_the_next_check_reads_them_before_it_gives_its_verdicts(store: Store) -> None:
    bench = Bench(2)
    agent = script(("GET", "/deals"), ("GET", "/deals/D-1"))
    bench.in_turn(iter([{"name": "e0", "deployment": bench.deployment("i"), "agents": {"main": agent}}]))
    run = keep(store, bench)
    race = replace(FINDING, kind=Kind.RACE, grade=Grade.CONFIRMED, run="r", episode="e0")
    gone = replace(race, episode="an episode that was removed")
    documents = [of(race, k=3, confirmed=True, found=race), of(gone, k=3, confirmed=True, found=gone)]
    assert keep_trials(store, run.key, documents) == ""
    for _ in range(2):
        with looking([store.path]) as stores:
            (one,) = check(stores, ["r"], Demands(), now=5)
        told = one.to_json()
        assert [(f["kind"], f["grade"], f["effect"]["last"]) for f in told["findings"]] == [
            ("race", "confirmed", "3/5")
        ]
        assert told["verdicts"] == {"e0": "poisoned"}
    assert [one["wall"] for one in store.reader().trials(run)] == [1, 1]


def test_they_go_with_their_run(store: Store) -> None:
    bench = Bench(2)
    agent = script(("GET", "/deals"))
    bench.in_turn(iter([{"name": "e0", "deployment": bench.deployment("i"), "agents": {"main": agent}}]))
    run = keep(store, bench)
    keep_trials(store, run.key, [of(FINDING, k=1, confirmed=False)])
    writer = store.writer(exclusive=False)
    writer.remove(run.key)
    writer.flush().result(10)
    again = writer.open_run(replace(run, key=0))
    writer.close()
    assert store.reader().trials(again) == []


def test_a_store_of_an_earlier_version_has_none_until_something_is_written(store: Store) -> None:
    path = store.path
    with store.env.writing() as txn:
        txn.drop(store.env.dbs["trials"], delete=True)
    store.close()
    with open_store(path) as old:
        writer = old.writer()
        writer.close()
        assert "trials" in old.env.dbs
