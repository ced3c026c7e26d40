"""Who last wrote a value, across the episodes of an instance."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from replayproxy.core.values import UNATTRIBUTED, Exchange
from replayproxy.errors import UnknownAddress, WrongUsage
from replayproxy.session.blame import BEFORE, MEANWHILE, Blamed, blame
from replayproxy.session.look import looking
from replayproxy.storage import Store
from replayproxy.testing import episode, exchange
from tests.detect.bench import Bench, script
from tests.detect.hand import Hand
from tests.detect.kept import keep

LOOK = script(("GET", "/deals"), ("GET", "/deals/D-1"))
PATCH = script(("GET", "/deals/D-1"), ("PATCH", "/deals/D-1", {"stage": "won"}), ("GET", "/deals/D-1"))
TWICE = script(
    ("PATCH", "/deals/D-1", {"stage": "won"}), ("PATCH", "/deals/D-1", {"stage": "lost"}),
    ("PATCH", "/deals/D-1", {"owner": "eve"}), ("GET", "/deals/D-1"),
)  # fmt: skip
CREATE = script(("POST", "/deals", {"stage": "lead", "owner": "grace", "amount": 500}), ("GET", "/deals"))


def bench(*agents, faults: tuple[str, ...] = (), snapshots: bool = True) -> Bench:
    made = Bench(2, snapshots=snapshots)
    deployment = made.deployment("i", *faults)
    made.in_turn(
        iter([{"name": f"e{n}", "deployment": deployment, "agents": {"main": agent}} for n, agent in enumerate(agents)])
    )
    return made


def asked(store: Store, address: str, pointer: str) -> Blamed:
    with looking([store.path]) as stores:
        return blame(stores.find(address), pointer)


def steps(told: Blamed) -> list[tuple[str, str, bool | None]]:
    return [(step.what, step.address, step.matches) for step in told.steps]


def test_the_last_of_several_own_writes_is_named_and_the_earlier_ones_follow(store: Store) -> None:
    keep(store, bench(TWICE))
    told = asked(store, "r/e0#4", "/stage")
    assert (told.verdict, told.by, told.cell, told.value) == ("written", "r/e0#2", "deals/D-1 /stage", "lost")
    assert steps(told) == [("wrote", "r/e0#2", True), ("wrote", "r/e0#1", False)]
    assert {step.told for step in told.steps} == {"shown by snapshots"}
    assert asked(store, "r/e0#4", "/owner").by == "r/e0#3"


def test_what_another_episode_left_is_followed_into_it(store: Store) -> None:
    keep(store, bench(LOOK, CREATE, LOOK, LOOK, faults=("leaky",)))
    told = asked(store, "r/e3#1", "/items/3/id")
    assert (told.verdict, told.by) == ("written", "r/e1#1")
    assert told.steps[0].told == "shown by snapshots"


def test_what_was_there_from_the_first_is_the_start_state(store: Store) -> None:
    keep(store, bench(LOOK, LOOK, LOOK))
    told = asked(store, "r/e2#2", "/stage")
    assert (told.verdict, told.by) == ("start", "r/e0/s0")


def test_what_a_reset_undid_was_set_up_anew(store: Store) -> None:
    made = bench(PATCH, LOOK)
    run = keep(store, made)
    told = asked(store, "r/e1#2", "/stage")
    assert (told.verdict, told.by) == ("start", "r/e1/s0")
    assert told.steps[0].told == "not there when e0 ended: set up anew for e1"
    second = next(trace.episode for trace in made.traces if trace.episode.name == "e1")
    writer = store.writer()
    bucket = writer.open_episode(replace(episode(UNATTRIBUTED), run_key=run.key))
    at = second.opened / 1e6 - 0.5
    reset = exchange("POST", "/admin/reset", at_ms=at, took_ms=0.2, is_reset=True, carrier="reset")
    writer.put_exchange(bucket.key, reset)
    writer.close()
    told = asked(store, "r/e1#2", "/stage")
    assert (told.verdict, told.by) == ("reset", "r/unattributed#1")
    assert told.steps[0].target == "/admin/reset"


def test_a_stale_answer_is_led_back_to_where_its_value_came_from(store: Store) -> None:
    keep(store, bench(PATCH, faults=("stale",)))
    told = asked(store, "r/e0#3", "/stage")
    assert (told.verdict, told.value) == ("start", "lead")
    assert steps(told) == [("wrote", "r/e0#2", False), ("start", "r/e0/s0", True)]


def test_without_snapshots_the_words_of_writes_are_followed_and_said_to_be_only_that(store: Store) -> None:
    keep(store, bench(PATCH, LOOK, snapshots=False))
    told = asked(store, "r/e0#3", "/stage")
    assert (told.verdict, told.by, told.steps[0].told) == ("written", "r/e0#2", "by its own words")
    told = asked(store, "r/e0#1", "/stage")
    assert told.verdict == "unknown"
    assert told.why == "no recorded write of the instance set it, and no snapshot says that it was there before"


def test_one_of_two_that_wrote_at_once_is_only_perhaps(store: Store) -> None:
    hand = Hand()
    won = {"id": "D-1", "stage": "won"}
    first = exchange("PATCH", "/deals/D-1", sent={"stage": "won"}, body=won, at_ms=10, took_ms=20, lane="a")
    second = exchange("PATCH", "/deals/D-1", sent={"stage": "won"}, body=won, at_ms=11, took_ms=20, lane="b")
    late = exchange("GET", "/deals/D-1", body=won, at_ms=60)
    states = [(0, {"deals": {"D-1": {"id": "D-1", "stage": "lead"}}}), (50, {"deals": {"D-1": won}})]
    hand.episode("e0", [first, second, late], states)
    keep(store, SimpleNamespace(run=lambda: None, nodes=hand.nodes, traces=list(hand.traces.values())))
    told = asked(store, "r/e0#3", "/stage")
    assert told.verdict == "perhaps"
    assert {(step.address, step.told) for step in told.steps} >= {
        ("r/e0#1", "shown by snapshots, one of 2"), ("r/e0#2", "shown by snapshots, one of 2"),
    }  # fmt: skip


def test_the_state_of_an_episode_at_its_end(store: Store) -> None:
    keep(store, bench(TWICE))
    told = asked(store, "r/e0", "/deals/D-1/stage")
    assert (told.verdict, told.by, told.value) == ("written", "r/e0#2", "lost")
    assert asked(store, "r/e0", "/deals/D-2").verdict == "start"
    gone = asked(store, "r/e0", "/deals/D-9")
    assert (gone.value, gone.verdict) == (None, "start")


def test_a_value_that_no_row_holds_is_followed_by_itself_if_it_says_enough(store: Store) -> None:
    trace_id = "3f2b8c1e-9d4a-4f6b-8e21-7c5d0a9b4e63"
    run = keep(store, Bench())
    writer = store.writer()
    made = writer.open_episode(episode("x", run_key=run.key))
    for one in (
        exchange("POST", "/jobs", sent={"job": trace_id}, body={"ok": True}, at_ms=1),
        exchange("GET", "/status", body={"deep": {"er": [{"job": trace_id}]}, "n": 5}, at_ms=10),
    ):
        writer.put_exchange(made.key, one)
    writer.seal(made).result(5)
    writer.close()
    told = asked(store, "r/x#2", "/deep/er/0/job")
    assert (told.verdict, told.by, told.steps[0].told) == ("perhaps", "r/x#1", "sent it first")


def test_what_cannot_be_meant_is_said(store: Store) -> None:
    keep(store, bench(PATCH))
    for address, pointer, wrong in (
        ("r/e0#3", "/nope", UnknownAddress), ("r/e0", "/deals", WrongUsage), ("r/e0/s0", "/deals/D-1", WrongUsage),
        ("r", "/x", WrongUsage), ("r/e0#2", "/stage/x", UnknownAddress),
    ):  # fmt: skip
        with pytest.raises(wrong):
            asked(store, address, pointer)


def test_the_answer_of_a_write_is_its_own_work(store: Store) -> None:
    keep(store, bench(PATCH))
    told = asked(store, "r/e0#2", "/stage")
    assert (told.verdict, told.by, told.steps[0].what) == ("written", "r/e0#2", "wrote")
    hand = Hand()
    book = exchange(
        "POST", "/slots/8/book", sent={"who": "ada"}, status=201, body={"ok": True, "holder": "ada"}, at_ms=10
    )
    hand.episode("e0", [book], [(0, {"slots": {"8": {"holder": None}}}), (30, {"slots": {"8": {"holder": "ada"}}})])
    keep(store, SimpleNamespace(run=lambda: None, nodes=hand.nodes, traces=list(hand.traces.values())), "book")
    told = asked(store, "book/e0#1", "/holder")
    assert (told.verdict, told.by, told.steps[0].told) == ("written", "book/e0#1", "sent it itself")
    told = asked(store, "book/e0", "/slots/8/holder")
    assert (told.verdict, told.by, told.value) == ("written", "book/e0#1", "ada")


def kept_by_hand(store: Store, second: Exchange) -> None:
    """A claim that the snapshot after it does not show; its value comes while another write runs."""
    hand = Hand()
    claim = exchange("POST", "/deals/D-1/claim", sent={"who": "ada"}, body={"ok": True}, at_ms=10, seq=1)
    none, ada = ({"deals": {"D-1": {"id": "D-1", "owner": owner}}, "notes": {}} for owner in (None, "ada"))
    hand.episode("e0", [claim, second], [(0, none), (20, none), (60, ada)])
    keep(store, SimpleNamespace(run=lambda: None, nodes=hand.nodes, traces=list(hand.traces.values())))


def test_a_value_that_an_earlier_write_was_answered_for_is_not_surely_the_later_ones(store: Store) -> None:
    kept_by_hand(store, exchange("POST", "/deals/D-1/notes", sent={"body": "x"}, status=201, at_ms=50, seq=2))
    told = asked(store, "r/e0", "/deals/D-1/owner")
    assert (told.verdict, told.by) == ("perhaps", "r/e0#1")
    assert [(step.address, step.told) for step in told.steps] == [("r/e0#1", BEFORE), ("r/e0#2", MEANWHILE)]


def test_what_puts_in_force_what_was_given_before_is_named_first_and_not_for_certain(store: Store) -> None:
    kept_by_hand(store, exchange("POST", "/deals/D-1/confirm", sent={}, at_ms=50, seq=2))
    told = asked(store, "r/e0", "/deals/D-1/owner")
    assert (told.verdict, told.by) == ("perhaps", "r/e0#2")
    assert [(step.address, step.told) for step in told.steps] == [("r/e0#2", MEANWHILE), ("r/e0#1", BEFORE)]


def test_a_later_write_that_gives_the_value_itself_is_named_for_certain(store: Store) -> None:
    kept_by_hand(store, exchange("PATCH", "/deals/D-1", sent={"owner": "ada"}, at_ms=50, seq=2))
    told = asked(store, "r/e0", "/deals/D-1/owner")
    assert (told.verdict, told.by) == ("written", "r/e0#2")
