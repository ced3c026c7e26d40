from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from replayproxy.core import jsonvalue, prolly
from replayproxy.core.compare import Comparison, compare
from replayproxy.core.rules import Rule
from replayproxy.core.values import EpisodeState, Outcome, Rows, SnapshotStatus, Trace
from replayproxy.testing import exchange, snapshot, trace

from tests.core.test_treediff import places, planted, shuffled, trees
from tests.core.world import World, deals, played

JSON = {"Content-Type": "application/json"}


def answers(*bodies: Any, **more: Any) -> Trace:
    made = [exchange("GET", f"/x/{index}", body=json.dumps(jsonvalue_plain(body)), headers=JSON, **more)
            for index, body in enumerate(bodies)]  # fmt: skip
    return trace(made)


def jsonvalue_plain(value: Any) -> Any:
    return json.loads(jsonvalue.canonical(value))


def pointers(comparison: Comparison) -> list[str]:
    return [root.pointer for root in comparison.roots]


@settings(max_examples=40)
@given(st.lists(trees, min_size=1, max_size=4))
def test_an_episode_is_the_same_as_itself_with_nothing_explained(bodies: list[Any]) -> None:
    episode = answers(*bodies)
    comparison = compare(episode, copy.deepcopy(episode))
    assert (comparison.verdict, comparison.roots, dict(comparison.explained)) == ("same", (), {})


@settings(max_examples=40)
@given(st.lists(trees, min_size=1, max_size=3), st.lists(trees, min_size=1, max_size=3))
def test_the_verdict_is_the_same_from_both_sides(a: list[Any], b: list[Any]) -> None:
    left, right = answers(*a), answers(*b)
    assert compare(left, right).verdict == compare(right, left).verdict


@settings(max_examples=40)
@given(trees, st.data())
def test_a_planted_change_in_a_body_is_found_at_its_pointer(tree: Any, data: st.DataObject) -> None:
    tree = jsonvalue_plain(tree)
    at = data.draw(st.sampled_from(places(tree)))
    changed = planted(tree, at, "planted")
    assume(changed != tree)
    (root,) = compare(answers(1, tree, 2), answers(1, changed, 2)).roots
    assert (root.a, root.b, root.pointer) == (2, 2, "body" + jsonvalue.pointer(*at))
    assert root.values[1] == "planted"


@settings(max_examples=40)
@given(trees, st.integers())
def test_the_order_of_members_never_differs(tree: Any, seed: int) -> None:
    assert compare(answers(tree), answers(shuffled(tree, seed))).verdict == "same"


@settings(max_examples=40)
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


@given(st.integers(1, 2**32), st.integers(1000, 10**9), st.integers(20, 5000))
@settings(max_examples=30)
def test_a_consistent_renaming_and_a_moved_clock_are_the_same(seed: int, start_ms: int, pace_ms: int) -> None:
    comparison = compare(played(deals, 0), played(deals, seed, start_ms=start_ms, pace_ms=pace_ms))
    assert comparison.roots == ()
    assert comparison.verdict == "same"
    # the deal's id in 3 bodies, 2 paths and Location, the note's id; 2 ETags; created_at 3 times and the note's time
    assert dict(comparison.explained) == {"fresh-id": 7, "validator": 2, "clock": 4}
    assert comparison.not_compared == {"x-request-id": 1}


@given(st.integers(1, 2**32))
@settings(max_examples=20)
def test_an_inconsistent_renaming_is_different(seed: int) -> None:
    def lost(world: World) -> None:
        deals(world)
        world.step("GET", f"/deals/{world.id('deal')}", body={"id": world.id("deal" if world.seed == 0 else "other")})

    comparison = compare(played(lost, 0), played(lost, seed))
    assert [(root.a, root.pointer) for root in comparison.roots] == [(5, "body/id")]


def test_a_value_of_the_other_run_is_a_difference_where_both_have_it() -> None:
    old = World(0)

    def stale(world: World) -> None:
        deals(world)
        world.step("GET", "/deals/latest", body={"latest": {"id": old.id("deal")}})

    (root,) = compare(played(stale, 0), played(stale, 1)).roots
    assert (root.kind, root.a, root.pointer) == ("renaming", 5, "body/latest/id")


def test_ids_that_change_places_are_no_renaming() -> None:
    world = World(0)
    one, two = world.id("1"), world.id("2")
    comparison = compare(answers({"owner": one}, {"owner": two}), answers({"owner": two}, {"owner": one}))
    assert comparison.verdict == "different"


def test_an_id_that_stood_in_the_start_state_is_not_fresh() -> None:
    world = World(0)
    users = {"users": {"1": {"ref": world.id("ann")}, "2": {"ref": world.id("bob")}}}
    tree = prolly.build(users)
    shots = [snapshot(0, tree.root, when="start", rows=2)]

    def assigned(owner: str) -> Trace:
        return trace([exchange("POST", "/deals", body={"owner": world.id(owner)}, at_ms=10)], snapshots=shots)

    assert compare(assigned("ann"), assigned("bob"), load=tree.nodes.__getitem__).verdict == "different"
    assert compare(assigned("new"), assigned("newer"), load=tree.nodes.__getitem__).verdict == "same"


def test_a_standing_clock_is_a_difference() -> None:
    def stopped(world: World) -> None:
        for _ in range(3):
            world.step("GET", "/now", body={"now": world.iso(None if world.seed == 0 else world.start_ms)})

    comparison = compare(played(stopped, 0), played(stopped, 1, start_ms=86_400_000))
    assert [(root.a, root.pointer) for root in comparison.roots] == [(2, "body/now")]


def test_a_time_zone_and_an_expiry_are_the_clock() -> None:
    def session(world: World) -> None:
        world.step("POST", "/login", body={"expires": world.iso(world.now_ms + 3_600_000),
                                           "local": world.iso(world.now_ms + 7_200_000)[:-1]})  # fmt: skip
        for _ in range(20):
            world.step("GET", "/wait", body={})
        world.step("GET", "/session", body={"expires": world.iso(world.start_ms + 3_600_000)})

    comparison = compare(played(session, 0), played(session, 0, start_ms=5000, pace_ms=10))
    assert (comparison.verdict, dict(comparison.explained)) == ("same", {"clock": 3})


def test_a_business_date_that_moved_is_no_clock() -> None:
    left, right = answers({"due": "2023-12-01"}), answers({"due": "2023-12-02"})
    assert compare(left, right).verdict == "different"


def test_a_balance_that_moved_is_never_a_counter() -> None:
    def account(world: World) -> None:
        world.step("GET", f"/accounts/{17 + world.seed}", body={"id": 17 + world.seed, "balance": 17 + world.seed})

    comparison = compare(played(account, 0), played(account, 1))
    assert "body/balance" in [root.pointer for root in comparison.roots] + [
        fold.pointer for root in comparison.roots for fold in root.folded
    ]


def test_a_number_that_serves_as_an_identifier_is_a_counter() -> None:
    def ticket(world: World) -> None:
        number = 40 + world.seed
        world.step("POST", "/tickets", status=201, body={"id": number, "subject": "late"},
                   headers={**JSON, "Location": f"/tickets/{number}"})  # fmt: skip
        world.step("GET", f"/tickets/{number}", body={"id": number, "subject": "late"})
        world.step("POST", f"/tickets/{number}/notes", body={"ticket_id": number, "text": "ok"})

    comparison = compare(played(ticket, 0), played(ticket, 3))
    assert (comparison.verdict, dict(comparison.explained)) == ("same", {"counter": 6})


def test_a_number_that_is_never_used_as_an_identifier_is_none() -> None:
    def ticket(world: World) -> None:
        world.step("POST", "/tickets", status=201, body={"id": 40 + world.seed})

    assert compare(played(ticket, 0), played(ticket, 3)).verdict == "different"


def test_another_choice_of_the_agent_is_no_counter() -> None:
    def reads(world: World) -> None:
        world.step("GET", f"/deals/{42 + world.seed}", body={"title": "Acme"})

    comparison = compare(played(reads, 0), played(reads, 1))
    assert pointers(comparison) == ["request/path"]


def test_short_ids_with_a_prefix_are_renamed_within_what_they_name() -> None:
    def deal(world: World) -> None:
        name = ["D-9f41", "D-77aa"][world.seed]
        world.step("POST", "/deals", body={"id": name})
        world.step("GET", f"/deals/{name}", body={"id": name, "text": f"deal {name} is open"})

    comparison = compare(played(deal, 0), played(deal, 1))
    assert (comparison.verdict, dict(comparison.explained)) == ("same", {"fresh-id": 4})


def test_a_validator_that_stays_while_the_body_changes_is_a_difference() -> None:
    def versions(world: World) -> None:
        for n in (1, 2):
            tag = n if world.seed == 0 else 1
            world.step("GET", "/doc", body={"n": n}, headers={**JSON, "ETag": f'"{world.id(f"v{tag}")}"'})

    comparison = compare(played(versions, 0), played(versions, 1))
    assert [(root.a, root.pointer) for root in comparison.roots] == [(2, "header/etag")]


def test_a_condition_follows_its_validator() -> None:
    def conditional(world: World) -> None:
        tag = f'"{7 + world.seed}"'
        world.step("GET", "/doc", body={"n": 1}, headers={**JSON, "ETag": tag})
        world.step("PUT", "/doc", sent={"n": 2}, request_headers={**JSON, "If-Match": tag}, body=b"", status=204)

    comparison = compare(played(conditional, 0), played(conditional, 1))
    assert (comparison.verdict, dict(comparison.explained)) == ("same", {"validator": 2})


def test_the_environments_own_address_is_explained_and_no_other() -> None:
    def links(world: World) -> None:
        world.step("GET", "/", body={"next": f"http://{world.authority}/page/2"})

    a = played(links, 0, authority="app.test")
    b = played(links, 1, authority="127.0.0.1:8001")
    assert compare(a, b).verdict == "different"
    known = compare(a, b, authorities_b=frozenset({"127.0.0.1:8001"}))
    assert (known.verdict, dict(known.explained)) == ("same", {"authority": 1})


def test_floating_point_noise_is_jitter_and_a_cent_is_not() -> None:
    noise = answers({"x": 0.30000000000000004}), answers({"x": 0.3})
    assert dict(compare(*noise).explained) == {"jitter": 1}
    cents = [trace([exchange("GET", "/x", body=f'{{"x": 1000000000.0{n}}}', headers=JSON)]) for n in (1, 2)]
    assert compare(*cents).verdict == "different"


def test_elapsed_time_is_the_clock_when_it_is_not_longer_than_measured() -> None:
    fast, slow = answers({"elapsed_ms": 1}, took_ms=3), answers({"elapsed_ms": 40}, took_ms=50)
    assert dict(compare(fast, slow).explained) == {"clock": 1}
    assert compare(answers({"elapsed_ms": 1}, took_ms=3), answers({"elapsed_ms": 4000}, took_ms=50)).verdict == "different"


def test_a_digest_is_never_a_fresh_id() -> None:
    chance = random.Random(1)
    a, b = (answers({"sha256": f"{chance.getrandbits(256):064x}"}) for _ in range(2))
    assert compare(a, b).verdict == "different"


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


def test_how_an_exchange_ended_is_compared() -> None:
    whole = trace([exchange("GET", "/x", body=b"abc")])
    cut = trace([exchange("GET", "/x", body=b"ab", outcome=Outcome.CUT)])
    refused = trace([exchange("GET", "/x", status=None, outcome=Outcome.REFUSED)])
    assert compare(whole, cut).roots[0].values == ("answered", "cut")
    assert compare(whole, refused).roots[0].values == ("answered", "refused")
    assert compare(cut, trace([exchange("GET", "/x", body=b"abc", outcome=Outcome.CUT)])).verdict == "same"


@pytest.mark.parametrize(
    ("a", "b", "values"),
    [
        (b"", None, ("empty", "not captured")),
        (b"", b'""', ("empty", "json, 2 bytes")),
        (None, b'""', ("not captured", "json, 2 bytes")),
    ],
)
def test_not_captured_empty_and_the_empty_text_are_three_things(a: Any, b: Any, values: tuple[str, str]) -> None:
    sides = [trace([exchange("DELETE", "/x", sent=body, request_headers=JSON)]) for body in (a, b)]
    (root,) = compare(*sides).roots
    assert (root.pointer, root.values) == ("request/body", values)


def test_each_cookie_is_an_item_of_its_own_and_its_value_is_never_shown() -> None:
    def cookies(sid: str, lang: str) -> Trace:
        headers = [("Set-Cookie", f"sid={sid}; Path=/; Expires=Wed, 01 Jan 2031 00:00:00 GMT"), ("Set-Cookie", lang),
                   ("Link", "</a>; rel=a"), ("Link", "</b>; rel=b")]  # fmt: skip
        return trace([exchange("GET", "/", headers=headers)])

    comparison = compare(cookies("8b1c7f2a9d3e4c5b", "lang=en; Path=/"), cookies("0a9f8e7d6c5b4a39", "lang=de; Path=/app"))
    assert dict(comparison.explained) == {"fresh-id": 1}
    assert pointers(comparison) == ["header/set-cookie/lang"]
    assert comparison.roots[0].folded[0].pointer == "header/set-cookie/lang/path"
    text = json.dumps(comparison.to_json())
    assert not [secret for secret in ("8b1c7f2a", "0a9f8e7d", '"en"', '"de"') if secret in text]


def test_a_credential_is_not_shown_where_else_it_turns_up() -> None:
    def login(token: str) -> Trace:
        return trace([
            exchange("POST", "/login?api_key=K3Y", body={"key": token, "plan": token[:3]}),
            exchange("GET", "/me", request_headers={"Authorization": f"Bearer {token}"}, body={"echo": f"hi {token}"}),
        ])  # fmt: skip

    comparison = compare(login("open sesame one"), login("open sesame two"))
    text = json.dumps(comparison.to_json())
    assert comparison.verdict == "different"
    assert "sesame" not in text
    assert "K3Y" not in text


def test_multipart_uploads_are_their_parts() -> None:
    def upload(boundary: str, inner: bytes) -> Trace:
        mark = boundary.encode()
        body = b'--%s\r\nContent-Disposition: form-data; name="f"; filename="a.txt"\r\n\r\n%s\r\n--%s--\r\n' % (mark, inner, mark)
        return trace([exchange("POST", "/up", sent=body, request_headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})])

    tricky = b"line\r\n--b2x and more"
    assert compare(upload("b1", tricky), upload("b2", tricky)).verdict == "same"
    (root,) = compare(upload("b1", b"one"), upload("b2", b"two")).roots
    assert (root.pointer, root.values) == ("request/body/0/content", ("one", "two"))
    cut = upload("b1", tricky)
    broken = replace(cut.exchanges[0].request, body=exchange(sent=b"--b1\r\nno end").request.body)
    torn = replace(cut, exchanges=[replace(cut.exchanges[0], request=broken)])
    assert pointers(compare(cut, torn)) == ["request/body"]


def test_a_blank_parameter_is_no_missing_one() -> None:
    def asked(target: str) -> Trace:
        return trace([exchange("GET", target)])

    targets = ["/list?tag=", "/list?tag", "/list", "/list?"]
    for index, left in enumerate(targets):
        for right in targets[index + 1 :]:
            assert compare(asked(left), asked(right)).verdict == "different", (left, right)
    assert compare(asked("/list?a=1&b=2"), asked("/list?b=2&a=1")).verdict == "same"
    assert compare(asked("/list?a=1&a=2"), asked("/list?a=2&a=1")).roots[0].kind == "order"


def test_event_streams_are_compared_event_by_event() -> None:
    def stream(world: World) -> None:
        text = "".join(f'id: {world.id(f"event {n}")}\ndata: {{"n": {n}, "at": "{world.iso()}"}}\n\n' for n in range(3))
        text += ": ping\n\n" * world.seed
        world.step("GET", "/events", body=text.encode(), headers={"Content-Type": "text/event-stream"})

    comparison = compare(played(stream, 0), played(stream, 1, start_ms=70_000))
    assert (comparison.verdict, dict(comparison.explained)) == ("same", {"fresh-id": 3, "clock": 3})


def test_text_differs_at_its_line() -> None:
    texts = [trace([exchange("GET", "/t", body=t.encode(), headers={"Content-Type": "text/plain"})])
             for t in ("one\ntwo\nthree\n", "one\n2\nthree\n")]  # fmt: skip
    (root,) = compare(*texts).roots
    assert (root.pointer, root.values) == ("body#line=2", ("two", "2"))


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
        return trace([exchange("GET", "/x", at_ms=0, took_ms=50, body=body), exchange("GET", "/x", at_ms=10, body=body)])

    assert compare(overlapping({"n": 1}), overlapping({"n": 1})).verdict == "undecided"
    assert compare(overlapping({"n": 1}), overlapping({"n": 2})).verdict == "different"


def test_nothing_to_compare_is_undecided() -> None:
    assert compare(trace([]), trace([])).verdict == "undecided"


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
    from datetime import date

    rules = [
        Rule(name="etag", pointer="header/etag", reason="weak validators"),
        Rule(name="idle", pointer="header/age", reason="never there"),
        Rule(name="old", pointer="/x", reason="was so once", until=date(2023, 1, 1)),
    ]
    sides = [trace([exchange("GET", "/x", body=f'{{"x": {n}}}', headers={**JSON, "ETag": f"{'W/' * n}\"1\""})]) for n in (0, 1)]
    comparison = compare(*sides, rules=rules, today=date(2026, 1, 1))
    assert dict(comparison.explained) == {"rule:etag": 1}
    assert (comparison.unused_rules, comparison.expired_rules) == (("idle",), ("old",))
    assert pointers(comparison) == ["body/x"]
