from __future__ import annotations

import copy
import random
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from replayproxy.core import jsonvalue, prolly
from replayproxy.core.compare import compare
from replayproxy.core.comparison import NOT_SHOWN
from replayproxy.core.rules import Rule
from replayproxy.core.secretnames import is_secret_name
from replayproxy.core.values import EpisodeState, Outcome, Rows, SnapshotStatus, Trace
from replayproxy.testing import exchange, snapshot, trace
from tests.core.test_treediff import places, planted, shuffled
from tests.core.world import JSON, World, answers, deals, plain, played, pointers, relaxed, trees


@relaxed
@given(st.lists(trees, min_size=1, max_size=4))
def test_an_episode_is_the_same_as_itself_with_nothing_explained(bodies: list[Any]) -> None:
    episode = answers(*bodies)
    comparison = compare(episode, copy.deepcopy(episode))
    assert (comparison.verdict, comparison.roots, dict(comparison.explained)) == ("same", (), {})


@relaxed
@given(st.lists(trees, min_size=1, max_size=3), st.lists(trees, min_size=1, max_size=3))
def test_the_verdict_is_the_same_from_both_sides(a: list[Any], b: list[Any]) -> None:
    left, right = answers(*a), answers(*b)
    assert compare(left, right).verdict == compare(right, left).verdict


@relaxed
@given(trees, st.data())
def test_a_planted_change_in_a_body_is_found_at_its_pointer(tree: Any, data: st.DataObject) -> None:
    tree = plain(tree)
    at = data.draw(st.sampled_from(places(tree)))
    changed = planted(tree, at, "planted")
    assume(changed != tree)
    (root,) = compare(answers(1, tree, 2), answers(1, changed, 2)).roots
    assert (root.a, root.b, root.pointer) == (2, 2, "body" + jsonvalue.pointer(*at))
    # The tree's names are chance's: under one that names a secret no value is shown.
    member = next((part for part in reversed(at) if isinstance(part, str)), "")
    assert root.values[1] == (NOT_SHOWN if is_secret_name(member) else "planted")


@relaxed
@given(trees, st.integers())
def test_the_order_of_members_never_differs(tree: Any, seed: int) -> None:
    assert compare(answers(tree), answers(shuffled(tree, seed))).verdict == "same"


@relaxed
@given(st.lists(st.integers(), min_size=2, max_size=9, unique=True), st.randoms(use_true_random=False))
def test_the_order_of_elements_differs_with_class_order(items: list[int], chance: random.Random) -> None:
    moved = list(items)
    chance.shuffle(moved)
    assume(moved != items)
    comparison = compare(answers({"items": items}), answers({"items": moved}))
    assert [(root.pointer, root.kind) for root in comparison.roots] == [("body/items", "order")]
    rule = Rule(name="any order", at="GET /x/{id}", pointer="/items", action="order-insensitive", reason="a set")
    ruled = compare(answers({"items": items}), answers({"items": moved}), rules=[rule])
    assert (ruled.verdict, dict(ruled.explained)) == ("same", {"rule:any order": 1})


def test_one_extra_step_is_one_insertion() -> None:
    steps = [("GET", f"/x/{n}") for n in range(8)]
    a = trace([exchange(m, t) for m, t in steps])
    b = trace([exchange(m, t) for m, t in [*steps[:3], ("GET", "/extra"), *steps[3:]]])
    comparison = compare(a, b)
    assert [(root.a, root.b, root.kind) for root in comparison.roots] == [(None, 4, "inserted")]
    assert comparison.to_json("a/e", "b/e")["unpaired"] == [{"side": "b", "exchange": "b/e#4"}]


def test_requests_after_a_changed_one_are_folded_under_it() -> None:
    a = trace([exchange("GET", t) for t in ("/a", "/b", "/c", "/d")])
    b = trace([exchange("GET", t) for t in ("/a", "/p", "/q", "/d")])
    (root,) = compare(a, b).roots
    assert (root.kind, root.consequences) == ("deleted", 3)
    assert {fold.by for fold in root.folded} == {"control"}


def test_lanes_are_compared_each_for_itself() -> None:
    def interleaved(order: str) -> Trace:
        counts = {"a": 0, "b": 0}
        made = []
        for at, lane in enumerate(order):
            counts[lane] += 1
            made.append(exchange("GET", f"/{lane}/{counts[lane]}", lane=lane, at_ms=at * 10, body={"n": counts[lane]}))
        return trace(made)

    assert compare(interleaved("abab"), interleaved("bbaa")).verdict == "same"


def test_a_value_that_differs_again_is_a_consequence() -> None:
    comparison = compare(played(deals, 0), played(lambda w: deals(w, amount=101), 1))
    (root,) = comparison.roots
    assert (root.a, root.pointer, root.values, root.consequences) == (1, "body/amount", (100, 101), 2)
    assert [(fold.template, fold.pointer, fold.by) for fold in root.folded] == [
        ("GET /deals/{id}", "body/amount", "value"), ("GET /deals", "body/items/*/amount", "value"),
    ]  # fmt: skip


def test_two_unrelated_differences_are_two_roots() -> None:
    a = answers({"p": 1}, {"q": "x"}, {"r": 5})
    b = answers({"p": 2}, {"q": "x"}, {"r": 6})
    assert pointers(compare(a, b)) == ["body/p", "body/r"]


# -- verdicts


def test_an_incomplete_episode_is_undecided_whatever_differs() -> None:
    whole = answers({"x": 1})
    for state in (EpisodeState.INCOMPLETE, EpisodeState.OPEN):
        broken = replace(answers({"x": 2}), episode=replace(whole.episode, state=state))
        comparison = compare(whole, broken)
        assert (comparison.verdict, len(comparison.roots)) == ("undecided", 1)
        assert str(state) in comparison.undecided[0]


def test_overlapping_equal_requests_of_one_lane_are_at_most_undecided() -> None:
    def overlapping(body: Any) -> Trace:
        first, second = exchange("GET", "/x", took_ms=50, body=body), exchange("GET", "/x", at_ms=10, body=body)
        return trace([first, second])

    assert compare(overlapping({"n": 1}), overlapping({"n": 1})).verdict == "undecided"
    assert compare(overlapping({"n": 1}), overlapping({"n": 2})).verdict == "different"


def test_nothing_to_compare_is_undecided() -> None:
    assert compare(trace([]), trace([])).verdict == "undecided"


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.TIMED_OUT, Outcome.CLIENT_GONE, Outcome.HALF_SENT])
def test_episodes_in_which_the_environment_never_answered_prove_nothing(outcome: Outcome) -> None:
    def silent() -> Trace:
        return trace([exchange("GET", "/x", status=None, outcome=outcome)])

    comparison = compare(silent(), silent())
    assert (comparison.verdict, comparison.roots) == ("undecided", ())
    assert "answered none" in comparison.undecided[0]
    assert compare(silent(), answers({"n": 1})).verdict == "different"


def test_our_own_answers_are_not_the_environments_word() -> None:
    def local() -> Trace:
        return trace([exchange("GET", "/x", status=502, body={"title": "no upstream"}, outcome=Outcome.LOCAL)])

    assert compare(local(), local()).verdict == "undecided"


def test_a_body_that_neither_side_has_is_not_the_same_body() -> None:
    def uncaptured() -> Trace:
        return trace([exchange("GET", "/x", body=None), exchange("GET", "/y", body={"n": 1})])

    comparison = compare(uncaptured(), uncaptured())
    assert (comparison.verdict, comparison.exchanges_compared) == ("undecided", 2)
    assert "not captured" in comparison.undecided[0]


def test_trailers_that_differ_are_counted() -> None:
    def ended(status: bytes) -> Trace:
        one = exchange("GET", "/x", body={"n": 1})
        assert one.response is not None
        return trace([replace(one, response=replace(one.response, trailers=((b"Grpc-Status", status),)))])

    assert dict(compare(ended(b"0"), ended(b"13")).not_compared) == {"trailer grpc-status": 1}


# -- states


class Store(dict[bytes, bytes]):
    def state(self, rows: Rows) -> bytes:
        tree = prolly.build(rows)
        self.update(tree.nodes)
        return tree.root


def recorded(store: Store, world: World, states: list[Rows], **more: Any) -> Trace:
    """The script's exchanges, a snapshot at the start and one after each write."""
    writes = [e for e in world.done if e.request.method != b"GET"]
    first = snapshot(0, store.state(states[0]), when="start", at_ms=world.start_ms - 5)
    shots = [snapshot(n, store.state(rows), after=write, at_ms=write.times.head / 1e6 + 6)
             for n, (write, rows) in enumerate(zip(writes, states[1:], strict=True), 1)]  # fmt: skip
    return world.trace(snapshots=[first, *shots], **more)


def ticket(world: World, number: int) -> dict[str, Any]:
    return {"id": number, "ref": world.id(f"ticket {number}"), "opened": world.iso(), "priority": "low"}


def test_rows_with_fresh_ids_counters_and_times_are_the_same_state() -> None:
    store = Store()

    def run(world: World) -> Trace:
        states: list[Rows] = [{"tickets": {}}]
        for n in range(3):
            number = 10 * world.seed + n
            row = ticket(world, number)
            world.step("POST", "/tickets", status=201, body=row, headers={**JSON, "Location": f"/tickets/{number}"})
            states.append({"tickets": {**states[-1]["tickets"], str(number): row}})
        return recorded(store, world, states)

    a, b = run(World(0)), run(World(1, start_ms=9000))
    comparison = compare(a, b, load=store.__getitem__)
    assert comparison.roots == ()
    assert (comparison.verdict, comparison.snapshots_compared) == ("same", 4)
    # each ticket: body id and Location, row key and id -> counter; body and row: ref -> fresh id, opened -> clock
    assert dict(comparison.explained) == {"counter": 12, "fresh-id": 6, "clock": 6}


def test_the_first_differing_snapshot_is_named_by_table_key_and_pointer() -> None:
    store = Store()

    def run(world: World, priority: Any) -> Trace:
        world.step("PATCH", "/tickets/17", sent={"priority": "low"}, body={"ok": True})
        world.step("GET", "/tickets", body={"ok": True})
        before = {"helpdesk.tickets": {"17": {"priority": "high"}, "18": {"priority": "high"}}}
        after = {"helpdesk.tickets": {"17": {"priority": priority}, "18": {"priority": "high"}}}
        return recorded(store, world, [before, after])

    comparison = compare(run(World(0), "low"), run(World(0), None), load=store.__getitem__)
    assert comparison.verdict == "different"
    state = comparison.state
    assert state is not None
    assert (state.after, state.table, state.key, state.pointer, state.values) == (
        (1, 1), "helpdesk.tickets", "17", "/priority", ("low", None),
    )  # fmt: skip
    assert [(root.kind, root.pointer) for root in comparison.roots] == [("state", "state/helpdesk.tickets/17/priority")]


def test_a_read_of_a_row_that_differs_is_a_consequence_of_the_state() -> None:
    store = Store()

    def run(world: World, stage: str) -> Trace:
        world.step("POST", "/session", status=201, body={})
        world.step("GET", "/deals/42", body={"id": 42, "stage": stage})
        rows: Rows = {"deals": {"42": {"stage": stage}, "43": {"stage": "lead"}}}
        return recorded(store, world, [rows, rows])

    (root,) = compare(run(World(0), "lead"), run(World(0), "won"), load=store.__getitem__).roots
    assert (root.kind, root.pointer, root.consequences) == ("state", "state/deals/42/stage", 1)


def test_equal_states_around_a_root_say_that_the_answer_changed_and_not_the_data() -> None:
    store = Store()

    def run(world: World, amount: Any) -> Trace:
        world.step("POST", "/session", status=201, body={})
        world.step("GET", "/deals/42", body={"amount": amount})
        world.step("POST", "/done", status=201, body={})
        rows: Rows = {"deals": {"42": {"amount": "1200.00"}}}
        return recorded(store, world, [rows, rows, rows])

    (root,) = compare(run(World(0), "1200.00"), run(World(0), 1200.0), load=store.__getitem__).roots
    assert (root.kind, root.state, root.note) == ("type", "equal", "text became number")


def test_a_snapshot_that_one_side_lacks_is_named_and_leaves_it_undecided() -> None:
    store = Store()
    world = World(0)
    world.step("POST", "/a", body={})
    a = recorded(store, world, [{}, {}])
    gone = replace(a.snapshots[1], root=None, status=SnapshotStatus.MISSING, reason="no answer in 30 s")
    lost = replace(a, snapshots=[a.snapshots[0], gone])
    comparison = compare(a, lost, load=store.__getitem__)
    assert (comparison.verdict, len(comparison.undecided)) == ("undecided", 1)
    assert "missing on B" in comparison.undecided[0]
    none = replace(a, snapshots=[])
    only = compare(a, none, load=store.__getitem__)
    assert (only.verdict, only.notes) == ("same", ("state of app not compared: only A has snapshots of it",))


def test_rules_are_counted_and_unused_and_expired_ones_are_named() -> None:

    rules = [
        Rule(name="etag", pointer="header/etag", reason="weak validators"),
        Rule(name="idle", pointer="header/age", reason="never there"),
        Rule(name="old", pointer="/x", reason="was so once", until=date(2023, 1, 1)),
    ]
    tags = ['"1"', 'W/"1"']
    sides = [trace([exchange("GET", "/x", body=f'{{"x": {n}}}', headers={**JSON, "ETag": tags[n]})]) for n in (0, 1)]
    comparison = compare(*sides, rules=rules, today=date(2026, 1, 1))
    assert dict(comparison.explained) == {"rule:etag": 1}
    assert (comparison.unused_rules, comparison.expired_rules) == (("idle",), ("old",))
    assert pointers(comparison) == ["body/x"]
