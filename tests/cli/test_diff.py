from __future__ import annotations

from pathlib import Path

import pytest

from replayproxy.storage import open_store
from replayproxy.testing import exchange, run, snapshot
from tests.cli.conftest import EVIL, Call
from tests.core.world import World, deals
from tests.session.two_runs import keep, state


def rollout(seed: int, amount: object = "1200.00") -> World:
    world = World(seed, start_ms=seed * 1000)
    deals(world, amount=amount)
    return world


@pytest.fixture
def two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`main` and `today`: crm-0 became a number in its amount, crm-1 is the same, crm-2 was never sealed in `today`."""
    path = tmp_path / "store"
    monkeypatch.setenv("REPLAYPROXY_STORE", str(path))
    monkeypatch.chdir(tmp_path)
    with open_store(path, create=True) as store:
        writer = store.writer()
        for seed, name in enumerate(("main", "today")):
            made = writer.open_run(run(name))
            keep(writer, made, f"{name}-0", rollout(seed, 1200 if seed else "1200.00").done, task="crm-0", seed=7)
            keep(writer, made, f"{name}-1", rollout(10 + seed).done, task="crm-1", seed=7)
            keep(writer, made, f"{name}-2", rollout(0).done, task="crm-2", seed=7, seal=not seed)
        keep(writer, made, "extra", rollout(3).done, task="crm-9", seed=2)
        write = exchange("PATCH", "/deals/42", sent={"stage": "won"}, body={"ok": True}, at_ms=10)
        for name, stage in (("state-a", "won"), ("state-b", "lead")):
            shot = snapshot(0, state(writer, {"deals": {"42": {"stage": stage}}}), after=write, at_ms=20)
            keep(writer, made, name, [write], snapshots=[shot])
        for name, text in (("evil-a", "x"), ("evil-b", EVIL)):
            keep(writer, made, name, [exchange("GET", f"/{EVIL}", body={"text": text})])
        writer.close()
    return path


def test_the_same_is_exit_0_with_what_was_explained_counted(call: Call, two_runs: Path) -> None:
    told = call("diff", "main/main-1", "today/today-1")
    assert told.code == 0
    assert told.text.splitlines() == [
        "main/main-1..today/today-1: SAME   4 exchange pairs: 4 same, 0 different",
        "explained, not counted   fresh id 7 · clock 4 · validator 2 · headers never compared 1",
        "next     replayproxy check today",
    ]


def test_a_difference_is_exit_1_and_names_exchange_pointer_and_values(call: Call, two_runs: Path) -> None:
    told = call("diff", "main/main-0", "today/today-0")
    assert told.code == 1
    assert told.text.splitlines() == [
        "main/main-0..today/today-0: DIFFERENT   4 exchange pairs: 1 same, 3 different",
        "ROOT 1  explains 3 of 3 differences",
        "  POST /deals   lane main   A main/main-0/1   B today/today-0/1",
        '  /amount   "1200.00" | 1200   text became number',
        "  folded under it: 1 x GET /deals/{id}, 1 x GET /deals",
        "explained, not counted   fresh id 7 · clock 4 · validator 2 · headers never compared 1",
        "next     replayproxy show today/today-0/1",
    ]


def test_what_cannot_be_judged_is_exit_3_and_says_why(call: Call, two_runs: Path) -> None:
    told = call("diff", "main/main-2", "today/today-2")
    assert told.code == 3
    assert "UNDECIDED" in told.text
    assert "cannot tell   B (today/today-2) is incomplete" in told.text


def test_runs_are_told_by_their_pairs(call: Call, two_runs: Path) -> None:
    told = call("diff", "main", "today")
    first, *rest = told.text.splitlines()
    assert first.startswith("main..today: DIFFERENT   3 pairs: 1 same, 1 different, 1 undecided   only in B: crm-9 ")
    assert told.code == 3, "a pair that cannot be judged outweighs one that differs"
    assert "ROOT 1  explains 3 of 3 differences" in rest
    assert rest[-1] == "next     replayproxy show today/today-0/1   replayproxy diff main/main-0 today/today-0"


def test_the_json_document_is_complete(call: Call, two_runs: Path) -> None:
    told = call("diff", "main/main-0", "today/today-0", "--json")
    assert told.code == 1
    document = told.json
    assert {"verdict", "roots", "explained", "unpaired"} <= document.keys()
    (root,) = document["roots"]
    assert {name: root[name] for name in ("a", "b", "pointer", "values", "consequences")} == {
        "a": "main/main-0#1", "b": "today/today-0#1", "pointer": "body/amount", "values": ["1200.00", 1200],
        "consequences": 2,
    }  # fmt: skip
    both = call("diff", "main", "today", "--json").json
    assert both["counts"] == {"same": 1, "different": 1, "undecided": 1}
    assert [pair["verdict"] for pair in both["pairs"]] == ["different", "same", "undecided"]
    assert [episode["episode"] for episode in both["unpaired"]] == [
        "today/extra", "today/state-a", "today/state-b", "today/evil-a", "today/evil-b",
    ]  # fmt: skip


def test_verbose_shows_examples_of_what_was_explained(call: Call, two_runs: Path) -> None:
    told = call("diff", "main/main-1", "today/today-1", "-v")
    assert "  clock      main/main-1/1  /created_at  " in told.text
    assert "  never compared: x-request-id 1" in told.text


def test_the_first_differing_row_is_named(call: Call, two_runs: Path) -> None:
    told = call("diff", "today/state-a", "today/state-b")
    assert told.code == 1
    assert 'state    first differing snapshot: after /1 (s0 | s0), app: deals/42 /stage  "won" | "lead"' in told.text


def test_nothing_that_was_recorded_reaches_the_terminal_as_it_is(call: Call, two_runs: Path) -> None:
    told = call("diff", "today/evil-a", "today/evil-b")
    assert told.code == 1
    assert "\x1b" not in told.text
    assert "\x07" not in told.text


def test_rules_come_from_the_config_and_are_shown_with_their_reason(call: Call, two_runs: Path, tmp_path: Path) -> None:
    (tmp_path / "replayproxy.toml").write_text(
        '[[rule]]\nname = "amounts"\npointer = "/**/amount"\naction = "ignore"\nreason = "known"\nuntil = 2999-03-01\n'
        '[[rule]]\nname = "idle"\nat = "GET /nothing"\npointer = "/x"\naction = "mask"\nreason = "none"\n'
    )
    told = call("diff", "main/main-0", "today/today-0")
    assert told.code == 0
    assert 'rule "amounts" 3 (known, until 2999-03-01)' in told.text
    assert "unused rules 1 (idle)" in told.text
    assert told.err.startswith("config   ")


def test_a_rule_without_a_reason_is_wrong_usage(call: Call, two_runs: Path, tmp_path: Path) -> None:
    config = tmp_path / "other.toml"
    config.write_text('[[rule]]\nname = "amounts"\npointer = "/amount"\naction = "ignore"\n')
    told = call("diff", "main/main-0", "today/today-0", "--config", str(config))
    assert (told.code, told.out) == (2, b"")
    assert "gives no reason" in told.err


@pytest.mark.parametrize("addresses", [("main", "today/today-0"), ("main/nope", "today"), ("gone", "today"), ("main",)])
def test_wrong_addresses_are_one_line_and_exit_2(call: Call, two_runs: Path, addresses: tuple[str, ...]) -> None:
    told = call("diff", *addresses)
    assert (told.code, told.out) == (2, b"")
    assert len(told.err.splitlines()) == 1
